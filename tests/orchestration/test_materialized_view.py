"""Materialized views of the catalog: freshness, refreshes, and what is refused.

That rows which follow what changed are right is the hunt `followed` (tests/hostile). The oracle
here is DuckDB over the sources; a table of Iceberg is read by pyiceberg.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakehouse as lh
from lakehouse.cli import app
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    InvalidInputError,
    InvalidViewError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from lakehouse.lake import Lakehouse
from lakehouse.orchestration import MaterializedView, materialized_view
from lakehouse.orchestration.assets import incremental
from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import rest_app
from lakehouse.spec.metadata.snapshot import RUN_ID
from tests.server.test_pages import Browser

SCHEMA = pa.schema({"user": pa.string(), "n": pa.int32()})
SQL = "SELECT user, count(*) AS events, sum(n) AS n FROM raw.events GROUP BY user"


def rows(*users: str) -> pa.Table:
    return pa.table({"user": users, "n": range(len(users))}, schema=SCHEMA)


@pytest.fixture(params=["files", "sqlite"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lakehouse:
    folder = (tmp_path / "warehouse").as_uri()
    if request.param == "files":
        made = lh.load_catalog(folder)
    else:
        made = lh.load_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=folder)
    made.create_table("raw.events", SCHEMA).append(rows(*"aabbbcdefgh"))
    return made


def held(lake: Lakehouse, view: MaterializedView) -> list[str]:
    found = lake.load_table(view.storage).scan().to_arrow().to_pylist()
    return sorted(str(tuple(map(str, row.values()))) for row in found)


def answer(lake: Lakehouse, sql: str = SQL) -> list[str]:
    events = lake.load_table("raw.events").scan().to_arrow()  # noqa: F841 - DuckDB reads it
    found = duckdb.sql(sql.replace("raw.events", "events")).fetchall()
    return sorted(str(tuple(map(str, row))) for row in found)


def test_readers_are_told_how_fresh_it_is_and_refreshes_follow(lake: Lakehouse):
    events = lake.load_table("raw.events")
    view = MaterializedView.create(lake, "marts.users", SQL, refresh="incremental")
    assert not lake.table_exists(view.storage)
    assert view.freshness().reason == "it has never been refreshed"
    assert view.refresh().mode == "full"
    assert held(lake, view) == answer(lake)
    changes: list[tuple[Callable[[], object], int]] = [
        (lambda: events.append(rows("a", "new")), 1),
        (lambda: events.delete("user = 'c'"), 1),
        (lambda: [events.append(rows("d")), events.overwrite(rows("e"), "user = 'e'")], 2),
    ]
    for change, snapshots in changes:
        assert view.freshness().fresh
        before = held(lake, view)
        change()
        found = MaterializedView(lake, "marts.users").freshness()
        assert (found.fresh, found.reason) == (False, "raw.events has changed")
        assert found.sources["raw.events"].snapshots == snapshots
        oldest = events.refresh().metadata.ancestors(events.metadata.current_snapshot_id)
        since = [one.timestamp_ms for one, _ in zip(oldest, range(snapshots), strict=False)][-1]
        assert found.seconds_behind <= (lake.environment.now_ms() - since) / 1000
        assert held(lake, view) == before
        known = len(lake.load_table(view.storage).metadata.snapshots)
        assert view.refresh().mode == "incremental"
        assert held(lake, view) == answer(lake)
        storage = lake.load_table(view.storage)
        assert len(storage.metadata.snapshots) == known + 1
        assert list(storage.refs()) == ["main"]
        assert RUN_ID not in storage.current_snapshot().summary
    head = lake.load_table(view.storage).metadata.current_snapshot_id
    events.refresh().compact(lh.CompactionOptions(rewrite_all=True))
    assert view.freshness().fresh
    assert view.refresh().mode == "incremental"  # the state moves on
    assert view.refresh().reason == "nothing has been committed to its sources"
    assert lake.load_table(view.storage).metadata.current_snapshot_id != head
    # any client of Iceberg reads the rows
    read = StaticTable.from_metadata(lake.load_table(view.storage).metadata_location).scan()
    found = [str(tuple(map(str, row.values()))) for row in read.to_arrow().to_pylist()]
    assert sorted(found) == answer(lake)


@pytest.mark.parametrize("happens", ["rollback", "expiry", "by hand", "another SELECT"])
def test_what_cannot_be_followed_is_told_and_computed_in_full(happens: str, lake: Lakehouse):
    events, sql = lake.load_table("raw.events"), SQL
    events.append(rows("a"))
    view = MaterializedView.create(lake, "marts.users", SQL, refresh="incremental")
    view.refresh()
    if happens == "rollback":
        events.refresh().rollback_to(events.metadata.snapshots[0].snapshot_id)
    elif happens == "expiry":
        events.append(rows("b"))
        events.append(rows("c"))
        events.expire_snapshots(older_than=events.metadata.last_updated_ms + 1, retain_last=1)
    elif happens == "by hand":
        lake.load_table(view.storage).delete("user = 'a'")
        events.append(rows("b"))
    else:
        sql = "SELECT user, count(*) AS events FROM raw.events GROUP BY user"
        lake.load_view("marts.users").replace(
            sql, pa.schema({"user": pa.string(), "events": pa.int64()})
        )
        view = MaterializedView(lake, "marts.users")
    found = view.freshness()
    assert not found.fresh
    said = "its SELECT is another one" if happens == "another SELECT" else "raw.events has changed"
    assert said in found.reason
    assert view.refresh().mode == "full"
    found_rows = lake.load_table(view.storage).scan(select=["user", "events"]).to_arrow()
    right = answer(lake, "SELECT user, count(*) AS events FROM raw.events GROUP BY user")
    assert sorted(str(tuple(map(str, one.values()))) for one in found_rows.to_pylist()) == right
    assert view.freshness().fresh


def test_auto_knows_what_refreshes_took_although_their_snapshots_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock, seconds, opened = Environment.seeded(1), 0, materialized_view.open_engine
    lake = lh.load_catalog(str(tmp_path), environment=clock)
    events = lake.create_table("raw.events", SCHEMA)
    events.append(rows(*map(str, range(40))))
    view = MaterializedView.create(lake, "marts.users", SQL)

    def slow(*given: Any) -> Any:
        """An engine that computes for some seconds."""
        engine = opened(*given)
        result = engine.result

        def later(*frames: Any) -> Any:
            clock.sleep(seconds)
            return result(*frames)

        monkeypatch.setattr(engine, "result", later)
        return engine

    monkeypatch.setattr(materialized_view, "open_engine", slow)
    monkeypatch.setattr(incremental, "_REMEMBERED", 3)
    done = []
    # in full; by change, which takes longer; so in full until that is forgotten, and then faster
    for number, seconds in enumerate([20, 50, 20, 20, 20, 1, 1]):  # noqa: B007 - read by `later`
        done.append(view.refresh())
        assert held(lake, view) == answer(lake)
        storage = lake.load_table(view.storage)
        storage.expire_snapshots(older_than=storage.metadata.last_updated_ms + 1, retain_last=1)
        events.append(rows(str(number)))
    assert [one.mode for one in done] == [
        "full", "incremental", "full", "full", "full", "incremental", "incremental",
    ]  # fmt: skip
    assert done[1].reason == "1 rows of the inputs changed, of 41; they touch 1 keys"
    by_past = "by the last runs 1 changed rows would take 50.0 s, and all 42 rows 21.0 s"
    assert done[2].reason == by_past
    assert done[-1].reason.partition("; by the last runs ")[2] == (
        "1 changed rows would take 1.0 s, and all 46 rows 20.9 s"
    )
    assert [round(one.seconds) for one in done[:3]] == [20, 50, 20]


@pytest.mark.parametrize("full", [False, True])
def test_of_two_refreshes_at_once_one_wins_and_none_is_wrong(
    full: bool, lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
):
    events = lake.load_table("raw.events")
    view = MaterializedView.create(lake, "marts.users", SQL, refresh="incremental")
    view.refresh()
    events.append(rows("a"))
    opened = materialized_view.open_engine

    def overtaken(*given: Any) -> Any:
        monkeypatch.setattr(materialized_view, "open_engine", opened)
        events.append(rows("b", "late"))
        MaterializedView(lake, "marts.users").refresh(full=full)
        return opened(*given)

    monkeypatch.setattr(materialized_view, "open_engine", overtaken)
    with pytest.raises(CommitConflictError, match="refreshed meanwhile: refresh it again"):
        view.refresh(full=full)
    assert view.freshness().fresh
    assert list(lake.load_table(view.storage).refs()) == ["main"]
    assert held(lake, view) == answer(lake)


def test_a_refresh_that_fails_changes_nothing_and_one_that_died_is_cleared(tmp_path: Path):
    clock = Environment.seeded(1)
    lake = lh.load_catalog(str(tmp_path), environment=clock)
    events = lake.create_table("raw.events", SCHEMA)
    events.append(rows("a", "b"))
    view = MaterializedView.create(lake, "marts.users", SQL, refresh="incremental")
    view.refresh()
    before = held(lake, view)
    with events.update_schema() as change:
        change.rename_column("n", "m")
    events.append(rows("c").rename_columns(["user", "m"]))
    with pytest.raises(InvalidInputError, match="Column 'n' could not be resolved"):
        view.refresh()
    assert held(lake, view) == before
    with events.update_schema() as change:
        change.rename_column("m", "n")
    lake.load_table(view.storage).create_branch("audit-died")
    clock.sleep(23 * 3600)
    view.refresh()
    assert "audit-died" in lake.load_table(view.storage).refs()
    events.append(rows("d"))
    clock.sleep(3 * 3600)
    view.refresh()
    assert list(lake.load_table(view.storage).refs()) == ["main"]
    assert held(lake, view) == answer(lake)


def test_what_cannot_be_is_one_sentence_and_nothing_is_created(lake: Lakehouse):
    lake.create_view("raw.some", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
    lake.create_table("marts.users_storage", SCHEMA)
    tables, views = lake.list_tables(), lake.list_views()
    refused: list[tuple[str, dict[str, Any], type[Exception], str]] = [
        (SQL, {}, TableAlreadyExistsError, "marts.users_storage, which is to keep the rows"),
        (SQL.replace("events G", "none G"), {}, NoSuchTableError, "raw.none, which does not exist"),
        ("SELECT n FROM raw.some", {}, NoSuchTableError, "raw.some, which is a view"),
        ("SELECT n FROM marts.users", {}, InvalidInputError, "marts.users reads itself"),
        ("SELECT 1 AS n", {}, InvalidInputError, "names no table"),
        ("SELECT m FROM raw.events", {}, InvalidInputError, "'m' could not be resolved"),
        (
            "SELECT user, first(n) AS n FROM raw.events GROUP BY user",
            {"refresh": "incremental_strict"},
            InvalidInputError,
            "is not known to mean the same|cannot be kept incrementally",
        ),
        (
            "SELECT count(*) AS n FROM raw.events",
            {"refresh": "incremental_strict"},
            InvalidInputError,
            "cannot be kept incrementally, no column of the result says",
        ),
        (SQL, {"refresh": "sometimes"}, InvalidInputError, "no refresh 'sometimes'"),
        (SQL, {"engine": "spark", "storage_table": "marts.other"}, InvalidInputError, "a session"),
    ]
    for sql, how, error, said in refused:
        with pytest.raises(error, match=said):
            MaterializedView.create(lake, "marts.users", sql, **how)
        assert (lake.list_tables(), lake.list_views()) == (tables, views)
    with pytest.raises(InvalidViewError, match=r"raw\.some is a view without rows of its own"):
        MaterializedView(lake, "raw.some")


def test_rows_of_another_table_are_not_taken_for_those_of_the_view(lake: Lakehouse):
    view = MaterializedView.create(lake, "marts.users", SQL)
    lake.create_table(view.storage, SCHEMA).append(rows("theirs"))
    for verb in (view.refresh, view.freshness, view.drop):
        with pytest.raises(TableAlreadyExistsError, match="is another table"):
            verb()
    assert lake.load_table(view.storage).scan().count() == 1


def test_the_page_of_a_view_says_whether_its_rows_are_fresh(tmp_path: Path):
    lake = lh.load_catalog(str(tmp_path))
    events = lake.create_table("raw.events", SCHEMA)
    events.append(rows("a"))
    view = MaterializedView.create(lake, "marts.users", SQL)
    narrow = "SELECT user, count(*) AS events FROM raw.events GROUP BY user"
    kept = pa.schema({"user": pa.string(), "events": pa.int64()})
    changes: list[tuple[str, Callable[[], object]]] = [
        ("cannot be read, or never refreshed", view.refresh),
        ("fresh, refreshed", lambda: events.append(rows("b"))),
        ("not fresh: raw.events has changed", view.refresh),
        ("fresh, refreshed", lambda: view.view().replace(narrow, kept)),
        ("not fresh: its SELECT is another one", lambda: None),
    ]
    with HttpServer(rest_app(lake), "127.0.0.1", 0) as server:
        browser = Browser(server.url)
        for said, change in changes:
            words = browser.words("/views/marts/users")
            assert f"marts.users_storage {said}" in words
            change()
        assert "materialized view" in words
        assert "/tables/marts/users_storage" in browser.page("/views/marts/users").links


def test_on_the_command_line(lake: Lakehouse, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    given = ["-c", lake.catalog.uri, "-w", lake.warehouse]

    def run(*arguments: str, code: int = 0) -> Any:
        with pytest.raises(SystemExit) as ended:
            app([*arguments, *given, "--json"])
        told = capsys.readouterr()
        assert ended.value.code == code, told.err
        return json.loads(told.out)

    def of_view(*arguments: str) -> Any:
        return run("materialized-view", *arguments)

    assert of_view("create", "marts.users", SQL) == {
        "view": "marts.users", "storage_table": "marts.users_storage",
    }  # fmt: skip
    assert of_view("show", "marts.users")["reason"] == "it has never been refreshed"
    assert of_view("refresh", "marts.users")[0]["mode"] == "full"
    assert of_view("refresh", "marts.users", "--full")[0]["reason"] == "the run says so"
    found = of_view("show", "marts.users")
    assert (found["fresh"], found["seconds_behind"]) == (True, 0)
    lake.load_table("raw.events").append(rows("b"))
    for name in ("marts.users", "marts.users_storage"):  # a table tells, too, whose rows it has
        told = run("describe", name)
        assert told["freshness"] == "marts.users is not fresh: raw.events has changed"
        assert told["materialized"]["sources"]["raw.events"]["snapshots_behind"] == 1
    # all that are not fresh, each behind what it reads; one that fails hinders none
    most = "SELECT max(events) AS most FROM marts.users_storage"
    MaterializedView.create(lake, "marts.a", most).refresh()
    lake.create_table("raw.gone", SCHEMA)
    MaterializedView.create(lake, "marts.b", "SELECT user FROM raw.gone")
    lake.drop_table("raw.gone")
    too_many = "SELECT user, count(*) + 9223372036854775807 AS n FROM raw.events GROUP BY user"
    MaterializedView.create(lake, "marts.0", too_many)
    told = run("materialized-view", "refresh", code=1)
    done = {one["view"]: one for one in told}
    engines_own = done.pop("marts.0")
    assert engines_own["mode"] == "failed"
    assert "verflow" in engines_own["reason"]
    with pytest.raises(SystemExit):
        app(["materialized-view", "refresh", "marts.0", *given])
    assert "marts.0: " in capsys.readouterr().err
    assert list(done).index("marts.users") < list(done).index("marts.a")
    assert done.keys() == {"marts.users", "marts.a", "marts.b"}
    assert (done["marts.b"]["mode"], done["marts.users"]["mode"]) == ("failed", "incremental")
    assert "raw.gone" in done["marts.b"]["reason"]
    assert lake.load_table("marts.a_storage").scan().to_arrow()["most"].to_pylist() == [4]
    listed = {one["view"]: one["fresh"] for one in of_view("list")}
    assert listed == {
        "marts.0": False, "marts.a": True, "marts.b": False, "marts.users": True,
    }  # fmt: skip
    for name in ("marts.0", "marts.a", "marts.b"):
        of_view("drop", name)
    assert of_view("refresh") == []
    assert of_view("drop", "marts.users") == {"view": "marts.users"}
    assert (lake.list_tables(), lake.list_views()) == (["raw.events"], [])
