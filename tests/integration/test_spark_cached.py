"""What is cached never answers with the rows of an earlier version, whoever commits in the session.

Judge: the same reads without a cache.
"""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812

from lakehouse.spark.catalog.lake_answers import PROCEDURES
from tests.integration.spark_support import configured, lake, session, sql

__all__ = ["lake", "session", "sql"]

pytestmark = pytest.mark.spark

TABLE = "lake.c.t"
VIEW = "counted_of_t"
READS = {
    TABLE: f"SELECT id FROM {TABLE}",
    f"{TABLE}.snapshots": f"SELECT count(*) FROM {TABLE}.snapshots",
    f"{TABLE}.branch_b": f"SELECT id FROM {TABLE}.branch_b",
    VIEW: f"SELECT * FROM {VIEW}",
}
"""What is cached, and how it is read."""

REFUSED = {"migrate", "compute_partition_stats"}
MOVES = {
    "rollback_to_snapshot",
    "rollback_to_timestamp",
    "set_current_snapshot",
    "cherrypick_snapshot",
    "publish_changes",
    "fast_forward",
    "register_table",
    "expire_snapshots",
    "rewrite_data_files",
    "rewrite_manifests",
    "add_files",
}
"""Procedures after which one of the reads gives something else."""


SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False)])


def ids(*values):
    return pa.table({"id": pa.array(values, pa.int32())}, schema=SCHEMA)


