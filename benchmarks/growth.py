"""What work costs by what is there already: `python -m benchmarks.growth [--sizes 1,10,100]`.

At size 1 there are a year of days, 1,000 files in the raw table, 10,000 landed ones in the ledger
and 100 runs in Dagster's storage; at 10 and 100 as many times of each. Files of both tables are
metadata, landed ones a byte, and runs copies of one, all but those of the day that is worked on.
Each size is measured in a process of its own, that has done everything once to a few files, so that
libraries are loaded; work is done twice: at first nothing of the tables is cached. Shown is
processor time of all threads, which other work on the machine disturbs least. The kept results of
sizes that are not asked for stay.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import gzip
import json
import os
import platform
import resource
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster_graphql.schema import create_schema

from lakehouse.ingestion.landing_ledger import LEDGER_SCHEMA
from lakehouse.ingestion.landing_listing import list_landing
from lakehouse.ingestion.source import Column, EventTime, Source
from lakehouse.lake import Lakehouse
from lakehouse.orchestration import (
    LakehouseResource,
    LakehouseSpark,
    Pipeline,
    SqlModel,
    build_definitions,
)
from lakehouse.orchestration.automation.landing_sensors import LandingWatch
from lakehouse.orchestration.automation.run_requests import ingest_job_name, ingest_tags
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.snapshot import REFRESH_STATE
from lakehouse.table import WrittenFiles

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "growth.json"
FIRST = dt.date(1950, 1, 1)
EPOCH = dt.date(1970, 1, 1)
LINES = 920
FOLDER_FILES = 1_000
STORAGE = """telemetry: {enabled: false}
storage:
  custom: {module: lakehouse.orchestration.dagster_instance, class: PooledSqliteStorage}
