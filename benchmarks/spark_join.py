"""Two tables of equal bucketing are joined by Spark with a shuffle and without.

`python benchmarks/spark_join.py [--rows N] [--buckets N]`.

The peer is the same query of the same session, which shuffles both tables by the key. Tables are
too large to be broadcast; all columns are joined, and the rows are counted by a `noop` sink.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyspark.sql import SparkSession

from benchmarks.spark_support import events, interleaved, report
from lakehouse.spark import build_session

GROUPED = "spark.sql.iceberg.planning.preserve-data-grouping"
JOINS = {
    "rows of both": "SELECT * FROM lake.raw.clicks JOIN lake.raw.users USING (user_id)",
    "count by key": (
        "SELECT user_id, count(*), sum(amount) FROM lake.raw.clicks JOIN lake.raw.users "
        "USING (user_id) GROUP BY user_id"
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--buckets", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        spark = build_session(
            "spark_join",
            catalogs={"lake": f"file://{root}/warehouse"},
            config={
                "spark.sql.autoBroadcastJoinThreshold": "-1",
                "spark.sql.shuffle.partitions": str(arguments.buckets),
            },
        )
        make_tables(spark, arguments.rows, arguments.buckets)
        cases = {
            case: interleaved(
                {
                    "lakehouse": run(spark, text, "true"),
                    "shuffled": run(spark, text, "false"),
                },
                arguments.repeat,
            )
            for case, text in JOINS.items()
        }
        met = report(
            "spark_join",
            "Spark joins two bucketed tables",
            cases,
            "lakehouse",
            dict.fromkeys(JOINS, 1.0),
            rows=arguments.rows,
            buckets=arguments.buckets,
        )
        spark.stop()
    return 0 if met else 1


def make_tables(spark: SparkSession, rows: int, buckets: int) -> None:
    """Events, and one row for each key that they have."""
    spark.sql("CREATE NAMESPACE lake.raw")
    events(spark, rows, days=30, slices=4).createOrReplaceTempView("events")
    spark.sql(
        f"CREATE TABLE lake.raw.clicks PARTITIONED BY (bucket({buckets}, user_id)) "
        "AS SELECT * FROM events"
    )
    spark.sql(
        f"CREATE TABLE lake.raw.users PARTITIONED BY (bucket({buckets}, user_id)) "
        "AS SELECT user_id, sha2(CAST(user_id AS STRING), 256) AS token_of_user "
        "FROM (SELECT DISTINCT user_id FROM events)"
    )


def run(spark: SparkSession, text: str, grouped: str) -> Callable[[], None]:
    """The query with a frame of its own each time, as users make it."""

    def query() -> None:
        spark.conf.set(GROUPED, grouped)
        spark.sql(text).write.format("noop").mode("overwrite").save()

    return query


if __name__ == "__main__":
    sys.exit(main())
