"""Filters as text a user can read and, where the grammar allows, type again."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from pyiceberg.types import (
    DateType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from lakehouse.expressions.bound import Bound, Constant, Leaf, Op, fold

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_VALUES_SHOWN = 10


def describe(where: Bound) -> str:
    """The filter with names and literals, such as `ts >= '2026-06-01T00:00:00' and user_id = 42`; long lists are cut."""
    if isinstance(where, Constant):
        return "true" if where.value else "false"
    text, _ = fold(
        where,
        lambda leaf: (_leaf(leaf), False),
        lambda value: ("true" if value else "false", False),
        lambda left, right: (f"{_braced(left)} and {_braced(right)}", False),
        lambda left, right: (f"{left[0]} or {right[0]}", True),
    )
    return text


def _braced(part: tuple[str, bool]) -> str:
    text, is_or = part
    return f"({text})" if is_or else text


def _leaf(leaf: Leaf) -> str:
    name = ".".join(
        part if part.isidentifier() else json.dumps(part, ensure_ascii=False) for part in leaf.path
    )
    if leaf.value is None:
        return f"{name} {leaf.op.value}"
    if leaf.op in (Op.IN, Op.NOT_IN):
        shown = ", ".join(_literal(value, leaf.type) for value in leaf.value[:_VALUES_SHOWN])
        more = (
            f", ... {len(leaf.value) - _VALUES_SHOWN} more"
            if len(leaf.value) > _VALUES_SHOWN
            else ""
        )
        return f"{name} {leaf.op.value} ({shown}{more})"
    if leaf.op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH):
        negation = "not " if leaf.op is Op.NOT_STARTS_WITH else ""
        return f"{name} {negation}like {_quoted(leaf.value.replace('%', chr(92) + '%') + '%')}"
    return f"{name} {leaf.op.value} {_literal(leaf.value, leaf.type)}"


def _literal(value: Any, kind: IcebergType) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(kind, DateType):
        return _quoted(_moment(value * 86_400_000_000, "").removesuffix("T00:00:00"))
    if isinstance(kind, (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)):
        nanos = isinstance(kind, (TimestampNanoType, TimestamptzNanoType))
        zone = "+00:00" if isinstance(kind, (TimestamptzType, TimestamptzNanoType)) else ""
        return _quoted(_moment(value // 1000 if nanos else value, zone))
    return str(value) if isinstance(value, (int, float)) else _quoted(str(value))


def _moment(micros: int, zone: str) -> str:
    try:
        moment = _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} us since 1970"
    return moment.replace(tzinfo=None).isoformat() + zone


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
