"""Lookups that find everything in memory see what brute force sees, whatever changed before."""

from __future__ import annotations

import datetime as dt
import gc
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.kept_by_bytes import MADE
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE

SCHEMA = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("key", pa.int32()), ("amount", pa.float32())]
)
FIRST = dt.datetime(2025, 1, 1, tzinfo=dt.UTC)
DAYS, KEYS = 6, 40
PROPERTIES = {"commit.manifest.min-count-to-merge": "3"}


@pytest.fixture
def lake(tmp_path):
    return lh.load_catalog(tmp_path.as_uri())


def created(lake, name="a.events", **more):
    by = ["day(ts)", "bucket(4, key)"]
    properties = {**PROPERTIES, **more}
    return lake.create_table(name, SCHEMA, partition_by=by, properties=properties)


def rows(seed: int, count: int = 400) -> pa.Table:
    chance = random.Random(seed)
    at = [FIRST + dt.timedelta(seconds=chance.randrange(DAYS * 86_400)) for _ in range(count)]
    keys = [chance.randrange(KEYS) for _ in range(count)]
    return pa.table([at, keys, [float(seed)] * count], schema=SCHEMA)


def asked(chance: random.Random) -> tuple[int, dt.datetime]:
    return chance.randrange(KEYS + 2), FIRST + dt.timedelta(days=chance.randrange(DAYS + 1))


def where(key: int, day: dt.datetime, name: str = "key") -> str:
    after = day + dt.timedelta(days=1)
    return f"{name} = {key} and ts >= '{day.isoformat()}' and ts < '{after.isoformat()}'"


def in_order(table: pa.Table) -> list[tuple]:
    return sorted(zip(*table.to_pydict().values(), strict=True), key=repr)


def check(scan, everything: pa.Table, name: str = "key", lookups: int = 12) -> None:
    """`scan(where=...)` beside DuckDB over all the rows; each question twice."""
    chance = random.Random(7)
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    connection.register("everything", everything)
    for _ in range(lookups):
        condition = where(*asked(chance), name)
        wanted = in_order(
            connection.execute(f"select * from everything where {condition}").to_arrow_table()
        )
        for _ in range(2):
            assert in_order(scan(where=condition).to_arrow()) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_after_commits_deletes_and_evolution(lake, mode):
    table = created(lake, **{"write.delete.mode": mode, "write.update.mode": mode})
    earlier = {}

    def checked(name: str = "key") -> None:
        everything = table.refresh().scan().to_arrow()
        check(table.scan, everything, name)
        earlier.setdefault(table.current_snapshot().snapshot_id, (everything, name))

    for seed in range(3):
        table.append(rows(seed))
        checked()
    table.delete(where="key = 3 or (key > 30 and amount = 1)")
    assert table.refresh().scan(where="key = 3").count() == 0
    checked()
    table.update({"amount": "amount + 1"}, where="key = 5")
    checked()
    with table.update_schema() as change:
        change.rename_column("key", "id")
        change.update_column("id", "long")
        change.add_column("note", "string")
    checked("id")
    with table.update_partition_spec() as change:
        change.remove("key_bucket")
        change.add("truncate(10, id)")
    checked("id")
    more = rows(9).rename_columns(["ts", "id", "amount"])
    table.append(more.append_column("note", pa.array(["n"] * len(more))))
    checked("id")
    table.delete(where="id = 7")
    checked("id")
    table.rewrite_manifests()
    checked("id")
    table.compact()
    checked("id")
    for snapshot_id, (everything, name) in earlier.items():
        check(
            lambda where, snapshot_id=snapshot_id: table.scan(where, snapshot_id=snapshot_id),
            everything,
            name,
            lookups=4,
        )


def test_a_table_that_takes_the_name_of_a_dropped_one(lake):
    for seed in range(3):
        table = created(lake)
        table.append(rows(seed)), table.append(rows(seed + 10))
        check(table.scan, pa.concat_tables([rows(seed), rows(seed + 10)]))
        lake.drop_table("a.events", purge=seed == 1)


