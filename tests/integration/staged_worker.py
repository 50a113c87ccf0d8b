"""A Spark session that is making tables when it is killed.

python staged_worker.py <catalogs> <folder>, the catalogs as JSON, name: [uri, warehouse]. Each
statement has written the files of some of its tasks when it leaves a mark in the folder.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from threading import Thread

from lakehouse.lake import load_catalog
from lakehouse.spark import attach
from lakehouse.spark.spark_session import build_session

STATEMENTS = {
    "created": "CREATE TABLE {lake}.raw.created AS",
    "made": "CREATE OR REPLACE TABLE {lake}.raw.made AS",
    "replaced": "REPLACE TABLE {lake}.raw.replaced AS",
    "remade": "CREATE OR REPLACE TABLE {lake}.raw.remade PARTITIONED BY (word) AS",
}


def hold(number: int, mark: str) -> int:
    """The number; with the last ones nothing goes on any more."""
    if number >= 30:
        Path(mark).touch()
        time.sleep(600)
    return number


def main() -> None:
    catalogs, folder = json.loads(sys.argv[1]), sys.argv[2]
    spark = build_session("staged", master="local[12]", config={"spark.ui.enabled": "false"})
    spark.udf.register("hold", hold, "bigint")
    for lake, (uri, warehouse) in catalogs.items():
        attach(spark, load_catalog(uri, warehouse=warehouse), name=lake)
        for name, text in STATEMENTS.items():
            mark = f"{folder}/{lake}-{name}"
            rows = f"SELECT hold(id, '{mark}') AS n, 'a' AS word FROM range(0, 40, 1, 4)"
            Thread(target=spark.sql, args=(f"{text.format(lake=lake)} {rows}",)).start()


if __name__ == "__main__":
    main()
