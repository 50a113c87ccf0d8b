"""The one door to the entries of manifests: columnar copy, cache, Avro in bulk, entry by entry."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from pyiceberg.partitioning import PartitionSpec

from lakehouse.errors import CorruptMetadataError, NoSuchFileError, StorageError
from lakehouse.manifests.avro_decoding import (
    BulkRefusedError,
    bulk_decode,
    decode_entries,
    manifest_spec_id,
)
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE, ColumnsOnce, Listed, ManifestCache
from lakehouse.spec.manifests.columnar_manifest import (
    ColumnarFile,
    cast_to_table,
    checksum_of,
    columnar_path,
    missing_columns,
    open_columnar,
    why_stale,
)
from lakehouse.spec.manifests.data_file import (
    CONTENT_DATA,
    CONTENT_EQUALITY_DELETES,
    CONTENT_POSITION_DELETES,
    STATUS_ADDED,
    STATUS_DELETED,
    STATUS_EXISTING,
)
from lakehouse.spec.manifests.manifest_entries import FIXED_COLUMNS, Entries
from lakehouse.spec.manifests.manifest_list import CONTENT_DATA_MANIFEST, ManifestFile
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.schema.iceberg_types import FieldTypes
from lakehouse.storage.storage_protocol import Storage

_FETCHED_WHOLE_BYTES = 8 << 20
"""Columnar manifests up to this size are read whole from object stores: one request, not four."""
_BULK_MIN_ENTRIES = 32
"""Fewer take longer in bulk, which costs 2 ms to begin with, than entry by entry."""
_TOGETHER_BYTES = 1 << 20
"""Manifests of one writer are decoded together as long as they are no larger than this."""
_NEWEST_BYTES = 64
_COLUMNAR_DAMAGE = (OSError, pa.ArrowException, StorageError, CorruptMetadataError, NoSuchFileError)


def load_manifests(storage: Storage, snapshot: Snapshot) -> list[ManifestFile]:
    """The manifests of a snapshot, data and delete, in the order of its manifest list.

    Raises:
        CorruptMetadataError: the manifest list is damaged, or one of its manifests has a sequence
            number above the snapshot's.
        NoSuchFileError: it is missing.
    """
    return list(listed_manifests(storage, snapshot))


def listed_manifests(storage: Storage, snapshot: Snapshot) -> Listed:
    """`load_manifests`, with what earlier plans worked out of the same list."""
    if snapshot.manifest_list:
        data = DEFAULT_CACHE.fetch(storage, snapshot.manifest_list)
        listed = DEFAULT_CACHE.listed(data, snapshot.manifest_list)
        newest = listed.derive("newest", _newest, lambda _: _NEWEST_BYTES) if listed else None
        if newest is not None and (newest.sequence_number or 0) > snapshot.sequence_number:
            raise CorruptMetadataError(
                f"{snapshot.manifest_list} lists {newest.manifest_path} with sequence number "
                f"{newest.sequence_number}, above that of its snapshot, "
                f"{snapshot.sequence_number}",
                location=snapshot.manifest_list,
            )
        return listed
    return Listed(_v1_manifest(storage, location, snapshot) for location in snapshot.manifests)


def _newest(listed: Listed) -> ManifestFile:
    return max(listed, key=lambda manifest: manifest.sequence_number or 0)


@dataclass(frozen=True, slots=True)
class DecodedManifests:
    """Entries as they stand in Avro manifests, nothing inherited.

    Attributes:
        entries: all of them, deleted ones too, manifest after manifest.
        counts: how many entries each manifest has.
        kind: `bulk` or `slow`.
        refused: why bulk decoding was refused, None when it was not.
    """

    entries: Entries
    counts: Sequence[int]
    kind: str
    refused: str | None = None


def decode_avro(
    files: Sequence[tuple[str, bytes]],
    spec: PartitionSpec,
    types: FieldTypes,
    *,
    columns: Collection[str] | None = None,
) -> DecodedManifests:
    """Decode manifests of one partition spec.

    Args:
        files: location and content of each.
        spec: the partition spec.
        types: field types of the table.
        columns: the entry columns needed; None is all.

    Raises:
        CorruptMetadataError: a manifest is damaged.
        UnsupportedFeatureError: an unknown Avro codec.
    """
    try:
        entries, counts = bulk_decode(files, spec, types, wanted=columns)
    except BulkRefusedError as error:
        parts = [decode_entries(data, path, spec, types, wanted=columns) for path, data in files]
        entries, counts = Entries.concat(parts), [len(part) for part in parts]
        return DecodedManifests(entries, counts, "slow", str(error))
    return DecodedManifests(entries, counts, "bulk")


@dataclass(slots=True)
class ManifestReader:
    """Reads the manifests of one table.

    Without columnar manifests and cache it gives what the Avro manifests say, which are the truth.

    Attributes:
        storage: where they are.
        types: field types of the table.
        specs: partition specs of the table by id.
        use_columnar: whether columnar manifests may be used.
        cache: where decoded entries are kept; None keeps none.
        notes: unusual events, appended to.
    """

    storage: Storage
    types: FieldTypes
    specs: Mapping[int, PartitionSpec]
    use_columnar: bool = False
    cache: ManifestCache | None = None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, storage: Storage, metadata: TableMetadata, cache: ManifestCache | None = None
    ) -> ManifestReader:
        """A reader of what the Avro manifests of a table say."""
        return cls(storage, types_of(metadata), metadata.specs(), cache=cache)

    def entries(self, manifest: ManifestFile, columns: Collection[str] | None = None) -> Entries:
        """All entries of a manifest, deleted ones too, inheritance applied.

        Sequence numbers are null in a manifest that no manifest list carries yet.

        Args:
            manifest: the row of the manifest list.
            columns: those that are needed; None is all columns.

        Raises:
            CorruptMetadataError: the manifest is damaged, or its partition spec is not in the
                table.
            NoSuchFileError: it is missing.
        """
        return self.open(manifest, columns).entries(columns)

    def written_entries(self, manifest: ManifestFile) -> Entries:
        """`entries` as they stand in the Avro manifest, nothing inherited."""
        return OpenManifest(manifest, self.spec_of(manifest), self, None).decoded()

    def entries_of_all(
        self, manifests: Sequence[ManifestFile], columns: Collection[str] | None = None
    ) -> Iterator[Entries]:
        """`entries` of many manifests, in their order; small ones that are alike come together.

        Raises as `entries` does.
        """
        for group in _alike(manifests):
            together = self._together(group, columns) if len(group) > 1 else None
            if together is not None:
                yield together
            else:
                # each by itself tells what is wrong with which
                yield from (self.entries(manifest, columns) for manifest in group)

    def _together(
        self, group: Sequence[ManifestFile], columns: Collection[str] | None
    ) -> Entries | None:
        paths = [manifest.manifest_path for manifest in group]
        files = [(path, DEFAULT_CACHE.fetch(self.storage, path)) for path in paths]
        try:
            entries, counts = bulk_decode(
                files, self.spec_of(group[0]), self.types, wanted=_with_inheriting(columns)
            )
            return inherit_alike(entries, group, counts)
        except (BulkRefusedError, CorruptMetadataError):
            return None

    def open(self, manifest: ManifestFile, columns: Collection[str] | None = None) -> OpenManifest:
        """A manifest whose columns are read on demand.

        Args:
            manifest: the row of the manifest list.
            columns: every column that will be read, so that Avro is decoded once; None is all.

        Raises:
            CorruptMetadataError: its partition spec is not in the table.
        """
        return OpenManifest(manifest, self.spec_of(manifest), self, columns)

    def spec_of(self, manifest: ManifestFile) -> PartitionSpec:
        """The partition spec of a manifest. Raises CorruptMetadataError: the table lacks it."""
        spec = self.specs.get(manifest.partition_spec_id)
        if spec is None:
            path = manifest.manifest_path
            raise CorruptMetadataError(
                f"{path} has the partition spec {manifest.partition_spec_id}, which the table does "
                "not know",
                location=path,
            )
        return spec


class OpenManifest:
    """The entries of one manifest, inheritance applied: see `ManifestReader.open`.

    Attributes:
        manifest: the row of the manifest list.
        kind: how the entries were had: `columnar`, `cached`, `bulk` or `slow`; known after the
            first `entries`.
        bytes_read: bytes of Avro read from storage.
    """

    def __init__(
        self,
        manifest: ManifestFile,
        spec: PartitionSpec,
        reader: ManifestReader,
        columns: Collection[str] | None,
    ) -> None:
        self.manifest = manifest
        self.kind = "slow"
        self.bytes_read = 0
        self._spec = spec
        self._reader = reader
        self._columns = _with_inheriting(columns)
        self._columnar = self._open_columnar() if reader.use_columnar else None
        self._loaded: Entries | None = None

    @property
    def has_columnar(self) -> bool:
        """Whether it reads a columnar manifest."""
        return self._columnar is not None

    def entries(self, columns: Collection[str] | None) -> Entries:
        """All entries with at least these columns where they exist; None is all columns.

        Raises:
            CorruptMetadataError: the manifest is damaged.
            NoSuchFileError: it is missing.
        """
        if self._columnar is not None:
            try:
                entries = self._from_columnar(self._columnar, columns)
            except _COLUMNAR_DAMAGE as error:
                self._ignore_columnar(str(error))
            else:
                self.kind = "columnar"
                return entries
        if self._loaded is None:
            self._loaded = self._inherited(self._from_avro())
        return self._loaded

    def _inherited(self, entries: Entries) -> Entries:
        if self.manifest.sequence_number is None:
            return inherit_alike(entries, [self.manifest], [len(entries)])
        return inherit(entries, self.manifest)

    def _from_avro(self) -> Entries:
        reader = self._reader
        if reader.cache is None:
            return self.decoded()
        key = reader.cache.avro_key(reader.storage, self.manifest, reader.types)
        entries = reader.cache.entries(key, self._columns)
        if entries is not None:
            self.kind = "cached"
        else:
            entries = self.decoded()
            reader.cache.keep_entries(key, self._columns, entries)
        return entries

    def decoded(self) -> Entries:
        """Entries as they stand in the Avro manifest, nothing inherited."""
        reader, location = self._reader, self.manifest.manifest_path
        data = DEFAULT_CACHE.fetch(reader.storage, location)
        self.bytes_read = len(data)
        count = _entry_count(self.manifest)
        if count is not None and count < _BULK_MIN_ENTRIES:
            return decode_entries(data, location, self._spec, reader.types, wanted=self._columns)
        decoded = decode_avro([(location, data)], self._spec, reader.types, columns=self._columns)
        self.kind = decoded.kind
        if decoded.refused is not None:
            reader.notes.append(f"decoded {location} entry by entry: {decoded.refused}")
        return decoded.entries

    def _from_columnar(self, columnar: ColumnsOnce, columns: Collection[str] | None) -> Entries:
        present = columnar.names
        wanted = present
        if columns is not None:
            needed = {"status", *columns}
            if needed & {"first_row_id", "sequence_number", "file_sequence_number"}:
                needed.update(INHERITING)
            wanted = [name for name in present if name in needed]
        spec, types, manifest = self._spec, self._reader.types, self.manifest
        inherited = (
            manifest.content,
            manifest.added_snapshot_id,
            manifest.sequence_number,
            manifest.first_row_id,
        )
        return columnar.entries(
            wanted,
            (spec, types),
            inherited,
            lambda table: inherit(cast_to_table(table, spec, types), manifest),
        )

    def _open_columnar(self) -> ColumnsOnce | None:
        reader, path = self._reader, self.manifest.manifest_path
        checksum = checksum_of(path)
        if checksum is None:
            return None
        try:
            file = ColumnsOnce(
                path,
                partial(_opened, reader.storage, self.manifest, checksum),
                reader.cache,
            )
        except (FileNotFoundError, NoSuchFileError):
            return None
        except _COLUMNAR_DAMAGE as error:
            self._ignore_columnar(str(error))
            return None
        reason = why_stale(file.rows, self.manifest) or missing_columns(file.names, self._spec)
        if reason is not None:
            self._ignore_columnar(reason)
            return None
        return file

    def _ignore_columnar(self, reason: str) -> None:
        self._columnar = None
        self._reader.notes.append(
            f"ignored the columnar manifest of {self.manifest.manifest_path}: {reason}"
        )


def _opened(storage: Storage, manifest: ManifestFile, checksum: str) -> ColumnarFile:
    """The columnar manifest beside a manifest.

    It holds no open manifest: that would hold it in turn, and what was read of both would stay in
    memory until cycles are looked for.
    """
    location = columnar_path(manifest.manifest_path)
    filesystem, path = storage.filesystem(location)
    local = isinstance(filesystem, pafs.LocalFileSystem)
    if local or manifest.manifest_length > _FETCHED_WHOLE_BYTES:
        return open_columnar(filesystem.open_input_file(path), checksum)
    return open_columnar(pa.BufferReader(DEFAULT_CACHE.fetch(storage, location)), checksum)


def _with_inheriting(columns: Collection[str] | None) -> set[str] | None:
    return None if columns is None else {"status", *INHERITING, *columns}


def _entry_count(manifest: ManifestFile) -> int | None:
    """How many entries a manifest has; None where the list does not say (v1)."""
    counts = (
        manifest.added_files_count,
        manifest.existing_files_count,
        manifest.deleted_files_count,
    )
    return sum(counts) if None not in counts else None  # type: ignore[arg-type]


def _alike(manifests: Sequence[ManifestFile]) -> Iterator[list[ManifestFile]]:
    """Neighbours of one spec and content, together as long as they are small."""
    group: list[ManifestFile] = []
    size = 0
    for manifest in manifests:
        size += manifest.manifest_length
        if group and (
            size > _TOGETHER_BYTES
            or (manifest.partition_spec_id, manifest.content)
            != (group[0].partition_spec_id, group[0].content)
        ):
            yield group
            group, size = [], manifest.manifest_length
        group.append(manifest)
    if group:
        yield group


def _v1_manifest(storage: Storage, location: str, snapshot: Snapshot) -> ManifestFile:
    """A manifest that a v1 snapshot names directly: nothing is known about its content."""
    data = DEFAULT_CACHE.fetch(storage, location)
    return ManifestFile(
        manifest_path=location,
        manifest_length=len(data),
        partition_spec_id=manifest_spec_id(data, location),
        sequence_number=0,
        min_sequence_number=0,
        added_snapshot_id=snapshot.snapshot_id,
    )


INHERITING = (
    "status",
    "snapshot_id",
    "sequence_number",
    "file_sequence_number",
    "content",
    "record_count",
    "first_row_id",
)


def inherit(entries: Entries, manifest: ManifestFile) -> Entries:
    """Fill in inherited ids, sequence numbers and content.

    `entries` are all those of the manifest, in its order.

    Entries that have only some of the columns `INHERITING` (a projection) inherit those; a first
    row id needs `status` and `record_count` too.

    Raises:
        CorruptMetadataError: an existing or deleted entry lacks a sequence number, an entry has a
            status that is none, a sequence number above its manifest's, or is of another content
            than its manifest.
    """
    table = entries.table
    names = set(table.column_names)
    _check(table, manifest.content, manifest.manifest_path)
    if "snapshot_id" in names:
        table = _replace(
            table, "snapshot_id", _filled(table["snapshot_id"], manifest.added_snapshot_id)
        )
    for name in ("sequence_number", "file_sequence_number"):
        if name in names:
            table = _replace(table, name, _sequence(table, name, manifest))
        elif "status" in names and "snapshot_id" in names:
            table = table.append_column(name, pa.array(np.zeros(len(table), np.int64)))
    default_content = CONTENT_DATA_MANIFEST if manifest.content == CONTENT_DATA_MANIFEST else 1
    if "content" in names:
        table = _replace(table, "content", _filled(table["content"], default_content))
    elif "file_path" in names:
        table = table.append_column(
            "content", pa.array(np.full(len(table), default_content, np.int32))
        )
    if "record_count" in names and "status" in names and manifest.content == CONTENT_DATA_MANIFEST:
        table = _first_row_ids(table, manifest.first_row_id)
    return Entries(table, entries.spec)


def inherit_alike(
    entries: Entries, manifests: Sequence[ManifestFile], counts: Sequence[int]
) -> Entries:
    """`inherit` for the entries of several manifests, one after the other.

    Args:
        entries: with all their columns.
        manifests: of one content, each listed, or not yet: then without a sequence number, which
            its entries do not get either.
        counts: how many entries each has.

    Raises:
        CorruptMetadataError: as `inherit`, or these cannot be done together.
    """
    table, first = entries.table, manifests[0]
    if any(manifest.content != first.content for manifest in manifests):
        raise CorruptMetadataError("Data and delete manifests do not inherit together.")
    _check(table, first.content, first.manifest_path)
    listed = np.repeat([manifest.sequence_number is not None for manifest in manifests], counts)
    snapshots = np.repeat([manifest.added_snapshot_id or 0 for manifest in manifests], counts)
    has_one = np.repeat([manifest.added_snapshot_id is not None for manifest in manifests], counts)
    inherited = pa.array(snapshots, mask=~has_one)
    # what is not listed yet is of the snapshot that lists it
    own = pc.if_else(pa.array(listed), table["snapshot_id"], pa.scalar(None, pa.int64()))
    table = _set(table, "snapshot_id", pc.coalesce(own, inherited))
    added = np.asarray(table["status"]) == STATUS_ADDED
    for name in ("sequence_number", "file_sequence_number"):
        column = table[name] if name in table.column_names else pa.nulls(len(table), pa.int64())
        numbers = np.repeat([manifest.sequence_number or 0 for manifest in manifests], counts)
        if (np.asarray(pc.is_null(column)) & ~added & (numbers != 0)).any():
            raise CorruptMetadataError(f"An existing or deleted entry lacks its {name}.")
        if (np.asarray(pc.fill_null(column, 0)) > numbers)[listed].any():
            raise CorruptMetadataError(f"An entry has a {name} above that of its manifest.")
        filled = pc.coalesce(column, pa.array(numbers, mask=~listed))
        table = _set(table, name, filled)
    default = first.content if first.content == CONTENT_DATA_MANIFEST else 1
    content = pa.nulls(len(table), pa.int32())
    if "content" in table.column_names:
        content = table["content"]
    table = _set(table, "content", pc.fill_null(content, pa.scalar(default, pa.int32())))
    if first.content == CONTENT_DATA_MANIFEST:
        table = _first_row_ids_of_each(table, manifests, counts)
    return Entries(table, entries.spec)


def _check(table: pa.Table, content: int, path: str) -> None:
    """That entries are what their manifest is listed as: a delete file read as data is rows."""
    deletes = (CONTENT_POSITION_DELETES, CONTENT_EQUALITY_DELETES)
    contents = (CONTENT_DATA,) if content == CONTENT_DATA_MANIFEST else deletes
    listed = "data" if content == CONTENT_DATA_MANIFEST else "delete"
    for name, allowed in (
        ("status", (STATUS_EXISTING, STATUS_ADDED, STATUS_DELETED)),
        ("content", contents),
    ):
        if name not in table.column_names or not len(table):
            continue
        ends = pc.min_max(table[name]).as_py()
        for value in (ends["min"], ends["max"]):
            if value is not None and value not in allowed:
                raise CorruptMetadataError(
                    f"{path}, listed as a {listed} manifest, has an entry with {name} {value}",
                    location=path,
                )


def _check_numbers(column: pa.ChunkedArray, name: str, manifest: ManifestFile) -> None:
    """None is above its manifest's: which deletes reach which files would not be known."""
    highest = pc.max(column).as_py()
    if manifest.sequence_number is not None and (highest or 0) > manifest.sequence_number:
        raise CorruptMetadataError(
            f"{manifest.manifest_path} has an entry with {name} {highest}, above that of the "
            f"manifest, {manifest.sequence_number}",
            location=manifest.manifest_path,
        )


