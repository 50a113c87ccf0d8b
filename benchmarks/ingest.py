"""Ingesting landing files beside plain Spark on the same files.

`python benchmarks/ingest.py [--rows N]`. Ours is everything between the landed files and the
published rows, quarantine and ledger: both passes, typing, drift, rejects, repeated events by key;
without the checks of Great Expectations. Plain Spark reads the files with the schema given and
writes Parquet partitioned by day.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark_support import Times, events, interleaved, report
from lakehouse.ingestion.ingest import index_landing, ingest_days
from lakehouse.ingestion.source import Column, EventTime, Source
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.ingestion.workplace import Workplace
from lakehouse.lake import load_catalog
from lakehouse.spark import build_session

TARGETS = {"json": 1.2, "csv": 2.0, "parquet": 2.5}
TYPES = {"bigint": "long", "timestamp": "timestamptz"}
FIRST_DAY, TODAY = date(2026, 1, 1), date(2026, 12, 31)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--formats", default="json,csv,parquet")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="ingest-"))
    spark = build_session("ingest")
    try:
        made = events(spark, arguments.rows, days=arguments.days, slices=arguments.files)
        rows = made.withColumn("amount", made.amount.cast("double"))
        cases = {
            name: compared(spark, rows, root, name, arguments.repeat)
            for name in arguments.formats.split(",")
        }
        targets = {name: TARGETS[name] for name in cases}
        met = report(
            "ingest",
            "Ingestion",
            cases,
            "lakehouse",
            targets,
            rows=arguments.rows,
            files=arguments.files,
            days=arguments.days,
        )
    finally:
        spark.stop()
        shutil.rmtree(root)
    return 0 if met else 1


def compared(
    spark: SparkSession, rows: DataFrame, root: Path, name: str, repeat: int
) -> dict[str, Times]:
    """Both ways to take the same files."""
    landing = root / name
    folder = landing / "events"
    writer = rows.write.option("header", "true").option(
        "timestampFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
    )
    writer.format(name).save(str(folder))
    columns = tuple(
        Column(field.name, TYPES.get(field.dataType.simpleString(), field.dataType.simpleString()))
        for field in rows.schema
        if field.name != "event_ts"
    )
    source = Source(
        name="events",
        event_time=EventTime("event_ts"),
        first_day=FIRST_DAY,
        bucket="user_id",
        natural_key=("id",),
        columns=columns,
    )
    numbers = itertools.count()

    def ours() -> None:
        lake = load_catalog(f"file://{root}/{name}-{next(numbers)}")
        work = Workplace(lake, lambda: spark, str(landing), TODAY, RunStamp("run", "raw/events"))
        days = index_landing(work, source).days
        taken = ingest_days(work, source, days, "increment", lambda _snapshot, _days: ())
        assert taken.counts.rows == taken.counts.lines > 0

    def theirs() -> None:
        read = (
            spark.read.schema(rows.schema).option("header", "true").format(name).load(str(folder))
        )
        read.selectExpr("*", "date(event_ts) AS day").write.mode("overwrite").option(
            "compression", "zstd"
        ).partitionBy("day").parquet(str(root / "plain"))

    return interleaved({"lakehouse": ours, "spark.read + partitionBy": theirs}, repeat)


if __name__ == "__main__":
    sys.exit(main())
