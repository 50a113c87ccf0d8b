"""How long `lakehouse why` takes for a key of one day, over many raw rows.

python -m benchmarks.why [--rows 100000000] [--days 365] [--repeat 5]. A raw table has a file a day,
with landing files and lines, and a mart counts its rows by day and key. Files of the days that are
asked about are written by our writer; those of the others are entries of manifests, with partition
and bounds, that do not exist. The command runs in a process of its own, and
again in one that goes on. Manifests and files are those that its plans leave, rows those of these.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa

import lakehouse as lh
from lakehouse.lake import Lakehouse
from lakehouse.orchestration import SqlModel
from lakehouse.orchestration.assets.staleness import RefreshState
from lakehouse.orchestration.lineage.why import Why, explained_rows
from lakehouse.scan.reports.listeners import ScanReport
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.snapshot import REFRESH_STATE

RESULTS = Path(__file__).parent / "results" / "why.json"
KEYS = 1000
FIRST = date(2025, 1, 1)
LINES = 10_000
"""Of a landing file."""
SQL = """SELECT CAST(event_ts AS DATE) AS day, account, count(*) AS events, sum(amount) AS amount
FROM raw.events GROUP BY CAST(event_ts AS DATE), account"""
MODEL = SqlModel(
    name="marts.days", sql=SQL, engine="datafusion", day_column="day", day_is_date=True
)
DEFINITIONS = """
from datetime import date
import dagster as dg
from lakehouse.ingestion.source import Column, EventTime, Source
from lakehouse.orchestration import LakehouseResource, LakehouseSpark, Pipeline, SqlModel
events = Source(
    name="events", pattern="*.jsonl", event_time=EventTime("time"), first_day=date(2025, 1, 1),
    last_day=date(2026, 1, 1), columns=(Column("account", "string"), Column("amount", "long")),
)
days = SqlModel(
    name="marts.days", sql={sql!r}, engine="datafusion", day_column="day", day_is_date=True
)
pipeline = Pipeline(sources=(events,), derived=(days.table(),), landing_root="landing")
resources = {{"lakehouse": LakehouseResource(catalog="lake"), "spark": LakehouseSpark()}}
defs = dg.Definitions(assets=pipeline.assets(), resources=resources)
"""


def built(lake: Lakehouse, rows: int, days: int, days_asked: Sequence[int]) -> None:
    """Raw rows of so many days, those that are asked about written, and the mart over these."""
    schema = pa.schema(
        [
            pa.field("event_ts", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("account", pa.string()),
            pa.field("amount", pa.int64()),
            pa.field("landing_file", pa.string(), nullable=False),
            pa.field("landing_line", pa.int64(), nullable=False),
        ]
    )
    raw = lake.create_table("raw.events", schema, partition_by=["day(event_ts)"])
    each, chance = rows // days, np.random.default_rng(0)
    for day in days_asked:
        raw.append(of_day(chance, day, each))
    raw = raw.refresh()
    (written, *_) = raw.scan().plan().files
    others = [entry(written, day) for day in range(days) if day not in days_asked]
    raw.transaction().append(others).commit()
    raw = raw.refresh()
    model = MODEL.table()
    inputs = {"raw.events": raw.metadata.current_snapshot_id}
    keys = [str(FIRST + timedelta(days=day)) for day in days_asked]
    computed = model.compute(lake, None, inputs, keys).read_all()
    state = RefreshState({name: read for name, read in inputs.items() if read is not None})
    mart = lake.create_table("marts.days", computed.schema, partition_by=["month(day)"])
    mart.append(computed, summary={REFRESH_STATE: state.to_json()})


def entry(written: DataFile, day: int) -> DataFile:
    """A file of another day that does not exist: to open it is an error."""
    first = int(np.datetime64(FIRST + timedelta(days=day), "us").astype(np.int64))
    ends = (first, first + 86_400_000_000 - 1)
    lower, upper = (struct.pack("<q", end) for end in ends)
    return replace(
        written,
        file_path=f"{written.file_path.rsplit('/', 2)[0]}/unwritten-{day}.parquet",
        partition=((FIRST - date(1970, 1, 1)).days + day,),
        lower_bounds={**written.lower_bounds, 1: lower},
        upper_bounds={**written.upper_bounds, 1: upper},
        first_row_id=None,
    )


def of_day(chance: np.random.Generator, day: int, rows: int) -> pa.Table:
    """Events of a day in the order of their time, as landing files of `LINES` lines."""
    start = np.datetime64(FIRST + timedelta(days=day), "us").astype(np.int64)
    times = np.sort(chance.integers(0, 86_400_000_000, rows)) + start
    accounts = pa.DictionaryArray.from_arrays(
        chance.integers(0, KEYS, rows, dtype=np.int32), [f"account-{n:04}" for n in range(KEYS)]
    )
    files = [f"{FIRST + timedelta(days=day)}.{n}.jsonl" for n in range(rows // LINES + 1)]
    numbers = np.arange(rows)
    return pa.table(
        {
            "event_ts": pa.array(times, pa.timestamp("us", "UTC")),
            "account": accounts.cast(pa.string()),
            "amount": chance.integers(0, 1000, rows),
            "landing_file": pa.DictionaryArray.from_arrays(
                pa.array((numbers // LINES).astype(np.int32)), files
            ).cast(pa.string()),
            "landing_line": numbers % LINES + 1,
        }
    )


class Counted:
    """A listener: what the plans of a question leave to be read, by table."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, int]] = {}

    def scan_planned(self, report: ScanReport) -> None:
        """Keep what the largest plan of a table leaves."""
        counts, largest = report.to_dict(), self.tables.setdefault(report.table, {})
        for name, key in (
            ("manifests", "manifests_read"),
            ("files", "data_files_planned"),
            ("rows", "rows_planned"),
        ):
            largest[name] = max(largest.get(name, 0), counts[key])


