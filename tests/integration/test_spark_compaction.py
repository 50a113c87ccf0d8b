"""Compaction by Spark's workers: plain groups without shuffle, sorted, z-ordered; errors."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)
from pyspark.errors import UnsupportedOperationException

from lakehouse.errors import InvalidInputError, NoSuchFileError
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.spark import attach
from tests.integration.maintenance_support import contents, events, rows
from tests.integration.spark_support import lake
from tests.integration.test_avro_landing import EVENTS_AVRO, land

__all__ = ["lake"]

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "at", TimestamptzType(), required=False),
    NestedField(3, "price", DecimalType(9, 2), required=False),
    NestedField(
        4, "who", StructType(NestedField(5, "name", StringType(), required=False)), required=False
    ),
    NestedField(6, "key", UUIDType(), required=False),
    NestedField(7, "share", DoubleType(), required=False),
)
DAY = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)


def many_types(lake, **arguments):
    table = lake.create_table("raw.typed", SCHEMA, partition_by=["day(at)"], **arguments)
    for number in range(6):
        table.append(
            [
                pa.RecordBatch.from_pylist(
                    [
                        {
                            "id": 10 * number + row,
                            "at": None
                            if row == 3
                            else DAY + dt.timedelta(days=row % 2, minutes=number),
                            "price": Decimal(f"{row}.{number}0"),
                            "who": None if row == 4 else {"name": f"n{row}"},
                            "key": uuid.UUID(int=100 * number + row).bytes,
                            "share": [float("nan"), 0.5, None][row % 3],
                        }
                        for row in range(8)
                    ],
                    schema=pa.schema(
                        [
                            pa.field("id", pa.int64(), nullable=False),
                            ("at", pa.timestamp("us", tz="UTC")),
                            ("price", pa.decimal128(9, 2)),
                            ("who", pa.struct([("name", pa.string())])),
                            ("key", pa.binary(16)),
                            ("share", pa.float64()),
                        ]
                    ),
                )
            ]
        )
    return table


def multiset(table):
    return Counter(repr(row) for row in table.refresh().scan().to_arrow().to_pylist())


def stages_of(spark, work):
    """The result of `work`, and the stages of each Spark job; a shuffle makes it two."""
    group = str(uuid.uuid4())
    spark.sparkContext.setJobGroup(group, "counted")
    try:
        result = work()
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    tracker = spark.sparkContext.statusTracker()
    return result, [
        len(tracker.getJobInfo(job).stageIds) for job in tracker.getJobIdsForGroup(group)
    ]


def test_groups_are_tasks_and_nothing_is_shuffled(spark, lake):
    table = many_types(lake)
    expected = multiset(table)
    result, stages = stages_of(
        spark, lambda: table.compact(CompactionOptions(min_input_files=2), spark=spark)
    )
    assert (result.rewritten_files, result.added_files, len(result.snapshot_ids)) == (18, 3, 1)
    assert stages == [1]
    assert multiset(table) == expected
    assert table.health().data_files == 3


@pytest.mark.parametrize(
    "options", [{"sort_by": ("share desc", "id")}, {"zorder_by": ("id", "who.name", "share")}]
)
def test_arranged_groups_keep_rows_and_their_ids(spark, lake, options):
    table = many_types(lake, format_version=3)

    def identified():
        return sorted(
            tuple(row.values())
            for row in table.refresh().scan(select=["id", "_row_id"]).to_arrow().to_pylist()
        )

    expected, ids = multiset(table), identified()
    table.delete("id = 3")
    expected -= Counter([one for one in expected if "'id': 3," in one])
    ids = [one for one in ids if one[0] != 3]
    result = table.compact(
        CompactionOptions(min_input_files=2, rewrite_all=True, **options), spark=spark
    )
    assert result.stopped is None
    assert result.added_files == 3
    assert multiset(table) == expected
    assert identified() == ids


def test_files_of_an_earlier_spec_are_arranged_into_the_new_one(spark, lake):
    table = events(lake, partition_by=())
    for number in range(4):
        table.append(rows(range(10 * number, 10 * number + 10), region=f"r{number % 2}"))
    with table.update_partition_spec() as update:
        update.add("region")
    expected = contents(table)
    table.compact(CompactionOptions(sort_by=("id desc",)), spark=spark)
    assert contents(table) == expected
    assert sorted(file.partition for file in table.scan().plan().files) == [("r0",), ("r1",)]


def test_an_error_of_a_worker_arrives_as_what_it_is_and_changes_nothing(spark, lake):
    table = many_types(lake)
    version = table.metadata_location
    lost = next(iter(table.scan().plan().files)).file_path
    table.storage.delete([lost])
    with pytest.raises(NoSuchFileError, match=lost.rsplit("/", 1)[-1]):
        table.compact(CompactionOptions(min_input_files=2), spark=spark)
    assert table.refresh().metadata_location == version


def test_only_a_session_will_do(lake):
    with pytest.raises(InvalidInputError, match="SparkSession"):
        many_types(lake).compact(spark="local")


def test_landed_avro_is_named_until_workers_have_turned_it_into_parquet(spark, lake):
    table = land(
        events(lake),
        "a",
        EVENTS_AVRO,
        [{"id": 7, "was_called_zone": "r0", "amount": 1.5}],
        partition=("r0",),
    )
    with pytest.raises(
        UnsupportedOperationException, match=r"holds avro files.*lakehouse compact raw\.events"
    ):
        attach(spark, lake).table("raw.events").collect()
    table.compact(spark=spark)
    assert [tuple(row) for row in attach(spark, lake).table("raw.events").collect()] == [
        (7, "r0", 1.5)
    ]
