"""Dagster's events over open connections; Dagster's own storage reads and writes beside it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
import sqlalchemy
from dagster._core.events import BATCH_WRITABLE_EVENTS, DagsterEvent, DagsterEventType
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
)
from dagster._core.utils import make_new_run_id
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._serdes import serialize_value
from dagster_graphql.schema import create_schema
from sqlalchemy import event
from sqlalchemy.pool import Pool

from lakehouse.orchestration import (
    LakehouseIOManager,
    LakehouseResource,
    LakehouseSpark,
    SqlModel,
)
from lakehouse.orchestration.dagster_instance import PooledSqliteEvents, open_instance, prepare_home
from lakehouse.orchestration.lineage.materialization import record_each

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
    @dg.asset(
        partitions_def=dg.StaticPartitionsDefinition([f"{day:03}" for day in range(days)]),
        check_specs=[dg.AssetCheckSpec("some_rows", asset="flights")],
    )
    def flights() -> Iterator[object]:
        yield dg.AssetObservation("flights", partition="000", metadata={"files": 3})
        yield dg.MaterializeResult(metadata={"rows": 1}, tags={"unit": "rows"})
        yield dg.AssetCheckResult(passed=True)

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


def _rows(storage: SqliteEventLogStorage, shard: str, *tables: str) -> list[object]:
    with closing(sqlite3.connect(storage.path_for_shard(shard))) as connection:
        connection.row_factory = sqlite3.Row
        return [
            {name: row[name] for name in row.keys() if name != "create_timestamp"}  # noqa: SIM118
            for table in tables
            for row in connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2")
        ]


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_events_that_are_stored_together_are_what_they_are_one_by_one(
    home: Path, tmp_path: Path, size: int
) -> None:
    with open_instance() as instance:
        run = _materialize(instance, 5)
        logged = [entry for entry in instance.all_logs(run) if entry.is_dagster_event]
    events = [entry for entry in logged if entry.dagster_event_type in BATCH_WRITABLE_EVENTS]
    kinds = Counter(entry.get_dagster_event().event_type_value for entry in events)
    assert kinds == {
        "ASSET_MATERIALIZATION_PLANNED": 5,
        "ASSET_OBSERVATION": 1,
        "ASSET_MATERIALIZATION": 5,
        "ASSET_CHECK_EVALUATION_PLANNED": 1,
    }
    alone = SqliteEventLogStorage(str(tmp_path / "alone"))
    together = PooledSqliteEvents(str(tmp_path / "together"))
    check_planned = dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED
    events.sort(key=lambda entry: entry.dagster_event_type == check_planned)
    events = [entry._replace(timestamp=2.0 + at / 500) for at, entry in enumerate(events)]
    for entry in events:
        alone.store_event(entry)
    for start in range(0, len(events), size):
        together.store_event_batch(events[start : start + size])
    index = ("index", "event_logs", "asset_keys", "asset_event_tags", "asset_check_executions")
    assert len(_rows(alone, *index)) == 12 + 1 + 5 + 1
    assert _rows(together, *index) == _rows(alone, *index)
    assert _rows(together, run, "event_logs") == _rows(alone, run, "event_logs")
    together.dispose()


PAGE = """
query ($key: AssetKeyInput!, $before: String, $cursor: String) {
  assetOrError(assetKey: $key) { ... on Asset {
    assetEventHistory(
      limit: 4, beforeTimestampMillis: $before, cursor: $cursor,
      eventTypeSelectors: [MATERIALIZATION, OBSERVATION]
    ) {
      results {
        __typename
        ... on MaterializationEvent { runId timestamp partition }
        ... on ObservationEvent { runId timestamp partition }
      }
      cursor
    }
  } }
}"""


def _shown(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[str]:
    """The partitions on the page of an asset's events, which drops and asks for more as it does."""
    context = WorkspaceProcessContext(instance, None).create_request_context()
    schema = create_schema()
    shown: dict[tuple[str, ...], dict[str, str]] = {}
    more: dict[str, str] = {}
    while True:
        variables = {"key": {"path": key.path}, **more}
        answer = asyncio.run(
            schema.execute_async(PAGE, context_value=context, variable_values=variables)
        )
        assert not answer.errors
        history = answer.data["assetOrError"]["assetEventHistory"]
        if not history["results"]:
            return sorted(entry["partition"] for entry in shown.values())
        for entry in history["results"]:
            shown.setdefault((entry["runId"], entry["timestamp"], entry["__typename"]), entry)
        oldest = min(int(entry["timestamp"]) for entry in shown.values())
        more = {"cursor": history["cursor"], "before": str(oldest)}


def test_each_event_of_a_partition_is_on_dagsters_page(home: Path) -> None:
    keys = [f"{day:03}" for day in range(10)]
    days = dg.StaticPartitionsDefinition(keys)
    lakehouse = LakehouseResource(catalog=str(home / "warehouse"))
    rows = pa.table({"day": keys})

    @dg.asset(partitions_def=days)
    def plain() -> None:
        seen = [dg.AssetObservation("seen", partition=key) for key in keys]
        record_each(dg.AssetExecutionContext.get(), seen)

    @dg.asset(partitions_def=days, metadata={"partition_expr": "day"})
    def checked() -> pa.Table:
        return rows

    @dg.asset_check(asset=checked, blocking=True)
    def some_rows() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    lakehouse.lake().create_table("raw.days", rows.schema).append(rows)
    model = SqlModel(
        name="marts.derived",
        sql="SELECT day FROM raw.days",
        engine="duckdb",
        partitions=days,
        partition_expr="day",
    )
    with open_instance() as instance:
        for assets in ([plain], [checked, some_rows], [model.table().build(None)]):
            done = dg.materialize(
                assets,
                instance=instance,
                tags={
                    ASSET_PARTITION_RANGE_START_TAG: keys[0],
                    ASSET_PARTITION_RANGE_END_TAG: keys[-1],
                },
                resources={
                    "io_manager": LakehouseIOManager(lakehouse=lakehouse),
                    "lakehouse": lakehouse,
                    "spark": LakehouseSpark(master="spark://nowhere:1"),
                },
            )
            assert done.success
        for key in ("plain", "seen", "checked", "marts/derived"):
            assert _shown(instance, dg.AssetKey(key.split("/"))) == keys, key


def test_none_of_the_events_is_stored_where_one_cannot_be(home: Path) -> None:
    with open_instance() as instance:
        run = _materialize(instance, 5)
        logged = [entry for entry in instance.all_logs(run) if entry.is_dagster_event]
    planned = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
    events = [entry for entry in logged if entry.dagster_event_type == planned]
    assert len(events) == 5
    ours = PooledSqliteEvents(str(home / "other"))
    with closing(sqlite3.connect(ours.path_for_shard("index"))) as index:
        index.execute(
            "CREATE TRIGGER full BEFORE INSERT ON event_logs WHEN NEW.partition = '003'"
            " BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
        with pytest.raises(sqlalchemy.exc.IntegrityError, match="full"):
            ours.store_event_batch(events)
        assert _rows(ours, run, "event_logs") == _rows(ours, "index", "event_logs") == []
        index.execute("DROP TRIGGER full")
    ours.store_event_batch(events)
    assert len(_rows(ours, run, "event_logs")) == len(_rows(ours, "index", "event_logs")) == 5
    ours.dispose()


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
