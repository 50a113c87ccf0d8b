"""The Dagster instance: `DAGSTER_HOME`, or the demo's own under `.lakehouse/`; and its events."""

from __future__ import annotations

import os
import shutil
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import sqlalchemy
from dagster._core.storage.event_log.polling_event_watcher import SqlPollingEventWatcher
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import (
    INDEX_SHARD_NAME,
    SqliteEventLogStorage,
)
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from sqlalchemy.pool import NullPool, QueuePool

from lakehouse.errors import NotFoundError

if TYPE_CHECKING:
    from dagster._core.event_api import EventHandlerFn
    from dagster._core.events.log import EventLogEntry
    from dagster._serdes import ConfigurableClassData

DEFAULT_HOME = Path(".lakehouse/dagster")
_OPEN_SHARDS = 8
_ONE_A_PARTITION = {
    dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    dg.DagsterEventType.ASSET_MATERIALIZATION,
    dg.DagsterEventType.ASSET_OBSERVATION,
}
# more than the millisecond by which a page tells events apart, as they are rounded
_APART_SECONDS = 0.00101
# SQLite forbids a child to use or close the connections of its parent
_LEFT_TO_THE_PARENT: list[object] = []


def dagster_home() -> Path:
    """Dagster's folder of runs and events: `DAGSTER_HOME`, else `.lakehouse/dagster` here."""
    return Path(os.environ.get("DAGSTER_HOME") or DEFAULT_HOME).absolute()


def open_instance() -> dg.DagsterInstance:
    """The instance that holds the materializations. Raises NotFoundError."""
    home = dagster_home()
    if not home.is_dir():
        raise NotFoundError(
            f"no Dagster instance in {home}: run `lakehouse demo` first, or set DAGSTER_HOME"
        )
    return (
        dg.DagsterInstance.from_config(str(home))
        if (home / "dagster.yaml").is_file()
        else dg.DagsterInstance.local_temp(str(home))
    )


def prepare_home(checkout: Path) -> Path:
    """Make the instance's folder, and use it here.

    The demo's own is given the checkout's `dagster.yaml`; one that the user named in `DAGSTER_HOME`
    only if it has none.
    """
    home = dagster_home()
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if home.is_relative_to(checkout / ".lakehouse") or not settings.exists():
        shutil.copyfile(checkout / "dagster.yaml", settings)
    os.environ["DAGSTER_HOME"] = str(home)
    return home


