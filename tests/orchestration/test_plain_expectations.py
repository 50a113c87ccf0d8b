"""What one aggregate decides, Great Expectations finds as well, whatever the rows.

Varied: kinds of expectations, their arguments, types of columns, nulls, NaN, doubles, empty frames.
"""

from __future__ import annotations

import math
import os
import random
import re
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

import lakehouse as lh
from lakehouse.orchestration.checks import expectations as checks
from lakehouse.orchestration.checks.expectations import Expectation, Suite, expect, validate
from lakehouse.orchestration.checks.plain_expectations import verdicts

ROUNDS = int(os.environ.get("LAKEHOUSE_EXPECTATIONS", "4"))
COLUMNS = {
    "n": (t.LongType(), [-3, 0, 1, 2, 7, 2**40]),
    "x": (t.DoubleType(), [-1.5, -0.0, 0.0, 2.0, math.nan, math.inf]),
    "s": (t.StringType(), ["a", "b", "A", "", "a "]),
    "odd name": (t.IntegerType(), [1, 2, 3]),
    "flag": (t.BooleanType(), [True, False]),
}
SCHEMA = t.StructType([t.StructField(name, kind) for name, (kind, _) in COLUMNS.items()])


@pytest.fixture(params=["arrow", pytest.param("spark", marks=pytest.mark.spark)])
def frame_of(request):
    """Makes a frame of rows: of Spark, or a table of Arrow, which Polars counts."""
    if request.param == "arrow":
        yield lambda rows, schema: pa.Table.from_arrays(
            [
                pa.array([row[at] for row in rows], to_arrow_type(field.dataType, timezone="UTC"))
                for at, field in enumerate(schema.fields)
            ],
            [field.name for field in schema.fields],
        )
        return
    spark = request.getfixturevalue("spark")
    frames = []

    def made(rows, schema):
        frames.append(spark.createDataFrame(rows, schema).persist())
        return frames[-1]

    yield made
    for frame in frames:
        frame.unpersist()


def struct(**kinds):
    return t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])


def rows_of(rng):
    share = rng.choice([0.0, 0.0, 0.1, 0.5])
    varied = rng.choice([1, 2, 6])
    return [
        tuple(
            None if rng.random() < share else rng.choice(values[:varied])
            for _, values in COLUMNS.values()
        )
        for _ in range(rng.choice([0, 1, 2, 3, 20]))
    ]


def expectation_of(rng):
    name = rng.choice(list(COLUMNS))
    mostly = rng.choice([{}, {}, {"mostly": rng.choice([0.5, 0.9, 0.95, 1.0])}])
    kind = rng.randrange(6)
    if kind == 0:
        return expect("column_values_to_not_be_null", column=name, **mostly)
    if kind == 1:
        bounds = {"min_value": rng.choice([-3, 0, 0.5]), "max_value": rng.choice([2, 7.0, 2**40])}
        bounds.pop(rng.choice(["min_value", "max_value", "none"]), None)
        column = rng.choice(["n", "x", "odd name"])
        strict = rng.choice([{}, {}, {"strict_min": True}]) if "min_value" in bounds else {}
        return expect("column_values_to_be_between", column=column, **bounds, **strict, **mostly)
    if kind == 2:
        values = rng.sample(["a", "b", "A", ""], rng.randrange(1, 5))
        return expect("column_values_to_be_in_set", column="s", value_set=values, **mostly)
    if kind == 3:
        return expect("column_values_to_be_unique", column=name)
    if kind == 4:
        names = rng.sample(["n", "s", "odd name", "flag"], 2)
        return expect("compound_columns_to_be_unique", column_list=names)
    return expect("column_to_exist", column=rng.choice([name, "missing"]))


def as_explained(outcome):
    """A filter of Spark finds no NaN in a cached frame whose other values do not pass it."""
    failures = (re.sub(r"found \[nan(, nan)*\]$", "found None", one) for one in outcome.failures)
    return replace(outcome, failures=tuple(failures))


def decided(frame, expectations):
    return [verdict and verdict.holds for verdict in verdicts(frame, expectations)]


def test_what_is_decided_is_found_by_great_expectations_too(frame_of):
    rng = random.Random(20261123)
    seen = {True: 0, False: 0}
    counted = {True: 0, False: 0}
    for _ in range(ROUNDS):
        frame = frame_of(rows_of(rng), SCHEMA)
        suites = [
            Suite(str(at), tuple(expectation_of(rng) for _ in range(rng.choice([1, 1, 2, 3]))))
            for at in range(8)
        ]
        judged = checks.explain(frame, suites, "rows")
        for one, other in zip(validate(frame, suites, "rows"), judged, strict=True):
            assert one == other
        for outcome in judged:
            seen[outcome.passed] += 1
        for verdict in verdicts(frame, [suite.expectations[0] for suite in suites]):
            if verdict is not None:
                counted[verdict.holds] += 1
    assert min(seen.values()) > ROUNDS
    assert counted[True] > seen[True] / 2
    assert counted[False] > ROUNDS / 2


