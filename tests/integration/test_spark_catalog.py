"""The lakehouse as Spark's catalog: names, time travel, refs, metadata tables, DDL."""

from __future__ import annotations

import datetime as dt
import uuid

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    UnsupportedOperationException,
)

from lakehouse.errors import InvalidInputError, NoSuchTableError
from lakehouse.inspect.metadata_tables import METADATA_TABLES
from lakehouse.lake import load_catalog
from lakehouse.spark import attach
from tests.integration.spark_support import configured, lake, rows_in, session, sql
from tests.integration.test_maintenance_compaction import equality_delete

__all__ = ["lake", "session", "sql"]

pytestmark = pytest.mark.spark


@pytest.fixture
def table(lake):
    table = lake.create_table("raw.events", pa.schema([("id", pa.int64()), ("k", pa.string())]))
    table.append(pa.table({"id": [1, 2], "k": ["a", "b"]}))
    table.create_tag("first", table.current_snapshot().snapshot_id)
    table.create_branch("audit")
    table.refresh().append(pa.table({"id": [3], "k": ["c"]}))
    return table.refresh()


def test_names_and_travel(sql, table, spark):
    first, second = (snapshot.snapshot_id for snapshot in table.snapshots())
    between = dt.datetime.fromtimestamp(table.snapshots()[0].timestamp_ms / 1000, dt.UTC)
    count = "SELECT count(*) FROM lake.raw.events"
    for text, expected in {
        count: 3,
        f"{count} FOR VERSION AS OF {first}": 2,
        f"{count} VERSION AS OF {second} AS e WHERE e.id > 1": 2,
        f"{count} VERSION AS OF 'first'": 2,
        f"{count} VERSION AS OF 'audit'": 2,
        f"{count}.branch_audit": 2,
        f"{count}.tag_first": 2,
        f"{count}.snapshot_id_{first}": 2,
        f"{count}.at_timestamp_{table.snapshots()[0].timestamp_ms}": 2,
        f"{count} FOR TIMESTAMP AS OF '{between.isoformat()}'": 2,
        f"{count} TIMESTAMP AS OF current_timestamp()": 3,
        f"{count} a JOIN lake.raw.events VERSION AS OF {first} b ON a.id = b.id": 2,
        "SELECT max(lake.raw.events.id) FROM lake.raw.events WHERE lake.raw.events.k < 'c'": 2,
        "WITH e AS (SELECT * FROM lake.raw.events) SELECT sum(id) FROM e": 6,
        "SELECT count(*) FROM IDENTIFIER('lake.raw.events')": 3,
        "FROM lake.raw.events |> WHERE id > 1 |> AGGREGATE count(*)": 2,
    }.items():
        assert sql(text) == [(expected,)], text
    assert spark.table("lake.raw.events").count() == 3
    assert spark.read.option("versionAsOf", first).table("lake.raw.events").count() == 2
    spark.range(10).createOrReplaceTempView("numbers")
    assert sql("SELECT count(*) FROM numbers JOIN lake.raw.events USING (id)") == [(3,)]


def test_a_timestamp_is_read_in_the_zone_of_the_session(sql, table, spark):
    last = dt.datetime.fromtimestamp(table.snapshots()[-1].timestamp_ms / 1000, dt.UTC)
    local = (last + dt.timedelta(hours=9, seconds=1)).strftime("%Y-%m-%d %H:%M:%S")
    with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        assert sql(f"SELECT count(*) FROM lake.raw.events TIMESTAMP AS OF '{local}'") == [(3,)]


def test_metadata_tables(sql, table, session, spark):
    assert sql("SELECT count(*) FROM lake.raw.events.snapshots") == [(2,)]
    assert sql("SELECT sum(record_count) FROM lake.raw.events.files") == [(3,)]
    first = table.snapshots()[0].snapshot_id
    assert sql(f"SELECT sum(record_count) FROM lake.raw.events.files VERSION AS OF {first}") == [
        (2,)
    ]
    assert sql(
        "SELECT name, type FROM lake.raw.events.refs WHERE type = 'BRANCH' ORDER BY name"
    ) == [
        ("audit", "BRANCH"),
        ("main", "BRANCH"),
    ]
    for name in METADATA_TABLES:
        shown = spark.table(f"lake.raw.events.{name}")
        assert shown.columns == table.inspect.table(name).column_names
        assert shown.count() == table.inspect.table(name).num_rows


