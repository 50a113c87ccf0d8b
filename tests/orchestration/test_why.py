"""`lakehouse why`: the lines behind a row, beside brute force over which lines matter."""

from __future__ import annotations

import datetime as dt
import io
import random
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

import lakehouse as lh
from lakehouse.errors import InvalidInputError, NotFoundError
from lakehouse.ingestion.audit import CheckOutcome
from lakehouse.ingestion.reading.formats.record_chunks import REJECTS_SCHEMA
from lakehouse.ingestion.source_tables import event_ts_in
from lakehouse.lake import Lakehouse
from lakehouse.orchestration import SqlModel
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.staleness import RefreshState
from lakehouse.orchestration.checks.expectations import UNEXPECTED_WHERE
from lakehouse.orchestration.lineage import why as lineage_why
from lakehouse.orchestration.lineage.why import Why, explained_rows, offending, row_text
from lakehouse.spec.metadata.snapshot import REFRESH_STATE, RUN_ID
from tests.orchestration import why_cells
from tests.seeds import seeds

RAW = pa.schema(
    [
        pa.field("event_ts", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("k", pa.string()),
        pa.field("v", pa.int64()),
        pa.field("w", pa.int64()),
        pa.field("landing_file", pa.string(), nullable=False),
        pa.field("landing_line", pa.int64(), nullable=False),
    ]
)


def rows(chance: random.Random, count: int, file: str) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "event_ts": dt.datetime(
                    2013, 1, chance.randint(1, 3), chance.randrange(24), tzinfo=dt.UTC
                ),
                "k": chance.choice(["a", "b", "c", None]),
                "v": chance.choice([None, *range(4)]),
                "w": chance.randrange(5),
                "landing_file": file,
                "landing_line": line,
            }
            for line in range(1, count + 1)
        ],
        RAW,
    )


def stored(lake: Lakehouse, *models: SqlModel) -> dict[str, DerivedTable]:
    """Tables as their assets write them: with the snapshots that they were computed from."""
    derived = {}
    for model in models:
        table = derived[model.name] = model.table()
        inputs = {name: lake.load_table(name).metadata.current_snapshot_id for name in table.inputs}
        found = table.compute(lake, None, inputs, None).read_all()
        summary = {REFRESH_STATE: RefreshState(inputs).to_json()}
        lake.create_table(model.name, found.schema).append(found, summary=summary)
    return derived


def no_spark() -> None:
    raise AssertionError("no JVM is needed")


def asked(lake: Lakehouse, derived: dict[str, DerivedTable], table: str, where: str, **how) -> Why:
    return explained_rows(lake, derived, table, where, session=no_spark, **how)