class PooledSqliteEvents(SqliteEventLogStorage):
    """Dagster's event log in SQLite, over connections that stay open.

    Files, tables and rows are Dagster's own: either class reads what the other wrote, also while it
    writes. Dagster opens a connection for each statement; closing it moves what was written from
    SQLite's log into the database, which costs more than the rest of an event. This one keeps the
    index and the runs that were used last open, at most 8 files. The events of a run's partitions
    come together, 1,000 of them at most (`DAGSTER_EVENT_BATCH_SIZE`, which is set if it is not).

    An event that is stored survives the end of its process. After a power cut the last ones may be
    missing (`synchronous = NORMAL`); the databases are whole in any case.
    """

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._engines: OrderedDict[str, tuple[sqlalchemy.Engine, int | None]] = OrderedDict()
        self._process = os.getpid()
        self._tables: set[str] = set()
        self._watcher: SqlPollingEventWatcher | None = None
        os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", "1000")
        super().__init__(base_dir, inst_data)

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store events of one run, all or none of those that come for each partition.

        Each materialization and observation is given a millisecond of its own, which is waited for.
        """
        together = [event for event in events if event.dagster_event_type in _ONE_A_PARTITION]
        together = _a_millisecond_apart(together)
        if len({event.run_id for event in together}) == 1:
            rows = [self._event_to_row(event) for event in together]
            insert = SqlEventLogStorageTable.insert()
            with (
                self._db_lock,
                self._engine(together[0].run_id).begin() as of_run,
                self._engine(INDEX_SHARD_NAME).begin() as index,
            ):
                of_run.execute(insert, rows)
                returned = insert.returning(
                    SqlEventLogStorageTable.c.id, sort_by_parameter_order=True
                )
                ids: Sequence[int] = index.execute(returned, rows).scalars().all()
                self._store_asset_event_tags(index, together, ids)
                # what is kept of an asset is of its newest event of each kind
                newest = {
                    (row["asset_key"], row["dagster_event_type"]): at for at, row in enumerate(rows)
                }
                for at in sorted(newest.values()):
                    self._store_asset_event(index, together[at], ids[at])
            events = [event for event in events if event.dagster_event_type not in _ONE_A_PARTITION]
        super().store_event_batch(events)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[sqlalchemy.Connection]:
        # one connection a file is enough: its user holds the lock
        with self._db_lock, self._engine(shard).begin() as connection:
            yield connection

    def _engine(self, shard: str) -> sqlalchemy.Engine:
        if self._process != os.getpid():
            _LEFT_TO_THE_PARENT.append(self._engines)
            self._engines, self._process = OrderedDict(), os.getpid()
        file = _file_number(self.path_for_shard(shard))
        engine, opened_file = self._engines.pop(shard, (None, None))
        if engine is not None and (file != opened_file or shard not in self._initialized_dbs):
            # deleted or replaced, by this process or another one
            engine.dispose()
            engine = None
            self._initialized_dbs.discard(shard)
        if engine is None:
            if file is None:
                self._initialized_dbs.discard(shard)
            engine = self._opened(shard)
            file = _file_number(self.path_for_shard(shard))
        self._engines[shard] = engine, file
        while len(self._engines) > _OPEN_SHARDS:
            self._engines.popitem(last=False)[1][0].dispose()
        return engine

    def _opened(self, shard: str) -> sqlalchemy.Engine:
        address = self.conn_string_for_shard(shard)
        options: dict[str, Any] = {"connect_args": {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS}}
        if shard not in self._initialized_dbs:
            self._initdb(sqlalchemy.create_engine(address, poolclass=NullPool, **options))
            self._initialized_dbs.add(shard)
        engine = sqlalchemy.create_engine(
            address, poolclass=QueuePool, pool_size=1, max_overflow=0, **options
        )
        sqlalchemy.event.listen(engine, "connect", _sync_at_checkpoints)
        return engine

    def has_table(self, table_name: str) -> bool:
        """Whether the index has a table; one that was there is not looked for again."""
        if table_name not in self._tables and super().has_table(table_name):
            self._tables.add(table_name)
        return table_name in self._tables

    def watch(self, run_id: str, cursor: str | None, callback: EventHandlerFn) -> None:
        """Tell the events of a run as they come, within 16 seconds.

        Dagster's own watches the database's file, which does not change with each event here.
        """
        if self._watcher is None:
            self._watcher = SqlPollingEventWatcher(self)
        self._watcher.watch_run(run_id, cursor, callback)

    def end_watch(self, run_id: str, handler: EventHandlerFn) -> None:
        """Tell no more of them."""
        if self._watcher is not None:
            self._watcher.unwatch_run(run_id, handler)

    def dispose(self) -> None:
        """Close what is open; it is opened again where it is needed."""
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        with self._db_lock:
            if self._process == os.getpid():
                while self._engines:
                    self._engines.popitem()[1][0].dispose()


class PooledSqliteStorage(DagsterSqliteStorage):
    """Dagster's storage in SQLite, with its events in PooledSqliteEvents: for `dagster.yaml`.

    It lies in the instance's folder (`dagster_home`), unless `base_dir` names another one.
    """

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(base_dir, inst_data)
        self._event_log_storage = PooledSqliteEvents(str(Path(base_dir, "history", "runs")))

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """Of the settings in `dagster.yaml`."""
        return {"base_dir": dg.Field(dg.StringSource, is_required=False)}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Any
    ) -> PooledSqliteStorage:
        """The storage of these settings."""
        return cls.from_local(config_value.get("base_dir") or str(dagster_home()), inst_data)


def _a_millisecond_apart(events: Sequence[EventLogEntry]) -> list[EventLogEntry]:
    """The events; a page of Dagster would leave out all but one of those of a millisecond."""
    apart: list[EventLogEntry] = []
    for event in events:
        at = event.timestamp
        if apart and event.dagster_event_type != dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED:
            at = max(at, apart[-1].timestamp + _APART_SECONDS)
        apart.append(event._replace(timestamp=at))
    if apart:
        time.sleep(apart[-1].timestamp - events[-1].timestamp)
    return apart


def _file_number(path: str) -> int | None:
    try:
        return Path(path).stat().st_ino
    except FileNotFoundError:
        return None


def _sync_at_checkpoints(connection: Any, _record: object) -> None:
    # without a write-ahead log this would risk the database
    if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
        connection.execute("PRAGMA synchronous = NORMAL")
