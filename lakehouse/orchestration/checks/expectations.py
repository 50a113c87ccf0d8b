"""Great Expectations on frames of Spark, or on rows in memory, declared as data."""

from __future__ import annotations

import importlib
import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from lakehouse.expressions.filter_text import quoted
from lakehouse.ingestion.audit import BadDay, CheckOutcome
from lakehouse.orchestration.checks.bad_days import bad_days_of
from lakehouse.orchestration.checks.plain_expectations import (
    SHOWN,
    Verdict,
    proofs_of_days,
    verdicts,
)

UNEXPECTED_WHERE = "unexpected_where"
"""Metadata of a failed check: a filter that passes rows which it did not expect."""
_FIRST = ("column", "mostly", "min_value", "max_value")
_NOT_NULL = "expect_column_values_to_not_be_null"


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expectation: its Great Expectations name (`expect_column_to_exist`) and its arguments."""

    type: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Suite:
    """Expectations that are checked, and reported, together.

    Attributes:
        name: of the asset check.
        expectations: all must hold.
        blocking: a failure keeps the data from being published; otherwise it is a warning.
        description: for people.
    """

    name: str
    expectations: tuple[Expectation, ...]
    blocking: bool = True
    description: str = ""


def expect(type_: str, **arguments: object) -> Expectation:
    """Shorthand: `expect("column_values_to_not_be_null", column="event_ts")`."""
    return Expectation(f"expect_{type_}", arguments)


def validate(frame: Any, suites: Sequence[Suite], where: str) -> list[CheckOutcome]:
    """Check rows against suites.

    One aggregate decides most; Great Expectations judges a suite of which it leaves something open.

    Args:
        frame: of Spark, which should be persisted by the caller, since it is read again where
            something fails; or a table of Arrow, in which a NaN is a null.
        suites: what must hold.
        where: names the data in messages.
    """
    asked = [expectation for suite in suites for expectation in suite.expectations]
    decided = iter(verdicts(frame, asked))
    by_suite = [(suite, list(islice(decided, len(suite.expectations)))) for suite in suites]
    doubtful = [suite for suite, decisions in by_suite if None in decisions]
    explained = iter(explain(frame, doubtful, where) if doubtful else ())
    return [
        next(explained) if None in decisions else _check_outcome(suite, _failed(suite, decisions))
        for suite, decisions in by_suite
    ]


def explain(frame: Any, suites: Sequence[Suite], where: str) -> list[CheckOutcome]:
    """The same by Great Expectations alone, which says what is unexpected."""
    with warnings.catch_warnings():
        # it uses deprecated names of the libraries it builds on, which is nothing that its callers
        # could change
        warnings.simplefilter("ignore", DeprecationWarning)
        # imported late: it costs seconds, and only runs that find something pay
        gx = importlib.import_module("great_expectations")
        logging.getLogger("great_expectations").setLevel(logging.WARNING)
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        sources = context.data_sources
        source = (
            sources.add_spark("spark", persist=False)
            if _is_spark(frame)
            else sources.add_pandas("pandas")
        )
        asset = source.add_dataframe_asset(where)
        rows = frame if _is_spark(frame) else frame.to_pandas(types_mapper=_nullable)
        batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": rows})
        return [_outcome(batch, suite, gx) for suite in suites]


def validate_days(
    frame: Any, suites: Sequence[Suite], where: str, days: Sequence[date], column: str
) -> list[CheckOutcome]:
    """The same, with the days that a suite fails for.

    Args:
        frame: as for `validate`.
        suites: what must hold.
        where: names the data in messages.
        days: that the frame has.
        column: tells the day, a date or a timestamp.
    """
    by_name = {suite.name: suite for suite in suites}

    def with_days(outcome: CheckOutcome) -> CheckOutcome:
        suite = by_name[outcome.name]
        return bad_days_of(
            outcome,
            days,
            lambda chosen: validate(_of_days(frame, column, chosen), [suite], where)[0],
            None if outcome.passed else _suspects(frame, suite, days, column),
        )

    return [with_days(result) for result in validate(frame, suites, where)]


def _suspects(
    frame: Any, suite: Suite, days: Sequence[date], column: str
) -> dict[date, BadDay] | None:
    """The days that a suite fails for; None where counts of days cannot tell them."""
    proofs = proofs_of_days(frame, suite.expectations, column)
    if proofs is None:
        return None
    failed = {day: proofs.failed(day) for day in days}
    return {
        day: BadDay(
            sum(unexpected for _, _, unexpected in of_day),
            "; ".join(
                f"{_called(expectation.type, expectation.arguments)}: {unexpected:,} of {count:,} "
                "unexpected"
                for expectation, count, unexpected in of_day
            )[:1000],
        )
        for day, of_day in failed.items()
        if of_day
    }


def _is_spark(frame: Any) -> bool:
    return hasattr(frame, "sparkSession")


def _of_days(frame: Any, column: str, days: Sequence[date]) -> Any:
    """The frame's rows of these days."""
    if _is_spark(frame):
        distribution = importlib.import_module("lakehouse.spark.writing.distribution")
        return frame.where(distribution.day_of(frame, column).isin(list(days)))
    return frame.filter(pc.is_in(pc.cast(frame[column], pa.date32()), pa.array(days, pa.date32())))


