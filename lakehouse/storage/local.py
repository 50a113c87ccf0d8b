"""Local files, durable: sync a temporary file, name it atomically, sync its folder.

Behind it are system calls, one method each: tests cut the power between any two.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat as stat_bits
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol

import pyarrow.fs as pafs

from lakehouse.errors import FileAlreadyExistsError, NoSuchFileError, StorageError
from lakehouse.kept_by_bytes import KeptByBytes, bytes_of
from lakehouse.storage.arrow_filesystem import StorageHandler
from lakehouse.storage.location import local_path
from lakehouse.storage.storage_protocol import (
    WHOLE_BYTES_MAX,
    DeleteReport,
    FileInfo,
    Storage,
    WriteOnlyStream,
)


@dataclass(frozen=True, slots=True)
class Stat:
    """Size, time and kind of a file or folder.

    Attributes:
        size: bytes.
        modified_ms: milliseconds since the epoch.
        inode: identity of the file behind its names.
        is_folder: whether it is a directory.
        is_file: whether it is a regular file: no pipe, no device.
        is_link: whether the name is a symbolic link; the rest is about what it points at.
    """

    size: int
    modified_ms: int
    inode: int
    is_folder: bool
    is_file: bool = True
    is_link: bool = False


class Disk(Protocol):
    """POSIX file calls. All raise OSError as the system does."""

    def create(self, path: str) -> int:
        """Open a new file for writing (O_EXCL); returns a handle."""

    def write(self, handle: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`."""

    def fsync(self, handle: int) -> None:
        """Make the file's content durable."""

    def close(self, handle: int) -> None:
        """Close the handle."""

    def fsync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""

    def link(self, source: str, target: str) -> None:
        """A second name for a file; fails when `target` exists."""

    def replace(self, source: str, target: str) -> None:
        """Rename atomically over `target`."""

    def unlink(self, path: str) -> None:
        """Remove a name."""

    def mkdir(self, path: str) -> None:
        """Create one folder."""

    def rmdir(self, path: str) -> None:
        """Remove one empty folder."""

    def stat(self, path: str) -> Stat:
        """Facts about a file or folder, links followed."""

    def names(self, path: str) -> list[tuple[str, bool]]:
        """(name, is a folder) of everything in a folder."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Content, or the part of it that exists.

        OSError for what is no regular file, whose content may have no end, and where more than
        `WHOLE_BYTES_MAX` bytes would be read to the end.
        """


class PosixDisk(Disk):
    """POSIX file calls of the operating system."""

    def create(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, handle: int, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        while view:
            view = view[os.write(handle, view) :]

    def fsync(self, handle: int) -> None:
        os.fsync(handle)

    def close(self, handle: int) -> None:
        os.close(handle)

    def fsync_folder(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def replace(self, source: str, target: str) -> None:
        Path(source).replace(target)

    def unlink(self, path: str) -> None:
        Path(path).unlink()

    def mkdir(self, path: str) -> None:
        Path(path).mkdir()

    def rmdir(self, path: str) -> None:
        Path(path).rmdir()

    def stat(self, path: str) -> Stat:
        status = os.lstat(path)
        is_link = stat_bits.S_ISLNK(status.st_mode)
        if is_link:
            status = Path(path).stat()
        return Stat(
            status.st_size,
            status.st_mtime_ns // 1_000_000,
            status.st_ino,
            stat_bits.S_ISDIR(status.st_mode),
            stat_bits.S_ISREG(status.st_mode),
            is_link,
        )

    def names(self, path: str) -> list[tuple[str, bool]]:
        with os.scandir(path) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """A file's content, or the part of the range that exists."""
        # without blocking, because a pipe that nobody writes to would never open
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(handle, "rb", buffering=0) as file:  # noqa: PTH123 - a handle, not a path
            status = os.fstat(handle)
            mode = status.st_mode
            if stat_bits.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if not stat_bits.S_ISREG(mode):
                raise OSError(errno.EINVAL, "Not a regular file", path)
            if length is None and status.st_size - offset > WHOLE_BYTES_MAX:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
            if offset:
                file.seek(offset)
            return file.read() if length is None else _read_fully(file.read, length)


def _read_fully(read: object, length: int) -> bytes:
    parts: list[bytes] = []
    while length > 0:
        part = read(length)  # type: ignore[operator]
        if not part:
            break
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


_RETRYABLE = frozenset(
    {
        errno.EAGAIN,
        errno.EINTR,
        errno.EBUSY,
        errno.ETIMEDOUT,
        errno.ESTALE,
        errno.EMFILE,
        errno.ENFILE,
    }
)
_CERTAIN = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EPERM, errno.EACCES, errno.EROFS, errno.EMLINK}
)
_CANNOT_SYNC = frozenset({errno.EROFS, errno.EINVAL, errno.EACCES, errno.ENOTSUP, errno.ENOENT})
"""Where readers cannot make anything durable: nothing is lost by going on."""
_ABSENT = (FileNotFoundError, NotADirectoryError)
_BUFFER_BYTES = 1 << 20
_CONCURRENT_SYNCS = 32
_FOLDERS_BYTES_MAX = 4 * 1024 * 1024


