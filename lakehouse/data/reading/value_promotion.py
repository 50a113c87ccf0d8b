"""Values of a file's types to those of the table: Iceberg's promotions, other writers' habits."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from lakehouse.data.conversion.safe_casts import without_encoding

_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_DIGITS_OF_UINT64 = 20


class PromotionError(ValueError):
    """A file's type cannot be read as the table's type; the caller adds file and column."""


def promote(array: pa.Array, kind: IcebergType, target: pa.DataType) -> pa.Array:
    """Read a primitive column as `kind`.

    Allowed: int to long, float to double, decimal to a wider one of the same scale, date to
    timestamp, any width of integer and any unit of time that foreign writers use (finer units are
    floored), strings without annotation, unsigned integers of 64 bits to decimals of 20 digits.

    Raises:
        PromotionError: anything else.
    """
    if array.type == target:
        return array
    array = without_encoding(array)
    storage = target.storage_type if isinstance(target, pa.BaseExtensionType) else target
    if isinstance(kind, UnknownType):
        return pa.nulls(len(array), target)
    if not can_promote(array.type, kind):
        raise PromotionError(f"is {array.type} in the file, which cannot be read as {kind}")
    try:
        plain = array if array.type == storage else _convert(array, kind, storage)
    except pa.ArrowInvalid as error:
        raise PromotionError(f"holds a value that is not a valid {kind}: {error}") from error
    return (
        pa.ExtensionArray.from_storage(target, plain)
        if isinstance(target, pa.BaseExtensionType)
        else plain
    )


def can_promote(source: pa.DataType, kind: IcebergType) -> bool:
    """Whether a file's Arrow type can be read as an Iceberg type."""
    types = pa.types
    if types.is_null(source):
        return True
    if isinstance(kind, BooleanType):
        return bool(types.is_boolean(source))
    if isinstance(kind, IntegerType | LongType):
        return bool(
            types.is_integer(source) and (isinstance(kind, LongType) or source.bit_width <= 32)
        )
    if isinstance(kind, FloatType | DoubleType):
        return bool(
            types.is_floating(source) and (isinstance(kind, DoubleType) or source.bit_width <= 32)
        )
    if isinstance(kind, DecimalType):
        if types.is_uint64(source):
            return kind.scale == 0 and kind.precision >= _DIGITS_OF_UINT64
        return bool(
            types.is_decimal(source)
            and source.scale == kind.scale
            and source.precision <= kind.precision
        )
    if isinstance(kind, DateType):
        return bool(types.is_date(source))
    if isinstance(kind, TimeType):
        return bool(types.is_time(source))
    if isinstance(kind, TimestampType | TimestamptzType | TimestampNanoType | TimestamptzNanoType):
        naive = isinstance(kind, TimestampType | TimestampNanoType)
        return bool(types.is_timestamp(source) or (naive and types.is_date32(source)))
    if isinstance(kind, StringType | BinaryType):
        return _is_bytes(source)
    if isinstance(kind, UUIDType | FixedType):
        width = 16 if isinstance(kind, UUIDType) else len(kind)
        return bool(types.is_fixed_size_binary(source) and source.byte_width == width)
    return False


def _convert(array: pa.Array, kind: IcebergType, storage: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(storage) and pa.types.is_timestamp(array.type):
        return _timestamps(array, storage)
    if pa.types.is_timestamp(storage):
        return array.cast(pa.timestamp("s")).cast(storage)
    if isinstance(kind, TimeType) and array.type == pa.time64("ns"):
        return _floor(array.view(pa.int64()), 1_000).view(storage)
    return array.cast(storage)


def _timestamps(array: pa.Array, storage: pa.DataType) -> pa.Array:
    """Other time units; instants keep their moment.

    A file without a zone means UTC (INT96, old writers).
    """
    source, wanted = _NANOS[array.type.unit], _NANOS[storage.unit]
    ticks = array.view(pa.int64())
    if source > wanted:
        ticks = pc.multiply_checked(ticks, source // wanted)
    elif source < wanted:
        ticks = _floor(ticks, wanted // source)
    return ticks.view(storage)


def _floor(ticks: pa.Array, divisor: int) -> pa.Array:
    quotient = pc.divide(ticks, divisor)
    inexact = pc.and_(pc.less(ticks, 0), pc.not_equal(pc.multiply(quotient, divisor), ticks))
    return pc.subtract(quotient, pc.cast(inexact, pa.int64()))


def _is_bytes(source: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(source)
        or types.is_large_string(source)
        or types.is_string_view(source)
        or types.is_binary(source)
        or types.is_large_binary(source)
        or types.is_binary_view(source)
    )
