"""Event times: from what a record says to an instant, or the reason why not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.ingestion.read_options import ReadOptions
from lakehouse.ingestion.reading.formats.record_chunks import Values
from lakehouse.ingestion.reading.typing.spelled_text import SpelledText
from lakehouse.ingestion.reading.typing.typed_columns import (
    INTEGER,
    NUMBER,
    certain_texts,
    picked,
    typed_column,
)
from lakehouse.ingestion.source import EventTime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
# where numbers of seconds end, and of milliseconds: both are the year 5138
_SECONDS, _MILLISECONDS = 10**11, 10**14
_DAY_S = 86_400
_OFFSET = re.compile(r"(Z|[+-]\d\d:\d\d)$")
# doubles count microseconds exactly up to here, the year 2255
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class BadEventTime:
    """Why a record has no event time that can be used."""

    reason: str
    detail: str


def instant_parser(
    event_time: EventTime, first_day: date, last_day: date
) -> Callable[[object], datetime | BadEventTime]:
    """A function from a record's value to its instant in UTC.

    Where numbers have a unit, text that is no number is ISO 8601, as without one.

    Values outside `first_day` to `last_day` (days of UTC, inclusive), values that are missing, of
    another type or malformed, offsets that do not exist, and local times that the zone skips are a
    `BadEventTime`. A local time that the zone has twice is its first.
    """
    zone = ZoneInfo(event_time.zone)
    unit = event_time.unit
    low = datetime(first_day.year, first_day.month, first_day.day, tzinfo=UTC)
    high = datetime(last_day.year, last_day.month, last_day.day, tzinfo=UTC) + timedelta(days=1)

    def parse(value: object) -> datetime | BadEventTime:
        if value is None:
            return BadEventTime("event time missing", event_time.column)
        try:
            number = _number(value) if unit != "iso" else None
            instant = _from_text(value, zone) if number is None else _from_number(number, unit)
        except (ValueError, OverflowError, TypeError) as error:
            return BadEventTime("event time malformed", f"{str(value)[:100]!r}: {error}")
        if not low <= instant < high:
            return BadEventTime(
                "event time out of range",
                f"{instant.isoformat()} is not within {first_day} to {last_day}",
            )
        return instant

    return parse


class EventClock:
    """Instants of whole columns: what `instant_parser` gives for each value.

    Args:
        event_time: how records say when they happened.
        first_day: earlier events have no usable time.
        last_day: later ones neither.
    """

    def __init__(self, event_time: EventTime, first_day: date, last_day: date) -> None:
        self._parse = instant_parser(event_time, first_day, last_day)
        self._format = event_time.format
        self._unit = event_time.unit
        first_s = (first_day - date(1970, 1, 1)).days * _DAY_S
        last_s = ((last_day - date(1970, 1, 1)).days + 1) * _DAY_S
        self._low, self._high = first_s * 1_000_000, last_s * 1_000_000
        self._local = LocalTime(event_time.zone, first_s, last_s)

    def instants(self, values: Values) -> tuple[Micros, dict[int, BadEventTime]]:
        """Microseconds since the epoch; positions without a usable time, with the reason."""
        values, misfits = self._usual(values)
        instants, sure = self._numbers(values) if self._unit != "iso" else self._texts(values)
        if self._unit != "iso" and not sure.all():
            times, parsed = self._texts(values)
            instants, sure = np.where(sure, instants, times), sure | parsed
        sure &= (instants >= self._low) & (instants < self._high)
        bad: dict[int, BadEventTime] = {}
        unsure = np.flatnonzero(~sure)
        for position, value in zip(unsure.tolist(), picked(values, unsure.tolist()), strict=True):
            instant = misfits.get(position) or self._parse(value)
            if isinstance(instant, BadEventTime):
                bad[position] = instant
            else:
                instants[position] = (instant - _EPOCH) // _MICROSECOND
        return instants, bad

    def _usual(self, values: Values) -> tuple[Values, dict[int, BadEventTime]]:
        """Times as ISO 8601 spells them, and positions of text that the format does not spell."""
        if self._format is None:
            return values, {}
        spelled = SpelledText(ReadOptions(timestamp_format=self._format))
        usual, bad = spelled.usual(values, "timestamp")
        texts = picked(values, list(bad))
        return usual, {
            at: BadEventTime(
                "event time malformed", f"{str(text)[:100]!r}: not by format={self._format!r}"
            )
            for at, text in zip(bad, texts, strict=True)
        }

    def _numbers(self, values: Values) -> tuple[Micros, npt.NDArray[np.bool_]]:
        """Whole numbers; fractions are looked at one by one."""
        if isinstance(values, pa.Array):
            texts = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
            usable = texts or pa.types.is_integer(values.type)
        else:
            types = set(map(type, values)) - {type(None)}
            texts, usable = types == {str}, len(types) <= 1
        if not usable:
            return _nothing(len(values))
        array, _ = typed_column(values, "long", from_text=texts)
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
        size = np.abs(numbers)
        unit_us = _UNIT_US.get(self._unit) or np.select(
            [size < _SECONDS, size < _MILLISECONDS], [_UNIT_US["s"], _UNIT_US["ms"]], 1
        )
        sure = _valid(array) & (size <= _EXACT // unit_us)
        return np.where(sure, numbers, 0) * unit_us, sure

    def _texts(self, values: Values) -> tuple[Micros, npt.NDArray[np.bool_]]:
        """Times with an offset and wall times in usual spellings; others are parsed one by one."""
        if isinstance(values, pa.Array):
            kind = values.type
            if pa.types.is_timestamp(kind):
                return self._walls(values) if kind.tz is None else _micros(values)
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                return _nothing(len(values))
            texts = values
        elif set(map(type, values)) <= {str, type(None)}:
            texts = pa.array(values, pa.string())
        else:
            return _nothing(len(values))
        if _has_offset(texts):  # so they all have, most of the time
            aware, is_aware = _micros(certain_texts(texts, "timestamptz"))
            if is_aware.all():
                return aware, is_aware
            walls, sure = self._walls(certain_texts(texts, "timestamp"))
        else:
            walls, sure = self._walls(certain_texts(texts, "timestamp"))
            if sure.all():
                return walls, sure
            aware, is_aware = _micros(certain_texts(texts, "timestamptz"))
        return np.where(is_aware, aware, walls), sure | is_aware

    def _walls(self, times: pa.Array) -> tuple[Micros, npt.NDArray[np.bool_]]:
        walls, parsed = _micros(times)
        instants, none = self._local.instants(walls)
        return instants, parsed & ~none


def _has_offset(texts: pa.Array) -> bool:
    """Whether the first text ends like a time with an offset."""
    first = texts[0].as_py() if len(texts) else None
    return first is not None and _OFFSET.search(first) is not None


def _micros(times: pa.Array) -> tuple[Micros, npt.NDArray[np.bool_]]:
    """Microseconds; nanoseconds that are more than microseconds are not sure."""
    whole = pc.cast(times, pa.timestamp("us", times.type.tz), safe=False)
    sure = _valid(times)
    if times.type.unit == "ns":
        back = pc.cast(whole, times.type, safe=False)
        sure &= pc.equal(back, times).fill_null(False).to_numpy(zero_copy_only=False)
    return whole.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).copy(), sure


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False).copy()
    return valid


def _nothing(count: int) -> tuple[Micros, npt.NDArray[np.bool_]]:
    return np.zeros(count, np.int64), np.zeros(count, np.bool_)


def _number(value: object) -> int | float | None:
    if isinstance(value, str) and NUMBER.fullmatch(value):
        return int(value) if INTEGER.fullmatch(value) else float(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _from_number(number: float, unit: str) -> datetime:
    if unit == "epoch":
        size = abs(number)
        unit = "s" if size < _SECONDS else "ms" if size < _MILLISECONDS else "us"
    unit_us = _UNIT_US[unit]
    return _EPOCH + round(number * unit_us) * _MICROSECOND


def _from_text(value: object, zone: ZoneInfo) -> datetime:
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str):
        moment = datetime.fromisoformat(value)
        if len(value) < len("2013-01-01T00"):
            raise ValueError("a date without a time")
    else:
        raise TypeError("not ISO 8601 text")
    if moment.tzinfo is not None:
        return moment.astimezone(UTC)
    instant = moment.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) != moment:
        raise ValueError(f"this local time does not exist in {zone.key}")
    return instant


_US = 1_000_000
_STEP_S = 3600

Micros = npt.NDArray[np.int64]


class LocalTime:
    """The offsets of a zone between two instants.

    Args:
        zone: IANA name.
        first_s: seconds since the epoch.
        last_s: the same, inclusive.
    """

    def __init__(self, zone: str, first_s: int, last_s: int) -> None:
        starts, offsets = _offsets(zone, first_s, last_s)
        self._offsets = np.array(offsets, np.int64) * _US
        begin = np.array([first_s, *starts[1:]], np.int64) * _US
        end = np.array([*starts[1:], last_s], np.int64) * _US
        # wall times at which each offset begins and ends to be valid; neighbours overlap where a
        # time exists twice
        self._wall_begin = begin + self._offsets
        self._wall_end = end + self._offsets

    def instants(self, wall: Micros) -> tuple[Micros, npt.NDArray[np.bool_]]:
        """Instants (microseconds since the epoch) of wall times (microseconds since 1970, local).

        A time that the zone has twice is its first.

        Returns:
            The instants, and where there is none: a time that the zone skips, or one outside of the
            range.
        """
        which = np.searchsorted(self._wall_end, wall, side="right")
        beyond = which == len(self._wall_end)
        which[beyond] = 0
        none = beyond | (wall < self._wall_begin[which])
        return wall - self._offsets[which], none


@lru_cache(maxsize=16)
def _offsets(zone: str, first_s: int, last_s: int) -> tuple[list[int], list[int]]:
    """Since when each offset is valid, and the offset, both in seconds.

    Raises:
        OverflowError: an offset that is no whole number of seconds does not exist in any zone; a
            year beyond 9999 does not here.
    """
    info = ZoneInfo(zone)
    fixed = info.utcoffset(None)  # of a zone that has one, such as UTC, for all times
    if fixed is not None:
        return [first_s], [int(fixed.total_seconds())]

    def offset(at_s: int) -> int:
        local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s)).astimezone(info)
        return int((local.utcoffset() or timedelta()).total_seconds())

    starts, offsets = [first_s], [offset(first_s)]
    at = first_s
    while at < last_s:
        after = min(at + _STEP_S, last_s)
        now = offset(after)
        if now != offsets[-1]:
            low, high = at, after
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == offsets[-1] else (low, middle)
            starts.append(high)
            offsets.append(now)
        at = after
    return starts, offsets