def test_partitions_are_columns_beside_the_rows(lake, sql):
    table = lake.create_table(
        "raw.parted",
        pa.schema([("id", pa.int64()), ("day", pa.date32()), ("k", pa.string())]),
        partition_by=["day", "bucket(4, id)", "truncate(1, k)"],
    )
    days = [dt.date(2026, 6, 1), dt.date(1969, 12, 31), None]
    table.append(pa.table({"id": [1, 2, None], "day": days, "k": ["ab", "cd", None]}))
    found = sql("SELECT _partition, _spec_id, id FROM lake.raw.parted ORDER BY id")
    told = [(tuple(partition), spec, row) for partition, spec, row in found]
    bucket = [one for (one,) in sql("SELECT lake.system.bucket(4, id) FROM range(1, 3)")]
    assert told == [
        ((None, None, None), 0, None),
        ((days[0], bucket[0], "a"), 0, 1),
        ((days[1], bucket[1], "c"), 0, 2),
    ]
    # renamed in a spec of its own: the older file's value is under the newer name, as Java has it
    for old, new, number in (("k_trunc", "initial", 3), ("initial", "k_trunc", 4)):
        with table.update_partition_spec() as spec:
            spec.rename(old, new)
        table.append(pa.table({"id": [number], "day": days[:1], "k": ["xy"]}))
        rows = sql("SELECT _partition.initial, id FROM lake.raw.parted WHERE id > 0 ORDER BY id")
        assert rows == [("a", 1), ("c", 2), *(("x", one) for one in range(3, number + 1))]
        shown = table.scan(select=["_partition", "id"], where="id > 0").to_arrow().to_pylist()
        assert sorted((row["_partition"]["initial"], row["id"]) for row in shown) == rows
        whole = sql("SELECT id, _partition FROM lake.raw.parted WHERE id > 0 ORDER BY id")
        joined = "SELECT count(*) FROM lake.raw.parted a JOIN lake.raw.parted b USING (id, day, k)"
        assert sql(joined) == [(number,)]
    # as for these, workers answer where Spark's reader cannot
    (file,) = table.scan(where="id = 2").plan().files
    table.transaction().row_delta(delete_files=[equality_delete(table, file, [2])]).commit()
    again = sql("SELECT id, _partition FROM lake.raw.parted WHERE id > 0 ORDER BY id")
    assert again == [row for row in whole if row[0] != 2]


def test_metadata_tables_show_uuids_as_text(lake, sql):
    schema = Schema(
        ice.NestedField(1, "id", ice.LongType()), ice.NestedField(2, "u", ice.UUIDType())
    )
    made = lake.create_table("raw.uuids", schema, partition_by=["u"])
    number = uuid.UUID(int=5)
    made.append(pa.table({"id": [1, 2], "u": pa.array([number.bytes, None], pa.uuid())}))
    rows = sql("SELECT partition.u, readable_metrics.u.lower_bound FROM lake.raw.uuids.files")
    # a uuid's lower bound is left out where orders differ (see
    # lakehouse/data/statistics/column_metrics.py)
    assert {one for one, _ in rows} == {str(number), None}
    assert sql(f"SELECT id FROM lake.raw.uuids WHERE u = '{number}'") == [(1,)]
    sql(f"INSERT INTO lake.raw.uuids VALUES (3, '{uuid.UUID(int=7)}')")
    assert made.refresh().scan(select=["u"]).to_arrow().num_rows == 3
    with pytest.raises(Exception, match="uuid"):
        sql("INSERT INTO lake.raw.uuids VALUES (4, 'no such thing')")


