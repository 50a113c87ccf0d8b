"""The kinds of statements, and the shape of what each kind claims.

A claim is a mapping of slots to plain values (text, numbers, flags, dates as ISO text, lists). The
shape of a slot says which values are columns, so that one walk finds what a statement depends on,
and one walk renames it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lakehouse.errors import InvalidStatementError

Claim = Mapping[str, Any]


class Kind(StrEnum):
    """What a statement is about. The set is closed."""

    DESCRIPTION = "description"
    GRAIN = "grain"
    UNIT = "unit"
    CODES = "codes"
    SYNONYMS = "synonyms"
    JOIN = "join"
    METRIC = "metric"
    FILTER = "filter"
    FRESHNESS = "freshness"
    OWNER = "owner"
    DEPRECATION = "deprecation"
    VALIDITY = "validity"
    SAMPLES = "samples"
    WARNING = "warning"
    ABSENCE = "absence"


class Shape(StrEnum):
    """What a slot holds."""

    TEXT = "text"
    WORDS = "list of text"
    NUMBER = "number"
    FLAG = "true or false"
    DATE = "date"
    TABLE = "table name"
    TABLES = "list of table names"
    COLUMN = "column"
    COLUMNS = "list of columns"
    PREDICATE = "SQL condition"
    EXPRESSION = "SQL expression"
    QUERY = "SQL query"
    REGEX = "regular expression"
    LIMIT = "number, date, time or text"
    CODES = "mapping of values to a label, or to a list of a label and its synonyms"
    VALUES = "list of values"
    SIGN = "mapping with `column` and `negative`, a list of its values"
    PERIODS = "list of mappings with `from`, `until`, `unit`, `factor`"


@dataclass(frozen=True, slots=True)
class Slot:
    """One named part of a claim.

    Attributes:
        shape: what it holds.
        required: whether every claim of the kind has it.
        choices: the texts allowed; empty: any.
    """

    shape: Shape
    required: bool = False
    choices: tuple[str, ...] = ()


CARDINALITIES = ("one_to_one", "many_to_one", "one_to_many", "many_to_many")

SLOTS: Mapping[Kind, Mapping[str, Slot]] = {
    # label: the plain name of the thing, "order line"
    Kind.DESCRIPTION: {"label": Slot(Shape.TEXT)},
    # entity: what a row is; repeats: rows repeat the key, count it distinct; counts: the column
    # whose different values are the things, where rows are versions of them; snapshot: state at
    # these dates, never to be added over them
    Kind.GRAIN: {
        "key": Slot(Shape.COLUMNS, required=True),
        "entity": Slot(Shape.TEXT),
        "repeats": Slot(Shape.FLAG),
        "counts": Slot(Shape.COLUMN),
        "snapshot": Slot(Shape.COLUMN),
    },
    # value * factor is in the unit; currency: the column that holds it; rate: divide by it for the
    # group's currency
    Kind.UNIT: {
        "unit": Slot(Shape.TEXT, required=True),
        "factor": Slot(Shape.NUMBER),
        "tax": Slot(Shape.TEXT, choices=("net", "gross")),
        "per": Slot(Shape.TEXT, choices=("day", "month", "quarter", "year")),
        "currency": Slot(Shape.COLUMN),
        "rate": Slot(Shape.COLUMN),
        "sign": Slot(Shape.SIGN),
    },
    Kind.CODES: {"values": Slot(Shape.CODES, required=True), "complete": Slot(Shape.FLAG)},
    Kind.SYNONYMS: {"words": Slot(Shape.WORDS, required=True)},
    Kind.JOIN: {
        "from": Slot(Shape.COLUMNS, required=True),
        "to": Slot(Shape.COLUMNS, required=True),
        "cardinality": Slot(Shape.TEXT, required=True, choices=CARDINALITIES),
        "where": Slot(Shape.PREDICATE),
        "role": Slot(Shape.TEXT),
    },
    Kind.METRIC: {
        "name": Slot(Shape.TEXT, required=True),
        "expression": Slot(Shape.EXPRESSION, required=True),
        "where": Slot(Shape.PREDICATE),
        "joins": Slot(Shape.TABLES),
        "time": Slot(Shape.COLUMN),
        "unit": Slot(Shape.TEXT),
        "words": Slot(Shape.WORDS),
    },
    # name: what passes ("valid"); mandatory: holds for every figure of the table
    Kind.FILTER: {
        "predicate": Slot(Shape.PREDICATE, required=True),
        "name": Slot(Shape.TEXT),
        "words": Slot(Shape.WORDS),
        "mandatory": Slot(Shape.FLAG),
    },
    # complete_through: the last day of `column` that is complete; provisional: the newest span that
    # may still change
    Kind.FRESHNESS: {
        "column": Slot(Shape.COLUMN),
        "sla": Slot(Shape.TEXT),
        "complete_through": Slot(Shape.DATE),
        "provisional": Slot(Shape.TEXT),
        "instead": Slot(Shape.TABLE),
    },
    Kind.OWNER: {"owner": Slot(Shape.TEXT, required=True)},
    Kind.DEPRECATION: {"since": Slot(Shape.DATE), "successor": Slot(Shape.TABLE)},
    Kind.VALIDITY: {
        "by": Slot(Shape.COLUMN),
        "periods": Slot(Shape.PERIODS, required=True),
    },
    Kind.SAMPLES: {"values": Slot(Shape.VALUES, required=True)},
    Kind.WARNING: {"topics": Slot(Shape.WORDS)},
    Kind.ABSENCE: {"topics": Slot(Shape.WORDS, required=True)},
}

_PERIOD_KEYS = {"from", "until", "unit", "factor"}
_SIGN_KEYS = {"column", "negative"}


def check_slots(slots: Mapping[str, Slot], claim: Claim, what: str, where: str) -> dict[str, Any]:
    """The claim with dates as ISO text, once every slot has its shape.

    Args:
        slots: those of its kind.
        claim: slot -> value, as YAML or JSON gives it.
        what: the kind, for messages.
        where: names the statement in messages.

    Raises:
        InvalidStatementError: an unknown or missing slot, or a value of another shape.
    """
    if unknown := sorted(set(claim) - set(slots)):
        allowed = ", ".join(slots) or "nothing"
        raise InvalidStatementError(
            f"{where}: a {what} has no {', '.join(unknown)}; it has {allowed}"
        )
    missing = [name for name, slot in slots.items() if slot.required and claim.get(name) is None]
    if missing:
        raise InvalidStatementError(f"{where}: a {what} needs {', '.join(missing)}")
    return {
        name: _checked(slots[name], value, f"{where}: {name}")
        for name, value in claim.items()
        if value is not None
    }


def _checked(slot: Slot, value: Any, where: str) -> Any:
    if slot.choices and value not in slot.choices:
        raise InvalidStatementError(f"{where} is {value!r}, not one of {', '.join(slot.choices)}")
    if slot.shape is Shape.DATE:
        return iso_date(value, where)
    if slot.shape is Shape.PERIODS:
        return _periods(value, where)
    if slot.shape is Shape.SIGN and not (isinstance(value, Mapping) and set(value) == _SIGN_KEYS):
        raise InvalidStatementError(f"{where} must be a {slot.shape}, not {value!r}")
    if not _FITS[slot.shape](value):
        raise InvalidStatementError(f"{where} must be a {slot.shape}, not {value!r}")
    if slot.shape is Shape.CODES:
        return {str(code): meaning for code, meaning in value.items()}
    return plain(value)


def plain(value: Any) -> Any:
    """The value as JSON keeps it: dates and times as ISO text, mappings and lists copied."""
    if isinstance(value, (dt.datetime, dt.date)):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def iso_date(value: object, where: str) -> str:
    """`2025-01-31` of a date, a datetime or text. Raises InvalidStatementError."""
    if isinstance(value, dt.datetime):
        value = value.date()
    if isinstance(value, dt.date):
        return value.isoformat()
    try:
        return dt.date.fromisoformat(str(value)).isoformat()
    except ValueError:
        raise InvalidStatementError(
            f"{where} must be a date such as 2025-01-31, not {value!r}"
        ) from None


def _periods(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise InvalidStatementError(f"{where} must be a {Shape.PERIODS}, not {value!r}")
    periods = []
    for period in value:
        if not isinstance(period, Mapping) or set(period) - _PERIOD_KEYS:
            raise InvalidStatementError(f"{where} must be a {Shape.PERIODS}, not {value!r}")
        periods.append(
            {
                key: iso_date(value, where) if key in ("from", "until") else value
                for key, value in period.items()
            }
        )
    return periods


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _all_text(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_text(item) for item in value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_codes(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(_is_text(item) or _all_text(item) for item in value.values())
    )


_FITS: Mapping[Shape, Callable[[object], bool]] = {
    Shape.TEXT: _is_text,
    Shape.WORDS: _all_text,
    Shape.NUMBER: _is_number,
    Shape.FLAG: lambda value: isinstance(value, bool),
    Shape.TABLE: _is_text,
    Shape.TABLES: _all_text,
    Shape.COLUMN: _is_text,
    Shape.COLUMNS: _all_text,
    Shape.PREDICATE: _is_text,
    Shape.EXPRESSION: _is_text,
    Shape.QUERY: _is_text,
    Shape.REGEX: _is_text,
    Shape.LIMIT: lambda value: isinstance(value, (int, float, str, dt.date)),
    Shape.CODES: _are_codes,
    Shape.VALUES: lambda value: isinstance(value, list) and bool(value),
    Shape.SIGN: lambda value: isinstance(value, Mapping) and _is_text(value["column"]),
}
