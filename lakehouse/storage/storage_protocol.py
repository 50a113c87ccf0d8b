"""What every layer above asks of a place that keeps files.

Locations are URIs (`file:///x`, `s3://bucket/key`, `memory://name/key`) or absolute local paths,
taken literally: a percent sign in a location is a percent sign in the file's name, as in every
Iceberg engine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import pyarrow.fs as pafs

from lakehouse.errors import NoSuchFileError

WHOLE_BYTES_MAX = 1024**3
"""Bytes of a file that is read as a whole: anybody may have put a file there that has no end."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file as a listing shows it.

    Attributes:
        location: in the spelling of the prefix that was listed.
        size: bytes.
        modified_ms: last modification, milliseconds since the epoch, by the storage's clock.
        is_link: whether the name is a symbolic link to a file, which may lie anywhere.
    """

    location: str
    size: int
    modified_ms: int
    is_link: bool = False


@dataclass(frozen=True, slots=True)
class DeleteReport:
    """What became of a list of deletions.

    Attributes:
        deleted: locations that are gone because of this call (object stores also count those that
            never existed).
        missing: locations that were already gone.
        failed: location -> reason, for those that may still exist.
    """

    deleted: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


class OutputStream(Protocol):
    """A new file being written.

    Nothing is visible at its location before `close`; durable when `close` returns.

    As a context manager it closes on success and aborts (leaves nothing) when the block raises.
    """

    @property
    def closed(self) -> bool:
        """Whether `close` or `abort` was called."""

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Append bytes; returns how many."""

    def tell(self) -> int:
        """Bytes written so far."""

    def flush(self) -> None:
        """Hand buffered bytes on; promises no durability."""

    @abstractmethod
    def close(self) -> None:
        """Publish the file durably. Raises StorageError."""

    @abstractmethod
    def abort(self) -> None:
        """Forget the file; harmless after `close`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@runtime_checkable
class Storage(Protocol):
    """A place that keeps immutable files.

    Safe to share between threads; rebuilt in workers from `properties`.

    Every method raises StorageError when I/O fails (with `retryable`), NoSuchFileError when a file
    to be read is absent.
    """

    @property
    def properties(self) -> Mapping[str, str]:
        """What `storage_for(location, properties)` needs to reopen this storage elsewhere."""

    def read(self, location: str) -> bytes:
        """The whole file. On disks and object stores of at most `WHOLE_BYTES_MAX`."""

    def read_range(self, location: str, offset: int, length: int) -> bytes:
        """Bytes [offset, offset+length), fewer only at the end of the file."""

    def write(self, location: str, data: bytes, *, durable: bool = True) -> None:
        """Create or replace atomically; durable on return, unless the caller can do without."""

    def write_new(self, files: Mapping[str, bytes]) -> None:
        """Write new files under names that nobody refers to yet; all of them are durable on return.

        Cheaper than one `write` after the other. A crash may leave some of them, whole or torn.
        """

    def create(self, location: str, data: bytes) -> None:
        """Create if absent: atomic, whole, durable on return; the compare-and-swap of commits.

        Raises:
            FileAlreadyExistsError: certainly not written: another file is there.
            StorageError: outcome "failed": certainly not written; else unknown.
        """

    def make_name_durable(self, location: str) -> None:
        """Make a file's name durable: `create` shows a file a moment before that."""

    def open_output(self, location: str) -> OutputStream:
        """A stream to a new file (see OutputStream)."""

    def exists(self, location: str) -> bool:
        """Whether a file (not a folder) is there."""

    def size(self, location: str) -> int:
        """Bytes of the file."""

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """All files below the folder `prefix`, in no order; none when the folder is absent.

        Links to folders are not followed, pipes and devices are left out.

        A folder is meant: `/a/b` lists `/a/b/c`, never `/a/bc`. Temporary files of unfinished
        writes are included.
        """

    def list_folders(self, prefix: str) -> Sequence[str]:
        """Sorted names (not locations) of the folders directly below `prefix`."""

    def delete(self, locations: Iterable[str]) -> DeleteReport:
        """Delete in order as far as possible; failures are reported, not raised."""

    def filesystem(self, location: str) -> tuple[pafs.FileSystem, str]:
        """A pyarrow file system and the path of `location` on it, for reading Parquet."""


def path_on_disk(storage: Storage, location: str) -> str | None:
    """A file's path on a disk of this machine; None if every request has to wait."""
    filesystem, path = storage.filesystem(location)
    return path if isinstance(filesystem, pafs.LocalFileSystem) else None


class BucketStorage(Storage):
    """What storages of objects have in common: a PUT is whole, and durable on return."""

    concurrent_writes = 8

    def write_new(self, files: Mapping[str, bytes]) -> None:
        if len(files) < 2:
            for location, data in files.items():
                self.write(location, data)
            return
        with ThreadPoolExecutor(min(len(files), self.concurrent_writes)) as pool:
            for done in [pool.submit(self.write, *file) for file in files.items()]:
                done.result()

    def make_name_durable(self, location: str) -> None:
        """What a store shows is durable."""

    def exists(self, location: str) -> bool:
        try:
            self.size(location)
        except NoSuchFileError:
            return False
        return True


class WriteOnlyStream(OutputStream):
    """An OutputStream that publishes its file when a block ends well, and forgets it otherwise."""

    def writable(self) -> bool:
        """True: pyarrow asks."""
        return True

    def readable(self) -> bool:
        """False: pyarrow asks."""
        return False

    def seekable(self) -> bool:
        """False: pyarrow asks."""
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()
