"""Our client loads what branches and tags name, and all else when it is needed."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import NoSuchSnapshotError
from tests.server.conftest import open_lake, serve

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A table of five snapshots, three of them named; the requests for it; the same at home."""
    lake = open_lake("sqlite", tmp_path)
    home = lake.create_table("late.t", ROWS.schema)
    for number in range(5):
        home.append(ROWS)
        if number in (1, 3):
            home.create_tag(f"tag{number}")
    with serve(lake) as server:
        client = lh.load_catalog(server.url, **{"snapshot-loading-mode": "refs"})
        asked = []
        send = client.catalog.inside._session.send

        def noted(method, path, *args, **more):
            asked.append((more.get("query") or {}).get("snapshots"))
            return send(method, path, *args, **more)

        monkeypatch.setattr(client.catalog.inside._session, "send", noted)
        yield client.load_table("late.t"), asked, home


def test_reading_the_newest_rows_and_tags_needs_no_more(tables):
    table, asked, home = tables
    assert table.scan().count() == 15
    assert table.scan(ref="tag1").count() == 6
    assert table.current_snapshot() == home.current_snapshot()
    assert "all" not in asked
    assert "refs" in asked


def test_history_is_all_there(tables):
    table, asked, home = tables
    first = home.snapshots()[0].snapshot_id
    assert table.scan(snapshot_id=first).count() == 3
    assert asked.count("all") == 1
    assert table.metadata == home.metadata
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == [
        snapshot.snapshot_id for snapshot in home.snapshots()
    ]
    assert asked.count("all") == 1
    assert pickle.loads(pickle.dumps(table.metadata)) == home.metadata  # noqa: S301
    with pytest.raises(NoSuchSnapshotError):
        table.scan(snapshot_id=7).count()


def test_changes_lose_nothing(tables):
    table, _, home = tables
    table.append(ROWS)
    table.rollback_to(home.snapshots()[2].snapshot_id)
    found = home.refresh()
    assert len(found.snapshots()) == 6
    assert found.scan().count() == 9
    assert sorted(found.metadata.refs) == ["main", "tag1", "tag3"]


def test_what_an_append_answers_is_short_and_the_logs_come_when_they_are_asked_for(tables):
    table, asked, home = tables
    table.append(ROWS)
    table.append(ROWS)
    asked.clear()
    table.scan().count()
    assert "refs" not in asked
    assert "all" not in asked
    home.refresh()
    assert list(table.metadata.metadata_log) == list(home.metadata.metadata_log)
    assert list(table.metadata.snapshot_log) == list(home.metadata.snapshot_log)
    assert len(table.metadata.snapshot_log) == 7
    assert asked.count("refs") == 2
    assert table.metadata == home.metadata
    first = home.snapshots()[0]
    assert table.scan(as_of=first.timestamp_ms).count() == 3
    assert pickle.loads(pickle.dumps(table.metadata)) == home.metadata  # noqa: S301


def test_proxies_are_looked_for_once(tables, monkeypatch):
    table, _, _ = tables
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    table.append(ROWS)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nobody listens
    table.append(ROWS)
    assert table.refresh().scan().count() == 21
