"""What a user gains from each part that could be left out: with it and without, in one run.

`python -m benchmarks.optional_parts [--rows 3000000] [--scale 0.05] [--repeat 4]`. Avro manifests
decoded in bulk beside entry by entry; six of Great Expectations' checks beside the same in one
aggregate of Spark. Processor seconds stand beside seconds: a busy machine disturbs them less.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import functions as F  # noqa: N812

from benchmarks.atlas import FULL_FILES_PER_PARTITION
from benchmarks.atlas import build as build_atlas
from benchmarks.plan_atlas import plan_ours, queries
from lakehouse.manifests import manifest_reader
from lakehouse.manifests.avro_decoding import BulkRefusedError, bulk_decode
from lakehouse.orchestration.checks.expectations import Suite, expect, validate
from lakehouse.spark import build_session

RESULTS = Path(__file__).parent / "results" / "optional_parts.json"
Times = dict[str, dict[str, float]]


def alternating(work: dict[str, Callable[[], object]], repeat: int) -> Times:
    """Best seconds of each, taking turns, and the processor seconds of that run."""
    best: Times = {}
    for _ in range(repeat):
        for name, call in work.items():
            start, cpu = time.perf_counter(), time.process_time()
            call()
            seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
            if name not in best or seconds < best[name]["seconds"]:
                best[name] = {"seconds": round(seconds, 4), "cpu_seconds": round(cpu_seconds, 4)}
    return best


def manifests(folder: Path, scale: float, repeat: int) -> dict[str, Times]:
    """Manifests as pyiceberg writes them: in bulk, and entry by entry."""
    files = max(round(FULL_FILES_PER_PARTITION * scale), 8)
    location = build_atlas(folder / "atlas", files).metadata_location

    def refused(*_: Any, **__: Any) -> Any:
        raise BulkRefusedError("to compare")

    parts = {}
    for title, where in queries(files).items():

        def plan(decode: Callable[..., Any], where: str = where) -> list[str]:
            with patch.object(manifest_reader, "bulk_decode", decode):
                return plan_ours(location, where, twins=False)[0]

        assert sorted(plan(bulk_decode)) == sorted(plan(refused))
        parts[title] = alternating(
            {
                "in bulk": lambda plan=plan: plan(bulk_decode),
                "entry by entry": lambda plan=plan: plan(refused),
            },
            repeat,
        )
    return parts


def checks(rows: int, repeat: int) -> dict[str, Times]:
    """Six expectations, and the same six as one aggregate."""
    spark = build_session("optional_parts")
    try:
        names = [f"c{number}" for number in range(6)]
        columns = [(F.col("id") % (10 + number)).alias(name) for number, name in enumerate(names)]
        frame = spark.range(rows).select("id", *columns).persist()
        frame.count()
        suite = Suite(
            "six",
            tuple(
                expect("column_values_to_be_between", column=name, min_value=0, max_value=20)
                for name in names
            ),
        )
        bad = [F.sum((~F.col(name).between(0, 20)).cast("long")).alias(name) for name in names]

        def expectations() -> None:
            (outcome,) = validate(frame, [suite], "bench")
            assert outcome.passed

        def aggregate() -> None:
            assert not any(frame.agg(*bad).first())

        return {
            f"six columns of {rows:,} rows": alternating(
                {"great expectations": expectations, "one aggregate": aggregate}, repeat
            )
        }
    finally:
        spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--scale", type=float, default=0.05)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        parts = {
            "manifests": manifests(Path(folder), arguments.scale, arguments.repeat),
            "checks": checks(arguments.rows, arguments.repeat),
        }
    result = {
        "benchmark": "optional_parts",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "cpus": os.cpu_count(),
        "rows": arguments.rows,
        "scale": arguments.scale,
        "parts": parts,
    }
    for part, cases in parts.items():
        for case, times in cases.items():
            text = ", ".join(
                f"{name} {measured['seconds']} s ({measured['cpu_seconds']})"
                for name, measured in times.items()
            )
            print(f"{part}: {case}: {text}")
    arguments.results.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
