"""Dagster, landing, tables and PostgreSQL in figures, for Prometheus: `deploy.metrics PORT`.

Measured when it is asked. What could not be measured is left out, and `lakehouse_unmeasured` names
the part, so that a database that is away is no empty answer. Times are seconds, sizes bytes.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.compute as pc
import sqlalchemy as sa
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from lakehouse.orchestration.automation.landing_state import look
from lakehouse.orchestration.checkout import load_module
from lakehouse.orchestration.dagster_instance import open_instance

log = logging.getLogger(__name__)
WAITING = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
)
ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_DATABASE = sa.text(
    "SELECT numbackends, xact_commit, xact_rollback, deadlocks,"
    " pg_database_size(datname) AS bytes, current_setting('max_connections')::int AS most,"
    " (SELECT coalesce(max(extract(epoch FROM now() - xact_start)), 0) FROM pg_stat_activity"
    "  WHERE datname = current_database()) AS oldest"
    " FROM pg_stat_database WHERE datname = current_database()"
)
_FIGURES = {
    "numbackends": ("postgresql_connections", "Connections to a database."),
    "most": ("postgresql_connections_max", "Connections that the server accepts."),
    "xact_commit": ("postgresql_commits", "Transactions of a database that were committed."),
    "xact_rollback": ("postgresql_rollbacks", "Transactions that were rolled back."),
    "deadlocks": ("postgresql_deadlocks", "Deadlocks of a database."),
    "bytes": ("postgresql_bytes", "Size of a database."),
    "oldest": ("postgresql_oldest_transaction_seconds", "Age of the oldest open transaction."),
}
Gauges = Iterator[GaugeMetricFamily]


class Measured(Collector):
    """Measures everything anew whenever it is collected.

    Args:
        pipeline: whose sources and tables they are.
        resource: the catalog and the landing folders.
        databases: SQLAlchemy URLs, by name.
    """

    def __init__(self, pipeline: Any, resource: Any, databases: dict[str, sa.URL]) -> None:
        self._pipeline, self._open = pipeline, ExitStack()
        # names of variables become what they hold
        self._resource = self._open.enter_context(resource.process_config_and_initialize_cm())
        self._engines = {
            name: sa.create_engine(url, poolclass=sa.NullPool) for name, url in databases.items()
        }
        self._one_at_a_time = threading.Lock()
        self._missed = False

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """All of it."""
        parts: dict[str, Callable[[], Gauges]] = {
            "dagster": self._dagster,
            "landing": self._landing,
            "tables": self._tables,
            "postgresql": self._databases,
        }
        failed = _gauge("lakehouse_unmeasured", "Parts that could not be measured.", "part")
        with self._one_at_a_time:
            for part, measure in parts.items():
                found: list[GaugeMetricFamily] = []
                self._missed = False
                with self._apart(part):
                    found = list(measure())
                failed.add_metric([part], int(self._missed))
                yield from found
        yield failed

    @contextmanager
    def _apart(self, what: str) -> Iterator[None]:
        """What cannot be measured is told, and the rest is measured."""
        try:
            yield
        except Exception:
            log.exception("%s could not be measured", what)
            self._missed = True

    def _dagster(self) -> Gauges:
        runs = _gauge("dagster_runs", "Runs that have not ended, by status.", "status")
        oldest = _gauge("dagster_oldest_run_seconds", "Since the oldest was made.", "status")
        ended = _gauge("dagster_runs_ended_day", "Runs that ended within a day.", "status")
        heartbeat = _gauge("dagster_heartbeat_seconds", "Since a daemon's heartbeat.", "daemon")
        now = time.time()
        with open_instance() as instance:
            for status in WAITING:
                chosen = dg.RunsFilter(statuses=[status])
                first = instance.get_run_records(chosen, limit=1, ascending=True)
                runs.add_metric([status.value], instance.get_runs_count(chosen))
                oldest.add_metric(
                    [status.value], now - first[0].create_timestamp.timestamp() if first else 0
                )
            a_day_ago = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
            for status in ENDED:
                recent = dg.RunsFilter(statuses=[status], updated_after=a_day_ago)
                ended.add_metric([status.value], instance.get_runs_count(recent))
            for name, beat in instance.get_daemon_heartbeats().items():
                heartbeat.add_metric([name], now - beat.timestamp)
        yield from (runs, oldest, ended, heartbeat)

    def _landing(self) -> Gauges:
        files = _gauge("landing_files_waiting", "Files that landed and were not read.", "source")
        lag = _gauge("landing_lag_seconds", "Since the oldest of what waits landed.", "source")
        days = _gauge("landing_days_waiting", "Days that were read and not written.", "source")
        lake, now_ms = self._resource.lake(), time.time() * 1000
        root = self._resource.landing
        for source in self._pipeline.sources:
            with self._apart(f"landing of {source.name}"):
                landed: list[int] = []
                unread_files = pending_days = 0
                # of a source that nobody has delivered to yet there is no folder
                if "://" in root or not Path(root).is_dir() or Path(root, source.name).is_dir():
                    unread, pending = look(lake, root, source)
                    unread_files, pending_days = unread.num_rows, len(pending)
                    landed = [file.modified_ms for _, file in pending]
                    landed += [pc.min(unread["modified_ms"]).as_py()] if unread_files else []
                files.add_metric([source.name], unread_files)
                days.add_metric([source.name], pending_days)
                lag.add_metric([source.name], max(0, now_ms - min(landed)) / 1000 if landed else 0)
        yield from (files, lag, days)

    def _tables(self) -> Gauges:
        lake, now_ms = self._resource.lake(), time.time() * 1000
        figures = {
            "total-records": _gauge("table_rows", "Rows, deleted ones included.", "table"),
            "total-data-files": _gauge("table_files", "Data files.", "table"),
            "total-files-size": _gauge("table_bytes", "Size of its data files.", "table"),
        }
        age = _gauge("table_age_seconds", "Since its newest snapshot.", "table")
        for name in self._pipeline.maintained():
            with self._apart(f"table {name}"):
                if not lake.table_exists(name):
                    continue
                snapshot = lake.load_table(name).metadata.current_snapshot()
                if snapshot is None:
                    continue
                age.add_metric([name], (now_ms - snapshot.timestamp_ms) / 1000)
                for key, gauge in figures.items():
                    if snapshot.summary.get(key, "").isdecimal():
                        gauge.add_metric([name], int(snapshot.summary[key]))
        yield from (*figures.values(), age)

    def _databases(self) -> Gauges:
        figures = {key: _gauge(*told, "database") for key, told in _FIGURES.items()}
        for name, engine in self._engines.items():
            with self._apart(f"database {name}"):
                with engine.connect() as connection:
                    row = connection.execute(_DATABASE).mappings().one()
                for key, gauge in figures.items():
                    gauge.add_metric([name], float(row[key]))
        yield from figures.values()


def _gauge(name: str, text: str, label: str) -> GaugeMetricFamily:
    full = name if name.startswith("lakehouse_") else f"lakehouse_{name}"
    return GaugeMetricFamily(full, text, labels=[label])


def databases(environment: dict[str, str]) -> dict[str, sa.URL]:
    """The PostgreSQL databases of the catalog and of Dagster's storage; none where there are none.

    Args:
        environment: variables, as compose and the chart set them.
    """
    found = {}
    catalog = environment.get("LAKEHOUSE_CATALOG", "")
    if catalog.startswith("postgresql"):
        found["catalog"] = sa.make_url(catalog)
    if "DAGSTER_POSTGRES_HOST" in environment:
        told: dict[str, Any] = {
            key: environment[f"DAGSTER_POSTGRES_{name}"]
            for key, name in (
                ("username", "USER"),
                ("password", "PASSWORD"),
                ("host", "HOST"),
                ("database", "DB"),
            )
        }
        port = int(environment["DAGSTER_POSTGRES_PORT"])
        found["dagster"] = sa.URL.create("postgresql+psycopg", port=port, **told)
    return found


def registry(module: Any, environment: dict[str, str]) -> CollectorRegistry:
    """The measures of a code location's module, which has `pipeline` and `defs`."""
    made = CollectorRegistry(auto_describe=False)
    resource = module.defs.resources["lakehouse"]
    made.register(Measured(module.pipeline, resource, databases(environment)))
    return made


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    loaded = load_module("definitions", Path.cwd())
    _, serving = start_http_server(int(sys.argv[1]), registry=registry(loaded, dict(os.environ)))
    serving.join()