def _nullable(kind: pa.DataType) -> Any:
    """The type of pandas that holds every value and null; None: the usual one does."""
    pandas = importlib.import_module("pandas")
    return {
        pa.int32(): pandas.Int32Dtype(),
        pa.int64(): pandas.Int64Dtype(),
        pa.bool_(): pandas.BooleanDtype(),
    }.get(kind)


@dataclass(frozen=True, slots=True)
class _Failure:
    """An expectation that does not hold.

    Attributes:
        expectation: with the arguments that are shown.
        unexpected: so many values are not as expected.
        values: some of these.
        seen: what is shown in place of them, where there are none.
    """

    expectation: Expectation
    unexpected: int
    values: Sequence[object]
    seen: object = None

    def __str__(self) -> str:
        called = _called(self.expectation.type, self.expectation.arguments)
        if self.expectation.type == _NOT_NULL and self.unexpected:
            return f"{called} found {self.unexpected:,} null{'s' * (self.unexpected > 1)}"
        return f"{called} found {str(self.values or self.seen)[:200]}"


def _failed(suite: Suite, decisions: Sequence[Verdict | None]) -> list[_Failure]:
    return [
        _Failure(_as_shown(expectation), verdict.unexpected, verdict.examples())
        for expectation, verdict in zip(suite.expectations, decisions, strict=True)
        if verdict is not None and not verdict.holds
    ]


def _as_shown(expectation: Expectation) -> Expectation:
    """As Great Expectations shows it: its order, bounds as floats, nothing that is a default."""
    given = dict(expectation.arguments)
    ordered = {name: given.pop(name) for name in _FIRST if name in given} | given
    shown = {
        name: float(value) if name.endswith("_value") and isinstance(value, int) else value
        for name, value in ordered.items()
        if value is not None and (name, value) != ("mostly", 1)
    }
    return replace(expectation, arguments=shown)


def _outcome(batch: Any, suite: Suite, gx: Any) -> CheckOutcome:
    expectations = [{"type": e.type, "kwargs": dict(e.arguments)} for e in suite.expectations]
    result = batch.validate(gx.ExpectationSuite(name=suite.name, expectations=expectations))
    return _check_outcome(
        suite, [_explained(judged) for judged in result.results if not judged.success]
    )


def _explained(judged: Any) -> _Failure:
    config, result = judged.expectation_config, judged.result
    arguments = {k: v for k, v in config.kwargs.items() if k != "batch_id"}
    error = next(
        (
            e.get("exception_message")
            for e in _exceptions(judged.exception_info)
            if e.get("raised_exception")
        ),
        None,
    )
    # numpy's and pandas' own where the column of a frame of pandas is nullable
    values = [
        value.item() if hasattr(value, "item") else value
        for value in result.get("partial_unexpected_list") or ()
    ]
    return _Failure(
        Expectation(str(config.type), arguments),
        int(result.get("unexpected_count") or 0),
        () if error else values,
        error or result.get("observed_value"),
    )


def _where(failure: _Failure) -> list[str]:
    """Rows that an expectation on values of a column did not expect, as a filter; a few of them."""
    kind, named = failure.expectation.type, failure.expectation.arguments.get("column")
    if named is None or not kind.startswith("expect_column_values"):
        return []
    column = quoted((str(named),))
    if kind == _NOT_NULL:
        return [f"{column} IS NULL"]
    values = [
        value
        for value in dict.fromkeys(failure.values)
        if not isinstance(value, float) or math.isfinite(value)
    ]
    if not values or not {type(value) for value in values} <= {str, int, float, date}:
        return []
    written = [exp.convert(value).sql() for value in values]
    return [f"{column} IN ({', '.join(written[:SHOWN])})"]


def _check_outcome(suite: Suite, failures: Sequence[_Failure]) -> CheckOutcome:
    where = " or ".join(dict.fromkeys(text for failure in failures for text in _where(failure)))
    return CheckOutcome(
        name=suite.name,
        passed=not failures,
        blocking=suite.blocking,
        failures=tuple(map(str, failures)),
        metadata={
            "expectations": len(suite.expectations),
            "failed_expectations": len(failures),
            "unexpected_values": sum(failure.unexpected for failure in failures),
            **({UNEXPECTED_WHERE: where} if where else {}),
        },
    )


def _called(kind: str, arguments: Mapping[str, object]) -> str:
    return f"{kind}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _exceptions(info: Any) -> list[Mapping[str, Any]]:
    if not isinstance(info, Mapping):
        return []
    return (
        [info]
        if "raised_exception" in info
        else [e for e in info.values() if isinstance(e, Mapping)]
    )