@pytest.mark.parametrize(
    ("one", "proof"),
    [
        (expect("column_values_to_not_be_null", column="n"), True),
        (expect("column_values_to_not_be_null", column="N"), None),
        (expect("column_values_to_not_be_null", column="missing"), None),
        (expect("column_values_to_not_be_null", column="n", row_condition="n>0"), None),
        (expect("column_values_to_be_between", column="n", min_value=1), True),
        (expect("column_values_to_be_between", column="n", min_value=2), False),
        (expect("column_values_to_be_between", column="n", min_value=1, strict_min=True), None),
        (expect("column_values_to_be_between", column="n", min_value=2, mostly=0.5), None),
        (expect("column_values_to_be_between", column="n", min_value=2, mostly=0.4), True),
        (expect("column_values_to_be_between", column="n"), None),
        (expect("column_values_to_be_in_set", column="s", value_set=[]), None),
        (expect("column_values_to_be_in_set", column="s", value_set=["a"]), True),
        (expect("column_values_to_be_unique", column="n"), True),
        (expect("column_values_to_be_unique", column="s"), None),
        (expect("compound_columns_to_be_unique", column_list=["s", "n"]), True),
        (expect("compound_columns_to_be_unique", column_list=["s", "x"]), None),
    ],
)
def test_only_what_is_known_is_proved(frame_of, one, proof):
    schema = struct(n=t.LongType(), s=t.StringType(), x=t.DoubleType())
    frame = frame_of([(1, "a", 1.0), (2, "a", 1.0)], schema)
    assert decided(frame, [one]) == [proof]


@pytest.mark.parametrize("name", ["a.b`c", "*", "^n$", "^.*$"])
def test_names_that_must_be_quoted_or_are_patterns_are_no_obstacle(frame_of, name):
    frame = frame_of([(1, 1), (2, 1)], struct(**{name: t.LongType(), "n": t.LongType()}))
    unique = [expect("column_values_to_be_unique", column=column) for column in (name, "n")]
    both = expect("compound_columns_to_be_unique", column_list=[name, "n"])
    assert decided(frame, [*unique, both]) == [True, None, True]


def test_what_an_aggregate_decides_does_not_load_great_expectations(frame_of, monkeypatch):
    monkeypatch.setitem(sys.modules, "great_expectations", None)  # an import fails
    frame = frame_of([(1,), (2,)], struct(n=t.LongType()))
    fine = Suite("fine", (expect("column_values_to_be_unique", column="n"),))
    [outcome] = validate(frame, [fine], "rows")
    assert (outcome.passed, outcome.metadata["expectations"]) == (True, 1)
    few = Suite("few", (expect("column_values_to_be_between", column="n", max_value=1),))
    [outcome] = validate(frame, [few], "rows")
    assert outcome.failures == (
        "expect_column_values_to_be_between(column='n', max_value=1.0) found [2]",
    )
    assert outcome.metadata[checks.UNEXPECTED_WHERE] == "n IN (2)"
    bad = Suite("bad", (Expectation("expect_column_values_to_be_null", {"column": "n"}),))
    with pytest.raises(ImportError):
        validate(frame, [fine, bad], "rows")


def test_of_nulls_it_is_shown_how_many_there_are(frame_of):
    frame = frame_of([(1,), *[(None,)] * 21], struct(n=t.LongType()))
    one = Suite("one", (expect("column_values_to_not_be_null", column="n", mostly=0.5),))
    text = "expect_column_values_to_not_be_null(column='n', mostly=0.5) found 21 nulls"
    for judge in (validate, checks.explain):  # by counts, and by Great Expectations
        [outcome] = judge(frame, [one], "rows")
        assert outcome.failures == (text,)
        assert outcome.metadata["unexpected_values"] == 21
        assert outcome.metadata[checks.UNEXPECTED_WHERE] == "n IS NULL"


