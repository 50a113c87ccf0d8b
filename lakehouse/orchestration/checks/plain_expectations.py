"""Expectations that one aggregate decides.

Great Expectations takes seconds to import and reads the frame for each expectation. One aggregate
over all expectations, of Spark or, over rows in memory, of Polars, shows which hold, and of those
about a share of a column's values also which fail, whose unexpected values are then read. What the
counts do not decide, because a column is missing, a value comes twice or the expectation is of
another kind, is left to Great Expectations.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, Protocol, cast

import pyarrow as pa

INEXACT = frozenset({"float", "double"})
NUMBERS = INEXACT | {"byte", "short", "integer", "long", "decimal"}
EXACT = frozenset({"byte", "short", "integer", "long", "string", "date", "timestamp"})
# `mostly` is compared by Great Expectations in floating point: what is this near is left to it
MARGIN = 1e-9
SHOWN = 20
"""So many unexpected values are read, as Great Expectations does."""


class Counting(Protocol):
    """A frame whose rows an engine counts. What is counted is an expression of the engine.

    Attributes:
        types: the kind of each column by its name, as Spark calls it, without those of two columns.
    """

    types: Mapping[str, str]

    def rows(self) -> Any:
        """All rows."""

    def values(self, name: str) -> Any:
        """Those that have a value."""

    def within(self, name: str, low: float | None, high: float | None) -> Any:
        """The condition that a number is within bounds, both included."""

    def among(self, name: str, values: Sequence[str]) -> Any:
        """The condition that a text is one of some."""

    def meeting(self, condition: Any) -> Any:
        """Those that meet a condition."""

    def others(self, name: str, condition: Any, most: int) -> list[Any]:
        """The first values that do not meet it, in the order of the rows."""

    def different(self, name: str) -> Any:
        """Different values."""

    def combinations(self, names: Sequence[str]) -> Any:
        """Different rows of some columns, in which nulls are equal."""

    def counted(self, wanted: Sequence[Any]) -> Sequence[int]:
        """The counts, in one pass over the rows."""

    def by_day(self, day: str, wanted: Sequence[Any]) -> Mapping[date, Sequence[int]]:
        """The counts of each day (UTC) that a column of dates or times tells."""


@dataclass(frozen=True, slots=True)
class Proof:
    """How an expectation is proved.

    Attributes:
        columns: two aggregates of a frame.
        mostly: they count the values and those of them that are as expected, of which this share
            has to be, so that the counts of days add up to those of several days. None: they have
            to be equal, and what holds for all rows holds for some.
        examples: reads so many of the values that are not as expected; None: nobody here can.
    """

    columns: tuple[Any, Any]
    mostly: float | None = None
    examples: Callable[[int], list[Any]] | None = None

    def enough(self, count: int, good: int) -> bool:
        """Whether the two counts prove it."""
        return count == good or (self.mostly is not None and good / count > self.mostly + MARGIN)

    def fails(self, count: int, good: int) -> bool:
        """Whether Great Expectations, which compares the share itself, finds that it fails."""
        return count != good and (self.mostly is None or good / count < self.mostly)

    def verdict(self, count: int, good: int) -> Verdict | None:
        """What the two counts decide; None: nothing."""
        examples, unexpected = self.examples, count - good
        if self.enough(count, good):
            return Verdict(holds=True)
        if examples is None or self.mostly is None or good / count > self.mostly - MARGIN:
            return None
        return Verdict(False, unexpected, lambda: examples(min(unexpected, SHOWN)))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What counts decide of an expectation.

    Attributes:
        holds: whether it holds.
        unexpected: so many values are not as expected; 0 where it holds.
        examples: reads some of these.
    """

    holds: bool
    unexpected: int = 0
    examples: Callable[[], list[Any]] = list


