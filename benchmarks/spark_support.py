"""What the Spark benchmarks share: the event rows, interleaved timing, results."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

RESULTS = Path(__file__).resolve().parent / "results"
PEER = Path(__file__).resolve().parent / "peers" / "iceberg_spark.py"
COLUMNS = (
    "id",
    "timestamp_micros(1767225600000000 + CAST(id * {step} AS BIGINT)) AS event_ts",
    "(id * 2654435761) % 100003 AS user_id",
    "concat('name-', CAST(id % 5000 AS STRING)) AS name",
    "id * 0.37 AS amount",
    "CAST(id % 7 AS INT) AS kind",
    "id % 3 = 0 AS flag",
    "substr(sha1(CAST(id AS STRING)), 1, 12) AS token",
)

_WORKER_TICKS: dict[tuple[int, int], int] = {}
"""By process and when it started: what each Python worker of Spark has taken, ended ones too."""


def events(spark: SparkSession, rows: int, *, days: int, slices: int) -> DataFrame:
    """`rows` events of eight columns, in the order of event time, over `days` days."""
    step = days * 86_400_000_000 // rows
    return spark.range(0, rows, 1, slices).selectExpr(
        *(column.format(step=step) for column in COLUMNS)
    )


@dataclass
class Times:
    """(wall, processor) seconds of each run; processor time includes everything started."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def interleaved(contenders: dict[str, Callable[[], object]], repeat: int) -> dict[str, Times]:
    """Times of each contender in turn: a busy machine hurts all; the first round is dropped.

    With `repeat` 0 there is but that round, and it counts.
    """
    times = {name: Times() for name in contenders}
    for turn in range(0 if repeat else 1, repeat + 1 if repeat else 2):
        for name, run in contenders.items():
            start, used = time.perf_counter(), processor_seconds()
            run()
            if turn:
                times[name].wall.append(time.perf_counter() - start)
                times[name].processor.append(processor_seconds() - used)
    return times


def iceberg_options(parser: argparse.ArgumentParser) -> None:
    """Options that bring Iceberg's Spark runtime in as a peer."""
    parser.add_argument(
        "--iceberg-runtime", help="jar of iceberg-spark-runtime: the peer runs alone, behind ours"
    )
    parser.add_argument(
        "--iceberg-python",
        default=sys.executable,
        help="Python whose PySpark the jar was built for",
    )


def iceberg_times(arguments: argparse.Namespace, task: str, *more: str) -> dict[str, Any]:
    """The same in Iceberg's runtime, in its own process; nothing when no jar is given."""
    if not arguments.iceberg_runtime:
        return {}
    command = [arguments.iceberg_python, str(PEER), task, "--runtime", arguments.iceberg_runtime]
    done = subprocess.run(
        [*command, "--repeat", str(arguments.repeat), *more],
        check=True,
        capture_output=True,
        text=True,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"  Iceberg {result['runtime']} on Spark {result['spark']}: {result['seconds']}")
    return result


def keep_iceberg(name: str, measured: dict[str, Any]) -> None:
    """Add what Iceberg took to the kept result, beside the same case of ours."""
    path = RESULTS / f"{name}.json"
    results = json.loads(path.read_text())
    if measured:
        ours = {
            row["case"]: row["best_s"] for row in results["rows"] if row["contender"] == "lakehouse"
        }
        times = {
            case: round(ours[case] / seconds, 2)
            for case, seconds in measured["seconds"].items()
            if case in ours
        }
        path.write_text(
            json.dumps(results | {"iceberg": measured | {"ours_to_it": times}}, indent=1) + "\n"
        )


def processor_seconds() -> float:
    """Processor time of this process, JVM and Python workers, from /proc; 0 without /proc.

    What workers took that have ended since the last call is in it: PySpark's daemon ends them when
    they idle, and ignores how, so that the kernel adds their time to nobody's.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    workers: dict[int, tuple[int, int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        pid = int(folder.name)
        parents[pid] = int(fields[1])
        ticks[pid] = sum(map(int, fields[11:15]))
        if b"pyspark.daemon" in command:
            workers[pid] = (pid, int(fields[19]))
    ours = [pid for pid in ticks if _below(pid, parents)]
    forked = {pid for pid in ours if pid in workers and parents[pid] in workers}
    _WORKER_TICKS.update({workers[pid]: ticks[pid] for pid in forked})
    waited_for = sum(ticks[pid] for pid in ours if pid not in forked)
    return (waited_for + sum(_WORKER_TICKS.values())) / os.sysconf("SC_CLK_TCK")


def _below(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


def report(
    name: str,
    title: str,
    cases: dict[str, dict[str, Times]],
    ours: str,
    targets: dict[str, float],
    **facts: Any,
) -> bool:
    """Print best times of each case beside the peers'; keep them in `results/<name>.json`.

    Returns:
        Whether the targets hold by the clock.
    """
    met = True
    rows = []
    print(f"{title} {facts}, load {os.getloadavg()[0]:.1f}")
    for case, times in cases.items():
        for contender, spent in times.items():
            row = {
                "case": case,
                "contender": contender,
                "best_s": min(spent.wall),
                "median_s": statistics.median(spent.wall),
                "best_processor_s": min(spent.processor),
                "ours_to_it": min(times[ours].wall) / min(spent.wall),
                "ours_to_it_processor": min(times[ours].processor)
                / max(0.01, min(spent.processor)),
            }
            rows.append(row)
            print(
                f"  {case:26} {contender:26} best {row['best_s']:7.3f} s  processor "
                f"{row['best_processor_s']:7.2f} s  ours/it {row['ours_to_it']:5.2f}  by processor "
                f"{row['ours_to_it_processor']:5.2f}"
            )
            if contender != ours and round(row["ours_to_it"], 2) > targets.get(case, math.inf):
                met = False
                print(f"  {case}: {row['ours_to_it']:.2f} misses the target of {targets[case]}")
    RESULTS.mkdir(exist_ok=True)
    versions = {package: version(package) for package in ("pyspark", "pyarrow", "pyiceberg")}
    facts |= {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
    results = {
        "facts": facts,
        "versions": versions,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "rows": rows,
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    return met
