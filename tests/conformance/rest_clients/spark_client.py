"""Spark with Iceberg's Java runtime, in one process: `client url jar`; prints what works."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import SparkSession

URL, JAR = sys.argv[2], sys.argv[3]


def main() -> None:
    settings = {
        "spark.jars": JAR,
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": URL,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()

    def ids(name: str) -> list[int]:
        return [
            one.id for one in spark.sql(f"SELECT id FROM lake.spark.{name} ORDER BY id").collect()
        ]

    def expect(found: Any, wanted: Any) -> None:
        if found != wanted:
            raise AssertionError(f"{found!r}, not {wanted!r}")

    def create() -> None:
        spark.sql("CREATE NAMESPACE lake.spark")
        spark.sql(
            "CREATE TABLE lake.spark.t (id BIGINT, name STRING) USING iceberg "
            "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
        )

    def evolve() -> None:
        spark.sql("ALTER TABLE lake.spark.t ADD COLUMN size BIGINT")
        spark.sql("ALTER TABLE lake.spark.t ADD PARTITION FIELD bucket(4, id)")
        spark.sql("INSERT INTO lake.spark.t VALUES (4, 'd', 7)")
        expect(spark.sql("SELECT size FROM lake.spark.t WHERE id = 4").collect()[0].size, 7)

    def delete() -> None:
        spark.sql("DELETE FROM lake.spark.t WHERE id = 1")
        expect(ids("t"), [2, 3, 4])

    def concurrent() -> None:
        spark.sql("CREATE TABLE lake.spark.many (id BIGINT) USING iceberg")
        insert = "INSERT INTO lake.spark.many VALUES ({})"
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: spark.sql(insert.format(n)), range(8)))
        expect(ids("many"), list(range(8)))

    steps: dict[str, Callable[[], Any]] = {
        "create": create,
        "write": lambda: spark.sql("INSERT INTO lake.spark.t VALUES (1,'a'), (2,'b'), (3,'c')"),
        "read": lambda: expect(ids("t"), [1, 2, 3]),
        "evolve": evolve,
        "delete": delete,
        "concurrent commits": concurrent,
    }
    iceberg = JAR.rpartition("-")[2].removesuffix(".jar")
    told = {"version": f"{spark.version}, {iceberg}"}
    for operation, step in steps.items():
        try:
            step()
        except Exception as error:  # noqa: BLE001 - each is told
            told[operation] = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
        else:
            told[operation] = "works"
    sys.stdout.write(json.dumps(told) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