@dataclass(frozen=True, slots=True)
class DayProofs:
    """What the counts of each day say of expectations.

    Attributes:
        proofs: each expectation, and how two counts prove it.
        counts: for each day that has rows, two counts for each expectation.
    """

    proofs: Sequence[tuple[Any, Proof]]
    counts: Mapping[date, Sequence[int]]

    def failed(self, day: date) -> list[tuple[Any, int, int]]:
        """The expectations that fail for a day: values, and so many of them unexpected."""
        counts = self.counts.get(day, ())
        pairs = zip(self.proofs, counts[::2], counts[1::2], strict=False)
        return [
            (expectation, count, count - good)
            for (expectation, proof), count, good in pairs
            if proof.fails(count, good)
        ]


def verdicts(frame: Any, expectations: Sequence[Any]) -> list[Verdict | None]:
    """For each expectation whether it holds; None: the counts do not decide.

    Args:
        frame: a DataFrame of Spark or a table of Arrow; is read once, or not at all when there is
            nothing to prove.
        expectations: each with `type` and `arguments`, as Great Expectations names them.
    """
    return _verdicts(_counting(frame), expectations)


def columns_read(expectations: Sequence[Any], day: str | None) -> set[str] | None:
    """The columns that they are about, with that of the day; None: of one it is not known.

    >>> from lakehouse.orchestration.checks.expectations import expect
    >>> columns_read([expect("column_values_to_be_unique", column="id")], None)
    {'id'}
    >>> columns_read([expect("table_row_count_to_be_between", min_value=1)], None)
    """
    names = {day} if day is not None else set()
    for expectation in expectations:
        if expectation.type not in _PROOFS or expectation.arguments.keys() - _KNOWN:
            return None
        arguments = expectation.arguments
        names |= {*arguments.get("column_list", ()), *filter(None, [arguments.get("column")])}
    return names


def proofs_of_days(frame: Any, expectations: Sequence[Any], day: str) -> DayProofs | None:
    """What one aggregate by day proves of expectations.

    Args:
        frame: is read once, twice where an expectation is about all rows together.
        expectations: as for `held`.
        day: the column that tells a row's day, a date or a timestamp.

    Returns:
        None when the counts of days cannot tell for which days an expectation fails: it is of no
        known form, or is about all rows together and not proved for all of them.
    """
    rows = _counting(frame)
    proved = [(expectation, _proof(rows, expectation)) for expectation in expectations]
    shares = [(one, proof) for one, proof in proved if proof and proof.mostly is not None]
    others = [one for one, proof in proved if proof is None or proof.mostly is None]
    if not shares or not all(one and one.holds for one in _verdicts(rows, others)):
        return None
    counts = rows.by_day(day, [wanted for _, proof in shares for wanted in proof.columns])
    return DayProofs(shares, counts)


def _verdicts(rows: Counting, expectations: Sequence[Any]) -> list[Verdict | None]:
    proofs = [_proof(rows, expectation) for expectation in expectations]
    wanted = [column for proof in proofs if proof for column in proof.columns]
    counts = iter(rows.counted(wanted) if wanted else ())
    return [proof.verdict(next(counts), next(counts)) if proof else None for proof in proofs]


def _counting(frame: Any) -> Counting:
    return ArrowRows(frame) if isinstance(frame, pa.Table) else SparkRows(frame)


class SparkRows(Counting):
    """A DataFrame of Spark, counted by jobs."""

    def __init__(self, frame: Any) -> None:
        self._frame, self._f = frame, importlib.import_module("pyspark.sql.functions")
        self.types: Mapping[str, str] = _without_twins(
            (field.name, field.dataType.typeName().partition("(")[0]) for field in frame.schema
        )

    def _column(self, name: str) -> Any:
        return self._f.col(f"`{name.replace('`', '``')}`")

    def rows(self) -> Any:
        return self._f.count(self._f.lit(1))

    def values(self, name: str) -> Any:
        return self._f.count(self._column(name))

    def within(self, name: str, low: float | None, high: float | None) -> Any:
        column, f = self._column(name), self._f
        above = f.lit(True) if low is None else column >= f.lit(low)
        return above if high is None else above & (column <= f.lit(high))

    def among(self, name: str, values: Sequence[str]) -> Any:
        return self._column(name).isin(list(values))

    def meeting(self, condition: Any) -> Any:
        return self._f.count(self._f.when(condition, 1))

    def others(self, name: str, condition: Any, most: int) -> list[Any]:
        values = self._frame.where(~condition).select(self._column(name))
        return [row[0] for row in values.limit(most).collect()]

    def different(self, name: str) -> Any:
        return self._f.count_distinct(self._column(name))

    def combinations(self, names: Sequence[str]) -> Any:
        return self._f.count_distinct(self._f.struct(*map(self._column, names)))

    def counted(self, wanted: Sequence[Any]) -> Sequence[int]:
        return tuple(self._frame.agg(*_numbered(wanted)).first())

    def by_day(self, day: str, wanted: Sequence[Any]) -> Mapping[date, Sequence[int]]:
        distribution = importlib.import_module("lakehouse.spark.writing.distribution")
        days = self._frame.groupBy(distribution.day_of(self._frame, day))
        return {row[0]: tuple(row)[1:] for row in days.agg(*_numbered(wanted)).collect()}


