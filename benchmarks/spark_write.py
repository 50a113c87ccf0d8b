"""Spark appends a DataFrame with us, and with its own Parquet writer, in one run.

`python benchmarks/spark_write.py [--rows N]`.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.spark_support import (
    events,
    iceberg_options,
    iceberg_times,
    interleaved,
    keep_iceberg,
    report,
)
from lakehouse.lake import load_catalog
from lakehouse.spark import build_session

TARGETS = {"unpartitioned": 1.1, "by day and bucket": 1.0}
NATIVE_BUCKET = "pmod(hash(-1693959553, user_id) & 2147483647, 4)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--repeat", type=int, default=3)
    iceberg_options(parser)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="spark-write-"))
    spark = build_session("spark_write")
    try:
        events(spark, arguments.rows, days=arguments.days, slices=8).write.parquet(
            str(root / "source")
        )
        source = spark.read.parquet(str(root / "source"))
        lake = load_catalog(f"file://{root}/warehouse")
        numbers = itertools.count()

        def ours(*partition_by: str) -> None:
            lake.create_table(
                f"b.t{next(numbers)}", source.schema, partition_by=partition_by
            ).append(source)

        def theirs() -> None:
            source.write.mode("overwrite").option("compression", "zstd").parquet(
                str(root / "plain")
            )

        def theirs_partitioned() -> None:
            keyed = source.selectExpr("*", "date(event_ts) AS day", f"{NATIVE_BUCKET} AS bucket")
            shuffled = keyed.repartition("day", "bucket")
            shuffled.write.mode("overwrite").option("compression", "zstd").partitionBy(
                "day", "bucket"
            ).parquet(str(root / "parts"))

        cases = {
            "unpartitioned": interleaved(
                {"lakehouse": ours, "df.write.parquet": theirs}, arguments.repeat
            ),
            "by day and bucket": interleaved(
                {
                    "lakehouse": lambda: ours("day(event_ts)", "bucket(4, user_id)"),
                    "repartition + partitionBy": theirs_partitioned,
                },
                arguments.repeat,
            ),
        }
        met = report(
            "spark_write",
            "Spark write",
            cases,
            "lakehouse",
            TARGETS,
            rows=arguments.rows,
            days=arguments.days,
        )
        spark.stop()
        where = (f"--warehouse={root}/iceberg", f"--source={root}/source")
        keep_iceberg("spark_write", iceberg_times(arguments, "write", *where))
        return 0 if met else 1
    finally:
        spark.stop()
        shutil.rmtree(root)


if __name__ == "__main__":
    raise SystemExit(main())
