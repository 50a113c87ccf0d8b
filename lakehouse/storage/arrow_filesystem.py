"""Any Storage as a pyarrow file system, for storages that pyarrow has no native one for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from lakehouse.storage.storage_protocol import Storage


class StorageFile:
    """A read-only file over `read_range`, enough for pyarrow.PythonFile.

    Args:
        storage: where.
        location: of the file.
        size: its bytes; None: the storage is asked.

    Attributes:
        bytes_read: so far.
    """

    def __init__(self, storage: Storage, location: str, size: int | None = None) -> None:
        self._storage, self._location, self._at = storage, location, 0
        self._size = storage.size(location) if size is None else size
        self.bytes_read = 0
        self.closed = False
        self.mode = "rb"

    def read(self, length: int | None = None) -> bytes:
        """At most so many bytes; by default all that are left."""
        wanted = (
            self._size - self._at
            if length is None or length < 0
            else min(length, self._size - self._at)
        )
        data = self._storage.read_range(self._location, self._at, wanted) if wanted > 0 else b""
        self._at += len(data)
        self.bytes_read += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place, as of any file; the place."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """The place of the next byte read."""
        return self._at

    def size(self) -> int:
        """Its bytes."""
        return self._size

    def readable(self) -> bool:
        """True."""
        return True

    def writable(self) -> bool:
        """False."""
        return False

    def seekable(self) -> bool:
        """True."""
        return True

    def close(self) -> None:
        """Nothing is held open."""
        self.closed = True


class StorageHandler(pafs.FileSystemHandler):  # type: ignore[misc]
    """Read-only pyarrow file system whose paths are locations."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def get_type_name(self) -> str:
        """Name shown by pyarrow."""
        return "lakehouse"

    def normalize_path(self, path: str) -> str:
        """Paths are locations, kept as they are."""
        return path

    def get_file_info(self, paths: list[str]) -> list[Any]:
        """Type and size of each path."""
        infos = []
        for path in paths:
            if self.storage.exists(path):
                infos.append(pafs.FileInfo(path, pafs.FileType.File, size=self.storage.size(path)))
            else:
                infos.append(pafs.FileInfo(path, pafs.FileType.NotFound))
        return infos

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        """Files below a folder."""
        return [
            pafs.FileInfo(info.location, pafs.FileType.File, size=info.size)
            for info in self.storage.list(selector.base_dir)
        ]

    def open_input_stream(self, path: str) -> pa.PythonFile:
        """A readable file."""
        return pa.PythonFile(StorageFile(self.storage, path), mode="r")

    def open_input_file(self, path: str) -> pa.PythonFile:
        """A seekable file."""
        return pa.PythonFile(StorageFile(self.storage, path), mode="r")

    def _refuse(self, *_: object, **__: object) -> None:
        raise PermissionError(
            "This pyarrow file system is read-only; write through Storage.open_output."
        )

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = (
        move
    ) = copy_file = _refuse
    open_output_stream = open_append_stream = _refuse
