"""Writes manifests: which entries go on, their Avro, and their row in a manifest list.

Below the writer, as pure functions of entries and list rows: which manifests can list a file, which
entries the next snapshot keeps.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, PrimitiveType, UUIDType

from lakehouse.errors import InvalidInputError
from lakehouse.kept_by_bytes import MadeOnce
from lakehouse.manifests.commit_files import CommitFiles
from lakehouse.spec.manifests.avro_container import write_container
from lakehouse.spec.manifests.columnar_manifest import (
    columnar_path,
    encode_columnar,
    name_with_checksum,
)
from lakehouse.spec.manifests.data_file import (
    CONTENT_DATA,
    STATUS_ADDED,
    STATUS_DELETED,
    STATUS_EXISTING,
    DataFile,
    ManifestEntry,
)
from lakehouse.spec.manifests.manifest_encoder import (
    block_of_few,
    entry_blocks,
    manifest_schema,
    partition_kinds,
)
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import (
    CONTENT_DATA_MANIFEST,
    CONTENT_DELETE_MANIFEST,
    FieldSummary,
    ManifestFile,
)
from lakehouse.spec.metadata.table_metadata import TableMetadata, refuse_v1, types_of
from lakehouse.spec.partitioning.partition_terms import spec_to_json
from lakehouse.spec.schema.iceberg_types import FieldTypes, field_types, schema_bytes
from lakehouse.spec.schema.schema_json import schema_to_json
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.types.arrow_types import partition_types
from lakehouse.spec.types.internal_values import (
    decode_bounds,
    encode_bounds,
    holds_uuids,
    is_ordered_alike,
    order_classes,
)

DEFLATE_LEVEL = 3
COLUMNAR_MIN_ENTRIES = 32
_FEW_FILES = 16
_SAMPLE_FILES = 2_000
_LEAST_FILES = 100
_SCHEMAS: MadeOnce[str] = MadeOnce()


class ManifestWriter:
    """Writes the manifests of one commit, columnar ones too where there is enough to prune.

    Args:
        files: names them, and writes them.
    """

    def __init__(self, files: CommitFiles) -> None:
        self._files = files
        self._written: dict[str, Callable[[], Entries]] = {}

    def wrote(self, manifest: ManifestFile) -> bool:
        """Whether the manifest is one of this commit."""
        return manifest.manifest_path in self._written

    def entries_of(self, manifest: ManifestFile) -> Entries:
        """The entries of a manifest of this commit, as they stand in it, nothing inherited."""
        return self._written[manifest.manifest_path]()

    def write_added(
        self,
        metadata: TableMetadata,
        files: Sequence[DataFile],
        *,
        snapshot_id: int,
        data_sequence_number: int | None = None,
        inherits_snapshot: bool = False,
    ) -> list[ManifestFile]:
        """Write manifests of new files, by partition spec and content, of about the target size.

        `inherits_snapshot`: entries leave out the snapshot, which whoever lists the manifest may
        then choose (spec: Snapshot ID Inheritance).
        """
        types = types_of(metadata)
        groups: dict[tuple[int, int], list[DataFile]] = {}
        for file in files:
            groups.setdefault((manifest_content(file), file.spec_id), []).append(file)
        manifests: list[ManifestFile] = []
        for (content, spec_id), members in groups.items():
            is_data = content == CONTENT_DATA_MANIFEST
            rows = [
                ManifestEntry(
                    status=STATUS_ADDED,
                    snapshot_id=None if inherits_snapshot else snapshot_id,
                    sequence_number=data_sequence_number if is_data else None,
                    data_file=file,
                )
                for file in members
            ]
            spec = metadata.spec(spec_id)
            if len(rows) <= _FEW_FILES and not _may_be_split(spec, types):
                entries = Entries.from_manifest_entries(rows, spec, types, with_metrics=False)
                manifests.append(
                    self.write(
                        entries, metadata, content=content, snapshot_id=snapshot_id, few=rows
                    )
                )
                continue
            entries = Entries.from_manifest_entries(rows, spec, types)
            manifests.extend(
                self.write_split(entries, metadata, content=content, snapshot_id=snapshot_id)
            )
        return manifests

    def write_split(
        self,
        entries: Entries,
        metadata: TableMetadata,
        *,
        content: int,
        snapshot_id: int,
        target_bytes: int | None = None,
    ) -> Iterator[ManifestFile]:
        """Write entries of one spec as manifests of about the target size.

        The first entries tell how large an entry is.
        """
        target = target_bytes or TableProperties(metadata.properties).manifest_target_size_bytes
        for group in _split_by_order(entries):
            at, step = 0, _SAMPLE_FILES
            while at < len(group):
                part = group if at == 0 and len(group) <= step else group.slice(at, step)
                manifest = self.write(part, metadata, content=content, snapshot_id=snapshot_id)
                yield manifest
                at += len(part)
                step = max(_LEAST_FILES, target * len(part) // max(1, manifest.manifest_length))

    def write(
        self,
        entries: Entries,
        metadata: TableMetadata,
        *,
        content: int,
        snapshot_id: int,
        few: Sequence[ManifestEntry] = (),
    ) -> ManifestFile:
        """Write a manifest, and a columnar one where there is enough in it to prune.

        `few`: the same entries, where `entries` have no metrics: they are encoded one by one.

        Raises UnsupportedFeatureError: a v1 table.
        """
        refuse_v1(metadata)
        data = encode_manifest(
            entries,
            metadata.schema(),
            format_version=metadata.format_version,
            content=content,
            few=[row.data_file for row in few],
        )
        columnar = entries if len(entries) >= COLUMNAR_MIN_ENTRIES else None
        location = self._write_manifest(data, columnar, metadata)
        self._written[location] = (
            partial(Entries.from_manifest_entries, few, entries.spec, types_of(metadata))
            if few
            else lambda: entries
        )
        return manifest_file(
            entries,
            manifest_path=location,
            manifest_length=len(data),
            snapshot_id=snapshot_id,
            content=content,
        )

    def write_again(
        self, manifest: ManifestFile, data: bytes, entries: Entries, metadata: TableMetadata
    ) -> ManifestFile:
        """Write a manifest once more, byte by byte, with a columnar one; its new row.

        Args:
            manifest: the row of the manifest list.
            data: the manifest.
            entries: as they stand in it, nothing inherited.
            metadata: of the table.
        """
        path = self._write_manifest(data, entries, metadata)
        return dataclasses.replace(manifest, manifest_path=path)

    def _write_manifest(
        self, data: bytes, columnar: Entries | None, metadata: TableMetadata
    ) -> str:
        """Write a manifest, and a columnar one of these entries; returns where."""
        name, files = self._files.manifest_name(), self._files
        if columnar is None:
            location = files.metadata_location(metadata, f"{name}.avro")
        else:
            encoded = encode_columnar(columnar)
            name = name_with_checksum(name, encoded.checksum)
            location = files.metadata_location(metadata, name)
            files.write(columnar_path(location), encoded.data)
        files.write(location, data)
        return location


def encode_manifest(
    entries: Entries,
    schema: Schema,
    *,
    format_version: int,
    content: int = CONTENT_DATA_MANIFEST,
    level: int = DEFLATE_LEVEL,
    few: Sequence[DataFile] = (),
) -> bytes:
    """Serialize entries as a v2 or v3 manifest, many to a block; equal input gives equal bytes.

    Null sequence numbers and snapshot ids are written as null, to be inherited at read time, so
    that a manifest can be written before its commit and reused in retries. `schema` is the table's
    schema; `level` the deflate level, 1 to 9; `few`: the files, where `entries` have no metrics.

    Raises:
        InvalidInputError: format version other than 2 and 3, no entries, an existing or deleted
            entry without sequence numbers, a delete file in a data manifest or the reverse, a
            deletion vector in v2.
    """
    _check(entries, format_version, content)
    types = field_types(schema)
    kinds = partition_kinds(entries, types)
    metadata = {
        "schema": _SCHEMAS.of(
            (schema,),
            None,
            lambda: json.dumps(schema_to_json(schema)),
            lambda text: len(text) + schema_bytes(schema),
        ),
        "schema-id": str(schema.schema_id),
        "partition-spec": json.dumps(spec_to_json(entries.spec)["fields"]),
        "partition-spec-id": str(entries.spec.spec_id),
        "format-version": str(format_version),
        "content": "data" if content == CONTENT_DATA_MANIFEST else "deletes",
    }
    avro = manifest_schema(entries.spec, kinds, format_version)
    if few:
        blocks = iter([block_of_few(few, entries, kinds, types, format_version)])
    else:
        blocks = entry_blocks(entries, kinds, format_version)
    return write_container(avro, metadata, blocks, level=level)


def manifest_file(
    entries: Entries,
    *,
    manifest_path: str,
    manifest_length: int,
    snapshot_id: int,
    content: int = CONTENT_DATA_MANIFEST,
) -> ManifestFile:
    """The manifest-list row of a new manifest: counts, minimum sequence number, summaries.

    `sequence_number` is None (assigned by `write_manifest_list`); `min_sequence_number` is the
    least explicit one of the live entries, None when they all inherit. There are no partition
    summaries when others order UUIDs among the partition values differently: they would skip a
    manifest whose bounds they misread.
    """
    status = np.asarray(entries.table["status"])
    live = entries.table["sequence_number"].filter(pa.array(status != STATUS_DELETED))
    return ManifestFile(
        manifest_path=manifest_path,
        manifest_length=manifest_length,
        partition_spec_id=entries.spec.spec_id,
        content=content,
        min_sequence_number=pc.min(live).as_py(),
        added_snapshot_id=snapshot_id,
        **_counts(entries),
        partitions=_summaries(entries),
    )


def manifest_content(file: DataFile) -> int:
    """The content of the manifests that can list a file (spec: Manifest Lists, `content`)."""
    return CONTENT_DATA_MANIFEST if file.content == CONTENT_DATA else CONTENT_DELETE_MANIFEST


def _counts(entries: Entries) -> dict[str, Any]:
    """Files and rows by status, under the names of the manifest list."""
    status = np.asarray(entries.table["status"])
    rows = np.asarray(entries.table["record_count"])
    counts: dict[str, int] = {}
    for name, code in (
        ("added", STATUS_ADDED),
        ("existing", STATUS_EXISTING),
        ("deleted", STATUS_DELETED),
    ):
        counts[f"{name}_files_count"] = int((status == code).sum())
        counts[f"{name}_rows_count"] = int(rows[status == code].sum())
    return counts


def with_counts(manifest: ManifestFile, entries: Entries) -> ManifestFile:
    """The row of a manifest with counts taken from its entries.

    In v1 lists they are optional (spec: Manifest Lists).
    """
    return dataclasses.replace(manifest, **_counts(entries))


def _check(entries: Entries, format_version: int, content: int) -> None:
    if format_version not in (2, 3):
        raise InvalidInputError(
            f"manifests are written as format version 2 or 3, not {format_version}"
        )
    if not len(entries):
        raise InvalidInputError("a manifest needs at least one entry")
    table = entries.table
    inherited = table.filter(pa.array(np.asarray(table["status"]) != STATUS_ADDED))
    if any(
        inherited[name].null_count
        for name in ("snapshot_id", "sequence_number", "file_sequence_number")
    ):
        raise InvalidInputError(
            "existing and deleted entries carry their snapshot id and both sequence numbers "
            "explicitly"
        )
    is_data = np.asarray(table["content"].fill_null(CONTENT_DATA)) == CONTENT_DATA
    if not (is_data if content == CONTENT_DATA_MANIFEST else ~is_data).all():
        raise InvalidInputError("a manifest holds either data files or delete files, not both")
    offsets = table["content_offset"] if "content_offset" in table.column_names else None
    if format_version == 2 and offsets is not None and offsets.null_count < len(offsets):
        raise InvalidInputError("deletion vectors need format version 3")


def _summaries(entries: Entries) -> tuple[FieldSummary, ...] | None:
    columns = [entries.table[f"partition.{field.field_id}"] for field in entries.spec.fields]
    if not all(is_ordered_alike(column) for column in columns if holds_uuids(column)):
        return None
    return tuple(_summary(column) for column in columns)


def _summary(column: pa.ChunkedArray) -> FieldSummary:
    values = column.combine_chunks()
    floating = pa.types.is_floating(values.type)
    contains_nan = bool(pc.any(pc.is_nan(values)).as_py()) if floating else False
    kept = values.filter(pc.invert(pc.is_nan(values))) if floating else values
    kept = kept.cast(pa.binary()) if pa.types.is_fixed_size_binary(kept.type) else kept
    extremes = pc.min_max(kept)
    bounds = [extremes["min"].as_py(), extremes["max"].as_py()]
    if floating:
        bounds = _signed_zeros(np.asarray(kept.drop_null()), bounds)
    lower, upper = (encode_bounds(pa.array([bound], kept.type)).to_pylist()[0] for bound in bounds)
    return FieldSummary(values.null_count > 0, contains_nan, lower, upper)


def _signed_zeros(values: Any, bounds: list[Any]) -> list[Any]:
    """A bound that is zero gets the sign that keeps every zero inside: -0.0 is below +0.0."""
    signs = np.signbit(values[values == 0.0])
    lower, upper = bounds
    if lower == 0.0:
        lower = -0.0 if signs.any() else 0.0
    if upper == 0.0:
        upper = -0.0 if signs.all() else 0.0
    return [lower, upper]


def _may_be_split(spec: PartitionSpec, types: FieldTypes) -> bool:
    """Whether `_split_by_order` may take entries apart: by UUIDs, or by what nobody knows."""
    kinds = partition_types(spec, types).values()
    return any(kind is None or isinstance(kind, UUIDType) for kind in kinds)


def _split_by_order(entries: Entries) -> Iterator[Entries]:
    """The entries, in order, apart where UUIDs of their partitions are of different classes.

    A row of the manifest list bounds the partition values of its manifest, and writers disagree on
    the order of UUIDs. Where all of a manifest are of one class, its bounds mean the same to
    everybody.
    """
    names = [f"partition.{field.field_id}" for field in entries.spec.fields]
    classes = np.zeros(len(entries), np.int64)
    for name in names:
        if holds_uuids(entries.table[name]):
            classes = classes * 4 + order_classes(entries.table[name])
    for order_class in np.unique(classes):
        alike = classes == order_class
        yield entries if alike.all() else entries.filter(pa.array(alike))


FileKey = tuple[str, int | None]
Partition = tuple[Any, ...]


def file_key(file: DataFile) -> FileKey:
    """What identifies a file in a table: its path, and its offset.

    Several deletion vectors share one path and differ by offset.
    """
    return (file.file_path, file.content_offset)


def checked(files: Iterable[DataFile], what: str) -> tuple[DataFile, ...]:
    """The files, if none is named twice; raises InvalidInputError."""
    listed = tuple(files)
    counted = Counter(map(file_key, listed))
    if len(counted) != len(listed):
        twice = next(file for file in listed if counted[file_key(file)] > 1)
        raise InvalidInputError(f"{what} name {twice.file_path} twice.", file=twice.file_path)
    return listed


def keys_by_kind(files: Iterable[DataFile]) -> Mapping[tuple[int, int], set[FileKey]]:
    """The keys of files by the content and the spec id of the manifests that can list them."""
    keys: dict[tuple[int, int], set[FileKey]] = {}
    for file in files:
        keys.setdefault((manifest_content(file), file.spec_id), set()).add(file_key(file))
    return keys


def has_live(manifest: ManifestFile) -> bool:
    """Whether a manifest lists any file that is not deleted; true where its counts are unknown."""
    return manifest.added_files_count != 0 or manifest.existing_files_count != 0


def may_hold(manifest: ManifestFile, metadata: TableMetadata, partitions: set[Partition]) -> bool:
    """Whether a manifest can list files of one of the partitions, by its partition summaries."""
    if manifest.partitions is None:
        return True
    spec = metadata.spec(manifest.partition_spec_id)
    kinds = partition_types(spec, types_of(metadata))
    if len(spec.fields) != len(manifest.partitions):
        return True
    ranges = [
        _range(summary, kinds.get(field.field_id))
        for field, summary in zip(spec.fields, manifest.partitions, strict=True)
    ]
    return any(
        all(holds(value) for holds, value in zip(ranges, partition, strict=True))
        for partition in partitions
    )


def _range(summary: FieldSummary, kind: IcebergType | None) -> Callable[[Any], bool]:
    """Whether a partition value can be in a manifest with this summary; true when in doubt."""
    # engines disagree on the order of UUIDs
    if not isinstance(kind, PrimitiveType) or isinstance(kind, UUIDType):
        return lambda _: True
    ends = pa.array([summary.lower_bound, summary.upper_bound], pa.binary())
    lower, upper = decode_bounds(ends, kind).to_pylist()
    known = lower is not None and upper is not None and lower <= upper

    def holds(value: Any) -> bool:
        if value is None:
            return summary.contains_null
        if isinstance(value, float) and value != value:
            return summary.contains_nan is not False
        return not known or bool(lower <= value <= upper)

    return holds


# Entries of the next snapshot


def live(entries: Entries) -> Entries:
    """The entries that are not deleted."""
    return entries.filter(pc.not_equal(entries.table["status"], STATUS_DELETED))


def as_existing(entries: Entries) -> Entries:
    """Entries that the snapshot keeps."""
    return _with_column(entries, "status", pa.array([STATUS_EXISTING] * len(entries), pa.int32()))


def mark_deleted(
    entries: Entries, keys: set[FileKey], snapshot_id: int
) -> tuple[Entries, list[DataFile]]:
    """Live entries with the files of these keys deleted by a snapshot, and these files."""
    hit = _matches(entries, keys)
    if not pc.any(hit).as_py():
        return entries, []
    files = entries.filter(hit).to_data_files()
    status = pc.if_else(hit, STATUS_DELETED, STATUS_EXISTING)
    owner = pc.if_else(hit, pa.scalar(snapshot_id, pa.int64()), entries.table["snapshot_id"])
    return _with_column(_with_column(entries, "status", status), "snapshot_id", owner), files


def _matches(entries: Entries, keys: set[FileKey]) -> pa.ChunkedArray:
    paths = pa.array(sorted({path for path, _ in keys}), pa.string())
    hit = pc.is_in(entries.table["file_path"], value_set=paths)
    if (
        all(offset is None for _, offset in keys)
        or "content_offset" not in entries.table.column_names
    ):
        return hit
    pairs = zip(
        entries.table["file_path"].to_pylist(),
        entries.table["content_offset"].to_pylist(),
        strict=True,
    )
    return pa.chunked_array([pa.array([pair in keys for pair in pairs], pa.bool_())])


def carried(entries: Entries, snapshot_id: int) -> Entries:
    """Entries that go on: live ones as existing, the snapshot's own as they are."""
    own = pc.equal(entries.table["snapshot_id"], snapshot_id)
    status = entries.table["status"]
    is_others = pc.and_(pc.equal(status, STATUS_ADDED), pc.invert(own))
    entries = _with_column(entries, "status", pc.if_else(is_others, STATUS_EXISTING, status))
    return entries.filter(pc.or_(pc.not_equal(status, STATUS_DELETED), own))


def _with_column(entries: Entries, name: str, values: pa.Array | pa.ChunkedArray) -> Entries:
    position = entries.table.column_names.index(name)
    kind = entries.table.schema.field(name).type
    return Entries(entries.table.set_column(position, name, values.cast(kind)), entries.spec)
