"""The Arrow types that hold Iceberg's values inside metadata columns: plain, without units."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
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
    UUIDType,
)

from lakehouse.spec.schema.field_types import FieldTypes

_SIMPLE: dict[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    DateType: pa.int32(),
    LongType: pa.int64(),
    TimeType: pa.int64(),
    TimestampType: pa.int64(),
    TimestamptzType: pa.int64(),
    TimestampNanoType: pa.int64(),
    TimestamptzNanoType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    UUIDType: pa.binary(16),
}


def physical_type(kind: IcebergType | None) -> pa.DataType:
    """Arrow type of the internal representation; plain bytes for types without a known order.

    Fixed is among these.
    """
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return _SIMPLE.get(type(kind), pa.binary()) if kind is not None else pa.binary()


def to_physical(value: Any) -> Any:
    """An internal value as Arrow takes it: UUIDs become their bytes."""
    return value.bytes if isinstance(value, UUID) else value


def from_physical(value: Any, kind: pa.DataType) -> Any:
    """Inverse of `to_physical`: only UUIDs are kept as 16 fixed bytes."""
    return (
        UUID(bytes=value)
        if isinstance(value, bytes) and pa.types.is_fixed_size_binary(kind)
        else value
    )


def partition_types(spec: PartitionSpec, types: FieldTypes) -> dict[int, IcebergType | None]:
    """Partition field id -> type of its values.

    None when the source column is in no schema and the transform keeps its type.
    """
    results: dict[int, IcebergType | None] = {}
    for field in spec.fields:
        source = types.get(field.source_id)
        if source is not None:
            results[field.field_id] = field.transform.result_type(source)
        else:
            fixed = str(field.transform).split("[", maxsplit=1)[0]
            results[field.field_id] = (
                {"day": DateType()}.get(fixed, IntegerType())
                if fixed in _INTEGER_TRANSFORMS
                else None
            )
    return results


def kind_of(physical: pa.DataType) -> IcebergType:
    """An Iceberg type for internal values whose column is in no schema any more."""
    if pa.types.is_decimal(physical):
        return DecimalType(physical.precision, physical.scale)
    return _REVERSE.get(physical, BinaryType())


_REVERSE: dict[pa.DataType, IcebergType] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(16): UUIDType(),
}
_INTEGER_TRANSFORMS = frozenset({"bucket", "year", "month", "day", "hour"})