def test_what_is_not_there_is_said_by_spark(sql, table, session):
    for text, told in {
        "SELECT * FROM lake.raw.nope": "TABLE_OR_VIEW_NOT_FOUND",
        "SELECT nope FROM lake.raw.events": "UNRESOLVED_COLUMN",
        "SHOW TABLES IN lake.nope": "SCHEMA_NOT_FOUND",
        "CREATE TABLE lake.nope.t (id INT)": "SCHEMA_NOT_FOUND",
        "CREATE TABLE lake.raw.events (id INT)": "TABLE_OR_VIEW_ALREADY_EXISTS",
        "SELECT * FROM lake.raw.events.branch_nope": "nope",
    }.items():
        with pytest.raises((AnalysisException, IllegalArgumentException), match=told):
            sql(text)
    with pytest.raises(IllegalArgumentException, match="no snapshot 7"):
        sql("SELECT * FROM lake.raw.events VERSION AS OF 7")
    with pytest.raises(IllegalArgumentException, match="no branch or tag 'nope'"):
        sql("SELECT * FROM lake.raw.events VERSION AS OF 'nope'")
    with pytest.raises(NoSuchTableError):
        session.table("raw.nope")
    with pytest.raises(InvalidInputError):
        session.table("raw.events", snapshot_id=1, ref="main")


def test_two_lakehouses_and_two_sessions(spark, session, table, tmp_path):
    other = load_catalog(f"file://{tmp_path}/other")
    other.create_table("raw.events", pa.schema([("id", pa.int64())])).append(
        pa.table({"id": [7, 8, 9, 10]})
    )
    attach(spark, other, name="second")
    joined = "SELECT count(*) FROM lake.raw.events, second.raw.events"
    assert spark.sql(joined).first()[0] == 12
    elsewhere = spark.newSession()
    attach(elsewhere, other)
    assert elsewhere.sql("SELECT count(*) FROM lake.raw.events").first()[0] == 4
    assert spark.sql("SELECT count(*) FROM lake.raw.events").first()[0] == 3
    attach(spark, other)
    assert spark.sql("SELECT count(*) FROM lake.raw.events").first()[0] == 4


@pytest.mark.parametrize("name", ["spark_catalog", "a.b", "", "1st"])
def test_names_that_no_catalog_can_have(spark, lake, name):
    with pytest.raises(InvalidInputError, match="catalog"):
        attach(spark, lake, name=name)


def test_a_session_without_its_python_says_so(spark):
    other = spark.newSession()
    other.conf.set("spark.sql.catalog.orphan", "lakehouse.spark.LakehouseCatalog")
    with pytest.raises(IllegalArgumentException, match=r"call lakehouse\.spark\.attach"):
        other.sql("SHOW NAMESPACES IN orphan")


def test_namespaces(sql, lake):
    sql("CREATE NAMESPACE lake.a COMMENT 'first' WITH DBPROPERTIES ('x' = '1')")
    sql("CREATE NAMESPACE IF NOT EXISTS lake.a")
    sql("CREATE NAMESPACE lake.a.b")
    assert sql("SHOW NAMESPACES IN lake") == [("a",)]
    assert sql("SHOW NAMESPACES IN lake.a") == [("a.b",)]
    sql("ALTER NAMESPACE lake.a SET PROPERTIES ('y' = '2')")
    sql("ALTER NAMESPACE lake.a UNSET PROPERTIES ('x')")
    assert dict(lake.namespace_properties("a")) == {"comment": "first", "y": "2"}
    sql("CREATE TABLE lake.a.b.t (id INT)")
    assert sql("SHOW TABLES IN lake.a.b") == [("a.b", "t", False)]
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
        sql("DROP NAMESPACE lake.a.b")
    sql("DROP NAMESPACE lake.a CASCADE")
    assert sql("SHOW NAMESPACES IN lake") == []


