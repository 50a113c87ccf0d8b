"""Backups of a catalog with its files, and catalogs made of them again.

A backup is a folder:

    backups/00003.json       one for each backup: namespaces, tables, views; written last
    listed/<uuid>.parquet    every file that it needs, with size and SHA-256
    metadata/<sha256>.json   metadata of tables and views as it was
    files/<scheme>/<path>    data, delete and statistics files, manifests, manifest lists
    pruned/00001.json        one that is being deleted: no backup any more, its files are known

Files of a table never change, so a backup copies only what none before it has, and shares the rest
with them. Until its JSON is there, the one before is the newest, and it is whole.

A backup that ends while older ones are deleted may have taken files for there that go. So what
deletes moves the JSON away before it looks what the others need, and a backup looks, once its own
JSON is there, whether all that were there when it began still are; else it is made again.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import RenderableType

from lakehouse.catalog.catalog_decorator import innermost
from lakehouse.catalog.catalog_protocol import (
    Catalog,
    TableVersion,
    walk_namespaces,
    walk_tables,
    walk_views,
)
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.catalog.filesystem.recorded_transactions import without_mark
from lakehouse.catalog.filesystem.version_files import VersionFiles
from lakehouse.catalog.folders import folder_name, plain_folder
from lakehouse.catalog.metadata_files import metadata_bytes, numbered_name
from lakehouse.catalog.view_protocol import StoredView
from lakehouse.environment import Environment
from lakehouse.errors import (
    CorruptMetadataError,
    FileAlreadyExistsError,
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NoSuchFileError,
    NotFoundError,
    TableAlreadyExistsError,
)
from lakehouse.maintenance.reachability.reachable_files import (
    StorageWalker,
    in_parallel,
    statistics_locations,
)
from lakehouse.maintenance.rewritten_paths import RewrittenPaths
from lakehouse.maintenance.shown_plan import Progress, Report, human_bytes, listing, no_progress
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.views.view_json import serialize_view
from lakehouse.storage.location import basename, canonical, is_within, join, overlap, parent
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage

_RECORDS, _PRUNED = "backups", "pruned"
_NUMBERED = re.compile(r"^(\d+)\.json$")
_FORMAT = 1
_READINGS_MAX = 20
_ATTEMPTS_MAX = 10
_CHUNK = 16 * 1024 * 1024
_LISTED = pa.schema({"location": pa.string(), "size": pa.int64(), "sha256": pa.string()})

Files = dict[str, tuple[int, str]]
"""Canonical location -> size and SHA-256."""


@dataclass(frozen=True)
class Backup(Report):
    """A backup that was made.

    Attributes:
        folder: where it is.
        number: counts the backups there.
        tables: names.
        views: names.
        files: that it needs.
        bytes: of these.
        copied_files: those that no backup before had.
        copied_bytes: of these.
        unsettled: tables that were written at each reading of the pointers: the others may have
            been read just before or after a transaction with them. Empty unless writers never rest.
        pruned: numbers of the older backups that were deleted.
        pruned_bytes: of the files that only they needed.
    """

    folder: str
    number: int
    tables: tuple[str, ...]
    views: tuple[str, ...]
    files: int
    bytes: int
    copied_files: int
    copied_bytes: int
    unsettled: tuple[str, ...]
    pruned: tuple[int, ...] = ()
    pruned_bytes: int = 0

    def title(self) -> str:
        """`Backup 3 in s3://backups/lake`."""
        return f"Backup {self.number} in {self.folder}"

    def facts(self) -> Iterable[tuple[str, object]]:
        """How much there is, and how much was copied."""
        yield "tables", len(self.tables)
        yield "views", len(self.views)
        yield "files", f"{self.files:,} of {human_bytes(self.bytes)}"
        yield "copied", f"{self.copied_files:,} of {human_bytes(self.copied_bytes)}"
        if self.unsettled:
            yield "written without a rest", ", ".join(self.unsettled)
        if self.pruned:
            numbers = ", ".join(map(str, self.pruned))
            yield "deleted", f"{numbers}, with {human_bytes(self.pruned_bytes)}"


@dataclass(frozen=True)
class Restoration(Report):
    """A backup that was restored.

    Attributes:
        folder: where the backup is.
        number: which it is.
        warehouse: of the catalog that has the tables now.
        restored: name of a table or view -> its location now.
        kept: those that the catalog has already: the same tables, at whatever version they are.
        files: that were looked at: their size and SHA-256 are as backed up.
        copied_files: those that were not there yet.
        dry_run: whether the backup was verified and nothing written.
    """

    folder: str
    number: int
    warehouse: str
    restored: Mapping[str, str]
    kept: tuple[str, ...]
    files: int
    copied_files: int
    dry_run: bool

    def title(self) -> str:
        """`Backup 3 of s3://backups/lake in /data/warehouse`."""
        return f"Backup {self.number} of {self.folder} in {self.warehouse}"

    def facts(self) -> Iterable[tuple[str, object]]:
        """How many tables and files."""
        verb = "would be restored" if self.dry_run else "restored"
        yield f"tables and views {verb}", len(self.restored)
        yield "are there already", len(self.kept)
        yield "files of the backup, each as it was backed up", self.files
        yield "files copied", self.copied_files

    def detail(self) -> RenderableType | None:
        """The tables, with where they are."""
        return (
            listing(["table", "location"], list(self.restored.items())) if self.restored else None
        )


def backup(
    catalog: Catalog,
    folder: str,
    *,
    tables: Collection[str] = (),
    keep: int | None = None,
    environment: Environment | None = None,
    progress: Progress = no_progress,
) -> Backup:
    """Back up tables and views as they all are at one moment, and every file that they reach.

    Pointers are read until two readings in a row are equal; then what they reach is copied, and
    where an expiry deletes of that meanwhile, all is read again.

    Args:
        catalog: any; everything in it is backed up: branches, versions of the lake, ledger,
            quarantine and statements are tables of it, or properties of such.
        folder: a location that storages serve, outside the warehouse.
        tables: only these tables and views; empty: all.
        keep: how many backups stay there, the newest with this one; older ones are deleted, with
            the files that only they need. None: all.
        environment: ids, clock.
        progress: see `Progress`.

    Raises:
        InvalidInputError: a folder in the warehouse, `keep` below 1, a snapshot of format version 1
            without a manifest list.
        NotFoundError: no table or view of a name; NoSuchFileError: a table lacks a file.
        CorruptMetadataError: a file has another size than the table's metadata says.
    """
    environment = environment or Environment.system()
    storage = storage_for(folder, catalog.properties)
    if _is_location(catalog.warehouse) and overlap(folder, catalog.warehouse):
        raise InvalidInputError(
            f"{folder} and the warehouse {catalog.warehouse} overlap: back up to a place of its own"
        )
    if keep is not None and keep < 1:
        raise InvalidInputError(f"at least one backup is kept, not {keep}")
    for _ in range(_ATTEMPTS_MAX):
        numbers = _numbers(storage, folder)
        made = _made(catalog, storage, folder, tables, environment, progress)
        if set(numbers) <= set(_numbers(storage, folder)):
            break
        # files that were there may have gone with an older backup
        storage.delete([_place(folder, made.number)])
    else:
        raise InvalidInputError(f"older backups in {folder} are deleted all the time: try later")
    if keep is None:
        return made
    pruned, size = _prune(storage, folder, keep)
    return replace(made, pruned=tuple(pruned), pruned_bytes=size)


def _made(
    catalog: Catalog,
    storage: Storage,
    folder: str,
    tables: Collection[str],
    environment: Environment,
    progress: Progress,
) -> Backup:
    copies = _Copies(storage, folder, progress)
    cut = _Cut.of(catalog, tables)
    for attempt in range(_ATTEMPTS_MAX):
        try:
            needed = copies.of(catalog, cut)
            break
        except NoSuchFileError:
            before, cut = cut, _Cut.of(catalog, tables)
            if attempt + 1 == _ATTEMPTS_MAX or cut.is_as(before):
                raise  # nobody expired it
    document = {
        "format": _FORMAT,
        "at-ms": environment.now_ms(),
        "warehouse": catalog.warehouse,
        "namespaces": [
            [list(name), dict(properties)] for name, properties in cut.namespaces.items()
        ],
        "tables": [
            [[*name.namespace, name.name], copies.described(_table_bytes(version))]
            for name, version in cut.tables.items()
        ],
        "views": [
            [[*name.namespace, name.name], copies.described(serialize_view(view.metadata))]
            for name, view in cut.views.items()
        ],
        "files": copies.listed(needed, environment.new_uuid()),
    }
    number = _newest(storage, folder) + 1
    while True:
        try:
            storage.create(_place(folder, number), orjson.dumps(document))
            break
        except FileAlreadyExistsError:
            number += 1
    return Backup(
        folder,
        number,
        tuple(map(str, cut.tables)),
        tuple(map(str, cut.views)),
        len(needed),
        sum(size for size, _ in needed.values()),
        copies.copied_files,
        copies.copied_bytes,
        tuple(map(str, cut.unsettled)),
    )


@dataclass(frozen=True)
class _Cut:
    """The catalog at one moment, but for the tables that were `unsettled`."""

    namespaces: Mapping[tuple[str, ...], Mapping[str, str]]
    tables: Mapping[Identifier, TableVersion]
    views: Mapping[Identifier, StoredView]
    unsettled: tuple[Identifier, ...] = ()

    @classmethod
    def of(cls, catalog: Catalog, names: Collection[str]) -> _Cut:
        """Read until nothing changes from one reading to the next."""
        cut = cls.read(catalog, names, {})
        for _ in range(_READINGS_MAX):
            again = cls.read(catalog, names, cut.tables)
            if again.is_as(cut):
                return again
            changed = tuple(
                name
                for name, version in again.tables.items()
                if version is not cut.tables.get(name)
            )
            cut = again
        return cls(cut.namespaces, cut.tables, cut.views, changed)

    @classmethod
    def read(
        cls, catalog: Catalog, names: Collection[str], known: Mapping[Identifier, TableVersion]
    ) -> _Cut:
        tables: dict[Identifier, TableVersion] = {}
        views: dict[Identifier, StoredView] = {}
        for name in walk_tables(catalog):
            if names and str(name) not in names:
                continue
            try:
                version = catalog.refresh(known[name]) if name in known else catalog.load(name)
            except NotFoundError:
                continue  # dropped since it was listed
            # a version that is part of an undecided transaction is read again each time
            is_known = name in known and _table_bytes(version) == _table_bytes(known[name])
            tables[name] = known[name] if is_known else version
        for name in walk_views(catalog):
            if not names or str(name) in names:
                try:
                    views[name] = catalog.views.load(name)
                except NotFoundError:
                    continue
        if missing := set(names) - {str(table) for table in (*tables, *views)}:
            raise NotFoundError(f"No table or view {sorted(missing)[0]} in {catalog.uri}.")
        namespaces = {
            name: dict(catalog.namespace_properties(name)) for name in walk_namespaces(catalog)
        }
        return cls(namespaces, tables, views)

    def is_as(self, other: _Cut) -> bool:
        return (
            self.namespaces == other.namespaces
            and self.tables.keys() == other.tables.keys()
            and all(_is_same(version, other.tables[name]) for name, version in self.tables.items())
            and {name: view.metadata for name, view in self.views.items()}
            == {name: view.metadata for name, view in other.views.items()}
        )


def _is_same(one: TableVersion, other: TableVersion) -> bool:
    return one is other or _table_bytes(one) == _table_bytes(other)


def _table_bytes(version: TableVersion) -> bytes:
    return metadata_bytes(without_mark(version.metadata))


@dataclass
class _Copies:
    """Files of tables in the folder of a backup."""

    storage: Storage
    folder: str
    progress: Progress
    known: Files = field(init=False)
    copied_files: int = 0
    copied_bytes: int = 0

    def __post_init__(self) -> None:
        newest = _newest(self.storage, self.folder)
        before = _Record.read_at(self.storage, self.folder, newest).files if newest else {}
        files = self.storage.list(join(self.folder, "files"))
        present = {canonical(file.location): file.size for file in files}
        self.known = {
            location: (size, digest)
            for location, (size, digest) in before.items()
            if present.get(canonical(_stored(self.folder, location))) == size
        }

    def of(self, catalog: Catalog, cut: _Cut) -> Files:
        """Copy what is not there; all files that the tables need."""
        needed: Files = {}
        for done, version in enumerate(cut.tables.values()):
            self.progress("tables", done, len(cut.tables))
            source = catalog.storage(version.metadata.location)
            named = {
                canonical(location): (location, size)
                for location, size in _reached(source, version.metadata)
            }
            missing = [
                (key, *said)
                for key, said in named.items()
                if key not in self.known or said[1] not in (None, self.known[key][0])
            ]

            for key, size, digest in in_parallel(partial(self._copy, source), missing):
                self.known[key] = (size, digest)
                self.copied_files += 1
                self.copied_bytes += size
            needed |= {key: self.known[key] for key in named}
        self.progress("tables", len(cut.tables), len(cut.tables))
        return needed

    def _copy(self, source: Storage, listed: tuple[str, str, int | None]) -> tuple[str, int, str]:
        key, location, size = listed
        return (key, *_copy(source, location, self.storage, _stored(self.folder, key), size))

    def described(self, metadata: bytes) -> str:
        """The name of the file that holds this metadata."""
        name = f"metadata/{hashlib.sha256(metadata).hexdigest()}.json"
        if not self.storage.exists(join(self.folder, name)):
            self.storage.write(join(self.folder, name), metadata)
        return name

    def listed(self, needed: Files, unique: UUID) -> list[str]:
        """The name of the list of files, and its SHA-256."""
        rows = [(key, *needed[key]) for key in sorted(needed)]
        columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
        out = io.BytesIO()
        pq.write_table(pa.table(columns, schema=_LISTED), out, compression="zstd")
        name = f"listed/{unique}.parquet"
        self.storage.write(join(self.folder, name), out.getvalue())
        return [name, hashlib.sha256(out.getvalue()).hexdigest()]


def _reached(storage: Storage, metadata: TableMetadata) -> Iterator[tuple[str, int | None]]:
    """Every file that the metadata reaches, with its size where that is known.

    Not columnar manifests: they are derived.
    """
    for location, size in statistics_locations(metadata).items():
        yield location, size or None
    walker, manifests = StorageWalker(storage, metadata), dict[str, ManifestFile]()
    snapshots = list(metadata.snapshots)
    for snapshot in snapshots:
        if not snapshot.manifest_list:
            raise InvalidInputError(
                f"{metadata.location} has snapshots of format version 1, without a manifest list: "
                "upgrade the table and expire them before you back it up"
            )
        yield snapshot.manifest_list, None
    for listed in in_parallel(walker.manifests, snapshots):
        manifests |= {manifest.manifest_path: manifest for manifest in listed}
    for path, manifest in manifests.items():
        yield path, manifest.manifest_length
    for files in in_parallel(
        lambda manifest: list(walker.live_files(manifest)), list(manifests.values())
    ):
        for file in files:
            yield file.location, file.size


def _copy(
    source: Storage, location: str, target: Storage, place: str, size: int | None
) -> tuple[int, str]:
    """Copy a file; its size and SHA-256.

    Raises CorruptMetadataError, and leaves no copy: it has another size than it should.
    """
    digest, count = hashlib.sha256(), 0
    with target.open_output(place) as out:
        while chunk := source.read_range(location, count, _CHUNK):
            digest.update(chunk)
            out.write(chunk)
            count += len(chunk)
            if len(chunk) < _CHUNK:
                break
        if size not in (None, count):
            raise CorruptMetadataError(
                f"{location} has {count:,} bytes, and {size:,} by what names it: it is damaged",
                location=location,
            )
    return count, digest.hexdigest()


def restore(
    catalog: Catalog,
    folder: str,
    *,
    number: int | None = None,
    tables: Collection[str] = (),
    dry_run: bool = False,
    progress: Progress = no_progress,
) -> Restoration:
    """Make the tables and views of a backup those of a catalog. After a crash, do it again.

    All files are there before the first table is, and nothing of the backup is changed. Where the
    catalog has the warehouse that was backed up, each file gets the place that it had; else every
    path is rewritten.

    Args:
        catalog: any; a table that it has already must be one that was restored.
        folder: of the backup.
        number: which; None: the newest.
        tables: only these tables and views; empty: all.
        dry_run: read and verify every file of the backup, and write nothing.
        progress: see `Progress`.

    Raises:
        NotFoundError: no such backup, or no table of a name in it.
        TableAlreadyExistsError: the catalog has another table of a name; nothing was written.
        CorruptMetadataError: a file of the backup is not what was written there.
    """
    storage = storage_for(folder, catalog.properties)
    newest = _newest(storage, folder) if number is None else number
    record = _Record.read_at(storage, folder, newest)
    chosen = {
        name: load
        for name, load in {**record.tables, **record.views}.items()
        if not tables or str(name) in tables
    }
    if missing := set(tables) - {str(name) for name in chosen}:
        raise NotFoundError(
            f"No table or view {sorted(missing)[0]} in backup {newest} of {folder}."
        )
    kept = _restored_before(catalog, chosen, record)
    waiting = {name: load for name, load in chosen.items() if name not in kept}
    if dry_run:
        verified = {load: record.metadata(load) for load in chosen.values()}
        for done, location in enumerate(record.files):
            progress("files", done, len(record.files))
            record.check(location)
        locations = {str(name): verified[load]["location"] for name, load in waiting.items()}
        return Restoration(
            folder,
            newest,
            catalog.warehouse,
            locations,
            tuple(sorted(map(str, kept))),
            len(record.files),
            0,
            True,
        )
    for namespace, properties in record.namespaces.items():
        if any(name.namespace[: len(namespace)] == namespace for name in waiting) or not tables:
            try:
                catalog.create_namespace(namespace, properties)
            except NamespaceAlreadyExistsError:
                continue
    made: dict[Identifier, _Restored] = {}
    for done, (name, load) in enumerate(waiting.items()):
        progress("tables", done, len(waiting))
        made[name] = _Restored.of(catalog, record, name, load, newest)
    progress("tables", len(waiting), len(waiting))
    for name, restored in made.items():
        if name in record.views:
            catalog.views.register(name, restored.pointer)
        else:
            catalog.register(name, restored.pointer)
    return Restoration(
        folder,
        newest,
        catalog.warehouse,
        {str(name): restored.place for name, restored in made.items()},
        tuple(sorted(map(str, kept))),
        sum(restored.files for restored in made.values()),
        sum(restored.copied for restored in made.values()),
        False,
    )


def _restored_before(
    catalog: Catalog, chosen: Mapping[Identifier, str], record: _Record
) -> set[Identifier]:
    """Those that the catalog has. Raises TableAlreadyExistsError: of that name, not the same."""
    kept = set()
    for name, load in chosen.items():
        if catalog.table_exists(name):
            uuid = str(catalog.load(name).metadata.table_uuid)
        elif catalog.views.exists(name):
            uuid = str(catalog.views.load(name).metadata.view_uuid)
        else:
            continue
        document = record.metadata(load)
        if uuid != document.get("table-uuid", document.get("view-uuid")):
            raise TableAlreadyExistsError(
                f"{name} is another table in {catalog.uri} than in the backup: rename or drop it. "
                "Nothing was written",
                table=str(name),
            )
        kept.add(name)
    return kept


@dataclass
class _Restored(RewrittenPaths):
    """A table or view of the backup in the catalog that is to have it.

    `pointer`: its metadata file; `present`: sizes of files that are there, by location; `wanted`:
    location in the backup -> where it goes, of files that are to be copied.
    """

    record: _Record
    target: Storage
    place: str
    is_same_place: bool
    present: dict[str, int]
    pointer: str = ""
    files: int = 0
    copied: int = 0
    wanted: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, catalog: Catalog, record: _Record, name: Identifier, load: str, number: int
    ) -> _Restored:
        """With all its files."""
        metadata = record.metadata(load)
        old = metadata["location"]
        is_same = _is_location(catalog.warehouse) and is_within(old, catalog.warehouse)
        digest = hashlib.sha256(
            f"{metadata.get('table-uuid')} {load} {number}".encode()
        ).hexdigest()
        place = old if is_same else _place_of(catalog, name, digest[:12])
        folders = [(old, place)]
        for kind in ("data", "metadata"):
            path = metadata.get("properties", {}).get(f"write.{kind}.path")
            if path is not None and not is_within(path, old):
                folders.append((path, join(place, kind)))
        # the deepest first
        folders.sort(key=lambda pair: -len(canonical(pair[0])))
        target = catalog.storage(place)
        present = {canonical(stored.location): stored.size for stored in target.list(place)}
        restored = cls(str(name), tuple(folders), record, target, place, is_same, present)
        new = restored.rewritten(metadata)
        restored.copy()
        unique = UUID(hex=digest[:32], version=4)
        folder = new["properties"].get("write.metadata.path", join(place, "metadata"))
        restored.pointer = join(folder, numbered_name(None, str(unique)))
        target.write(restored.pointer, orjson.dumps(new))
        return restored

    def here(self, location: str) -> str:
        """The same place in the same warehouse."""
        return location if self.is_same_place else super().here(location)

    def elsewhere(self, location: str) -> str:
        """In the folder of the table, whose own it is then."""
        folder = hashlib.sha256(canonical(parent(location)).encode()).hexdigest()[:12]
        return join(self.place, "data", folder, basename(location))

    def read(self, location: str) -> bytes:
        """Of the backup."""
        return self.record.read(canonical(location))

    def keep(self, location: str, size: int | None = None) -> str:
        """Copied, as soon as all are known."""
        place, key = self.here(location), canonical(location)
        if size not in (None, self.record.size(key)):
            raise CorruptMetadataError(f"{location} is in the backup with another size than {size}")
        if key not in self.wanted:
            self.files += 1
            self.wanted[key] = place
        return place

    def write(self, location: str, data: bytes) -> str:
        """At its new place, where nothing names it yet."""
        place = self.here(location)
        self.target.write(place, data)
        self.files += 1
        return place

    def copy(self) -> None:
        """Copy the files that are wanted and not there."""
        missing = [
            (key, place)
            for key, place in self.wanted.items()
            if self._size_at(place) != self.record.size(key)
        ]

        def copied(pair: tuple[str, str]) -> None:
            self.record.copy(pair[0], self.target, pair[1])

        for _ in in_parallel(copied, missing):
            self.copied += 1

    def _size_at(self, place: str) -> int | None:
        size = self.present.get(canonical(place))
        if size is None and not is_within(place, self.place) and self.target.exists(place):
            return self.target.size(place)
        return size


@dataclass
class _Record:
    """A backup, read."""

    storage: Storage
    folder: str
    namespaces: Mapping[tuple[str, ...], Mapping[str, str]]
    tables: Mapping[Identifier, str]
    views: Mapping[Identifier, str]
    files: Files
    listed: str

    @classmethod
    def read_at(cls, storage: Storage, folder: str, number: int) -> _Record:
        """Raises NotFoundError, CorruptMetadataError."""
        return cls.read_from(storage, folder, _place(folder, number))

    @classmethod
    def read_from(cls, storage: Storage, folder: str, place: str) -> _Record:
        """As `read_at`, by where its JSON is."""
        try:
            document = orjson.loads(storage.read(place))
        except NoSuchFileError as error:
            number = int(basename(place).removesuffix(".json"))
            raise _no_backup(folder, number) from error
        except orjson.JSONDecodeError as error:
            raise CorruptMetadataError(f"{place} is no backup: {error}", location=place) from error
        if document["format"] != _FORMAT:
            raise InvalidInputError(
                f"{place} is of format {document['format']}, which a later version of lakehouse "
                f"wrote; this one reads {_FORMAT}"
            )
        name, digest = document["files"]
        data = _verified(storage.read(join(folder, name)), digest, join(folder, name))
        columns = pq.read_table(io.BytesIO(data)).to_pydict()
        sizes = zip(columns["size"], columns["sha256"], strict=True)
        return cls(
            storage,
            folder,
            {tuple(name): properties for name, properties in document["namespaces"]},
            {Identifier(tuple(name[:-1]), name[-1]): load for name, load in document["tables"]},
            {Identifier(tuple(name[:-1]), name[-1]): load for name, load in document["views"]},
            dict(zip(columns["location"], sizes, strict=True)),
            name,
        )

    def places(self) -> set[str]:
        """The files of the backup in its folder, canonical, but its JSON and its list."""
        named = {
            join(self.folder, table) for table in (*self.tables.values(), *self.views.values())
        }
        stored = {_stored(self.folder, location) for location in self.files}
        return {canonical(place) for place in (*named, *stored)}

    def metadata(self, name: str) -> dict[str, Any]:
        """The JSON of a table or view, by the name of its file."""
        place = join(self.folder, name)
        data = _verified(self.storage.read(place), basename(name).removesuffix(".json"), place)
        document: dict[str, Any] = orjson.loads(data)
        return document

    def size(self, location: str) -> int:
        """Bytes of a file, by its canonical location."""
        return self._said(location)[0]

    def read(self, location: str) -> bytes:
        """Its content."""
        place = _stored(self.folder, location)
        return _verified(self.storage.read(place), self._said(location)[1], place)

    def copy(self, location: str, target: Storage, place: str) -> None:
        """Copy a file to where a table has it."""
        size, digest = self._said(location)
        stored = _stored(self.folder, location)
        if _copy(self.storage, stored, target, place, size)[1] != digest:
            target.delete([place])
            raise _damaged(stored)

    def check(self, location: str) -> None:
        """Raise CorruptMetadataError, NoSuchFileError: it is not what was backed up."""
        size, digest = self._said(location)
        stored, content, count = _stored(self.folder, location), hashlib.sha256(), 0
        while chunk := self.storage.read_range(stored, count, _CHUNK):
            content.update(chunk)
            count += len(chunk)
            if len(chunk) < _CHUNK:
                break
        if (count, content.hexdigest()) != (size, digest):
            raise _damaged(stored)

    def _said(self, location: str) -> tuple[int, str]:
        try:
            return self.files[location]
        except KeyError as error:
            raise CorruptMetadataError(f"{self.folder} lacks {location}") from error


def _no_backup(folder: str, number: int) -> NotFoundError:
    return NotFoundError(f"{folder} has no backup {number or 'at all'}.")


def _verified(data: bytes, digest: str, place: str) -> bytes:
    if hashlib.sha256(data).hexdigest() != digest:
        raise _damaged(place)
    return data


def _damaged(place: str) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"{place} is not what was backed up: its SHA-256 differs. Take another backup (--number)",
        location=place,
    )


def _prune(storage: Storage, folder: str, keep: int) -> tuple[list[int], int]:
    """Delete all but the newest backups; their numbers, and the bytes of the files that went.

    After a crash it goes on where it was; beside another one, each does what the other has not.
    """
    for number in _numbers(storage, folder)[:-keep]:
        place = _place(folder, number)
        with suppress(NoSuchFileError):
            storage.write(join(folder, _PRUNED, basename(place)), storage.read(place))
        storage.delete([place])
    gone = _numbers(storage, folder, _PRUNED)
    if not gone:
        return [], 0
    needed: set[str] = set()
    for number in _numbers(storage, folder):
        needed |= _Record.read_at(storage, folder, number).places()
    sizes = {
        canonical(stored.location): (stored.location, stored.size)
        for room in ("files", "metadata")
        for stored in storage.list(join(folder, room))
    }
    freed = 0
    for number in gone:
        place = join(folder, _PRUNED, f"{number:05d}.json")
        try:
            record = _Record.read_from(storage, folder, place)
        except (NotFoundError, NoSuchFileError):
            continue
        stale = [sizes.pop(name) for name in record.places() - needed if name in sizes]
        storage.delete([location for location, _ in stale])
        freed += sum(size for _, size in stale)
        # what says which files these were goes last
        storage.delete([place])
        storage.delete([join(folder, record.listed)])
    return gone, freed


def backed_up_files(
    folder: str, properties: Mapping[str, str]
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Files that the backups in a folder need, metadata of tables and views apart.

    Args:
        folder: where the backups are.
        properties: of a catalog, for the storage.

    Returns:
        Canonical location -> where the folder has it, and the numbers of the backups that need it.

    Raises:
        NotFoundError: there is no backup.
        CorruptMetadataError: one is damaged.
    """
    storage = storage_for(folder, properties)
    needed: dict[str, list[int]] = {}
    numbers = _numbers(storage, folder)
    if not numbers:
        raise _no_backup(folder, 0)
    for number in numbers:
        for location in _Record.read_at(storage, folder, number).files:
            needed.setdefault(location, []).append(number)
    return {
        location: (_stored(folder, location), tuple(needed_by))
        for location, needed_by in needed.items()
    }


