"""Great Expectations on frames of Spark, or on rows in memory, declared as data."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from lakehouse.expressions.filter_text import quoted
from lakehouse.ingestion.audit import BadDay, CheckOutcome
from lakehouse.orchestration.checks.bad_days import bad_days_of
from lakehouse.orchestration.checks.plain_expectations import held, proofs_of_days

UNEXPECTED_WHERE = "unexpected_where"
"""Metadata of a failed check: a filter that passes rows which it did not expect."""
_LISTED = 20


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

    One aggregate proves what holds plainly; Great Expectations judges the rest.

    Args:
        frame: of Spark, which should be persisted by the caller, since each expectation may read
            it; or a table of Arrow, judged as a frame of pandas, in which a NaN is a null.
        suites: what must hold.
        where: names the data in messages.
    """
    asked = [expectation for suite in suites for expectation in suite.expectations]
    proved = iter(held(frame, asked))
    plain = [all(list(islice(proved, len(suite.expectations)))) for suite in suites]
    doubtful = [suite for suite, proof in zip(suites, plain, strict=True) if not proof]
    explained = iter(explain(frame, doubtful, where) if doubtful else ())
    return [
        _check_outcome(suite, [], 0) if proof else next(explained)
        for suite, proof in zip(suites, plain, strict=True)
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
        functions = importlib.import_module("pyspark.sql.functions")
        return frame.where(functions.to_date(column).isin(list(days)))
    return frame.filter(pc.is_in(pc.cast(frame[column], pa.date32()), pa.array(days, pa.date32())))


def _nullable(kind: pa.DataType) -> Any:
    """The type of pandas that holds every value and null; None: the usual one does."""
    pandas = importlib.import_module("pandas")
    return {
        pa.int32(): pandas.Int32Dtype(),
        pa.int64(): pandas.Int64Dtype(),
        pa.bool_(): pandas.BooleanDtype(),
    }.get(kind)


def _outcome(batch: Any, suite: Suite, gx: Any) -> CheckOutcome:
    expectations = [{"type": e.type, "kwargs": dict(e.arguments)} for e in suite.expectations]
    result = batch.validate(gx.ExpectationSuite(name=suite.name, expectations=expectations))
    failures: list[str] = []
    unexpected = 0
    where: list[str] = []
    for judged in result.results:
        if not judged.success:
            failures.append(_failure(judged))
            unexpected += int(judged.result.get("unexpected_count") or 0)
            where += _where(judged.expectation_config, judged.result)
    return _check_outcome(suite, failures, unexpected, " or ".join(dict.fromkeys(where)))


def _where(asked: Any, result: Mapping[str, Any]) -> list[str]:
    """Rows that an expectation on values of a column did not expect, as a filter; a few of them."""
    named = asked.kwargs.get("column")
    if named is None or not str(asked.type).startswith("expect_column_values"):
        return []
    column = quoted((named,))
    if str(asked.type) == "expect_column_values_to_not_be_null":
        return [f"{column} IS NULL"]
    unexpected = result.get("partial_unexpected_list") or ()
    # numpy's own where the column of a frame of pandas is nullable
    values = list(
        dict.fromkeys(value.item() if hasattr(value, "item") else value for value in unexpected)
    )
    if not values or not {type(value) for value in values} <= {str, int, float, date}:
        return []
    written = [exp.convert(value).sql() for value in values]
    return [f"{column} IN ({', '.join(written[:_LISTED])})"]


def _check_outcome(
    suite: Suite, failures: Sequence[str], unexpected: int, where: str = ""
) -> CheckOutcome:
    return CheckOutcome(
        name=suite.name,
        passed=not failures,
        blocking=suite.blocking,
        failures=tuple(failures),
        metadata={
            "expectations": len(suite.expectations),
            "failed_expectations": len(failures),
            "unexpected_values": unexpected,
            **({UNEXPECTED_WHERE: where} if where else {}),
        },
    )


def _failure(judged: Any) -> str:
    arguments = {k: v for k, v in judged.expectation_config.kwargs.items() if k != "batch_id"}
    observed = judged.result.get("partial_unexpected_list") or judged.result.get("observed_value")
    error = next(
        (
            e.get("exception_message")
            for e in _exceptions(judged.exception_info)
            if e.get("raised_exception")
        ),
        None,
    )
    return (
        f"{_called(judged.expectation_config.type, arguments)} found {str(error or observed)[:200]}"
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