def test_create_and_alter(sql, lake, table):
    sql(
        "CREATE TABLE lake.raw.made (id BIGINT NOT NULL COMMENT 'key', at TIMESTAMP, "
        "tags ARRAY<STRING>) USING iceberg PARTITIONED BY (days(at), bucket(4, id), truncate(2, "
        "id)) COMMENT 'about' TBLPROPERTIES ('write.target-file-size-bytes' = '1000000', "
        "'format-version' = '3')"
    )
    made = lake.load_table("raw.made")
    assert [str(field.transform) for field in made.spec().fields] == [
        "day",
        "bucket[4]",
        "truncate[2]",
    ]
    assert made.properties["write.target-file-size-bytes"] == "1000000"
    assert made.properties["comment"] == "about"
    assert made.metadata.format_version == 3
    assert [
        (field.name, str(field.field_type), field.required, field.doc)
        for field in made.schema().fields
    ] == [
        ("id", "long", True, "key"),
        ("at", "timestamptz", False, None),
        ("tags", "list<string>", False, None),
    ]
    before = len(made.metadata.schemas)
    for text in (
        "ADD COLUMNS (n INT DEFAULT 7 COMMENT 'seven' AFTER id, s STRUCT<a: INT, m: MAP<STRING, "
        "STRUCT<x: INT>>>)",
        "ADD COLUMN s.b DOUBLE FIRST",
        "ADD COLUMN s.m.value.y STRING",
        "ALTER COLUMN n TYPE BIGINT",
        "ALTER COLUMN id DROP NOT NULL",
        "ALTER COLUMN n COMMENT 'more'",
        "ALTER COLUMN n SET DEFAULT 8",
        "RENAME COLUMN s.a TO c",
        "DROP COLUMN s.b",
        "DROP COLUMN IF EXISTS nope",
        "ALTER COLUMN tags FIRST",
        "SET TBLPROPERTIES ('a' = 'b', 'write.delete.mode' = 'merge-on-read')",
        "UNSET TBLPROPERTIES ('a')",
    ):
        sql(f"ALTER TABLE lake.raw.made {text}")
    made.refresh()
    assert made.schema().as_struct().fields[0].name == "tags"
    assert [one.name for one in made.schema().fields] == ["tags", "id", "n", "at", "s"]
    n = made.schema().find_field("n")
    assert (n.initial_default, n.write_default, n.doc) == (7, 8, "more")
    assert str(made.schema().find_type("s")).startswith("struct<")
    assert made.schema().find_type("s.m.value.y") == ice.StringType()
    assert {"s.b", "s.c"}.intersection(made.schema().column_names) == {"s.c"}
    assert len(made.metadata.schemas) > before
    assert made.properties["write.delete.mode"] == "merge-on-read"
    sql("INSERT INTO lake.raw.made (id, at) VALUES (1, TIMESTAMP '2026-06-01 12:00:00')")
    assert sql("SELECT id, n FROM lake.raw.made WHERE date(at) = '2026-06-01'") == [(1, 8)]
    for text, told in {
        "ALTER TABLE lake.raw.made ALTER COLUMN n TYPE INT": "NOT_SUPPORTED_CHANGE_COLUMN|int",
        "ALTER TABLE lake.raw.made ADD COLUMN n9 INT NOT NULL": "InvalidSchemaError.*n9",
        "ALTER TABLE lake.raw.made ADD COLUMN id INT": "already exists|FIELD_ALREADY_EXISTS",
        "CREATE TABLE lake.raw.p (id INT) USING orc": "USING iceberg",
        "CREATE TABLE lake.raw.p (id INT) PARTITIONED BY (fib(id))": "fib",
    }.items():
        with pytest.raises(
            (AnalysisException, IllegalArgumentException, UnsupportedOperationException), match=told
        ):
            sql(text)


def test_drop_and_rename(sql, spark, tmp_path):
    sqlite = load_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    attach(spark, sqlite, name="byname")
    sql("CREATE NAMESPACE byname.raw")
    sql("CREATE TABLE byname.raw.one (id INT)")
    sql("INSERT INTO byname.raw.one VALUES (1)")
    sql("ALTER TABLE byname.raw.one RENAME TO raw.two")
    assert sql("SHOW TABLES IN byname.raw") == [("raw", "two", False)]
    assert sql("SELECT * FROM byname.raw.two") == [(1,)]
    location = sqlite.load_table("raw.two").location
    sql("DROP TABLE byname.raw.two PURGE")
    assert not list(sqlite.catalog.storage(location).list(location))
    sql("DROP TABLE IF EXISTS byname.raw.two")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("DROP TABLE byname.raw.two")


