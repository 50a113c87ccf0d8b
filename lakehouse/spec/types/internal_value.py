"""Python values as Iceberg's internal ones (spec: Appendix D)."""

from __future__ import annotations

import datetime as dt
from typing import Any
from uuid import UUID

from pyiceberg.types import (
    BinaryType,
    DateType,
    FixedType,
    IcebergType,
    TimestampNanoType,
    TimestamptzNanoType,
    TimeType,
    UUIDType,
)

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
