"""Tables in the server's memory are the newest, whoever changed them, however it was told."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

import lakehouse as lh
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.catalog.sql import sql_database
from lakehouse.catalog.sql.sql_database import SqliteChanges
from lakehouse.server.served_tables import ServedTables
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.location import local_path
from lakehouse.storage.memory import MemoryStorage
from tests.server.conftest import Rest, open_lake, serve


@pytest.fixture(params=["filesystem", "sqlite", "postgres"])
def served(request, tmp_path):
    if request.param == "postgres":
        uri = request.getfixturevalue("postgres_uri")
        lake = lh.load_catalog(uri, warehouse=str(tmp_path / "wh"), name=uuid.uuid4().hex)
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


def test_a_metadata_file_that_somebody_deleted_is_missed(served):
    rest, lake = served, served.lake
    for name in ("t", "u"):
        lake.create_table(f"ns.{name}", pa.schema({"id": pa.int64()}))
        assert [version(rest, name), version(rest, name)] == [None] * 2
    file = Path(local_path(lake.load_table("ns.t").metadata_location))
    aside = file.rename(file.with_name("aside"))
    answers = [rest.get("/namespaces/ns/tables/t"), rest.get("/namespaces/ns/tables/t")]
    change = {"updates": [{"action": "set-properties", "updates": {"n": "1"}}]}
    answers.append(rest.post("/namespaces/ns/tables/t", change))
    if isinstance(lake.catalog.inside, FilesystemCatalog):  # without versions there is no table
        assert {one.json()["error"]["type"] for one in answers} == {"NoSuchTableException"}
    else:
        told = [one.json()["error"] for one in answers]
        assert {(one["code"], one["type"]) for one in told} == {(404, "NotFoundException")}
        assert all(str(file) in one["message"] for one in told)
        assert rest.ask("HEAD", "/namespaces/ns/tables/t").status_code == 204
    with pytest.raises(NoSuchTableError):
        RestCatalog("theirs", uri=rest.url).load_table("ns.t")
    assert version(rest, "u") is None
    assert rest.get("/namespaces/ns/tables/u").status_code == 200
    aside.rename(file)
    assert rest.post("/namespaces/ns/tables/t", change).status_code == 200
    assert version(rest) == "1"


def test_object_stores_are_not_asked_for_tables_in_memory(tmp_path, monkeypatch):
    lake = lh.load_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse="memory://known/wh")
    asked = []
    for name in ("read", "exists", "size", "read_range"):
        one = getattr(MemoryStorage, name)

        def noted(self, *more, one=one):
            asked.append(more[0])
            return one(self, *more)

        monkeypatch.setattr(MemoryStorage, name, noted)
    tables = ServedTables(lake.catalog, 1 << 20)
    lake.create_table("ns.t", pa.schema({"id": pa.int64()}))
    first, _ = tables.body(Identifier.parse("ns.t"))
    asked.clear()
    assert tables.body(Identifier.parse("ns.t"))[0] is first
    assert asked == []


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
def test_names_that_are_none_are_not_kept(tmp_path, monkeypatch, is_told):
    """Whoever asks for ever others, where nobody commits, or nobody tells whether anybody did."""
    lake = open_lake("sqlite", tmp_path)
    if not is_told:
        monkeypatch.setattr(SqliteChanges, "mark", lambda _: None)
    for n in range(sql_database.REMEMBERED_MAX + 100):
        with pytest.raises(lh.NoSuchTableError):
            lake.catalog.load(Identifier(("ns",), f"t{n}"))
    (remembered,) = [
        one for one in lake.catalog.inside._database._remembered if isinstance(one, dict)
    ]
    assert len(remembered) <= (sql_database.REMEMBERED_MAX if is_told else 0)
