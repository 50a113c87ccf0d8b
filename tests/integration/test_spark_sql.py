"""session.sql: names, time travel, refs, metadata tables."""

from __future__ import annotations

import datetime as dt
import uuid

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from lakehouse.errors import (
    InvalidInputError,
    NoSuchRefError,
    NoSuchSnapshotError,
    NoSuchTableError,
    UnsupportedFeatureError,
)
from lakehouse.inspect.tables import METADATA_TABLES
from tests.integration.spark_support import lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark


@pytest.fixture
def table(lake):
    table = lake.create_table("raw.events", pa.schema([("id", pa.int64()), ("k", pa.string())]))
    table.append(pa.table({"id": [1, 2], "k": ["a", "b"]}))
    table.create_tag("first", table.current_snapshot().snapshot_id)
    table.refresh().append(pa.table({"id": [3], "k": ["c"]}))
    return table.refresh()


def one(session, text):
    return session.sql(text).first()[0]


def test_names_and_travel(session, table):
    first, second = (snapshot.snapshot_id for snapshot in table.snapshots())
    between = dt.datetime.fromtimestamp(table.snapshots()[0].timestamp_ms / 1000, dt.UTC)
    assert one(session, "SELECT count(*) FROM raw.events") == 3
    assert one(session, f"SELECT count(*) FROM raw.events FOR VERSION AS OF {first}") == 2
    assert (
        one(session, f"SELECT count(*) FROM raw.events VERSION AS OF {second} AS e WHERE e.id > 1")
        == 2
    )
    assert one(session, "SELECT count(*) FROM raw.events VERSION AS OF 'first'") == 2
    assert (
        one(session, f"SELECT count(*) FROM raw.events FOR TIMESTAMP AS OF '{between.isoformat()}'")
        == 2
    )
    both = f"SELECT count(*) FROM raw.events a JOIN raw.events FOR VERSION AS OF {first} b ON a.id = b.id"
    assert one(session, both) == 2
    assert one(session, "SELECT max(raw.events.id) FROM raw.events WHERE raw.events.k < 'c'") == 2
    assert one(session, "WITH e AS (SELECT * FROM raw.events) SELECT sum(id) FROM e") == 6


def test_metadata_tables(session, table):
    assert one(session, "SELECT count(*) FROM raw.events.snapshots") == 2
    assert one(session, "SELECT sum(record_count) FROM raw.events.files") == 3
    assert session.table("raw.events.refs").count() == 2


def test_metadata_tables_show_uuids_as_text(lake, session):
    schema = Schema(
        ice.NestedField(1, "id", ice.LongType()), ice.NestedField(2, "u", ice.UUIDType())
    )
    made = lake.create_table("raw.uuids", schema, partition_by=["u"])
    number = uuid.UUID(int=5)
    made.append(pa.table({"id": [1, 2], "u": pa.array([number.bytes, None], pa.uuid())}))
    rows = session.sql(
        "SELECT partition.u, readable_metrics.u.lower_bound FROM raw.uuids.files"
    ).collect()
    assert {tuple(row) for row in rows} == {(str(number), str(number)), (None, None)}
    for name in METADATA_TABLES:
        assert session.table(f"raw.uuids.{name}").columns == made.inspect.table(name).column_names


def test_tables_of_the_session_join_ours(session, spark, table):
    spark.range(10).createOrReplaceTempView("numbers")
    assert one(session, "SELECT count(*) FROM numbers JOIN raw.events USING (id)") == 3
    assert one(session, "SELECT 1") == 1
    assert not [view for view in spark.catalog.listTables() if view.name.startswith("_lakehouse_")]


def test_what_is_not_there(session, table):
    with pytest.raises(NoSuchSnapshotError):
        session.sql("SELECT * FROM raw.events VERSION AS OF 7")
    with pytest.raises(NoSuchRefError):
        session.sql("SELECT * FROM raw.events VERSION AS OF 'nope'")
    with pytest.raises(NoSuchTableError):
        session.table("raw.nope")
    with pytest.raises(InvalidInputError):
        session.table("raw.events", snapshot_id=1, ref="main")


def rows(session, text="SELECT * FROM raw.events ORDER BY id"):
    return [tuple(row) for row in session.sql(text).collect()]


