"""Dagster's events over open connections; Dagster's own storage reads and writes beside it."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.events import DagsterEvent, DagsterEventType
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
)
from dagster._core.utils import make_new_run_id
from dagster._serdes import serialize_value
from sqlalchemy import event
from sqlalchemy.pool import Pool

from lakehouse.orchestration.dagster_instance import PooledSqliteEvents, open_instance, prepare_home

ROOT = Path(__file__).resolve().parents[2]
RUNS = [f"00000000-0000-0000-0000-{number:012}" for number in range(12)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    return prepare_home(ROOT)


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[PooledSqliteEvents]:
    storage = PooledSqliteEvents(str(tmp_path))
    yield storage
    storage.dispose()


@pytest.fixture
def stock(ours: PooledSqliteEvents, tmp_path: Path) -> SqliteEventLogStorage:
    return SqliteEventLogStorage(str(tmp_path))


@pytest.fixture
def opened() -> Iterator[Counter[str]]:
    """How many connections were opened, by the file's name."""
    counts: Counter[str] = Counter()

    def count(connection: sqlite3.Connection, _record: object) -> None:
        path = Path(connection.execute("PRAGMA database_list").fetchone()[2])
        counts["run" if path.parent.name == "runs" and path.stem != "index" else path.stem] += 1

    event.listen(Pool, "connect", count)
    yield counts
    event.remove(Pool, "connect", count)


def _event(run_id: str, text: str) -> EventLogEntry:
    return EventLogEntry(None, 10, text, run_id, 1.0, step_key=None, job_name="ingest")


def _mirrored(run_id: str) -> EventLogEntry:
    """An event that is kept with its run and in the index."""
    succeeded = DagsterEvent(DagsterEventType.RUN_SUCCESS.value, "ingest", message="done")
    return EventLogEntry(None, 10, "", run_id, 2.0, job_name="ingest", dagster_event=succeeded)


def _texts(storage: SqliteEventLogStorage, run_id: str) -> list[str]:
    return [entry.user_message for entry in storage.get_logs_for_run(run_id)]


def _materialize(instance: dg.DagsterInstance, days: int) -> str:
    @dg.asset(partitions_def=dg.StaticPartitionsDefinition([f"{day:03}" for day in range(days)]))
    def flights() -> Iterator[object]:
        yield dg.AssetObservation("flights", partition="000", metadata={"files": 3})
        yield dg.MaterializeResult(metadata={"rows": 1}, tags={"unit": "rows"})

    job = dg.Definitions(
        assets=[flights], jobs=[dg.define_asset_job("all_flights", [flights])]
    ).resolve_job_def("all_flights")
    result = job.execute_in_process(
        instance=instance,
        tags={
            ASSET_PARTITION_RANGE_START_TAG: "000",
            ASSET_PARTITION_RANGE_END_TAG: f"{days - 1:03}",
        },
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )
    return result.run_id


def _told(instance: dg.DagsterInstance, runs: list[str]) -> list[object]:
    """What Dagster's own questions get as answers."""
    key = dg.AssetKey("flights")
    index = instance.event_log_storage
    return [
        [serialize_value(entry) for run in runs for entry in instance.all_logs(run)],
        [serialize_value(record) for record in instance.fetch_materializations(key, 1000).records],
        [serialize_value(record) for record in instance.fetch_observations(key, 1000).records],
        sorted(instance.get_materialized_partitions(key)),
        index.get_latest_planned_materialization_info(key),
        index.get_event_tags_for_asset(key),
        [record.asset_entry.last_run_id for record in instance.get_asset_records([key])],
        instance.all_asset_keys(),
        [serialize_value(instance.get_run_stats(run)) for run in runs],
    ]


def test_dagsters_own_storage_reads_what_was_stored_and_the_other_way_round(home: Path) -> None:
    (home / "stock").mkdir()
    stock_settings = f"storage: {{sqlite: {{base_dir: {home}}}}}\n"
    (home / "stock/dagster.yaml").write_text(stock_settings)
    with (
        open_instance() as ours,
        dg.DagsterInstance.from_config(str(home / "stock")) as stock,
    ):
        assert type(ours.event_log_storage) is PooledSqliteEvents
        assert type(stock.event_log_storage) is SqliteEventLogStorage
        runs: list[str] = []
        for instance in (ours, stock, ours):
            runs.append(_materialize(instance, 7))
            assert _told(ours, runs) == _told(stock, runs)
        ours.delete_run(runs[0])
        assert _told(ours, runs[1:]) == _told(stock, runs[1:])
        assert ours.all_logs(runs[0]) == stock.all_logs(runs[0]) == []
        stock.wipe_assets([dg.AssetKey("flights")])
        assert _told(ours, runs[1:]) == _told(stock, runs[1:])
        stock.wipe()
        assert ours.all_asset_keys() == []
        runs = [_materialize(ours, 3)]
        assert _told(ours, runs) == _told(stock, runs)


def test_the_number_of_connections_does_not_depend_on_that_of_events(
    home: Path, opened: Counter[str]
) -> None:
    told = []
    with open_instance() as instance:
        _materialize(instance, 1)
        for days in (2, 60):
            opened.clear()
            run = _materialize(instance, days)
            told.append((dict(opened), len(instance.all_logs(run))))
    (few, events), (many, more_events) = told
    assert more_events > events + 100
    assert few == many
    assert few["run"] <= 6
    assert few.get("index", 0) <= 1


