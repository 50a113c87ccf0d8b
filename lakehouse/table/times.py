"""Moments as users give them."""

from __future__ import annotations

import datetime as dt

from lakehouse.errors import InvalidInputError

Moment = dt.datetime | str | int


def to_ms(moment: Moment) -> int:
    """Milliseconds since the epoch of a datetime (naive means UTC), ISO 8601 text or milliseconds. Raises InvalidInputError."""
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
            f"not a point in time: {moment!r}; give a datetime, ISO 8601 text or milliseconds since 1970 as an int"
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp() * 1000)
