"""Kinds of values and types of columns: what fits what, and allowed promotions. Pure.

A kind is what a value is in the landing file; a type is what a column of the table is. Whole
numbers are `int` (32 bits), `long` (exact as a double), `large` (64 bits) or `huge`; text that
looks like a number but is spelled like a code (`007`, `+49`) is a `code`. Promotions are those of
the Iceberg specification: int to long, float to double, decimal to a wider precision.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal

from lakehouse.ingestion.reading.formats.json_text import LongFraction

_INT_MAX, _LONG_MAX, EXACT_IN_DOUBLE = 2**31 - 1, 2**63 - 1, 2**53
INT_RANGE, LONG_RANGE = (-_INT_MAX - 1, _INT_MAX), (-_LONG_MAX - 1, _LONG_MAX)
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")

# what fits as it is; text is parsed value by value where the column is a date, a time or a decimal
_FITS: Mapping[str, frozenset[str]] = {
    "boolean": frozenset({"boolean"}),
    "int": frozenset({"int"}),
    "long": frozenset({"int", "long", "large"}),
    "float": frozenset({"int", "double"}),
    # a large one fits if its value is exact
    "double": frozenset({"int", "long", "large", "double"}),
    "string": frozenset({"string", "code"}),
    "date": frozenset({"date", "string"}),
    "timestamp": frozenset({"timestamp", "string"}),
    "timestamptz": frozenset({"timestamptz", "string"}),
    "timestamp_ns": frozenset({"timestamp", "string"}),
    "timestamptz_ns": frozenset({"timestamptz", "string"}),
    "time": frozenset({"time", "string"}),
    "binary": frozenset({"binary"}),
}
_WIDEST = "decimal(38,0)"
_INFERRED: Mapping[str, str] = {"int": "long", "large": "long", "huge": _WIDEST}


def kinds_of(values: Iterable[object]) -> Counter[str]:
    """How many values of each kind there are; nulls do not count."""
    kinds: Counter[str] = Counter()
    values = values if isinstance(values, list) else list(values)
    for python_type, count in _type_counts(values):
        if python_type is int:
            kinds.update(_integer_kinds(values, count))
        elif python_type is Decimal:
            kinds.update(_decimal_kind(value) for value in values if type(value) is Decimal)
        elif issubclass(python_type, datetime):  # with nanoseconds it is one of pandas'
            kinds.update(
                "timestamp" if v.tzinfo is None else "timestamptz"
                for v in values
                if isinstance(v, datetime) and type(v) is python_type
            )
        elif python_type is not type(None):
            kinds[_PYTHON_KINDS.get(python_type, "json")] += count
    return kinds


def _type_counts(values: list[object]) -> Iterable[tuple[type, int]]:
    """How often each type occurs; most columns have one, and nulls."""
    types = set(map(type, values)) - {type(None)}
    if len(types) == 1:
        return [(types.pop(), len(values) - values.count(None))]
    return Counter(map(type, values)).items()


_PYTHON_KINDS: Mapping[type, str] = {
    bool: "boolean", float: "double", str: "string", dict: "json", list: "json", date: "date",
    time: "time", bytes: "binary", LongFraction: "double",
}  # fmt: skip


def _integer_kinds(values: list[object], count: int) -> Counter[str]:
    integers: list[int] = (
        values
        if count == len(values)
        else [  # type: ignore[assignment]
            value for value in values if type(value) is int
        ]
    )
    if min(integers) >= -_INT_MAX and max(integers) <= _INT_MAX:
        return Counter({"int": count})
    return Counter(
        "int"
        if -_INT_MAX - 1 <= v <= _INT_MAX
        else "long"
        if exact_in_double(v)
        else "large"
        if -_LONG_MAX - 1 <= v <= _LONG_MAX
        else "huge"
        for v in integers
    )


def _decimal_kind(value: Decimal) -> str:
    scale = max(0, -int(value.as_tuple().exponent))
    return f"decimal({max(len(value.as_tuple().digits), scale, 1)},{scale})"


def fits(kind: str, column_type: str) -> bool:
    """Whether the column can hold a value of this kind; a float column may round a double."""
    if column_type == "json":
        return True
    want = _DECIMAL.fullmatch(column_type)
    if want:
        have = _DECIMAL.fullmatch(kind)
        if have:
            room = int(want[1]) - int(want[2])
            return int(have[2]) <= int(want[2]) and int(have[1]) - int(have[2]) <= room
        return kind in ("int", "long", "large", "huge", "double", "string")
    return kind in _FITS[column_type]


def promoted(column_type: str, kind: str) -> str | None:
    """The promotion that makes the kind fit; None where the specification allows none."""
    if column_type == "int" and kind in ("long", "large"):
        return "long"
    want, have = _DECIMAL.fullmatch(column_type), _DECIMAL.fullmatch(kind)
    if want and have and int(have[2]) <= int(want[2]):
        precision = int(have[1]) - int(have[2]) + int(want[2])
        return f"decimal({precision},{want[2]})" if precision <= 38 else None
    return None


def inferred(kinds: Mapping[str, int]) -> str | None:
    """The type of a new column: that of most values, first seen if tied; None without values.

    Whole numbers and fractions together are a double, unless most of them are whole numbers that no
    double holds; decimals together the narrowest decimal that holds them all, whole numbers of
    which some need more than 64 bits a decimal(38,0). One code among numbers makes all of it text.
    """
    if "code" in kinds:
        return "string"
    weights: Counter[str] = Counter()
    decimals = [m for m in map(_DECIMAL.fullmatch, kinds) if m]
    scale = max((int(m[2]) for m in decimals), default=0)
    whole = max((int(m[1]) - int(m[2]) for m in decimals), default=0)
    for kind, count in kinds.items():
        if _DECIMAL.fullmatch(kind):
            weights[f"decimal({min(38, whole + scale)},{scale})"] += count
        else:
            weights[_INFERRED.get(kind, kind)] += count
    inexact = kinds.get("large", 0) + kinds.get("huge", 0)
    if "double" in weights and "long" in weights and inexact <= weights["double"]:
        weights["double"] += weights.pop("long")
    if "huge" in kinds and "long" in weights:
        weights[_WIDEST] += weights.pop("long")
    return max(weights, key=weights.__getitem__) if weights else None


def exact_in_double(value: int) -> bool:
    """Whether a double holds this integer exactly."""
    return -EXACT_IN_DOUBLE <= value <= EXACT_IN_DOUBLE