QUERIES = {
    "rows": "SELECT k, v + 1 AS more, w FROM raw.a WHERE v > 0",
    "group": "SELECT k, count(*) AS n, sum(v) AS s, max(w) AS m FROM raw.a GROUP BY k",
    "having": "SELECT k, count(*) AS n FROM raw.a WHERE w < 4 GROUP BY k HAVING count(*) > 2",
    "whole": "SELECT count(*) AS n, sum(v) AS s FROM raw.a",
    "distinct": "SELECT DISTINCT k, v FROM raw.a",
    "union": "SELECT k, v FROM raw.a WHERE v = 1 UNION ALL SELECT k, w AS v FROM raw.b",
    "join": "SELECT a.k, a.v, count(*) AS n FROM raw.a AS a JOIN raw.b AS b ON a.v = b.w "
    "GROUP BY a.k, a.v",
    "left": "SELECT a.k, count(*) AS n, count(b.v) AS m FROM raw.a AS a LEFT JOIN raw.b AS b "
    "ON a.v = b.w AND b.k = 'a' GROUP BY a.k",
    "semi": "SELECT k, v FROM raw.a AS a LEFT SEMI JOIN raw.b AS b ON a.w = b.v",
    "anti": "SELECT k, v FROM raw.a AS a LEFT ANTI JOIN raw.b AS b ON a.w = b.v",
    "in": "SELECT k, w FROM raw.a WHERE w IN (SELECT v FROM raw.b WHERE k = 'b')",
    "with": "WITH t AS (SELECT k, sum(v) AS s FROM raw.a GROUP BY k) "
    "SELECT t.k, t.s, b.w FROM t JOIN raw.b AS b ON b.k = t.k WHERE b.w > 2",
    "with, named twice": "WITH t (a, s) AS (SELECT k, sum(v) FROM raw.a GROUP BY k), "
    "u AS (SELECT a, s FROM t WHERE s > 2) SELECT u.a, t.s FROM u JOIN t ON t.a = u.a",
    "days": "SELECT CAST(event_ts AS DATE) AS day, k, count(*) AS n FROM raw.a WHERE v > 0 "
    "GROUP BY CAST(event_ts AS DATE), k",
    "groups of groups": "SELECT n, count(*) AS keys FROM (SELECT k, count(*) AS n FROM raw.a "
    "GROUP BY k) AS t GROUP BY n",
    "window": "SELECT k, v, w FROM (SELECT k, v, w, row_number() OVER (PARTITION BY k ORDER BY w, "
    "v, landing_line) AS r FROM raw.a) AS t WHERE r = 1",
    "share": "SELECT k, v, sum(v) OVER (PARTITION BY k) AS s FROM raw.a",
    "self": "SELECT x.k, count(*) AS n FROM raw.a AS x JOIN raw.a AS y ON x.k = y.k AND x.w < y.w "
    "GROUP BY x.k",
    "union of groups": "SELECT k, count(*) AS n FROM raw.a GROUP BY k UNION ALL "
    "SELECT k, count(*) AS n FROM raw.b GROUP BY k",
}
MINIMAL = {
    "days",
    "group",
    "having",
    "whole",
    "join",
    "left",
    "groups of groups",
    "self",
    "union of groups",
}
"""Where every line counts: each is in a count of rows."""


def shown(value: object) -> object:
    return str(value) if isinstance(value, dt.date) else value


def condition(row: dict[str, object]) -> str:
    return " and ".join(
        f"{name} is null" if value is None else f"{name} = {shown(value)!r}"
        for name, value in row.items()
    )


def by_duckdb(query: str, tables: dict[str, pa.Table]) -> list[tuple[object, ...]]:
    connection = why_cells.duck()
    connection.execute("DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw")
    for name, table in tables.items():
        connection.register("given", table)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        connection.unregister("given")
    text = query.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
    return connection.execute(text).fetchall()


def of_lines(tables: dict[str, pa.Table], lines: set[tuple[str, int]]) -> dict[str, pa.Table]:
    return {
        name: table.filter(
            pa.array(
                [(row["landing_file"], row["landing_line"]) in lines for row in table.to_pylist()],
                pa.bool_(),
            )
        )
        for name, table in tables.items()
    }


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("query", QUERIES)
def test_the_lines_are_enough_and_each_counts(query: str, seed: int, tmp_path: Path) -> None:
    """DuckDB over the lines alone gives the row; where rows are counted, one less does not."""
    chance = random.Random(f"{query}{seed}")
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    tables = {"raw.a": rows(chance, 14, "a.jsonl"), "raw.b": rows(chance, 9, "b.jsonl")}
    for name, table in tables.items():
        lake.create_table(name, RAW, partition_by=["day(event_ts)"]).append(table)
    sql = QUERIES[query]
    derived = stored(lake, SqlModel(name="marts.x", sql=sql, engine="datafusion"))
    answer = lake.load_table("marts.x").scan().to_arrow().to_pylist()
    assert sorted(map(str, by_duckdb(sql, tables))) == sorted(
        str(tuple(row.values())) for row in answer
    )
    for row in answer[:4]:
        found = asked(lake, derived, "marts.x", condition(row))
        assert found.equal, found.difference
        lines = {(file, line) for (_, file), some in found.lines.items() for line in some}
        wanted = tuple(row.values())
        assert wanted in by_duckdb(sql, of_lines(tables, lines))
        if query in MINIMAL:
            for line in lines:
                less = by_duckdb(sql, of_lines(tables, lines - {line}))
                assert less.count(wanted) < answer.count(row), line


