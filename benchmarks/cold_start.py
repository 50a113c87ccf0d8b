"""What a command costs in a process of its own, which imports what it needs first.

`python -m benchmarks.cold_start [--tables 12] [--repeat 10] [--files 270000]`. Commands on a
catalog of small tables, and loading and planning one of them in Python beside pyiceberg, taking
turns; the same of a table of so many files that pyiceberg wrote (0: not). Median seconds and
processor seconds of whole processes, interpreter included.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakehouse as lh
from benchmarks.atlas import BUCKETS, DAYS
from benchmarks.atlas import build as build_atlas

RESULTS = Path(__file__).parent / "results" / "cold_start.json"

OURS = """
import lakehouse as lh
table = lh.load_catalog({folder!r}).load_table({name!r})
assert len(table.scan().plan().files) == {files}
"""
PYICEBERG = """
from pyiceberg.table import StaticTable
assert len(list(StaticTable.from_metadata({metadata!r}).scan().plan_files())) == {files}
"""


def build(folder: Path, tables: int) -> str:
    """Tables of three files, by day; returns where the first one's metadata is."""
    lake = lh.load_catalog(folder)
    moments = pa.array([1, 2, 3], pa.timestamp("us", tz="UTC"))
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "at": moments})
    for number in range(tables):
        table = lake.create_table(f"raw.t{number}", rows.schema, partition_by=["day(at)"])
        for _ in range(3):
            table.append(rows)
    return lake.load_table("raw.t0").metadata_location


def planned(folder: Path, name: str, metadata: str, files: int) -> dict[str, list[str]]:
    """Both programs that load and plan a table of so many files."""
    what = "load and plan" if files < 10 else f"load and plan {files:,} files"
    ours = OURS.format(folder=str(folder), name=name, files=files)
    return {
        what: ["-c", ours],
        f"{what}, pyiceberg": ["-c", PYICEBERG.format(metadata=metadata, files=files)],
    }


def programs(folder: Path, metadata: str, files: int) -> dict[str, list[str]]:
    """What is run, by name, as arguments of Python."""
    commands = {
        "help": ["--help"],
        "tables": ["tables"],
        "plan": ["plan", "raw.t0", "--where", "id = 1"],
        "sql": ["sql", "SELECT count(*) FROM raw.t0 WHERE id = 1"],
    }
    start = ["-c", "from lakehouse.cli import app; app()", "--catalog", str(folder)]
    made = {
        "interpreter": ["-c", ""],
        **{f"lakehouse {name}": [*start, *words] for name, words in commands.items()},
        **planned(folder, "raw.t0", metadata, 3),
    }
    if files:
        large = folder.parent / "large"
        atlas = build_atlas(large, files // (DAYS * 24 * BUCKETS))
        lh.load_catalog(str(large)).register_table("raw.atlas", atlas.metadata_location)
        made |= planned(large, "raw.atlas", atlas.metadata_location, atlas.files)
    return made


def timed(arguments: list[str]) -> tuple[float, float]:
    """(seconds, processor seconds) of a process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def run(tables: int, repeat: int, files: int) -> dict[str, Any]:
    times: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "warehouse"
        every = programs(folder, build(folder, tables), files)
        for turn in range(repeat + 1):
            for name, arguments in every.items():
                spent = timed(arguments)
                if turn:  # the first one reads files that the disk has not read yet
                    times.setdefault(name, []).append(spent)
    return {
        "benchmark": "cold_start",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpus": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "python": platform.python_version(),
        },
        "versions": {name: version(name) for name in ("pyiceberg", "pyarrow", "datafusion")},
        "tables": tables,
        "files": files,
        "processes": {
            name: {
                "seconds": round(statistics.median(seconds for seconds, _ in spent), 3),
                "cpu_seconds": round(statistics.median(cpu for _, cpu in spent), 3),
            }
            for name, spent in times.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--files", type=int, default=270_000)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    result = run(arguments.tables, arguments.repeat, arguments.files)
    for name, spent in result["processes"].items():
        print(f"{name:40} {spent['seconds']:.2f} s, {spent['cpu_seconds']:.2f} s of processor")
    arguments.results.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
