"""Metadata whose files lie, or will lie, elsewhere: every path in it is rewritten.

Metadata, manifest lists, manifests, position delete files and deletion vectors name files by
absolute location. What holds such a path is written again, what holds none is kept as it is. Where
paths lead and where files are written is up to who moves a table: see `relocation`, `backup` and
`table_path`.
"""

from __future__ import annotations

import io
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.errors import InvalidInputError
from lakehouse.spec.manifests.avro_container import CHECKSUM_KEY
from lakehouse.storage.location import canonical

_FILE_PATH_ID = 2147483546
_DELETE_PATH = "file_path"
_PATHS = ("file_path", "referenced_data_file")
_BOUNDS = ("lower_bounds", "upper_bounds")
_PUFFIN_TRAILER = 12


@dataclass
class RewrittenPaths(ABC):
    """The paths of one table or view.

    Attributes:
        name: of the table, for messages.
        folders: (old, new) locations, the first that holds a file says where it is then.
        made: location of a manifest or delete file -> where it is then, and its size.
        lists: location of a manifest list -> where it is then.
        manifests: how many manifests were written.
        deletes: how many delete files were written.
    """

    name: str
    folders: tuple[tuple[str, str], ...]
    made: dict[str, tuple[str, int]] = field(default_factory=dict, init=False)
    lists: dict[str, str] = field(default_factory=dict, init=False)
    manifests: int = field(default=0, init=False)
    deletes: int = field(default=0, init=False)

    @abstractmethod
    def read(self, location: str) -> bytes:
        """The content of a file that the metadata names."""

    @abstractmethod
    def keep(self, location: str, size: int | None = None) -> str:
        """A file that is good as it is: where it is then.

        Args:
            location: as the metadata names it.
            size: bytes that the metadata says it has; None: it does not.
        """

    @abstractmethod
    def write(self, location: str, data: bytes) -> str:
        """Write what a file is then: where that is.

        Args:
            location: as the metadata names it now.
            data: its new content.
        """

    def elsewhere(self, location: str) -> str:
        """Where a file is then that lies in none of the folders: where it is."""
        return location

    def here(self, location: str) -> str:
        """Where a file is then."""
        moved = self._moved(location)
        return self.elsewhere(location) if moved is None else moved

    def _moved(self, location: str) -> str | None:
        whole = canonical(location)
        for old, new in self.folders:
            root = canonical(old).rstrip("/")
            if whole == root or whole.startswith(root + "/"):
                return new.rstrip("/") + whole[len(root) :]
        return None

    def rewritten(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON of the metadata, whose files were kept or written.

        Raises:
            InvalidInputError: a snapshot of format version 1 without a manifest list, a vector file
                whose footer is compressed.
        """
        properties = metadata.get("properties", {})
        paths = {
            key: self.here(value)
            for key, value in properties.items()
            if key.startswith("write.") and key.endswith("path")
        }
        new = {
            **metadata,
            "location": self.here(metadata["location"]),
            "properties": {**properties, **paths},
        }
        if "table-uuid" in metadata:
            # earlier versions name the files where they were
            new["metadata-log"] = []
            new["snapshots"] = [
                self.snapshot(snapshot) for snapshot in metadata.get("snapshots", ())
            ]
            for kind in ("statistics", "partition-statistics"):
                if kind in metadata:
                    new[kind] = [
                        {**statistics, "statistics-path": self.keep(statistics["statistics-path"])}
                        for statistics in metadata[kind]
                    ]
        return new

    def snapshot(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """The JSON of a snapshot, whose files were kept or written."""
        if "manifest-list" not in snapshot:
            raise InvalidInputError(
                f"{self.name} has snapshots of format version 1, without a manifest list: upgrade "
                "the original and expire them before you copy it"
            )
        path = snapshot["manifest-list"]
        if path not in self.lists:
            self.lists[path] = self._manifest_list(path)
        return {**snapshot, "manifest-list": self.lists[path]}

    def _manifest_list(self, location: str) -> str:
        schema, metadata, records = _avro(self.read(location))
        rows, manifests = list(records), []
        for row in rows:
            path, size = row["manifest_path"], row["manifest_length"]
            if path not in self.made:
                self.made[path] = self._manifest(path, size)
            path, length = self.made[path]
            manifests.append({**row, "manifest_path": path, "manifest_length": length})
        if manifests == rows:
            return self.keep(location)
        return self.write(location, _as_avro(schema, metadata, manifests))

    def _manifest(self, location: str, size: int) -> tuple[str, int]:
        schema, metadata, records = _avro(self.read(location))
        rows = list(records)
        entries = [self._entry(row) for row in rows]
        if entries == rows and self.here(location) == location:
            return self.keep(location, size), size
        data = _as_avro(schema, metadata, entries)
        self.manifests += 1
        return self.write(location, data), len(data)

    def _entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        file = dict(entry["data_file"])
        path, size = file["file_path"], file["file_size_in_bytes"]
        if entry["status"] != 2:
            if file.get("content") == 1:
                if path not in self.made:
                    self.made[path] = self._deletes(path, size, str(file["file_format"]))
                file["file_path"], file["file_size_in_bytes"] = self.made[path]
            else:
                file["file_path"] = self.keep(path, size)
        else:
            file["file_path"] = self.here(path)
        if file.get("referenced_data_file") is not None:
            file["referenced_data_file"] = self.here(file["referenced_data_file"])
        return {**entry, "data_file": self._with_bounds(file)}

    def _with_bounds(self, file: dict[str, Any]) -> dict[str, Any]:
        """With the bounds of the column of paths where they lead then; else without these.

        Paths in one folder keep their order; those of several folders may not.
        """
        bounds = [
            bytes(bound["value"]).decode("utf-8", "replace")
            for name in _BOUNDS
            for bound in file.get(name) or ()
            if bound["key"] == _FILE_PATH_ID
        ]
        if not bounds:
            return file
        moved = _in_one_folder(bounds, self.folders)
        if len(set(bounds)) == 1 and len(bounds) == 2 and _is_path(bounds[0]):
            moved = [self.here(bounds[0])] * 2
        values = iter(moved or ())
        new = dict(file)
        for name in _BOUNDS:
            if file.get(name) is not None:
                new[name] = [
                    {**bound, "value": next(values).encode()}
                    if bound["key"] == _FILE_PATH_ID
                    else bound
                    for bound in file[name]
                    if bound["key"] != _FILE_PATH_ID or moved
                ]
        return new

    def _deletes(self, location: str, size: int, format_: str) -> tuple[str, int]:
        """Position deletes, which name the files that they delete from."""
        data = self.read(location)
        new: bytes | None
        if format_.upper() == "PUFFIN":
            new = self._puffin(data, location)
        elif format_.upper() == "PARQUET":
            new = self._parquet(data)
        else:
            schema, metadata, records = _avro(data)
            rows = list(records)
            moved = [{**row, _DELETE_PATH: self.here(row[_DELETE_PATH])} for row in rows]
            new = None if moved == rows else _as_avro(schema, metadata, moved)
        if new is None:
            return self.keep(location, size), size
        self.deletes += 1
        return self.write(location, new), len(new)

    def _parquet(self, data: bytes) -> bytes | None:
        table = pq.read_table(io.BytesIO(data))
        at = table.schema.get_field_index(_DELETE_PATH)
        paths = table[_DELETE_PATH].to_pylist()
        moved = [self.here(path) for path in paths]
        if moved == paths:
            return None
        file = io.BytesIO()
        column = pa.array(moved, pa.string())
        pq.write_table(table.set_column(at, table.schema.field(at), column), file)
        return file.getvalue()

    def _puffin(self, data: bytes, location: str) -> bytes | None:
        """The blobs as they are, and a footer that names the files where they are then."""
        size, flags = struct.unpack("<ii", data[-_PUFFIN_TRAILER:-4])
        if flags & 1:
            raise InvalidInputError(f"{location}: its footer is compressed, which is not rewritten")
        begin = len(data) - _PUFFIN_TRAILER - size
        footer = orjson.loads(data[begin:-_PUFFIN_TRAILER])
        is_same = True
        for blob in footer["blobs"]:
            properties = blob.get("properties") or {}
            if "referenced-data-file" in properties:
                place = self.here(properties["referenced-data-file"])
                is_same = is_same and place == properties["referenced-data-file"]
                properties["referenced-data-file"] = place
        if is_same:
            return None
        text = orjson.dumps(footer)
        trailer = struct.pack("<ii", len(text), flags) + data[-4:]
        return data[:begin] + text + trailer


def _is_path(text: str) -> bool:
    return text.startswith("/") or "://" in text


def _in_one_folder(bounds: list[str], folders: tuple[tuple[str, str], ...]) -> list[str] | None:
    """Bounds, perhaps truncated, that share a folder, where that is then; None: they do not."""
    for old, new in folders:
        for spelling in dict.fromkeys((old, canonical(old))):
            root = spelling.rstrip("/") + "/"
            if all(bound.startswith(root) for bound in bounds):
                return [new.rstrip("/") + "/" + bound[len(root) :] for bound in bounds]
    return None


def _avro(data: bytes) -> tuple[Any, dict[str, Any], Iterator[dict[str, Any]]]:
    reader = fastavro.reader(io.BytesIO(data))
    metadata = {
        key: value
        for key, value in reader.metadata.items()
        if key != CHECKSUM_KEY and not key.startswith("avro.")
    }
    return orjson.loads(reader.metadata["avro.schema"]), metadata, iter(reader)  # type: ignore[arg-type]


def _as_avro(schema: Any, metadata: dict[str, Any], rows: Iterable[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, schema, rows, codec="deflate", metadata=metadata)
    return file.getvalue()
