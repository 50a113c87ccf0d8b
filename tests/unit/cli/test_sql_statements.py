"""Statements that change tables do what DuckDB does for the same text, and say what they did."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.sql_statements import StatementEngine, is_change

SCRIPT = [
    "create table raw.t (id bigint, name varchar, price decimal(10, 2), day date, f double)",
    "insert into raw.t values (1, 'a', 12.34, '2026-01-01', 0.1), (2, 'b;c -- d', 5, null, -2)",
    "INSERT INTO raw.t (name, id) VALUES ('when not matched then', 3), ('it''s', 4);",
    'insert into "raw"."t" (id, "name") '
    "select id + 10, name || ' where ' from raw.t where id < 4",
    "-- a comment\nupdate raw.t set price = case when id = 1 then price * 2 else 1 end, "
    "name = upper(name) where id < 3 /* not these */ or name like '%where%'",
    "update raw.t set f = id, id = id + 100 where name in ('it''s', 'SET x = 1')",
    "update raw.t set f = null",
    "delete from raw.t where (name = 'A' or id between 11 and 12) and not (id = 12)",
    "merge into raw.t as t using (select id, 'merged, (' as n from raw.t where id < 13) as s "
    "on t.id = s.id when matched and s.id = 1 then delete "
    "when matched then update set name = s.n, price = case when t.id > 2 then 7 else 8 end "
    "when not matched then insert (id, name) values (s.id, s.n)",
    "merge into raw.t t using (values (2), (77)) as s(id) on t.id = s.id "
    "when matched then update set name = 'two' when not matched then insert (id) values (s.id)",
    "alter table raw.t add column note varchar",
    "update raw.t set note = 'n' || name where id > 2",
    "alter table raw.t rename column note to notes",
    "alter table raw.t drop column f",
    "create table raw.u as select id, notes from raw.t where notes is not null",
    "insert into raw.u select * from raw.u union all select id, 'again' from raw.t",
    "delete from raw.u where notes = 'again' and id in (3, 77)",
    "drop table if exists raw.nothing",
    "delete from raw.t",
]


@pytest.fixture
def lake(tmp_path):
    return lh.load_catalog(str(tmp_path))


def test_a_script_gives_the_rows_that_duckdb_gives(lake):
    judge = duckdb.connect()
    judge.sql("create schema raw")
    for statement in SCRIPT:
        tables = lake.list_tables()
        before = {name: lake.load_table(name).metadata_location for name in tables}
        planned = StatementEngine(lake, dry_run=True).run(statement)
        assert {name: lake.load_table(name).metadata_location for name in tables} == before
        assert lake.list_tables() == tables
        done = StatementEngine(lake).run(statement)
        judge.sql(statement)
        assert (planned.done, planned.counts) == (done.done, done.counts), statement
        for name in lake.list_tables():
            asked = judge.sql(f"select * from {name}").to_arrow_table()
            rows = lake.load_table(name).scan().to_arrow()
            assert rows.column_names == asked.column_names, statement
            assert _sorted(rows) == _sorted(asked), statement
    assert lake.list_tables() == ["raw.t", "raw.u"]


WORDS = ["", "a", "it's", "set x = 1", "where", "),(", ";", "-- no", "/* no */", "when", 'say "so"']
CONDITIONS = [
    "id > {n}", "name = {text}", "name <> {text} and id <= {n}", "(id = {n} or name = {text})",
    "case when id > {n} then name = {text} else id < 3 end", "name is null", "not (id = {n})",
]  # fmt: skip
VALUES = [
    "id + {n}", "{n}", "case when id > {n} then 1 else case when id < 2 then 0 else -1 end end",
    "(id * 2)",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(15))
def test_random_statements_give_the_rows_that_duckdb_gives(lake, seed):
    chance = random.Random(seed)
    judge = duckdb.connect()
    judge.sql("create schema raw")
    engine = StatementEngine(lake)
    for sql in ("create table raw.t (id bigint, name varchar)",):
        engine.run(sql)
        judge.sql(sql)

    def text():
        return "'" + chance.choice(WORDS).replace("'", "''") + "'"

    def filled(form):
        return form.format(n=chance.randrange(12), text=text())

    for _ in range(8):
        condition, value = filled(chance.choice(CONDITIONS)), filled(chance.choice(VALUES))
        rows = ", ".join(f"({chance.randrange(12)}, {text()})" for _ in range(3))
        sql = chance.choice(
            [
                f"insert into raw.t values {rows}",
                f"insert into raw.t (name, id) select name, {value} from raw.t where {condition}",
                f"update raw.t set id = {value}, name = {text()} where {condition}",
                f"update raw.t set id = {value}",
                f"delete from raw.t where {condition}",
            ]
        )
        done = engine.run(sql)
        changed = judge.sql(sql)
        assert changed is None or next(iter(done.counts.values())) == changed.fetchone()[0], sql
        assert _sorted(lake.load_table("raw.t").scan().to_arrow()) == _sorted(
            judge.sql("select * from raw.t").to_arrow_table()
        ), sql


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("insert into raw.t values (1.5, 'x')", "'id' is no long"),
        ("insert into raw.t values ('x', 'x')", "'id' is no long"),
        ("insert into raw.t values (1)", "1 columns are given for 2: id, name"),
        ("insert into raw.t (id, nope) values (1, 2)", "nope"),
        ("insert into raw.t", "a SELECT or VALUES is expected"),
        ("delete raw.t", "FROM is expected instead of 'raw'"),
        ("delete from raw.t where", "a condition is expected"),
        ("delete from raw.t limit 1", "its end is expected instead of 'limit'"),
        ("delete from raw.t where upper(", r"expected \) after \("),
        ("update raw.t set", "a column is expected"),
        ("update raw.t set id = 1, id = 2", "'id' is set twice"),
        ("update raw.t set nope = 1", "nope"),
        ("update raw.t set id = 1 where", "a condition is expected"),
        ("merge into raw.t using raw.t s on t.id = s.id", "WHEN is expected"),
        (
            "alter table raw.t frobnicate",
            "ADD, DROP, RENAME, ALTER, SET TBLPROPERTIES or UNSET TBLPROPERTIES",
        ),
        ("alter table raw.t add column x int not null", "cannot be NOT NULL"),
        ("alter table raw.t alter column id type int", "id"),
        ("alter table raw.t drop column nope", "nope"),
        ("create table raw.v", "needs either columns or AS SELECT"),
        ("create table raw.t (id int)", r"raw\.t"),
        ("truncate table raw.t", "may begin with INSERT, UPDATE"),
        ("delete from raw.t; delete from raw.t", "Only one statement"),
        ("delete from raw.t where name = 'x", "nothing closes"),
        ("delete from raw.nope", r"raw\.nope"),
        ("drop table raw.nope", r"raw\.nope"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_what_cannot_be_done_is_said_and_changes_nothing(lake, statement, message, dry_run):
    table = lake.create_table("raw.t", _schema())
    with pytest.raises(lh.LakehouseError, match=message):
        StatementEngine(lake, dry_run=dry_run).run(statement)
    assert lake.load_table("raw.t").metadata_location == table.metadata_location


def test_rows_are_changed_on_a_branch(lake):
    lake.create_table("raw.t", _schema())
    StatementEngine(lake).run("insert into raw.t values (1, 'a'), (2, 'b')")
    lake.load_table("raw.t").create_branch("fix")
    counts = StatementEngine(lake, branch="fix", dry_run=True).run("delete from raw.t").counts
    assert counts == {"deleted": 2}
    StatementEngine(lake, branch="fix").run("delete from raw.t where id = 1")
    table = lake.load_table("raw.t")
    assert (table.scan().count(), table.scan(ref="fix").count()) == (2, 1)


def test_a_dropped_table_comes_back_by_what_it_said(lake):
    StatementEngine(lake).run("create table raw.t (id int) partitioned by (bucket(4, id))")
    told = StatementEngine(lake).run("drop table raw.t").done
    assert not lake.table_exists("raw.t")
    exec(told.partition("; ")[2].removesuffix(" brings it back"), {"lake": lake})  # noqa: S102
    assert [str(field.transform) for field in lake.load_table("raw.t").spec().fields] == [
        "bucket[4]"
    ]


@pytest.mark.parametrize(
    "text", ["select 1", "with a as (select 1) select * from a", "", "'insert'"]
)
def test_queries_are_no_changes(text):
    assert not is_change(text)


def test_the_command_changes_rows_and_says_so(run):
    answer = run("sql", "update raw.events set region = 'x' where id < 10", "--dry-run")
    assert answer.out.startswith("10 rows updated")
    assert "nothing was changed" in answer.out
    answer = run("sql", "update raw.events set region = 'x' where id < 10", "--json")
    assert answer.json["counts"] == {"updated": 10}
    assert answer.json["snapshot_id"] > 0
    counted = run("sql", "select count(*) as n from raw.events where region = 'x'", "--json")
    assert counted.json == [{"n": 10}]


def test_rows_are_printed_for_people_and_for_programs(run):
    query = "select id, region, at from raw.events where id < 2 order by id"
    told = run("sql", query, "--format", "csv").out.splitlines()
    assert told[0] == "id,region,at"
    assert len(told) == 3
    vertical = run("sql", query, "--format", "vertical", "--limit", "1").out.splitlines()
    assert vertical[:2] == ["-- row 1", "    id: 0"]
    assert vertical[-1] == "2 rows, 1 shown"


def test_what_is_piped_is_not_cut(run):
    long = "x" * 500
    answer = run("sql", f"select '{long}' as a, 1 as b", env={"COLUMNS": None})
    assert long in answer.out


def _schema():
    import pyarrow as pa

    return pa.schema([("id", pa.int64()), ("name", pa.string())])


def _sorted(rows):
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


@pytest.mark.parametrize(
    "arguments",
    [
        ("sql", "select id, region from raw.events order by id"),
        ("tables",),
        ("history", "raw.events"),
        ("files", "raw.events"),
        ("health",),
        ("advise",),
        ("plan", "raw.events"),
        ("compact", "raw.events", "--dry-run"),
    ],
)
def test_what_is_piped_is_no_wider_than_what_it_says(run, arguments):
    lines = run(*arguments, env={"COLUMNS": None}).out.splitlines()
    assert lines
    assert max(map(len, lines)) < 400


def test_a_required_column_of_unknown_is_refused_by_name(lake):
    create = "create table raw.u (id int, u unknown not null) tblproperties ('format-version'='3')"
    with pytest.raises(lh.InvalidSchemaError, match="'u' of type unknown must be optional"):
        StatementEngine(lake).run(create)
    StatementEngine(lake).run(create.replace(" not null", ""))
    assert not lake.load_table("raw.u").schema().find_field("u").required


def test_properties_are_removed(lake):
    table = lake.create_table("raw.t", pa.schema({"id": pa.int32()}))
    table.set_properties({"a": "1", "b": "2", "c": "3"})
    unset = "alter table raw.t unset tblproperties if exists ('a', 'c', 'none')"
    assert StatementEngine(lake, dry_run=True).run(unset).done
    assert len(table.refresh().properties) == 3
    StatementEngine(lake).run(unset)
    assert dict(table.refresh().properties) == {"b": "2"}
    with pytest.raises(lh.InvalidInputError, match="in quotes"):
        StatementEngine(lake).run("alter table raw.t unset tblproperties (b)")
