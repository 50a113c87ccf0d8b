"""Files of changes become the table that they describe: SQLite is the database that changed."""

import gzip
import json
import random
import sqlite3
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

import lakehouse as lh
from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.feeds import feed_run
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.orchestration import (
    ChangeFeed,
    LakehouseResource,
    LakehouseSpark,
    Pipeline,
    ReadOptions,
)
from lakehouse.orchestration.code_location import build_definitions
from lakehouse.orchestration.feed_assets import feed_assets, feed_sensor

USERS = ChangeFeed(name="users", keys=("id",), sequence_by=("source.lsn",), envelope="debezium")
ROWS = ChangeFeed(name="users", keys=("id",), sequence_by=("lsn",), delete_when="op = 'd'")


class Feed:
    """A change feed with its folder, lakehouse and Dagster instance."""

    def __init__(self, root: Path, instance: dg.DagsterInstance, feed: ChangeFeed) -> None:
        self.feed, self.instance, self.folder = feed, instance, root / "landing" / feed.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.resource = LakehouseResource(
            catalog=str(root / "warehouse"), landing=str(root / "landing")
        )
        self.lake = lh.load_catalog(str(root / "warehouse"))

    def run(self, *, fails: bool = False):
        result = dg.materialize(
            [feed_assets(self.feed)],
            resources={"lakehouse": self.resource},
            instance=self.instance,
            raise_on_error=False,
        )
        assert result.success is not fails
        return result

    def asked(self):
        with dg.build_sensor_context(
            instance=self.instance, resources={"lakehouse": self.resource}
        ) as context:
            return feed_sensor(self.feed)(context)

    def rows(self, *columns: str) -> list[tuple]:
        table = StaticTable.from_metadata(self.lake.load_table("raw.users").metadata_location)
        found = table.scan().to_arrow().to_pylist()
        return sorted(tuple(one[name] for name in columns) for one in found)


@pytest.fixture
def feed(tmp_path: Path):
    with dg.DagsterInstance.ephemeral() as instance:
        yield lambda which: Feed(tmp_path, instance, which)


def event(op: str, lsn: int, **row: object) -> bytes:
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({"op": op, "source": {"lsn": lsn}, **images}).encode() + b"\n"


@pytest.mark.parametrize("seed", [1, 2])
def test_the_table_is_what_the_database_is_whatever_order_files_come_in(seed: int, feed) -> None:
    random.seed(seed)
    one = feed(USERS)
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
    batches = []
    for lsn in range(60):
        key, name = random.randrange(8), f"n{lsn}"
        there = database.execute("SELECT 1 FROM users WHERE id = ?", [key]).fetchone()
        if there and random.random() < 0.4:
            database.execute("DELETE FROM users WHERE id = ?", [key])
            batches.append(event("d", lsn, id=key))
        else:
            database.execute("INSERT OR REPLACE INTO users VALUES (?, ?)", [key, name])
            batches.append(event("u" if there else "c", lsn, id=key, name=name))
    files = {
        f"{n:02}.jsonl.gz": gzip.compress(b"".join(batches[n * 6 : n * 6 + 6])) for n in range(10)
    }
    late = random.sample(sorted(files), 3)
    for some in (sorted(set(files) - set(late)), late, []):
        for name in some:
            (one.folder / name).write_bytes(files[name])
        one.run()
    wanted = database.execute("SELECT id, name FROM users ORDER BY id").fetchall()
    assert one.rows("id", "name") == wanted
    ledger = one.lake.load_table("raw.users_landing").scan().to_arrow()
    assert sorted(ledger["landing_file"].to_pylist()) == sorted(files)
    assert sum(ledger["changes"].to_pylist()) == 60
    assert len(one.lake.load_table("raw.users").snapshots()) == 10


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_rows_of_changes_in_every_format(form: str, feed) -> None:
    one = feed(ROWS)
    rows = [
        {"id": 1, "name": "Ada", "lsn": 10, "op": "c"},
        {"id": 2, "name": "Bob", "lsn": 11, "op": "c"},
        {"id": 1, "name": "Ada L.", "lsn": 12, "op": "u"},
        {"id": 2, "name": None, "lsn": 13, "op": "d"},
    ]
    file = one.folder / f"1.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif form == "csv":
        texts = ["" if v is None else str(v) for row in rows for v in row.values()]
        lines = [",".join(texts[n : n + 4]) for n in range(0, 16, 4)]
        file.write_text("\n".join(["id,name,lsn,op", *lines]) + "\n")
    else:
        file.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    one.run()
    assert one.rows("id", "name", "lsn") == [(1, "Ada L.", 12)]
    names = one.lake.load_table("raw.users").schema().column_names
    assert sorted(names) == ["id", "lsn", "name"]