def test_days_that_fail_are_those_that_great_expectations_fails(frame_of, monkeypatch):
    rng = random.Random(20261124)
    days = [date(2026, 1, 1) + timedelta(n) for n in range(6)]
    schema = t.StructType([*SCHEMA.fields, t.StructField("day", t.DateType())])
    asked = []
    explain = checks.explain
    monkeypatch.setattr(checks, "explain", lambda *args: asked.append(args) or explain(*args))
    found = 0
    for _ in range(ROUNDS):
        # a day may have no row, and a row no day
        rows = [(*row, rng.choice([*days[:-1], None])) for _ in range(5) for row in rows_of(rng)]
        frame = frame_of(rows, schema)
        suite = Suite("shares", tuple(share_of(rng) for _ in range(2)))
        [outcome] = checks.validate_days(frame, [suite], "rows", days, "day")
        bad = {}
        for day in days:
            of_day = frame_of([row for row in rows if row[-1] == day], schema)
            [alone] = explain(of_day, [suite], "rows")
            if not alone.passed:
                bad[day] = alone
        if outcome.passed:
            continue
        if bad:
            assert set(outcome.bad_days) == set(bad)
            for day, one in bad.items():
                assert outcome.bad_days[day].unexpected == one.metadata["unexpected_values"]
            worst = max(bad, key=lambda day: outcome.bad_days[day].unexpected)
            why = as_explained(replace(outcome, failures=(outcome.bad_days[worst].why,)))
            assert why.failures == ("; ".join(bad[worst].failures),)
            found += len(bad)
    assert found > ROUNDS
    assert len(asked) < ROUNDS / 2  # where rounding decides


def share_of(rng):
    """An expectation about shares of a day's values, of a form that is known."""
    kind = rng.randrange(3)
    mostly = rng.choice([{}, {"mostly": rng.choice([0.5, 0.9])}])
    if kind == 0:
        return expect("column_values_to_not_be_null", column=rng.choice(list(COLUMNS)), **mostly)
    if kind == 1:
        values = rng.sample(["a", "b", "A", ""], rng.randrange(1, 5))
        return expect("column_values_to_be_in_set", column="s", value_set=values, **mostly)
    column = rng.choice(["n", "x", "odd name"])
    return expect("column_values_to_be_between", column=column, min_value=0, max_value=3, **mostly)


def test_what_fails_for_days_together_is_found_by_halving(frame_of):
    days = [date(2026, 1, 1) + timedelta(n) for n in range(4)]
    rows = [(n, days[n]) for n in (0, 1, 2, 3)] + [(0, days[1])]
    frame = frame_of(rows, struct(n=t.IntegerType(), day=t.DateType()))
    once = Suite("once", (expect("column_values_to_be_unique", column="n"),))
    [outcome] = checks.validate_days(frame, [once], "rows", days, "day")
    assert set(outcome.bad_days) == {days[0], days[1]}
    both = Suite(
        "both", (*once.expectations, expect("column_values_to_be_between", column="n", max_value=2))
    )
    [outcome] = checks.validate_days(frame, [both], "rows", days, "day")
    assert set(outcome.bad_days) == {days[0], days[1], days[3]}


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize(
    "wanted",
    [
        expect("column_values_to_be_between", column="n", max_value=2),
        expect("column_values_to_be_unique", column="n"),
    ],
    ids=["by counts", "by halving"],
)
def test_days_of_instants_are_those_of_utc(frame_of, wanted, zone):
    days = [date(2026, 1, 1) + timedelta(n) for n in range(3)]
    midnight, late = (datetime(2026, 1, 2, *at, tzinfo=UTC) for at in ((0,), (23, 59, 59, 999999)))
    frame = frame_of(
        [(0, midnight - timedelta(1)), (7, midnight), (7, late), (1, late + timedelta(1))],
        struct(n=t.IntegerType(), at=t.TimestampType()),
    )
    spark = getattr(frame, "sparkSession", None)
    if spark is not None:
        before = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        [outcome] = checks.validate_days(frame, [Suite("one", (wanted,))], "rows", days, "at")
    finally:
        if spark is not None:
            spark.conf.set("spark.sql.session.timeZone", before)
    assert set(outcome.bad_days) == {days[1]}


@pytest.mark.parametrize("name", ["n", "odd name", "order", 'a"b'])
@pytest.mark.parametrize("values", [["ok", "it's", "b;"], [1, -2, 3], [1, None, None]], ids=str)
def test_the_filter_of_unexpected_rows_passes_those_alone(tmp_path, name, values):
    """`lakehouse why` is given it as it stands."""
    rows = pa.table({name: values})
    known = values[:1]
    suite = Suite(
        "s",
        (
            expect("column_values_to_not_be_null", column=name)
            if None in values
            else expect("column_values_to_be_in_set", column=name, value_set=known),
        ),
    )
    where = validate(rows, [suite], "rows")[0].metadata[checks.UNEXPECTED_WHERE]
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    table = lake.create_table("raw.t", rows.schema)
    table.append(rows)
    assert table.scan(str(where)).to_arrow()[name].to_pylist() == values[1:]


def test_the_filter_of_unexpected_rows_leaves_out_what_no_filter_can_say():
    rows = pa.table({"x": [1.0, math.inf, 9.0]})
    suite = Suite("s", (expect("column_values_to_be_between", column="x", max_value=7),))
    [outcome] = validate(rows, [suite], "rows")
    assert outcome.failures[0].endswith("found [inf, 9.0]")
    assert outcome.metadata[checks.UNEXPECTED_WHERE] == "x IN (9.0)"
