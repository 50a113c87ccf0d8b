"""A storage that fails as asked, for tests: refusals, lost replies, torn and delayed writes."""

from __future__ import annotations

import enum
import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow.fs as pafs

from lakehouse.errors import StorageError
from lakehouse.storage.arrow_filesystem import StorageHandler
from lakehouse.storage.memory import BufferedOutput
from lakehouse.storage.storage_protocol import DeleteReport, FileInfo, OutputStream, Storage


class Fault(enum.Enum):
    """What goes wrong with one call."""

    REFUSED = "refused"  # nothing happens, and the caller is told so
    TIMEOUT = "timeout"  # nothing happens, and the caller cannot know
    LOST_REPLY = "lost reply"  # it happens, and the caller cannot know
    DELAYED = "delayed"  # it happens later, and the caller cannot know
    TORN = "torn"  # a part of it happens, then it fails
    FULL = "full"  # the disk is full: nothing happens, and the caller is told so


Decide = Callable[[str, str], Fault | None]
"""(method, location) -> what goes wrong, None if nothing.

Called before each call; may raise to stop the caller dead.
"""


class FaultyStorage:
    """Storage whose calls go wrong as `decide` says.

    Args:
        inner: does the work.
        decide: picks the faults.
        later: takes writes that are to happen later.
    """

    def __init__(
        self,
        inner: Storage,
        decide: Decide,
        later: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._inner, self._decide, self._later = inner, decide, later

    @property
    def properties(self) -> Mapping[str, str]:
        """What `storage_for` needs to reopen this storage elsewhere."""
        return self._inner.properties

    def read(self, location: str) -> bytes:
        """The whole file."""
        self._ask("read", location)
        return self._inner.read(location)

    def read_range(self, location: str, offset: int, length: int) -> bytes:
        """Bytes [offset, offset+length), fewer only at the end of the file."""
        self._ask("read", location)
        return self._inner.read_range(location, offset, length)

    def write(self, location: str, data: bytes, *, durable: bool = True) -> None:
        """Create or replace a file."""
        self._change("write", location, lambda: self._inner.write(location, data, durable=durable))

    def write_new(self, files: Mapping[str, bytes]) -> None:
        """Write new files under names that nobody refers to yet.

        Torn: some of the files are there, the last one cut short.
        """
        names = list(files)

        def tear() -> None:
            kept = names[: len(names) // 2 + 1]
            torn = {name: files[name] for name in kept[:-1]} | {
                kept[-1]: files[kept[-1]][: len(files[kept[-1]]) // 2]
            }
            self._inner.write_new(torn)

        if names:
            self._change("write_new", names[0], lambda: self._inner.write_new(files), tear)

    def create(self, location: str, data: bytes) -> None:
        """Write a new file, atomically; fails when another one is there."""
        self._change("create", location, lambda: self._inner.create(location, data))

    def make_name_durable(self, location: str) -> None:
        """Make the name of a file durable."""
        self._inner.make_name_durable(location)

    def open_output(self, location: str) -> OutputStream:
        """A stream to a new file."""
        return BufferedOutput(lambda data: self.write(location, data))

    def exists(self, location: str) -> bool:
        """Whether a file (not a folder) is there."""
        self._ask("exists", location)
        return self._inner.exists(location)

    def size(self, location: str) -> int:
        """Bytes of the file."""
        self._ask("size", location)
        return self._inner.size(location)

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """All files below the folder `prefix`."""
        self._ask("list", prefix)
        return self._inner.list(prefix)

    def list_folders(self, prefix: str) -> Sequence[str]:
        """Sorted names of the folders directly below `prefix`."""
        self._ask("list", prefix)
        return self._inner.list_folders(prefix)

    def delete(self, locations: Iterable[str]) -> DeleteReport:
        """Delete in order as far as possible; failures are in the report.

        Torn: the first half is deleted, the rest reported as failed.
        """
        listed = list(locations)
        if not listed:
            return DeleteReport()
        fault = self._decide("delete", listed[0])
        if fault is None:
            return self._inner.delete(listed)
        done = self._inner.delete(listed[: len(listed) // 2] if fault is Fault.TORN else [])
        if fault is Fault.LOST_REPLY:
            done = self._inner.delete(listed)
        gone = {*done.deleted, *done.missing}
        failed = {one: f"injected: {fault.value}" for one in listed if one not in gone}
        if fault in {Fault.TIMEOUT, Fault.LOST_REPLY, Fault.DELAYED}:
            raise _error("delete", listed[0], fault)
        return DeleteReport(done.deleted, done.missing, failed)

    def filesystem(self, location: str) -> tuple[pafs.FileSystem, str]:
        """A pyarrow file system, and the location's path on it. Reads through this storage."""
        return pafs.PyFileSystem(StorageHandler(self)), location

    def _ask(self, method: str, location: str) -> None:
        fault = self._decide(method, location)
        if fault is not None:
            raise _error(method, location, fault)

    def _change(
        self,
        method: str,
        location: str,
        act: Callable[[], None],
        tear: Callable[[], None] | None = None,
    ) -> None:
        fault = self._decide(method, location)
        if fault is None:
            act()
            return
        if fault is Fault.LOST_REPLY:
            act()
        elif fault is Fault.TORN and tear is not None:
            tear()
        elif fault is Fault.DELAYED and self._later is not None:
            self._later(act)
        raise _error(method, location, fault)


def _error(method: str, location: str, fault: Fault) -> StorageError:
    certain = {"commit_outcome": "failed"} if fault in {Fault.REFUSED, Fault.FULL} else {}
    number = errno.ENOSPC if fault is Fault.FULL else errno.EIO
    return StorageError(
        f"Cannot {method} {location}: injected: {fault.value}.",
        retryable=fault is not Fault.FULL,
        location=location,
        errno=number,
        **certain,
    )