@pytest.fixture
def chain(tmp_path: Path) -> tuple[Lakehouse, dict[str, DerivedTable], pa.Table]:
    """Raw rows, rows without nulls by day, and counts of them."""
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    given = rows(random.Random(5), 60, "2013/a.jsonl")
    lake.create_table("raw.a", RAW, partition_by=["day(event_ts)"]).append(given)
    derived = stored(
        lake,
        SqlModel(
            name="clean.a",
            sql="SELECT event_ts, k, v, w FROM raw.a WHERE k IS NOT NULL",
            engine="datafusion",
            day_column="event_ts",
        ),
        SqlModel(
            name="marts.a",
            sql="SELECT to_date(event_ts) AS day, k, count(*) AS n, count_if(v > 1) AS high, "
            "avg(v) AS mean, max(w) AS most FROM clean.a GROUP BY to_date(event_ts), k",
            engine="datafusion",
            day_column="day",
            day_is_date=True,
        ),
    )
    return lake, derived, given


WHERE = "day = DATE '2013-01-02' and k = 'b'"


def behind(given: pa.Table, keep: Callable[[dict[str, Any]], bool]) -> set[int]:
    return {
        row["landing_line"]
        for row in given.to_pylist()
        if row["event_ts"].day == 2 and row["k"] == "b" and keep(row)
    }


@pytest.mark.parametrize(
    ("column", "keep"),
    [
        (None, lambda row: True),
        ("n", lambda row: True),
        ("high", lambda row: row["v"] is not None and row["v"] > 1),
        ("mean", lambda row: row["v"] is not None),
    ],
)
def test_what_counts_for_a_column_through_two_tables(
    column: str | None, keep: Callable[[dict[str, Any]], bool], chain: Any
) -> None:
    lake, derived, given = chain
    found = asked(lake, derived, "marts.a", WHERE, column=column)
    assert found.equal, found.difference
    assert set(found.lines) == {("raw.a", "2013/a.jsonl")}
    assert set(found.lines["raw.a", "2013/a.jsonl"]) == behind(given, keep)


def test_some_rows_of_each_table_on_the_way_are_shown(chain: Any) -> None:
    lake, derived, given = chain
    plain = asked(lake, derived, "marts.a", WHERE)
    found = replace(plain, sample=2)
    steps = found.to_dict()["steps"]
    assert [one["table"] for one in steps] == ["marts.a", "clean.a", "raw.a"]
    landed = given.to_pylist()
    assert len(steps[-1]["sample"]) == 2
    assert all(row in landed for row in steps[-1]["sample"])
    console = Console(record=True, width=400, file=io.StringIO())
    console.print(found)
    shown = console.export_text()
    for row in steps[-1]["sample"]:
        assert row_text(row) in shown
    assert not any(one["sample"] for one in plain.to_dict()["steps"])


def test_lines_of_the_day_that_became_no_row_are_named(chain: Any) -> None:
    lake, derived, _ = chain
    day = dt.date(2013, 1, 2)
    places = [("b.jsonl", 9, day), ("b.jsonl", 3, day), ("a.jsonl", 7, day + dt.timedelta(1))]
    places += [("c.jsonl", None, day), ("b.jsonl", 11, None)]
    rejects = [
        {"landing_file": file, "landing_line": line, "event_day": day, "reason": "not JSON"}
        for file, line, day in places
    ]
    quarantine = lake.create_table("raw.a_quarantine", REJECTS_SCHEMA)
    quarantine.append(pa.Table.from_pylist(rejects, REJECTS_SCHEMA))
    found = asked(lake, derived, "marts.a", WHERE)
    assert found.quarantined == {"raw.a_quarantine": {"not JSON": 3}}
    assert found.to_dict()["quarantined_lines"] == [
        {"table": "raw.a_quarantine", "file": "b.jsonl", "lines": [3, 9]},
        {"table": "raw.a_quarantine", "file": "c.jsonl", "lines": []},
    ]
    console = Console(width=100, file=io.StringIO())
    console.print(found)
    shown = console.file.getvalue().partition("and so in no row")[2]
    assert re.search(r"b\.jsonl +2 +3, 9", shown), shown


