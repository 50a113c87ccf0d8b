"""Expectations that one aggregate proves.

Great Expectations takes seconds to import and reads the frame for each expectation. Most days
nothing is wrong, and then one aggregate over all expectations shows it. What it does not prove,
because a value is unexpected, a column is missing or the expectation is of another kind, is left to
Great Expectations, which finds out and explains. So the two never disagree about a failure: only
one of them can report it.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NUMBERS = frozenset({"byte", "short", "integer", "long", "float", "double", "decimal"})
EXACT = frozenset({"byte", "short", "integer", "long", "string", "date", "timestamp"})
# `mostly` is compared by Great Expectations in floating point: what is this near is left to it
MARGIN = 1e-9


@dataclass(frozen=True, slots=True)
class Proof:
    """How an expectation is proved.

    Attributes:
        columns: two aggregates of a frame.
        enough: whether their values prove it.
        share: they count the values and those of them that are as expected, so that the counts of
            days add up to those of several days. Otherwise what holds for all rows holds for some.
    """

    columns: tuple[Column, Column]
    enough: Callable[[int, int], bool]
    share: bool = True


@dataclass(frozen=True, slots=True)
class DayProofs:
    """What the counts of each day prove about expectations.

    Attributes:
        proofs: each expectation, and whether two counts prove it.
        counts: for each day that has rows, two counts for each expectation.
    """

    proofs: Sequence[tuple[Any, Callable[[int, int], bool]]]
    counts: Mapping[date, Sequence[int]]

    def doubtful(self, day: date) -> list[tuple[Any, int, int]]:
        """The expectations that a day does not prove: values, and so many of them unexpected."""
        counts = self.counts.get(day, ())
        pairs = zip(self.proofs, counts[::2], counts[1::2], strict=False)
        return [
            (expectation, count, count - good)
            for (expectation, enough), count, good in pairs
            if not enough(count, good)
        ]


def held(frame: DataFrame, expectations: Sequence[Any]) -> list[bool]:
    """For each expectation whether it certainly holds: False says nothing.

    Args:
        frame: is read once, or not at all when there is nothing to prove.
        expectations: each with `type` and `arguments`, as Great Expectations names them.
    """
    proofs = [
        _proof(frame, expectation.type, dict(expectation.arguments)) for expectation in expectations
    ]
    columns = _named([proof for proof in proofs if proof])
    if not columns:
        return [False] * len(proofs)
    counts = iter(frame.agg(*columns).first() or ())
    return [proof is not None and proof.enough(next(counts), next(counts)) for proof in proofs]


def proofs_of_days(frame: DataFrame, expectations: Sequence[Any], day: Column) -> DayProofs | None:
    """What one aggregate by day proves of expectations.

    Args:
        frame: is read once, twice where an expectation is about all rows together.
        expectations: as for `held`.
        day: the expression that gives a row's day.

    Returns:
        None when the counts of days cannot tell for which days an expectation fails: it is of no
        known form, or is about all rows together and not proved for all of them.
    """
    proved = [
        (expectation, _proof(frame, expectation.type, dict(expectation.arguments)))
        for expectation in expectations
    ]
    shares = [(expectation, proof) for expectation, proof in proved if proof and proof.share]
    others = [expectation for expectation, proof in proved if not (proof and proof.share)]
    if not shares or not all(held(frame, others)):
        return None
    rows = frame.groupBy(day).agg(*_named([proof for _, proof in shares])).collect()
    counts = {row[0]: tuple(row)[1:] for row in rows}
    return DayProofs([(expectation, proof.enough) for expectation, proof in shares], counts)


def _named(proofs: Sequence[Proof]) -> list[Column]:
    columns = [column for proof in proofs for column in proof.columns]
    return [column.alias(str(at)) for at, column in enumerate(columns)]


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
    kinds = [(field.name, field.dataType.typeName().partition("(")[0]) for field in frame.schema]
    names = [name for name, _ in kinds]
    return {name: kind for name, kind in kinds if names.count(name) == 1}


def _not_null(f: Any, _types: Mapping[str, str], arguments: dict[str, Any]) -> Proof | None:
    mostly = _mostly(arguments, {"column"})
    if mostly is None:
        return None
    column = f.col(_quoted(arguments["column"]))
    return Proof((f.count(f.lit(1)), f.count(column)), _enough(mostly))


def _between(f: Any, types: Mapping[str, str], arguments: dict[str, Any]) -> Proof | None:
    mostly = _mostly(arguments, {"column", "min_value", "max_value"})
    bounds = [arguments.get(name) for name in ("min_value", "max_value")]
    if mostly is None or types[arguments["column"]] not in NUMBERS or bounds == [None, None]:
        return None
    if any(
        isinstance(bound, bool) or not isinstance(bound, int | float | None) for bound in bounds
    ):
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
    if not values or not all(isinstance(value, str) for value in values):
        return None
    column = f.col(_quoted(arguments["column"]))
    return _most_of(f, column, column.isin(values), mostly)


def _unique(f: Any, types: Mapping[str, str], arguments: dict[str, Any]) -> Proof | None:
    if arguments.keys() != {"column"} or types[arguments["column"]] not in EXACT:
        return None
    column = f.col(_quoted(arguments["column"]))
    return Proof((f.count(column), f.count_distinct(column)), operator.eq, share=False)


def _compound_unique(f: Any, types: Mapping[str, str], arguments: dict[str, Any]) -> Proof | None:
    names = arguments["column_list"]
    if arguments.keys() != {"column_list"} or any(types[name] not in EXACT for name in names):
        return None
    together = f.struct(*(f.col(_quoted(name)) for name in names))
    return Proof((f.count(f.lit(1)), f.count_distinct(together)), operator.eq, share=False)


def _most_of(f: Any, column: Column, expected: Column, mostly: float) -> Proof:
    good = f.count(f.when(column.isNotNull() & expected, 1))
    return Proof((f.count(column), good), _enough(mostly))


def _enough(mostly: float) -> Callable[[int, int], bool]:
    return lambda rows, good: good == rows or good / rows > mostly + MARGIN


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
