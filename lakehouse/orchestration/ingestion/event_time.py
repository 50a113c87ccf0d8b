"""Event times: from what a record says to an instant, or the reason why not. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from lakehouse.orchestration.ingestion.source import EventTime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True, slots=True)
class BadEventTime:
    """Why a record has no event time that can be used."""

    reason: str
    detail: str


def instant_parser(
    event_time: EventTime, first_day: date, last_day: date
) -> Callable[[object], datetime | BadEventTime]:
    """A function from a record's value to its instant in UTC.

    Values outside `first_day` to `last_day` (days of UTC, inclusive), values that are missing, of another type or malformed,
    offsets that do not exist, and local times that the zone skips are a `BadEventTime`. A local time that the zone has twice is
    its first.
    """
    zone = ZoneInfo(event_time.zone)
    unit_us = _UNIT_US.get(event_time.unit)
    low = datetime(first_day.year, first_day.month, first_day.day, tzinfo=UTC)
    high = datetime(last_day.year, last_day.month, last_day.day, tzinfo=UTC) + timedelta(days=1)

    def parse(value: object) -> datetime | BadEventTime:
        if value is None:
            return BadEventTime("event time missing", event_time.column)
        try:
            instant = _from_number(value, unit_us) if unit_us else _from_text(value, zone)
        except (ValueError, OverflowError, TypeError) as error:
            return BadEventTime("event time malformed", f"{str(value)[:100]!r}: {error}")
        if not low <= instant < high:
            return BadEventTime(
                "event time out of range",
                f"{instant.isoformat()} is not within {first_day} to {last_day}",
            )
        return instant

    return parse


def _from_number(value: object, unit_us: int) -> datetime:
    if isinstance(value, str):
        value = float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    return _EPOCH + round(value * unit_us) * _MICROSECOND


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
