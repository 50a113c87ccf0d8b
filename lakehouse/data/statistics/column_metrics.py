"""Column metrics of Parquet files: counts, bounds and sizes from footers, NaN counts from data.

Bounds are truncated, in single-value serialization (spec: Appendix D). Those of geometries, which
no footer knows, are gathered while rows are written.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from lakehouse.data.conversion.nested_arrays import list_parts, map_parts
from lakehouse.errors import InvalidInputError
from lakehouse.spec.manifests.data_file import CONTENT_DATA, DataFile
from lakehouse.spec.partitioning.sort_order import SortOrder
from lakehouse.spec.schema.iceberg_types import fields_of
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.types.internal_values import rounded_bounds
from lakehouse.spec.types.wkb_boxes import NOWHERE, Box, box_around, boxes, corner


@dataclass(frozen=True, slots=True)
class MetricsMode:
    """How much is recorded for one column.

    Attributes:
        counts: value, null and NaN counts.
        bounds: lower and upper bound.
        length: code points of a string bound, bytes of a binary one; None is the whole value.
    """

    counts: bool
    bounds: bool
    length: int | None = None


NONE = MetricsMode(counts=False, bounds=False)
COUNTS = MetricsMode(counts=True, bounds=False)
FULL = MetricsMode(counts=True, bounds=True)


def metrics_modes(
    schema: Schema, properties: Mapping[str, str], sort_order: SortOrder | None = None
) -> dict[int, MetricsMode]:
    """Mode of each primitive field by id.

    Without a configured default, a schema of more than `max-inferred-column-defaults` (100)
    primitive fields infers `truncate(16)` for the first 100 and `none` for the rest. Columns of the
    sort order have at least `truncate(16)`. Fields inside lists and maps never have bounds.

    Raises:
        InvalidPropertyError: a mode that does not parse.
    """
    leaves = [leaf for field in schema.fields for leaf in _leaves(field.field_type, field.field_id)]
    read = TableProperties(properties)
    configured = TableProperties.metrics_default.name in properties
    limit = len(leaves) if configured else read.metrics_max_inferred
    sorted_ids = {f.source_id for f in sort_order.fields} if sort_order is not None else set()
    modes: dict[int, MetricsMode] = {}
    for position, (field_id, repeated) in enumerate(leaves):
        default = read.metrics_default if position < limit else "none"
        if field_id in sorted_ids and default in ("none", "counts"):
            default = TableProperties.metrics_default.default
        mode = _mode(read.metrics_mode(str(schema.find_column_name(field_id)), default))
        modes[field_id] = COUNTS if repeated and mode.bounds else mode
    return modes


def _mode(text: str) -> MetricsMode:
    named = {"none": NONE, "counts": COUNTS, "full": FULL}.get(text)
    if named is not None:
        return named
    length = int(text.removeprefix("truncate(").removesuffix(")"))
    return MetricsMode(counts=True, bounds=True, length=length)


def _leaves(kind: IcebergType, field_id: int, repeated: bool = False) -> Iterable[tuple[int, bool]]:
    if isinstance(kind, StructType):
        for child in kind.fields:
            yield from _leaves(child.field_type, child.field_id, repeated)
    elif isinstance(kind, ListType):
        yield from _leaves(kind.element_type, kind.element_id, repeated=True)
    elif isinstance(kind, MapType):
        yield from _leaves(kind.key_type, kind.key_id, repeated=True)
        yield from _leaves(kind.value_type, kind.value_id, repeated=True)
    else:
        yield field_id, repeated


@dataclass(slots=True)
class FileMetrics:
    """Metrics of one file, in the words of the spec's `data_file`."""

    record_count: int = 0
    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)
    split_offsets: tuple[int, ...] = ()

    def data_file(
        self,
        *,
        file_path: str,
        partition: tuple[Any, ...],
        spec_id: int,
        file_size_in_bytes: int,
        sort_order_id: int | None = None,
        content: int = CONTENT_DATA,
        referenced_data_file: str | None = None,
    ) -> DataFile:
        """The measured file; sort order 0, unsorted, is not recorded."""
        return DataFile(
            content=content,
            file_path=file_path,
            partition=partition,
            spec_id=spec_id,
            file_size_in_bytes=file_size_in_bytes,
            sort_order_id=sort_order_id or None,
            referenced_data_file=referenced_data_file,
            **{member.name: getattr(self, member.name) for member in fields(self)},
        )


