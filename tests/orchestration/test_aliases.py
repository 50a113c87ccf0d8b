"""Columns that take their value from several fields: renamed ones, and those that differ by case.

The judge is brute force over the records as Python made them.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.drift import Drift, resolve
from lakehouse.ingestion.ingest import MostRejectedError
from lakehouse.ingestion.redefined_source import source_changes, source_definition
from lakehouse.ingestion.rescued_columns import fill_columns
from lakehouse.ingestion.source_tables import raw_table
from lakehouse.orchestration import Column, EventTime, Source
from tests.orchestration.conftest import BY_EACH_ENGINE, Pipe, event, june
from tests.orchestration.test_rescue import FED, exact, read

COLUMNS = (
    Column("id", "string", aliases=("ID",)),
    Column("ts", "string", aliases=("at",)),
    Column("customer", "string", aliases=("custId", "Customer")),
    Column("n", "long"),
    Column("N_2", "long", aliases=("N",)),
)
NAMED = replace(FED, columns=COLUMNS, natural_key=("id",))
VALUES = {
    "customer": ["a", "b"], "custId": ["a", "b"], "Customer": ["a", "c"],
    "n": [1, 2], "N": [3, 4], "other": ["x"],
}  # fmt: skip


def records(chance: random.Random) -> list[dict]:
    found = []
    for number in range(60):
        one = {chance.choice(("id", "ID")): f"i{number}"}
        one[chance.choice(("ts", "at"))] = "2026-06-02T10:00:00"
        names = [name for name in VALUES if chance.random() < 0.6]
        chance.shuffle(names)
        found.append(one | {name: chance.choice([*VALUES[name], None]) for name in names})
    return found


def wanted(record: dict) -> tuple[dict, dict]:
    """The columns and the rest of a record."""
    row, rest = {}, {k: v for k, v in record.items() if v is not None}
    for column in COLUMNS:
        given = [rest.pop(name) for name in (column.name, *column.aliases) if name in rest]
        row[column.name] = given[0] if given else None
        names = [n for n in (column.name, *column.aliases) if record.get(n) is not None]
        rest |= {n: v for n, v in zip(names, given, strict=True) if v != given[0]}
    return row, rest


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_the_first_field_with_a_value_is_the_columns(seed: int, form: str, tmp_path: Path) -> None:
    given = records(random.Random(seed))
    names = ["ID", "id", "ts", "at", *VALUES]
    if form == "jsonl":
        data = "\n".join(map(json.dumps, given)).encode()
    elif form == "csv":
        texts = [["" if one.get(n) is None else str(one[n]) for n in names] for one in given]
        data = "\n".join(",".join(row) for row in [names, *texts]).encode()
    else:
        columns = {name: [one.get(name) for one in given] for name in names}
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        data = (tmp_path / "a.parquet").read_bytes()
    rows, reasons = read(data, NAMED, f"a.{form}")
    assert (len(rows), reasons) == (60, {})
    for row, record in zip(rows, given, strict=True):
        columns, rest = wanted(record)
        assert {name: row[name] for name in columns} == columns
        found = {} if row["rest"] is None else exact(row["rest"])
        assert found == {k: str(v) for k, v in rest.items()}


def test_a_second_value_is_quarantined_where_nothing_is_rescued() -> None:
    line = b'{"id":"1","ts":"2026-06-02T10:00:00","customer":"a","custId":"%s"}\n'
    rows, reasons = read(line % b"a" + line % b"b", replace(NAMED, rescue=None), "a.jsonl")
    assert (len(rows), reasons) == (1, {"unexpected column": 1})
    # nor does drift make a column of it
    evolving = replace(NAMED, rescue=None, drift="evolve")
    observed = {"custId": {"string": 1}, "new": {"int": 1}}
    assert resolve(evolving, COLUMNS, observed) == Drift((Column("new", "long"),))


def test_what_the_rest_keeps_under_another_name_fills_the_column(tmp_path: Path) -> None:
    """The judge: the same file read under the later definition from the beginning."""
    given = records(random.Random(9))
    for one in given:
        one |= {"id": one.pop("ID", one.get("id")), "ts": "2026-06-02T10:00:00"}
    data = "\n".join(map(json.dumps, given)).encode()
    early = replace(NAMED, columns=tuple(replace(one, aliases=()) for one in COLUMNS))
    lake = lh.load_catalog(str(tmp_path))
    table = raw_table(lake, early, Drift(), print)
    rows, _ = read(data, early, "a.jsonl")
    table.append(pa.Table.from_pylist(rows, table.scan().to_arrow().schema))
    done = fill_columns(lake, NAMED)
    later, _ = read(data, NAMED, "a.jsonl")
    names = ["id", "customer", "n", "N_2"]
    found = lake.load_table("raw.fed").scan(select=names).to_arrow().to_pylist()
    assert sorted(found, key=str) == sorted(({n: r[n] for n in names} for r in later), key=str)
    assert done.filled.keys() == {"customer", "N_2"}
    assert fill_columns(lake, NAMED).filled == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": (*COLUMNS, Column("x", "long", ("custId",)))}, "'custId' of 'customer'"),
        ({"columns": (*COLUMNS, Column("x", "long", ("n",)))}, "'n' of 'x' is another"),
        ({"columns": (*COLUMNS, Column("x", "long", ("x",)))}, "'x' of 'x' is another"),
        ({"columns": (*COLUMNS, Column("x", "long", "ab"))}, "tuple of names"),
        ({"event_time": EventTime("at")}, "'at' of 'ts' is named as event time"),
        ({"natural_key": ("custId",)}, "'custId' of 'customer' is named as event time, key"),
    ],
)  # fmt: skip
def test_an_alias_is_of_one_column(changes: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        replace(NAMED, **changes)


def test_a_changed_alias_is_told() -> None:
    def effects(before: Source, after: Source) -> dict[str, str]:
        found = source_changes(after, source_definition(before))
        return {change.what: change.effect for change in found}

    plain = replace(NAMED, columns=tuple(replace(one, aliases=()) for one in COLUMNS))
    assert "aliases" not in source_definition(plain)
    assert effects(plain, NAMED) == {
        "aliases": "from now on", "more aliases of keys": "recompute",
    }  # fmt: skip
    assert effects(NAMED, plain) == {"aliases": "from now on", "aliases of keys": "recompute"}
    renamed = (*COLUMNS[:3], replace(COLUMNS[3], name="number"), COLUMNS[4])
    (said,) = [
        str(one)
        for one in source_changes(replace(NAMED, columns=renamed), source_definition(NAMED))
        if one.what == "column n"
    ]
    assert "Column('number', 'long', aliases=('n',))" in said


@BY_EACH_ENGINE
def test_a_feed_that_renames_its_fields_is_one_table(pipe: Pipe) -> None:
    """Key, event time and value are renamed, and a field comes that differs by case."""
    old = [event(n, 1) for n in range(1, 60)]
    new = [
        event(n, 2).replace(b'"id"', b'"ID"').replace(b'"ts"', b'"at"').replace(b"user", b"User")
        for n in range(60, 120)
    ]
    strict = pipe.with_source(rescue=None, max_rejected=5.0, bucket="")
    strict.land("1.jsonl.gz", old)
    strict.index()
    strict.ingest(june(1))
    strict.land("2.jsonl.gz", [one.replace(b'"at"', b'"ts"') for one in new])
    strict.index()
    with pytest.raises(MostRejectedError, match=r"Column\('id', 'long', aliases=\('ID',\)\)"):
        strict.ingest(june(2), "increment")
    columns = [
        replace(one, aliases=of)
        for one, of in zip(strict.source.columns, [("ID",), ("at",), ("User",), ()], strict=True)
    ]
    strict.source = replace(strict.source, columns=tuple(columns))
    strict.land("2.jsonl.gz", new)
    strict.index()
    strict.ingest(june(1, 2))
    strict.assert_conserved(119)
    assert strict.rows("id", "user", "amount") == [(n, f"u{n % 5}", n) for n in range(1, 120)]


@BY_EACH_ENGINE
def test_nanoseconds_of_landing_files_arrive_and_come_back_as_written(pipe: Pipe) -> None:
    """JSON, CSV and Parquet; the event time is the same field; in format version 3, partitioned."""
    kinds = {"id": "string", "ts": "timestamp_ns", "seen": "timestamptz_ns"}
    pipe = pipe.with_source(
        columns=tuple(Column(name, kind) for name, kind in kinds.items()),
        event_time=EventTime("ts"),
        natural_key=("id",),
        bucket="id",
        pattern="*",
    )
    base = "2026-06-02T10:00:00.12345678"
    pipe.land("a.jsonl", [
        json.dumps({"id": f"j{n}", "ts": f"{base}{n}", "seen": f"{base}{n}+02:00"}).encode()
        for n in range(10)
    ], modified=1_000_000_001)  # fmt: skip
    lines = ["id,ts,seen", *(f"c{n},{base}{n},{base}{n}Z" for n in range(10))]
    pipe.land("b.csv", [line.encode() for line in lines], modified=1_000_000_002)
    at = pa.array([f"{base}{n}" for n in range(10)]).cast(pa.timestamp("ns"))
    rows = {
        "id": [f"p{n}" for n in range(10)],
        "ts": at,
        "seen": at.cast(pa.timestamp("ns", "UTC")),
    }
    pq.write_table(pa.table(rows), pipe.folder / "c.parquet")
    os.utime(pipe.folder / "c.parquet", (1_000_000_003, 1_000_000_003))
    pipe.index()
    pipe.ingest(june(2))
    assert pipe.quarantine() == []
    table = pipe.lake.load_table(pipe.source.table)
    assert table.metadata.format_version == 3
    found = table.scan(select=["id", "ts", "seen"]).to_arrow().sort_by("id")
    assert found["id"].to_pylist() == sorted(f"{kind}{n}" for kind in "cjp" for n in range(10))
    wanted = [int(at.cast(pa.int64())[n].as_py()) for n in range(10)]
    two_hours = 2 * 3600 * 10**9
    assert found["ts"].cast(pa.int64()).to_pylist() == wanted * 3
    assert found["seen"].cast(pa.int64()).to_pylist() == [
        *wanted, *(one - two_hours for one in wanted), *wanted
    ]  # fmt: skip
    where = f"ts = TIMESTAMP '{base.replace('T', ' ')}7'"
    assert sorted(table.scan(where=where).to_arrow()["id"].to_pylist()) == ["c7", "j7", "p7"]
