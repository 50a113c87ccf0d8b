"""Expectations that one aggregate proves.

Great Expectations takes seconds to import and reads the frame for each expectation. Most days
nothing is wrong, and then one aggregate over all expectations shows it. What it does not prove,
because a value is unexpected, a column is missing or the expectation is of another kind, is left to
Great Expectations, which finds out and explains. So the two never disagree about a failure: only
one of them can report it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    # aggregates, and what their values prove
    Proof: TypeAlias = tuple[list[Column], Callable[..., bool]]

NUMBERS = frozenset({"byte", "short", "integer", "long", "float", "double", "decimal"})
EXACT = frozenset({"byte", "short", "integer", "long", "string", "date", "timestamp"})
# `mostly` is compared by Great Expectations in floating point: what is this near is left to it
MARGIN = 1e-9


def held(frame: DataFrame, expectations: Sequence[Any]) -> list[bool]:
    """For each expectation whether it certainly holds: False says nothing.

    Args:
        frame: is read once, or not at all when there is nothing to prove.
        expectations: each with `type` and `arguments`, as Great Expectations names them.
    """
    proofs = [_proof(frame, one.type, dict(one.arguments)) for one in expectations]
    columns = [column for proof in proofs if proof for column in proof[0]]
    if not columns:
        return [False] * len(proofs)
    row = frame.agg(*(column.alias(str(at)) for at, column in enumerate(columns))).first()
    counts = iter(row or ())
    return [proof[1](*(next(counts) for _ in proof[0])) if proof else False for proof in proofs]


def _proof(frame: DataFrame, kind: str, arguments: dict[str, Any]) -> Proof | None:
    """How an expectation is proved; None for one that is not of a known form."""
    types = dict(_types(frame))
    prove = _PROOFS.get(kind)
    named = arguments.get("column_list", [arguments.get("column")])
    if prove is None or not named or not all(name in types for name in named):
        return None
    proof: Proof | None = prove(importlib.import_module("pyspark.sql.functions"), types, arguments)
    return proof


def _types(frame: DataFrame) -> Mapping[str, str]:
    """The kind of each column by its name, without names that occur twice."""
    found = [(one.name, one.dataType.typeName().partition("(")[0]) for one in frame.schema]
    names = [name for name, _ in found]
    return {name: kind for name, kind in found if names.count(name) == 1}


def _not_null(f: Any, _types: Mapping[str, str], arguments: dict[str, Any]) -> Proof | None:
    mostly = _mostly(arguments, {"column"})
    if mostly is None:
        return None
    column = f.col(_quoted(arguments["column"]))
    return [f.count(f.lit(1)), f.count(column)], lambda rows, there: _enough(rows, there, mostly)


def _between(f: Any, types: Mapping[str, str], arguments: dict[str, Any]) -> Proof | None:
    mostly = _mostly(arguments, {"column", "min_value", "max_value"})
    bounds = [arguments.get(name) for name in ("min_value", "max_value")]
    if mostly is None or types[arguments["column"]] not in NUMBERS or bounds == [None, None]:
        return None
    if any(isinstance(one, bool) or not isinstance(one, int | float | None) for one in bounds):
        return None
    column, (low, high) = f.col(_quoted(arguments["column"])), bounds
    inside = f.lit(True)
    inside = inside if low is None else inside & (column >= f.lit(low))
    inside = inside if high is None else inside & (column <= f.lit(high))
    return _most_of(f, column, inside, mostly)


def _in_set(f: Any, types: Mapping[str, str], arguments: dict[str, Any]) -> Proof | None:
    mostly = _mostly(arguments, {"column", "value_set"})
    values = arguments.get("value_set")
    if mostly is None or types[arguments["column"]] != "string" or not isinstance(values, list):
        return None
    if not values or not all(isinstance(one, str) for one in values):
        return None
    column = f.col(_quoted(arguments["column"]))
    return _most_of(f, column, column.isin(values), mostly)


def _unique(f: Any, types: Mapping[str, str], arguments: dict[str, Any]) -> Proof | None:
    if arguments.keys() != {"column"} or types[arguments["column"]] not in EXACT:
        return None
    column = f.col(_quoted(arguments["column"]))
    return [f.count(column), f.count_distinct(column)], lambda there, distinct: there == distinct


def _compound_unique(f: Any, types: Mapping[str, str], arguments: dict[str, Any]) -> Proof | None:
    names = arguments["column_list"]
    if arguments.keys() != {"column_list"} or any(types[name] not in EXACT for name in names):
        return None
    together = f.struct(*(f.col(_quoted(name)) for name in names))
    return [f.count(f.lit(1)), f.count_distinct(together)], lambda rows, distinct: rows == distinct


def _most_of(f: Any, column: Column, expected: Column, mostly: float) -> Proof:
    return (
        [f.count(column), f.count(f.when(column.isNotNull() & expected, 1))],
        lambda there, good: _enough(there, good, mostly),
    )


def _enough(rows: int, good: int, mostly: float) -> bool:
    return good == rows or good / rows > mostly + MARGIN


def _mostly(arguments: Mapping[str, Any], known: set[str]) -> float | None:
    """The share that must hold; None when an argument is not known, or is no share."""
    mostly = arguments.get("mostly", 1.0)
    if arguments.keys() - known - {"mostly"} or isinstance(mostly, bool):
        return None
    return float(mostly) if isinstance(mostly, int | float) and 0 < mostly <= 1 else None


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


_PROOFS: Mapping[str, Callable[[Any, Mapping[str, str], dict[str, Any]], Any]] = {
    "expect_column_values_to_not_be_null": _not_null,
    "expect_column_values_to_be_between": _between,
    "expect_column_values_to_be_in_set": _in_set,
    "expect_column_values_to_be_unique": _unique,
    "expect_compound_columns_to_be_unique": _compound_unique,
}