def _numbers(storage: Storage, folder: str, room: str = _RECORDS) -> list[int]:
    """The numbers of the backups, oldest first."""
    names = (
        _NUMBERED.match(basename(stored.location)) for stored in storage.list(join(folder, room))
    )
    return sorted(int(match[1]) for match in names if match)


def _newest(storage: Storage, folder: str) -> int:
    """The number of the newest backup; 0: there is none."""
    return max(_numbers(storage, folder), default=0)


def _place(folder: str, number: int) -> str:
    return join(folder, _RECORDS, f"{number:05d}.json")


def _stored(folder: str, location: str) -> str:
    """Where the backup has a file, by its canonical location."""
    scheme, _, path = location.partition("://")
    return join(folder, "files", scheme, path)


def _is_location(warehouse: str) -> bool:
    return warehouse.startswith("/") or "://" in warehouse


def _place_of(catalog: Catalog, name: Identifier, unique: str) -> str:
    """The folder of a table that is restored, the same each time."""
    catalog = innermost(catalog)
    if isinstance(catalog, FilesystemCatalog):
        folder = plain_folder(catalog.warehouse, (*name.namespace, name.name))
        versions = VersionFiles(catalog.storage(folder), Environment.system().new_uuid)
        # files of a dropped table may have names that are wanted
        return join(folder, unique) if versions.any(folder) else folder
    below = parent(catalog.default_location(name, staged=True))
    return join(below, f"{folder_name(name.name)[:100]}-{unique}")
