"""An instance of Dagster for many runs in processes that are killed: one SQLite, one engine each.

Dagster's own local storage makes a database for each run and an engine for each statement, which
costs more than runs of small assets do. This one is on disk, shared by processes, and survives
their deaths, but no power cut.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import sqlalchemy
from dagster._core.instance.ref import InstanceRef
from dagster._core.instance.types import InstanceType
from dagster._core.launcher.sync_in_memory_run_launcher import SyncInMemoryRunLauncher
from dagster._core.run_coordinator import DefaultRunCoordinator
from dagster._core.storage.event_log import ConsolidatedSqliteEventLogStorage
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._core.storage.root import LocalArtifactStorage
from dagster._core.storage.runs import SqliteRunStorage

_engines: list[sqlalchemy.Engine] = []
"""All of them: SQLite's connections must not be closed by a process that has inherited them."""


@functools.cache
def _engine(url: str) -> sqlalchemy.Engine:
    engine = sqlalchemy.create_engine(url, connect_args={"timeout": 60})
    sqlalchemy.event.listen(
        engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=OFF").close()
    )
    _engines.append(engine)
    return engine


def forget_connections() -> None:
    """In a process that was forked, before it opens an instance: connections are its parent's."""
    _engine.cache_clear()


class _Runs(SqliteRunStorage):
    @contextmanager
    def connect(self) -> Iterator[sqlalchemy.Connection]:
        with _engine(self._conn_string).begin() as connection:
            yield connection


class _Events(ConsolidatedSqliteEventLogStorage):
    @contextmanager
    def _connect(self) -> Iterator[sqlalchemy.Connection]:
        with _engine(self._conn_string).begin() as connection:
            yield connection


@contextmanager
def light_instance(folder: Path) -> Iterator[dg.DagsterInstance]:
    """The instance in a folder; whoever opens it first does so before others do."""
    runs = folder / "runs.db"
    is_there = runs.exists()
    with dg.DagsterInstance(
        instance_type=InstanceType.PERSISTENT,
        local_artifact_storage=LocalArtifactStorage(str(folder)),
        run_storage=_Runs(f"sqlite:///{runs}") if is_there else _Runs.from_local(str(folder)),
        event_storage=_Events(str(folder)),
        compute_log_manager=NoOpComputeLogManager(),
        run_coordinator=DefaultRunCoordinator(),
        run_launcher=SyncInMemoryRunLauncher(),
        settings={"telemetry": {"enabled": False}},
        ref=InstanceRef.from_dir(str(folder)),
    ) as instance:
        yield instance
