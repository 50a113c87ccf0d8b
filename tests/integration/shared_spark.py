"""A code location whose runs share a Spark, and what they do with it, in processes of their own.

Usage: `shared_spark.py`, then lines of `FUNCTION FILE [ARGUMENT]`: each is a process that this one
starts, as Dagster's code server does. What the function gives is in FILE as JSON.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

import lakehouse as lh
from lakehouse.orchestration import DerivedTable, LakehouseResource, LakehouseSpark
from lakehouse.orchestration.asset_results import explained
from lakehouse.spark.catalog.registration import register
from lakehouse.spark.warm_session import shared_process

CONFIG = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}


def resource(**config: str) -> LakehouseSpark:
    """Spark as a project's definitions have it."""
    return LakehouseSpark(master="local[2]", spark_config={**CONFIG, **config})


def leak(spark: Any) -> dict[str, object]:
    """Leave behind whatever a session can."""
    spark.range(7).createOrReplaceTempView("left_view")
    spark.range(7).createOrReplaceGlobalTempView("left_global")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.udf.register("left_function", lambda value: value)
    spark.sql("CREATE TABLE left_table AS SELECT 1 AS n")
    spark.sql("SELECT * FROM range(1000)").cache().count()
    broadcast = spark.sparkContext.broadcast(b"left")
    return {
        "files": broadcast._path,
        "kept": kept(spark),
        "zone": spark.conf.get("spark.sql.session.timeZone"),
    }


def look(spark: Any) -> dict[str, object]:
    """What a run finds of others."""
    return {
        "tables": [table.name for table in spark.catalog.listTables()],
        "global": [table.name for table in spark.catalog.listTables("global_temp")],
        "function": spark.catalog.functionExists("left_function"),
        "zone": spark.conf.get("spark.sql.session.timeZone"),
        "kept": kept(spark),
        "rows": spark.sql("SELECT count(*) FROM range(1000)").first()[0],
    }


def kept(spark: Any) -> int:
    """How many frames are kept in the memory of the JVM, whoever's they are."""
    return int(spark.sparkContext._jsc.getPersistentRDDs().size())


def late(_: Any) -> dict[str, object]:
    """Have imported more of the project than other runs, when Spark is first asked for."""
    return {}


def busy(spark: Any) -> dict[str, object]:
    """Both cores, for hours."""
    spark.range(10**15).selectExpr("sum(id % 7)").collect()
    return {}


def jobs(spark: Any) -> dict[str, object]:
    """Jobs under way, of whatever run."""
    return {"active": list(spark.sparkContext.statusTracker().getActiveJobsIds())}


def branches(spark: Any, argument: str) -> dict[str, object]:
    """Append to a branch by SQL and by a frame, beside another run that does so to its own."""
    warehouse, branch, number = argument.split()
    lake = lh.load_catalog(warehouse).on_branch(branch)
    register(spark, lake, "lake")
    table = lake.load_table("raw.events")
    for _ in range(3):
        spark.sql(f"INSERT INTO lake.raw.events VALUES ({number})")
        frame = spark.createDataFrame(pa.table({"id": [int(number)]}))
        table.append(frame)
    assert table.refresh().scan().to_spark(spark).count() == 7
    read = spark.sql("SELECT id, count(*) FROM lake.raw.events GROUP BY 1 ORDER BY 1").collect()
    return {"rows": [list(row) for row in read]}


def run(name: str, file: str, argument: str | None) -> None:
    """A run: its session, what it does, and what came out."""
    if name in ("bereaved", "computed"):
        function = globals()[name]
        done = function() if argument is None else function(argument)
    elif name == "other":
        used = resource(**{"spark.sql.shuffle.partitions": "3"})
        done = {"partitions": used.spark_session.conf.get("spark.sql.shuffle.partitions")}
        done["process"] = shared_process(used.spark_session)
    else:
        if name == "late":
            importlib.import_module("benchmarks")
        used = resource()
        Path(f"{file}.began").touch()
        function = globals()[name]
        spark = used.spark_session
        done = function(spark) if argument is None else function(spark, argument)
        done["process"] = shared_process(spark)
        done["used"] = used.used()["lakehouse/spark"].value
    Path(f"{file}.part").write_text(json.dumps(done))
    Path(f"{file}.part").rename(file)


def bereaved() -> dict[str, object]:
    """The JVM is killed while the run uses it; the run tries again, as a step's retry does."""
    used = resource()
    before = used.spark_session
    before.range(5).createOrReplaceTempView("of_the_first_attempt")
    process = shared_process(before)
    os.kill(process, signal.SIGKILL)
    time.sleep(0.5)
    try:
        with explained():
            before.range(5).count()
    except lh.LakehouseError as error:
        told = {"type": type(error).__name__, "retryable": error.retryable, "text": str(error)}
    again = used.spark_session
    rows = again.range(5).mapInArrow(lambda batches: batches, "id long").count()
    views = [table.name for table in again.catalog.listTables()]
    return {
        **told,
        "rows": rows,
        "views": views,
        "before": process,
        "process": shared_process(again),
    }


def computed(warehouse: str) -> dict[str, object]:
    """A derived table; the first attempt loses its Spark while it computes."""
    used, attempts = resource(), []

    def counts(frames: Any) -> Any:
        frame = frames["raw.events"].groupBy("id").count()
        attempts.append(shared_process(used.spark_session))
        if len(attempts) == 1:
            os.kill(attempts[0], signal.SIGKILL)
        return frame

    table = DerivedTable(
        name="marts.counts", inputs=("raw.events",), transform=counts, code_version="1"
    )
    result = dg.materialize(
        [table.build(None)],
        resources={"lakehouse": LakehouseResource(catalog=warehouse), "spark": used},
        raise_on_error=False,
    )
    failed = [
        event.event_specific_data.error.to_string()
        for event in result.all_events
        if event.event_type_value == "STEP_UP_FOR_RETRY"
    ]
    (made,) = result.asset_materializations_for_node(table.op_name)
    return {
        "attempts": attempts,
        "failed": failed,
        "used": made.metadata["lakehouse/spark"].value,
        "success": result.success,
    }


def main() -> None:
    context = multiprocessing.get_context("spawn")
    started = []
    for line in sys.stdin:
        name, file, argument = [*line.rstrip("\n").split(" ", 2), None][:3]
        process = context.Process(target=run, args=(name, file, argument))
        process.start()
        started.append(process)
        sys.stdout.write(f"{process.pid}\n")
        sys.stdout.flush()
    for process in started:
        process.join()


if __name__ == "__main__":
    main()
