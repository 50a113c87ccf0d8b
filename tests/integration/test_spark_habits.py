"""What people write who know Iceberg on Spark: options of readers and writers, other words."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException, UnsupportedOperationException

from tests.integration.spark_support import collected, lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark
NAME = "lake.raw.events"


@pytest.fixture
def table(lake, session):
    schema = pa.schema([("id", pa.int64()), ("k", pa.string())])
    table = lake.create_table("raw.events", schema, partition_by=["k"])
    table.append(pa.table({"id": [1, 2], "k": ["a", "b"]}))
    table.create_tag("first", table.current_snapshot().snapshot_id)
    table.create_branch("audit")
    with table.refresh().update_schema() as update:
        update.rename_column("id", "number").add_column("more", "int")
    table.refresh().append(pa.table({"number": [3], "k": ["c"], "more": [7]}))
    return table.refresh()


def points(table):
    first = table.snapshots()[0]
    return {
        "snapshot-id": first.snapshot_id,
        "as-of-timestamp": first.timestamp_ms,
        "branch": "audit",
        "tag": "first",
    }


@pytest.mark.parametrize("option", ["snapshot-id", "as-of-timestamp", "branch", "tag"])
def test_options_say_which_snapshot_is_read(spark, table, option):
    """Of the columns that the table has now, with filters, aggregates and caches of their own."""
    value = points(table)[option]
    frame = spark.read.option(option, value).table(NAME)
    assert collected(frame) == [(1, "a", None), (2, "b", None)]
    assert collected(frame.where("k = 'b' AND number > 1").select("number")) == [(2,)]
    assert frame.count() == 2
    assert frame.where("more IS NOT NULL").count() == 0
    assert frame.agg({"number": "max"}).first()[0] == 2
    text = f"SELECT max(number) FROM {NAME} WITH (`{option.upper()}` = '{value}')"
    assert spark.sql(text).first()[0] == 2
    both = frame.join(spark.table(NAME), "number", "right")
    assert both.count() == 3
    frame.cache()
    try:
        assert (frame.count(), spark.table(NAME).count()) == (2, 3)
    finally:
        frame.unpersist()


def test_options_that_say_nothing_are_refused(spark, table):
    first = str(table.snapshots()[0].snapshot_id)
    for options, name, message in (
        ({"snapshot-id": first, "branch": "audit"}, NAME, "takes one"),
        ({"snapshot-id": "first"}, NAME, "whole number"),
        ({"snapshot-id": "7"}, NAME, "no snapshot 7"),
        ({"branch": "nobody"}, NAME, "no branch or tag 'nobody'"),
        ({"start-snapshot-id": first}, NAME, "create_changelog_view"),
        ({"tag": "first"}, f"{NAME}.branch_audit", "leave the option tag out"),
        ({"tag": "first"}, f"{NAME}.tag_first", "leave the option tag out"),
        ({"tag": "first"}, f"{NAME}.files", "VERSION AS OF"),
    ):
        with pytest.raises(IllegalArgumentException, match=message):
            spark.read.options(**options).table(name).collect()
    row = spark.sql("SELECT 9L AS number, 'z' AS k, 1 AS more")
    for options, name, message in (
        ({"tag": "first"}, NAME, r"raw\.events\.branch_first"),
        ({"branch": "other"}, f"{NAME}.branch_audit", "leave one out"),
    ):
        with pytest.raises(IllegalArgumentException, match=message):
            row.writeTo(name).options(**options).append()
    assert spark.table(NAME).count() == 3


def test_the_option_branch_of_a_write_says_where_rows_go(spark, table):
    """Appended to, and replaced, on a branch alone."""
    before = sorted(collected(spark.table(NAME)))
    row = spark.sql("SELECT 9L AS number, 'z' AS k, 1 AS more")
    on_branch = sorted(collected(spark.table(f"{NAME}.branch_audit")))
    row.writeTo(NAME).option("branch", "audit").append()
    found = collected(spark.table(f"{NAME}.branch_audit"))
    assert {one[0] for one in found} == {*(one[0] for one in on_branch), 9}
    row.write.mode("overwrite").option("Branch", "audit").insertInto(NAME)
    assert [one[0] for one in collected(spark.table(f"{NAME}.branch_audit"))] == [9]
    assert sorted(collected(spark.table(NAME))) == before


def test_frames_are_saved_without_a_format(spark, lake, table):
    frame = spark.sql("SELECT 1 AS a, 'x' AS b")
    frame.write.saveAsTable("lake.raw.saved")
    frame.write.mode("overwrite").partitionBy("b").saveAsTable("lake.raw.saved")
    frame.write.mode("append").saveAsTable("lake.raw.saved")
    assert collected(spark.table("lake.raw.saved")) == [(1, "x"), (1, "x")]
    assert [one.name for one in lake.load_table("raw.saved").spec().fields] == ["b"]
    spark.sql("CREATE TABLE lake.raw.parquet (a INT) USING parquet")
    with pytest.raises(IllegalArgumentException, match="Iceberg tables"):
        spark.sql("CREATE TABLE lake.raw.orc (a INT) USING orc")


def test_parts_of_a_table_are_not_dropped_as_tables(spark, table):
    for part in ("branch_audit", "tag_first", "snapshots"):
        with pytest.raises(IllegalArgumentException, match=r"part of raw\.events.*drop_branch"):
            spark.sql(f"DROP TABLE {NAME}.{part}")
    assert {"audit", "first"} <= set(table.refresh().refs())


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_conditions_on_files_and_positions_are_refused(spark, lake, session, version, mode):
    """Spark gives such columns to the writer as if they were the table's."""
    lake.create_namespace("raw")
    told = {f"write.{one}.mode": mode for one in ("delete", "update", "merge")}
    told["format-version"] = version
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in told.items())
    spark.sql(f"CREATE TABLE {NAME} (id BIGINT, k STRING) TBLPROPERTIES ({properties})")
    spark.sql(f"INSERT INTO {NAME} SELECT /*+ COALESCE(1) */ id, 'a' FROM range(1, 4)")
    for statement in (
        f"UPDATE {NAME} SET k = 'b' WHERE _pos = 0",
        f"UPDATE {NAME} SET k = 'b' WHERE _metadata.row_index = 0",
        f"MERGE INTO {NAME} t USING (SELECT 1L AS id) s ON t.id = s.id AND t._pos = 0 "
        "WHEN MATCHED THEN UPDATE SET k = 'b'",
    ):
        with pytest.raises(UnsupportedOperationException, match="in a subquery"):
            spark.sql(statement)
    spark.sql(f"UPDATE {NAME} SET k = 'b' WHERE id IN (SELECT id FROM {NAME} WHERE _pos = 0)")
    assert collected(spark.table(NAME)) == [(1, "b"), (2, "a"), (3, "a")]


