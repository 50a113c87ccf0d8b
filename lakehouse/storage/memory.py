"""Files in this process, for tests and notebooks.

Stores are shared by name: `memory://name/key`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import RLock

import pyarrow.fs as pafs

from lakehouse.errors import FileAlreadyExistsError, InvalidLocationError, NoSuchFileError
from lakehouse.storage.arrow_filesystem import StorageHandler
from lakehouse.storage.location import MEMORY_SCHEME, canonical, parse
from lakehouse.storage.storage_protocol import DeleteReport, FileInfo, Storage, WriteOnlyStream

_SHARED: dict[str, tuple[bytes, int]] = {}
_SHARED_LOCK = RLock()


class MemoryStorage(Storage):
    """Files in the memory of this process, for tests and examples.

    Args:
        properties: passed through.
        files: own files (location -> content, modified_ms) instead of those shared by the whole
            process.
        now_ms: clock of modification times.
    """

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        files: dict[str, tuple[bytes, int]] | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._properties = dict(properties or {})
        self._files = _SHARED if files is None else files
        self._lock = _SHARED_LOCK if files is None else RLock()
        self._now_ms = now_ms

    @property
    def properties(self) -> Mapping[str, str]:
        return self._properties

    def read(self, location: str) -> bytes:
        return self._find(location)[0]

    def read_range(self, location: str, offset: int, length: int) -> bytes:
        return self._find(location)[0][offset : offset + length]

    # Memory is never durable.
    def write(self, location: str, data: bytes, *, durable: bool = True) -> None:  # noqa: ARG002
        with self._lock:
            self._files[_key(location)] = (bytes(data), self._now_ms())

    def write_new(self, files: Mapping[str, bytes]) -> None:
        for location, data in files.items():
            self.write(location, data)

    def create(self, location: str, data: bytes) -> None:
        with self._lock:
            if _key(location) in self._files:
                raise FileAlreadyExistsError(f"A file exists at {location}.", location=location)
            self._files[_key(location)] = (bytes(data), self._now_ms())

    def make_name_durable(self, location: str) -> None:
        """Make the name of a file durable. Nothing is durable."""

    def open_output(self, location: str) -> BufferedOutput:
        _key(location)
        return BufferedOutput(lambda data: self.write(location, data))

    def exists(self, location: str) -> bool:
        return _key(location) in self._files

    def size(self, location: str) -> int:
        return len(self._find(location)[0])

    def list(self, prefix: str) -> Iterator[FileInfo]:
        root, spelled = _key(prefix).rstrip("/") + "/", prefix.rstrip("/") + "/"
        with self._lock:
            files = [
                (key, len(data), modified)
                for key, (data, modified) in self._files.items()
                if key.startswith(root)
            ]
        return iter(
            [FileInfo(spelled + key[len(root) :], size, modified) for key, size, modified in files]
        )

    def list_folders(self, prefix: str) -> Sequence[str]:
        root = _key(prefix).rstrip("/") + "/"
        with self._lock:
            below = [key[len(root) :] for key in self._files if key.startswith(root)]
        return sorted({key.partition("/")[0] for key in below if "/" in key})

    def delete(self, locations: Iterable[str]) -> DeleteReport:
        deleted: list[str] = []
        missing: list[str] = []
        with self._lock:
            for location in locations:
                (deleted if self._files.pop(_key(location), None) is not None else missing).append(
                    location
                )
        return DeleteReport(tuple(deleted), tuple(missing))

    def filesystem(self, location: str) -> tuple[pafs.FileSystem, str]:
        return pafs.PyFileSystem(StorageHandler(self)), location

    def _find(self, location: str) -> tuple[bytes, int]:
        file = self._files.get(_key(location))
        if file is None:
            raise NoSuchFileError(f"No file at {location}.", location=location)
        return file


class BufferedOutput(WriteOnlyStream):
    """OutputStream that hands everything to `publish` when closed."""

    def __init__(self, publish: Callable[[bytes], None]) -> None:
        self._publish = publish
        self._buffer = bytearray()
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        view = memoryview(data).cast("B")
        self._buffer += view
        return len(view)

    def tell(self) -> int:
        return len(self._buffer)

    def flush(self) -> None:
        """Hand buffered bytes on; promises no durability."""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._publish(bytes(self._buffer))

    def abort(self) -> None:
        self._closed = True
        self._buffer = bytearray()


def _key(location: str) -> str:
    if parse(location).scheme != MEMORY_SCHEME:
        raise InvalidLocationError(f"{location!r} is not a memory:// location.", location=location)
    return canonical(location)
