"""A first day with messy feeds: nothing green that lost most of it, no value changed silently."""

from __future__ import annotations

import dataclasses
import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.drift import resolve
from lakehouse.ingestion.ingest import MostRejectedError
from lakehouse.ingestion.reading.formats.parquet_rows import parquet_chunks
from lakehouse.ingestion.reading.typing.observed_kinds import column_kinds
from lakehouse.ingestion.reading.typing.typed_columns import typed_column, without_nanoseconds
from lakehouse.ingestion.reading.typing.value_kinds import inferred
from lakehouse.ingestion.source import Column, EventTime, Source
from lakehouse.ingestion.workers.landing_reader import LandingReader
from tests.orchestration.conftest import Pipe, event, june


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["replace", "increment"])
def test_a_run_that_would_lose_most_publishes_nothing_and_says_why(pipe: Pipe, mode: str) -> None:
    pipe.source = dataclasses.replace(pipe.source, max_rejected=5.0)
    pipe.land("1.jsonl.gz", [event(n, 1) for n in range(1, 20)])
    pipe.index()
    pipe.ingest(june(1))
    before = pipe.rows()
    pipe.land("2.jsonl.gz", [event(n, 1, amount=0.5) for n in range(20, 200)])
    pipe.index()
    with pytest.raises(MostRejectedError) as error:
        pipe.ingest(june(1), mode)
    said = str(error.value)
    assert "180 of 1" in said
    assert "nothing was published" in said
    assert "amount: double does not fit" in said
    assert "2.jsonl.gz line 1" in said
    assert "Column('amount', \"json\")" in said
    assert pipe.rows() == before
    # the lines are there to be seen, and the day still waits
    assert len(pipe.quarantine()) == 180
    pipe.source = dataclasses.replace(pipe.source, max_rejected=100.0)
    pipe.ingest(june(1), mode)
    assert pipe.rows() == before


@pytest.mark.spark
def test_lines_without_an_event_time_are_lost_as_others_are(pipe: Pipe) -> None:
    pipe.source = dataclasses.replace(pipe.source, max_rejected=5.0)
    pipe.land("1.jsonl.gz", [event(n, 1) for n in range(1, 100)])
    pipe.index()
    known = pipe.ledger()
    pipe.land("2.jsonl.gz", [event(n, 1) for n in range(100, 120)])
    undated = [event(n, 1, ts="01.06.2026 12:00") for n in range(70)]
    undated += [event(n, 1, ts=None) for n in range(30)]
    undated += [event(n, 1, ts="1999-06-01T12:00:00") for n in range(20)] + [b"no json"] * 10
    pipe.land("3.jsonl.gz", undated)
    with pytest.raises(MostRejectedError) as error:
        pipe.index()
    said = str(error.value)
    assert "130 of 150 lines (86.7%)" in said
    assert "70 x event time malformed" in said
    assert "30 x event time missing: ts (3.jsonl.gz line 71" in said
    assert "20 x event time out of range" in said
    assert "Change first_day or last_day" in said
    # the lines are there to be seen, and the files are still new
    assert len(pipe.quarantine()) == 130
    assert pipe.ledger() == known
    # mended files are taken, and what was said of them is gone
    pipe.land("3.jsonl.gz", [event(n, 2) for n in range(130)])
    assert (pipe.index().lines, pipe.quarantine()) == (150, [])
    # of few lines half may be lost
    pipe.land("4.jsonl.gz", [event(1, 3), b""])
    assert pipe.index().undated == 1
    pipe.land("5.jsonl.gz", [event(1, 3), b"", b""])
    with pytest.raises(MostRejectedError, match="2 of 3 lines"):
        pipe.index()


def test_a_declared_bucket_column_has_buckets() -> None:
    with pytest.raises(InvalidInputError, match="bucket column 'b' is double"):
        Source(
            name="x",
            event_time=EventTime("ts"),
            first_day=date(2026, 1, 1),
            bucket="b",
            columns=(Column("b", "double"),),
        )


@pytest.mark.parametrize("code", ["007", "+49170", "01.5", "00", "-01", "01e5"])
@pytest.mark.parametrize("numbers", [["1", "2"], ["1.5", "2"], ["1e5"]])
def test_a_code_among_numbers_makes_the_column_text(code: str, numbers: list[str]) -> None:
    texts = pa.array([*numbers * 20, code, None])
    kinds = column_kinds(texts, untyped=True)
    assert kinds["code"] == 1
    assert inferred(kinds) == "string"
    # in a column that was guessed to be a number before, it is a conflict
    for column_type in ("int", "long", "double", "float"):
        array, bad = typed_column(texts, column_type, from_text=True, guessed=True)
        assert "spelled like a code" in bad[len(texts) - 2]
        assert array[len(texts) - 2].as_py() is None
    # declared, it is what the declaration says
    array, bad = typed_column(pa.array(["007"]), "long", from_text=True)
    assert (array.to_pylist(), bad) == ([7], {})


