"""Joins by the partitioning of tables need no shuffle, and give the rows that a shuffle gives."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, UUIDType

from lakehouse.spec.types.arrow_types import schema_to_arrow
from tests.integration.spark_support import configured, lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark

SETTING = "spark.sql.iceberg.planning.preserve-data-grouping"
VALUES = {
    "BIGINT": "id",
    "INT": "CAST(id AS INT)",
    "STRING": "concat('k', id)",
    "DATE": "date_add(DATE '2026-06-01', CAST(id AS INT))",
    "TIMESTAMP": "timestamp_seconds(1780000000 + id * 9000)",
    "TIMESTAMP_NTZ": "CAST(timestamp_seconds(1780000000 + id * 9000) AS TIMESTAMP_NTZ)",
    "DECIMAL(9, 2)": "CAST(id / 4 AS DECIMAL(9, 2))",
    "BINARY": "CAST(concat('k', id) AS BINARY)",
    "BOOLEAN": "id % 2 = 0",
}
"""By type of the key: how it is made of a number."""
TERMS = [
    *(("bucket(4, k)", kind) for kind in VALUES if kind not in ("BOOLEAN", "INT")),
    ("k", "STRING"),
    ("k", "BOOLEAN"),
    ("years(k)", "TIMESTAMP_NTZ"),
    ("days(k)", "DATE"),
    ("days(k)", "TIMESTAMP"),
    ("hours(k)", "TIMESTAMP"),
]


@pytest.fixture
def sql(spark, session):
    asked = {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.leafNodeDefaultParallelism": "1",
    }
    with configured(spark, asked):
        spark.sql("CREATE NAMESPACE lake.raw")
        yield spark.sql
        spark.conf.unset(SETTING)


def filled(sql, name, kind, terms, ids):
    """A table with a key made of numbers, in two commits, and a row without a key."""
    sql(
        f"CREATE TABLE lake.raw.{name} (k {kind}, {name} BIGINT) PARTITIONED BY ({terms}) "
        "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    sql(f"INSERT INTO lake.raw.{name} SELECT {VALUES[kind]}, id FROM range({ids})")
    sql(f"INSERT INTO lake.raw.{name} VALUES (NULL, -1)")


def shuffles(frame):
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return sum("Exchange hashpartitioning" in line for line in plan.splitlines())


def compared(spark, text):
    """Rows with and without grouping, which must be the same; shuffles with and without."""
    found = []
    for asked in ("true", "false"):
        spark.conf.set(SETTING, asked)
        frame = spark.sql(text)
        found.append((sorted(map(repr, frame.collect())), shuffles(frame)))
    assert found[0][0] == found[1][0], text
    assert found[0][0], text
    return found[0][1], found[1][1]


@pytest.mark.parametrize(("terms", "kind"), TERMS)
def test_tables_of_one_partitioning_join_without_a_shuffle(spark, sql, terms, kind):
    filled(sql, "a", kind, terms, "0, 40, 1")
    filled(sql, "b", kind, terms, "20, 60, 2")
    sql("DELETE FROM lake.raw.a WHERE a % 5 = 0")
    text = "SELECT * FROM lake.raw.a FULL JOIN lake.raw.b ON a.k = b.k"
    assert compared(spark, text) == (0, 2)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM lake.raw.a JOIN lake.raw.b ON a.k = b.k WHERE b.b > 30",
        "SELECT * FROM lake.raw.a LEFT JOIN lake.raw.b USING (k)",
        "SELECT * FROM lake.raw.a LEFT ANTI JOIN lake.raw.b ON a.k = b.k AND a.a < b.b",
        "SELECT * FROM lake.raw.a WHERE k IN (SELECT k FROM lake.raw.b)",
        "SELECT k, count(*), sum(b) FROM lake.raw.a JOIN lake.raw.b USING (k) GROUP BY k",
        "SELECT a.a, b.b FROM lake.raw.a JOIN lake.raw.b ON a.k <=> b.k",
    ],
)
def test_any_join_of_them(spark, sql, text):
    filled(sql, "a", "BIGINT", "bucket(4, k)", "0, 40, 1")
    filled(sql, "b", "INT", "bucket(4, k)", "20, 60, 2")
    sql("ALTER TABLE lake.raw.b ALTER COLUMN k TYPE BIGINT")
    sql("INSERT INTO lake.raw.b SELECT id, id FROM range(30, 70, 3)")
    with_grouping, without = compared(spark, text)
    assert with_grouping < without or "<=>" in text


def test_tables_of_two_partition_fields(spark, sql):
    for name, ids in (("a", "0, 40, 1"), ("b", "20, 60, 2")):
        sql(
            f"CREATE TABLE lake.raw.{name} (day DATE, id INT, {name} INT) "
            "PARTITIONED BY (months(day), bucket(3, id))"
        )
        sql(
            f"INSERT INTO lake.raw.{name} SELECT date_add(DATE '2026-06-01', CAST(id AS INT)), "
            f"id % 7, id FROM range({ids})"
        )
    text = "SELECT * FROM lake.raw.a FULL JOIN lake.raw.b ON a.id = b.id AND a.day = b.day"
    assert compared(spark, text) == (0, 2)


@pytest.mark.parametrize(
    ("one", "other", "kinds"),
    [
        ("bucket(4, k)", "bucket(8, k)", ("BIGINT", "BIGINT")),
        ("truncate(1, k)", "truncate(2, k)", ("STRING", "STRING")),
        ("bucket(4, k)", "k", ("BIGINT", "BIGINT")),
        ("days(k)", "days(k)", ("TIMESTAMP", "DATE")),
        ("hours(k)", "days(k)", ("TIMESTAMP", "TIMESTAMP")),
        ("bucket(4, k)", "bucket(4, k)", ("DECIMAL(9, 2)", "BIGINT")),
        ("bucket(4, k)", "bucket(4, k)", ("INT", "BIGINT")),
        ("k", "k", ("INT", "BIGINT")),
    ],
)
def test_partitionings_that_only_look_alike_lose_no_row(spark, sql, one, other, kinds):
    filled(sql, "a", kinds[0], one, "0, 40, 1")
    filled(sql, "b", kinds[1], other, "20, 60, 2")
    compared(spark, "SELECT * FROM lake.raw.a FULL JOIN lake.raw.b ON a.k = b.k")


def test_a_uuid_is_bucketed_otherwise_than_its_text(spark, sql, lake):
    keys = [uuid.UUID(int=n * 2**90 + n) for n in range(30)]
    for name, kind in (("a", UUIDType()), ("b", StringType())):
        schema = Schema(NestedField(1, "k", kind, required=False))
        table = lake.create_table(f"raw.{name}", schema, partition_by=["bucket(4, k)"])
        values = [one.bytes if name == "a" else str(one) for one in keys]
        table.append(pa.table({"k": pa.array(values, schema_to_arrow(schema).field("k").type)}))
    compared(spark, "SELECT * FROM lake.raw.a JOIN lake.raw.b ON a.k = b.k")


def test_files_of_other_partition_specs_are_shuffled(spark, sql, lake):
    for name in "ab":
        filled(sql, name, "BIGINT", "bucket(4, k)", "0, 40, 1")
    text = "SELECT * FROM lake.raw.a JOIN lake.raw.b ON a.k = b.k"
    assert compared(spark, text) == (0, 2)
    with lake.load_table("raw.b").update_partition_spec() as spec:
        spec.add("bucket(2, b)")
    assert compared(spark, text)[0] == 2
    sql("INSERT INTO lake.raw.b SELECT id, id FROM range(30, 70, 3)")
    assert compared(spark, text)[0] == 2


def test_what_a_session_has_not_asked_for_is_read_in_tasks_of_any_partitions(spark, sql):
    filled(sql, "a", "BIGINT", "bucket(4, k)", "0, 40, 1")
    for asked, tasks in (("false", 1), ("true", 5)):
        spark.conf.set(SETTING, asked)
        assert spark.table("lake.raw.a").rdd.getNumPartitions() == tasks
