"""Iceberg's internal values (spec: Appendix D) from Python's, from Arrow, and as Arrow."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse.spec.types.arrow_types import type_to_arrow

_EPOCH_DAY = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def to_internal(value: Any, kind: IcebergType) -> Any:
    """A Python value (date, datetime, time, UUID, ...) or an internal one as the internal one."""
    if value is None:
        return None
    if isinstance(kind, DateType) and isinstance(value, dt.date):
        return (value - _EPOCH_DAY).days
    if isinstance(kind, TimeType) and isinstance(value, dt.time):
        return (
            (value.hour * 60 + value.minute) * 60 + value.second
        ) * 1_000_000 + value.microsecond
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        micros = (aware - _EPOCH) // _MICROSECOND
        return (
            micros * 1_000 if isinstance(kind, TimestampNanoType | TimestamptzNanoType) else micros
        )
    if isinstance(kind, UUIDType) and not isinstance(value, UUID):
        return UUID(bytes=bytes(value)) if isinstance(value, bytes) else UUID(value)
    if isinstance(kind, BinaryType | FixedType):
        return bytes(value)
    return value


def typed_array(values: Sequence[Any], kind: IcebergType | None) -> pa.Array:
    """Internal values of one Iceberg type; values of unknown types become text.

    A partition field whose source is long gone has such a type.
    """
    if kind is None:
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    arrow = type_to_arrow(kind)
    if pa.types.is_date32(arrow) or pa.types.is_time(arrow) or pa.types.is_timestamp(arrow):
        width = pa.int32() if arrow.bit_width == 32 else pa.int64()
        return pa.array(values, width).cast(arrow)
    if isinstance(kind, UUIDType):
        raw = pa.array(
            [
                value if value is None or isinstance(value, bytes) else value.bytes
                for value in values
            ],
            pa.binary(16),
        )
        return (
            raw.cast(arrow)
            if not isinstance(arrow, pa.ExtensionType)
            else pa.ExtensionArray.from_storage(arrow, raw)
        )
    return pa.array(values, arrow)


_LONG_BACKED = (TimeType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)


def internal_values(array: pa.Array, kind: IcebergType) -> list[Any]:
    """Elements as Iceberg's internal values.

    Dates are days, timestamps are ticks (both int), uuids are UUID, fixed and binary are bytes.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_date32(array.type):
        return list(array.view(pa.int32()).to_pylist())
    if isinstance(kind, _LONG_BACKED) and array.type.bit_width == 64:
        return list(array.view(pa.int64()).to_pylist())
    values = list(array.to_pylist())
    if isinstance(kind, UUIDType):
        return [None if value is None else UUID(bytes=value) for value in values]
    return values


def to_scalar(value: Any, kind: IcebergType, arrow_type: pa.DataType) -> pa.Scalar:
    """A Python or internal value as a scalar of the Arrow type of `kind`."""
    internal = to_internal(value, kind)
    if internal is None:
        return pa.scalar(None, arrow_type)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return pa.ExtensionScalar.from_storage(
            arrow_type, to_scalar(value, kind, arrow_type.storage_type)
        )
    if isinstance(kind, DateType):
        return pa.array([internal], pa.int32()).view(pa.date32()).cast(arrow_type)[0]
    if isinstance(kind, _LONG_BACKED):
        return pa.array([internal], pa.int64()).view(arrow_type)[0]
    if isinstance(kind, DecimalType):
        return pa.scalar(Decimal(internal), arrow_type)
    if isinstance(internal, UUID):
        return pa.scalar(internal.bytes, arrow_type)
    return pa.scalar(internal, arrow_type)


def constant_array(value: Any, kind: IcebergType, arrow_type: pa.DataType, length: int) -> pa.Array:
    """`length` times the same value."""
    if value is None:
        return pa.nulls(length, arrow_type)
    scalar = to_scalar(value, kind, arrow_type)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(arrow_type, pa.repeat(scalar.value, length))
    return pa.repeat(scalar, length)