class ArrowRows(Counting):
    """A table of Arrow, counted by Polars.

    NaN is no number, and counts as no value: Great Expectations, which reads frames of pandas, sees
    a null there.
    """

    def __init__(self, table: pa.Table) -> None:
        self._pl: Any = importlib.import_module("polars")
        kinds = _without_twins((field.name, _kind(field.type)) for field in table.schema)
        self.types: Mapping[str, str] = {name: kind for name, kind in kinds.items() if kind}
        # by number, since names may be patterns to Polars
        self._numbers = {name: str(at) for at, name in enumerate(table.column_names)}
        self._table = table.rename_columns([str(at) for at in range(table.num_columns)])

    def _frame(self, wanted: Sequence[Any], *numbers: str) -> Any:
        """Of the columns that are counted: Polars copies texts."""
        counted = {number for expression in wanted for number in expression.meta.root_names()}
        return self._pl.DataFrame(self._table.select(sorted({*counted, *numbers})))

    def _column(self, name: str) -> Any:
        column = self._pl.col(self._numbers[name])
        return column.fill_nan(None) if self.types[name] in INEXACT else column

    def rows(self) -> Any:
        return self._pl.len()

    def values(self, name: str) -> Any:
        return self._column(name).count()

    def within(self, name: str, low: float | None, high: float | None) -> Any:
        column = self._column(name)
        above = self._pl.lit(value=True) if low is None else column >= low
        return above if high is None else above & (column <= high)

    def among(self, name: str, values: Sequence[str]) -> Any:
        return self._column(name).is_in(list(values))

    def meeting(self, condition: Any) -> Any:
        return condition.sum()

    def others(self, name: str, condition: Any, most: int) -> list[Any]:
        values = self._frame([condition]).filter(~condition)
        return cast("list[Any]", values[self._numbers[name]].head(most).to_list())

    def different(self, name: str) -> Any:
        return self._column(name).drop_nulls().n_unique()

    def combinations(self, names: Sequence[str]) -> Any:
        return self._pl.struct([self._numbers[name] for name in names]).n_unique()

    def counted(self, wanted: Sequence[Any]) -> Sequence[int]:
        counts = self._frame(wanted).select(_numbered(wanted)).row(0)
        return cast("tuple[int, ...]", counts)

    def by_day(self, day: str, wanted: Sequence[Any]) -> Mapping[date, Sequence[int]]:
        number = self._numbers[day]
        rows = self._frame(wanted, number)
        days = rows.group_by(self._pl.col(number).cast(self._pl.Date).alias("day"))
        return {row[0]: row[1:] for row in days.agg(_numbered(wanted)).iter_rows()}


def _numbered(wanted: Sequence[Any]) -> list[Any]:
    return [column.alias(str(at)) for at, column in enumerate(wanted)]


def _without_twins(kinds: Iterable[tuple[str, str]]) -> dict[str, str]:
    known = list(kinds)
    counted = Counter(name for name, _ in known)
    return {name: kind for name, kind in known if counted[name] == 1}


