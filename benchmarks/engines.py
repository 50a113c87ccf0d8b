"""One mart on each engine, in one run: `python -m benchmarks.engines [--rows N]`.

The same SQL model over events by day and bucket, computed and written as a table. Spark's session
is open; the first round of each engine is dropped.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.spark_support import events, interleaved, report
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.orchestration import SqlModel
from lakehouse.orchestration.assets.frames import ENGINES
from lakehouse.spark import build_session

SQL = """
SELECT to_date(event_ts) AS day, kind, count(*) AS events, count_if(flag) AS flagged,
       avg(user_id) AS user_avg, sum(user_id) AS user_sum, max(token) AS last_token
FROM raw.events WHERE amount > 100 GROUP BY to_date(event_ts), kind
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="engines-"))
    spark = build_session("engines")
    try:
        lake = load_catalog(f"file://{root}/warehouse")
        _events(lake, spark, arguments.rows, arguments.days)
        read = {"raw.events": lake.load_table("raw.events").metadata.current_snapshot_id}
        numbers = itertools.count()

        def written(engine: str) -> Callable[[], object]:
            table = replace(SqlModel(name="marts.by_kind", sql=SQL), engine=engine).table()

            def run() -> object:
                frame = table.compute(lake, spark if engine == "spark" else None, read, None)
                made = lake.create_table(f"marts.{engine}{next(numbers)}", frame.schema)
                return made.append(frame)

            return run

        cases = {"mart": interleaved({name: written(name) for name in ENGINES}, arguments.repeat)}
        # `spark` is what the others are compared with
        report("engines", "One mart", cases, "spark", {}, rows=arguments.rows)
        return 0
    finally:
        spark.stop()
        shutil.rmtree(root)


def _events(lake: Lakehouse, spark: SparkSession, rows: int, days: int) -> None:
    frame = events(spark, rows, days=days, slices=4)
    lake.create_table(
        "raw.events", frame.schema, partition_by=("day(event_ts)", "bucket(4, user_id)")
    ).append(frame)


if __name__ == "__main__":
    raise SystemExit(main())
