"""What users set for their sessions changes no rows: each setting beside the session as it is."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from lakehouse.lake import load_catalog
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


@pytest.mark.parametrize("setting", [{}, *SETTINGS], ids=str)
def test_rows_are_written_as_they_were_read(setting, spark, session, lake, typed):
    properties = {"format-version": "3"}
    lake.create_table("raw.copy", TYPED, properties=properties, partition_by=["day(wall)"])
    with configured(spark, setting):
        spark.sql("INSERT INTO lake.raw.copy SELECT * FROM lake.raw.typed")
        lake.load_table("raw.copy").append(spark.table("lake.raw.typed"))
        spark.sql("UPDATE lake.raw.copy SET raw = raw WHERE id = 1")
    rows = lake.load_table("raw.copy").scan().to_arrow().sort_by("id")
    assert rows == typed.scan().to_arrow().take([0, 0, 1, 1])


READERS = [
    {"spark.sql.parquet.enableVectorizedReader": "false"},
    {"spark.sql.parquet.enableNestedColumnVectorizedReader": "false"},
    {"spark.sql.codegen.wholeStage": "false"},
    {"spark.sql.codegen.maxFields": "2"},
    {"spark.sql.parquet.fieldId.read.enabled": "false", "spark.sql.caseSensitive": "true"},
]


@pytest.fixture
def evolved(lake, session, spark):
    """Files of before, each with deletes: renamed, promoted, dropped and added columns."""
    words = pa.struct([("x", pa.int32()), ("f", pa.float32())])
    rows = pa.table({
        "id": pa.array(range(1, 9), pa.int32()),
        "ratio": pa.array([0.5, -0.0, None, float("nan"), 4, 5, 6, 7], pa.float32()),
        "price": pa.array([1.5, float("inf"), None, 3, 4, 5, 6, 7]),
        "cost": pa.array([None, *map(Decimal, range(7))], pa.decimal128(6, 2)),
        "born": pa.array([dt.date(1500, 1, 1), None, *[dt.date(2026, 1, 1)] * 6]),
        "gone": pa.array([f"old {n}" for n in range(8)]),
        "nested": pa.array([{"x": 1, "f": 1.5}, None] * 4, words),
        "list": pa.array([[{"x": 1, "f": 2.5}], [], None, [None]] * 2, pa.list_(words)),
        "pairs": pa.array([[("k", {"x": 3, "f": 0.5})], None] * 4, pa.map_(pa.string(), words)),
    })  # fmt: skip
    properties = {"format-version": "3", "write.delete.mode": "merge-on-read"}
    lake.create_table("raw.evolved", rows.schema, properties=properties).append(rows)
    lake.load_table("raw.evolved").delete("id = 5")
    for change in (
        "ALTER COLUMN id TYPE bigint", "ALTER COLUMN ratio TYPE double",
        "ALTER COLUMN cost TYPE decimal(30, 2)", "RENAME COLUMN price TO ratio_of_price",
        "RENAME COLUMN nested.x TO y", "ALTER COLUMN nested.y TYPE bigint",
        "RENAME COLUMN list.element.f TO g", "ALTER COLUMN list.element.g TYPE double",
        "RENAME COLUMN pairs.value.x TO f2", "DROP COLUMN gone", "ADD COLUMN gone string",
        "ADD COLUMN price string", "ADD COLUMN nested.x string", "ADD COLUMN `Id` int",
    ):  # fmt: skip
        with configured(spark, {"spark.sql.caseSensitive": "true"}):
            spark.sql(f"ALTER TABLE lake.raw.evolved {change}")
    return lake.load_table("raw.evolved")


@pytest.mark.parametrize("setting", READERS, ids=str)
def test_a_reader_of_rows_gives_what_one_of_columns_gives(setting, spark, evolved):
    sensitive = {"spark.sql.caseSensitive": "true"}

    def asked():
        frame = spark.table("lake.raw.evolved")
        return [
            collected(part)
            for part in (
                frame,
                frame.select("ratio_of_price", "id", "_file", "_pos", "_row_id", "_deleted"),
                frame.where("ratio > 0 and id < 7"),
                frame.selectExpr(
                    "nested.y", "nested.x", "get(list, 0).g", "try_element_at(pairs, 'k').f2"
                ),
                frame.groupBy("gone", "price").agg({"cost": "sum", "ratio_of_price": "max"}),
            )
        ]

    with configured(spark, sensitive):
        by_columns = asked()
        rows = {row["id"]: row for row in evolved.scan().to_arrow().to_pylist()}
        assert [
            row.ratio_of_price for row in spark.table("lake.raw.evolved").orderBy("id").collect()
        ] == [rows[number]["ratio_of_price"] for number in sorted(rows)]
    with configured(spark, sensitive | setting):
        assert repr(asked()) == repr(by_columns)


@pytest.mark.slow
def test_names_of_files_are_utf8_where_the_locale_says_nothing(tmp_path: Path) -> None:
    """`LC_ALL=C`, as some images and cron have it: the JVM reads and writes what Python does."""
    program = """
import sys
from lakehouse.spark import build_session
warehouse = sys.argv[1]
spark = build_session("t", master="local[1]", catalogs={"lake": warehouse})
spark.sql("CREATE NAMESPACE lake.raw")
spark.sql("CREATE TABLE lake.raw.t PARTITIONED BY (stadt) AS SELECT id, 'Łódź' stadt FROM range(3)")
spark.sql("INSERT INTO lake.raw.t VALUES (3, '東京')")
spark.sql("DELETE FROM lake.raw.t WHERE id = 1")
print(sorted(tuple(row) for row in spark.table("lake.raw.t").collect()))
"""
    warehouse = tmp_path / "lager-ü中"
    done = subprocess.run(
        [sys.executable, "-c", program, f"file://{warehouse}"],
        env=os.environ | {"LC_ALL": "C", "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [(0, "Łódź"), (2, "Łódź"), (3, "東京")]
    assert done.stdout.splitlines()[-1] == str(rows)
    table = load_catalog(f"file://{warehouse}").load_table("raw.t")
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": id_, "stadt": stadt} for id_, stadt in rows
    ]