def footer_metrics(
    footer: pq.FileMetaData,
    leaf_ids: Sequence[int | None],
    schema: Schema,
    modes: Mapping[int, MetricsMode],
    nan_counts: Mapping[int, int] | None = None,
) -> FileMetrics:
    """Metrics out of a Parquet footer.

    Args:
        footer: of the written file.
        leaf_ids: field id of each Parquet leaf column in order, None for columns that are not of
            the table.
        schema: types of the fields.
        modes: see `metrics_modes`; a field without a mode has none.
        nan_counts: NaN values by field id, counted while writing; the footer does not know them.
    """
    known = fields_of(schema)
    result = FileMetrics(record_count=footer.num_rows, split_offsets=split_offsets(footer))
    for index, field_id in enumerate(leaf_ids):
        if field_id is None:
            continue
        groups = [footer.row_group(group).column(index) for group in range(footer.num_row_groups)]
        result.column_sizes[field_id] = sum(group.total_compressed_size for group in groups)
        mode, column = modes.get(field_id, NONE), known.get(field_id)
        kind = None if column is None else column.field_type
        if not mode.counts or not isinstance(kind, PrimitiveType):
            continue
        result.value_counts[field_id] = sum(group.num_values for group in groups)
        statistics = [group.statistics for group in groups]
        if all(statistic is not None and statistic.has_null_count for statistic in statistics):
            result.null_value_counts[field_id] = sum(
                statistic.null_count for statistic in statistics
            )
        if nan_counts is not None and field_id in nan_counts:
            result.nan_value_counts[field_id] = nan_counts[field_id]
        if mode.bounds:
            _add_bounds(result, field_id, kind, mode, footer.schema.column(index), statistics)
    return result


def _add_bounds(
    result: FileMetrics,
    field_id: int,
    kind: PrimitiveType,
    mode: MetricsMode,
    column: Any,
    statistics: Sequence[Any],
) -> None:
    lows: list[Any] = []
    highs: list[Any] = []
    for statistic in statistics:
        if statistic is None:
            return
        if statistic.has_min_max:
            lows.append(decode_statistic(statistic.min_raw, column, kind))
            highs.append(decode_statistic(statistic.max_raw, column, kind))
        elif statistic.num_values and not isinstance(kind, FloatType | DoubleType):
            # Values without statistics could lie anywhere; floating point lacks them only when all
            # are NaN.
            return
    if not lows or any(value is None for value in (*lows, *highs)):
        return
    low, high = bounds(min(lows), max(highs), kind, mode.length)
    if low is not None:
        result.lower_bounds[field_id] = low
    if high is not None:
        result.upper_bounds[field_id] = high


def split_offsets(footer: pq.FileMetaData) -> tuple[int, ...]:
    """Byte at which each row group starts, ascending.

    A reader of a byte range reads the row groups that start in it.
    """
    return tuple(
        sorted(row_group_start(footer.row_group(group)) for group in range(footer.num_row_groups))
    )


def row_group_start(group: pq.RowGroupMetaData) -> int:
    """First byte of a row group: its first column's dictionary page, else its first data page."""
    if group.num_columns == 0:
        return 0
    column = group.column(0)
    dictionary = column.dictionary_page_offset if column.has_dictionary_page else None
    return int(
        column.data_page_offset if not dictionary else min(dictionary, column.data_page_offset)
    )


def count_nans(
    batch: pa.RecordBatch, schema: Schema, modes: Mapping[int, MetricsMode], counts: dict[int, int]
) -> None:
    """Add a batch's NaN values to `counts`, by field id, where the metrics mode asks for counts.

    The batch has the Arrow schema of `schema`.
    """
    for column, source in zip(batch.columns, schema.fields, strict=True):
        _count(column, source.field_type, source.field_id, modes, counts)


def _count(
    array: pa.Array,
    kind: IcebergType,
    field_id: int,
    modes: Mapping[int, MetricsMode],
    counts: dict[int, int],
) -> None:
    if isinstance(kind, FloatType | DoubleType):
        if modes.get(field_id, NONE).counts:
            nans = pc.sum(pc.is_nan(array)).as_py() or 0
            counts[field_id] = counts.get(field_id, 0) + nans
    elif isinstance(kind, StructType):
        for child, source in zip(array.flatten(), kind.fields, strict=True):
            _count(child, source.field_type, source.field_id, modes, counts)
    elif isinstance(kind, ListType) and _has_floats(kind):
        _count(list_parts(array)[0], kind.element_type, kind.element_id, modes, counts)
    elif isinstance(kind, MapType) and _has_floats(kind):
        keys, values, _ = map_parts(array)
        _count(keys, kind.key_type, kind.key_id, modes, counts)
        _count(values, kind.value_type, kind.value_id, modes, counts)