def is_temporary(name: str) -> bool:
    """Whether a file's name is that of one that a writer has not finished, or never will."""
    return name.startswith(".") and name.endswith(".tmp")


class LocalStorage(Storage):
    """Storage on a POSIX file system.

    Args:
        properties: passed through to workers; unused here.
        disk: the system calls; tests pass one that loses power.
        new_name: names temporary files.
    """

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        disk: Disk | None = None,
        new_name: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._properties = dict(properties or {})
        self._disk: Disk = disk if disk is not None else PosixDisk()
        self._new_name = new_name
        self._native = disk is None
        self._durable_folders: KeptByBytes[str, int] = KeptByBytes(_FOLDERS_BYTES_MAX)

    @property
    def properties(self) -> Mapping[str, str]:
        return self._properties

    @property
    def on_this_disk(self) -> bool:
        """Whether locations are paths that other programs of this machine see as well."""
        return self._native

    def read(self, location: str) -> bytes:
        return self.read_range(location, 0, None)

    def read_range(self, location: str, offset: int, length: int | None) -> bytes:
        """Bytes [offset, offset+length), fewer only at the end of the file.

        Length None reads to the end.
        """
        path = local_path(location)
        try:
            return self._disk.read(path, offset, length)
        except (*_ABSENT, IsADirectoryError) as error:
            raise NoSuchFileError(f"No file at {location}.", location=location) from error
        except OSError as error:
            _fail("read", location, error)

    def write(self, location: str, data: bytes, *, durable: bool = True) -> None:
        with self.open_output(location, durable=durable) as stream:
            stream.write(data)

    def write_new(self, files: Mapping[str, bytes]) -> None:
        """Write new files under names that nobody refers to yet.

        Each file is synced, and each folder once; several at once, so that they share commits of
        the file system's journal.
        """
        waiting = list(files.items())
        folders = sorted({_folder(local_path(location)) for location in files})
        while waiting or folders:
            part, waiting = waiting[:_CONCURRENT_SYNCS], waiting[_CONCURRENT_SYNCS:]
            created = self._create_new_ones(part)
            syncs = [partial(self._sync_new, *item) for item in created.items()]
            if not waiting:  # every name is there
                syncs += [partial(self._sync_folder, folder) for folder in folders]
                folders = []
            _all_of(syncs, at_once=self._native)

    def create(self, location: str, data: bytes) -> None:
        path = local_path(location)
        temporary = self._write_temporary(path, location, data)
        try:
            self._link(temporary, path, location)
        finally:
            self._discard(temporary)
        try:
            self._disk.fsync_folder(_folder(path))
        except OSError as error:
            _fail("make durable", location, error)

    def make_name_durable(self, location: str) -> None:
        try:
            self._disk.fsync_folder(_folder(local_path(location)))
        except OSError as error:
            if error.errno not in _CANNOT_SYNC:
                _fail("make durable", location, error)

    def open_output(self, location: str, *, durable: bool = True) -> LocalOutput:
        path = local_path(location)
        try:
            self._make_folders(_folder(path))
            return LocalOutput(
                self._disk, location, path, self._temporary_path(path), durable=durable
            )
        except OSError as error:
            _fail("create", location, error)

    def exists(self, location: str) -> bool:
        try:
            return not self._disk.stat(local_path(location)).is_folder
        except _ABSENT:
            return False
        except OSError as error:
            _fail("look at", location, error)

    def size(self, location: str) -> int:
        try:
            return self._disk.stat(local_path(location)).size
        except _ABSENT as error:
            raise NoSuchFileError(f"No file at {location}.", location=location) from error
        except OSError as error:
            _fail("look at", location, error)

    def list(self, prefix: str) -> Iterator[FileInfo]:
        spelled, root = prefix.rstrip("/"), local_path(prefix).rstrip("/")
        folders = [""]
        while folders:
            folder = folders.pop()
            for name, is_folder in self._names(root + folder, prefix):
                below = f"{folder}/{name}"
                if is_folder:
                    folders.append(below)
                    continue
                try:
                    stat = self._disk.stat(root + below)
                except _ABSENT:
                    continue
                except OSError as error:
                    _fail("look at", spelled + below, error)
                if stat.is_file:
                    yield FileInfo(
                        spelled + below, stat.size, stat.modified_ms, is_link=stat.is_link
                    )

    def list_folders(self, prefix: str) -> Sequence[str]:
        return sorted(
            name for name, is_folder in self._names(local_path(prefix), prefix) if is_folder
        )

    def delete(self, locations: Iterable[str]) -> DeleteReport:
        """Delete in order as far as possible; failures are in the report.

        Folders left empty stay.
        """
        deleted: list[str] = []
        missing: list[str] = []
        failed: dict[str, str] = {}
        for location in locations:
            try:
                self._disk.unlink(local_path(location))
                deleted.append(location)
            except _ABSENT:
                missing.append(location)
            except OSError as error:
                failed[location] = error.strerror or str(error)
        return DeleteReport(tuple(deleted), tuple(missing), failed)

    def remove_folders(self, prefix: str) -> None:
        """Remove `prefix` and the folders below it as far as they are empty."""
        root = local_path(prefix).rstrip("/")
        for name, is_folder in self._names(root, prefix):
            if is_folder:
                self.remove_folders(f"{prefix.rstrip('/')}/{name}")
        with contextlib.suppress(OSError):
            self._disk.rmdir(root)

    def filesystem(self, location: str) -> tuple[pafs.FileSystem, str]:
        if self._native:
            path = local_path(location)
            with contextlib.suppress(OSError):
                stat = self._disk.stat(path)
                if not stat.is_file and not stat.is_folder:
                    raise StorageError(
                        f"Cannot read {location}: Not a regular file.", location=location
                    )
            return pafs.LocalFileSystem(), path
        return pafs.PyFileSystem(StorageHandler(self)), location

    def __reduce__(self) -> tuple[object, ...]:
        if not self._native:
            raise TypeError("A LocalStorage over a simulated disk lives in one process.")
        return (LocalStorage, (self._properties,))

    def _create_new_ones(self, files: Sequence[tuple[str, bytes]]) -> dict[str, int]:
        """Their handles; none of them stays open where one cannot be written."""
        created: dict[str, int] = {}
        try:
            for location, data in files:
                created[location] = self._create_new(location, data)
        except BaseException:
            for handle in created.values():
                self._disk.close(handle)
            raise
        return created

    def _create_new(self, location: str, data: bytes) -> int:
        """The handle of a new file with this content."""
        path, handle = local_path(location), None
        try:
            self._make_folders(_folder(path))
            handle = self._disk.create(path)
            self._disk.write(handle, data)
        except FileExistsError as error:
            _fail("write", location, error)  # another writer's file stays
        except OSError as error:
            if handle is not None:
                self._disk.close(handle)
            self._discard(path)
            _fail("write", location, error)
        return handle

    def _sync_new(self, location: str, handle: int) -> None:
        try:
            try:
                self._disk.fsync(handle)
            finally:
                self._disk.close(handle)
        except OSError as error:
            self._discard(local_path(location))
            _fail("write", location, error)

    def _sync_folder(self, folder: str) -> None:
        try:
            self._disk.fsync_folder(folder)
        except OSError as error:
            _fail("make durable", folder, error)

    def _write_synced(self, path: str, data: bytes) -> None:
        handle = self._disk.create(path)
        try:
            self._disk.write(handle, data)
            self._disk.fsync(handle)
        finally:
            self._disk.close(handle)

    def _write_temporary(self, path: str, location: str, data: bytes) -> str:
        temporary = self._temporary_path(path)
        try:
            self._make_folders(_folder(path))
            self._write_synced(temporary, data)
        except OSError as error:
            self._discard(temporary)
            _fail("write", location, error, commit_outcome="failed")
        return temporary

    def _link(self, temporary: str, path: str, location: str) -> None:
        try:
            self._disk.link(temporary, path)
        except OSError as error:
            try:
                existing = self._disk.stat(path)
                if existing.inode == self._disk.stat(temporary).inode:
                    return  # network file systems repeat a call whose reply was lost
            except _ABSENT:
                _fail(
                    "link",
                    location,
                    error,
                    commit_outcome="failed" if error.errno in _CERTAIN else "unknown",
                )
            except OSError as second:
                _fail("link", location, second)
            if isinstance(error, FileExistsError) or error.errno == errno.EEXIST:
                raise FileAlreadyExistsError(
                    f"A file exists at {location}.", location=location
                ) from error
            _fail("link", location, error)

    def _temporary_path(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        return f"{folder}/.{name[:120]}.{self._new_name()}.tmp"

    def _make_folders(self, folder: str) -> None:
        """Make a folder and its parents, durably.

        Another process may have made an existing folder and not synced its parent yet. So when this
        storage first writes into a folder it syncs the parent itself, and so on upwards until a
        folder that it has synced before and that is still the same one: another process may have
        removed it and made a new folder of that name.
        """
        unsure: list[str] = []
        while folder and not self._is_known(folder):
            unsure.append(folder)
            folder = _folder(folder)
        for path in reversed(unsure):
            self._make_folder(path)
        for path in unsure:
            inode = self._inode(path)
            if inode is not None:
                self._durable_folders.put(path, inode, bytes_of(path, inode))

    def _make_folder(self, path: str) -> None:
        exists = self._inode(path) is not None
        if not exists:
            with contextlib.suppress(FileExistsError):
                self._disk.mkdir(path)
        try:
            self._disk.fsync_folder(_folder(path) or "/")
        except OSError as error:
            # the parents of a warehouse may be closed to us
            if not exists or error.errno not in _CANNOT_SYNC:
                raise

    def _is_known(self, folder: str) -> bool:
        known = self._durable_folders.get(folder)
        return known is not None and known == self._inode(folder)

    def _inode(self, folder: str) -> int | None:
        """What tells a folder from another one of the same name; None when it is not there."""
        try:
            stat = self._disk.stat(folder)
        except FileNotFoundError:
            return None
        return stat.inode if stat.is_folder else None

    def _names(self, path: str, location: str) -> Sequence[tuple[str, bool]]:
        try:
            return self._disk.names(path)
        except _ABSENT:
            return []
        except OSError as error:
            _fail("list", location, error)

    def _discard(self, path: str) -> None:
        with contextlib.suppress(OSError):
            self._disk.unlink(path)


class LocalOutput(WriteOnlyStream):
    """OutputStream: a temporary file beside the target, synced and renamed by `close`."""

    def __init__(
        self, disk: Disk, location: str, path: str, temporary: str, *, durable: bool = True
    ) -> None:
        self._disk, self._location, self._path, self._temporary = disk, location, path, temporary
        self._durable = durable
        self._handle: int | None = disk.create(temporary)
        self._buffer = bytearray()
        self._written = 0

    @property
    def closed(self) -> bool:
        return self._handle is None

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        view = memoryview(data).cast("B")
        if len(self._buffer) + len(view) > _BUFFER_BYTES:
            self.flush()
        if len(view) >= _BUFFER_BYTES:
            self._write(view)
        else:
            self._buffer += view
        self._written += len(view)
        return len(view)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        if self._buffer:
            data, self._buffer = self._buffer, bytearray()
            self._write(data)

    def close(self) -> None:
        if self._handle is None:
            return
        try:
            self.flush()
            if self._durable:
                self._disk.fsync(self._open_handle())
            handle, self._handle = self._handle, None
            self._disk.close(handle)
            self._disk.replace(self._temporary, self._path)
            if self._durable:
                self._disk.fsync_folder(_folder(self._path))
        except OSError as error:
            self.abort()
            _fail("write", self._location, error)

    def abort(self) -> None:
        handle, self._handle = self._handle, None
        self._buffer = bytearray()
        if handle is not None:
            with contextlib.suppress(OSError):
                self._disk.close(handle)
        with contextlib.suppress(OSError):
            self._disk.unlink(self._temporary)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.abort()

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self._disk.write(self._open_handle(), data)
        except OSError as error:
            self.abort()
            _fail("write", self._location, error)

    def _open_handle(self) -> int:
        if self._handle is None:
            raise StorageError(f"The file {self._location} is closed.", location=self._location)
        return self._handle


_pool: list[ThreadPoolExecutor] = []
os.register_at_fork(after_in_child=_pool.clear)  # threads stay with the parent


def _all_of(syncs: Sequence[Callable[[], None]], *, at_once: bool) -> None:
    """Call all, however many fail; raise what the first of them raised."""
    if not at_once or len(syncs) < 2:
        for sync in syncs:
            sync()
        return
    if not _pool:
        _pool.append(ThreadPoolExecutor(_CONCURRENT_SYNCS, thread_name_prefix="sync"))
    others = [_pool[0].submit(sync) for sync in syncs[1:]]
    try:
        syncs[0]()
    finally:
        wait(others)
    for done in others:
        done.result()


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _fail(action: str, location: str, error: OSError, **context: object) -> NoReturn:
    reason = error.strerror or str(error)
    remedy = {
        errno.ENOSPC: " Free space on the disk, then try again.",
        errno.EDQUOT: " Raise the disk quota, then try again.",
        errno.EACCES: " Check the permissions of the folder.",
        errno.EROFS: " The file system is read-only.",
        errno.EPERM: " If the file system has no hard links, use a SQL catalog.",
    }.get(error.errno or 0, "")
    raise StorageError(
        f"Cannot {action} {location}: {reason}.{remedy}",
        retryable=error.errno in _RETRYABLE,
        location=location,
        errno=error.errno,
        **context,
    ) from error
