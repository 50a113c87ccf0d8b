"""Comparisons of functions with constants as comparisons of what the functions are applied to.

`date(ts) = '2026-06-01'` becomes `ts >= '2026-06-01' and ts < '2026-06-02'`, of which bounds and
partitions can make use. The result is true, false and null for the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

import numpy as np
from pyiceberg.types import BooleanType, DoubleType, FloatType, IntegerType, LongType

from lakehouse.expressions.bound_filter import Call, Term, Value
from lakehouse.expressions.typed_literals import Days, Instant, Literal, as_literal, nanos_of

_DAY_SECONDS = 86_400
_NANOS = 1_000_000_000
_EVERY_WHOLE_NUMBER = 2**24  # below it single precision has all of them
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

Compare = Callable[[str, Term, Value], Term]
"""Makes the comparison of a term with a literal."""
Join = Callable[..., Term]
"""Makes a call."""


def solve(call: Call, op: str, value: Value, compare: Compare, join: Join) -> Term | None:
    """`call op value` in terms of the argument of the call; None where it has to be computed.

    Args:
        call: a function of a term.
        op: `=`, `!=`, `<`, `<=`, `>`, `>=`.
        value: of the type of the call.
        compare: see `Compare`.
        join: see `Join`.
    """
    if call.name == "widen" and isinstance(call.args[0].type, FloatType):
        return _of_single(call.args[0], op, value.value, compare, join)
    if call.name in ("+", "-", "negative", "shift", "widen"):
        return _shifted(call, op, value, compare)
    if call.name == "coalesce":
        return _or_else(call, op, value, compare, join)
    edges = _edges(call, value)
    if edges is None:
        return None
    inner, least, above = call.args[-1], Value(edges[0]), Value(edges[1])
    if op in ("<", ">="):
        return compare(op, inner, least)
    if op in ("<=", ">"):
        return compare("<" if op == "<=" else ">=", inner, above)
    if op == "=":
        return join("and", compare(">=", inner, least), compare("<", inner, above))
    return join("or", compare("<", inner, least), compare(">=", inner, above))


def _shifted(call: Call, op: str, value: Value, compare: Compare) -> Term | None:
    """Functions that keep the order and lose nothing."""
    first = call.args[0]
    if call.name == "widen":
        return compare(op, first, Value(as_literal(value)))
    if call.name == "negative":
        if isinstance(call.type, FloatType | DoubleType):
            return None  # NaN stays above every other number
        given = value.value
        # minus rounds decimals to 28 digits
        opposite = given.copy_negate() if isinstance(given, Decimal) else -given
        return compare(_FLIPPED[op], first, Value(opposite))
    if call.name == "shift":
        micros = call.args[1].value if isinstance(call.args[1], Value) else 0
        return compare(op, first, Value(Instant(nanos_of(value) - micros * 1000)))
    left, right = call.args
    if not isinstance(call.type, IntegerType | LongType):
        return None
    if isinstance(right, Value):
        step = -right.value if call.name == "+" else right.value
        return compare(op, left, Value(value.value + step))
    if isinstance(left, Value):
        if call.name == "+":
            return compare(op, right, Value(value.value - left.value))
        return compare(_FLIPPED[op], right, Value(left.value - value.value))
    return None


def _of_single(inner: Term, op: str, number: float, compare: Compare, join: Join) -> Term:
    """A single precision term against a double, which need not be one of its values."""
    with np.errstate(over="ignore", under="ignore"):
        nearest = np.float32(number)
        under = np.nextafter(nearest, np.float32(-math.inf))
    if math.isnan(number) or float(nearest) == number:
        return compare(op, inner, Value(number))
    if op in ("=", "!="):
        return join("unless null", inner, Value(op == "!=", BooleanType()))
    below = float(nearest) if float(nearest) < number else float(under)
    return compare("<=" if op in ("<", "<=") else ">", inner, Value(below))


def _or_else(call: Call, op: str, value: Value, compare: Compare, join: Join) -> Term | None:
    if len(call.args) != 2 or isinstance(call.args[0], Value):
        return None
    inner, default = call.args
    if not isinstance(default, Value) or default.value is None:
        return None
    by_default = compare(op, default, Value(as_literal(value)))
    direct = compare(op, inner, Value(as_literal(value)))
    missing = join("is null", inner)
    if isinstance(by_default, Value) and by_default.value is True:
        return join("or", missing, direct)
    return join("and", join("not", missing), direct)


def _edges(call: Call, value: Value) -> tuple[Literal, Literal] | None:
    """The least arguments for which the call is at least the value, and above it."""
    if call.name == "date":
        return Days(value.value), Days(value.value + 1)
    if call.name == "year":
        return Days(_first_day(value.value, 1)), Days(_first_day(value.value + 1, 1))
    if call.name == "floor" and isinstance(value.value, Decimal | float):
        if isinstance(value.value, float) and not abs(value.value) < _EVERY_WHOLE_NUMBER:
            return None  # the next whole number may be none of its values
        floor = math.floor(value.value)
        return floor if floor == value.value else floor + 1, floor + 1
    if call.name == "date_trunc" and isinstance(call.args[0], Value):
        return _cut(str(call.args[0].value), nanos_of(value))
    return None


def _cut(unit: str, nanos: int) -> tuple[Instant, Instant]:
    seconds, rest = divmod(nanos, _NANOS)
    days = seconds // _DAY_SECONDS
    if unit in _UNIT_SECONDS:
        start = seconds - seconds % _UNIT_SECONDS[unit]
        after = start + _UNIT_SECONDS[unit]
    else:
        if unit == "week":
            first = days - (days + 3) % 7
            following = first + 7
        else:
            year, month = civil(days)
            months = (year * 12 + month - 1) // _UNIT_MONTHS[unit] * _UNIT_MONTHS[unit]
            first = _first_day(*_year_month(months))
            following = _first_day(*_year_month(months + _UNIT_MONTHS[unit]))
        start, after = first * _DAY_SECONDS, following * _DAY_SECONDS
    exact = start == seconds and rest == 0
    return Instant((start if exact else after) * _NANOS), Instant(after * _NANOS)


_UNIT_SECONDS = {"day": _DAY_SECONDS, "hour": 3600, "minute": 60, "second": 1}
_UNIT_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def _year_month(months: int) -> tuple[int, int]:
    return months // 12, months % 12 + 1


def _first_day(year: int, month: int) -> int:
    """Days from 1970 to the first day of a month, in the proleptic Gregorian calendar."""
    if month < 3:
        year, month = year - 1, month + 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5 - 719_468


def civil(days: int) -> tuple[int, int]:
    """Year and month of a day since 1970."""
    year = 1970 + days * 400 // 146_097
    while _first_day(year + 1, 1) <= days:
        year += 1
    while _first_day(year, 1) > days:
        year -= 1
    month = next(month for month in range(12, 0, -1) if _first_day(year, month) <= days)
    return year, month
