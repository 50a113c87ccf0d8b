"""A stream of many small batches into a table, beside other sinks of Spark on the same files.

    python -m benchmarks.streams [--batches 500] [--rows 1000] [--sinks NAME ...]
    python -m benchmarks.streams --iceberg-runtime iceberg-spark-runtime-4.1_2.13-1.11.0.jar
    python -m benchmarks.streams --landings 50

Each landing file is a batch. What counts is the files that are left, their bytes, and how long a
batch takes; ours also with small files left as they are. Beside them Spark's Parquet sink and, on
the Spark that it has a runtime for, Iceberg's. Results go to benchmarks/results/streams.json, sink
by sink, with the load of the machine. With `--landings` files come one by one to a stream that
waits for them, and a materialized view of the table is refreshed by what changed as soon as the
rows of a file are there: how long it takes from the file's landing to its rows, and to the view.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

import lakehouse as lh
from lakehouse.orchestration import MaterializedView
from lakehouse.spark import build_session

RESULTS = Path(__file__).parent / "results" / "streams.json"
COLUMNS = "id long, at timestamp, amount double"
OURS = {"ours": {}, "ours, not joined": {"tail-files": "0"}}
SINKS = (*OURS, "parquet", "iceberg")


def landed(folder: Path, batches: int, rows: int) -> None:
    """One file a batch."""
    folder.mkdir()
    for batch in range(batches):
        lines = (
            json.dumps({"id": number, "at": "2026-01-01T00:00:00Z", "amount": number / 7})
            for number in range(batch * rows, (batch + 1) * rows)
        )
        (folder / f"{batch:05}.json").write_text("\n".join(lines))


def streamed(writer: Any, table: str | None) -> list[int]:
    """Run a stream to its end; milliseconds of each batch."""
    query = writer.toTable(table) if table else writer.start()
    query.awaitTermination()
    return [batch["durationMs"]["triggerExecution"] for batch in query.recentProgress]


def of_iceberg(folder: Path, runtime: str) -> dict[str, str]:
    """Settings of a session whose catalog `iceberg` is Iceberg's own; none without its runtime."""
    if not runtime:
        return {}
    catalog = "spark.sql.catalog.iceberg"
    return {
        "spark.jars": runtime,
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": str(folder / "iceberg"),
    }


def main() -> None:
    """Stream the same files into each sink, print and keep what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--sinks", nargs="+", choices=SINKS)
    parser.add_argument("--iceberg-runtime", default="", help="jar of iceberg-spark-runtime")
    parser.add_argument("--landings", type=int, default=0)
    given = parser.parse_args()
    if given.landings:
        end_to_end(given.landings, given.rows)
        return
    sinks = given.sinks or [sink for sink in SINKS if sink != "iceberg" or given.iceberg_runtime]
    if "iceberg" in sinks and not given.iceberg_runtime:
        parser.error("beside Iceberg: give its --iceberg-runtime")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        landed(folder / "landing", given.batches, given.rows)
        lake = lh.load_catalog(f"file://{folder}/warehouse")
        lake.create_namespace("raw")
        progress = {"spark.sql.streaming.numRecentProgressUpdates": str(given.batches)}
        spark = build_session(
            "streams",
            master="local[2]",
            config=progress | of_iceberg(folder, given.iceberg_runtime),
            catalogs={"lake": lake},
        )
        for sink in sinks:
            reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
            writer = reader.json(str(folder / "landing")).writeStream.trigger(availableNow=True)
            writer = writer.option("checkpointLocation", str(folder / f"checkpoint {sink}"))
            if sink == "parquet":
                took = streamed(writer.format("parquet").option("path", str(folder / sink)), None)
                sizes = [path.stat().st_size for path in (folder / sink).glob("*.parquet")]
                rows = spark.read.parquet(str(folder / sink)).count()
            elif sink == "iceberg":
                spark.sql(f"CREATE TABLE iceberg.raw.landed ({COLUMNS}) USING iceberg")
                took = streamed(writer.format("iceberg"), "iceberg.raw.landed")
                files = spark.sql("SELECT file_size_in_bytes FROM iceberg.raw.landed.files")
                sizes = [size for (size,) in files.collect()]
                rows = spark.table("iceberg.raw.landed").count()
            else:
                table = f"raw.t{sinks.index(sink)}"
                took = streamed(writer.options(**OURS[sink]), f"lake.{table}")
                handle = lake.load_table(table)
                sizes = [file.file_size_in_bytes for file in handle.scan().plan().files]
                rows = handle.scan().count()
            if rows != given.batches * given.rows:
                raise AssertionError(f"{sink}: {rows} rows of {given.batches * given.rows}")
            result = {
                "spark": pyspark.__version__,
                "batches": given.batches,
                "rows": given.rows,
                "files": len(sizes),
                "bytes": sum(sizes),
                "median_ms": statistics.median(took),
                "p99_ms": sorted(took)[int(0.99 * len(took))],
                "load": os.getloadavg()[0],
            }
            sys.stdout.write(f"{sink}: {result}\n")
            sys.stdout.flush()
            keep(sink, result)
        spark.stop()


def end_to_end(landings: int, rows: int) -> None:
    """From a file's landing to its rows in a table, and to a view of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        landed(folder / "waiting", landings + 1, rows)
        (folder / "landing").mkdir()
        lake = lh.load_catalog(f"file://{folder}/warehouse")
        lake.create_table(
            "raw.landed",
            pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC"), "amount": pa.float64()}),
        )
        sql = (
            "SELECT to_date(at) AS day, count(*) AS n, max(id) AS last FROM raw.landed "
            "GROUP BY to_date(at)"
        )
        view = MaterializedView.create(lake, "marts.counts", sql, refresh="incremental")
        spark = build_session("streams", master="local[2]", catalogs={"lake": lake})
        query = (
            spark.readStream.schema(COLUMNS)
            .json(str(folder / "landing"))
            .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
            .toTable("lake.raw.landed")
        )
        to_rows, to_view = [], []
        for number, path in enumerate(sorted((folder / "waiting").iterdir()), 1):
            path.rename(folder / "landing" / path.name)
            began = time.monotonic()
            while lake.load_table("raw.landed").scan().count() < number * rows:
                time.sleep(0.005)
            to_rows.append(time.monotonic() - began)
            view.refresh()
            to_view.append(time.monotonic() - began)
        query.stop()
        shown = lake.load_table(view.storage).scan().to_arrow()
        if sum(shown["n"].to_pylist()) != (landings + 1) * rows:
            raise AssertionError("the view has not the rows that landed")
        spark.stop()
    result: dict[str, Any] = {"landings": landings, "rows": rows, "load": os.getloadavg()[0]}
    for what, seconds in (("rows", to_rows[1:]), ("view", to_view[1:])):  # without the first
        result[f"to_{what}_median_s"] = round(statistics.median(seconds), 3)
        result[f"to_{what}_p99_s"] = round(sorted(seconds)[int(0.99 * len(seconds))], 3)
    sys.stdout.write(f"landing to {result}\n")
    keep("landing to view", result)


def keep(sink: str, result: dict[str, Any]) -> None:
    """Write the result beside those of other sinks."""
    known = json.loads(RESULTS.read_text())["sinks"] if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({"sinks": {**known, sink: result}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
