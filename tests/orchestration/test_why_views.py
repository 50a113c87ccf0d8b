"""`why`, `why-not` and `impact` over views, on branches, and after a run was undone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError, InvalidViewError, NotFoundError
from lakehouse.lake import Lakehouse
from lakehouse.orchestration import MaterializedView, SqlModel
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.staleness import RefreshState
from lakehouse.orchestration.lineage.impact import followed_rows
from lakehouse.orchestration.lineage.view_definitions import with_views
from lakehouse.orchestration.lineage.why_not import explained_absence
from lakehouse.spec.metadata.snapshot import REFRESH_STATE, RUN_ID
from tests.orchestration.test_why import (
    RAW,
    asked,
    by_duckdb,
    condition,
    no_spark,
    of_lines,
    rows,
    stored,
)

COUNTS = "SELECT k, count(*) AS n, max(w) AS `größt` FROM raw.a WHERE v > 0 GROUP BY k"
OF_VIEW = (
    "WITH t AS (SELECT k, n FROM counts) "
    "SELECT t.k, t.n + 1 AS m, a.v FROM t JOIN raw.a AS a ON a.k = t.k AND a.landing_line < 6"
)
WHOLE = OF_VIEW.replace("counts", f"({COUNTS.replace('`', chr(34))}) AS counts")


@pytest.fixture
def lake(tmp_path: Path) -> Lakehouse:
    """A raw table, views of it, and a view of a view."""
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    lake.create_table("raw.a", RAW).append(rows(random.Random(1), 20, "a.jsonl"))
    three = {"k": pa.string(), "n": pa.int64(), "größt": pa.int64()}
    lake.create_view("v.counts", COUNTS, pa.schema(three))
    lake.create_view(
        "v.two", OF_VIEW, pa.schema({"k": pa.string(), "m": pa.int64(), "v": pa.int64()})
    )
    MaterializedView.create(lake, "v.kept", "SELECT k, sum(v) AS s FROM raw.a GROUP BY k")
    return lake


def told(lake: Lakehouse, derived: dict[str, DerivedTable], name: str, where: str) -> str:
    return "\n".join(explained_absence(lake, derived, name, where, session=no_spark).reasons)


@pytest.mark.parametrize(("name", "sql"), [("v.counts", COUNTS), ("v.two", WHOLE)])
def test_a_row_of_a_view_is_computed_again_from_its_lines(
    name: str, sql: str, lake: Lakehouse
) -> None:
    tables = {"raw.a": lake.load_table("raw.a").scan().to_arrow()}
    columns = lake.load_view(name).schema().column_names
    text = sql.replace("`", '"')
    every = by_duckdb(text, tables)
    assert any(row[0] is None for row in every) == (name == "v.counts")
    for values in every[:4]:
        where = condition(dict(zip(columns, values, strict=True)))
        found = asked(lake, {}, name, where)
        assert found.equal, found.difference
        lines = {(file, line) for (_, file), some in found.lines.items() for line in some}
        assert values in by_duckdb(text, of_lines(tables, lines))
        if name == "v.counts":
            for line in lines:
                assert values not in by_duckdb(text, of_lines(tables, lines - {line}))
        with pytest.raises(InvalidInputError, match="ask `lakehouse why"):
            told(lake, {}, name, where)
    assert found.to_dict()["steps"][0]["snapshot_id"] is None


def test_what_a_view_has_not(lake: Lakehouse) -> None:
    assert "COUNT(*) = 77 is not so" in told(lake, {}, "v.counts", "k = 'a' and n = 77")
    assert "raw.a has no row where a.k = 'z" in told(lake, {}, "v.counts", "k = 'z''z'")
    for where, wrong in (("k = 'z'", NotFoundError), ("nothing = 1", InvalidInputError)):
        with pytest.raises(wrong):
            asked(lake, {}, "v.counts", where)
    with pytest.raises(InvalidInputError, match="no column 'x'"):
        asked(lake, {}, "v.counts", "true", column="x")
    with pytest.raises(InvalidInputError, match="no snapshots"):
        asked(lake, {}, "v.counts", "true", run="x")
    with pytest.raises(NotFoundError, match="is a view without rows of its own"):
        followed_rows(lake, {}, "v.counts", where="true", session=no_spark)


def test_views_that_cannot_be_read(lake: Lakehouse) -> None:
    one = pa.schema({"k": pa.string()})
    lake.create_view("v.x", "SELECT k FROM v.y", one)
    lake.create_view("v.y", "SELECT k FROM x", one)
    with pytest.raises(InvalidViewError, match="reads itself"):
        asked(lake, {}, "v.x", "true")
    lake.create_table("raw.none", RAW)
    lake.create_view("v.none", "SELECT k FROM raw.none", one)
    with pytest.raises(NotFoundError, match="a table that it reads has none"):
        asked(lake, {}, "v.none", "true")


def test_a_materialized_view_is_a_derived_table(lake: Lakehouse) -> None:
    with pytest.raises(NotFoundError, match="lakehouse materialized-view refresh"):
        asked(lake, {}, "v.kept", "true")
    MaterializedView(lake, "v.kept").refresh()
    derived = with_views(lake, [])
    given = lake.load_table("raw.a").scan().to_arrow().to_pylist()
    mine = {row["landing_line"] for row in given if row["k"] == "a"}
    found = asked(lake, derived, "v.kept", "k = 'a'")
    assert found.equal
    assert set(found.lines["raw.a", "a.jsonl"]) == mine
    reached = followed_rows(
        lake, derived, "raw.a", file="a.jsonl", lines=[min(mine)], session=no_spark
    ).reached
    (row,) = reached[-1].rows.to_pylist()
    assert (reached[-1].table, row["k"]) == ("v.kept_storage", "a")
    assert "SUM(a.v) = 1000 is not so" in told(lake, derived, "v.kept", "k = 'a' and s = 1000")


def test_on_a_branch_and_after_an_undo(lake: Lakehouse) -> None:
    """Each is asked where it is: the others are named, and a run that was taken back is."""
    derived = stored(
        lake, SqlModel(name="c.n", sql=COUNTS.replace("`größt`", "most"), engine="datafusion")
    )

    def computed_again(where: Lakehouse, run: str) -> dict[Any, int]:
        table = derived["c.n"]
        inputs = {"raw.a": where.load_table("raw.a").current_snapshot().snapshot_id}
        made = table.compute(where, None, inputs, None).read_all()
        summary = {REFRESH_STATE: RefreshState(inputs).to_json(), RUN_ID: run}
        where.load_table("c.n").overwrite(made, summary=summary)
        return {row["k"]: row["n"] for row in made.to_pylist()}

    def lines(where: Lakehouse, **how: Any) -> set[str]:
        found = asked(where, derived, "c.n", "k = 'b'", **how)
        assert found.equal
        return {file for _, file in found.lines}

    before = {row["k"]: row["n"] for row in lake.load_table("c.n").scan().to_arrow().to_pylist()}
    more = rows(random.Random(3), 9, "more.jsonl")
    dev = lake.on_branch("dev")
    dev.load_table("raw.a").append(more)
    after = computed_again(dev, "of-dev")
    assert after["b"] > before["b"]
    assert (lines(lake), lines(dev)) == ({"a.jsonl"}, {"a.jsonl", "more.jsonl"})
    ours, theirs = (f"k = 'b' and n = {one['b']}" for one in (before, after))
    assert "branch dev of c.n has it" in told(lake, derived, "c.n", theirs)
    assert "overwrite of" in told(dev, derived, "c.n", ours)
    with pytest.raises(NotFoundError):
        followed_rows(lake, derived, "raw.a", file="more.jsonl", session=no_spark)
    reached = followed_rows(dev, derived, "raw.a", file="more.jsonl", session=no_spark).reached
    assert [one.table for one in reached] == ["raw.a", "c.n"]

    heads = {
        name: lake.load_table(name).current_snapshot().snapshot_id for name in ("raw.a", "c.n")
    }
    lake.load_table("raw.a").append(rows(random.Random(4), 9, "bad.jsonl"))
    bad = computed_again(lake, "run-bad")
    for name, head in heads.items():
        lake.load_table(name).rollback_to(head)
    assert lines(lake) == {"a.jsonl"}
    assert lines(lake, run="run-bad") == {"a.jsonl", "bad.jsonl"}
    where = f"k = 'b' and n = {bad['b']}"
    assert "of run run-bad of c.n had it, and was taken back" in told(lake, derived, "c.n", where)
    assert "of raw.a had it, and was taken back" in told(
        lake, derived, "raw.a", "landing_file = 'bad.jsonl'"
    )


def test_groupings_that_are_not_followed_are_named(lake: Lakehouse) -> None:
    derived = stored(
        lake,
        SqlModel(
            name="c.r",
            sql="SELECT k, v, count(*) AS n FROM raw.a GROUP BY ROLLUP (k, v)",
            engine="duckdb",
            dialect="duckdb",
        ),
        SqlModel(name="c.k", sql="SELECT k FROM raw.a", engine="datafusion"),
    )
    found = asked(lake, derived, "c.r", "n = 20")
    assert found.equal is None
    assert "GROUP BY of several groupings" in found.origin.notes[0]
    reached = followed_rows(
        lake, derived, "raw.a", file="a.jsonl", lines=[3], session=no_spark
    ).reached
    rows_of = {one.table: one.rows for one in reached}
    assert rows_of["c.r"] is None
    assert rows_of["c.k"].num_rows >= 1
