"""What metadata knows of a whole table, Spark need not read: the answers are those of a read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.integration.spark_support import configured, lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark

SETTING = "spark.sql.iceberg.aggregate-push-down.enabled"
COLUMNS = (
    "id BIGINT, i INT, s STRING, f DOUBLE, b BOOLEAN, day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, "
    "p DECIMAL(9, 2), x BINARY, st STRUCT<a: INT>, arr ARRAY<INT>, empty INT"
)
ROWS = (
    "SELECT id, CAST(-id AS INT), concat('s', id), id / 3D, id % 2 = 0, "
    "date_add(DATE '1969-12-20', CAST(id AS INT)), timestamp_micros(id * 86400000001 - 3), "
    "CAST(timestamp_micros(id * 7) AS TIMESTAMP_NTZ), CAST(id / 4 AS DECIMAL(9, 2)), "
    "CAST(CAST(id AS STRING) AS BINARY), named_struct('a', CAST(id AS INT)), array(1), NULL "
    "FROM range({})"
)
TOLD = [
    "count(*)",
    "count(1), count(id), count(empty)",
    "min(id), max(id), min(i), max(i)",
    "min(day), max(day), min(at), max(at), min(wall), max(wall)",
    "min(empty), max(empty), count(s), count(x), count(p), count(f)",
    "max(id) - min(id) + count(*)",
]
READ = [
    "min(s), max(x)",
    "min(f), max(f)",
    "count(DISTINCT id)",
    "count(*) FILTER (WHERE id > 3)",
    "min(id + 1)",
    "sum(id)",
    "min(st.a), count(st), count(arr)",
    "min(_pos), count(*)",
]


@pytest.fixture
def compared(spark, session):
    """Runs a query with and without the answers of metadata, whose rows must be the same."""

    def run(text):
        rows = []
        for asked in ("false", "true"):
            with configured(spark, {SETTING: asked}):
                frame = spark.sql(text)
                rows.append(sorted(map(repr, frame.collect())))
                plan = frame._jdf.queryExecution().executedPlan().toString()
            told = "BatchScan" not in plan and "MicroBatch" not in plan
            assert asked == "true" or not told, text
        assert rows[0] == rows[1], text
        return told

    return run


@pytest.fixture
def table(spark, session, lake):
    spark.sql("CREATE NAMESPACE lake.raw")
    spark.sql(
        f"CREATE TABLE lake.raw.t ({COLUMNS}) PARTITIONED BY (bucket(2, id)) TBLPROPERTIES "
        "('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    spark.sql(f"INSERT INTO lake.raw.t {ROWS.format('3, 40, 4')}")
    spark.sql(f"INSERT INTO lake.raw.t {ROWS.format('1, 20, 6')}")
    spark.sql("INSERT INTO lake.raw.t (id, f) VALUES (NULL, double('NaN'))")
    return lake.load_table("raw.t")


def test_counts_and_extremes_are_read_from_metadata(spark, compared, table):
    for zone in ("UTC", "America/New_York"):
        with configured(spark, {"spark.sql.session.timeZone": zone}):
            assert all(compared(f"SELECT {one} FROM lake.raw.t") for one in TOLD)


def test_what_metadata_does_not_know_is_read(compared, table):
    assert not any(compared(f"SELECT {one} FROM lake.raw.t") for one in READ)
    assert not compared("SELECT count(*) FROM lake.raw.t WHERE id > 3")
    assert not compared("SELECT b, max(id) FROM lake.raw.t GROUP BY b")
    assert not compared("SELECT max(id) FROM (SELECT * FROM lake.raw.t ORDER BY i LIMIT 2)")
    assert not compared("SELECT count(*) FROM lake.raw.t TABLESAMPLE (50 PERCENT) REPEATABLE (4)")


def test_other_versions_of_the_table(spark, compared, table):
    first = table.snapshots()[0].snapshot_id
    table.create_branch("audit", first)
    spark.sql("INSERT INTO lake.raw.t.branch_audit (id) VALUES (1000)")
    for source in (f"lake.raw.t VERSION AS OF {first}", "lake.raw.t.branch_audit"):
        assert compared(f"SELECT count(*), max(id), min(at) FROM {source}"), source
    assert spark.table("lake.raw.t.files").count() == len(table.scan().plan().files)
    spark.sql("CREATE TABLE lake.raw.none (id INT)")
    assert compared("SELECT count(*), count(id), min(id) FROM lake.raw.none")


@pytest.mark.parametrize("version", ["2", "3"])
def test_deleted_rows_are_not_counted(spark, compared, table, version):
    spark.sql(
        f"CREATE TABLE lake.raw.d (id INT, k INT) TBLPROPERTIES ('format-version' = '{version}', "
        "'write.delete.mode' = 'merge-on-read')"
    )
    spark.sql("INSERT INTO lake.raw.d SELECT CAST(id AS INT), 1 FROM range(0, 10, 1, 2)")
    spark.sql("DELETE FROM lake.raw.d WHERE id IN (0, 4, 9)")
    assert spark.table("lake.raw.d").count() == 7
    assert compared("SELECT count(*) FROM lake.raw.d") == (version == "3")
    assert not compared("SELECT count(*), max(id) FROM lake.raw.d")
    assert not compared("SELECT count(id) FROM lake.raw.d")


def test_columns_that_changed(spark, compared, table):
    spark.sql("ALTER TABLE lake.raw.t ALTER COLUMN i TYPE BIGINT")
    spark.sql("ALTER TABLE lake.raw.t ADD COLUMN late INT")
    spark.sql("ALTER TABLE lake.raw.t RENAME COLUMN day TO date")
    spark.sql("INSERT INTO lake.raw.t (id, i, late) VALUES (1, 5000000000, 7)")
    assert compared("SELECT min(i), max(i), min(date), count(date) FROM lake.raw.t")
    assert not compared("SELECT max(late) FROM lake.raw.t")
    assert not compared("SELECT count(late) FROM lake.raw.t")


def test_columns_without_metrics(spark, compared, lake):
    table = lake.create_table(
        "raw.bare",
        pa.schema({"a": pa.int64(), "b": pa.int64()}),
        properties={"write.metadata.metrics.column.b": "counts"},
    )
    table.append(pa.table({"a": [1, 2], "b": [3, None]}))
    assert compared("SELECT max(a), count(b) FROM lake.raw.bare")
    assert not compared("SELECT max(b) FROM lake.raw.bare")
