"""Manifest entries, files, partitions and deleted positions as Arrow, with Iceberg's columns.

The partition struct spans all specs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.types import PrimitiveType

from lakehouse.data.reading.scan_reader import named_positions
from lakehouse.inspect.snapshots_tables import TIMESTAMP, timestamps
from lakehouse.spec.manifests.data_file import (
    CONTENT_DATA,
    CONTENT_POSITION_DELETES,
    DataFile,
    ManifestEntry,
)
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.unified_partition import UnifiedPartition
from lakehouse.spec.schema.iceberg_types import VariantType, field_types
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.spec.types.internal_values import decode_bounds, typed_array
from lakehouse.storage.storage_protocol import Storage

_COUNTS = pa.map_(pa.int32(), pa.int64())
_BOUNDS = pa.map_(pa.int32(), pa.binary())
_METRIC_MAPS = {
    "column_sizes": _COUNTS,
    "value_counts": _COUNTS,
    "null_value_counts": _COUNTS,
    "nan_value_counts": _COUNTS,
    "lower_bounds": _BOUNDS,
    "upper_bounds": _BOUNDS,
}
_TAIL = {
    "key_metadata": pa.binary(),
    "split_offsets": pa.list_(pa.int64()),
    "equality_ids": pa.list_(pa.int32()),
    "sort_order_id": pa.int32(),
    "first_row_id": pa.int64(),
    "referenced_data_file": pa.string(),
    "content_offset": pa.int64(),
    "content_size_in_bytes": pa.int64(),
}
Columns = list[tuple[pa.Field, pa.Array]]


def files_table(files: Sequence[DataFile], metadata: TableMetadata) -> pa.Table:
    """One row a file: content, file_path, ..., readable_metrics.

    `partition` is left out of tables that never had one.
    """
    return _table([*_file_columns(files, metadata), _readable_metrics(files, metadata)])


def entries_table(entries: Sequence[ManifestEntry], metadata: TableMetadata) -> pa.Table:
    """One row for each manifest entry, deleted ones too.

    Columns: status, snapshot_id, sequence numbers, data_file, readable_metrics.
    """
    files = [entry.data_file for entry in entries]
    columns = _file_columns(files, metadata)
    struct = pa.StructArray.from_arrays(
        [array for _, array in columns], fields=[field for field, _ in columns]
    )
    return _table(
        [
            (
                pa.field("status", pa.int32(), nullable=False),
                pa.array([entry.status for entry in entries], pa.int32()),
            ),
            (
                pa.field("snapshot_id", pa.int64()),
                pa.array([entry.snapshot_id for entry in entries], pa.int64()),
            ),
            (
                pa.field("sequence_number", pa.int64()),
                pa.array([entry.sequence_number for entry in entries], pa.int64()),
            ),
            (
                pa.field("file_sequence_number", pa.int64()),
                pa.array([entry.file_sequence_number for entry in entries], pa.int64()),
            ),
            (pa.field("data_file", struct.type, nullable=False), struct),
            _readable_metrics(files, metadata),
        ]
    )


def _table(columns: Columns) -> pa.Table:
    return pa.Table.from_arrays(
        [array for _, array in columns], schema=pa.schema([field for field, _ in columns])
    )


def _file_columns(files: Sequence[DataFile], metadata: TableMetadata) -> Columns:
    columns: Columns = []

    def add(name: str, kind: pa.DataType, values: list[Any], *, nullable: bool = False) -> None:
        columns.append((pa.field(name, kind, nullable=nullable), pa.array(values, kind)))

    add("content", pa.int32(), [file.content for file in files])
    add("file_path", pa.string(), [file.file_path for file in files])
    add("file_format", pa.string(), [file.file_format.upper() for file in files])
    add("spec_id", pa.int32(), [file.spec_id for file in files])
    partition = UnifiedPartition.of(metadata)
    if partition.fields:
        array = partition.array([(file.spec_id, file.partition) for file in files])
        columns.append((pa.field("partition", array.type, nullable=False), array))
    add("record_count", pa.int64(), [file.record_count for file in files])
    add("file_size_in_bytes", pa.int64(), [file.file_size_in_bytes for file in files])
    for name, kind in _METRIC_MAPS.items():
        add(
            name,
            kind,
            [sorted(getattr(file, name).items()) or None for file in files],
            nullable=True,
        )
    for name, kind in _TAIL.items():
        add(name, kind, [getattr(file, name) for file in files], nullable=True)
    return columns


def _readable_metrics(
    files: Sequence[DataFile], metadata: TableMetadata
) -> tuple[pa.Field, pa.Array]:
    schema = metadata.schema()
    leaves = {
        schema.find_column_name(field_id): (field_id, kind)
        for field_id, kind in field_types(schema).items()
        if schema.find_column_name(field_id) is not None
    }
    arrays = []
    fields = []
    for name, (field_id, kind) in sorted(leaves.items(), key=lambda item: str(item[0])):
        struct = _column_metrics(files, field_id, kind)
        arrays.append(struct)
        fields.append(pa.field(str(name), struct.type))
    if not arrays:
        return pa.field("readable_metrics", pa.struct([])), pa.array(
            [{}] * len(files), pa.struct([])
        )
    array = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.field("readable_metrics", array.type), array


def _column_metrics(
    files: Sequence[DataFile], field_id: int, kind: PrimitiveType
) -> pa.StructArray:
    def bounds(maps: list[Mapping[int, bytes]]) -> pa.Array:
        raw = pa.array([by_field.get(field_id) for by_field in maps], pa.binary())
        if isinstance(kind, VariantType):  # what bounds its shredded fields, encoded
            return raw
        return typed_array(decode_bounds(raw, kind).to_pylist(), kind)

    def counts(maps: list[Mapping[int, int]]) -> pa.Array:
        return pa.array([by_field.get(field_id) for by_field in maps], pa.int64())

    columns = {
        "column_size": counts([file.column_sizes for file in files]),
        "value_count": counts([file.value_counts for file in files]),
        "null_value_count": counts([file.null_value_counts for file in files]),
        "nan_value_count": counts([file.nan_value_counts for file in files]),
        "lower_bound": bounds([file.lower_bounds for file in files]),
        "upper_bound": bounds([file.upper_bounds for file in files]),
    }
    return pa.StructArray.from_arrays(
        list(columns.values()),
        fields=[pa.field(name, array.type) for name, array in columns.items()],
    )


def position_deletes_table(
    deletes: Sequence[DataFile], metadata: TableMetadata, storage: Storage
) -> pa.Table:
    """The positions in position delete files and deletion vectors, ascending for each data file.

    `row` is null: nothing that this project writes keeps deleted rows, and of files that do it is
    not read. `partition` is left out of tables that never had one.

    Raises:
        NoSuchFileError | CorruptMetadataError | UnsupportedFeatureError: of a delete file.
    """
    of_deletes = [
        (delete, path, positions)
        for delete, named in zip(deletes, named_positions(deletes, metadata, storage), strict=True)
        for path, positions in named.items()
    ]
    counts = [len(positions) for _, _, positions in of_deletes]
    each = pa.array(np.repeat(np.arange(len(of_deletes)), counts))
    columns: list[tuple[pa.Field, pa.Array]] = []

    def add(name: str, values: pa.Array, *, nullable: bool = False) -> None:
        columns.append((pa.field(name, values.type, nullable=nullable), values.take(each)))

    add("file_path", pa.array([path for _, path, _ in of_deletes], pa.string()))
    every = [positions for _, _, positions in of_deletes]
    pos = pa.array(np.concatenate([np.empty(0, np.int64), *every]), pa.int64())
    columns.append((pa.field("pos", pos.type, nullable=False), pos))
    row = pa.nulls(len(pos), pa.struct(list(schema_to_arrow(metadata.schema()))))
    columns.append((pa.field("row", row.type), row))
    partition = UnifiedPartition.of(metadata)
    if partition.fields:
        add(
            "partition",
            partition.array([(delete.spec_id, delete.partition) for delete, _, _ in of_deletes]),
        )
    add("spec_id", pa.array([delete.spec_id for delete, _, _ in of_deletes], pa.int32()))
    add(
        "delete_file_path", pa.array([delete.file_path for delete, _, _ in of_deletes], pa.string())
    )
    if metadata.format_version >= 3:
        for name in ("content_offset", "content_size_in_bytes"):
            values = pa.array([getattr(delete, name) for delete, _, _ in of_deletes], pa.int64())
            add(name, values, nullable=True)
    return pa.Table.from_arrays(
        [array for _, array in columns], schema=pa.schema([field for field, _ in columns])
    )


_PARTITION_COUNTS = {
    "record_count": pa.int64(),
    "file_count": pa.int32(),
    "total_data_file_size_in_bytes": pa.int64(),
    "position_delete_record_count": pa.int64(),
    "position_delete_file_count": pa.int32(),
    "equality_delete_record_count": pa.int64(),
    "equality_delete_file_count": pa.int32(),
}


@dataclass(slots=True)
class _Totals:
    partition: tuple[int, tuple[Any, ...]]
    record_count: int = 0
    file_count: int = 0
    total_data_file_size_in_bytes: int = 0
    position_delete_record_count: int = 0
    position_delete_file_count: int = 0
    equality_delete_record_count: int = 0
    equality_delete_file_count: int = 0
    last_updated_ms: int | None = None
    last_updated_snapshot_id: int | None = None

    def add(self, entry: ManifestEntry, committed_ms: int | None) -> None:
        file = entry.data_file
        if file.content == CONTENT_DATA:
            self.record_count += file.record_count
            self.file_count += 1
            self.total_data_file_size_in_bytes += file.file_size_in_bytes
        elif file.content == CONTENT_POSITION_DELETES:
            self.position_delete_record_count += file.record_count
            self.position_delete_file_count += 1
        else:
            self.equality_delete_record_count += file.record_count
            self.equality_delete_file_count += 1
        if committed_ms is not None and (
            self.last_updated_ms is None or committed_ms > self.last_updated_ms
        ):
            self.last_updated_ms = committed_ms
            self.last_updated_snapshot_id = entry.snapshot_id


def partitions_table(entries: Sequence[ManifestEntry], metadata: TableMetadata) -> pa.Table:
    """One row for each partition and spec, from live entries.

    `partition` and `spec_id` are left out of tables that never had a partition.

    `last_updated_*` is the newest snapshot, of those that still exist, that added a file of the
    partition.
    """
    totals: dict[tuple[Any, ...], _Totals] = {}
    committed = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    for entry in entries:
        file = entry.data_file
        snapshot_ms = None if entry.snapshot_id is None else committed.get(entry.snapshot_id)
        totals.setdefault(file.partition_key, _Totals((file.spec_id, file.partition))).add(
            entry, snapshot_ms
        )
    column = UnifiedPartition.of(metadata)
    fields: list[pa.Field] = []
    arrays: list[pa.Array] = []
    if column.fields:
        struct = column.array([total.partition for total in totals.values()])
        fields += [
            pa.field("partition", struct.type, nullable=False),
            pa.field("spec_id", pa.int32(), nullable=False),
        ]
        arrays += [struct, pa.array([total.partition[0] for total in totals.values()], pa.int32())]
    rows = list(totals.values())
    for name, kind in _PARTITION_COUNTS.items():
        fields.append(pa.field(name, kind, nullable=False))
        arrays.append(pa.array([getattr(row, name) for row in rows], kind))
    fields += [
        pa.field("last_updated_at", TIMESTAMP),
        pa.field("last_updated_snapshot_id", pa.int64()),
    ]
    arrays += [
        timestamps([row.last_updated_ms for row in rows]),
        pa.array([row.last_updated_snapshot_id for row in rows], pa.int64()),
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