def _has_floats(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_floats(child.field_type) for child in kind.fields)
    if isinstance(kind, ListType):
        return _has_floats(kind.element_type)
    if isinstance(kind, MapType):
        return _has_floats(kind.key_type) or _has_floats(kind.value_type)
    return isinstance(kind, FloatType | DoubleType)


def stored_schema(schema: Schema) -> Schema:
    """The top-level fields that data files hold: all but those of type `unknown` (see the spec)."""
    kept = [field for field in schema.fields if not isinstance(field.field_type, UnknownType)]
    return schema if len(kept) == len(schema.fields) else Schema(*kept, schema_id=schema.schema_id)


_MICROS = (TimeType, TimestampType, TimestamptzType)
_NANOS = (TimestampNanoType, TimestamptzNanoType)
_UNIT_NANOS = {"milliseconds": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}
_LAST_CODE_POINT = 0x10FFFF
_BEFORE_SURROGATES, _AFTER_SURROGATES = 0xD7FF, 0xE000


def to_single_value(kind: PrimitiveType, value: Any) -> bytes:
    """A value in Iceberg's internal representation as bytes.

    Decimals and dates may also be given as unscaled and day numbers.

    Decimals have the fewest bytes that hold the sign.
    """
    if isinstance(kind, BooleanType):
        return b"\x01" if value else b"\x00"
    if isinstance(kind, IntegerType | DateType):
        return struct.pack("<i", value)
    if isinstance(
        kind,
        LongType
        | TimeType
        | TimestampType
        | TimestamptzType
        | TimestampNanoType
        | TimestamptzNanoType,
    ):
        return struct.pack("<q", value)
    if isinstance(kind, FloatType):
        return struct.pack("<f", value)
    if isinstance(kind, DoubleType):
        return struct.pack("<d", value)
    if isinstance(kind, DecimalType):
        unscaled = int(value.scaleb(kind.scale)) if isinstance(value, Decimal) else value
        return minimal_twos_complement(unscaled)
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, UUID):
        return value.bytes
    return bytes(value)


def minimal_twos_complement(unscaled: int) -> bytes:
    """Big-endian two's complement in as few bytes as possible: -128 is one byte."""
    magnitude = ~unscaled if unscaled < 0 else unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def bounds(
    low: Any, high: Any, kind: PrimitiveType, length: int | None
) -> tuple[bytes | None, bytes | None]:
    """Serialized bounds of all values from `low` to `high`, cut to `length`; None where none is."""
    if isinstance(kind, UUIDType):
        return rounded_bounds(low, high)
    return lower_bound(low, kind, length), upper_bound(high, kind, length)


def lower_bound(value: Any, kind: PrimitiveType, length: int | None) -> bytes:
    """A serialized lower bound of `value`.

    Strings are cut to `length` code points, binary to `length` bytes.
    """
    if length is not None and isinstance(kind, StringType):
        return to_single_value(kind, value[:length])
    if length is not None and isinstance(kind, BinaryType):
        return bytes(value[:length])
    return to_single_value(kind, value)


def upper_bound(value: Any, kind: PrimitiveType, length: int | None) -> bytes | None:
    """A serialized upper bound of `value`; None when the cut value cannot be incremented."""
    if length is not None and isinstance(kind, StringType):
        rounded = round_up_text(value, length)
        return None if rounded is None else rounded.encode("utf-8")
    if length is not None and isinstance(kind, BinaryType):
        return round_up_bytes(value, length)
    return to_single_value(kind, value)


def round_up_text(value: str, length: int) -> str | None:
    """The first `length` code points, with the last one that can grow incremented.

    Surrogates are skipped.
    """
    if len(value) <= length:
        return value
    for index in range(length - 1, -1, -1):
        point = ord(value[index])
        if point < _LAST_CODE_POINT:
            following = _AFTER_SURROGATES if point == _BEFORE_SURROGATES else point + 1
            return value[:index] + chr(following)
    return None


def round_up_bytes(value: bytes, length: int) -> bytes | None:
    """The first `length` bytes, the last of which below 0xFF is incremented."""
    if len(value) <= length:
        return bytes(value)
    for index in range(length - 1, -1, -1):
        if value[index] < 0xFF:
            return bytes(value[:index]) + bytes([value[index] + 1])
    return None


