"""Spark reads a table, and the same files by `spark.read.parquet`.

`python benchmarks/spark_read.py [--rows N]`.

In the case of one day both make their frame anew each time, as a user's query does: ours loads the
table and plans, the peer is given the paths of that day's files and has to look them up.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.spark_support import (
    Times,
    events,
    iceberg_options,
    iceberg_times,
    interleaved,
    keep_iceberg,
    report,
)
from lakehouse.lake import load_catalog
from lakehouse.spark import LakehouseSession, attach, build_session
from lakehouse.spec.manifests.data_file import DataFile

TARGETS = {
    "unpartitioned, all rows": 1.05,
    "day and bucket, all rows": 1.05,
    "day and bucket, aggregate": 1.05,
    "one day of a year": 1.0,
}
PLAN_TARGET_S = 0.2
LIST_TARGET_S = 1.0
MANY = 100_000
DAY_RANGE = "event_ts >= '2026-03-01T00:00:00+00:00' and event_ts < '2026-03-02T00:00:00+00:00'"


def all_rows(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def aggregate(frame: DataFrame) -> None:
    frame.groupBy("kind").sum("amount").collect()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--repeat", type=int, default=5)
    iceberg_options(parser)
    return parser.parse_args()


def main() -> int:
    arguments = options()
    root = Path(tempfile.mkdtemp(prefix="spark-read-"))
    spark = build_session(
        "spark_read", config={"spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED"}
    )
    try:
        lake = load_catalog(f"file://{root}/warehouse")
        session = attach(spark, lake)
        rows = events(spark, arguments.rows, days=arguments.days, slices=8)
        flat = lake.create_table("b.flat", rows.schema)
        flat.append(rows)
        parts = lake.create_table(
            "b.parts", rows.schema, partition_by=["day(event_ts)", "bucket(2, user_id)"]
        )
        parts.append(rows)
        day = "date(event_ts) = '2026-03-01'"

        def direct(name: str, where: str | None = None) -> DataFrame:
            scan = lake.load_table(name).scan(where=where)
            return spark.read.schema(rows.schema).parquet(
                *[file.file_path for file in scan.plan().files]
            )

        def pair(name: str, work: Callable[[DataFrame], None]) -> dict[str, Times]:
            ours, theirs = session.table(name), direct(name)
            return interleaved(
                {"lakehouse": lambda: work(ours), "spark.read.parquet": lambda: work(theirs)},
                arguments.repeat,
            )

        of_day = lake.load_table("b.parts").scan(where=DAY_RANGE).plan().files
        paths = [file.file_path for file in of_day]
        cases = {
            "unpartitioned, all rows": pair("b.flat", all_rows),
            "day and bucket, all rows": pair("b.parts", all_rows),
            "day and bucket, aggregate": pair("b.parts", aggregate),
            "one day of a year": interleaved(
                {
                    "lakehouse": lambda: all_rows(session.table("b.parts").where(day)),
                    "that day's files": lambda: all_rows(
                        spark.read.schema(rows.schema).parquet(*paths).where(day)
                    ),
                },
                arguments.repeat,
            ),
        }
        files = len(lake.load_table("b.parts").scan().plan().files)
        met = report(
            "spark_read",
            "Spark read",
            cases,
            "lakehouse",
            TARGETS,
            rows=arguments.rows,
            files=files,
            **many_files(session),
        )
        spark.stop()
        keep_iceberg(
            "spark_read", iceberg_times(arguments, "read", f"--warehouse={root}/warehouse")
        )
        return 0 if met else 1
    finally:
        spark.stop()
        shutil.rmtree(root)


def many_files(session: LakehouseSession) -> dict[str, float]:
    """Seconds to answer for 100,000 files (metadata only), and to plan a query that keeps 432."""
    lake, spark = session.lake, session.spark
    table = lake.create_table(
        "b.many", pa.schema([("id", pa.int64()), ("k", pa.int32())]), partition_by=["k"]
    )
    table.transaction().append(
        DataFile(
            file_path=(
                f"{table.location}/data/k={number // 432}/00000-{number}-6f1ed51c-0001.parquet"
            ),
            partition=(number // 432,),
            record_count=1000,
            file_size_in_bytes=100_000 + number,
        )
        for number in range(MANY)
    ).commit()

    def planned(query: str) -> None:
        session.sql(query)._jdf.queryExecution().executedPlan().execute()  # noqa: SLF001

    spark.range(1).collect()
    contenders = {
        "all": lambda: planned("SELECT * FROM b.many"),
        "some": lambda: planned("SELECT * FROM b.many WHERE k = 7"),
    }
    times = interleaved(contenders, 5)
    seconds_by_case = {
        "answer_100k_files_s": min(times["all"].wall),
        "plan_432_of_100k_files_s": min(times["some"].wall),
    }
    seconds_by_case |= {"answer_100k_files_processor_s": min(times["all"].processor)}
    seconds_by_case = {name: round(seconds, 3) for name, seconds in seconds_by_case.items()}
    for name, limit in (
        ("answer_100k_files_s", LIST_TARGET_S),
        ("plan_432_of_100k_files_s", PLAN_TARGET_S),
    ):
        if seconds_by_case[name] > limit:
            print(f"  {name}: {seconds_by_case[name]} misses the target of {limit}")
    return seconds_by_case


if __name__ == "__main__":
    raise SystemExit(main())
