"""What an evaluation of a landing sensor costs, by how many files landed.

`python -m benchmarks.sensor_tick [--files 10000,100000,1000000]`. All files are in the ledger, with
a row for their day and one for lines without a day, as ingestion leaves them; then one more lands.
Each evaluation is taken by a process of its own, whose libraries an evaluation over a few files has
loaded: sensors live in a process that goes on, and keep nothing from one evaluation to the next.
Memory is the peak beyond what the process had by then. Beside it what comparing objects takes, one
for each file and each row of the ledger.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import dagster as dg  # noqa: E402
import pyarrow as pa  # noqa: E402

from lakehouse.ingestion.landing_ledger import LEDGER_SCHEMA  # noqa: E402
from lakehouse.ingestion.landing_listing import landing_files, list_landing  # noqa: E402
from lakehouse.ingestion.source import EventTime, Source  # noqa: E402
from lakehouse.ingestion.source_tables import ledger_table, read_ledger  # noqa: E402
from lakehouse.orchestration.automation.landing_sensors import LandingWatch  # noqa: E402
from lakehouse.orchestration.resources import LakehouseResource  # noqa: E402

FOLDER_FILES = 1_000
COMMIT_ROWS = 200_000
DAY = dt.date(2026, 6, 1)
KINDS = '{"id":{"int":100},"ts":{"string":100},"user":{"string":100},"amount":{"int":100}}'
SOURCE = Source(
    name="events", event_time=EventTime("ts", zone="UTC"), first_day=DAY, last_day=DAY, bucket="id"
)


def resource(root: Path) -> LakehouseResource:
    return LakehouseResource(catalog=(root / "warehouse").as_uri(), landing=str(root / "landing"))


def land(root: Path, count: int) -> None:
    """So many files of one byte, a thousand a folder, all of them in the ledger."""
    for first in range(0, count, FOLDER_FILES):
        folder = root / "landing" / SOURCE.name / f"{first // FOLDER_FILES:05}"
        folder.mkdir(parents=True)
        for number in range(first, min(first + FOLDER_FILES, count)):
            (folder / f"part-{number:08}.jsonl.gz").write_bytes(b"x")
    ledger = ledger_table(resource(root).lake(), SOURCE)
    listing = list_landing(str(root / "landing"), SOURCE).sort_by("landing_file")
    for first in range(0, count, COMMIT_ROWS // 2):
        part = listing.slice(first, COMMIT_ROWS // 2)
        ledger.append(pa.concat_tables([rows(part, DAY, "{}"), rows(part, None, KINDS)]))


def rows(listing: pa.Table, day: dt.date | None, kinds: str) -> pa.Table:
    facts = {"lines": 100, "rows": 100, "quarantined": 0, "duplicates": 0, "problem": None}
    values = {**facts, "pending": False, "replaces": False, "event_day": day, "kinds": kinds}
    columns = [
        listing[field.name]
        if field.name in listing.column_names
        else pa.repeat(pa.scalar(values[field.name], field.type), listing.num_rows)
        for field in LEDGER_SCHEMA
    ]
    return pa.table(columns, schema=LEDGER_SCHEMA)


def by_columns(root: Path) -> int:
    """An evaluation, as the sensor takes it: how many pieces of work it asks for."""
    watch = LandingWatch(SOURCE, (), dg.DagsterInstance.ephemeral(), resource(root))
    request = watch.decision().request
    return 0 if request is None else len(request.works)


def by_objects(root: Path) -> int:
    """How many files are new, from an object for each file and each row."""
    indexed = {row.file for row in read_ledger(ledger_table(resource(root).lake(), SOURCE))}
    landed = landing_files(list_landing(str(root / "landing"), SOURCE))
    return sum(file not in indexed for file in landed)


def memory_mb(peak: str) -> float:
    """`VmRSS` or `VmHWM` of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(peak):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"the system does not tell {peak}")


def measure(root: Path, how: str, expected: int) -> dict[str, float]:
    """One evaluation in this process, after one over a few files that loads every library."""
    evaluate = {"columns": by_columns, "objects": by_objects}[how]
    with tempfile.TemporaryDirectory() as few:
        land(Path(few), 10)
        evaluate(Path(few))
    before = memory_mb("VmRSS")
    wall, processor = time.perf_counter(), time.process_time()
    waiting = evaluate(root)
    seconds, processor = time.perf_counter() - wall, time.process_time() - processor
    assert waiting == expected, f"{waiting} where {expected} wait"
    return {
        "processor_s": round(processor, 2),
        "seconds": round(seconds, 2),
        "memory_mb": round(memory_mb("VmHWM") - before),
        "process_mb": round(memory_mb("VmHWM")),
    }


def in_a_process(root: Path, how: str, expected: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.sensor_tick", "--measure", str(root), how]
    done = subprocess.run(
        [*command, str(expected)], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def show(row: dict[str, Any]) -> None:
    for case in ("nothing_new", "one_new", "objects"):
        if case in row:
            tick = row[case]
            print(
                f"{row['files']:>9,} files, {case.replace('_', ' '):<11}: "
                f"{tick['processor_s']:6.2f} s of a processor, {tick['seconds']:6.2f} s, "
                f"{tick['memory_mb']:5} MB (process {tick['process_mb']} MB)",
                flush=True,
            )


def run(counts: list[int], folder: Path | None, objects_up_to: int) -> dict[str, Any]:
    cases = []
    for count in counts:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            root = Path(name)
            land(root, count)
            row: dict[str, Any] = {"files": count}
            row["nothing_new"] = in_a_process(root, "columns", 0)
            (root / "landing" / SOURCE.name / "new.jsonl.gz").write_bytes(b"x")
            row["one_new"] = in_a_process(root, "columns", 1)
            if count <= objects_up_to:
                row["objects"] = in_a_process(root, "objects", 1)
            show(row)
        cases.append(row)
    return {
        "benchmark": "sensor_tick",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "versions": {name: version(name) for name in ("dagster", "pyarrow", "polars")},
        "rows": cases,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", default="10000,100000,1000000")
    parser.add_argument("--folder", type=Path, help="a disk with as many free inodes")
    parser.add_argument("--objects-up-to", type=int, default=1_000_000)
    parser.add_argument("--measure", nargs=3, metavar=("ROOT", "HOW", "EXPECTED"))
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results" / "sensor_tick.json"
    )
    arguments = parser.parse_args()
    if arguments.measure:
        root, how, expected = arguments.measure
        print(json.dumps(measure(Path(root), how, int(expected))))
        return
    counts = [int(count) for count in arguments.files.split(",")]
    result = run(counts, arguments.folder, arguments.objects_up_to)
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    arguments.results.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