def decode_statistic(raw: Any, column: Any, kind: PrimitiveType) -> Any:
    """A raw Parquet minimum or maximum as a comparable value; None when that is impossible.

    Args:
        raw: `min_raw` or `max_raw` of pyarrow's statistics.
        column: pyarrow's ColumnSchema.
        kind: type of the field in the table's schema; the file's may be narrower.

    Returns:
        int for integers, dates, times, timestamps and decimals (unscaled); float, bool, str, bytes
        otherwise.
    """
    if raw is None:
        return None
    physical = column.physical_type
    if isinstance(kind, DecimalType):
        return _decode_decimal(raw, column, kind)
    if isinstance(kind, _MICROS + _NANOS):
        return _decode_ticks(raw, column, kind)
    if isinstance(kind, StringType):
        return _decode_text(raw)
    if isinstance(kind, BinaryType | FixedType | UUIDType):
        return raw if isinstance(raw, bytes) else None
    wanted: tuple[str, ...] = _PHYSICAL.get(type(kind), ())
    if physical not in wanted or (physical.startswith("INT") and _is_unsigned(column)):
        return None
    return raw


_PHYSICAL: dict[type[PrimitiveType], tuple[str, ...]] = {
    BooleanType: ("BOOLEAN",),
    IntegerType: ("INT32",),
    DateType: ("INT32",),
    LongType: ("INT32", "INT64"),
    FloatType: ("FLOAT",),
    DoubleType: ("FLOAT", "DOUBLE"),
}


def _is_unsigned(column: Any) -> bool:
    """Read statistics of unsigned columns as unsigned, though they are decoded as signed."""
    return json.loads(column.logical_type.to_json()).get("isSigned") is False


def _decode_text(raw: Any) -> str | None:
    if not isinstance(raw, bytes):
        return None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        # A foreign writer cut the statistic inside a code point: it bounds nothing that can be
        # kept.
        return None


def _decode_decimal(raw: Any, column: Any, kind: DecimalType) -> int | None:
    logical = json.loads(column.logical_type.to_json())
    if logical.get("Type") != "Decimal" or logical.get("scale") != kind.scale:
        return None
    return raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)


def _decode_ticks(raw: Any, column: Any, kind: PrimitiveType) -> int | None:
    logical = json.loads(column.logical_type.to_json())
    unit = _UNIT_NANOS.get(logical.get("timeUnit", ""))
    if unit is None or not isinstance(raw, int):
        return None
    nanos = raw * unit
    if isinstance(kind, _NANOS):
        return nanos
    # Readers floor finer units to microseconds too, so that the floor of a bound bounds what is
    # read.
    return nanos // 1_000


class GeometryBounds:
    """The box around all geometries of each column that has bounds.

    A column with a value that is no WKB has none, and neither has one without coordinates. What a
    geography spans does not follow from its corners alone: its edges bend.

    Args:
        schema: of the rows.
        modes: metrics per field id.
    """

    def __init__(self, schema: Schema, modes: Mapping[int, MetricsMode]) -> None:
        self._paths = {
            field_id: path
            for field_id, path in _geometries(schema.fields, ())
            if modes.get(field_id, NONE).bounds
        }
        self._boxes: dict[int, Box] = dict.fromkeys(self._paths, NOWHERE)

    def add(self, rows: pa.Table) -> None:
        """Take in rows that have the Arrow schema of `schema`."""
        for field_id in list(self._boxes):
            name, *inner = self._paths[field_id]
            column = pc.struct_field(rows[name], inner) if inner else rows[name]
            try:
                added = boxes(column.drop_null().to_pylist())
            except InvalidInputError:  # the column has no bounds then; its values are kept
                del self._boxes[field_id]
                continue
            around = np.vstack([np.array([self._boxes[field_id]]), added])
            self._boxes[field_id] = box_around(around)

    def put_into(self, metrics: FileMetrics) -> None:
        """Set the bounds of the file whose rows were taken in."""
        for field_id, (xmin, ymin, xmax, ymax) in self._boxes.items():
            if xmin <= xmax and ymin <= ymax:  # otherwise no coordinate was a number
                metrics.lower_bounds[field_id] = corner(xmin, ymin)
                metrics.upper_bounds[field_id] = corner(xmax, ymax)


def _geometries(
    fields: Sequence[NestedField], above: tuple[str, ...]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Ids and paths of geometries that are in no list or map."""
    for child in fields:
        path = (*above, child.name)
        if isinstance(child.field_type, GeometryType):
            yield child.field_id, path
        elif isinstance(child.field_type, StructType):
            yield from _geometries(child.field_type.fields, path)
