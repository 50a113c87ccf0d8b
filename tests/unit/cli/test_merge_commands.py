"""`lakehouse merge` and `lakehouse upsert`: the rows are those of DuckDB's MERGE of the same."""

from __future__ import annotations

import datetime as dt
import json

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import lakehouse.lake
from tests.unit.cli.conftest import SCHEMA

AT = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
REGIONS = ["", "007", None, "NA"]
ROWS = pa.table({"id": [3, 17, 500, 501], "region": REGIONS, "at": [AT] * 4}, SCHEMA)
UPDATED, INSERTED = 2, 2
EVERY = """MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET region = s.region,
    "at" = s."at" WHEN NOT MATCHED THEN INSERT (id, region, "at")
    VALUES (s.id, s.region, s."at")"""


def write(path, rows):
    kind = path.suffix
    if kind == ".csv":
        pyarrow.csv.write_csv(rows, path)
    elif kind == ".parquet":
        pyarrow.parquet.write_table(rows, path)
    elif kind == ".arrow":
        pyarrow.feather.write_feather(rows, path)
    else:
        path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows.to_pylist()))
    return path


def content(rows):
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def merged(table, rows, statement=EVERY):
    """The rows of the table when DuckDB is done with them."""
    peer = duckdb.connect()
    held = table.scan().to_arrow()
    peer.register("before", held)
    peer.register("s", rows)
    peer.execute("CREATE TABLE t AS SELECT * FROM before")
    peer.execute(statement)
    return content(peer.table("t").to_arrow_table().cast(SCHEMA))


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl", "rows.csv", "rows.arrow"])
def test_a_file_is_upserted(run, table, tmp_path, name):
    path = write(tmp_path / name, ROWS)
    wanted = merged(table, ROWS)
    plan = run("upsert", "raw.events", path, "--key", "id", "--dry-run", "--json").json
    assert table.refresh().scan().count() == 60, "a dry run changes nothing"
    done = run("upsert", "raw.events", path, "--key", "id", "--json").json
    assert content(table.refresh().scan().to_arrow()) == wanted
    for found in (plan, done):
        assert (found["rows_updated"], found["rows_inserted"]) == (UPDATED, INSERTED)
    assert done["snapshot_id"] == table.metadata.current_snapshot_id
    assert (plan["files"], plan["files_opened"], plan["files_changed"]) == (6, 2, 2)


def test_a_folder_and_a_table_at_a_snapshot_are_sources(run, table, warehouse, tmp_path):
    for number in range(4):
        write(tmp_path / f"part-{number}.csv", ROWS.slice(number, 1))
    wanted = merged(table, ROWS)
    run("upsert", "raw.events", tmp_path, "--key", "id")
    assert content(table.refresh().scan().to_arrow()) == wanted

    other = lakehouse.lake.load_catalog(warehouse).create_table("raw.more", SCHEMA)
    other.append(pa.table({"id": [4], "region": ["old"], "at": [AT]}, SCHEMA))
    first = other.metadata.current_snapshot_id
    other.append(pa.table({"id": [5], "region": ["new"], "at": [AT]}, SCHEMA))
    wanted = merged(table, other.scan(snapshot_id=first).to_arrow())
    run("upsert", "raw.events", "raw.more", "--key", "id", "--snapshot", first)
    assert content(table.refresh().scan().to_arrow()) == wanted


CLAUSES = [
    "MATCHED AND CASE WHEN t.region = 'r0' THEN 1 ELSE 0 END = 1 THEN DELETE",
    """MATCHED THEN UPDATE SET t."at" = s."at", region = coalesce(t.region, '') || ', '
        || s.region""",
    "NOT MATCHED BY SOURCE AND t.id > 50 THEN UPDATE SET region = 'then'",
    "NOT MATCHED BY SOURCE AND t.id = 1 THEN DELETE",
    "WHEN NOT MATCHED BY TARGET AND s.id > 1 THEN INSERT (id, region) VALUES (s.id + 1, 'a)')",
]


def test_clauses_are_those_of_sql(run, table, tmp_path):
    path = write(tmp_path / "rows.parquet", ROWS)
    whens = " ".join(f"WHEN {clause.removeprefix('WHEN ')}" for clause in CLAUSES)
    peers = whens.replace('t."at" =', '"at" =')  # DuckDB takes no alias there
    wanted = merged(table, ROWS, f"MERGE INTO t USING s ON t.id = s.id {peers}")
    given = [argument for clause in CLAUSES for argument in ("--when", clause)]
    merge = ("merge", "raw.events", path, "--on", "t.id = s.id", *given)
    plan = run(*merge, "--dry-run", "--json").json
    done = run(*merge, "--json").json
    assert content(table.refresh().scan().to_arrow()) == wanted
    counts = ("rows_inserted", "rows_updated", "rows_deleted")
    assert [done[count] for count in counts] == [plan[count] for count in counts] == [2, 10, 2]


