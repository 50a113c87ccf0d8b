"""Tables in the server's memory are the newest, whoever changed them, however it was told."""

from __future__ import annotations

import sqlite3
import threading

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.sql import SqlCatalog

import lakehouse as lh
from lakehouse.catalog.sql.sqlite_changes import SqliteChanges
from tests.server.conftest import Rest, open_lake, serve
from tests.servers import postgres


@pytest.fixture(params=["filesystem", "sqlite", "postgres"])
def served(request, tmp_path):
    if request.param == "postgres":
        with postgres() as uri:
            lake = lh.load_catalog(uri, warehouse=str(tmp_path / "wh"), name="known")
            yield from running(lake)
    else:
        yield from running(open_lake(request.param, tmp_path))


def running(lake):
    with serve(lake) as server, requests.Session() as session:
        yield Rest(server.url, lake, session)


def version(rest, name="t"):
    answer = rest.get(f"/namespaces/ns/tables/{name}")
    return answer.json()["metadata"]["properties"].get("n") if answer.status_code == 200 else None


def test_what_others_commit_is_seen_at_once(served):
    rest, lake = served, served.lake
    table = lake.create_table("ns.t", pa.schema({"id": pa.int64()}))
    lake.create_table("ns.u", pa.schema({"id": pa.int64()}))
    assert version(rest) is None
    for n in range(20):
        table.set_properties({"n": str(n)})
        assert [version(rest), version(rest)] == [str(n)] * 2
        tag = rest.get("/namespaces/ns/tables/t").headers["ETag"]
        same = rest.get("/namespaces/ns/tables/t", **{"If-None-Match": tag})
        assert same.status_code == 304
    lake.drop_table("ns.t")
    assert rest.get("/namespaces/ns/tables/t").status_code == 404
    lake.create_table("ns.t", pa.schema({"other": pa.int64()}))
    again = rest.get("/namespaces/ns/tables/t").json()
    assert again["metadata"]["schemas"][0]["fields"][0]["name"] == "other"


def test_another_engine_and_another_connection_are_seen(tmp_path):
    lake = open_lake("sqlite", tmp_path)
    with serve(lake) as server, requests.Session() as session:
        rest = Rest(server.url, lake, session)
        lake.create_table("ns.t", pa.schema({"id": pa.int64()}))
        assert version(rest) is None
        engine = SqlCatalog(lake.name, uri=lake.catalog.uri, warehouse=lake.warehouse)
        for n in range(5):
            table = engine.load_table("ns.t")
            table.transaction().set_properties(n=str(n)).commit_transaction()
            assert [version(rest), version(rest)] == [str(n)] * 2
        engine.engine.dispose()
        with sqlite3.connect(tmp_path / "catalog.db") as connection:
            connection.execute("UPDATE iceberg_tables SET table_name = 'u'")
        connection.close()
        assert version(rest) is None
        assert version(rest, "u") == "4"


def test_readers_never_see_an_older_version_than_they_saw(tmp_path):
    """While the server itself commits: what a commit returned is there for whoever asks next."""
    lake = open_lake("sqlite", tmp_path)
    with serve(lake) as server, requests.Session() as session:
        rest = Rest(server.url, lake, session)
        rest.table("ns", "t")
        path, committed, failures = f"{server.url}/v1/namespaces/ns/tables/t", [0], []

        def read() -> None:
            while committed[0] < 30:
                least = committed[0]
                found = requests.get(path, timeout=30).json()["metadata"]["properties"]
                if int(found.get("n", "0")) < least:
                    failures.append((least, found))

        readers = [threading.Thread(target=read) for _ in range(3)]
        for one in readers:
            one.start()
        for n in range(1, 31):
            updates = [{"action": "set-properties", "updates": {"n": str(n)}}]
            assert rest.post("/namespaces/ns/tables/t", {"updates": updates}).status_code == 200
            committed[0] = n
        for one in readers:
            one.join()
        assert failures == []


def test_nobody_waits_for_a_mark(tmp_path):
    path = tmp_path / "one.db"
    changes = SqliteChanges(str(path))
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    before = changes.mark()
    assert before == changes.mark() != None  # noqa: E711
    connection.execute("BEGIN EXCLUSIVE")
    assert changes.mark() is None  # busy: nobody waits
    connection.execute("ROLLBACK")
    assert changes.mark() is not None
    assert changes.mark() != before  # of another connection: nothing can be said
    changes.close()
    connection.close()
