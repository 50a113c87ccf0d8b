"""Each kind of statement once, on the PySpark of this Python: `python .ci/spark_smoke.py`."""

from __future__ import annotations

import sys
import tempfile

import lakehouse as lh

TABLE = "lake.raw.t"


def main() -> int:
    """Run them; an answer that is not the expected one ends the process."""
    config = {
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with tempfile.TemporaryDirectory() as folder:
        catalogs = {"lake": f"file://{folder}/warehouse"}
        spark = lh.spark.build_session("smoke", master="local[2]", config=config, catalogs=catalogs)

        def rows(text: str) -> list[tuple[object, ...]]:
            return sorted(tuple(row) for row in spark.sql(text).collect())

        def expect(found: object, expected: object) -> None:
            if found != expected:
                raise SystemExit(f"Spark {spark.version}: {found}, not {expected}")

        rows("CREATE NAMESPACE lake.raw")
        rows(f"CREATE TABLE {TABLE} (id BIGINT, day DATE, name STRING) PARTITIONED BY (day) "
             "TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')")  # fmt: skip
        rows(f"INSERT INTO {TABLE} SELECT id, date_add(DATE '2026-06-01', CAST(id % 2 AS INT)), "
             "concat('n', id) FROM range(4)")  # fmt: skip
        first = rows(f"SELECT snapshot_id FROM {TABLE}.snapshots")[0][0]
        rows(f"MERGE INTO {TABLE} t USING (SELECT id, 'm' AS name FROM range(3, 5)) s "
             "ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name "
             "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)")  # fmt: skip
        rows(f"UPDATE {TABLE} SET name = upper(name) WHERE id = 0")
        rows(f"DELETE FROM {TABLE} WHERE id = 1")
        now = f"SELECT id, name FROM {TABLE}"
        expect(rows(now), [(0, "N0"), (2, "n2"), (3, "m"), (4, "m")])
        expect(rows(f"SELECT count(*) FROM {TABLE} VERSION AS OF {first}"), [(4,)])
        found = {tuple(one[0]) for one in rows(f"SELECT _partition FROM {TABLE} WHERE id = 3")}
        expect(len(found), 1)
        rows("CALL lake.system.rewrite_data_files(table => 'raw.t', "
             "options => map('rewrite-all', 'true'))")  # fmt: skip
        expect(rows(now), [(0, "N0"), (2, "n2"), (3, "m"), (4, "m")])
        rows(f"CACHE TABLE {TABLE}")
        rows(f"CALL lake.system.rollback_to_snapshot('raw.t', {first})")
        expect(rows(now), [(0, "n0"), (1, "n1"), (2, "n2"), (3, "n3")])
        spark.range(4, 6).selectExpr("id", "'s' AS name").write.json(f"{folder}/landing")
        streamed = spark.readStream.schema("id long, name string").json(f"{folder}/landing")
        for mode, frame in {
            "append": streamed,
            "complete": streamed.groupBy("name").agg({"id": "max"}).toDF("name", "id"),
        }.items():
            writer = frame.writeStream.outputMode(mode).trigger(availableNow=True)
            query = writer.option("checkpointLocation", f"{folder}/{mode}").toTable(TABLE)
            query.awaitTermination()
            expect(sum(one[1] == "s" for one in rows(now)), 2 if mode == "append" else 1)
        changes = spark.readStream.option("maxFilesPerTrigger", 1).table(f"{TABLE}.changes")
        writer = changes.writeStream.trigger(availableNow=True)
        query = writer.option("checkpointLocation", f"{folder}/changes").toTable("lake.raw.c")
        query.awaitTermination()
        signs = "sum(CASE _change_type WHEN 'INSERT' THEN 1 ELSE -1 END)"
        expect(rows(f"SELECT {signs} FROM lake.raw.c"), rows(f"SELECT count(*) FROM {TABLE}"))
        sys.stdout.write(f"Spark {spark.version}: statements do what they should\n")
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
