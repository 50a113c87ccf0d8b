"""Evidence: what shows that a statement is true.

A closed vocabulary of checks, each with what metadata can say about it.

Every check is a name and arguments, as in YAML: `{check: bounds, column: amount, min: 0}`. `where`
is a filter in the grammar of scans; it restricts the rows of the statement's table, `to_where`
those of the other table.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from lakehouse.errors import InvalidStatementError
from lakehouse.semantics.claims import Shape, Slot, check_slots

_WHERE = Slot(Shape.PREDICATE)
_COLUMN = Slot(Shape.COLUMN, required=True)
_SHARE = Slot(Shape.NUMBER)

CHECKS: Mapping[str, Mapping[str, Slot]] = {
    # every value that is not null lies in [min, max]
    "bounds": {
        "column": _COLUMN,
        "min": Slot(Shape.LIMIT),
        "max": Slot(Shape.LIMIT),
        "where": _WHERE,
    },
    # the share of rows that are null lies in [min, max]; both 0 by default: none is
    "null_share": {"column": _COLUMN, "min": _SHARE, "max": _SHARE, "where": _WHERE},
    # every value that is not null is one of `allowed`; with all_used each of them occurs
    "values": {
        "column": _COLUMN,
        "allowed": Slot(Shape.VALUES, required=True),
        "all_used": Slot(Shape.FLAG),
        "where": _WHERE,
    },
    # different keys per row lie in [min, max]; both 1 by default: the columns are a key
    "unique": {
        "columns": Slot(Shape.COLUMNS, required=True),
        "min": _SHARE,
        "max": _SHARE,
        "where": _WHERE,
    },
    # the share of values (null and `except` apart) that the other table has; 1 by default
    "references": {
        "column": _COLUMN,
        "to": _COLUMN,
        "except": Slot(Shape.VALUES),
        "min": _SHARE,
        "where": _WHERE,
        "to_where": _WHERE,
    },
    # sum(column) * factor = sum(to) * to_factor, but for a relative tolerance
    "sum_equal": {
        "column": _COLUMN,
        "to": _COLUMN,
        "factor": Slot(Shape.NUMBER),
        "to_factor": Slot(Shape.NUMBER),
        "tolerance": _SHARE,
        "where": _WHERE,
        "to_where": _WHERE,
    },
    # rows of this table per row of the other one lie in [min, max]
    "row_ratio": {
        "to": Slot(Shape.TABLE, required=True),
        "min": _SHARE,
        "max": _SHARE,
        "where": _WHERE,
        "to_where": _WHERE,
    },
    # the newest value: not before `at_least`, not after `at_most`, not older than `within` (1d,
    # 12h)
    "newest": {
        "column": _COLUMN,
        "at_least": Slot(Shape.LIMIT),
        "at_most": Slot(Shape.LIMIT),
        "within": Slot(Shape.TEXT),
    },
    # the share of values that the regular expression matches from start to end lies in [min, max];
    # both 1 by default
    "pattern": {
        "column": _COLUMN,
        "regex": Slot(Shape.REGEX, required=True),
        "min": _SHARE,
        "max": _SHARE,
        "where": _WHERE,
    },
    # one row, whose first value is true; further columns are kept as what was seen
    "query": {"sql": Slot(Shape.QUERY, required=True)},
}

INCREMENTAL = frozenset({"bounds", "null_share", "values", "sum_equal", "row_ratio", "pattern"})
"""Checks that add up over files: added and removed files are enough to evaluate them."""

_SPAN = re.compile(r"^(\d+)(m|h|d|w)$")
_SPAN_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the vocabulary.

    Attributes:
        name: a key of `CHECKS`.
        arguments: slot -> value; columns by name, of the statement's table unless the table is
            written before them.
    """

    name: str
    arguments: Mapping[str, Any]

    @classmethod
    def parse(cls, written: Mapping[str, Any], where: str) -> Check:
        """From `{check: name, ...}`. Raises InvalidStatementError."""
        name = written.get("check")
        if not isinstance(name, str) or name not in CHECKS:
            raise InvalidStatementError(
                f"{where}: evidence must name a check, one of {', '.join(CHECKS)}, not {name!r}"
            )
        written_arguments = {key: value for key, value in written.items() if key != "check"}
        arguments = check_slots(CHECKS[name], written_arguments, f"check {name}", where)
        if "regex" in arguments:
            _check_regex(arguments["regex"], where)
        if "within" in arguments:
            span_ms(arguments["within"], where)
        return cls(name, arguments)

    def to_json(self) -> dict[str, Any]:
        """Inverse of `parse`."""
        return {"check": self.name, **self.arguments}

    def share(self, low: float = 1.0, high: float = 1.0) -> tuple[float, float]:
        """`min` and `max`: defaults if neither is given; if one is given the other end is open."""
        least, most = self.arguments.get("min"), self.arguments.get("max")
        if least is None and most is None:
            return low, high
        return (
            float("-inf") if least is None else float(least),
            float("inf") if most is None else float(most),
        )


def span_ms(text: str, where: str) -> int:
    """`12h`, `1d` in milliseconds. Raises InvalidStatementError."""
    match = _SPAN.match(text.strip())
    if match is None:
        raise InvalidStatementError(f"{where}: {text!r} is no span; write it as 30m, 12h, 1d or 2w")
    return int(match.group(1)) * _SPAN_MS[match.group(2)]


def as_type_of(written: Any, value: Any) -> Any:
    """A limit as it is written, as a value that compares with `value`; None when it does not.

    >>> as_type_of("2025-06-30", dt.date(2025, 1, 1))
    datetime.date(2025, 6, 30)
    """
    try:
        if isinstance(value, dt.datetime):
            moment = dt.datetime.fromisoformat(str(written))
            if value.tzinfo is None:
                return moment.replace(tzinfo=None)
            return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        if isinstance(value, dt.date):
            return dt.date.fromisoformat(str(written)[:10])
        if isinstance(value, bool):
            return written if isinstance(written, bool) else None
        if isinstance(value, Decimal):
            return Decimal(str(written))
        if isinstance(value, (int, float)):
            return written if isinstance(written, (int, float)) else float(str(written))
    except (ValueError, InvalidOperation):
        return None
    return str(written) if isinstance(value, str) else None


def _check_regex(regex: str, where: str) -> None:
    try:
        re.compile(regex)
    except re.error as error:
        raise InvalidStatementError(
            f"{where}: {regex!r} is no regular expression: {error}"
        ) from error