def test_a_file_with_a_line_that_is_no_change_waits_and_is_named(feed) -> None:
    one = feed(USERS)
    (one.folder / "1.jsonl").write_bytes(event("c", 1, id=1, name="Ada"))
    (one.folder / "2.jsonl").write_bytes(event("c", 2, id=2, name="Bob") + b"no json\n")
    (one.folder / "3.jsonl").write_bytes(event("c", 3, id=3, name="Eve"))
    (one.folder / "4.jsonl").write_bytes(b'{"op": "x"}\n')
    asked = one.asked()
    assert isinstance(asked, dg.RunRequest)
    failed = one.run(fails=True)
    told = failed.failure_data_for_node("apply__users").user_failure_data.description
    assert "2 files of users were left alone, 2 are applied" in told
    assert "2.jsonl, line 2: malformed JSON" in told
    assert "4.jsonl: " in told
    assert [key.to_user_string() for key in one.instance.all_asset_keys()]
    assert one.rows("id") == [(1,), (3,)]
    waiting = one.asked()
    assert waiting.run_key not in (None, asked.run_key)
    assert one.asked().run_key == waiting.run_key  # asked for once
    (one.folder / "2.jsonl").write_bytes(event("c", 2, id=2, name="Bob"))
    (one.folder / "4.jsonl").unlink()
    one.run()
    assert one.rows("id") == [(1,), (2,), (3,)]
    assert isinstance(one.asked(), dg.SkipReason)


