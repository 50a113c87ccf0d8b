"""Entries to the Avro encoding of manifest entries, column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, UUIDType

from lakehouse.spec.manifests import avro_encoding as avro
from lakehouse.spec.manifests.avro_schema import decimal_bytes
from lakehouse.spec.manifests.bounds_columns import encode_bounds
from lakehouse.spec.manifests.manifest_entries import BOUNDS, COUNTS, FIXED_COLUMNS, Entries
from lakehouse.spec.schema.field_types import FieldTypes
from lakehouse.spec.types.physical_types import kind_of, partition_types, physical_type

BLOCK_ENTRIES = 4096


def partition_kinds(entries: Entries, types: FieldTypes) -> dict[int, IcebergType]:
    """Partition field id -> type to write.

    Taken from the values themselves when no schema knows the source column.
    """
    kinds = partition_types(entries.spec, types)
    columns = {field_id: entries.table[f"partition.{field_id}"] for field_id in kinds}
    return {
        field_id: kind_of(columns[field_id].type) if kind is None else kind
        for field_id, kind in kinds.items()
    }


def entry_blocks(
    entries: Entries, kinds: Mapping[int, IcebergType], format_version: int
) -> Iterator[tuple[int, bytes]]:
    """(entries, encoding) of blocks of at most `BLOCK_ENTRIES`; `kinds` as in `partition_kinds`."""
    for start in range(0, len(entries), BLOCK_ENTRIES):
        part = entries.slice(start, BLOCK_ENTRIES)
        yield len(part), _block(part, kinds, format_version)


def _block(entries: Entries, kinds: Mapping[int, IcebergType], format_version: int) -> bytes:
    rows = len(entries)
    column = _columns(entries)
    segments: list[avro.Segment] = [
        *_long(column("status")),
        *avro.optional(_long, column("snapshot_id")),
        *avro.optional(_long, column("sequence_number")),
        *avro.optional(_long, column("file_sequence_number")),
        *_long(column("content").fill_null(0)),
        *avro.sized(column("file_path")),
        *avro.sized(pc.utf8_upper(column("file_format"))),
    ]
    for field in entries.spec.fields:
        kind = kinds[field.field_id]
        values = _whole(entries.table[f"partition.{field.field_id}"].cast(physical_type(kind)))
        segments += avro.optional(_raw if isinstance(kind, UUIDType) else _partition_value, values)
    segments += [*_long(column("record_count")), *_long(column("file_size_in_bytes"))]
    field_ids = entries.field_ids()
    for prefix in (*COUNTS, *BOUNDS):
        segments += _map(entries, prefix, field_ids.get(prefix, ()), rows)
    segments += [
        *avro.optional(avro.sized, column("key_metadata")),
        *avro.optional(avro.lists, column("split_offsets")),
        *avro.optional(avro.lists, column("equality_ids")),
        *avro.optional(_long, column("sort_order_id")),
    ]
    if format_version >= 3:
        segments += avro.optional(_long, column("first_row_id"))
    segments += avro.optional(avro.sized, column("referenced_data_file"))
    if format_version >= 3:
        segments += avro.optional(_long, column("content_offset"))
        segments += avro.optional(_long, column("content_size_in_bytes"))
    return avro.payload(avro.join(segments, rows))


def _columns(entries: Entries) -> Callable[[str], pa.Array]:
    names = set(entries.table.column_names)

    def column(name: str) -> pa.Array:
        if name in names:
            return _whole(entries.table[name].cast(FIXED_COLUMNS[name]))
        return pa.nulls(len(entries), FIXED_COLUMNS[name])

    return column


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _map(entries: Entries, prefix: str, field_ids: Iterable[int], rows: int) -> list[avro.Segment]:
    columns = [(one, _whole(entries.table[f"{prefix}.{one}"])) for one in field_ids]
    if prefix in COUNTS:
        return avro.maps(columns, _long, rows)
    return avro.maps(
        [(field_id, encode_bounds(column)) for field_id, column in columns], avro.sized, rows
    )


def _long(column: pa.Array) -> list[avro.Segment]:
    return [avro.longs(np.asarray(column).astype(np.int64))]


def _partition_value(column: pa.Array) -> list[avro.Segment]:
    kind = column.type
    if pa.types.is_integer(kind):
        return _long(column)
    if pa.types.is_floating(kind):
        little = "<f4" if kind == pa.float32() else "<f8"
        values = _normalised(np.asarray(column).astype(little))
        return avro.fixed(values.view("u1").reshape(len(values), values.itemsize))
    if kind == pa.bool_():
        return avro.fixed(np.asarray(column).astype("u1").reshape(-1, 1))
    if pa.types.is_decimal(kind):
        size = decimal_bytes(kind.precision)
        words = np.frombuffer(column.buffers()[1], "u1")[
            column.offset * 16 : (column.offset + len(column)) * 16
        ]
        return avro.fixed(words.reshape(-1, 16)[:, ::-1][:, 16 - size :])
    return avro.sized(column)


def _raw(column: pa.Array) -> list[avro.Segment]:
    return [column.cast(pa.binary())]


def _normalised(values: Any) -> Any:
    """Every NaN with the one bit pattern that equality of partitions asks for."""
    return np.where(np.isnan(values), np.asarray(np.nan, values.dtype), values)
