"""What users set for their sessions changes no rows: each setting beside the session as it is."""

from __future__ import annotations

import datetime as dt
import uuid

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from lakehouse.spark.reading.worker_reader import shown_frame
from tests.integration.spark_support import collected, configured, lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark

SETTINGS = [
    # it has no 2:30 on the day below, and hours that are no whole ones from UTC
    {"spark.sql.session.timeZone": "America/St_Johns"},
    {"spark.sql.timestampType": "TIMESTAMP_NTZ"},
    {"spark.sql.execution.arrow.useLargeVarTypes": "true"},
]
PAIRS = pa.map_(pa.string(), pa.int64())
MISSING = dt.datetime(2026, 3, 8, 2, 30)  # noqa: DTZ001 - a time of no zone
TYPED = Schema(
    ice.NestedField(1, "id", ice.LongType()),
    ice.NestedField(2, "wall", ice.TimestampType()),
    ice.NestedField(3, "at", ice.TimestamptzType()),
    ice.NestedField(4, "nanos", ice.TimestampNanoType()),
    ice.NestedField(5, "key", ice.UUIDType()),
    ice.NestedField(6, "t", ice.TimeType()),
    ice.NestedField(7, "walls", ice.ListType(8, ice.TimestampType(), element_required=False)),
    ice.NestedField(9, "raw", ice.FixedType(2)),
    ice.NestedField(
        10, "pairs", ice.MapType(11, ice.StringType(), 12, ice.LongType(), value_required=False)
    ),
)


@pytest.fixture
def typed(lake):
    table = lake.create_table("raw.typed", TYPED, properties={"format-version": "3"})
    rows = {
        "id": [1, 2],
        "wall": pa.array([MISSING, None], pa.timestamp("us")),
        "at": pa.array([MISSING.replace(tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
        "nanos": pa.array([1_772_937_000_000_000_001, None], pa.timestamp("ns")),
        "key": pa.array([uuid.UUID(int=7).bytes, None], pa.binary(16)),
        "t": pa.array([dt.time(2, 30), None], pa.time64("us")),
        "walls": pa.array([[MISSING, None], None], pa.list_(pa.timestamp("us"))),
        "raw": pa.array([b"ab", None], pa.binary(2)),
        "pairs": pa.array([[("k", None)], None], PAIRS),
    }
    table.append(pa.table(rows))
    return table


@pytest.mark.parametrize("setting", [{}, *SETTINGS], ids=str)
def test_rows_in_memory_are_shown_as_those_of_tables(setting, spark, session, typed):
    with configured(spark, setting):
        read, made = spark.table("lake.raw.typed"), shown_frame(spark, typed.scan().to_arrow())
        assert [(one.name, one.dataType) for one in made.schema] == [
            (one.name, one.dataType) for one in read.schema
        ]
        assert collected(made) == collected(read)
        assert made.where("wall = timestamp_ntz'2026-03-08 02:30:00'").count() == 1
        spark.sql(
            "CALL lake.system.create_changelog_view(table => 'raw.typed', changelog_view => 'came')"
        )
        came = spark.table("came").drop("_change_type", "_change_ordinal", "_commit_snapshot_id")
        assert collected(came.select(*read.columns)) == collected(read)
        # keys as filters of rows leave them, beside a map that is null
        deleted = pa.table({"m": pa.array([[("a", 1)], None, [("b", 2)]] * 9, PAIRS)}).take(
            [1, 0, 2, 4]
        )
        assert collected(shown_frame(spark, deleted)) == collected(
            spark.sql("VALUES (map('a', 1L)), (map('b', 2L)), (NULL), (NULL)")
        )
        empty = typed.scan("id > 9").to_arrow()
        assert shown_frame(spark, empty).dtypes == read.dtypes
