"""Transforms as Spark's statements write them: `days(ts)` is Iceberg's `day(ts)`."""

from __future__ import annotations

import re

_UNITS = re.compile(r"^(year|month|day|hour)s(?=\()", re.IGNORECASE)
_TURNED = re.compile(r"^(bucket|truncate)\(\s*([^\d\s][^,]*?)\s*,\s*(\d+)\s*\)", re.IGNORECASE)


def iceberg_term(text: str) -> str:
    """The term in Iceberg's words; `truncate(name, 3)` is `truncate(3, name)`."""
    return _TURNED.sub(r"\1(\3, \2)", _UNITS.sub(r"\1", text))
