"""A copy of a warehouse made one of its own: every path in it that names the original is rewritten.

Metadata, manifest lists, manifests, position delete files and deletion vectors name files by
absolute location. They are written again beside the copied ones, under new names, and each table
changes by one version of its metadata, after every file that this version names was found in the
copy with its size. Until then the copy is what it was; the original is not touched, nor opened.
"""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import RenderableType

from lakehouse.catalog.catalog_decorator import CatalogDecorator
from lakehouse.catalog.catalog_protocol import Catalog, walk_tables, walk_views
from lakehouse.catalog.confinement import original_of, plain_folder
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.catalog.filesystem.version_files import VersionFiles
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, NoSuchFileError
from lakehouse.maintenance.shown_plan import Progress, Report, listing, no_progress
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.avro_container import CHECKSUM_KEY
from lakehouse.storage.location import canonical, is_within, join
from lakehouse.storage.storage_protocol import Storage

_FILE_PATH_ID = 2147483546
_DELETE_PATH = "file_path"
_PATHS = ("file_path", "referenced_data_file")
_BOUNDS = ("lower_bounds", "upper_bounds")
_PUFFIN_TRAILER = 12
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Relocation(Report):
    """What became of each table and view of a copied warehouse.

    Attributes:
        warehouse: the copy.
        moved: metadata location of each that was rewritten.
        kept: those that name nothing of the original: they were rewritten before, or are new.
        files: metadata and delete files that were written.
        dry_run: whether nothing was written.
    """

    warehouse: str
    moved: Mapping[str, str]
    kept: tuple[str, ...]
    files: int
    dry_run: bool

    def title(self) -> str:
        """`Relocation to /data/warehouse`."""
        return f"Relocation to {self.warehouse}"

    def facts(self) -> Iterable[tuple[str, object]]:
        """How many tables and files."""
        verb = "would be rewritten" if self.dry_run else "rewritten"
        yield f"tables and views {verb}", len(self.moved)
        yield "named their own files already", len(self.kept)
        yield f"files {verb}", self.files

    def detail(self) -> RenderableType | None:
        """The tables, with what they named."""
        return listing(["table", "from"], list(self.moved.items())) if self.moved else None

    def to_dict(self) -> dict[str, object]:
        """All of it."""
        return {
            "warehouse": self.warehouse,
            "moved": dict(self.moved),
            "kept": list(self.kept),
            "files": self.files,
            "dry_run": self.dry_run,
        }


def relocate(
    catalog: Catalog,
    *,
    original: str | None = None,
    dry_run: bool = False,
    environment: Environment | None = None,
    progress: Progress = no_progress,
) -> Relocation:
    """Make a copied warehouse name its own files. Doing it again, or after a crash, ends it.

    Args:
        catalog: of the copy: a folder or a bucket without a database.
        original: where the warehouse was; None: as its tables say.
        dry_run: only say what would be done.
        environment: names of files.
        progress: see `Progress`.

    Raises:
        InvalidInputError: a catalog with a database, a table of format version 1, or one whose
            location does not tell where the warehouse was.
        NoSuchFileError: the copy lacks a file that a table needs; the table was not changed.
        CommitConflictError: the copy is in use.
    """
    while isinstance(catalog, CatalogDecorator):
        catalog = catalog.inside
    if not isinstance(catalog, FilesystemCatalog):
        raise InvalidInputError(
            f"{catalog.uri} says in its database where each table is: a copy of the files alone is "
            "no warehouse. Keep the location, or copy the rows into tables of another catalog"
        )
    environment = environment or Environment.system()
    names = [*walk_tables(catalog), *walk_views(catalog)]
    moved: dict[str, str] = {}
    kept: list[str] = []
    files = 0
    for done, name in enumerate(names):
        progress("tables", done, len(names))
        copy = _Copy.of(catalog, name, original, environment)
        if copy is None:
            kept.append(str(name))
            continue
        moved[str(name)] = copy.metadata["location"]
        copy.rewrite(dry_run=dry_run)
        files += copy.written + 1
    progress("tables", len(names), len(names))
    return Relocation(catalog.warehouse, moved, tuple(kept), files, dry_run)