def test_a_plan_is_made_anew_after_a_commit(sql, spark, table):
    frame = spark.table("lake.raw.events")
    assert frame.count() == 3
    table.append(pa.table({"id": [4], "k": ["d"]}))
    assert sql("SELECT count(*) FROM lake.raw.events") == [(4,)]
    sql("CACHE TABLE cached AS SELECT * FROM lake.raw.events")
    sql("INSERT INTO lake.raw.events VALUES (5, 'e')")
    assert sql("SELECT count(*) FROM lake.raw.events") == [(5,)]


def test_exchanges_are_reused(spark, session, table):
    frame = spark.sql(
        "SELECT * FROM lake.raw.events a JOIN (SELECT k, count(*) c FROM lake.raw.events "
        "GROUP BY k) b USING (k) JOIN (SELECT k, count(*) d FROM lake.raw.events "
        "GROUP BY k) e USING (k)"
    )
    with configured(spark, {"spark.sql.adaptive.enabled": "false"}):
        plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "ReusedExchange" in plan


def test_scan_to_spark_carries_its_filter_and_projection(spark, table):
    frame = table.scan(where="id >= 2 and k != 'c'", select=["k"]).to_spark(spark)
    assert [tuple(row) for row in frame.collect()] == [("b",)]


def test_names_with_dots_and_slashes_are_quoted(spark, tmp_path):
    """Each is one name, in every statement; on a filesystem there is none such."""
    uri = f"sqlite:///{tmp_path}/dotted.db"
    dotted = load_catalog(uri, warehouse=f"file://{tmp_path}/w", name="dotted")
    attach(spark, dotted, name="dotted")
    sql = rows_in(spark)
    sql("CREATE NAMESPACE dotted.`eu.west`")
    name = "dotted.`eu.west`.`v1.2/a%2Fb`"
    sql(f"CREATE TABLE {name} (id BIGINT, day STRING) PARTITIONED BY (day)")
    sql(f"INSERT INTO {name} VALUES (1, 'a.b'), (2, 'a/b'), (3, 'a%2Fb')")
    sql(f"UPDATE {name} SET id = 20 WHERE id = 2")
    sql(f"MERGE INTO {name} t USING (SELECT 3 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    assert sorted(sql(f"SELECT * FROM {name}")) == [(1, "a.b"), (20, "a/b")]
    assert sql(f"SELECT count(*) FROM {name}.snapshots") == [(3,)]
    assert dotted.list_tables() == ["eu\\.west.v1\\.2/a%2Fb"]
    table = dotted.load_table(("eu.west", "v1.2/a%2Fb"))
    assert table.scan(where="day = 'a/b'").to_arrow()["id"].to_pylist() == [20]
    assert "/w/eu%2Ewest/v1%2E2%2Fa%252Fb-" in table.location
    assert sql("SHOW TABLES IN dotted.`eu.west`")[0][:2] == ("`eu.west`", "v1.2/a%2Fb")
    assert sql("SHOW NAMESPACES IN dotted") == [("`eu.west`",)]
    sql(f"ALTER TABLE {name} RENAME TO `eu.west`.`b.c`")
    sql("CREATE VIEW dotted.`eu.west`.`seen.by` AS SELECT id FROM dotted.`eu.west`.`b.c`")
    assert sorted(sql("SELECT * FROM dotted.`eu.west`.`seen.by`")) == [(1,), (20,)]
    assert not spark.catalog.tableExists("dotted.eu.west.b.c")
    sql("CALL dotted.system.rewrite_data_files('eu\\\\.west.b\\\\.c')")
    sql("DROP VIEW dotted.`eu.west`.`seen.by`")
    sql("DROP TABLE dotted.`eu.west`.`b.c` PURGE")
    sql("DROP NAMESPACE dotted.`eu.west`")


def test_a_filesystem_catalog_has_no_names_with_dots(sql):
    sql("CREATE NAMESPACE lake.raw")
    for text in ("CREATE TABLE lake.raw.`a.b` (id BIGINT)", "SELECT * FROM lake.raw.`a/b`"):
        with pytest.raises(IllegalArgumentException, match="filesystem catalog"):
            sql(text)
