"""Filters as text that a user can read and type again."""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal
from typing import Any

from pyiceberg.types import (
    BinaryType,
    DateType,
    FixedType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from lakehouse.expressions.bound_filter import (
    Bound,
    Call,
    Column,
    Computed,
    Constant,
    Leaf,
    Op,
    Term,
    Value,
    fold,
)
from lakehouse.expressions.typed_literals import shown

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_VALUES_SHOWN = 10
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
_INFIX = frozenset(
    ["=", "!=", "<", "<=", ">", ">=", "and", "or", "+", "-", "*", "/", "//", "%", "||", "like",
     "ilike"]
)  # fmt: skip
_NANOS = (TimestampNanoType, TimestamptzNanoType)
_ZONED = (TimestamptzType, TimestamptzNanoType)


def describe(where: Bound) -> str:
    """The filter with names and literals, such as `ts >= '2026-06-01T00:00:00'`.

    Long lists are cut.
    """
    if isinstance(where, Constant):
        return "true" if where.value else "false"
    text, _ = fold(
        where,
        lambda leaf: (_leaf(leaf), False),
        lambda value: ("true" if value else "false", False),
        lambda parts: (" and ".join(_braced(part) for part in parts), False),
        lambda parts: (" or ".join(text for text, _ in parts), True),
        _computed,
    )
    return text


def _braced(part: tuple[str, bool]) -> str:
    text, is_or = part
    return f"({text})" if is_or else text


def _computed(part: Computed) -> tuple[str, bool]:
    return describe_term(part.condition), part.condition.name == "or"


def describe_term(term: Term) -> str:
    """A term as SQL."""
    if isinstance(term, Column):
        return quoted(term.path)
    if isinstance(term, Value):
        return _constant(term)
    args = [
        f"({describe_term(arg)})"
        if isinstance(arg, Call) and arg.name in _INFIX
        else describe_term(arg)
        for arg in term.args
    ]
    if term.name in _INFIX:
        escapes = term.name in ("like", "ilike") and "\\" in args[1]
        return f" {term.name} ".join(args) + (" escape '\\'" if escapes else "")
    return _SPELLED[term.name](args) if term.name in _SPELLED else f"{term.name}({', '.join(args)})"


def _case(args: list[str]) -> str:
    pairs = zip(args[:-1:2], args[1::2], strict=False)
    rest = f" else {args[-1]}" if len(args) % 2 else ""
    branches = " ".join(f"when {condition} then {result}" for condition, result in pairs)
    return f"case {branches}{rest} end"


_SPELLED: dict[str, Any] = {
    "not": lambda args: f"not {args[0]}",
    "is null": lambda args: f"{args[0]} is null",
    "is nan": lambda args: f"{args[0]} is nan",
    "same": lambda args: f"{args[0]} is not distinct from {args[1]}",
    "listed": lambda args: f"{args[0]} in {args[1]}",
    "unless null": lambda args: f"case when {args[0]} is not null then {args[1]} end",
    "negative": lambda args: f"-{args[0]}",
    "shift": lambda args: f"{args[0]} + interval {args[1]} microseconds",
    "widen": lambda args: f"cast({args[0]} as {args[1][1:-1]})",
    "cast": lambda args: f"cast({args[0]} as {args[1][1:-1]})",
    "try_cast": lambda args: f"try_cast({args[0]} as {args[1][1:-1]})",
    "uuid text": lambda args: f"cast({args[0]} as string)",
    "case": _case,
}


def quoted(path: tuple[str, ...]) -> str:
    """A column as it is written in a filter."""
    return ".".join(
        part if _PLAIN_NAME.fullmatch(part) else '"' + part.replace('"', '""') + '"'
        for part in path
    )


def _leaf(leaf: Leaf) -> str:
    name = quoted(leaf.path)
    if leaf.value is None:
        return f"{name} {leaf.op.value}"
    if leaf.op in (Op.IN, Op.NOT_IN):
        return f"{name} {leaf.op.value} {_list(leaf.value, leaf.type)}"
    if leaf.op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH):
        negated = leaf.op is Op.NOT_STARTS_WITH
        if any(wildcard in leaf.value for wildcard in "%_\\"):
            return f"{'not ' if negated else ''}starts_with({name}, {_quoted(leaf.value)})"
        return f"{name} {'not ' if negated else ''}like {_quoted(leaf.value + '%')}"
    return f"{name} {leaf.op.value} {_literal(leaf.value, leaf.type)}"


def _list(values: tuple[Any, ...], kind: IcebergType) -> str:
    listed = ", ".join(_literal(value, kind) for value in values[:_VALUES_SHOWN])
    more = f", ... {len(values) - _VALUES_SHOWN} more" if len(values) > _VALUES_SHOWN else ""
    return f"({listed}{more})"


def _constant(term: Value) -> str:
    if term.value is None:
        return "null"
    if term.type is None:
        return shown(term.value)
    if isinstance(term.value, tuple):
        return _list(term.value, term.type)
    return _literal(term.value, term.type)


def _literal(value: Any, kind: IcebergType) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(kind, DateType):
        return _moment(value, value * 86_400_000_000_000, "").replace("T00:00:00", "")
    if isinstance(kind, TimeType):
        return _quoted((_EPOCH + dt.timedelta(microseconds=value)).time().isoformat())
    if isinstance(kind, (TimestampType, TimestamptzType, *_NANOS)):
        zone = "+00:00" if isinstance(kind, _ZONED) else ""
        return _moment(value, value if isinstance(kind, _NANOS) else value * 1000, zone)
    if isinstance(kind, BinaryType | FixedType):
        return f"X'{bytes(value).hex()}'"
    if isinstance(value, Decimal):
        return f"{value:f}"
    number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return str(value) if number else _quoted(str(value))


def _moment(value: int, nanos: int, zone: str) -> str:
    """ISO text; the number itself, in the unit of its type, outside the years 1 to 9999."""
    micros, rest = divmod(nanos, 1000)
    try:
        moment = _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        return str(value)
    text = moment.replace(tzinfo=None).isoformat(timespec="microseconds" if rest else "auto")
    return _quoted(f"{text}{f'{rest:03d}' if rest else ''}{zone}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