def test_changelog_views_compute_updates(spark, lake, session):
    lake.create_namespace("raw")
    spark.sql(f"CREATE TABLE {NAME} (id BIGINT, part STRING, k STRING)")
    spark.sql(f"INSERT INTO {NAME} VALUES (1, 'x', 'a'), (2, NULL, 'b'), (3, 'x', 'c')")
    spark.sql(f"UPDATE {NAME} SET k = 'new' WHERE id IN (1, 2)")
    spark.sql(f"DELETE FROM {NAME} WHERE id = 3")
    spark.sql(f"INSERT INTO {NAME} VALUES (3, 'x', 'again')")
    call = "CALL lake.system.create_changelog_view(table => 'raw.events', changelog_view => 'seen'"
    columns = "id, part, k, _change_ordinal, _change_type"
    expected = [
        (1, "x", "a", 0, "INSERT"), (2, None, "b", 0, "INSERT"), (3, "x", "c", 0, "INSERT"),
        (1, "x", "a", 1, "UPDATE_BEFORE"), (1, "x", "new", 1, "UPDATE_AFTER"),
        (2, None, "b", 1, "UPDATE_BEFORE"), (2, None, "new", 1, "UPDATE_AFTER"),
        (3, "x", "c", 2, "DELETE"), (3, "x", "again", 3, "INSERT"),
    ]  # fmt: skip
    spark.sql(f"{call}, identifier_columns => array('id', 'part'))")
    assert collected(spark.sql(f"SELECT {columns} FROM seen")) == sorted(expected, key=repr)
    plain = [(*one[:4], one[4].replace("UPDATE_BEFORE", "DELETE")) for one in expected]
    plain = [(*one[:4], one[4].replace("UPDATE_AFTER", "INSERT")) for one in plain]
    spark.sql(f"{call}, identifier_columns => array('id'), compute_updates => false)")
    assert collected(spark.sql(f"SELECT {columns} FROM seen")) == sorted(plain, key=repr)
    for arguments, message in {
        "compute_updates => true": "no identifier fields",
        "identifier_columns => array('nobody')": "nobody",
        "identifier_columns => array('part')": "not unique by part",
        "identifier_columns => array('id'), net_changes => true": "leave one out",
    }.items():
        with pytest.raises(IllegalArgumentException, match=message):
            spark.sql(f"{call}, {arguments})")
    spark.sql("CALL lake.system.rewrite_manifests('raw.events', false)")
    spark.sql("CALL lake.system.expire_snapshots('raw.events', TIMESTAMP '2020-01-01', 1, 4, true)")
    spark.sql(
        "CALL lake.system.remove_orphan_files(table => 'raw.events', max_concurrent_deletes => 4)"
    )
