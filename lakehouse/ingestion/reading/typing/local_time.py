"""Wall times of a zone as instants, by column: `zoneinfo`'s offsets as two arrays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

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
