"""Spark writes: same rows, right partitions, right metrics, clear errors."""

from __future__ import annotations

import datetime as dt
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg import types as ice
from pyiceberg.table import StaticTable
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)

from lakehouse.errors import InvalidPropertyError, InvalidSchemaError
from lakehouse.spark.writing.distribution import SEED_ZERO, bucket_hash, transform_column
from lakehouse.spec.types.arrow_types import schema_from_arrow
from tests.integration.spark_support import collected, configured, lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark

UTC = dt.UTC


def frame_of(spark, table):
    return spark.createDataFrame(table)


def sample():
    chance = random.Random(7)
    start = dt.datetime(1969, 12, 31, tzinfo=UTC)
    rows = 600
    moments = [
        start
        + dt.timedelta(
            seconds=chance.randrange(3 * 86400), microseconds=chance.randrange(1_000_000)
        )
        for _ in range(rows)
    ]
    return pa.table(
        {
            "id": pa.array(range(rows)),
            "event_ts": pa.array(
                [None if n % 50 == 7 else m for n, m in enumerate(moments)],
                pa.timestamp("us", "UTC"),
            ),
            "user_id": pa.array(
                [None if n % 40 == 3 else chance.randrange(-50, 50) for n in range(rows)],
                pa.int64(),
            ),
            "name": pa.array(
                [None if n % 30 == 2 else f"é{chance.randrange(100)}" for n in range(rows)]
            ),
            "score": pa.array([chance.random() for _ in range(rows)]),
        }
    )


@pytest.mark.parametrize("mode", ["none", "hash", "range"])
def test_modes_keep_every_row_and_its_partition(lake, session, mode):
    data = sample()
    table = lake.create_table(
        "w.modes",
        data.schema,
        partition_by=["day(event_ts)", "bucket(2, user_id)"],
        sort_by=["user_id"],
        properties={"write.distribution-mode": mode},
    )
    table.append(frame_of(session.spark, data).repartition(4))
    assert table.scan().to_arrow().sort_by("id").equals(data.cast(table.scan().to_arrow().schema))
    plan = table.refresh().scan().plan()
    assert sum(file.record_count for file in plan.files) == 600
    partitions = [file.partition for file in plan.files]
    if mode == "none":
        assert len(partitions) > len(set(partitions))
    if mode == "hash":
        assert len(partitions) == len(set(partitions))
    foreign = StaticTable.from_metadata(table.metadata_location).scan().to_arrow().sort_by("id")
    assert foreign["id"].to_pylist() == data["id"].to_pylist()
    assert foreign["name"].to_pylist() == data["name"].to_pylist()


def test_files_are_where_their_partition_says_and_sorted(lake, session):
    data = sample()
    table = lake.create_table(
        "w.sorted", data.schema, partition_by=["bucket(3, user_id)"], sort_by=["score"]
    )
    table.append(frame_of(session.spark, data))
    transform = BucketTransform(3).transform(ice.LongType())
    for file in table.scan().plan().files:
        rows = read_parquet(file)
        assert {transform(value) for value in rows["user_id"].to_pylist()} == {file.partition[0]}
        assert rows["score"].to_pylist() == sorted(rows["score"].to_pylist())


def read_parquet(file):
    import pyarrow.parquet as pq

    return pq.ParquetFile(file.file_path.removeprefix("file://")).read()


def test_an_unknown_mode_is_refused(lake, session):
    data = sample()
    with pytest.raises(InvalidPropertyError, match=r"write\.distribution-mode"):
        lake.create_table(
            "w.bad",
            data.schema,
            partition_by=["name"],
            properties={"write.distribution-mode": "magic"},
        ).append(frame_of(session.spark, data))


def test_the_seed_of_spark_hash_can_be_made_zero(spark):
    assert spark.sql(f"SELECT hash({SEED_ZERO})").first()[0] == 0


