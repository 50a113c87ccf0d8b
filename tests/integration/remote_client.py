"""A client of a Connect server with PySpark alone: prints what it got as JSON.

Usage: remote_client.py URL.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

STATEMENTS = [
    "CREATE NAMESPACE lake.raw",
    "CREATE TABLE lake.raw.t (id BIGINT, x STRING) PARTITIONED BY (bucket(4, id))",
    "INSERT INTO lake.raw.t VALUES (1, 'a'), (2, 'b')",
    "MERGE INTO lake.raw.t t USING (SELECT 2 AS id, 'z' AS x UNION ALL SELECT 3, 'c') s"
    " ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "ALTER TABLE lake.raw.t ADD COLUMN y INT",
    "DELETE FROM lake.raw.t WHERE id = 1",
]


def main(url: str) -> dict[str, Any]:
    spark = SparkSession.builder.remote(url).getOrCreate()
    rows = lambda frame: [list(row) for row in frame.collect()]  # noqa: E731
    for statement in STATEMENTS:
        spark.sql(statement)
    views = []
    if spark.version >= "4.2":
        spark.sql("USE lake.raw")
        spark.sql("CREATE VIEW v (n COMMENT 'half') AS SELECT id FROM t")
        spark.sql("CREATE OR REPLACE VIEW v (n) AS SELECT id * 2 AS twice FROM t")
        other = SparkSession.builder.remote(url).create()
        views = [rows(one.sql("SELECT n FROM lake.raw.v ORDER BY n")) for one in (spark, other)]
        views.append(rows(spark.sql("SHOW VIEWS")))
        spark.sql("DROP VIEW v")
        views.append(rows(spark.sql("SHOW VIEWS")))
    before = rows(spark.table("lake.raw.t").orderBy("id"))
    first = rows(spark.table("lake.raw.t.history"))[0][1]
    spark.range(10, 12).selectExpr("id", "'w' x", "7 y").writeTo("lake.raw.t").append()
    try:
        spark.sql("SELECT nope FROM lake.raw.t").collect()
        error = ""
    except Exception as raised:  # noqa: BLE001 - what a user sees
        error = str(raised)
    return {
        "views": views,
        "before": before,
        "after": rows(spark.table("lake.raw.t").orderBy("id")),
        "first": rows(spark.sql(f"SELECT id, x FROM lake.raw.t VERSION AS OF {first} ORDER BY id")),
        "operations": [
            one for (one,) in rows(spark.sql("SELECT operation FROM lake.raw.t.snapshots"))
        ],
        "called": len(rows(spark.sql("CALL lake.system.ancestors_of(table => 'raw.t')"))),
        "error": error,
        "modules": [module for module in sys.modules if module.split(".")[0] == "lakehouse"],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])) + "\n")
