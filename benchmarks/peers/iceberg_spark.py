"""Iceberg's own Spark runtime: the peer of `spark_read.py` and `spark_write.py`.

It works on tables of a Hadoop catalog.

Runs with a Python of its own, that has nothing but the PySpark which the Iceberg runtime was built
for. Prints one JSON object: the seconds by the clock of each case, best of the repeats after one
that warms up.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

DAY = "date(event_ts) = '2026-03-01'"
PARTITIONED = "PARTITIONED BY (days(event_ts), bucket(4, user_id))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["read", "write"])
    parser.add_argument("--runtime", required=True, help="jar of iceberg-spark-runtime")
    parser.add_argument("--warehouse", required=True)
    parser.add_argument("--source", help="Parquet files to append")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    catalog = "spark.sql.catalog.bench"
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.jars", arguments.runtime)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.session.timeZone", "UTC")
        .config(
            "spark.sql.extensions",
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        )
        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
        .config(f"{catalog}.type", "hadoop")
        .config(f"{catalog}.warehouse", arguments.warehouse)
        .getOrCreate()
    )
    cases = reading(spark) if arguments.task == "read" else writing(spark, arguments.source)
    seconds = {name: best(run, arguments.repeat) for name, run in cases.items()}
    print(
        json.dumps(
            {
                "seconds": seconds,
                "spark": spark.version,
                "runtime": arguments.runtime.rsplit("/", 1)[-1],
            }
        )
    )
    spark.stop()


def best(run: Callable[[], object], repeat: int) -> float:
    seconds = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return round(min(seconds[1:]), 3)


def all_rows(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def reading(spark: SparkSession) -> dict[str, Callable[[], object]]:
    return {
        "unpartitioned, all rows": lambda: all_rows(spark.table("bench.b.flat")),
        "day and bucket, all rows": lambda: all_rows(spark.table("bench.b.parts")),
        "day and bucket, aggregate": lambda: (
            spark.table("bench.b.parts").groupBy("kind").sum("amount").collect()
        ),
        "one day of a year": lambda: all_rows(spark.table("bench.b.parts").where(DAY)),
    }


def writing(spark: SparkSession, source: str) -> dict[str, Callable[[], object]]:
    frame = spark.read.parquet(source)
    frame.createOrReplaceTempView("source")

    def append(partitioned_by: str) -> None:
        spark.sql("DROP TABLE IF EXISTS bench.b.written PURGE")
        spark.sql(
            f"CREATE TABLE bench.b.written USING iceberg {partitioned_by} AS SELECT * "
            "FROM source LIMIT 0"
        )
        frame.writeTo("bench.b.written").append()

    return {"unpartitioned": lambda: append(""), "by day and bucket": lambda: append(PARTITIONED)}


if __name__ == "__main__":
    main()
