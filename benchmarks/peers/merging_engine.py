"""One contender of `spark_merge.py`: takes orders and answers them, a JSON line each way.

Runs with the Python whose PySpark all contenders share; `iceberg` and `parquet` need nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession

DAY = "event_ts >= TIMESTAMP '2026-01-15' AND {0}event_ts < TIMESTAMP '2026-01-16'"
ONE_DAY = f"t.{DAY.format('t.')}"
PARTITIONED = "PARTITIONED BY (days(event_ts))"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.memory": "3g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
}


class Engine:
    """A table of the source's rows, made anew for each run; which changes come in is the case.

    Args:
        spark: the session.
        folder: with `base`, `all` and `day` as Parquet, and room for tables.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.spark = spark
        self.folder = folder
        self.number = 0
        for name in ("base", "all", "day"):
            spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)

    def prepare(self, order: dict[str, Any]) -> None:
        """The table as it is before the statement."""
        self.number += 1
        self.table = f"bench.b.t{self.number}"
        self.spark.sql("CREATE NAMESPACE IF NOT EXISTS bench.b")
        self.spark.sql(
            f"CREATE TABLE {self.table} USING iceberg {PARTITIONED} TBLPROPERTIES "
            f"('format-version' = '2', 'write.merge.mode' = '{order['mode']}') "
            "AS SELECT * FROM base"
        )

    def run(self, order: dict[str, Any]) -> float:
        """Seconds of the statement."""
        on = "t.id = s.id" + (f" AND {ONE_DAY}" if order["changes"] == "day" else "")
        start = time.perf_counter()
        self.spark.sql(
            f"MERGE INTO {self.table} t USING {order['changes']} s ON {on} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        return time.perf_counter() - start

    def rows(self) -> DataFrame:
        """The table."""
        return self.spark.table(self.table)

    def check(self, _told: dict[str, Any]) -> list[Any]:
        """What the rows add up to."""
        sums = "count(*)", "sum(id)", "round(sum(amount), 2)", "sum(crc32(name))"
        return [str(value) for value in self.rows().selectExpr(*sums).first()]

    def drop(self, _told: dict[str, Any]) -> None:
        """Make room."""
        self.spark.sql(f"DROP TABLE {self.table} PURGE")


class Parquet(Engine):
    """Read, join, and write the rows anew: all of them, or those of the day."""

    def prepare(self, order: dict[str, Any]) -> None:
        """The folders of this run."""
        self.number += 1
        self.place = f"{self.folder}/parquet-{order['mode']}-{self.number}"
        self.spark.sql("SELECT *, date(event_ts) AS day FROM base").repartition("day").write.option(
            "compression", "zstd"
        ).partitionBy("day").parquet(f"{self.place}/before")

    def run(self, order: dict[str, Any]) -> float:
        """Seconds of a rewrite beside what is there."""
        changes = order["changes"]
        start = time.perf_counter()
        before = self.spark.read.parquet(f"{self.place}/before")
        if changes == "day":
            before = before.where("day = DATE '2026-01-15'")
        new = self.spark.table(changes).selectExpr("*", "date(event_ts) AS day")
        rows = before.join(new, "id", "left_anti").unionByName(new)
        rows.repartition("day").write.option("compression", "zstd").partitionBy("day").parquet(
            f"{self.place}/after"
        )
        return time.perf_counter() - start

    def rows(self) -> DataFrame:
        """What the table would be."""
        after = self.spark.read.parquet(f"{self.place}/after")
        before = self.spark.read.parquet(f"{self.place}/before")
        untouched = before.join(after.select("day").distinct(), "day", "left_anti")
        return untouched.unionByName(after)

    def drop(self, _told: dict[str, Any]) -> None:
        """Everything stays until the benchmark ends."""


def session(engine: str, folder: str, runtime: str) -> SparkSession:
    """Spark as users of the engine set it up."""
    if engine == "lakehouse":
        from lakehouse.spark import build_session  # noqa: PLC0415 - peers run without the package

        catalogs = {"bench": f"file://{folder}/lakehouse"}
        return build_session("spark_merge", config=SETTINGS, catalogs=catalogs)
    builder = SparkSession.builder.master("local[*]")
    catalog = "spark.sql.catalog.bench"
    theirs = {
        "spark.jars": runtime,
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": f"file://{folder}/iceberg",
    }
    for key, value in {**SETTINGS, **(theirs if engine == "iceberg" else {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=["lakehouse", "iceberg", "parquet"])
    parser.add_argument("folder")
    parser.add_argument("--runtime", default="")
    arguments = parser.parse_args()
    spark = session(arguments.engine, arguments.folder, arguments.runtime)
    engine = (Parquet if arguments.engine == "parquet" else Engine)(spark, arguments.folder)
    print(json.dumps(spark.version), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(getattr(engine, order["do"])(order)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