def _kind(kind: pa.DataType) -> str:
    """What Spark calls a type of Arrow; empty: none whose values are counted."""
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_decimal(kind):
        return "decimal"
    return _KINDS.get(kind, "")


def _proof(rows: Counting, expectation: Any) -> Proof | None:
    """How an expectation is proved; None for one that is not of a known form."""
    arguments = dict(expectation.arguments)
    prove = _PROOFS.get(expectation.type)
    named = arguments.get("column_list", [arguments.get("column")])
    if prove is None or not named or not all(name in rows.types for name in named):
        return None
    return prove(rows, arguments)


def _not_null(rows: Counting, arguments: dict[str, Any]) -> Proof | None:
    mostly = _mostly(arguments, {"column"})
    if mostly is None:
        return None
    counts = rows.rows(), rows.values(arguments["column"])
    return Proof(counts, mostly, lambda _: [])  # they are all null


def _between(rows: Counting, arguments: dict[str, Any]) -> Proof | None:
    mostly = _mostly(arguments, {"column", "min_value", "max_value"})
    name, bounds = arguments["column"], [arguments.get(it) for it in ("min_value", "max_value")]
    if mostly is None or rows.types[name] not in NUMBERS or bounds == [None, None]:
        return None
    if any(
        isinstance(bound, bool) or not isinstance(bound, int | float | None) for bound in bounds
    ):
        return None
    return _share(rows, name, rows.within(name, *bounds), mostly, explained=_is_plain(*bounds))


def _in_set(rows: Counting, arguments: dict[str, Any]) -> Proof | None:
    mostly = _mostly(arguments, {"column", "value_set"})
    name, values = arguments["column"], arguments.get("value_set")
    if mostly is None or rows.types[name] != "string" or not isinstance(values, list):
        return None
    if not values or not all(isinstance(value, str) for value in values):
        return None
    return _share(rows, name, rows.among(name, values), mostly)


def _unique(rows: Counting, arguments: dict[str, Any]) -> Proof | None:
    name = arguments["column"]
    if arguments.keys() != {"column"} or rows.types[name] not in EXACT:
        return None
    return Proof((rows.values(name), rows.different(name)))


def _compound_unique(rows: Counting, arguments: dict[str, Any]) -> Proof | None:
    names = arguments["column_list"]
    if arguments.keys() != {"column_list"} or any(rows.types[name] not in EXACT for name in names):
        return None
    return Proof((rows.rows(), rows.combinations(names)))


def _share(
    rows: Counting, name: str, condition: Any, mostly: float, *, explained: bool = True
) -> Proof:
    """The share of a column's values that meet a condition, which no null meets."""
    explained = explained and rows.types[name] != "decimal"
    examples = partial(rows.others, name, condition) if explained else None
    return Proof((rows.values(name), rows.meeting(condition)), mostly, examples)


def _is_plain(low: float | None, high: float | None) -> bool:
    """Whether Great Expectations, which makes floats of bounds, finds the same with them."""
    bounds = [bound for bound in (low, high) if bound is not None]
    return bounds == sorted(bounds) and all(abs(bound) <= 2**53 for bound in bounds)


def _mostly(arguments: Mapping[str, Any], known: set[str]) -> float | None:
    """The share that must hold; None when an argument is not known, or is no share."""
    mostly = arguments.get("mostly", 1.0)
    if arguments.keys() - known - {"mostly"} or isinstance(mostly, bool):
        return None
    return float(mostly) if isinstance(mostly, int | float) and 0 < mostly <= 1 else None


_PROOFS: Mapping[str, Callable[[Counting, dict[str, Any]], Proof | None]] = {
    "expect_column_values_to_not_be_null": _not_null,
    "expect_column_values_to_be_between": _between,
    "expect_column_values_to_be_in_set": _in_set,
    "expect_column_values_to_be_unique": _unique,
    "expect_compound_columns_to_be_unique": _compound_unique,
}
_KNOWN = frozenset({"column", "column_list", "min_value", "max_value", "value_set", "mostly"})
_KINDS = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.date32(): "date",
    pa.bool_(): "boolean",
}
