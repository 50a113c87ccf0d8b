"""Manifest entries and files as Arrow, with Iceberg's columns and readable metrics.

The partition struct spans all specs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.types import PrimitiveType

from lakehouse.spec.manifests.bounds_columns import decode_bounds
from lakehouse.spec.manifests.data_file import DataFile, ManifestEntry
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.unified_partition import UnifiedPartition
from lakehouse.spec.schema.iceberg_types import field_types
from lakehouse.spec.types.internal_values import typed_array

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
        raw = pa.array([one.get(field_id) for one in maps], pa.binary())
        return typed_array(decode_bounds(raw, kind).to_pylist(), kind)

    def counts(maps: list[Mapping[int, int]]) -> pa.Array:
        return pa.array([one.get(field_id) for one in maps], pa.int64())

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
