"""System calls behind durability, one method each: tests cut the power between any two."""

from __future__ import annotations

import errno
import os
import stat as stat_bits
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lakehouse.storage.storage_protocol import WHOLE_BYTES_MAX


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


class PosixDisk:
    """POSIX file calls of the operating system."""

    def create(self, path: str) -> int:
        """Open a new file for writing."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, handle: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`."""
        view = memoryview(data).cast("B")
        while view:
            view = view[os.write(handle, view) :]

    def fsync(self, handle: int) -> None:
        """Make the file's content durable."""
        os.fsync(handle)

    def close(self, handle: int) -> None:
        """Close the handle."""
        os.close(handle)

    def fsync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; fails when `target` exists."""
        os.link(source, target)

    def replace(self, source: str, target: str) -> None:
        """Rename atomically over `target`."""
        Path(source).replace(target)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        Path(path).unlink()

    def mkdir(self, path: str) -> None:
        """Create one folder."""
        Path(path).mkdir()

    def rmdir(self, path: str) -> None:
        """Remove one empty folder."""
        Path(path).rmdir()

    def stat(self, path: str) -> Stat:
        """Facts about a file or folder, links followed."""
        found = os.lstat(path)
        is_link = stat_bits.S_ISLNK(found.st_mode)
        if is_link:
            found = Path(path).stat()
        return Stat(
            found.st_size,
            found.st_mtime_ns // 1_000_000,
            found.st_ino,
            stat_bits.S_ISDIR(found.st_mode),
            stat_bits.S_ISREG(found.st_mode),
            is_link,
        )

    def names(self, path: str) -> list[tuple[str, bool]]:
        """(name, is a folder) of everything in a folder."""
        with os.scandir(path) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """A file's content, or the part of the range that exists."""
        # without blocking, because a pipe that nobody writes to would never open
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(handle, "rb", buffering=0) as file:  # noqa: PTH123 - a handle, not a path
            found = os.fstat(handle)
            mode = found.st_mode
            if stat_bits.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if not stat_bits.S_ISREG(mode):
                raise OSError(errno.EINVAL, "Not a regular file", path)
            if length is None and found.st_size - offset > WHOLE_BYTES_MAX:
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