@pytest.mark.parametrize("number", ["0", "7", "-7", "0.5", "10", "1e5", "-0.25"])
def test_a_plain_number_is_no_code(number: str) -> None:
    assert "code" not in column_kinds(pa.array([number]), untyped=True)
    assert typed_column(pa.array([number]), "double", from_text=True, guessed=True)[1] == {}


def test_one_fraction_does_not_make_ids_doubles() -> None:
    ids = [2**60 + n for n in range(999)]
    for values in ([*ids, 1.5], pa.array([str(one) for one in ids] + ["1.5"])):
        kinds = column_kinds(values, untyped=isinstance(values, pa.Array))
        expected = "string" if isinstance(values, pa.Array) else "long"
        assert inferred(kinds) == expected
    assert inferred(column_kinds([1, 2, 2**40, 0.5], untyped=False)) == "double"


@pytest.mark.parametrize("column_type", ["decimal(12,2)", "decimal(38,4)"])
def test_a_decimal_takes_numbers_beside_texts(column_type: str) -> None:
    array, bad = typed_column(["1.20", 1.2, 84.5, 3, -0.01, None], column_type)
    assert bad == {}
    assert array.to_pylist() == [
        None if one is None else Decimal(one) for one in ("1.2", "1.2", "84.5", "3", "-0.01", None)
    ]
    assert set(typed_column([0.12345, float("nan"), float("inf")], column_type)[1]) == {0, 1, 2}


@pytest.mark.parametrize("kind", ["boolean", "double"])
def test_a_bucket_column_that_has_no_buckets_is_kept_as_json(kind: str) -> None:
    source = Source(name="x", event_time=EventTime("ts"), first_day=date(2026, 1, 1), bucket="b")
    drift = resolve(source, (), {"b": {kind: 3}, "c": {kind: 3}})
    assert {one.name: one.type for one in drift.added} == {"b": "json", "c": kind}


def test_int96_is_an_instant() -> None:
    moment = pa.array([datetime(2026, 11, 1, 10, tzinfo=UTC)], pa.timestamp("ns", "UTC"))
    for old in (True, False):
        sink = io.BytesIO()
        pq.write_table(pa.table({"ts": moment}), sink, use_deprecated_int96_timestamps=old)
        (chunk,) = parquet_chunks(pa.PythonFile(io.BytesIO(sink.getvalue()), mode="r"))
        values = chunk.records.column("ts")
        assert values.type.tz == "UTC"
        assert values.cast(pa.timestamp("us", "UTC")).to_pylist() == [moment[0].as_py()]


def test_nanoseconds_of_pandas_are_cut_where_the_source_says_so() -> None:
    stamps = pd.to_datetime(np.array([1_793_527_200_123_456_789]), utc=True)
    times = pa.array(stamps)
    assert times.type.unit == "ns"
    assert list(typed_column(times, "timestamptz")[1]) == [0]
    cut, bad = typed_column(without_nanoseconds(times), "timestamptz")
    assert bad == {}
    assert cut[0].as_py().microsecond == 123_456
    for text in (["2026-11-01T10:00:00.123456789Z"], pa.array(["2026-11-01T10:00:00.123456789Z"])):
        cut, bad = typed_column(without_nanoseconds(text), "timestamptz")
        assert (bad, cut[0].as_py().microsecond) == ({}, 123_456)


@pytest.mark.parametrize(
    ("ahead", "usable"),
    [(timedelta(seconds=3), True), (timedelta(hours=23), True), (timedelta(days=2), False)],
)
def test_clocks_that_are_ahead_lose_no_events(ahead: timedelta, usable: bool) -> None:
    source = Source(name="x", event_time=EventTime("ts"), first_day=date(2026, 1, 1), bucket="b")
    clock = LandingReader("/landing", source, date(2026, 6, 1), {}).clock()
    midnight = datetime(2026, 6, 2, tzinfo=UTC)
    _, bad = clock.instants([(midnight + ahead - timedelta(seconds=1)).isoformat()])
    assert (bad == {}) is usable
