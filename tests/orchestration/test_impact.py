"""`lakehouse impact`: the rows that a line went into, beside DuckDB without the line."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError, NotFoundError
from lakehouse.ingestion.reading.formats.record_chunks import REJECTS_SCHEMA
from lakehouse.lake import Lakehouse
from lakehouse.orchestration import SqlModel
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.staleness import RefreshState
from lakehouse.orchestration.lineage.impact import Impact, followed_rows
from lakehouse.spec.metadata.snapshot import REFRESH_STATE, RUN_ID
from tests.orchestration.test_why import (
    MINIMAL,
    QUERIES,
    RAW,
    by_duckdb,
    chain,
    condition,
    no_spark,
    of_lines,
    rows,
    stored,
)
from tests.orchestration.test_why import asked as why

__all__ = ["chain"]


def asked(lake: Lakehouse, derived: dict[str, DerivedTable], name: str, **how: Any) -> Impact:
    return followed_rows(lake, derived, name, session=no_spark, **how)


def reached(found: Impact) -> dict[str, Any]:
    return {one.table: one.rows for one in found.reached}


@pytest.mark.parametrize("query", QUERIES)
def test_what_a_line_went_into(query: str, tmp_path: Path) -> None:
    """Rows that are not there without the line are among them; where lines count, no others."""
    sql = QUERIES[query]
    for seed in count():
        chance = random.Random(f"{query}{seed}")
        tables = {"raw.a": rows(chance, 14, "a.jsonl"), "raw.b": rows(chance, 9, "b.jsonl")}
        if by_duckdb(sql, tables):
            break
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    for name, table in tables.items():
        lake.create_table(name, RAW, partition_by=["day(event_ts)"]).append(table)
    derived = stored(lake, SqlModel(name="marts.x", sql=sql, engine="datafusion"))
    with_it = Counter(by_duckdb(sql, tables))
    every = {(f"{name}.jsonl", line) for name in "ab" for line in range(1, 15)}
    names = lake.load_table("marts.x").schema().column_names
    first = dict(zip(names, min(with_it, key=str), strict=True))
    behind = why(lake, derived, "marts.x", condition(first)).lines
    chosen = [(file[0], some[0]) for (_, file), some in behind.items()]
    assert chosen
    for name, line in [*chosen, ("a", 5), ("b", 2)]:
        file = f"{name}.jsonl"
        found = reached(asked(lake, derived, f"raw.{name}", file=file, lines=[line]))
        assert found.pop(f"raw.{name}")["landing_line"].to_pylist() == [line]
        mine = [tuple(row.values()) for row in found.get("marts.x", pa.table({})).to_pylist()]
        without = Counter(by_duckdb(sql, of_lines(tables, every - {(file, line)})))
        gone = set(with_it - without)
        # without it, a group is counted among others: it took no part in those
        assert gone <= set(mine) or query == "groups of groups"
        assert set(mine) <= set(with_it)
        if query in MINIMAL:
            assert set(mine) <= gone
        if (name, line) in chosen:
            assert tuple(first.values()) in mine


def test_through_two_tables_and_days(chain: Any) -> None:
    lake, derived, given = chain
    marts = lake.load_table("marts.a").scan().to_arrow().to_pylist()
    for row in given.to_pylist()[:12]:
        found = asked(lake, derived, "raw.a", file="2013/a.jsonl", lines=[row["landing_line"]])
        tables = reached(found)
        if row["k"] is None:
            assert set(tables) == {"raw.a"}
            continue
        assert list(tables) == ["raw.a", "clean.a", "marts.a"]
        kept = {name: row[name] for name in ("event_ts", "k", "v", "w")}
        assert all(one == kept for one in tables["clean.a"].to_pylist())
        day = row["event_ts"].date()
        wanted = [one for one in marts if (one["day"], one["k"]) == (day, row["k"])]
        assert tables["marts.a"].to_pylist() == wanted
    whole = reached(asked(lake, derived, "raw.a", where="k = 'b'"))
    assert {one["k"] for one in whole["marts.a"].to_pylist()} == {"b"}
    assert whole["marts.a"].num_rows == sum(one["k"] == "b" for one in marts)


def test_each_table_is_followed_at_the_snapshot_that_was_read(chain: Any) -> None:
    lake, derived, given = chain
    later = rows(random.Random(8), 5, "2013/b.jsonl")
    lake.load_table("raw.a").append(later)
    assert set(reached(asked(lake, derived, "raw.a", file="2013/b.jsonl"))) == {"raw.a"}
    # rows that are not in the raw table any more are not asked about, those that left a trace are
    assert "marts.a" in reached(asked(lake, derived, "raw.a", file="2013/a.jsonl"))
    assert given.num_rows == 60


def test_lines_in_quarantine_and_lines_that_are_nowhere(chain: Any) -> None:
    lake, derived, _ = chain
    bad = {"landing_file": "2013/a.jsonl", "landing_line": 77, "reason": "not JSON"}
    table = lake.create_table("raw.a_quarantine", REJECTS_SCHEMA)
    table.append(pa.Table.from_pylist([bad], REJECTS_SCHEMA))
    found = asked(lake, derived, "raw.a", file="2013/a.jsonl", lines=[77])
    assert (found.quarantined, found.reached) == ({"not JSON": 1}, ())
    with pytest.raises(NotFoundError, match=r"line 78 of 2013/a\.jsonl: no row of raw\.a"):
        asked(lake, derived, "raw.a", file="2013/a.jsonl", lines=[78])
    for wrong in ({}, {"file": "x", "where": "true"}, {"where": "true", "lines": [1]}):
        with pytest.raises(InvalidInputError, match="--file"):
            asked(lake, derived, "raw.a", **wrong)


def test_what_is_not_followed_is_named(chain: Any) -> None:
    lake, derived, _ = chain
    derived |= stored(
        lake,
        SqlModel(
            name="marts.three",
            sql="SELECT k, v FROM clean.a ORDER BY v LIMIT 3",
            engine="duckdb",
            dialect="duckdb",
        ),
        SqlModel(name="marts.last", sql="SELECT k FROM marts.three", engine="datafusion"),
    )
    clean = lake.load_table("clean.a")
    state = RefreshState({"clean.a": clean.metadata.current_snapshot_id})
    made = pa.table({"n": [1]})
    lake.create_table("marts.f", made.schema).append(made, summary={REFRESH_STATE: state.to_json()})
    found = asked(lake, derived, "raw.a", where="k = 'b'", others={"marts.f": ()})
    told = {one.table: (one.rows, one.notes) for one in found.reached}
    assert told["marts.three"] == (
        None,
        ("LIMIT is not followed: it may be in any of the 3 rows",),
    )
    assert told["marts.last"] == (
        None,
        ("rows of marts.three are not known: it may be in any of the 3 rows",),
    )
    assert told["marts.f"][0] is None
    assert found.to_dict()["reached"][-1]["rows"] is None


def test_functions_that_declare_their_keys(chain: Any) -> None:
    """Both ways: rows with the same key, of inputs and of the result."""
    lake, derived, given = chain
    clean = lake.load_table("clean.a")
    state = RefreshState({"clean.a": clean.metadata.current_snapshot_id})
    made = pa.table({"k": ["a", "b", "c"], "n": [1, 2, 3]})
    table = lake.create_table("marts.f", made.schema)
    table.append(made, summary={REFRESH_STATE: state.to_json(), RUN_ID: "run-8"})
    table.append(made.slice(0, 1))
    found = why(lake, derived, "marts.f", "k = 'b'", keys={"marts.f": ("k",)}, run="run-8")
    wanted = {row["landing_line"] for row in given.to_pylist() if row["k"] == "b"}
    assert set(found.lines["raw.a", "2013/a.jsonl"]) == wanted
    assert found.equal is None
    assert found.origin.notes[-1].startswith("computed by a function: it declares that k is")
    other = why(lake, derived, "marts.f", "true", keys={"marts.f": ("n",)})
    assert "clean.a has no n: all its rows, not followed" in other.origin.notes
    line = min(wanted)
    onward = asked(
        lake,
        derived,
        "raw.a",
        file="2013/a.jsonl",
        lines=[line],
        others={"marts.f": ("k",)},
    )
    assert reached(onward)["marts.f"].to_pylist() == [{"k": "b", "n": 2}]
    with pytest.raises(InvalidInputError, match="either its id, or the run"):
        why(lake, derived, "marts.f", "true", run="run-8", snapshot_id=1)