def test_a_name_mapping_that_changes_is_noticed(lake, tmp_path):
    table = lake.create_table("a.plain", pa.schema([("x", pa.int64()), ("y", pa.int64())]))
    data = pa.table({"old": [1, 2], "new": [10, 20]})
    path = tmp_path / "outside.parquet"
    pa.parquet.write_table(data, path)
    for name in ("old", "new", "old"):
        other = {"old": "new", "new": "old"}[name]
        mapping = (
            f'[{{"field-id": 1, "names": ["{name}"]}}, {{"field-id": 2, "names": ["{other}"]}}]'
        )
        table.set_properties({"schema.name-mapping.default": mapping})
        if not table.scan().count():
            table.add_files([path.as_uri()])
        found = table.refresh().scan(where="x = 2 or x = 20").to_arrow()["x"].to_pylist()
        assert found == [{"old": 2, "new": 20}[name]]


def test_structs_of_other_names_are_other_columns(lake, tmp_path):
    struct = pa.struct([("x", pa.int64())])
    table = lake.create_table("a.structs", pa.schema([("left", struct), ("right", struct)]))
    for name, value in (("left", 1), ("right", 2)):
        path = tmp_path / f"{name}.parquet"
        data = pa.table({name: pa.array([{"x": value}], struct)})
        # without Arrow's schema the leaf columns of both files are the same
        pa.parquet.write_table(data, path, store_schema=False)
        table.add_files([path.as_uri()])
    for name, value in (("left", 1), ("right", 2), ("left", 1)):
        table.refresh()
        rows = table.scan(select=[name]).to_arrow()[name].to_pylist()
        assert sorted(rows, key=str) == sorted([{"x": value}, None], key=str)
        rows = table.scan(where=f"{name}.x > 0", select=[name]).to_arrow()[name].to_pylist()
        assert rows == [{"x": value}]


@pytest.mark.slow
def test_threads_read_while_another_commits(lake):
    table = created(lake)
    table.append(rows(0)), table.append(rows(1))
    lasting = table.scan().to_arrow().filter(pa.compute.field("key") < KEYS // 2)
    done = threading.Event()
    connection = duckdb.connect()
    connection.register("lasting", lasting)
    questions = [asked(random.Random(n)) for n in range(30)]
    questions = [(key % (KEYS // 2), day) for key, day in questions]
    wanted = {
        question: in_order(
            connection.execute(f"select * from lasting where {where(*question)}").to_arrow_table()
        )
        for question in questions
    }

    def reads(seed: int) -> int:
        chance, count = random.Random(seed), 0
        mine = lake.load_table("a.events")
        while not done.is_set() or count < 30:
            if chance.random() < 0.3:
                mine = lake.load_table("a.events")
            one = chance.choice(questions)
            assert in_order(mine.scan(where=where(*one)).to_arrow()) == wanted[one]
            count += 1
        return count

    with ThreadPoolExecutor(8) as pool:
        readers = [pool.submit(reads, seed) for seed in range(8)]
        try:
            for seed in range(6):
                change = rows(seed + 50, 100)
                table.append(change.filter(pa.compute.field("key") >= KEYS // 2))
                table.delete(where=f"key = {KEYS // 2 + seed}")
            table.rewrite_manifests()
        finally:
            done.set()
        assert all(reader.result() >= 30 for reader in readers)


@pytest.mark.slow
def test_what_is_kept_stays_within_its_bounds(lake, monkeypatch):
    table = created(lake)
    for seed in range(6):
        table.append(rows(seed))
    everything = table.scan().to_arrow()
    kinds = (DEFAULT_CACHE.kept, MADE)
    for kept in kinds:
        kept.clear()
    check(table.scan, everything)
    used = [kept.held for kept in kinds]
    assert min(used) > 0
    for kept, size in zip(kinds, used, strict=True):
        monkeypatch.setattr(kept, "bytes_max", size // 3)
    for select in (None, "key", ["ts", "amount"], "amount"):
        wanted = (
            everything
            if select is None
            else everything.select([select] * isinstance(select, str) or select)
        )
        assert table.scan(select=select).to_arrow().num_rows == wanted.num_rows
        check(table.scan, everything, lookups=4)
        gc.collect()
        assert all(kept.held <= kept.bytes_max for kept in kinds)
