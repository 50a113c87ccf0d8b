"""How long Spark plans a query of a table, and of the same files as a Parquet relation.

`python benchmarks/spark_planning.py [--repeat N]`: from `spark.sql(text)` to the executed plan, in
one session, in turn. The relation is a temporary view: its files are listed and its schema is read
before, so that nothing is left for it to do but plan.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyspark.sql import SparkSession

from lakehouse.spark import build_session

RESULT = Path(__file__).resolve().parent / "results" / "spark_planning.json"
DAYS = 30
WARM = 30
LIMIT_MS = 30.0
QUERIES = {
    "all columns": "SELECT * FROM {}",
    "filter and columns": "SELECT id, kind FROM {} WHERE day = DATE '2026-01-07' AND id > 5",
    "whole files": "SELECT id, kind FROM {} WHERE day = DATE '2026-01-07'",
    "aggregate": "SELECT kind, count(*), sum(id) FROM {} WHERE id > 5 GROUP BY kind",
    "join": "SELECT a.id FROM {} a JOIN {} b ON a.id = b.id WHERE b.day = DATE '2026-01-07'",
}


def planned_ms(spark: SparkSession, text: str) -> float:
    """Milliseconds until Spark could run it."""
    started = time.perf_counter()
    spark.sql(text)._jdf.queryExecution().executedPlan()  # noqa: SLF001
    return (time.perf_counter() - started) * 1000


def tables(spark: SparkSession) -> dict[str, str]:
    """The table and the view that have the same files."""
    spark.sql("CREATE NAMESPACE lake.b")
    spark.sql(
        "CREATE TABLE lake.b.t PARTITIONED BY (day) AS SELECT id, concat('k', id % 9) AS kind, "
        f"date_add(DATE '2026-01-01', CAST(id % {DAYS} AS INT)) AS day FROM range(30000)"
    )
    files = [row[0] for row in spark.sql("SELECT file_path FROM lake.b.t.files").collect()]
    spark.read.parquet(*files).createOrReplaceTempView("plain")
    return {"table": "lake.b.t", "parquet": "plain"}


def measured(spark: SparkSession, repeat: int) -> list[dict[str, Any]]:
    """Medians of each query; the first runs, which compile, do not count."""
    names = tables(spark)
    rows = []
    for title, text in QUERIES.items():
        times: dict[str, list[float]] = {name: [] for name in names}
        for number in range(repeat + WARM):
            for kind in sorted(names, reverse=bool(number % 2)):
                taken = planned_ms(spark, text.format(names[kind], names[kind]))
                if number >= WARM:
                    times[kind].append(taken)
        ours, plain = (
            round(statistics.median(times[source]), 1) for source in ("table", "parquet")
        )
        more = round(ours - plain, 1)
        rows.append({"case": title, "ours_ms": ours, "parquet_ms": plain, "more_ms": more})
        print(f"  {title}: {ours} ms, Parquet {plain} ms, {more:+} ms", flush=True)
    return rows


def main() -> int:
    """Keep the medians; 1 where the table costs more than the limit above the relation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=60)
    repeat = parser.parse_args().repeat
    print(f"Spark plans, at most {LIMIT_MS:.0f} ms above Parquet, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        spark = build_session(
            "planning", master="local[2]", catalogs={"lake": f"file://{folder}/warehouse"}
        )
        rows = measured(spark, repeat)
        spark.stop()
    facts = {"files": DAYS, "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    results = {"facts": facts, "pyspark": version("pyspark"), "rows": rows}
    RESULT.write_text(json.dumps(results, indent=1) + "\n")
    return int(any(row["more_ms"] > LIMIT_MS for row in rows))


if __name__ == "__main__":
    sys.exit(main())