def test_open_files_are_bounded(
    ours: PooledSqliteEvents, stock: SqliteEventLogStorage, tmp_path: Path
) -> None:
    def files() -> int:
        links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return sum(link.readlink().is_relative_to(tmp_path) for link in links)

    if not Path("/proc/self/fd").exists():
        pytest.skip("open files are told by /proc")
    for text in ("first", "second"):
        for run in RUNS:
            ours.store_event(_event(run, text))
            ours.store_event(_mirrored(run))
        # a database, its log and the log's index
        assert files() <= 3 * 8
    assert all(_texts(stock, run) == ["first", "", "second", ""] for run in RUNS)
    ours.dispose()
    assert files() == 0
    ours.store_event(_event(RUNS[0], "third"))
    assert _texts(stock, RUNS[0])[-1] == "third"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_runs_file_that_is_deleted_or_replaced_by_others(
    ours: PooledSqliteEvents, stock: SqliteEventLogStorage, tmp_path: Path, replaced: bool
) -> None:
    run, path = RUNS[0], tmp_path / f"{RUNS[0]}.db"
    ours.store_event(_event(run, "before"))
    for file in tmp_path.glob(f"{run}.db*"):
        file.unlink()
    if replaced:
        other = SqliteEventLogStorage(str(tmp_path / "elsewhere"))
        other.store_event(_event(run, "restored"))
        shutil.copyfile(tmp_path / "elsewhere" / path.name, path)
    ours.store_event(_event(run, "after"))
    expected = ["restored", "after"] if replaced else ["after"]
    assert _texts(ours, run) == _texts(SqliteEventLogStorage(str(tmp_path)), run) == expected
    if not replaced:
        assert _texts(stock, run) == expected


def test_threads_share_a_storage(ours: PooledSqliteEvents, stock: SqliteEventLogStorage) -> None:
    def store(writer: int) -> None:
        for number in range(10):
            ours.store_event(_event(RUNS[number], f"{writer}"))
            ours.store_event(_mirrored(RUNS[number]))

    threads = [threading.Thread(target=store, args=(writer,)) for writer in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for run in RUNS[:10]:
        assert sorted(filter(None, _texts(stock, run))) == [str(writer) for writer in range(6)]


def _store_and_die(folder: str, writer: int) -> None:
    storage = PooledSqliteEvents(folder)
    for number in range(20):
        storage.store_event(_event(RUNS[0], f"{writer} {number}"))
        storage.store_event(_mirrored(RUNS[writer]))
    # nothing is closed, and SQLite's log is not moved into the database
    os._exit(0)


@pytest.mark.slow
def test_processes_share_the_files_and_what_they_stored_outlives_them(
    ours: PooledSqliteEvents, stock: SqliteEventLogStorage, tmp_path: Path
) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [
        spawn.Process(target=_store_and_die, args=(str(tmp_path), number)) for number in (1, 2, 3)
    ]
    for process in writers:
        process.start()
    for number in range(20):
        stock.store_event(_event(RUNS[0], f"0 {number}"))
        ours.store_event(_event(RUNS[0], f"4 {number}"))
    for process in writers:
        process.join()
        assert process.exitcode == 0
    expected = sorted(f"{writer} {number}" for writer in range(5) for number in range(20))
    for storage in (ours, stock):
        assert sorted(_texts(storage, RUNS[0])) == expected
        assert [len(_texts(storage, RUNS[writer])) for writer in (1, 2, 3)] == [20, 20, 20]
    for path in tmp_path.glob("*.db"):
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_opens_connections_of_its_own(
    ours: PooledSqliteEvents, stock: SqliteEventLogStorage, tmp_path: Path
) -> None:
    ours.store_event(_event(RUNS[0], "parent 1"))
    parents = {id(engine) for engine, _ in ours._engines.values()}
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ours.store_event(_event(RUNS[0], "child"))
            engines = ours._engines.values()
            code = 0 if parents.isdisjoint(id(engine) for engine, _ in engines) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    ours.store_event(_event(RUNS[0], "parent 2"))
    assert _texts(stock, RUNS[0]) == ["parent 1", "child", "parent 2"]
    with sqlite3.connect(tmp_path / f"{RUNS[0]}.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_who_watches_a_run_is_told_of_what_others_store(
    ours: PooledSqliteEvents, tmp_path: Path
) -> None:
    run, told, all_told = make_new_run_id(), [], threading.Event()

    def tell(entry: EventLogEntry, _cursor: str) -> None:
        told.append(entry.user_message)
        if len(told) == 3:
            all_told.set()

    writer = PooledSqliteEvents(str(tmp_path))
    writer.store_event(_event(run, "before"))
    ours.watch(run, None, tell)
    for text in ("first", "second"):
        writer.store_event(_event(run, text))
    assert all_told.wait(600)
    assert told == ["before", "first", "second"]
    ours.end_watch(run, tell)
    writer.dispose()


def test_power_may_cost_the_last_events_but_never_the_database(
    ours: PooledSqliteEvents, tmp_path: Path
) -> None:
    def synchronous(storage: PooledSqliteEvents, run: str) -> int:
        with storage.run_connection(run) as connection:
            return int(connection.exec_driver_sql("PRAGMA synchronous").scalar())

    ours.store_event(_event(RUNS[0], "before"))
    assert synchronous(ours, RUNS[0]) == 1  # NORMAL: synced at checkpoints
    ours.dispose()
    with sqlite3.connect(tmp_path / f"{RUNS[0]}.db") as connection:
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    connection.close()
    assert synchronous(ours, RUNS[0]) == 2  # FULL: without a write-ahead log