def asked_day(number: int, days: int) -> int:
    return (number * 37 + 11) % days


def where(number: int, days: int) -> str:
    """A key of one day."""
    day = FIRST + timedelta(days=asked_day(number, days))
    return f"day = DATE '{day}' and account = 'account-{number * 7 % KEYS:04}'"


def explained(lake: Lakehouse, where: str) -> Why:
    def no_spark() -> NoReturn:
        raise AssertionError("no JVM is needed")

    explanation = explained_rows(
        lake, {MODEL.name: MODEL.table()}, MODEL.name, where, session=no_spark
    )
    if (
        not explanation.equal
        or sum(map(len, explanation.lines.values())) != explanation.origin.rows["events"][0].as_py()
    ):
        raise AssertionError(f"{where}: {explanation.verdict()}")
    return explanation


def in_processes(folder: Path, days: int, repeat: int) -> dict[str, float]:
    """Seconds of the command in a process of its own, of the clock and of the processor."""
    (folder / "assets").mkdir(exist_ok=True)
    (folder / "definitions.py").write_text(DEFINITIONS.format(sql=SQL))
    command = [str(Path(sys.executable).with_name("lakehouse")), "why", MODEL.name]
    command += ["--catalog", str(folder / "lake")]
    # compiled modules stay, as they do for users
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    seconds, processor = [], []
    for number in range(repeat + 1):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            [*command, "--where", where(number, days)],
            cwd=folder, env=environment, check=False, capture_output=True, text=True,
        )  # fmt: skip
        seconds.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if "proved: computed again" not in " ".join(done.stdout.split()):
            raise AssertionError(done.stdout + done.stderr)
    # the first compiles modules
    return {
        "cold": statistics.median(seconds[1:]),
        "cold, processor": statistics.median(processor[1:]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.why")
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the tables stay for the next time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = options.folder or Path(temporary)
        lake = lh.load_catalog(str(folder / "lake"))
        if not lake.table_exists(MODEL.name):
            days_asked = [asked_day(number, options.days) for number in range(options.repeat + 1)]
            built(lake, options.rows, options.days, sorted(set(days_asked)))
        seconds = in_processes(folder, options.days, options.repeat)
        lake, counted, warm = lh.load_catalog(str(folder / "lake")), Counted(), []
        head = lake.load_table("raw.events").current_snapshot()
        lake.add_listener(counted)
        for number in range(options.repeat + 1):
            started = time.perf_counter()
            explained(lake, where(number, options.days))
            warm.append(time.perf_counter() - started)
        seconds |= {"first of a process": warm[0], "warm": statistics.median(warm[1:])}
    results = {
        "rows": 0 if head is None else int(head.summary["total-records"]),
        "days": options.days,
        "repeat": options.repeat,
        "seconds": {name: round(time, 3) for name, time in seconds.items()},
        "read": counted.tables,
    }
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
