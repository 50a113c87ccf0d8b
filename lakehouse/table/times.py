"""Times and ages as users give them: datetimes, ISO 8601, milliseconds, or `7d` before now."""

from __future__ import annotations

import datetime as dt
import re

from lakehouse.errors import InvalidInputError

Moment = dt.datetime | str | int

_AGE = re.compile(r"^(\d+)\s*(ms|s|m|h|d|w)$")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def to_ms(moment: Moment) -> int:
    """Milliseconds since the epoch of a datetime (naive means UTC), ISO 8601 text or milliseconds.

    Raises InvalidInputError.
    """
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    if isinstance(moment, str):
        try:
            moment = dt.datetime.fromisoformat(moment)
        except ValueError as error:
            raise InvalidInputError(
                f"not a point in time: {moment!r}; write 2026-06-01T12:00:00+00:00"
            ) from error
    if not isinstance(moment, dt.datetime):
        raise InvalidInputError(
            f"not a point in time: {moment!r}; give a datetime, ISO 8601 text or milliseconds "
            "since 1970 as an int"
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp() * 1000)


def duration_ms(text: str) -> int:
    """`90s`, `30m`, `12h`, `7d`, `2w` in milliseconds. Raises InvalidInputError."""
    match = _AGE.match(text.strip())
    if match is None:
        raise InvalidInputError(f"{text!r} is not a duration; write it as 90s, 30m, 12h, 7d or 2w")
    return int(match.group(1)) * _UNIT_MS[match.group(2)]


def moment_ms(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch of an age before now (`7d`) or ISO 8601 (naive means UTC).

    Raises InvalidInputError.
    """
    if _AGE.match(text.strip()):
        return now_ms - duration_ms(text)
    return to_ms(text.strip())