def test_the_greatest_value_has_its_witnesses(chain: Any) -> None:
    lake, derived, given = chain
    found = asked(lake, derived, "marts.a", WHERE, column="most")
    most = max(row["w"] for row in given.to_pylist() if row["landing_line"] in behind(given, bool))
    assert found.equal
    assert set(found.lines["raw.a", "2013/a.jsonl"]) == behind(given, lambda row: row["w"] == most)


def test_files_that_cannot_matter_are_not_read(
    chain: Any, files_read: dict[str, list[int]]
) -> None:
    lake, derived, _ = chain
    asked(lake, derived, "marts.a", WHERE)
    assert files_read["raw.a"] == [1]
    assert len(lake.load_table("raw.a").scan().plan().tasks) == 3


def test_rows_that_the_definition_does_not_give_are_not_proved(chain: Any) -> None:
    lake, derived, _ = chain
    table = lake.load_table("marts.a")
    before = table.scan().to_arrow().to_pylist()
    table.update({"n": "n + 1"}, WHERE)
    found = asked(lake, derived, "marts.a", WHERE)
    assert found.equal is False
    wanted = next(row["n"] for row in before if row["k"] == "b" and row["day"].day == 2)
    assert f"'n': {wanted}" in found.difference
    assert f"'n': {wanted + 1}" in found.difference
    assert found.verdict().startswith("NOT proved")


def test_an_expired_input_is_read_as_it_is_and_said(chain: Any) -> None:
    lake, derived, _ = chain
    table = lake.load_table("clean.a")
    table.append(table.scan("w < 2 and event_ts < '2013-01-02'").to_arrow())
    lake.load_table("clean.a").expire_snapshots(retain_last=1, older_than="2100-01-01")
    found = asked(lake, derived, "marts.a", WHERE)
    (clean,) = found.origin.inputs
    assert found.equal
    assert re.fullmatch(r"clean.a as it is now: \d+ expired", found.origin.notes[0])
    assert clean.notes == ("raw.a as it is now: nobody recorded which snapshot was read",)
    assert clean.snapshot_id == lake.load_table("clean.a").metadata.current_snapshot_id


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("SELECT k, v FROM raw.a ORDER BY v LIMIT 3", "LIMIT"),
        ("SELECT k, v FROM raw.a EXCEPT SELECT k, w FROM raw.b", "EXCEPT"),
        ("SELECT k FROM raw.a AS a WHERE EXISTS (SELECT 1 FROM raw.b AS b WHERE b.k = a.k)",
         "a subquery that reads columns"),
    ],
)  # fmt: skip
def test_what_is_not_followed_is_named_and_never_left_out(
    sql: str, named: str, tmp_path: Path
) -> None:
    chance = random.Random(1)
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    for name in ("raw.a", "raw.b"):
        lake.create_table(name, RAW).append(rows(chance, 9, f"{name}.jsonl"))
    model = SqlModel(name="marts.x", sql=sql, engine="duckdb", dialect="duckdb")
    found = asked(lake, stored(lake, model), "marts.x", "true")
    assert found.equal is None
    assert named in found.origin.notes[0]
    assert found.verdict().startswith("not proved")
    # all that it may have read
    assert {place[1] for place in found.lines} >= {"raw.a.jsonl"}
    assert set(found.lines["raw.a", "raw.a.jsonl"]) == set(range(1, 10))


