"""Writes manifests: entries to Avro, and to the row that a manifest list has of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import UUIDType

from lakehouse.errors import InvalidInputError
from lakehouse.kept_by_bytes import MadeOnce
from lakehouse.spec.manifests.avro_container import write_container
from lakehouse.spec.manifests.bounds_columns import (
    encode_bounds,
    holds_uuids,
    is_ordered_alike,
    order_classes,
)
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
from lakehouse.spec.partitioning.spec_json import spec_to_json
from lakehouse.spec.schema.iceberg_types import FieldTypes, field_types, schema_bytes
from lakehouse.spec.schema.schema_json import schema_to_json
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.types.arrow_types import partition_types

DEFLATE_LEVEL = 3
COLUMNAR_MIN_ENTRIES = 32
_FEW_FILES = 16
_SAMPLE_FILES = 2_000
_LEAST_FILES = 100
_SCHEMAS: MadeOnce[str] = MadeOnce()


class ManifestWriter:
    """Writes the manifests of one commit, columnar ones too where there is enough to prune.

    Args:
        unique: part of every file name.
        numbers: tell the files of one commit apart.
        location: of a metadata file of a table, by its name; raises what forbids to write there.
        write: writes a new file.

    Attributes:
        written: what gives the entries of every manifest that was written, by its location.
    """

    def __init__(
        self,
        unique: str,
        numbers: Iterator[int],
        location: Callable[[TableMetadata, str], str],
        write: Callable[[str, bytes], None],
    ) -> None:
        self._unique, self._numbers = unique, numbers
        self._location, self._write = location, write
        self.written: dict[str, Callable[[], Entries]] = {}

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
                manifests.append(self._write_few(rows, metadata, spec, content, snapshot_id))
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
        self, entries: Entries, metadata: TableMetadata, *, content: int, snapshot_id: int
    ) -> ManifestFile:
        """Write a manifest, and a columnar one where there is enough in it to prune.

        Raises UnsupportedFeatureError: a v1 table.
        """
        refuse_v1(metadata)
        version = metadata.format_version
        data = encode_manifest(entries, metadata.schema(), format_version=version, content=content)
        columnar = entries if len(entries) >= COLUMNAR_MIN_ENTRIES else None
        location = self._write_manifest(data, columnar, metadata)
        self.written[location] = lambda: entries
        return manifest_file(
            entries,
            manifest_path=location,
            manifest_length=len(data),
            snapshot_id=snapshot_id,
            content=content,
        )

    def _write_few(
        self,
        rows: Sequence[ManifestEntry],
        metadata: TableMetadata,
        spec: PartitionSpec,
        content: int,
        snapshot_id: int,
    ) -> ManifestFile:
        """`write`, row by row instead of column by column."""
        refuse_v1(metadata)
        types, version = types_of(metadata), metadata.format_version
        entries = Entries.from_manifest_entries(rows, spec, types, with_metrics=False)
        files = [row.data_file for row in rows]
        data = encode_manifest(
            entries, metadata.schema(), format_version=version, content=content, few=files
        )
        location = self._write_manifest(data, None, metadata)
        self.written[location] = lambda: Entries.from_manifest_entries(rows, spec, types)
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
        name = f"{self._unique}-m{next(self._numbers)}"
        if columnar is None:
            location = self._location(metadata, f"{name}.avro")
        else:
            encoded = encode_columnar(columnar)
            location = self._location(metadata, name_with_checksum(name, encoded.checksum))
            self._write(columnar_path(location), encoded.data)
        self._write(location, data)
        return location


def encode_manifest(
    entries: Entries,
    schema: Schema,
    *,
    format_version: int,
    content: int = CONTENT_DATA_MANIFEST,
    level: int = DEFLATE_LEVEL,
    few: Sequence[DataFile] | None = None,
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
    if few is None:
        blocks = entry_blocks(entries, kinds, format_version)
    else:
        blocks = iter([block_of_few(few, entries, kinds, types, format_version)])
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
    found: dict[str, int] = {}
    for name, code in (
        ("added", STATUS_ADDED),
        ("existing", STATUS_EXISTING),
        ("deleted", STATUS_DELETED),
    ):
        found[f"{name}_files_count"] = int((status == code).sum())
        found[f"{name}_rows_count"] = int(rows[status == code].sum())
    return found


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
