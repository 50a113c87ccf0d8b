"""Internal values as Arrow scalars, and partition transforms of single values."""

from __future__ import annotations

from typing import Any, TypeAlias

import mmh3
import pyarrow as pa
from pyiceberg.transforms import BucketTransform, Transform
from pyiceberg.types import (
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from lakehouse.expressions.transforms.partition_transforms import transform_array
from lakehouse.kept_by_bytes import short_only
from lakehouse.spec.types.arrow_types import from_physical, physical_type, to_physical

Datum: TypeAlias = pa.Array | pa.Scalar
"""Values of rows, or a constant."""
_LONGS = (IntegerType, LongType, DateType, TimeType, TimestampType, TimestamptzType)
"""Types whose values are hashed as eight bytes; arrays of one value take ten times as long."""
_UNITS: dict[type[IcebergType], pa.DataType] = {
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", "UTC"),
}


def arrow_type(kind: IcebergType) -> pa.DataType:
    """The Arrow type that values of a primitive type are computed with."""
    return _UNITS.get(type(kind)) or physical_type(kind)


def arrow_array(values: list[Any], kind: IcebergType) -> pa.Array:
    """Internal values in the Arrow type that data files are read with."""
    array = pa.array([to_physical(value) for value in values], physical_type(kind))
    unit = _UNITS.get(type(kind))
    return array if unit is None else array.cast(unit)


def constant_of(data: Datum, what: str) -> Any:
    """The Python value of a constant. Raises TypeError for rows and for null, naming `what`."""
    if not isinstance(data, pa.Scalar):
        raise TypeError(f"{what} must be a constant")
    if not data.is_valid:
        raise TypeError(f"{what} must not be null")
    return data.as_py()


@short_only(4096)
def transform_value(transform: Transform[Any, Any], value: Any, kind: IcebergType) -> Any:
    """The partition value of an internal value, by the same code that partitions data.

    Raises:
        InvalidInputError: the result lies outside its type.
    """
    if isinstance(transform, BucketTransform) and type(value) is int and isinstance(kind, _LONGS):
        digest = mmh3.hash(value.to_bytes(8, "little", signed=True))
        return (digest & 0x7FFF_FFFF) % transform.num_buckets
    result = transform_array(transform, arrow_array([value], kind), kind)
    result_kind = transform.result_type(kind)
    physical = (
        result.cast(physical_type(result_kind))
        if result.type != physical_type(result_kind)
        else result
    )
    return from_physical(physical[0].as_py(), physical.type)
