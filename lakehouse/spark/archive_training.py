"""`python -m lakehouse.spark.archive_training OPTIONS FOLDER`: a session that loads classes.

It does a little of what pipelines do, so that their classes are there when the JVM ends and writes
them down, and waits for that end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakehouse.spark.spark_session import build_session

_ROWS = 1000
_END_TIMEOUT_S = 300


def train(options: str, folder: str) -> None:
    """Start a session with these options of Java, use it below the folder, and end it."""
    spark = build_session(
        "archive",
        master="local[2]",
        config={"spark.driver.defaultJavaOptions": options},
        catalogs={"lake": f"{folder}/warehouse"},
    )
    use(spark, folder)
    gateway: Any = SparkContext._gateway  # the process is kept nowhere else
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_TIMEOUT_S)


def use(spark: SparkSession, folder: str) -> None:
    """Write, read, join, sort, aggregate and merge; text, JSON and Parquet; frames of Python."""
    statements = [
        "CREATE NAMESPACE lake.n",
        "CREATE TABLE lake.n.t (id BIGINT, name STRING, at TIMESTAMP) PARTITIONED BY (days(at))",
        "INSERT INTO lake.n.t SELECT id, concat('n', id % 7), timestamp_seconds(id * 1000) "
        f"FROM range({_ROWS})",
        "MERGE INTO lake.n.t t USING (SELECT id, name FROM lake.n.t WHERE id < 9) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
        "DELETE FROM lake.n.t WHERE id = 3",
    ]
    for statement in statements:
        spark.sql(statement)
    spark.sql(
        "SELECT a.name, count(*), count(DISTINCT struct(a.id, a.at)), max(b.at), avg(a.id) "
        "FROM lake.n.t a JOIN lake.n.t b ON a.id = b.id WHERE a.at > TIMESTAMP '1970-01-02' "
        "GROUP BY a.name ORDER BY 2"
    ).collect()
    frame = spark.table("lake.n.t").repartition(2).sort("id").persist()
    frame.write.partitionBy("name").parquet(f"{folder}/parquet")
    frame.write.json(f"{folder}/json")
    spark.read.parquet(f"{folder}/parquet").where("id > 5").toArrow()
    spark.read.json(f"{folder}/json").groupBy("name").count().collect()
    spark.read.text(f"{folder}/json").mapInArrow(_same, "value string").toArrow()
    frame.unpersist()


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


if __name__ == "__main__":
    train(*sys.argv[1:])
