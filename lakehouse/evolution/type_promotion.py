"""Which types a column may change to (spec: Schema Evolution)."""

from __future__ import annotations

import datetime as dt
from typing import Any

from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import DayTransform, MonthTransform, VoidTransform, YearTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    TimestampNanoType,
    TimestampType,
    UnknownType,
)

from lakehouse.spec.schema.schema_json import nanoseconds


def promotion_obstacle(old: IcebergType, new: IcebergType, format_version: int) -> str | None:
    """Why values of type `old` cannot be read as `new`; None if they can."""
    if old == new:
        return None
    if isinstance(old, UnknownType):
        return None if format_version >= 3 else "unknown is promoted in format version 3 only"
    if not old.is_primitive or not new.is_primitive:
        return f"{_kind(old)} cannot become {_kind(new)}"
    if isinstance(old, IntegerType) and isinstance(new, LongType):
        return None
    if isinstance(old, FloatType) and isinstance(new, DoubleType):
        return None
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        if new.scale != old.scale:
            return "the scale of a decimal is fixed"
        return None if new.precision > old.precision else "a decimal can only get more digits"
    if isinstance(old, DateType) and isinstance(new, (TimestampType, TimestampNanoType)):
        return (
            None
            if format_version >= 3
            else "date is promoted to a timestamp in format version 3 only"
        )
    return (
        "the spec allows int to long, float to double, decimals to more digits, and in v3 date to "
        "timestamp without zone"
    )


def is_narrower(new: IcebergType, old: IcebergType, format_version: int) -> bool:
    """Whether values of `new` fit a column of type `old` as they are."""
    return promotion_obstacle(new, old, format_version) is None


def changes_partition_values(field: PartitionField, old: IcebergType, new: IcebergType) -> bool:
    """Whether promoting its source changes the transform's result (spec: only for dates)."""
    if not isinstance(old, DateType) or old == new:
        return False
    return not isinstance(
        field.transform, (YearTransform, MonthTransform, DayTransform, VoidTransform)
    )


def promoted_default(value: Any, new: IcebergType) -> Any:
    """A default of the old type as one of the new type."""
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        # Timestamp without zone.
        moment = dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001
        if isinstance(new, TimestampNanoType):
            return nanoseconds(moment, zoned=False)
        if isinstance(new, TimestampType):
            return moment
    return float(value) if isinstance(new, DoubleType) and value is not None else value


def _kind(kind: IcebergType) -> str:
    return str(kind) if kind.is_primitive else f"a {str(kind).partition('<')[0]}"
