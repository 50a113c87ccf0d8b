"""Transactions over tables: all of it or nothing, against what each table says afterwards."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import (
    CommitConflictError,
    InvalidSchemaError,
    NoSuchTableError,
    UnsupportedFeatureError,
)
from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import rest_app

ROWS = pa.table({"id": [1, 2, 3], "n": [10, 20, 30]})


@pytest.fixture(params=["sqlite", "files"])
def lake(request, tmp_path):
    warehouse = str(tmp_path / "wh")
    where = f"sqlite:///{tmp_path}/c.db" if request.param == "sqlite" else warehouse
    lake = lh.load_catalog(where, warehouse=warehouse)
    for name in ("t.a", "t.b"):
        lake.create_table(name, ROWS.schema).append(ROWS)
    return lake


def ids(lake, name):
    return sorted(lake.load_table(name).scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("version", [2, 3])
def test_all_of_it(lake, version):
    lake.create_table("t.c", ROWS.schema, format_version=version)
    with lake.transaction() as tx:
        c, b = tx.table("t.c"), tx.table("t.b")
        c.append(ROWS)
        c.append(ROWS)
        tx.table("t.c").delete(where="id = 2")
        assert sorted(tx.table("t.c").scan().to_arrow()["id"].to_pylist()) == [1, 1, 3, 3]
        b.upsert(pa.table({"id": [3, 4], "n": [0, 0]}), keys=["id"])
        tx.table("t.b").set_properties({"by": "tx"})
        assert ids(lake, "t.c") == []
        assert ids(lake, "t.b") == [1, 2, 3]
    assert ids(lake, "t.c") == [1, 1, 3, 3]
    assert ids(lake, "t.b") == [1, 2, 3, 4]
    metadata = lake.load_table("t.c").metadata
    assert len(metadata.snapshots) == 3
    assert [snapshot.sequence_number for snapshot in metadata.snapshots] == [1, 2, 3]
    assert len(metadata.metadata_log) == 1
    assert lake.load_table("t.b").properties["by"] == "tx"


def test_nothing_of_it(lake):
    def misfit(second, rows):
        with lake.transaction() as tx:
            tx.table("t.a").append(ROWS)
            tx.table(second).append(rows)

    with pytest.raises(InvalidSchemaError):
        misfit("t.b", pa.table({"colour": ["red"]}))
    with pytest.raises(NoSuchTableError):
        misfit("t.nothing", ROWS)
    assert ids(lake, "t.a") == ids(lake, "t.b") == [1, 2, 3]


def test_others_were_first(lake):
    def overtaken():
        with lake.transaction() as tx:
            tx.table("t.a").append(ROWS)
            tx.table("t.b").append(ROWS)
            lake.load_table("t.b").append(ROWS)

    with pytest.raises(CommitConflictError):
        overtaken()
    assert ids(lake, "t.a") == [1, 2, 3]
    assert ids(lake, "t.b") == [1, 1, 2, 2, 3, 3]


@pytest.fixture(params=["direct", "served"])
def client(request, lake):
    if request.param == "direct":
        yield lake
        return
    if not lake.catalog.commits_together:
        pytest.skip("a server above files offers no transactions")
    with HttpServer(rest_app(lake), "127.0.0.1", 0) as server:
        yield lh.load_catalog(server.url)


def test_others_changed_what_was_only_read(lake, client):
    def copied(between):
        with client.transaction() as tx:
            tx.table("t.b").overwrite(tx.table("t.a").scan(where="id > 1"))
            between()

    with pytest.raises(CommitConflictError, match=r"t\.a"):
        copied(lambda: lake.load_table("t.a").delete(where="id = 3"))
    assert ids(lake, "t.b") == [1, 2, 3]
    before = lake.load_table("t.a")
    copied(lambda: None)
    assert ids(lake, "t.b") == [2]
    after = lake.load_table("t.a")
    assert after.metadata.refs == before.metadata.refs
    if lake.catalog.commits_together:
        assert after.metadata_location == before.metadata_location


def test_others_wrote_first_to_an_empty_table(lake, client):
    lake.create_table("t.empty", ROWS.schema)

    def overtaken():
        with client.transaction() as tx:
            assert tx.table("t.empty").scan().count() == 0
            tx.table("t.empty").set_properties({"loaded": "no"})
            lake.load_table("t.empty").append(ROWS)

    with pytest.raises(CommitConflictError):
        overtaken()
    assert "loaded" not in lake.load_table("t.empty").properties


def test_what_deletes_files_waits(lake):
    with lake.transaction() as tx:
        table = tx.table("t.a")
        for verb in ("expire_snapshots", "remove_orphan_files", "compact"):
            with pytest.raises(UnsupportedFeatureError, match=verb):
                getattr(table, verb)
        with pytest.raises(AttributeError):
            _ = table.fly


def test_a_server_above_files_offers_none(tmp_path):
    with (
        HttpServer(rest_app(lh.load_catalog(str(tmp_path))), "127.0.0.1", 0) as server,
        pytest.raises(UnsupportedFeatureError, match="offers no transactions"),
    ):
        lh.load_catalog(server.url).transaction()