def test_insert_delete_update(session, spark, table):
    before = len(table.snapshots())
    assert (
        session.sql(
            "INSERT INTO raw.events SELECT id + 10, upper(k) FROM raw.events WHERE id < 3"
        ).columns
        == []
    )
    session.sql("INSERT INTO raw.events (k, id) VALUES ('x', 20), (NULL, 21)")
    session.sql("INSERT INTO raw.events (id) VALUES (22)")
    session.sql("INSERT INTO raw.events BY NAME SELECT 'n' AS k, 23 AS id")
    assert rows(session)[3:] == [(11, "A"), (12, "B"), (20, "x"), (21, None), (22, None), (23, "n")]
    session.sql("DELETE FROM raw.events WHERE id >= 20 AND k IS NULL")
    session.sql(
        "UPDATE raw.events SET k = concat(k, '-', CAST(id AS STRING)), id = id + 100 WHERE id > 10 and k != 'B'"
    )
    assert rows(session) == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
        (12, "B"),
        (111, "A-11"),
        (120, "x-20"),
        (123, "n-23"),
    ]
    assert len(table.refresh().snapshots()) == before + 6, "one commit each"
    session.sql("DELETE FROM raw.events")
    assert rows(session) == []


def test_create_and_drop(session, lake, table):
    session.sql(
        "CREATE TABLE raw.made (id BIGINT NOT NULL, at TIMESTAMP, tags ARRAY<STRING>) USING lakehouse "
        "PARTITIONED BY (days(at), bucket(4, id)) TBLPROPERTIES ('write.target-file-size-bytes' = '1000000')"
    )
    made = lake.load_table("raw.made")
    assert [str(field.transform) for field in made.spec().fields] == ["day", "bucket[4]"]
    assert made.properties["write.target-file-size-bytes"] == "1000000"
    assert [
        (field.name, str(field.field_type), field.required) for field in made.schema().fields
    ] == [
        ("id", "long", True),
        ("at", "timestamptz", False),
        ("tags", "list<string>", False),
    ]
    session.sql("INSERT INTO raw.made VALUES (1, TIMESTAMP '2026-06-01 12:00:00', array('a'))")
    assert one(session, "SELECT count(*) FROM raw.made WHERE date(at) = '2026-06-01'") == 1
    session.sql("CREATE TABLE IF NOT EXISTS raw.made (x INT) USING lakehouse")
    session.sql(
        "CREATE TABLE raw.copied USING lakehouse PARTITIONED BY (k) AS SELECT * FROM raw.events WHERE id > 1"
    )
    assert rows(session, "SELECT * FROM raw.copied ORDER BY id") == [(2, "b"), (3, "c")]
    session.sql("DROP TABLE raw.made")
    session.sql("DROP TABLE IF EXISTS raw.made")
    assert not lake.table_exists("raw.made")


def test_changes_that_sql_does_not_make_are_refused_with_a_way_out(session, table):
    for text, way in {
        "MERGE INTO raw.events USING x ON events.id = x.id WHEN MATCHED THEN DELETE": "table.overwrite",
        "ALTER TABLE raw.events ADD COLUMN c INT": "update_schema",
        "INSERT OVERWRITE raw.events SELECT 1, 'a'": "table.overwrite",
        "CREATE TABLE parquet_copy USING parquet AS SELECT * FROM raw.events": "frame.write",
    }.items():
        with pytest.raises(UnsupportedFeatureError, match=way):
            session.sql(text)
    for text, hint in {
        "INSERT INTO raw.events VALUES (1)": "1 columns",
        "INSERT INTO raw.events (id, nope) VALUES (1, 2)": "no column nope",
        "UPDATE raw.events SET nope = 1": "no column nope",
        "DELETE FROM raw.events WHERE length(k) > 3": "table.overwrite",
    }.items():
        with pytest.raises(InvalidInputError, match=hint):
            session.sql(text)
    assert len(rows(session)) == 3


def test_scan_to_spark_carries_its_filter_and_projection(session, spark, table):
    frame = table.scan(where="id >= 2 and k != 'c'", select=["k"]).to_spark(spark)
    assert [tuple(row) for row in frame.collect()] == [("b",)]