@dataclass
class _Copy:
    """A table or view of the copy.

    `written`: how many files were made of others; `made`: by the original's location, where each is
    now, and its size; `present`: sizes of the files of the copy, by location.
    """

    name: Identifier
    storage: Storage
    versions: VersionFiles
    folder: str
    number: int
    metadata: dict[str, Any]
    roots: tuple[str, str]
    environment: Environment
    dry_run: bool = False
    written: int = 0
    made: dict[str, tuple[str, int]] = field(default_factory=dict)
    present: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        catalog: FilesystemCatalog,
        name: Identifier,
        original: str | None,
        environment: Environment,
    ) -> _Copy | None:
        """None where it names nothing of the original."""
        folder = plain_folder(catalog.warehouse, (*name.namespace, name.name))
        storage = catalog.storage(folder)
        versions = VersionFiles(storage, environment.new_uuid)
        found = versions.read_newest(folder, storage.read)
        if found is None:
            return None
        number, _, data = found
        metadata = orjson.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
        location = metadata["location"]
        old = original_of(location, folder, catalog.warehouse)
        if original is not None and is_within(location, original):
            old = canonical(original)
        if old is None:
            return None
        roots = (old.rstrip("/"), catalog.warehouse.rstrip("/"))
        return cls(name, storage, versions, folder, number, metadata, roots, environment)

    def rewrite(self, *, dry_run: bool) -> None:
        """Write the new files, look whether all others are there, and then the new version."""
        load, self.dry_run = self.metadata, dry_run
        new = {**load, "location": self.here(load["location"])}
        paths = {
            key: self.here(value)
            for key, value in load.get("properties", {}).items()
            if key.startswith("write.") and key.endswith("path")
        }
        new["properties"] = {**load.get("properties", {}), **paths}
        folders = {new["location"], *paths.values()}
        for folder in (one for one in folders if is_within(one, self.roots[1])):
            self.present |= {canonical(one.location): one.size for one in self.storage.list(folder)}
        if "table-uuid" in load:
            # earlier versions name the original's files
            new["metadata-log"] = []
            new["snapshots"] = [self._snapshot(one) for one in load.get("snapshots", ())]
            for kind in ("statistics", "partition-statistics"):
                if kind in load:
                    new[kind] = [
                        {**one, "statistics-path": self._kept(one["statistics-path"])}
                        for one in load[kind]
                    ]
        if not dry_run:
            location = self.versions.location(self.folder, self.number + 1)
            self.versions.swap(f"Table {self.name}", location, orjson.dumps(new))
            self.versions.write_hint(self.folder, self.number + 1)

    def here(self, location: str) -> str:
        """Where the copy has what the original has at a location; elsewhere it stays."""
        old, new = self.roots
        whole = canonical(location)
        return new + whole[len(old) :] if whole.startswith(old + "/") else location

    def _kept(self, location: str, size: int | None = None) -> str:
        """A file that is good as it was copied. Raises NoSuchFileError: it is not."""
        place = self.here(location)
        found = self.present.get(canonical(place))
        if found is None and self.storage.exists(place):
            found = self.storage.size(place)
        if found is None or size not in (None, found):
            raise NoSuchFileError(
                f"{self.name}: {place} is {'missing' if found is None else 'not whole'}. Copy it "
                "again, then relocate again; the table was not changed",
                location=place,
            )
        return place

    def _new(self, location: str, data: bytes) -> str:
        """A file that replaces one: beside it, under a name that no file has."""
        folder, _, name = self.here(location).rpartition("/")
        ending = name.rpartition(".")[2]
        place = join(folder, f"relocated-{self.environment.new_uuid()}.{ending}")
        self.written += 1
        if not self.dry_run:
            self.storage.write_new({place: data})
        return place

    def _snapshot(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        if "manifest-list" not in snapshot:
            raise InvalidInputError(
                f"{self.name} has snapshots of format version 1, without a manifest list: upgrade "
                "the original and expire them before you copy it"
            )
        return {**snapshot, "manifest-list": self._manifest_list(snapshot["manifest-list"])}

    def _manifest_list(self, location: str) -> str:
        schema, metadata, rows = _avro(self.storage.read(self.here(location)))
        manifests = []
        for row in rows:
            if row["manifest_path"] not in self.made:
                self.made[row["manifest_path"]] = self._manifest(row["manifest_path"])
            path, length = self.made[row["manifest_path"]]
            manifests.append({**row, "manifest_path": path, "manifest_length": length})
        return self._new(location, _as_avro(schema, metadata, manifests))

    def _manifest(self, location: str) -> tuple[str, int]:
        schema, metadata, rows = _avro(self.storage.read(self.here(location)))
        data = _as_avro(schema, metadata, map(self._entry, rows))
        return self._new(location, data), len(data)

    def _entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        file = dict(entry["data_file"])
        path, size = file["file_path"], file["file_size_in_bytes"]
        if entry["status"] != 2:
            if file.get("content") == 1:
                if path not in self.made:
                    self.made[path] = self._deletes(path, str(file["file_format"]))
                file["file_path"], file["file_size_in_bytes"] = self.made[path]
            else:
                self._kept(path, size)
        for name in _PATHS:
            if file.get(name) is not None:
                file[name] = self.here(file[name])
        for name in _BOUNDS:
            file[name] = self._bounds(file.get(name))
        return {**entry, "data_file": file}

    def _bounds(self, bounds: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        """Those of a column of paths; where they are no paths any more, they go."""
        found = []
        for one in bounds or ():
            if one["key"] != _FILE_PATH_ID:
                found.append(one)
                continue
            text = bytes(one["value"]).decode("utf-8", "replace")
            if text.startswith("/") or "://" in text:
                found.append({**one, "value": self.here(text).encode()})
        return None if bounds is None else found

    def _deletes(self, location: str, format_: str) -> tuple[str, int]:
        """Position deletes, which name the files that they delete from."""
        data = self.storage.read(self.here(location))
        if format_.upper() == "PUFFIN":
            data = self._puffin(data, location)
        elif format_.upper() == "PARQUET":
            data = self._parquet(data)
        else:
            schema, metadata, rows = _avro(data)
            data = _as_avro(schema, metadata, (
                {**row, _DELETE_PATH: self.here(row[_DELETE_PATH])} for row in rows
            ))  # fmt: skip
        return self._new(location, data), len(data)

    def _parquet(self, data: bytes) -> bytes:
        table = pq.read_table(io.BytesIO(data))
        at = table.schema.get_field_index(_DELETE_PATH)
        paths = pa.array([self.here(one) for one in table[_DELETE_PATH].to_pylist()], pa.string())
        file = io.BytesIO()
        pq.write_table(table.set_column(at, table.schema.field(at), paths), file)
        return file.getvalue()

    def _puffin(self, data: bytes, location: str) -> bytes:
        """The blobs as they are, and a footer that names the files of the copy."""
        size, flags = struct.unpack("<ii", data[-_PUFFIN_TRAILER:-4])
        if flags & 1:
            raise InvalidInputError(f"{location}: its footer is compressed, which is not rewritten")
        begin = len(data) - _PUFFIN_TRAILER - size
        footer = orjson.loads(data[begin:-_PUFFIN_TRAILER])
        for blob in footer["blobs"]:
            said = blob.get("properties") or {}
            if "referenced-data-file" in said:
                said["referenced-data-file"] = self.here(said["referenced-data-file"])
        text = orjson.dumps(footer)
        trailer = struct.pack("<ii", len(text), flags) + data[-4:]
        return data[:begin] + text + trailer


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
