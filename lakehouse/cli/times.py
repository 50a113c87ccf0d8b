"""Times as the command line takes them: ages (`7d`, `12h`) and ISO 8601."""

from __future__ import annotations

import re

from lakehouse.errors import InvalidInputError
from lakehouse.table.times import to_ms

_AGE = re.compile(r"^(\d+)\s*(ms|s|m|h|d|w)$")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def duration_ms(text: str) -> int:
    """`90s`, `30m`, `12h`, `7d`, `2w` in milliseconds. Raises InvalidInputError."""
    match = _AGE.match(text.strip())
    if match is None:
        raise InvalidInputError(f"{text!r} is not a duration; write it as 90s, 30m, 12h, 7d or 2w")
    return int(match.group(1)) * _UNIT_MS[match.group(2)]


def moment_ms(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch of an age before now (`7d`) or ISO 8601 (naive means UTC). Raises InvalidInputError."""
    if _AGE.match(text.strip()):
        return now_ms - duration_ms(text)
    return to_ms(text.strip())
