"""Random filters, and what they mean to us and to Java, by brute force over rows.

Where Java's own parts disagree with each other its answer is unknown: its evaluator takes null for
a value below all others and NaN for one above, its pruning does not.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from pyiceberg import expressions as ex
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, PrimitiveType, StringType, UUIDType

from tests.conformance.java.json_rows import Row, plain
from tests.conformance.java.random_rows import leaves, value

Truth = bool | None

UNARY = ("is-null", "not-null", "is-nan", "not-nan")
BINARY = ("lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq")
_OURS: dict[str, Any] = {
    "is-null": ex.IsNull,
    "not-null": ex.NotNull,
    "is-nan": ex.IsNaN,
    "not-nan": ex.NotNaN,
    "lt": ex.LessThan,
    "lt-eq": ex.LessThanOrEqual,
    "gt": ex.GreaterThan,
    "gt-eq": ex.GreaterThanOrEqual,
    "eq": ex.EqualTo,
    "not-eq": ex.NotEqualTo,
    "in": ex.In,
    "not-in": ex.NotIn,
    "starts-with": ex.StartsWith,
    "not-starts-with": ex.NotStartsWith,
}


@dataclass(frozen=True)
class Filter:
    """A filter in every form.

    Attributes:
        java: as a command's JSON.
        ours: as an expression.
        means: row -> whether we keep it; None is unknown, which keeps nothing.
        means_to_java: row -> whether Java keeps it; None: either is right.
        labels: operators and types in it, for the report.
    """

    java: dict[str, Any]
    ours: ex.BooleanExpression
    means: Callable[[Row], Truth]
    means_to_java: Callable[[Row], Truth]
    labels: tuple[str, ...]


def random_filter(random: Random, schema: Schema, rows: list[Row], depth: int = 2) -> Filter:
    """A filter over the primitive fields; its literals are mostly values of the rows."""
    shape = random.choice(("leaf",) * 4 + ("and", "or", "not")) if depth else "leaf"
    if shape == "not":
        inner = random_filter(random, schema, rows, depth - 1)
        return Filter(
            {"op": "not", "child": inner.java},
            ex.Not(inner.ours),
            lambda row: _not(inner.means(row)),
            lambda row: _not(inner.means_to_java(row)),
            inner.labels,
        )
    if shape in ("and", "or"):
        left = random_filter(random, schema, rows, depth - 1)
        right = random_filter(random, schema, rows, depth - 1)
        both = _and if shape == "and" else _or
        return Filter(
            {"op": shape, "left": left.java, "right": right.java},
            (ex.And if shape == "and" else ex.Or)(left.ours, right.ours),
            lambda row: both(left.means(row), right.means(row)),
            lambda row: both(left.means_to_java(row), right.means_to_java(row)),
            left.labels + right.labels,
        )
    return _leaf(random, *random.choice(list(leaves(schema.as_struct()))), schema, rows)


def _leaf(
    random: Random,
    path: str,
    field_id: int,
    kind: PrimitiveType,
    schema: Schema,
    rows: list[Row],
) -> Filter:
    steps = _steps(schema, field_id)
    ops = [*UNARY[:2], *BINARY, "in", "not-in"]
    ops += UNARY[2:] if isinstance(kind, FloatType | DoubleType) else []
    ops += ["starts-with", "not-starts-with"] if isinstance(kind, StringType) else []
    op = random.choice(ops)
    literals = [_literal(random, kind, steps, rows) for _ in range(random.randint(1, 4))]
    return filter_of(op, path, field_id, kind, literals, schema)


def filter_of(
    op: str, path: str, field_id: int, kind: PrimitiveType, literals: list[Any], schema: Schema
) -> Filter:
    """One comparison; `literals` are spelled as in `json_rows`."""
    steps = _steps(schema, field_id)
    java: dict[str, Any] = {"op": op, "column": path}
    if op in UNARY:
        ours, values = _OURS[op](path), []
    elif op in ("in", "not-in"):
        java["values"], values = literals, [plain(literal, kind) for literal in literals]
        ours = _OURS[op](path, [_written(one, kind) for one in values])
    else:
        java["value"], values = literals[0], [plain(literals[0], kind)]
        ours = _OURS[op](path, _written(values[0], kind))
    return Filter(
        java,
        ours,
        lambda row: _means(op, _reach(row, steps), values, kind),
        lambda row: _means_to_java(op, _reach(row, steps), values, kind),
        (f"{op} {_family(kind)}",),
    )


def _family(kind: PrimitiveType) -> str:
    return str(kind).split("(", maxsplit=1)[0].split("[", maxsplit=1)[0]


def _literal(random: Random, kind: PrimitiveType, steps: list[int], rows: list[Row]) -> Any:
    """Never NaN: Java has no such literal."""
    there = [one for one in (_reach(row, steps) for row in rows) if one not in (None, "nan")]
    if there and random.random() < 0.8:
        return random.choice(there)
    while True:
        found = value(random, kind)
        if found != "nan":
            return found


def _written(one: Any, kind: PrimitiveType) -> Any:
    """A literal as a user gives it."""
    if isinstance(kind, UUIDType):
        text = one.hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return one


def _steps(schema: Schema, field_id: int) -> list[int]:
    """Field ids from the top to a field."""

    def find(fields: Any) -> list[int]:
        for field in fields:
            if field.field_id == field_id:
                return [field_id]
            inner = find(getattr(field.field_type, "fields", ()))
            if inner:
                return [field.field_id, *inner]
        return []

    return find(schema.fields)


def _reach(row: Row, steps: list[int]) -> Any:
    found: Any = row
    for step in steps:
        if found is None:
            return None
        found = found[str(step)]
    return found


def _is_nan(found: Any) -> bool:
    return isinstance(found, float) and math.isnan(found)


def rank(found: Any) -> Any:
    """Our order: numbers with NaN above all, text by code point, bytes."""
    if isinstance(found, float):
        return (1, 0.0) if math.isnan(found) else (0, found)
    return found.encode() if isinstance(found, str) else found


def _java_rank(found: Any, kind: PrimitiveType) -> Any:
    """Java's order: -0.0 below 0.0, UUIDs as two signed halves."""
    if isinstance(found, float):
        return (found, math.copysign(1.0, found))
    if isinstance(kind, UUIDType):
        return struct.unpack(">qq", found)
    return found.encode() if isinstance(found, str) else found