def test_a_function_is_named_with_what_it_read(chain: Any) -> None:
    lake, derived, _ = chain
    clean = lake.load_table("clean.a")
    state = RefreshState({"clean.a": clean.metadata.current_snapshot_id})
    given = pa.table({"n": [1, 2]})
    table = lake.create_table("marts.f", given.schema)
    for row in (given.slice(0, 1), given.slice(1)):
        table.append(row, summary={REFRESH_STATE: state.to_json(), RUN_ID: "run-7"})
    table.refresh().compact(lh.CompactionOptions(min_input_files=2))
    found = asked(lake, derived, "marts.f", "n = 1")
    assert found.equal is None
    assert found.verdict().startswith("not proved")
    assert found.origin.notes == (
        "computed by a function of all their rows, which are not followed",
    )
    # who compacted changed no row
    assert found.origin.run_id == "run-7"
    assert [(one.table, one.count) for one in found.origin.inputs] == [
        ("clean.a", clean.scan().count())
    ]
    raw = asked(lake, derived, "raw.a", "landing_line = 3")
    assert raw.equal
    assert raw.verdict() == "these rows are what landed"
    assert raw.lines == {("raw.a", "2013/a.jsonl"): (3,)}


def test_values_that_no_filter_can_say(tmp_path: Path) -> None:
    """Bytes and times of day are compared by the query alone."""
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    given = pa.table(
        {
            "b": [b"\x00'", b"\xff", b"\xff"],
            "t": [dt.time(1), dt.time(2), dt.time(2)],
            "s": ["it's", 'a"\\', 'a"\\'],
            "d": [Decimal("1.50"), Decimal("-2.00"), Decimal("-2.00")],
            "seen": pa.array([-7, 4_102_444_800_000_000, 4_102_444_800_000_000]).cast(
                pa.timestamp("us")
            ),
            "landing_file": ["f"] * 3,
            "landing_line": [1, 2, 3],
        }
    )
    lake.create_table("raw.v", given.schema).append(given)
    names = "b, t, s, d, seen"
    sql = f"SELECT {names}, count(*) AS n FROM raw.v GROUP BY {names}"
    derived = stored(lake, SqlModel(name="marts.v", sql=sql, engine="duckdb", dialect="duckdb"))
    for n, lines in ((1, (1,)), (2, (2, 3))):
        found = asked(lake, derived, "marts.v", f"n = {n}")
        assert found.equal, found.difference
        assert found.lines == {("raw.v", "f"): lines}


@pytest.mark.spark
def test_sql_that_is_not_translated_is_followed_by_spark(tmp_path: Path, spark: Any) -> None:
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    given = rows(random.Random(2), 30, "a.jsonl")
    lake.create_table("raw.a", RAW).append(given)
    sql = "SELECT k, round(avg(v), 1) AS r, count(*) AS n FROM raw.a GROUP BY k"
    table = SqlModel(name="marts.r", sql=sql).table()
    inputs = {"raw.a": lake.load_table("raw.a").metadata.current_snapshot_id}
    computed = table.compute(lake, spark, inputs, None).toArrow()
    summary = {REFRESH_STATE: RefreshState(inputs).to_json()}
    lake.create_table("marts.r", computed.schema).append(computed, summary=summary)
    found = explained_rows(lake, {"marts.r": table}, "marts.r", "k = 'b'", session=lambda: spark)
    assert found.equal, found.difference
    wanted = tuple(row["landing_line"] for row in given.to_pylist() if row["k"] == "b")
    assert found.lines == {("raw.a", "a.jsonl"): wanted}


def test_questions_that_cannot_be_asked(chain: Any) -> None:
    lake, derived, _ = chain
    with pytest.raises(NotFoundError, match=r"no row of marts\.a at snapshot \d+ is k = 'z'"):
        asked(lake, derived, "marts.a", "k = 'z'")
    with pytest.raises(InvalidInputError, match=r"has no column 'x'; columns: day, k, n"):
        asked(lake, derived, "marts.a", WHERE, column="x")
    numbers = pa.table({"n": range(10_001)})
    lake.create_table("raw.n", numbers.schema).append(numbers)
    with pytest.raises(InvalidInputError, match=r"10,001 rows of raw\.n are true: at most 10,000"):
        asked(lake, derived, "raw.n", "true")


