"""MERGE in Spark SQL with us, with Iceberg's runtime, and as a plain rewrite of Parquet.

    python -m benchmarks.spark_merge [--rows N] [--iceberg-runtime JAR --spark-python PYTHON]

All contenders run the same PySpark, each in a
process of its own, in turns whose order is reversed every time. Each run has a table of its own;
nothing is made or deleted while time is taken.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.spark_support import Times, processor_seconds, report

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / "benchmarks" / "peers" / "merging_engine.py"
MODES = ("copy-on-write", "merge-on-read")
CASES = {
    f"{changes}, {mode}": {"changes": table, "mode": mode}
    for changes, table in (("all days", "all"), ("one day of thirty", "day"))
    for mode in MODES
}
SOURCE = """
from pyspark.sql import SparkSession
import sys
folder, rows, updates, inserts = sys.argv[1], *map(int, sys.argv[2:])
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").config(
    "spark.driver.host", "127.0.0.1").config("spark.sql.session.timeZone", "UTC").getOrCreate()
step = 30 * 86_400_000_000 // rows
def columns(number, place, suffix):
    return [f"{number} AS id", f"timestamp_micros(1767225600000000 + {place} * {step}) AS event_ts",
            "(id * 2654435761) % 100003 AS user_id",
            f"concat('name-', id % 5000, '{suffix}') AS name",
            "id * 0.37 AS amount", "CAST(id % 7 AS INT) AS kind",
            "substr(sha1(CAST(id AS STRING)), 1, 12) AS token"]
def save(frame, name):
    frame.write.parquet(f"{folder}/{name}")
save(spark.range(0, rows, 1, 8).selectExpr(*columns("id", "id", "")), "base")
every, day = rows // updates, rows // 30
old = f"id * {every}"
new = spark.range(rows, rows + inserts, 1, 2)
save(spark.range(0, updates, 1, 4).selectExpr(*columns(old, old, "!")).unionAll(
    new.selectExpr(*columns("id", f"(id - {rows}) * {rows // inserts}", "new"))), "all")
first = -(-14 * rows // 30)
old = f"({first} + (id * 10) % {day})"
save(spark.range(0, day // 10, 1, 2).selectExpr(*columns(old, old, "!")).unionAll(
    new.limit(day // 40).selectExpr(
        *columns("id", f"({first} + (id - {rows}) * 40)", "new"))), "day")
spark.stop()
"""


class Contender:
    """An engine in its process.

    Args:
        python: which has PySpark.
        engine: lakehouse, iceberg or parquet.
        folder: with the source.
        runtime: Iceberg's JAR.
    """

    def __init__(self, python: str, engine: str, folder: Path, runtime: str) -> None:
        command = [python, str(PEER), engine, str(folder), "--runtime", runtime]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.spark: str = self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def __call__(self, do: str, case: dict[str, str]) -> Any:
        """Have it done, and what came of it."""
        self._process.stdin.write(json.dumps({"do": do, **case}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a contender ended: exit code {self._process.wait()}")
        return json.loads(line)


def measured(engines: dict[str, Contender], case: dict[str, str], repeat: int) -> dict[str, Times]:
    """Times of all engines in turns; the first turn is dropped; all get the same rows."""
    times = {name: Times() for name in engines}
    for turn in range(repeat + 1):
        names = list(engines) if turn % 2 else list(engines)[::-1]
        for name in names:
            engines[name]("prepare", case)
        for name in names:
            before = processor_seconds()
            seconds = engines[name]("run", case)
            if turn:
                times[name].wall.append(seconds)
                times[name].processor.append(processor_seconds() - before)
        sums = {name: engines[name]("check", case) for name in names}
        assert len({tuple(totals) for totals in sums.values()}) == 1, f"rows differ: {sums}"
        for name in names:
            engines[name]("drop", case)
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--updates", type=int, default=200_000)
    parser.add_argument("--inserts", type=int, default=50_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--iceberg-runtime", default="", help="jar of iceberg-spark-runtime, as a peer"
    )
    parser.add_argument(
        "--spark-python", default=sys.executable, help="Python of all contenders' PySpark"
    )
    arguments = parser.parse_args()
    names = {"lakehouse": "lakehouse", "read, join, write Parquet": "parquet"}
    if arguments.iceberg_runtime:
        names["Iceberg's runtime"] = "iceberg"
    folder = Path(tempfile.mkdtemp(prefix="spark-merge-"))
    engines: dict[str, Contender] = {}
    try:
        counts = [str(count) for count in (arguments.rows, arguments.updates, arguments.inserts)]
        subprocess.run(
            [arguments.spark_python, "-c", SOURCE, str(folder), *counts],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        for title, engine in names.items():
            engines[title] = Contender(
                arguments.spark_python, engine, folder, arguments.iceberg_runtime
            )
        cases = {title: measured(engines, case, arguments.repeat) for title, case in CASES.items()}
        targets = dict.fromkeys(CASES, 0.8)
        facts = {"rows": arguments.rows, "updates": arguments.updates, "inserts": arguments.inserts}
        met = report(
            "spark_merge",
            "MERGE in Spark",
            cases,
            "lakehouse",
            targets,
            spark=engines["lakehouse"].spark,
            **facts,
        )
        return 0 if met else 1
    finally:
        for engine in engines.values():
            engine.__exit__(None, None, None)
        shutil.rmtree(folder)


if __name__ == "__main__":
    raise SystemExit(main())