"""
KINDS = '{"id":{"int":920},"ts":{"string":920},"user":{"string":920},"amount":{"int":920}}'
SQL = """SELECT to_date(event_ts) AS day, user, count(*) AS events, sum(amount) AS amount
FROM raw.events GROUP BY to_date(event_ts), user"""
PAGES = {
    "asset graph": """{ assetNodes { id assetKey { path } dependencyKeys { path } kinds
        isMaterializable assetMaterializations(limit: 1) { timestamp runId }
        partitionStats { numMaterialized numFailed numMaterializing numPartitions } } }""",
    "asset's partitions": """{ assetNodeOrError(assetKey: {path: ["raw", "events"]}) {
        ... on AssetNode { partitionKeysByDimension { name partitionKeys }
        assetPartitionStatuses { ... on TimePartitionStatuses {
            ranges { startKey endKey status } } } } } }""",
    "static partitions": """{ assetNodeOrError(assetKey: {path: ["stations"]}) {
        ... on AssetNode { partitionKeysByDimension { name partitionKeys }
        assetPartitionStatuses { ... on DefaultPartitionStatuses {
            materializedPartitions failedPartitions } } } } }""",
    "runs": """{ runsOrError(limit: 25) { ... on Runs { results {
        runId status jobName startTime endTime tags { key value }
        assetSelection { path } } } } }""",
    "asset's events": """{ assetOrError(assetKey: {path: ["raw", "events"]}) { ... on Asset {
        assetMaterializations(limit: 50) { timestamp runId partition tags { key value }
            metadataEntries { label description } } } } }""",
}
COMMANDS = {
    "lakehouse tables": ("tables",),
    "lakehouse health": ("health", "raw.events"),
    "lakehouse history": ("history", "raw.events"),
}
SENSORS = ("small_files", "many_manifests", "old_snapshots", "tuning", "statements_to_check")


@dataclass(frozen=True)
class World:
    """A pipeline with one source, and what it has done.

    Attributes:
        root: folder of everything.
        size: how many times the smallest; 0: a few files, to load libraries.
    """

    root: Path
    size: int

    @property
    def days(self) -> int:
        """Of the source and of the table derived from it."""
        return 365 * self.size or 3

    @property
    def day(self) -> dt.date:
        """The one whose files are read."""
        return FIRST + dt.timedelta(days=self.days - 1)

    @cached_property
    def pipeline(self) -> Pipeline:
        """Source and derived table."""
        source = Source(
            name="events",
            event_time=EventTime("ts", zone="UTC"),
            first_day=FIRST,
            last_day=self.day,
            natural_key=("id",),
            engine="python",
            columns=(
                Column("id", "long"),
                Column("ts", "string"),
                Column("user", "string"),
                Column("amount", "int"),
            ),
        )
        daily = SqlModel(
            name="marts.users",
            sql=SQL,
            engine="duckdb",
            day_column="day",
            day_is_date=True,
            partition_by=("day(day)",),
        )
        return Pipeline((source,), (daily.table(),), str(self.root / "landing"))

    @cached_property
    def resource(self) -> LakehouseResource:
        """The catalog."""
        return LakehouseResource(
            catalog=(self.root / "warehouse").as_uri(), landing=self.pipeline.landing_root
        )

    @cached_property
    def definitions(self) -> dg.Definitions:
        """Those of the pipeline, and an asset of as many static partitions as there are days."""
        stations = dg.AssetSpec(
            "stations", partitions_def=dg.StaticPartitionsDefinition([*self.keys()])
        )
        made = build_definitions(self.pipeline, self.resource, LakehouseSpark())
        return dg.Definitions.merge(made, dg.Definitions(assets=[stations]))

    @cached_property
    def instance(self) -> dg.DagsterInstance:
        """Dagster's, in the storage of `dagster.yaml`."""
        home = self.root / "dagster"
        home.mkdir(parents=True, exist_ok=True)
        (home / "dagster.yaml").write_text(STORAGE)
        os.environ["DAGSTER_HOME"] = str(home)
        return dg.DagsterInstance.from_config(str(home))

    def keys(self) -> Iterator[str]:
        """The days."""
        return (str(FIRST + dt.timedelta(days=number)) for number in range(self.days))

    def lake(self) -> Lakehouse:
        """The tables, as a run opens them."""
        return self.resource.lake()

    def land(self, name: str, day: dt.date, first: int, count: int) -> None:
        """A file of so many events of a day."""
        lines = (
            f'{{"id":{number},"ts":"{day}T{number % 24:02}:00:00","user":"u{number % 50}",'
            f'"amount":{number}}}'
            for number in range(first, first + count)
        )
        path = self.root / "landing" / "events" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))

    def run(self) -> None:
        """The day asked for: index, ingest, check, derive."""
        done = self.definitions.resolve_job_def(ingest_job_name("events")).execute_in_process(
            instance=self.instance,
            tags=ingest_tags(self.day, self.day),
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
        assert done.success


def build(world: World) -> None:
    """Make the world."""
    world.land("day.jsonl.gz", world.day, 0, LINES)
    world.run()
    if world.size:
        _fill_ledger(world)
        _fill_tables(world)
        _fill_dagster(world)
        world.run()  # what was recorded last is true


def _fill_ledger(world: World) -> None:
    files, by_day = 10_000 * world.size, -(-10_000 * world.size // (world.days - 1))
    ledger = world.lake().load_table("raw.events_landing")
    for first in range(0, files, FOLDER_FILES):
        folder = world.root / "landing" / "events" / f"{first // FOLDER_FILES:05}"
        folder.mkdir()
        for number in range(first, min(first + FOLDER_FILES, files)):
            (folder / f"{number:08}.jsonl.gz").write_bytes(b"x")
    source = world.pipeline.sources[0]
    listing = list_landing(world.pipeline.landing_root, source).sort_by("landing_file")
    for first in range(0, files, 100_000):
        part = listing.slice(first, min(100_000, files - first))
        days = [FIRST + dt.timedelta(days=(first + at) // by_day) for at in range(part.num_rows)]
        undated = ledger_rows(part, pa.nulls(part.num_rows, pa.date32()), KINDS)
        ledger.append(pa.concat_tables([ledger_rows(part, pa.array(days), "{}"), undated]))


def ledger_rows(listing: pa.Table, days: pa.Array, kinds: str) -> pa.Table:
    """What the ledger says of files that are in the raw table."""
    lines = LINES if days.null_count == 0 else 0
    facts = {"lines": lines, "rows": lines, "quarantined": 0, "duplicates": 0, "problem": None}
    values = {**facts, "pending": False, "replaces": False, "kinds": kinds}
    columns = []
    for field in LEDGER_SCHEMA:
        if field.name == "event_day":
            columns.append(days)
        elif field.name in listing.column_names:
            columns.append(listing[field.name])
        else:
            columns.append(pa.repeat(pa.scalar(values[field.name], field.type), listing.num_rows))
    return pa.table(columns, schema=LEDGER_SCHEMA)


def _fill_tables(world: World) -> None:
    lake = world.lake()
    numbers = {"raw.events": 1_000 * world.size, "marts.users": world.days - 1}
    for name, count in numbers.items():
        table = lake.load_table(name)
        column = table.schema().find_field("event_ts" if name == "raw.events" else "day")
        files = []
        for number in range(count):
            day = (FIRST - EPOCH).days + number * (world.days - 1) // count
            low, high = day, day
            code = "<i"
            if name == "raw.events":
                low, high, code = day * 86_400_000_000, (day + 1) * 86_400_000_000 - 1, "<q"
            fields = [field.field_id for field in table.schema().fields]
            files.append(
                DataFile(
                    file_path=f"{table.location}/data/{number:08}-{uuid.uuid4()}.parquet",
                    partition=(day,),
                    spec_id=table.spec().spec_id,
                    record_count=LINES,
                    file_size_in_bytes=1_000_000,
                    value_counts=dict.fromkeys(fields, LINES),
                    null_value_counts=dict.fromkeys(fields, 0),
                    lower_bounds={column.field_id: struct.pack(code, low)},
                    upper_bounds={column.field_id: struct.pack(code, high)},
                )
            )
        inputs = {"raw.events": str(lake.load_table("raw.events").metadata.current_snapshot_id)}
        definition = world.pipeline.derived[0].definition
        state = {"inputs": inputs, "behind": [], "definition": definition}
        summary = {REFRESH_STATE: json.dumps(state)} if name == "marts.users" else {}
        table.append(WrittenFiles(tuple(files)), summary=summary)


def _fill_dagster(world: World) -> None:
    """Copies of the run: each materialized some of the days."""
    world.instance.dispose()
    del world.__dict__["instance"]
    runs = [str(uuid.uuid4()) for _ in range(100 * world.size)]
    history = world.root / "dagster" / "history"
    with closing(sqlite3.connect(history / "runs.db")) as storage, storage:
        ((model,),) = storage.execute("SELECT run_id FROM runs").fetchall()
        changes = {"run_id": "?1", "run_body": "replace(run_body, run_id, ?1)"}
        _copy(storage, "runs", changes, [(run,) for run in runs])
        _copy(storage, "run_tags", {"run_id": "?1"}, [(run,) for run in runs])
    days = [*world.keys()][:-1]
    events = [(run, days[number * len(days) // len(runs)]) for number, run in enumerate(runs)]
    events += [(runs[number % len(runs)], day) for number, day in enumerate(days)]
    events = list(dict.fromkeys(events))
    with closing(sqlite3.connect(history / "runs" / "index.db")) as storage, storage:
        event = f"replace(replace(event, '{model}', ?1), '{world.day}', ?2)"
        changes = {"run_id": "?1", "partition": "?2", "event": event}
        _copy(storage, "event_logs", changes, events, "WHERE partition IS NOT NULL")
        changes = {"asset_key": "'[\"stations\"]'", **changes}
        named = """replace(event, '["raw", "events"]', '["stations"]'),"""
        changes["event"] = event.replace("event,", named, 1)
        one = f"""WHERE run_id = '{model}' AND asset_key = '["raw", "events"]'
            AND partition IS NOT NULL AND dagster_event_type = 'ASSET_MATERIALIZATION'"""
        _copy(storage, "event_logs", changes, events, one)
        _copy(storage, "asset_check_executions", {"run_id": "?1"}, [(run,) for run in runs])


def _copy(
    storage: sqlite3.Connection,
    table: str,
    changes: dict[str, str],
    values: list[tuple[str, ...]],
    where: str = "",
) -> None:
    """Insert the rows that are there once for each of the values."""
    columns = [name for _, name, *_ in storage.execute(f"PRAGMA table_info({table})")]
    columns.remove("id")
    storage.execute("DROP TABLE IF EXISTS model")
    storage.execute(f"CREATE TEMP TABLE model AS SELECT * FROM {table} {where}")
    selected = ", ".join(changes.get(name, name) for name in columns)
    storage.executemany(
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {selected} FROM model", values
    )


def works(world: World) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is measured, in this order."""
    yield "day asked again", world.run
    pipeline, resource = world.pipeline, world.resource
    source = pipeline.sources[0]

    def tick(expected: int) -> None:
        watch = LandingWatch(source, pipeline.derived, world.instance, resource)
        assert watch.in_flight() is None
        request = watch.decision().request
        asked = 0 if request is None else len(request.works)
        assert bool(asked) == bool(expected), f"{asked} where {expected} wait"

    yield "landing sensor, nothing new", lambda: tick(0)
    for name in SENSORS:
        yield f"sensor {name}", lambda name=name: sensor(world, name)
    lake = world.lake()
    where = f"event_ts >= '{world.day}T00:00:00+00:00'"
    yield "scan of a day", lambda: lake.load_table("raw.events").scan(where).to_arrow()
    key = f"{where} and id = 7"
    yield "scan of a key", lambda: lake.load_table("raw.events").scan(key).to_arrow()
    schema = lake.load_table("raw.events").schema().as_arrow()
    row = {"event_ts": dt.datetime.combine(world.day, dt.time(), dt.UTC), "landing_file": "new"}
    rows = [{**row, "id": -n, "user": "u", "amount": 0, "landing_line": n} for n in range(1, 11)]
    ten = pa.Table.from_pylist(rows, schema)
    yield "append of 10 rows", lambda: lake.load_table("raw.events").append(ten)
    keys = ["event_ts", "id"]
    yield "upsert of 1 row", lambda: lake.load_table("raw.events").upsert(ten[:1], keys=keys)
    numbers = iter(range(1, 11))
    yield (
        "delete of 1 row",
        lambda: lake.load_table("raw.events").delete(f"{where} and id = -{next(numbers)}"),
    )
    for name in SENSORS[:3]:
        yield f"sensor {name}, after a commit", lambda name=name: after_commit(world, ten, name)
    serial = iter(range(100))
    yield "landing sensor, a file new", lambda: land_and_tick(world, next(serial), tick)
    yield from ((f"page: {name}", page) for name, page in pages(world))
    for name, command in COMMANDS.items():
        yield (
            name,
            lambda command=command: subprocess.run(
                [Path(sys.executable).with_name("lakehouse"), "-c", resource.catalog, *command],
                check=True,
                stdout=subprocess.DEVNULL,
            ),
        )


def sensor(world: World, name: str) -> None:
    """An evaluation of a sensor."""
    evaluated = world.definitions.resolve_sensor_def(name)
    with dg.build_sensor_context(
        resources={"lakehouse": world.resource},
        instance=world.instance,
        definitions=world.definitions,
    ) as context:
        evaluated.evaluate_tick(context)


def after_commit(world: World, rows: pa.Table, name: str) -> None:
    world.lake().load_table("raw.events").append(rows)
    sensor(world, name)


def land_and_tick(world: World, number: int, tick: Callable[[int], None]) -> None:
    world.land(f"new-{number}.jsonl.gz", world.day, 10_000 + number, 1)
    tick(1)


def pages(world: World) -> Iterator[tuple[str, Callable[[], object]]]:
    """What Dagster's pages ask for."""
    os.environ["GROWTH_WORLD"] = f"{world.root}\n{world.size}"
    origin = InProcessCodeLocationOrigin(
        LoadableTargetOrigin(module_name="benchmarks.growth", attribute="defs"),
        location_name="growth",
    )
    world.instance  # noqa: B018 - it names DAGSTER_HOME
    context = WorkspaceProcessContext(world.instance, InProcessWorkspaceLoadTarget(origin))
    schema = create_schema()  # the web server makes it once

    def ask(query: str) -> None:
        asked = schema.execute_async(query, context_value=context.create_request_context())
        answer = asyncio.run(asked)
        assert not answer.errors, answer.errors

    for name, query in PAGES.items():
        yield name, lambda query=query: ask(query)


@dg.definitions
def defs() -> dg.Definitions:
    """Those of the world in the environment."""
    root, size = os.environ["GROWTH_WORLD"].split("\n")
    return World(Path(root), int(size)).definitions


def processor() -> float:
    """Seconds of this process and of those that it waited for."""
    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + waited.ru_utime + waited.ru_stime


def measured(world: World, repeat: int) -> dict[str, dict[str, float]]:
    """Processor seconds of each work: at first, and the least of the next times; clock of these."""
    costs = {}
    for name, work in works(world):
        times = []
        for _ in range(repeat + 1):
            clock, began = time.perf_counter(), processor()
            work()
            times.append((processor() - began, time.perf_counter() - clock))
        first, (again, clock) = times[0][0], min(times[1:])
        costs[name] = {"first": first, "again": again, "clock": clock}
        say(f"{world.size:5} x  {name:36}{first:9.3f}{again:9.3f}{clock:9.3f}", sys.stderr)
    return {name: {k: round(s, 4) for k, s in cost.items()} for name, cost in costs.items()}


def in_a_process(folder: Path, size: int, repeat: int) -> dict[str, dict[str, float]]:
    command = [sys.executable, "-m", "benchmarks.growth", "--measure", str(folder), str(size)]
    done = subprocess.run(
        [*command, "--repeat", str(repeat)], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    costs: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return costs


def say(line: str, stream: Any = sys.stdout) -> None:
    stream.write(f"{line}\n")
    stream.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1,10,100")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="a disk with a million free inodes")
    parser.add_argument("--keep", action="store_true", help="leave the folder")
    parser.add_argument("--measure", nargs=2, metavar=("ROOT", "SIZE"))
    arguments = parser.parse_args()
    if arguments.measure:
        root, size = arguments.measure
        with tempfile.TemporaryDirectory() as few:
            small = World(Path(few), 0)
            build(small)
            for _, work in works(small):
                work()
        say(json.dumps(measured(World(Path(root), int(size)), arguments.repeat)))
        return
    sizes = [int(size) for size in arguments.sizes.split(",")]
    costs, samples = {}, {}
    kept = json.loads(RESULTS.read_text())["sizes"] if RESULTS.is_file() else {}
    for size in sizes:
        folder = Path(tempfile.mkdtemp(prefix=f"growth-{size}-", dir=arguments.folder))
        try:
            build(World(folder, size))
            say(f"{size} x is built in {folder}", sys.stderr)
            costs[size] = in_a_process(folder, size, arguments.repeat)
            date = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
            load = round(os.getloadavg()[0], 2)
            samples[size] = {"date": date, "load": load, "costs": costs[size]}
        finally:
            if not arguments.keep:
                shutil.rmtree(folder)
    show(costs)
    result = {
        "benchmark": "growth",
        "machine": {"cpus": os.cpu_count(), "system": platform.platform()},
        "versions": {name: version(name) for name in ("dagster", "pyarrow", "polars")},
        "sizes": kept | {str(size): sample for size, sample in samples.items()},
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


def show(costs: dict[int, dict[str, dict[str, float]]]) -> None:
    """Seconds of a processor by size, at first and again."""
    say(f"{'processor seconds, at first | again':38}" + "".join(f"{size:>10} x" for size in costs))
    for name in next(iter(costs.values())):
        cells = (
            f"{cost[name]['first']:6.2f}|{cost[name]['again']:5.2f}" for cost in costs.values()
        )
        say(f"{name:38}" + "".join(cells))


if __name__ == "__main__":
    main()
