"""Rounds of landing files: a service is killed while a run is under way, and all catches up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from dagster_postgres.utils import DagsterPostgresException
from rich.table import Table as Grid
from sqlalchemy.exc import SQLAlchemyError

from assets.flights.source import FLIGHTS
from examples.demo.flights_data import LandedDay, landed_days, read_flights
from examples.demo.landing_zone import count_lines, lay_down
from lakehouse.errors import LakehouseError
from lakehouse.ingestion.ingest_plan import combined
from lakehouse.ingestion.source_tables import read_ledger
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.maintenance.backup import backup, restore
from lakehouse.orchestration.automation.landing_state import source_work
from lakehouse.orchestration.automation.run_requests import UNFINISHED
from lakehouse.orchestration.checkout import load_module
from lakehouse.orchestration.dagster_instance import open_instance
from lakehouse.orchestration.lineage.replay import replayed
from lakehouse.orchestration.lineage.trace import read_lineage
from lakehouse.orchestration.resources import spark_when_asked
from tests.cluster.supervisor import Supervisor

_INGEST = f"ingest_{FLIGHTS.name}"
_INTO_THE_RUN_SECONDS = 12.0
_DOWN_SECONDS = 10.0
_CATCH_UP_SECONDS = 900.0
_LOOK_SECONDS = 2.0
_AWAY = (LakehouseError, SQLAlchemyError, dg.DagsterError, DagsterPostgresException)


@dataclass(frozen=True, slots=True)
class Round:
    """What happened in a round.

    Attributes:
        victim: the service that was killed; None: none was.
        landed: lines that landed.
        seconds: from landing until every table had caught up.
        ready_seconds: from the kill until the service was ready again.
        runs: that ended well, and that did not.
    """

    victim: str | None
    landed: int
    seconds: float
    ready_seconds: float | None
    runs: tuple[int, int]


@dataclass
class Rounds:
    """Lands days of flights, round by round.

    Attributes:
        supervisor: of the services.
        say: told what happens.
        days: that land in a round.
        done: the rounds so far.
        flights: that landed, counted where the lines came from.
    """

    supervisor: Supervisor
    say: Callable[[str], None]
    days: int
    done: list[Round] = field(default_factory=list)
    flights: int = 0

    def __post_init__(self) -> None:
        self._module: Any = load_module("definitions", Path.cwd())
        self._pipeline = self._module.pipeline
        self._resource = self._module.defs.resources["lakehouse"]
        self._landing = Path(self._pipeline.landing_root) / FLIGHTS.name
        self._flights = read_flights()
        self._feed: Iterator[LandedDay] = landed_days(self._flights)

    def run(self, victim: str | None) -> None:
        """Land files, kill a service while a run reads them, and wait until all is caught up.

        Raises TimeoutError.
        """
        began, before = time.monotonic(), self._ended_runs()
        lines = 0
        for landed in islice(self._feed, self.days):
            lay_down(self._landing, f"{landed.day}.jsonl.gz", landed.lines)
            lines += len(landed.lines)
            departed = (pc.field("month") == landed.day.month) & (pc.field("day") == landed.day.day)
            self.flights += self._flights.filter(departed).num_rows
        self.say(f"{lines:,} lines of {self.days} days have landed")
        ready = None
        if victim is not None:
            self._wait("a run", lambda: bool(self._runs([dg.DagsterRunStatus.STARTED], _INGEST)))
            time.sleep(_INTO_THE_RUN_SECONDS)
            killed = time.monotonic()
            service = self.supervisor.kill(victim, down_seconds=_DOWN_SECONDS)
            self.say(
                f"{victim} was killed while {_INGEST} runs; it stays away for {_DOWN_SECONDS:.0f} s"
            )
            time.sleep(_DOWN_SECONDS)
            self.supervisor.wait_until_ready(service)
            ready = time.monotonic() - killed
            self.say(f"{victim} is ready again")
        self._wait("the tables", self._is_caught_up)
        after = self._ended_runs()
        runs = (after[0] - before[0], after[1] - before[1])
        seconds = time.monotonic() - began
        self.say(f"caught up after {seconds:.0f} s; runs: {runs[0]} succeeded, {runs[1]} failed")
        self.done.append(Round(victim, lines, seconds, ready, runs))

    def shown(self) -> Grid:
        """The rounds, for people."""
        grid = Grid("killed", "lines landed", "ready again", "caught up", "runs", box=None)
        for one in self.done:
            ready = "" if one.ready_seconds is None else f"{one.ready_seconds:.0f} s"
            runs = f"{one.runs[0]} succeeded, {one.runs[1]} failed"
            grid.add_row(
                one.victim or "nothing", f"{one.landed:,}", ready, f"{one.seconds:.0f} s", runs
            )
        return grid

    def verdict(self, rest_uri: str) -> list[str]:
        """What was lost or doubled, in words; nothing: nothing was."""
        lake = self._lake()
        rows = {name: lake.load_table(name).scan().count() for name in self._tables()}
        lost = self._conservation(lake, rows) + self._derived(lake, rows)
        served = load_catalog(rest_uri, warehouse=lake.warehouse)
        told = {name: served.load_table(name).scan().count() for name in rows}
        self.say(f"the REST catalog shows {len(told)} tables with {sum(told.values()):,} rows")
        lost += [
            f"the REST catalog shows {told[name]} rows of {name}, not {count}"
            for name, count in rows.items()
            if told[name] != count
        ]
        return lost + self._restored(lake) + self._replays(lake)

    def _restored(self, lake: Lakehouse) -> list[str]:
        """Back up what lies in PostgreSQL and S3, and restore it to a folder: the drill."""
        folder = self._landing.parent.parent
        made = backup(lake.catalog, str(folder / "backup"))
        other = load_catalog(str(folder / "restored"))
        done = restore(other.catalog, str(folder / "backup"))
        self.say(f"backup of {made.files:,} files, restored: {len(done.restored)} tables and views")
        return [
            f"{name} is not as backed up when it is restored"
            for name in self._tables()
            if not _rows(lake, name).equals(_rows(other, name))
        ]

    def _replays(self, lake: Lakehouse) -> list[str]:
        """Compute the latest materialization of each table again."""
        lost = []
        with spark_when_asked("lakehouse-replay") as session:
            for name in self._tables():
                with open_instance() as instance:
                    found = read_lineage(instance, lake, name.replace(".", "/"), None)
                replay = replayed(self._module, found, lake, session)
                said = f"{replay.missing} rows missing, {replay.unexpected} unexpected"
                equal = f"equal, {replay.rows:,} rows" if replay.equal else said
                self.say(f"replay of {name} from the snapshots that it read: {equal}")
                if not replay.equal:
                    lost.append(f"{name} cannot be computed again: {said}")
        return lost

    def _conservation(self, lake: Lakehouse, rows: dict[str, int]) -> list[str]:
        landed = count_lines(self._landing.glob("*.jsonl.gz"))
        quarantined = (
            lake.load_table(FLIGHTS.quarantine_table).scan("landing_line is not null").count()
        )
        duplicates = combined(read_ledger(lake.load_table(FLIGHTS.ledger_table))).duplicates
        kept = rows[FLIGHTS.table]
        said = (
            f"{landed:,} landed lines = {kept:,} rows + {quarantined:,} quarantined + "
            f"{duplicates:,} duplicates"
        )
        self.say(f"conservation: {said}; {self.flights:,} flights departed")
        is_so = landed == kept + quarantined + duplicates and kept == self.flights
        return [] if is_so else [f"not so: {said}; {self.flights} flights departed"]

    def _derived(self, lake: Lakehouse, rows: dict[str, int]) -> list[str]:
        flights = lake.load_table("marts.carrier_day").scan().to_arrow()["flights"]
        counted = sum(flights.to_pylist())
        clean = rows["clean.flights"]
        self.say(f"marts.carrier_day counts {counted:,} flights, clean.flights has {clean:,} rows")
        if counted == clean == rows[FLIGHTS.table]:
            return []
        return [f"marts.carrier_day counts {counted} flights of {rows}"]

    def _tables(self) -> list[str]:
        return [FLIGHTS.table, *(one.name for one in self._pipeline.derived)]

    def _lake(self) -> Lakehouse:
        lake: Lakehouse = self._resource.lake()
        return lake

    def _is_caught_up(self) -> bool:
        if self._runs(UNFINISHED):
            return False
        derived = self._pipeline.derived_from(FLIGHTS)
        return not source_work(self._lake(), self._pipeline.landing_root, FLIGHTS, derived, 0)

    def _runs(self, statuses: list[dg.DagsterRunStatus], job: str | None = None) -> list[str]:
        with open_instance() as instance:
            wanted = dg.RunsFilter(statuses=statuses, job_name=job)
            return [run.run_id for run in instance.get_runs(wanted)]

    def _ended_runs(self) -> tuple[int, int]:
        good = len(self._runs([dg.DagsterRunStatus.SUCCESS]))
        bad = len(self._runs([dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]))
        return good, bad

    def _wait(self, what: str, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + _CATCH_UP_SECONDS
        while True:
            try:
                if is_so():
                    return
            except _AWAY as error:
                self.say(f"waiting for {what}: {type(error).__name__}")
            if time.monotonic() > until:
                raise TimeoutError(f"waited {_CATCH_UP_SECONDS:.0f} s for {what}")
            time.sleep(_LOOK_SECONDS)


def _rows(lake: Lakehouse, name: str) -> pa.Table:
    rows = lake.load_table(name).scan().to_arrow()
    return rows.sort_by([(column, "ascending") for column in rows.column_names])