def _means(op: str, spelled: Any, values: list[Any], kind: PrimitiveType) -> Truth:
    if op in ("is-null", "not-null"):
        return (spelled is None) == (op == "is-null")
    if spelled is None:
        return None
    found = plain(spelled, kind)
    if op in ("is-nan", "not-nan"):
        return _is_nan(found) == (op == "is-nan")
    return _compare(op, found, values, rank)


def _means_to_java(op: str, spelled: Any, values: list[Any], kind: PrimitiveType) -> Truth:
    if op in UNARY:
        return _means(op, spelled, values, kind) if spelled is not None or "null" in op else None
    if spelled is None or spelled == "nan":
        return False if op in ("eq", "in", "starts-with") else None
    return _compare(op, plain(spelled, kind), values, lambda one: _java_rank(one, kind))


def _compare(op: str, found: Any, values: list[Any], rank: Callable[[Any], Any]) -> bool:
    if op in ("starts-with", "not-starts-with"):
        return found.startswith(values[0]) == (op == "starts-with")
    ranks = [rank(one) for one in values]
    if op in ("in", "not-in"):
        return (rank(found) in ranks) == (op == "in")
    mine, other = rank(found), ranks[0]
    return {
        "lt": mine < other,
        "lt-eq": mine <= other,
        "gt": mine > other,
        "gt-eq": mine >= other,
        "eq": mine == other,
        "not-eq": mine != other,
    }[op]


def _not(one: Truth) -> Truth:
    return None if one is None else not one


def _and(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _or(left: Truth, right: Truth) -> Truth:
    if left is True or right is True:
        return True
    return None if left is None or right is None else False
