"""`lakehouse why-not`: rows after each stage, beside DuckDB; what took the row, by name."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError, LakehouseError
from lakehouse.ingestion.landing_ledger import LEDGER_SCHEMA
from lakehouse.ingestion.reading.formats.record_chunks import REJECTS_SCHEMA
from lakehouse.lake import Lakehouse
from lakehouse.orchestration import SqlModel
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.lineage.impact import followed_rows
from lakehouse.orchestration.lineage.why import explained_rows
from lakehouse.orchestration.lineage.why_not import WhyNot, explained_absence
from tests.orchestration.test_why import RAW, chain, no_spark, rows, stored

__all__ = ["chain"]


def asked(lake: Lakehouse, derived: dict[str, DerivedTable], name: str, where: str) -> WhyNot:
    return explained_absence(lake, derived, name, where, session=no_spark)


FILTERS = ["v > 1", "w < 3", "v <> 3", "k IS NOT NULL", "w + v > 2", "landing_line > 4"]


@pytest.mark.parametrize("seed", range(6))
def test_rows_after_each_filter(seed: int, tmp_path: Path) -> None:
    """DuckDB counts what the filters so far leave of the rows asked for."""
    chance = random.Random(seed)
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    given = rows(chance, 12, "a.jsonl")
    lake.create_table("raw.a", RAW).append(given)
    filters = chance.sample(FILTERS, 4)
    sql = f"SELECT k, v, w FROM raw.a WHERE {' AND '.join(filters)}"
    derived = stored(lake, SqlModel(name="marts.x", sql=sql, engine="datafusion"))
    connection = duckdb.connect()
    connection.register("a", given)
    told = set()
    for key in ("a", "b", "c"):
        counts = [
            connection.execute(
                f"SELECT count(*) FROM a WHERE k = '{key}' AND {' AND '.join(['true', *some])}"
            ).fetchone()[0]
            for some in (filters[:n] for n in range(5))
        ]
        if counts[-1]:
            with pytest.raises(InvalidInputError, match="ask `lakehouse why"):
                asked(lake, derived, "marts.x", f"k = '{key}'")
            continue
        found = asked(lake, derived, "marts.x", f"k = '{key}'")
        assert [one.rows for one in found.stages] == counts[: counts.index(0) + 1]
        told.add(counts.index(0))
        if counts[0]:
            assert "WHERE" in found.reasons[-1]
            assert "takes it" in found.reasons[-1]
    connection.close()


CASES = {
    "inner join": (
        "SELECT a.n, b.c FROM raw.l AS a JOIN raw.r AS b ON a.n = b.n",
        "n = 3",
        ["JOIN raw.r AS b ON a.n = b.n takes it", "raw.r has no row where b.n IN (3)"],
    ),
    "left join lets pass": (
        "SELECT a.n, b.c FROM raw.l AS a LEFT JOIN raw.r AS b ON a.n = b.n WHERE b.c > 5",
        "n = 1",
        ["WHERE b.c > 5 takes it"],
    ),
    "anti join": (
        "SELECT a.n FROM raw.l AS a LEFT ANTI JOIN raw.r AS b ON a.n = b.n",
        "n = 1",
        ["there is such a row"],
    ),
    "having": (
        "SELECT n, count(*) AS many FROM raw.l GROUP BY n HAVING count(*) > 1",
        "n = 1",
        ["HAVING COUNT(*) > 1 takes it"],
    ),
    "another value": (
        "SELECT n, count(*) AS many FROM raw.l GROUP BY n",
        "n = 1 and many = 9",
        ["the value is another"],
    ),
    "window": (
        "SELECT n, r FROM (SELECT n, row_number() OVER (PARTITION BY g ORDER BY n) AS r "
        "FROM raw.l) AS t WHERE r = 1",
        "n = 2",
        ["WHERE t.r = 1 takes it"],
    ),
    "within a subquery": (
        "SELECT n FROM (SELECT n, g FROM raw.l WHERE g = 'x') AS t",
        "n = 3",
        ["WHERE l.g = 'x' takes it"],
    ),
    "with": (
        "WITH t AS (SELECT n FROM raw.l WHERE n > 2) SELECT n FROM t",
        "n = 1",
        ["WHERE l.n > 2 takes it"],
    ),
    "both sides of a union": (
        "SELECT n FROM raw.l WHERE n > 5 UNION ALL SELECT n FROM raw.r WHERE c > 5",
        "n = 1",
        ["WHERE l.n > 5 takes it", "WHERE r.c > 5 takes it"],
    ),
    "never there": (
        "SELECT n FROM raw.l",
        "n = 77",
        ["raw.l has no row where l.n = 77", "raw.l has no such row, and no definition"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_took_it(case: str, tmp_path: Path) -> None:
    sql, where, told = CASES[case]
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    left = pa.table({"n": [1, 2, 3], "g": ["x", "x", "y"]})
    right = pa.table({"n": [1, 2], "c": [4, 5]})
    for name, table in (("raw.l", left), ("raw.r", right)):
        lake.create_table(name, table.schema).append(table)
    derived = stored(lake, SqlModel(name="marts.x", sql=sql, engine="datafusion"))
    found = asked(lake, derived, "marts.x", where)
    for text in told:
        assert any(text in one for one in found.reasons), found.reasons
    assert not found.stages[-1].rows
    assert found.to_dict()["reasons"] == list(found.reasons)


def test_down_to_quarantine_and_the_ledger(chain: Any) -> None:
    lake, derived, _ = chain
    record = '{"k": "z", "v": "no number"}'
    bad = {
        "landing_file": "b.jsonl",
        "landing_line": 3,
        "event_day": dt.date(2013, 1, 2),
        "reason": "type conflict",
        "record": record,
    }
    other = {**bad, "landing_line": 4, "record": '{"k": "y"}'}
    of_another_day = {**bad, "landing_line": 5, "event_day": dt.date(2013, 1, 3)}
    of_no_day = {**bad, "landing_line": 6, "event_day": None}
    quarantine = lake.create_table("raw.a_quarantine", REJECTS_SCHEMA)
    rejects = [bad, other, of_another_day, of_no_day]
    quarantine.append(pa.Table.from_pylist(rejects, REJECTS_SCHEMA))
    row = dict.fromkeys(LEDGER_SCHEMA.names, 0)
    row |= {"landing_file": "c.jsonl", "event_day": None, "lines": 8, "pending": True}
    row |= {"replaces": False, "duplicates": 2, "problem": None, "kinds": "{}"}
    ledger = lake.create_table("raw.a_landing", LEDGER_SCHEMA)
    ledger.append(pa.Table.from_pylist([row], LEDGER_SCHEMA))
    found = asked(lake, derived, "marts.a", "day = '2013-01-02' and k = 'z'")
    assert [one.table for one in found.stages] == ["marts.a", "clean.a"]
    assert "b.jsonl line 3 is in quarantine, type conflict" in found.reasons
    told = "of the source on these days, 8 lines are pending, of 1 files such as c.jsonl"
    assert told in found.reasons
    assert "b.jsonl line 6, in quarantine, may be it: type conflict" in found.reasons
    assert not any("line 4" in one or "line 5" in one for one in found.reasons)
    # by the line itself, and by the name of a file
    found = asked(lake, derived, "raw.a", "landing_file = 'b.jsonl' and landing_line = 5")
    assert found.reasons[0] == "b.jsonl line 5 is in quarantine, type conflict"
    found = asked(lake, derived, "raw.a", "landing_file = 'c.jsonl' and landing_line = 9")
    assert found.reasons == (
        "of c.jsonl, 8 lines landed",
        "of c.jsonl, 8 lines are pending, of 1 files such as c.jsonl",
        "of c.jsonl, 2 lines are duplicates of events that landed before",
        "no line with these values is in raw.a or its quarantine: the file has no such line or it "
        "is pending or it repeats an event",
    )
    found = asked(lake, derived, "raw.a", "landing_file = 'd.jsonl'")
    assert found.reasons[0] == "raw.a_landing knows no landing file d.jsonl"
    # a text behind a function of SQL, and what names no value of a record
    found = asked(lake, derived, "raw.a", "trim(k) = 'Z'")
    assert "b.jsonl line 3, in quarantine, may be it: type conflict" in found.reasons
    found = asked(lake, derived, "raw.a", "v > 1000000")
    assert "was not searched" in found.reasons[-1]


def test_or_is_one_part_of_a_condition(chain: Any) -> None:
    """`day = .. and (a or b)` is asked of the input as that, not as `day = .. and a or b`."""
    lake, derived, _ = chain
    found = asked(lake, derived, "marts.a", "day = '2013-01-02' and (k = 'y' or k = 'z')")
    (told,) = [one for one in found.reasons if one.startswith("marts.a: clean.a has no row")]
    assert told.endswith("and (a.k = 'y' OR a.k = 'z')")
    day = "day = '2013-01-05' and (k = 'a' or k = 'b')"
    assert [one.rows for one in asked(lake, derived, "marts.a", day).stages] == [0, 0]


@pytest.mark.parametrize(
    ("name", "where", "told"),
    [
        ("marts.b", "k = 'a'", "there is no table marts.b: did you mean marts.a"),
        ("no.where", "k = 'a'", "there is no table no.where: `lakehouse tables` lists them"),
        ("marts.a", " ", "which rows of marts.a? Its --where is empty"),
        ("marts.a", "kk = 'a'", "marts.a: cannot read the filter .* no column kk"),
        ("marts.a", "day = 'monday'", "marts.a: .*'monday' cannot be compared with day"),
    ],
)
def test_questions_that_cannot_be_answered(name: str, where: str, told: str, chain: Any) -> None:
    lake, derived, _ = chain
    with pytest.raises(LakehouseError, match=told.replace("?", "[?]")):
        asked(lake, derived, name, where)
    with pytest.raises(LakehouseError, match=told.replace("?", "[?]")):
        explained_rows(lake, derived, name, where, session=no_spark)
    with pytest.raises(LakehouseError, match=told.replace("?", "[?]")):
        followed_rows(lake, derived, name, where=where, session=no_spark)


def test_files_that_cannot_matter_are_not_read(
    chain: Any, files_read: dict[str, list[int]]
) -> None:
    lake, derived, _ = chain
    found = asked(lake, derived, "marts.a", "day = '2013-01-02' and k = 'bb'")
    assert found.reasons[-1].startswith("raw.a has no such row")
    assert files_read["raw.a"] == [1]
    assert len(lake.load_table("raw.a").scan().plan().tasks) == 3


def test_it_landed_after_the_table_was_computed(chain: Any) -> None:
    lake, derived, _ = chain
    late = rows(random.Random(1), 1, "late.jsonl").to_pylist()[0] | {"k": "new"}
    lake.load_table("raw.a").append(pa.Table.from_pylist([late], RAW))
    found = asked(lake, derived, "clean.a", "k = 'new'")
    assert any("materialize clean/a" in one for one in found.reasons), found.reasons


def test_it_was_removed_or_not_published(chain: Any) -> None:
    lake, derived, _ = chain
    table = lake.load_table("clean.a")
    table.create_branch("run-1")
    table.delete("k = 'b'")
    found = asked(lake, derived, "clean.a", "k = 'b'")
    assert found.reasons[0].startswith("branch run-1 of clean.a has it: it was not published")
    assert found.reasons[1].startswith("clean.a had it until snapshot")
    assert found.reasons[2].startswith("the SQL of clean.a gives the row")