def test_a_run_that_died_before_the_ledger_is_finished_and_nothing_is_applied_twice(
    feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reapplying would bring back a row once its delete is forgotten; the commit id forbids it."""
    one = feed(USERS)
    (one.folder / "1.jsonl").write_bytes(event("c", 1, id=1, name="Ada"))
    create = lh.Lakehouse.create_table

    def dies(lake, name, *arguments, **more):
        if str(name).endswith("_landing"):
            raise KeyboardInterrupt
        return create(lake, name, *arguments, **more)

    monkeypatch.setattr(lh.Lakehouse, "create_table", dies)
    with pytest.raises(KeyboardInterrupt):
        feed_run.apply_feed(
            one.lake, one.resource.landing, USERS, RunStamp("r", "raw/users"), lambda _: None
        )
    monkeypatch.undo()
    assert one.rows("id") == [(1,)]
    assert not one.lake.table_exists("raw.users_landing")
    one.run()
    assert len(one.lake.load_table("raw.users").snapshots()) == 1
    assert one.lake.load_table("raw.users_landing").scan().count() == 1
    assert feed_run.waiting_files(one.lake, one.resource.landing, USERS) == []


def test_a_feed_is_part_of_a_pipeline(tmp_path: Path) -> None:
    pipeline = Pipeline((), (), str(tmp_path), (USERS,))
    defs = build_definitions(pipeline, LakehouseResource(catalog=str(tmp_path)), LakehouseSpark())
    dg.Definitions.validate_loadable(defs)
    keys = {key.to_user_string() for key in defs.resolve_all_asset_keys()}
    assert {"raw/users", "raw/users_landing"} <= keys
    assert "landed_users" in {one.name for one in defs.sensors or ()}


def test_mistakes_of_a_definition_are_told() -> None:
    with pytest.raises(InvalidInputError, match="needs keys"):
        ChangeFeed(name="users", keys=(), sequence_by=("lsn",))
    with pytest.raises(InvalidInputError, match="say themselves"):
        replace(USERS, delete_when="x")
    with pytest.raises(InvalidInputError, match="the name must match"):
        ChangeFeed(name="My Users", keys=("id",), sequence_by=("lsn",))


def test_a_feed_is_read_by_its_options(feed) -> None:
    """CSV as a European office writes it; oracle: the values that were written."""
    read = ReadOptions(
        encoding="latin-1", delimiter=";", decimal_separator=",", thousands=".", null_values=("-",)
    )
    one = feed(replace(ROWS, read=read))
    text = "id;lsn;op;name;price\n1;1;u;Müller;1.234,5\n2;2;u;-;7\n3;3;u;x;0,25\n3;4;d;x;-\n"
    (one.folder / "1.csv").write_bytes(text.encode("latin-1"))
    one.run()
    assert one.rows("id", "name", "price") == [(1, "Müller", 1234.5), (2, None, 7.0)]
    (one.folder / "2.csv").write_bytes("id;lsn;op;name;price\n4;5;u;y;1,2,3\n".encode("latin-1"))
    one.run(fails=True)  # a price that is no number is none of the table's
    assert len(one.rows("id")) == 2


def test_events_of_debezium_have_an_encoding(feed) -> None:
    one = feed(replace(USERS, read=ReadOptions(encoding="utf-16")))
    (one.folder / "1.jsonl").write_bytes(event("c", 1, id=1, name="Ü").decode().encode("utf-16"))
    one.run()
    assert one.rows("id", "name") == [(1, "Ü")]


@pytest.mark.parametrize(
    ("feed_of", "told"),
    [
        (lambda: replace(ROWS, rescue="rest"), "rescue='rest': a change whose values"),
        (lambda: replace(ROWS, read=ReadOptions(date_format="dd.MM.yyyy")), "date_format='dd.MM"),
        (lambda: replace(ROWS, read=ReadOptions(timestamp_format="yyyy")), "timestamp_format="),
        (lambda: replace(ROWS, read=ReadOptions(header=False)), "header=False: it is about"),
        (lambda: replace(USERS, read=ReadOptions(delimiter=";")), "delimiter=';': events of"),
        (lambda: replace(USERS, read=ReadOptions(thousands="'")), 'thousands="\'": events of'),
        (
            lambda: replace(ROWS, format="jsonl", read=ReadOptions(quote="'")),
            "it is of CSV, and format is 'jsonl'",
        ),
    ],
)
def test_options_that_cannot_hold_are_refused(feed_of, told) -> None:
    with pytest.raises(InvalidInputError) as refused:
        feed_of()
    assert told in str(refused.value)


def test_the_deletes_that_a_feed_remembers_are_maintained(tmp_path):
    lake = lh.load_catalog(str(tmp_path))
    table = lake.create_table(
        "raw.users", pa.schema({"id": pa.int64(), "ts": pa.int64(), "op": pa.string()})
    )
    table.apply_changes(
        pa.table({"id": [1, 2], "ts": [1, 2], "op": ["u", "d"]}),
        keys=["id"],
        sequence_by=["ts"],
        delete_when="op = 'd'",
    )
    feed = ChangeFeed(name="users", keys=("id",), sequence_by=("ts",), delete_when="op = 'd'")
    maintained = Pipeline((), (), "", (feed,)).maintained()
    assert set(lake.list_tables()) == {"raw.users", "raw.users_deletes"}
    assert set(lake.list_tables()) <= set(maintained)
