"""A storage in memory that counts requests as S3 would serve them.

One LIST for a page of 1,000 keys, one GET for a file or range.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.fs as pafs

from lakehouse.storage.arrow_filesystem import StorageHandler
from lakehouse.storage.memory import BufferedOutput, MemoryStorage
from lakehouse.storage.storage_protocol import DeleteReport, FileInfo

PAGE_KEYS = 1000


@dataclass(frozen=True)
class Request:
    """One request that the store served.

    Attributes:
        verb: LIST, GET, HEAD, PUT or DELETE.
        location: the file, or the prefix of a listing.
        size: bytes returned; keys of a LIST.
    """

    verb: str
    location: str
    size: int


class CountingStorage:
    """Storage that keeps a log of requests.

    Keys without content (`add_keys`) are listed and cannot be read: data files of a table that is
    metadata only.
    """

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, int]] = {}
        self._inner = MemoryStorage(files=self._files)
        self._keys: set[str] = set()
        self._sorted: list[str] | None = None
        self._lock = threading.Lock()
        self.requests: list[Request] = []

    def counts(self) -> dict[str, int]:
        """Requests by verb."""
        return dict(sorted(Counter(request.verb for request in self.requests).items()))

    def forget(self) -> None:
        """Start counting anew."""
        self.requests = []

    def add_keys(self, locations: Iterable[str]) -> None:
        """Make keys known to listings."""
        self._keys.update(locations)
        self._sorted = None

    @property
    def properties(self) -> Mapping[str, str]:
        """What `storage_for` needs to reopen this storage elsewhere."""
        return {}

    def read(self, location: str) -> bytes:
        """The whole file."""
        self._log(Request("GET", location, len(self._content(location))))
        return self._inner.read(location)

    def read_range(self, location: str, offset: int, length: int) -> bytes:
        """Bytes [offset, offset+length), fewer only at the end of the file."""
        self._log(Request("GET", location, len(self._content(location)[offset : offset + length])))
        return self._inner.read_range(location, offset, length)

    def write(self, location: str, data: bytes, *, durable: bool = True) -> None:
        """Create or replace a file."""
        self._put(location)
        self._inner.write(location, data, durable=durable)

    def write_new(self, files: Mapping[str, bytes]) -> None:
        """Write new files under names that nothing refers to yet."""
        for location, data in files.items():
            self.write(location, data)

    def create(self, location: str, data: bytes) -> None:
        """Write a new file, atomically; fails when another one is there."""
        self._put(location)
        self._inner.create(location, data)

    def make_name_durable(self, location: str) -> None:
        """Make the name of a file durable."""
        self._inner.make_name_durable(location)

    def open_output(self, location: str) -> BufferedOutput:
        """A stream to a new file."""
        return BufferedOutput(lambda data: self.write(location, data))

    def exists(self, location: str) -> bool:
        """Whether a file (not a folder) is there."""
        self._log(Request("HEAD", location, 0))
        return self._inner.exists(location)

    def size(self, location: str) -> int:
        """Bytes of the file."""
        self._log(Request("HEAD", location, 0))
        return self._inner.size(location)

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """All files below the folder `prefix`.

        In pages; each is requested when the one before is used up.
        """
        root = prefix.rstrip("/") + "/"
        keys = self._listed()
        at, end = bisect_left(keys, root), bisect_left(keys, root + "\U0010ffff")
        while True:
            page = keys[at : min(at + PAGE_KEYS, end)]
            self._log(Request("LIST", prefix, len(page)))
            yield from (FileInfo(key, 0, 0) for key in page)
            at += len(page)
            if at >= end:
                return

    def list_folders(self, prefix: str) -> Sequence[str]:
        """Sorted names of the folders directly below `prefix`.

        A page holds 1,000 common prefixes or keys.
        """
        root = prefix.rstrip("/") + "/"
        keys, folders, room = self._listed(), [], 0
        at, end = bisect_left(keys, root), bisect_left(keys, root + "\U0010ffff")
        while at < end or not (folders or room):
            if not room:
                self._log(Request("LIST", prefix, 0))
                room = PAGE_KEYS
            if at >= end:
                break
            room -= 1
            name, slash, _ = keys[at][len(root) :].partition("/")
            if slash:
                folders.append(name)
            at = bisect_right(keys, f"{root}{name}/\U0010ffff" if slash else keys[at])
        return folders

    def delete(self, locations: Iterable[str]) -> DeleteReport:
        """Delete in order as far as possible; failures are in the report."""
        listed = list(locations)
        for location in listed:
            self._log(Request("DELETE", location, 0))
        self._sorted = None
        return self._inner.delete(listed)

    def filesystem(self, location: str) -> tuple[pafs.FileSystem, str]:
        """A pyarrow file system, and the location's path on it.

        Reads through this storage, so that they are counted.
        """
        return pafs.PyFileSystem(StorageHandler(self)), location

    def _listed(self) -> list[str]:
        if self._sorted is None:
            self._sorted = sorted({*self._keys, *self._files})
        return self._sorted

    def _put(self, location: str) -> None:
        self._sorted = None
        self._log(Request("PUT", location, 0))

    def _content(self, location: str) -> bytes:
        return self._files.get(location, (b"", 0))[0]

    def _log(self, request: Request) -> None:
        with self._lock:
            self.requests.append(request)
