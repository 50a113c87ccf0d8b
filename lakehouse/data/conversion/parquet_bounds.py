"""Bounds from Parquet statistics: truncated, in single-value serialization (spec: Appendix D)."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse.spec.manifests.bounds_columns import rounded_bounds

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