def test_the_lines_of_a_check_of_raw_rows_are_those_of_its_days(tmp_path: Path) -> None:
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    given = rows(random.Random(4), 20, "a.jsonl")
    snapshot = lake.create_table("raw.a", RAW).append(given).snapshot
    outcome = CheckOutcome("s", passed=False, blocking=True, metadata={UNEXPECTED_WHERE: "v = 1"})
    by_day = {
        day: [
            row["landing_line"]
            for row in given.to_pylist()
            if row["v"] == 1 and row["event_ts"].date() == day
        ]
        for day in (dt.date(2013, 1, day) for day in (1, 2, 3))
    }
    assert sum(map(bool, by_day.values())) > 1, "the filter alone would show other days"
    for day, lines in by_day.items():
        if lines:
            where = event_ts_in([day])
            shown = offending(lake, {}, "raw.a", snapshot.snapshot_id, outcome, no_spark, where)
            numbers = shown["landing lines"].removeprefix("a.jsonl: ").split(", ")
            ends = [list(map(int, span.split("-"))) for span in numbers]
            assert [n for end in ends for n in range(end[0], end[-1] + 1)] == lines


def test_a_check_whose_rows_cannot_be_explained_has_failed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The step goes on: its table may be published by then."""

    def broken(*_: object, **__: object) -> None:
        raise pa.ArrowInvalid("of an engine")

    monkeypatch.setattr(lineage_why, "explained_rows", broken)
    outcome = CheckOutcome("s", passed=False, blocking=False, metadata={UNEXPECTED_WHERE: "k = 1"})
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    shown = offending(lake, {}, "raw.e", 7, outcome, no_spark)
    assert shown["explain"] == 'lakehouse why raw.e --snapshot 7 --where "k = 1"'
    assert "of an engine" in shown["landing lines"]
    assert "cannot be explained" in caplog.text


@pytest.mark.parametrize("seed", seeds(1, 26))
def test_cells_of_generated_pipelines(seed: int) -> None:
    """`python -m tests.orchestration.why_cells` tries more."""
    for _, world in why_cells.worlds(range(seed, seed + 1)):
        for row, column in islice(why_cells.cells(world), 5):
            why_cells.check(world, row, column)


def test_what_counts_for_nothing_is_explained_by_all_of_the_group(chain: Any) -> None:
    """A count of 0 and a sum of nulls have rows: without them there would be no group."""
    lake, _, given = chain
    derived = stored(
        lake,
        SqlModel(
            name="marts.z",
            sql="SELECT k, count_if(v > 9) AS n, sum(nullif(v, v)) AS s, count(*) AS rows "
            "FROM raw.a GROUP BY k HAVING count(*) > 1",
            engine="datafusion",
        ),
        SqlModel(
            name="marts.one",
            sql="SELECT count_if(v > 9) AS n, sum(v) AS s FROM raw.a",
            engine="datafusion",
        ),
    )
    b = {row["landing_line"] for row in given.to_pylist() if row["k"] == "b"}
    for column in ("n", "s", "rows"):
        found = asked(lake, derived, "marts.z", "k = 'b'", column=column)
        assert found.equal, found.difference
        assert set(found.lines["raw.a", "2013/a.jsonl"]) == b
    counted = {row["landing_line"] for row in given.to_pylist() if row["v"] is not None}
    for column, lines in (("n", set(range(1, 61))), ("s", counted)):
        found = asked(lake, derived, "marts.one", "true", column=column)
        assert found.equal, found.difference
        assert set(found.lines["raw.a", "2013/a.jsonl"]) == lines