HASHED = {
    "bigint": (ice.LongType(), [0, 1, -1, 34, 2**62, -(2**63), None]),
    "int": (ice.IntegerType(), [0, 1, -1, 34, 2**31 - 1, -(2**31), None]),
    "date": (
        ice.DateType(),
        [dt.date(1970, 1, 1), dt.date(2017, 11, 16), dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
    ),
    "timestamp": (
        ice.TimestamptzType(),
        [
            dt.datetime(2017, 11, 16, 22, 31, 8, 1, UTC),
            dt.datetime(1960, 1, 1, 0, 0, 0, 7, UTC),
            None,
        ],
    ),
}


@pytest.mark.parametrize("kind", HASHED)
def test_native_bucket_equals_pyiceberg(spark, kind):
    iceberg, values = HASHED[kind]
    arrow = {
        "bigint": pa.int64(),
        "int": pa.int32(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
    }[kind]
    rows = spark.createDataFrame(pa.table({"v": pa.array(values, arrow)}))
    from pyspark.sql import functions as F  # noqa: N812

    found = [
        row[0]
        for row in rows.select(
            bucket_hash(F.col("v"), iceberg).bitwiseAND(F.lit(0x7FFFFFFF)) % F.lit(97)
        ).collect()
    ]
    raw = (
        pa.array(values, arrow)
        .cast(pa.int32() if kind == "date" else pa.int64() if kind == "timestamp" else arrow)
        .to_pylist()
    )
    assert found == [BucketTransform(97).transform(iceberg)(value) for value in raw]


KEYED = {
    "id": [IdentityTransform(), BucketTransform(5), TruncateTransform(7)],
    "event_ts": [
        YearTransform(),
        MonthTransform(),
        DayTransform(),
        HourTransform(),
        BucketTransform(5),
    ],
    "local": [
        YearTransform(),
        MonthTransform(),
        DayTransform(),
        HourTransform(),
        BucketTransform(5),
    ],
    "name": [IdentityTransform(), BucketTransform(5), TruncateTransform(2)],
    "price": [BucketTransform(5), TruncateTransform(50)],
}


def test_keys_are_equal_exactly_when_the_partition_is_and_in_its_order(spark):
    data = sample().slice(0, 200)
    data = data.append_column("local", data["event_ts"].cast(pa.timestamp("us")))
    data = data.append_column(
        "price", pc.cast(data["user_id"], pa.decimal128(19, 0)).cast(pa.decimal128(21, 2))
    )
    schema = schema_from_arrow(data.schema)
    arrow_frame = spark.createDataFrame(data.drop_columns(["local"])).selectExpr(
        "*", "to_timestamp_ntz(event_ts) AS local"
    )
    from lakehouse.expressions.transforms.partition_transforms import transform_array

    cases = [(name, transform) for name, transforms in KEYED.items() for transform in transforms]
    keys = [
        transform_column(t, schema, schema.find_field(name).field_id).alias(f"k{i}")
        for i, (name, t) in enumerate(cases)
    ]
    with configured(spark, {"spark.sql.session.timeZone": "UTC"}):
        rows = {row.id: row for row in arrow_frame.select("id", *keys).collect()}
    for number, (name, transform) in enumerate(cases):
        field = schema.find_field(name)
        expected = transform_array(
            transform, data[name].combine_chunks(), field.field_type
        ).to_pylist()
        pairs = {
            (rows[i][number + 1], value)
            for i, value in zip(data["id"].to_pylist(), expected, strict=True)
        }
        assert len({key for key, _ in pairs}) == len({value for _, value in pairs}) == len(pairs), (
            name,
            transform,
        )


@pytest.mark.parametrize("mode", ["hash", "range"])
def test_a_frame_may_leave_out_what_partitions_and_sorts(lake, session, spark, mode):
    place = pa.struct([("x", pa.int32()), ("y", pa.string())])
    table = lake.create_table(
        f"w.less_{mode}",
        pa.schema([("id", pa.int64()), ("p", place), ("d", pa.date32())]),
        partition_by=["p.y", "bucket(2, id)", "month(d)"],
        sort_by=["d", "id"],
        properties={"write.distribution-mode": mode},
    )
    table.append(spark.sql("SELECT 1L AS id"))
    table.append(spark.sql("SELECT 2L AS id, named_struct('x', 7) AS p"))
    table.append(
        spark.sql("SELECT named_struct('y', 'k', 'x', 8) AS p, DATE '2026-01-01' AS d, 3L AS id")
    )
    assert sorted((row["id"], str(row["p"])) for row in table.scan().to_arrow().to_pylist()) == [
        (1, "None"), (2, "{'x': 7, 'y': None}"), (3, "{'x': 8, 'y': 'k'}"),
    ]  # fmt: skip
    assert collected(session.table(table.name).where("p.y IS NULL").select("id")) == [(1,), (2,)]


def test_a_frame_that_does_not_fit_is_refused_before_the_job(lake, session, spark):
    table = lake.create_table("w.fit", pa.schema([("id", pa.int64())]))
    with pytest.raises(InvalidSchemaError, match="bogus"):
        table.append(spark.range(3).selectExpr("id", "id AS bogus"))
    assert table.refresh().current_snapshot() is None


def test_a_value_that_does_not_fit_is_a_typed_error_and_leaves_nothing(
    lake, session, spark, tmp_path
):
    table = lake.create_table("w.value", pa.schema([("id", pa.int32())]))
    with pytest.raises(InvalidSchemaError, match=r"'id'.*3000000000"):
        table.append(spark.range(1).selectExpr("id + 3000000000 AS id"))
    assert list(tmp_path.rglob("*.parquet")) == []


def test_overwrite_and_round_trip_through_spark(lake, session, spark):
    data = sample()
    table = lake.create_table("w.round", data.schema, partition_by=["day(event_ts)"])
    table.append(frame_of(spark, data))
    kept = session.table("w.round").where("event_ts IS NOT NULL AND event_ts < '1970-01-01'")
    table.overwrite(
        kept.selectExpr("id + 10000 AS id", "event_ts", "user_id", "name", "score"),
        where="event_ts < '1970-01-01T00:00:00+00:00'",
    )
    before = pc.sum(pc.less(data["event_ts"], dt.datetime(1970, 1, 1, tzinfo=UTC))).as_py()
    assert session.table("w.round").where("id >= 10000").count() == before
    assert session.table("w.round").count() == 600


def test_a_spark_schema_makes_a_table(lake, session, spark):
    frame = spark.sql(
        "SELECT 1L AS id, timestamp'2026-01-01 00:00:00' AS at, named_struct('x', array(1)) AS s, "
        "CAST(1 AS SMALLINT) AS small"
    )
    table = lake.create_table("w.schema", frame.schema, partition_by=["day(at)"])
    table.append(frame)
    assert collected(session.table("w.schema")) == collected(frame)


def test_an_empty_frame_adds_no_file(lake, session, spark):
    table = lake.create_table("w.empty", pa.schema([("id", pa.int64())]), partition_by=["id"])
    table.append(spark.range(0))
    assert session.table("w.empty").count() == 0
    assert list(table.refresh().scan().plan().files) == []
