"""Functions of dates and timestamps: exact for every value, also where Arrow's calendar ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.expressions.transforms.transformed_values import Datum, constant_of


def _parts(data: Datum) -> tuple[pa.Array, Any, Any]:
    """As an array, the days since 1970 and the seconds of the day."""
    array = data if isinstance(data, pa.Array) else pa.repeat(data, 1)
    if pa.types.is_date32(array.type):
        days = np.asarray(array.view(pa.int32()).fill_null(0)).astype(np.int64)
        return array, days, np.zeros(len(array), np.int64)
    if not pa.types.is_timestamp(array.type):
        raise TypeError(f"it is for dates and timestamps, not for {array.type}")
    second = _TICKS[array.type.unit]
    ticks = np.asarray(array.view(pa.int64()).fill_null(0))
    return array, ticks // (86_400 * second), ticks // second % 86_400


_TICKS = {"us": 1_000_000, "ns": 1_000_000_000}


def _calendar(part: Callable[[Any, Any], Any]) -> Callable[[Datum], Datum]:
    """A number made of the days since 1970 and the seconds of the day."""

    def compute(data: Datum) -> Datum:
        array, days, seconds = _parts(data)
        found = pa.array(np.asarray(part(days, seconds)).astype(np.int64), mask=_mask(array))
        return found if isinstance(data, pa.Array) else found[0]

    return compute


def _date(data: Datum) -> Datum:
    return _calendar(lambda days, _: days)(data).cast(pa.int32()).cast(pa.date32())


def _mask(array: pa.Array) -> Any:
    return np.asarray(array.is_null()) if array.null_count else None


def _months(days: Any) -> Any:
    """Months since January 1970."""
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first_of(months: Any) -> Any:
    """The first day of a month."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _week(days: Any, _: Any) -> Any:
    """By ISO 8601: that of the Thursday of the week."""
    thursday = days - (days + 3) % 7 + 3
    return (thursday - _first_of(_months(thursday) // 12 * 12)) // 7 + 1


def _truncated(days: Any, seconds: Any, unit: str) -> tuple[Any, Any]:
    if unit in _SECONDS:
        return days, seconds - seconds % _SECONDS[unit]
    if unit == "week":
        return days - (days + 3) % 7, 0
    months = _months(days)
    return (days if unit == "day" else _first_of(months - months % _MONTHS[unit])), 0


_SECONDS = {"hour": 3600, "minute": 60, "second": 1}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
UNITS = (*_MONTHS, "week", "day", *_SECONDS)
"""What times can be cut to, for `date_trunc`."""


def date_trunc(unit: Datum, data: Datum) -> Datum:
    """Cut to the start of a unit, one of `UNITS`."""
    name = str(constant_of(unit, "the unit")).lower()
    if name not in UNITS:
        raise TypeError(f"the unit must be one of {', '.join(UNITS)}")
    array, days, seconds = _parts(data)
    days, seconds = _truncated(days, seconds, name)
    if pa.types.is_date32(array.type):
        found = pa.array(days, pa.int64(), mask=_mask(array)).cast(pa.int32())
    else:
        ticks = pa.array(days, pa.int64()), pa.array(seconds + 0 * days, pa.int64())
        second = _TICKS[array.type.unit]
        day = pc.multiply_checked(ticks[0], pa.scalar(86_400 * second))
        summed = pc.add_checked(day, pc.multiply_checked(ticks[1], pa.scalar(second)))
        found = pc.if_else(array.is_null(), pa.scalar(None, pa.int64()), summed)
    found = found.view(array.type)
    return found if isinstance(data, pa.Array) else found[0]


def shift(data: Datum, micros: Datum) -> Datum:
    """A date or timestamp and microseconds; a date becomes a timestamp."""
    stamp = pc.cast(data, pa.timestamp("us")) if pa.types.is_date(data.type) else data
    if not pa.types.is_timestamp(stamp.type):
        raise TypeError(f"there is no interval to add to {data.type}")
    factor = _TICKS[stamp.type.unit] // 1_000_000
    ticks = pa.scalar(int(constant_of(micros, "the interval")) * factor, pa.int64())
    return pc.cast(pc.add_checked(pc.cast(stamp, pa.int64()), ticks), stamp.type)


DATE_PARTS: Mapping[str, Callable[[Datum], Datum]] = {
    "date": _date,
    "year": _calendar(lambda days, _: _months(days) // 12 + 1970),
    "quarter": _calendar(lambda days, _: _months(days) % 12 // 3 + 1),
    "month": _calendar(lambda days, _: _months(days) % 12 + 1),
    "week": _calendar(_week),
    "day": _calendar(lambda days, _: days - _first_of(_months(days)) + 1),
    "dayofyear": _calendar(lambda days, _: days - _first_of(_months(days) // 12 * 12) + 1),
    "isodow": _calendar(lambda days, _: (days + 3) % 7 + 1),
    "hour": _calendar(lambda _, seconds: seconds // 3600),
    "minute": _calendar(lambda _, seconds: seconds // 60 % 60),
    "second": _calendar(lambda _, seconds: seconds % 60),
}
"""By name: the date, and the fields of the calendar as integers."""
