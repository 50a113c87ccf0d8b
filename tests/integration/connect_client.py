"""A client of Spark Connect, in a process of its own: prints what it read as JSON.

Usage: connect_client.py WAREHOUSE.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings

import lakehouse as lh
from lakehouse.spark.spark_session import prepare_environment


def main(warehouse: str) -> dict[str, object]:
    prepare_environment(local=True)
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
    }
    local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.remote("local[1]")
    for key, value in {**settings, **local}.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            spark = builder.getOrCreate()
        except Exception:  # noqa: BLE001 - the test skips with this reason
            return {"unavailable": traceback.format_exc(limit=1)}
    try:
        return read(spark, lh.load_catalog(warehouse))
    finally:
        spark.stop()


def read(spark: object, lake: lh.Lakehouse) -> dict[str, object]:
    session = lh.spark.attach(spark, lake)
    events = lake.load_table("raw.events")
    first = events.snapshots()[0].snapshot_id

    class Kept:
        planned: list[int] = []  # noqa: RUF012

        def scan_planned(self, report):
            self.planned.append(report.plan.data_files.planned)

    lake.add_listener(Kept())
    found: dict[str, object] = {
        "remote": type(spark).__module__,
        "columns": session.table("raw.events").columns,
    }
    found["all"] = rows(session.table("raw.events"))
    found["one day"] = rows(
        lake.load_table("raw.events")
        .scan(where="day = 2 and amount > 15", select="amount")
        .to_spark(spark)
    )
    found["planned"] = list(Kept.planned)
    found["first"] = rows(session.table("raw.events", snapshot_id=first))
    session.table("raw.events").createOrReplaceTempView("events")
    session.table("raw.events", snapshot_id=first).createOrReplaceTempView("first")
    both = "events e JOIN first f ON e.id = f.id"
    found["sql"] = rows(spark.sql(f"SELECT e.day, count(*) n, '{{}}' FROM {both} GROUP BY 1"))
    found["snapshots"] = session.table("raw.events.snapshots").count()
    found["empty"] = rows(session.table("raw.empty"))
    found["positions"] = rows(session.table("raw.positions"))
    found["vectors"] = rows(session.table("raw.vectors"))
    found["nested"] = rows(session.table("raw.nested").where("spot.y = 6").select("spot.x"))
    try:
        session.table("raw.equality")
    except lh.LakehouseError as error:
        found["equality"] = f"{type(error).__name__}: {error}"
    return found


def rows(frame: object) -> list[list[object]]:
    return sorted(list(row) for row in frame.collect())


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])) + "\n")