def tick(now_ms=lambda: time.time_ns() // 1_000_000):
    """The next snapshot is of another millisecond."""
    began = now_ms()
    while now_ms() == began:
        pass


@pytest.fixture
def table(spark, session, lake):
    """Of two versions on main and one more on branch b; nothing of it comes from Spark."""
    made = lake.create_table("c.t", SCHEMA, properties={"write.wap.enabled": "true"})
    for value in (1, 2):
        made.append(ids(value))
        tick()
    made.create_branch("b")
    made.append(ids(3), branch="b")
    yield made
    spark.catalog.clearCache()


@pytest.fixture
def follows(spark, sql, table):
    """Makes a change and says whether it can be seen; what is cached must show the same."""

    def rows(query):
        try:
            return sorted(sql(query))
        except AnalysisException as error:  # the view is one of columns that are not there any more
            return error.getCondition()

    def read():
        return [rows(query) for query in READS.values()]

    def follow(change, *given):
        counted = spark.table(TABLE).groupBy((F.col("id") % 2).alias("odd")).count()
        counted.createOrReplaceTempView(VIEW)
        for name in READS:
            sql(f"CACHE LAZY TABLE {name}")
        before = read()
        change(*given)
        found = read()
        spark.catalog.clearCache()
        assert found == read()
        return found != before

    return follow


def arguments(name, table, folder):
    """What a procedure is called with: a value for each parameter that one requires."""
    first, second, _ = table.snapshots()
    known = {
        "table": "'c.t'",
        "snapshot_id": first.snapshot_id,
        "timestamp": f"timestamp_millis({second.timestamp_ms})",
        "branch": "'b'",
        "tag": "'first'",
        "to": "'b'",
        "wap_id": "'run7'",
        "field": "'bucket(4, id)'",
        "by": "'bucket(8, id)'",
        "sort_order": "'id'",
        "fields": "array('id')",
        "metadata_file": f"'{table.metadata_location}'",
        "source_table": f"'parquet.`{folder}`'",
        "source_prefix": f"'{table.location}'",
        "target_prefix": "'file:///elsewhere'",
    }
    own = {
        "set_current_snapshot": {"ref": "'b'"},
        "fast_forward": {"branch": "'main'"},
        "rewrite_data_files": {"options": "map('rewrite-all', 'true')"},
        "expire_snapshots": {"older_than": "timestamp'9999-01-01'", "retain_last": 1},
        "create_branch": {"branch": "'b2'"},
        "drop_branch": {"branch": "'b2'"},
        "drop_partition_field": {"field": "'bucket(8, id)'"},
        "cherrypick_snapshot": {"snapshot_id": second.snapshot_id},
        "snapshot": {"table": "'c.made'"},
    }
    return {one: known[one] for one in PROCEDURES[name].required} | own.get(name, {})


def called(name, table, folder):
    told = ", ".join(f"{key} => {text}" for key, text in arguments(name, table, folder).items())
    return f"CALL lake.system.{name}({told})"


@pytest.mark.parametrize("name", sorted(MOVES))
def test_what_is_cached_follows_procedures(spark, sql, table, follows, tmp_path, name):
    folder = tmp_path / "warehouse/source"
    folder.mkdir()
    pq.write_table(ids(7), folder / "part.parquet")
    call = called(name, table, folder)
    if name == "cherrypick_snapshot":
        table.rollback_to(table.snapshots()[0].snapshot_id)
    elif name == "publish_changes":
        with configured(spark, {"spark.wap.id": "run7"}):
            sql(f"INSERT INTO {TABLE} VALUES (5)")
    elif name == "register_table":
        table.append(ids(6))

    def change():
        if name == "register_table":
            table.catalog.unregister(table.identifier)
        sql(call)

    assert follows(change)


def test_what_is_cached_follows_every_other_procedure(sql, table, follows, tmp_path):
    """Each is called, in an order in which all can be; a new one needs nothing here."""
    folder = tmp_path / "warehouse/source"
    folder.mkdir()
    pq.write_table(ids(7), folder / "part.parquet")
    begins = ("add", "create", "set", "replace", "drop")
    names = sorted(
        set(PROCEDURES) - MOVES - REFUSED,
        key=lambda name: ([name.startswith(one) for one in reversed(begins)], name),
    )
    calls = {name: called(name, table, folder) for name in names}

    def change():
        for call in calls.values():
            sql(call)

    assert not follows(change)


STATEMENTS = (
    f"INSERT INTO {TABLE} VALUES (4)",
    f"INSERT INTO {TABLE}.branch_main VALUES (5)",
    f"INSERT INTO {TABLE}.branch_b VALUES (6)",
    f"INSERT INTO {TABLE} REPLACE WHERE id = 1 SELECT 11",
    f"UPDATE {TABLE}.branch_main SET id = id + 10 WHERE id = 11",
    f"DELETE FROM {TABLE} WHERE id = 21",
    f"MERGE INTO {TABLE} t USING (SELECT 2 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    f"DELETE FROM {TABLE}.branch_main",
    f"INSERT OVERWRITE {TABLE} VALUES (4)",
    f"TRUNCATE TABLE {TABLE}",
    f"ALTER TABLE {TABLE} ALTER COLUMN id TYPE BIGINT",
    f"CREATE OR REPLACE TABLE {TABLE} USING iceberg AS SELECT 7 AS id",
    f"REPLACE TABLE {TABLE} USING iceberg AS SELECT 8 AS id",
)


def test_what_is_cached_follows_every_statement(sql, follows):
    for statement in STATEMENTS:
        assert follows(sql, statement), statement
    assert not follows(sql, f"ALTER TABLE {TABLE} ADD COLUMN z INT")


WRITES = (
    lambda frame: frame.writeTo(TABLE).append(),
    lambda frame: frame.writeTo(TABLE).overwrite(F.col("id") == 1),
    lambda frame: frame.writeTo(TABLE).overwritePartitions(),
    lambda frame: frame.write.insertInto(f"{TABLE}.branch_b"),
    lambda frame: frame.write.mode("append").saveAsTable(TABLE),
    lambda frame: frame.writeTo(TABLE).createOrReplace(),
)


def test_what_is_cached_follows_every_writer(spark, follows):
    for position, write in enumerate(WRITES):
        assert follows(write, spark.createDataFrame([(9,)], "id int")), position


def test_what_is_cached_follows_python(spark, lake, table, session, follows):
    frame = spark.createDataFrame([(5,)], "id int")
    first = table.snapshots()[0].snapshot_id
    changes = {
        "append": lambda: lake.load_table("c.t").append(ids(4)),
        "frame": lambda: session.lake.load_table("c.t").append(frame),
        "delete": lambda: table.refresh().delete("id = 4"),
        "rollback": lambda: table.refresh().rollback_to(first),
    }
    for name, change in changes.items():
        assert follows(change), name


def test_what_is_cached_follows_the_branch_of_the_session(spark, sql, table, follows):
    try:
        assert follows(sql, "SET spark.wap.branch = b")
        assert follows(sql, "RESET spark.wap.branch")
    finally:
        spark.conf.unset("spark.wap.branch")


def test_another_catalog_of_the_same_tables_is_told(spark, sql, lake, table, follows):
    from lakehouse.spark import attach

    attach(spark, lake, "other")
    attach(spark.newSession(), lake, "gone")
    assert follows(sql, "INSERT INTO other.c.t VALUES (4)")