def _first_row_ids_of_each(
    table: pa.Table, manifests: Sequence[ManifestFile], counts: Sequence[int]
) -> pa.Table:
    known = np.repeat([manifest.first_row_id is not None for manifest in manifests], counts)
    absent = "first_row_id" not in table.column_names
    if absent and not known.any():
        return table
    column = pa.nulls(len(table), pa.int64()) if absent else table["first_row_id"]
    column = pc.if_else(pa.array(known), column, pa.scalar(None, pa.int64()))
    waiting = np.asarray(pc.is_null(column)) & (np.asarray(table["status"]) != STATUS_DELETED)
    rows = np.where(waiting & known, np.asarray(table["record_count"]), 0)
    before = np.cumsum(rows) - rows
    begin = np.cumsum([0, *counts[:-1]])
    offset = before - np.repeat(before[np.minimum(begin, max(0, len(before) - 1))], counts)
    firsts = np.repeat([manifest.first_row_id or 0 for manifest in manifests], counts)
    starts = pa.array(firsts + offset, mask=~(waiting & known))
    return _set(table, "first_row_id", pc.coalesce(column, starts))


def _set(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    column = column.cast(FIXED_COLUMNS[name])
    if name in table.column_names:
        return _replace(table, name, column)
    return table.append_column(pa.field(name, FIXED_COLUMNS[name]), column)


def _sequence(table: pa.Table, name: str, manifest: ManifestFile) -> pa.Array:
    column = table[name]
    _check_numbers(column, name, manifest)
    if not column.null_count:
        return column
    inherited = manifest.sequence_number or 0
    if inherited != 0:
        explicit = np.asarray(column.is_null()) & (np.asarray(table["status"]) != STATUS_ADDED)
        if explicit.any():
            message = f"{manifest.manifest_path} has an existing or deleted entry without {name}"
            raise CorruptMetadataError(message, location=manifest.manifest_path)
    return _filled(column, inherited)


def _first_row_ids(table: pa.Table, first_row_id: int | None) -> pa.Table:
    absent = "first_row_id" not in table.column_names
    if first_row_id is None and absent:
        return table
    column = pa.nulls(len(table), pa.int64()) if absent else table["first_row_id"]
    if first_row_id is None:
        column = pa.nulls(len(table), pa.int64())
    else:
        waiting = np.asarray(column.is_null()) & (np.asarray(table["status"]) != STATUS_DELETED)
        rows = np.where(waiting, np.asarray(table["record_count"]), 0)
        starts = pa.array(first_row_id + np.cumsum(rows) - rows, mask=~waiting)
        column = pc.coalesce(column, starts)
    return (
        table.append_column("first_row_id", column)
        if absent
        else _replace(table, "first_row_id", column)
    )


def _filled(column: pa.ChunkedArray, value: int | None) -> pa.ChunkedArray:
    return (
        column
        if value is None or not column.null_count
        else pc.fill_null(column, pa.scalar(value, column.type))
    )


def _replace(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(
        table.column_names.index(name), pa.field(name, FIXED_COLUMNS[name]), column
    )
