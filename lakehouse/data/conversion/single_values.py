"""Single values between Iceberg's internal representation and Arrow."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse.spec.types.internal_value import to_internal

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
