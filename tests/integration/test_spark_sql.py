"""session.sql: names, time travel, refs, metadata tables."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from lakehouse.errors import InvalidInputError, NoSuchRefError, NoSuchSnapshotError, NoSuchTableError, UnsupportedFeatureError
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
    assert one(session, f"SELECT count(*) FROM raw.events VERSION AS OF {second} AS e WHERE e.id > 1") == 2
    assert one(session, "SELECT count(*) FROM raw.events VERSION AS OF 'first'") == 2
    assert one(session, f"SELECT count(*) FROM raw.events FOR TIMESTAMP AS OF '{between.isoformat()}'") == 2
    both = f"SELECT count(*) FROM raw.events a JOIN raw.events FOR VERSION AS OF {first} b ON a.id = b.id"
    assert one(session, both) == 2
    assert one(session, "SELECT max(raw.events.id) FROM raw.events WHERE raw.events.k < 'c'") == 2
    assert one(session, "WITH e AS (SELECT * FROM raw.events) SELECT sum(id) FROM e") == 6


def test_metadata_tables(session, table):
    assert one(session, "SELECT count(*) FROM raw.events.snapshots") == 2
    assert one(session, "SELECT sum(record_count) FROM raw.events.files") == 3
    assert session.table("raw.events.refs").count() == 2


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


def test_writing_is_refused(session, table):
    with pytest.raises(UnsupportedFeatureError, match="append"):
        session.sql("INSERT INTO raw.events SELECT 9, 'z'")


def test_scan_to_spark_carries_its_filter_and_projection(session, spark, table):
    frame = table.scan(where="id >= 2 and k != 'c'", select=["k"]).to_spark(spark)
    assert [tuple(row) for row in frame.collect()] == [("b",)]
