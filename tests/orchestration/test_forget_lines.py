"""`lakehouse forget --file`: rows of landing lines, beside DuckDB without the lines."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakehouse as lh
from lakehouse.cli import app
from lakehouse.errors import InvalidInputError, MaintenanceRefusedError, NotFoundError
from lakehouse.ingestion.reading.formats.record_chunks import REJECTS_SCHEMA
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.backup import backup, restore
from lakehouse.orchestration import SqlModel
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.staleness import RefreshState
from lakehouse.orchestration.lineage.forget import FORGOTTEN, Forgetting, with_backups
from lakehouse.orchestration.lineage.forget import forgotten as by_value
from lakehouse.orchestration.lineage.forget_lines import forget_lines, forgotten_lines
from lakehouse.orchestration.lineage.value_traces import LandedLines
from lakehouse.spec.metadata.snapshot import REFRESH_STATE
from lakehouse.table import Table
from tests.orchestration.test_forget import census
from tests.orchestration.test_why import QUERIES, RAW, by_duckdb, no_spark, of_lines, rows, stored

PEOPLE = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("city", pa.string()),
        pa.field("n", pa.float64()),
        pa.field("landing_file", pa.string(), nullable=False),
        pa.field("landing_line", pa.int64(), nullable=False),
    ]
)
NAMES = ["Zoë O'Brien-Lindqvist", "Berta Nilsson", None, 'Carl "the" Andersson', "Doris Ek"]
FILE = "2026/d é'1.jsonl"
ROW_BY_ROW = {"rows", "union", "semi", "anti", "in"}
"""Queries of `QUERIES` whose rows are of one line of the first table each."""


def forgotten(
    lake: Lakehouse, derived: dict[str, DerivedTable], file: str, *lines: int, **how: Any
) -> Forgetting:
    landed = LandedLines(file, frozenset(lines))
    return forgotten_lines(lake, derived, "raw.p", landed, session=no_spark, **how)


@pytest.fixture
def people(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[Lakehouse, dict[str, DerivedTable]]:
    """Names of two deliveries, one of them in quarantine, the same in capitals, and counts."""
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    properties = {"write.delete.mode": getattr(request, "param", "merge-on-read")}
    table = lake.create_table("raw.p", PEOPLE, properties=properties)
    for file in (FILE, "other.jsonl"):
        given = [
            {"name": name and f"{name} of {file[:5]}", "city": "Lund", "n": float("nan"),
             "landing_file": file, "landing_line": number}
            for number, name in enumerate(NAMES, 1)
        ]  # fmt: skip
        table.append(pa.Table.from_pylist(given, PEOPLE))
    table.compact(lh.CompactionOptions(rewrite_all=True))
    bad = [
        {"landing_file": FILE, "landing_line": 9, "reason": "no JSON", "record": "{Erik Ohlsson"},
        {"landing_file": "other.jsonl", "landing_line": 9, "reason": "no JSON", "record": "{Fia"},
        {"landing_file": FILE, "landing_line": None, "reason": "torn", "record": None},
    ]
    quarantine = lake.create_table("raw.p_quarantine", REJECTS_SCHEMA)
    quarantine.append(pa.Table.from_pylist(bad, REJECTS_SCHEMA))
    derived = stored(
        lake,
        SqlModel(
            name="clean.p",
            sql="SELECT upper(name) AS who, city, n FROM raw.p UNION ALL "
            "SELECT city AS who, name AS city, n FROM raw.p",
            engine="datafusion",
        ),
        SqlModel(
            name="marts.c",
            sql="SELECT city, count(*) AS n, max(who) AS last FROM clean.p GROUP BY city",
            engine="datafusion",
        ),
    )
    return lake, derived


def names_of(lake: Lakehouse, table: str, column: str) -> list[Any]:
    return sorted(map(str, lake.load_table(table).scan().to_arrow()[column].to_pylist()))


def again(lake: Lakehouse, derived: dict[str, DerivedTable], name: str) -> None:
    """As if the asset were materialized."""
    table = derived[name]
    inputs = {one: lake.load_table(one).metadata.current_snapshot_id for one in table.inputs}
    found = table.compute(lake, None, inputs, None).read_all()
    summary = {REFRESH_STATE: RefreshState(inputs).to_json()}
    lake.load_table(name).overwrite(found, summary=summary)


@pytest.mark.parametrize("people", ["copy-on-write", "merge-on-read"], indirect=True)
def test_no_file_holds_a_line(people: Any, tmp_path: Path) -> None:
    lake, derived = people
    mine = f"{NAMES[0]} of {FILE[:5]}"
    assert census(tmp_path, mine)
    planned = forgotten(lake, derived, FILE, 1)
    told = {one.name: (one.rows, one.landing) for one in planned.tables}
    assert told == {
        "clean.p": (2, {}),
        "raw.p_quarantine": (0, {}),
        "raw.p": (1, {FILE: (1,)}),
    }
    assert planned.follow == ("marts.c",)
    assert census(tmp_path, mine), "a plan does nothing"
    done = forgotten(lake, derived, FILE, 1, apply=True)
    assert not [one for one in census(tmp_path, mine) if "/marts/" not in f"/{one}"]
    assert done.unreachable == {}
    # the count has the name as a group, until it is computed again: it is named
    assert {"/marts/c/" in file for file in done.left} == {True}
    assert len(names_of(lake, "raw.p", "name")) == 9
    assert len(names_of(lake, "clean.p", "who")) == 18
    for name in derived:
        again(lake, derived, name)
    # the second time it leaves the table that was computed again by its newest snapshot alone
    finished = forgotten(lake, derived, FILE, 1, apply=True)
    assert (finished.follow, finished.left, finished.unreachable) == ((), {}, {})
    assert census(tmp_path, mine) == census(tmp_path, mine.upper()) == []
    told = lake.load_table(FORGOTTEN).scan().to_arrow().sort_by("forgotten_at").to_pylist()
    first, second = told
    assert {first["column"], second["column"]} == {"landing_line"}
    assert (first["rows"], second["rows"], second["files_left"]) == (3, 0, 0)
    assert "Lindqvist" not in str([first, second])


def test_a_delivery_with_its_quarantine(people: Any, tmp_path: Path) -> None:
    lake, derived = people
    done = forgotten(lake, derived, FILE, apply=True)
    assert {one.name: one.rows for one in done.tables} == {
        "clean.p": 10,  # and not those that are equal and of the other file
        "raw.p_quarantine": 2,
        "raw.p": 5,
    }
    assert set(names_of(lake, "raw.p", "landing_file")) == {"other.jsonl"}
    assert names_of(lake, "raw.p_quarantine", "record") == ["{Fia"]
    held = [one for one in census(tmp_path, FILE) if "marts" not in one]
    assert held == []
    assert not [one for one in census(tmp_path, "{Erik Ohlsson") if "marts" not in one]


def test_a_file_of_a_dead_writer_is_named(people: Any, tmp_path: Path) -> None:
    lake, derived = people
    copy = tmp_path / "warehouse/raw/p/data/left-by-a-writer.parquet"
    (data,) = lake.load_table("raw.p").scan().plan().files  # older files hold one delivery each
    copy.write_bytes(Path(data.file_path.removeprefix("file://")).read_bytes())
    done = forgotten(lake, derived, FILE, 3, apply=True)  # without a name: nothing but its place
    ((file, found),) = done.unreachable.items()
    assert file.endswith("left-by-a-writer.parquet")
    assert found == ("1 rows of the lines",)


def test_rows_of_others_stay(people: Any) -> None:
    lake, derived = people
    before = {name: lake.load_table(name).scan().to_arrow() for name in ("raw.p", "clean.p")}
    forgotten(lake, derived, FILE, 9, apply=True)
    for name, rows_before in before.items():
        kept = lake.load_table(name).scan().to_arrow()
        assert Counter(map(str, kept.to_pylist())) == Counter(map(str, rows_before.to_pylist()))
    left = lake.load_table("raw.p_quarantine").scan().to_arrow()["landing_line"].to_pylist()
    assert sorted(map(str, left)) == ["9", "None"]


def test_tags_stand_in_the_way(people: Any) -> None:
    lake, derived = people
    lake.load_table("clean.p").create_tag("audited")
    with pytest.raises(MaintenanceRefusedError, match=r"line 2 of .*: clean\.p by audited"):
        forgotten(lake, derived, FILE, 2, apply=True)
    assert len(names_of(lake, "raw.p", "name")) == 10
    # of rows that others have, nothing stands in the way
    assert forgotten(lake, derived, FILE, 9, apply=True).applied


def test_questions_that_cannot_be_asked(people: Any, monkeypatch: Any, tmp_path: Path) -> None:
    lake, derived = people
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFoundError, match="know no file x"):
        forgotten(lake, derived, "x")
    with pytest.raises(NotFoundError, match="no table has rows of x"):
        forget_lines(lake, "x")
    with pytest.raises(InvalidInputError, match=r"clean\.p has no landing lines"):
        forget_lines(lake, FILE, tables=["clean.p"])
    with pytest.raises(InvalidInputError, match="a file lands in one table"):
        forget_lines(lake, FILE, tables=["raw.p", "clean.p"])
    assert forget_lines(lake, FILE, [2]).derived_known is False
    lake.create_table("raw.q", PEOPLE).append(lake.load_table("raw.p").scan().to_arrow())
    with pytest.raises(InvalidInputError, match=r"landed in raw\.p and raw\.q: name one"):
        forget_lines(lake, FILE)


@pytest.mark.parametrize("by_line", [False, True], ids=["by value", "by line"])
def test_backups_that_hold_the_rows_are_named(tmp_path: Path, by_line: bool) -> None:
    """Which ones: each is restored, and its rows are counted."""
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    table, folder = lake.create_table("raw.p", PEOPLE), (tmp_path / "kept").as_uri()
    lake.create_table("raw.others", PEOPLE).append(person("Ann Karlsson", 1))

    def found(*, apply: bool = False) -> Forgetting:
        if by_line:
            forgetting = forgotten(lake, {}, FILE, 2, apply=apply)
        else:
            forgetting = by_value(lake, {}, "name = 'Ann Karlsson'", ["raw.p"], apply=apply)
        return with_backups(lake, forgetting, [folder])

    table.append(person("Berta Nilsson", 1))
    with pytest.raises(NotFoundError, match="has no backup at all"):
        found()
    backup(lake.catalog, folder)
    for name, line in (("Ann Karlsson", 2), ("Carl Andersson", 3)):
        table.append(person(name, line))
        backup(lake.catalog, folder)
    assert found().backups == found(apply=True).backups == {folder: (2, 3)}
    backup(lake.catalog, folder)
    assert found().backups == {folder: (2, 3)}
    holding = []
    for number in range(1, 5):
        copy = lh.load_catalog((tmp_path / f"copy{number}").as_uri())
        restore(copy.catalog, folder, number=number)
        if copy.load_table("raw.p").scan(where="landing_line = 2").count():
            holding.append(number)
    assert holding == [2, 3]
    backup(lake.catalog, folder, keep=1)
    assert found().backups == {folder: ()}
    assert f"none of {folder}" in dict(found().facts()).values()


def person(name: str, line: int) -> pa.Table:
    row = {"name": name, "city": "Lund", "landing_file": FILE, "landing_line": line}
    return pa.Table.from_pylist([row], PEOPLE)


def test_the_command(people: Any, monkeypatch: Any, tmp_path: Path) -> None:
    lake, _ = people
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    command = ["forget", "--catalog", lake.warehouse, "--json"]
    run = CliRunner()
    for wrong in ([], ["--where", "n = 1", "--file", "x"], ["--where", "n = 1", "--line", "1"]):
        assert run.invoke(app, [*command, *wrong]).exit_code != 0
    told = run.invoke(app, [*command, "--file", FILE, "--line", "1"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["landing"] == {FILE: [1]}
    folder = (tmp_path / "kept").as_uri()
    backup(lake.catalog, folder)
    told = run.invoke(app, [*command, "--where", "name = 'nobody'", "--backup", folder])
    assert json.loads(told.stdout)["backups"] == {folder: []}


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(one, marks=[] if one in ("rows", "group") else [pytest.mark.slow])
        for one in QUERIES
    ],
)
def test_what_stays_is_what_duckdb_computes_without_the_line(query: str, tmp_path: Path) -> None:
    """A table is either as if the line had never landed, or named as to be computed again."""
    sql, chance = QUERIES[query], random.Random(query)
    tables = {"raw.p": rows(chance, 14, "p.jsonl"), "raw.b": rows(chance, 9, "b.jsonl")}
    sql = sql.replace("raw.a", "raw.p")
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    for name, table in tables.items():
        lake.create_table(name, RAW, partition_by=["day(event_ts)"]).append(table)
    derived = stored(lake, SqlModel(name="marts.x", sql=sql, engine="datafusion"))
    every = {(f"{name}.jsonl", line) for name in "pb" for line in range(1, 15)}
    every_row = Counter(by_duckdb(sql, tables))
    one_by_one = set[int]()
    for line in range(1, 15):
        without = Counter(by_duckdb(sql, of_lines(tables, every - {("p.jsonl", line)})))
        found = forgotten(lake, derived, "p.jsonl", line)
        if "marts.x" in found.follow:
            continue
        (mart,) = (one for one in found.tables if one.name == "marts.x")
        assert mart.gone is not None
        assert every_row - mart.gone.gone == without
        one_by_one |= {line} if mart.rows else set()
    assert bool(one_by_one) == (query in ROW_BY_ROW)


@pytest.mark.slow
@pytest.mark.parametrize("people", ["copy-on-write", "merge-on-read"], indirect=True)
@pytest.mark.parametrize(
    "step", ["overwrite", "delete", "rewrite_manifests", "expire_snapshots", "remove_orphan_files"]
)
@pytest.mark.parametrize("at", ["clean.p", "raw.p"])
def test_a_death_in_the_middle_is_made_good(
    step: str, at: str, people: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, derived = people
    real = getattr(Table, step)

    def died(self: Any, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        if self.name == at:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Table, step, died)
        with suppress(KeyboardInterrupt):
            forgotten(lake, derived, FILE, 1, apply=True)
    forgotten(lake, derived, FILE, 1, apply=True)
    for name in derived:
        again(lake, derived, name)
    done = forgotten(lake, derived, FILE, 1, apply=True)
    assert (done.left, done.unreachable, done.follow) == ({}, {}, ())
    mine = f"{NAMES[0]} of {FILE[:5]}"
    assert census(tmp_path, mine) == census(tmp_path, mine.upper()) == []