def test_branch_summary_and_commit_id(run, table, tmp_path):
    path = write(tmp_path / "rows.parquet", ROWS)
    table.create_branch("work")
    given = ("--branch", "work", "--summary", "a=b=c", "--commit-id", "once", "--json")
    first = run("upsert", "raw.events", path, "--key", "id", *given).json
    again = run("upsert", "raw.events", path, "--key", "id", *given).json
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert first["snapshot_id"] == again["snapshot_id"]
    assert table.refresh().scan().count() == 60
    assert table.scan(ref="work").count() == 62
    assert table.metadata.snapshot(first["snapshot_id"]).summary["a"] == "b=c"


def test_people_are_told_what_happened(run, table, tmp_path):
    path = write(tmp_path / "rows.parquet", ROWS)
    dry = run("upsert", "raw.events", path, "--key", "id", "--dry-run").out
    assert "2 of 6" in dry
    assert "nothing was changed" in dry
    assert (
        "2 rows inserted, 2 updated, 0 deleted"
        in run("upsert", "raw.events", path, "--key", "id").out
    )
    delete = ("merge", "raw.events", path, "--on", "t.id = s.id + 9000")
    assert "Nothing to change" in run(*delete, "--when", "MATCHED THEN DELETE").out


def broken(folder):
    (folder / "late.jsonl").write_text('{"id": 1}\n' * 200_000 + '{"id": 2, "region": "x"}\n')
    (folder / "types.csv").write_text("id,region\nseven,x\n")
    (folder / "rows.txt").write_text("id\n1\n")
    (folder / "torn.parquet").write_bytes(b"PAR1")
    (folder / "empty").mkdir()
    write(folder / "rows.parquet", ROWS)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["upsert", "raw.events", "late.jsonl", "--key", "id"], "unexpected field"),
        (["upsert", "raw.events", "types.csv", "--key", "id"], "seven"),
        (["upsert", "raw.events", "rows.txt", "--key", "id"], "--format"),
        (["upsert", "raw.events", "torn.parquet", "--key", "id"], "torn.parquet"),
        (["upsert", "raw.events", "empty", "--key", "id"], "no files"),
        (["upsert", "raw.events", "nope.parquet", "--key", "id"], "no file nope.parquet"),
        (["upsert", "raw.events", "raw.nope", "--key", "id"], "it has raw.events"),
        (["upsert", "raw.nope", "rows.parquet", "--key", "id"], "it has raw.events"),
        (["upsert", "raw.events", "rows.parquet", "--key", "no"], "no"),
        (["upsert", "raw.events", "rows.parquet", "--key", "id", "--summary", "a"], "KEY=VALUE"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(
    run, table, tmp_path, monkeypatch, arguments, named
):
    broken(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = table.metadata_location
    answer = run(*arguments)
    assert (answer.code, answer.out) == (1, "")
    assert named in answer.err
    assert answer.err.count("\n") == 1
    assert table.refresh().metadata_location == before


@pytest.mark.parametrize(
    ("clause", "named"),
    [
        ("MATCHED", "expected THEN"),
        ("MATCHED THEN", "expected UPDATE, DELETE or INSERT"),
        ("MATCHED THEN UPDATE", "expected SET"),
        ("MATCHED THEN UPDATE SET region", "expected ="),
        ("MATCHED THEN UPDATE SET region = ", "something is missing"),
        ("MATCHED THEN UPDATE SET region = 'a', region = 'b'", "region has a value already"),
        ("MATCHED AND THEN DELETE", "something is missing"),
        ("MATCHED AND 'open THEN DELETE", "not closed"),
        ("MATCHED AND region = 1) THEN DELETE", "region"),
        ("MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *", "one clause at a time"),
        ("MATCHED THEN INSERT *", "cannot be inserted"),
        ("NOT MATCHED THEN INSERT (id, region) VALUES (1)", "expected ,"),
        ("NOT MATCHED THEN INSERT (id) VALUES (1, 2)", "expected )"),
        ("NOT MATCHED THEN INSERT (nope) VALUES (1)", "no column nope"),
        ("NEVER", "expected MATCHED"),
    ],
)
def test_what_is_wrong_with_a_clause_is_said(run, table, tmp_path, clause, named):
    path = write(tmp_path / "rows.parquet", ROWS)
    answer = run("merge", "raw.events", path, "--on", "t.id = s.id", "--when", clause)
    assert (answer.code, answer.out) == (1, "")
    assert named in answer.err
    assert table.refresh().scan().count() == 60


def test_snapshot_goes_with_tables_alone(run, tmp_path):
    path = write(tmp_path / "rows.parquet", ROWS)
    assert run("upsert", "raw.events", path, "--key", "id", "--snapshot", "1").code == 2
    assert run("merge", "raw.events", path, "--on", "t.id = s.id").code == 2
