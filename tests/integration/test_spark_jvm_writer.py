"""The JVM's writer beside the Python workers: same rows, partitions, folders and metrics.

And what neither of them does.
"""

from __future__ import annotations

import datetime as dt
import random
import subprocess
import sys
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from lakehouse.errors import InvalidInputError, InvalidSchemaError, StorageError
from lakehouse.spark.spark_types import to_spark_schema
from lakehouse.spark.writing.distribution import distribute
from lakehouse.spark.writing.frame_files import written_files
from lakehouse.spark.writing.native_files import frame_obstacle, write_in_jvm
from lakehouse.spec.partitioning.partition_terms import partition_path
from tests.integration.spark_support import configured, lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark

UTC = dt.UTC
ROWS = 250
MINUTES = [-900_000_000, -50_000, -1, 0, 4000]
DECIMAL = pa.decimal128(22, 2)
INSTANT = pa.timestamp("us", "UTC")
NESTED = pa.struct([("x", pa.int64()), ("words", pa.list_(pa.string())), ("f", pa.float32())])


def data(seed: int) -> pa.Table:
    chance = random.Random(seed)

    def column(make, kind, nulls=0.1):
        return pa.array([None if chance.random() < nulls else make() for _ in range(ROWS)], kind)

    floats = [0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf"), 1e-300, 0.1]
    day = dt.date(1969, 12, 30)
    # Of the columns that have no zone as well.
    moments = dt.datetime(1969, 12, 30, 22)  # noqa: DTZ001
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "flag": column(lambda: chance.random() < 0.5, pa.bool_()),
            "small": column(
                lambda: chance.choice([-(2**31), 2**31 - 1, *range(-5, 5)]), pa.int32()
            ),
            "ratio": column(lambda: chance.choice(floats), pa.float32()),
            "price": column(lambda: chance.choice(floats), pa.float64()),
            "quiet": pa.array([float("nan")] * ROWS, pa.float64()),
            "cost": column(lambda: chance.randrange(-(10**9), 10**9), pa.int64())
            .cast(pa.decimal128(20, 0))
            .cast(DECIMAL),
            "day": column(
                lambda: day + dt.timedelta(days=chance.choice([-500000, -3, 0, 1, 40, 400])),
                pa.date32(),
            ),
            "at": column(
                lambda: moments + dt.timedelta(microseconds=chance.randrange(30 * 3600 * 10**6)),
                INSTANT,
            ),
            "local": column(
                lambda: moments + dt.timedelta(minutes=chance.choice(MINUTES)), pa.timestamp("us")
            ),
            "name": column(
                lambda: chance.choice(["", "a b/c=d", "é€", "日本" * 30, "x" * 250, "~*+.%"]),
                pa.string(),
            ),
            "raw": column(lambda: bytes(chance.choices(range(256), k=5)), pa.binary()),
            "nested": column(
                lambda: {
                    "x": chance.randrange(9),
                    "words": ["u", None],
                    "f": chance.choice(floats),
                },
                NESTED,
            ),
            "pairs": column(
                lambda: [("k", chance.choice(floats))], pa.map_(pa.string(), pa.float64())
            ),
        }
    )


SPECS = {
    "none": ([], []),
    "day and bucket": (["day(at)", "bucket(3, small)"], []),
    "calendar": (["year(day)", "month(local)", "hour(at)"], ["at", "id desc"]),
    "texts": (["name", "truncate(2, name)", "flag"], ["name desc nulls last"]),
    "dates": (["day", "bucket(4, at)", "bucket(2, day)"], ["small"]),
    "months": (["month(at)", "day(local)", "nested.x"], ["id"]),
    "buckets": (["bucket(4, name)", "bucket(3, cost)", "bucket(2, raw)", "bucket(5, local)"], []),
    "widths": (["truncate(1000, cost)", "truncate(1, raw)"], []),
    "values": (["cost", "at", "raw"], []),
    "numbers": (["truncate(100, id)", "hour(local)", "month(day)"], []),
}


def both(spark, table, frame):
    """The files that each of the writers makes for the frame."""
    requests = [table.write_request(), table.write_request()]
    assert frame_obstacle(frame, requests[0], table.storage) is None
    ours = write_in_jvm(frame, requests[0])
    theirs = written_files(distribute(frame, requests[1]), requests[1], table.storage)
    return ours, theirs


def rows_of(files):
    """Rows of files by partition, in an order of their own."""
    found = {}
    for file in files:
        rows = pq.ParquetFile(file.file_path.removeprefix("file://")).read()
        assert rows.num_rows == file.record_count
        found.setdefault(file.partition_key, []).extend(repr(row) for row in rows.to_pylist())
    return {key: sorted(rows) for key, rows in found.items()}


METRICS = (
    "record_count",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
)


@pytest.mark.parametrize(
    ("spec", "zone"), [*((spec, "UTC") for spec in SPECS), ("calendar", "America/New_York")]
)
def test_both_writers_make_the_same_files(lake, spark, spec, zone, tmp_path):
    given = data(hash(spec) % 1000)
    partition_by, sort_by = SPECS[spec]
    table = lake.create_table("j.same", given.schema, partition_by=partition_by, sort_by=sort_by)
    pq.write_table(given, tmp_path / "given.parquet")
    with configured(spark, {"spark.sql.session.timeZone": zone}):
        frame = spark.read.parquet(str(tmp_path / "given.parquet")).coalesce(1)
        ours, theirs = both(spark, table, frame)
    assert rows_of(ours) == rows_of(theirs)
    expected = {one.partition_key: one for one in theirs}
    assert len(ours) == len(expected) == len({one.partition_key for one in ours})
    for file in ours:
        peer = expected[file.partition_key]
        for name in METRICS:
            assert getattr(file, name) == getattr(peer, name), (name, file.partition)
        assert file.sort_order_id == peer.sort_order_id
        assert file.file_size_in_bytes == table.storage.size(file.file_path)
        folder = partition_path(table.metadata.spec(), table.metadata.schema(), file.partition)
        # the folder is for people: of instants it holds the number
        if "at" not in partition_by and all(len(part) <= 200 for part in folder.split("/")):
            assert file.file_path.startswith(
                f"{table.location}/data/{folder}/" if folder else f"{table.location}/data/00000-"
            )
    if sort_by:
        for file in ours:
            mine, other = (
                pq.ParquetFile(one.file_path.removeprefix("file://")).read()
                for one in (file, expected[file.partition_key])
            )
            for term in sort_by:
                column = term.split("(")[-1].split(")")[0].split()[0]
                if term == sort_by[0] and "(" not in term:
                    assert mine[column].to_pylist() == other[column].to_pylist(), file.partition


def test_what_is_written_is_read_by_others_and_pruned(lake, spark, session):
    given = data(5)
    table = lake.create_table("j.read", given.schema, partition_by=["day(at)", "bucket(2, id)"])
    table.append(spark.createDataFrame(given.drop_columns(["local"])))
    assert (
        frame_obstacle(
            spark.createDataFrame(given.drop_columns(["local"])),
            table.write_request(),
            table.storage,
        )
        is None
    )
    foreign = StaticTable.from_metadata(table.metadata_location).scan().to_arrow().sort_by("id")
    assert foreign["name"].to_pylist() == given["name"].to_pylist()
    assert repr(foreign["nested"].to_pylist()) == repr(given["nested"].to_pylist())
    where = "at >= '1969-12-31T00:00:00+00:00' and at < '1970-01-01T00:00:00+00:00'"
    plan = table.scan(where).plan()
    assert 0 < len(plan.files) < len(table.scan().plan().files)
    first, last = dt.datetime(1969, 12, 31, tzinfo=UTC), dt.datetime(1970, 1, 1, tzinfo=UTC)
    expected = [
        one["id"]
        for one in given.to_pylist()
        if one["at"] is not None and first <= one["at"] < last
    ]
    assert sorted(table.scan(where, select=["id"]).to_arrow()["id"].to_pylist()) == expected
    assert session.table("j.read").where("ratio < -1").count() == sum(
        1 for value in given["ratio"].to_pylist() if value is not None and value < -1
    )


def test_more_partitions_than_open_files_are_sorted_into_one_file_each(lake, spark):
    table = lake.create_table(
        "j.many",
        pa.schema([("id", pa.int64()), ("key", pa.int64())]),
        partition_by=["key"],
        properties={"write.distribution-mode": "none"},
    )
    frame = spark.range(0, 6000, 1, 1).selectExpr("id", "(id * 7919) % 300 AS key")
    files = write_in_jvm(frame, table.write_request())
    assert len(files) == 300
    assert {file.partition: file.record_count for file in files} == {
        (key,): 20 for key in range(300)
    }
    for file in files[::50]:
        rows = pq.ParquetFile(file.file_path.removeprefix("file://")).read()
        assert sorted(rows["id"].to_pylist()) == [
            one for one in range(6000) if (one * 7919) % 300 == file.partition[0]
        ]


def test_many_partitions_of_a_sorted_table_stay_sorted(lake, spark):
    table = lake.create_table(
        "j.order",
        pa.schema([("id", pa.int64()), ("key", pa.int64())]),
        partition_by=["key"],
        sort_by=["id desc"],
        properties={"write.distribution-mode": "none"},
    )
    files = write_in_jvm(
        spark.range(0, 3000, 1, 1).selectExpr("id", "(id * 7919) % 150 AS key"),
        table.write_request(),
    )
    assert [file.partition[0] for file in files] == list(range(150)), (
        "one after the other, as the rows came: never sorted again"
    )
    for file in files:
        found = pq.ParquetFile(file.file_path.removeprefix("file://")).read()["id"].to_pylist()
        assert found == [
            one for one in range(2999, -1, -1) if (one * 7919) % 150 == file.partition[0]
        ]


def test_files_end_at_the_target_size(lake, spark):
    table = lake.create_table(
        "j.sized",
        pa.schema([("id", pa.int64()), ("text", pa.string())]),
        properties={
            "write.target-file-size-bytes": "400000",
            "write.parquet.page-size-bytes": "8192",
        },
    )
    table.append(spark.range(0, 60_000, 1, 1).selectExpr("id", "sha1(CAST(id AS STRING)) AS text"))
    sizes = [file.file_size_in_bytes for file in table.scan().plan().files]
    assert len(sizes) > 3
    assert all(300_000 < size < 600_000 for size in sizes[:-1]), sizes
    assert table.scan().to_arrow().num_rows == 60_000


def test_a_value_that_a_transform_cannot_take_is_a_typed_error(lake, spark):
    table = lake.create_table(
        "j.edge", pa.schema([("id", pa.int64())]), partition_by=["truncate(7, id)"]
    )
    frame = spark.sql("SELECT -9223372036854775808 AS id")
    assert frame_obstacle(frame, table.write_request(), table.storage) is None
    with pytest.raises(InvalidInputError, match="outside its result type"):
        table.append(frame)


def test_widened_missing_and_defaulted_columns(lake, spark):
    table = lake.create_table(
        "j.wide",
        pa.schema([("id", pa.int64()), ("ratio", pa.float64()), ("name", pa.string())]),
        format_version=3,
    )
    with table.update_schema() as update:
        update.add_column("country", "string", default="unknown")
    frame = spark.sql("SELECT CAST(7 AS SMALLINT) AS id, CAST(0.1 AS FLOAT) AS ratio")
    assert frame_obstacle(frame, table.refresh().write_request(), table.storage) is None
    table.append(frame)
    assert table.scan().to_arrow().to_pylist() == [
        {"id": 7, "ratio": float(np.float32(0.1)), "name": None, "country": "unknown"}
    ]


def test_a_null_in_a_required_column_is_a_typed_error_and_leaves_nothing(lake, spark, tmp_path):
    table = lake.create_table(
        "j.required", pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    )
    frame = spark.range(0, 5000, 1, 1).selectExpr("nullif(id, 4321) AS id", "'n' AS name")
    assert frame_obstacle(frame, table.write_request(), table.storage) is None
    with pytest.raises(InvalidSchemaError, match=r"'id' of table j\.required is required but null"):
        table.append(frame)
    assert list(tmp_path.rglob("*.parquet")) == []
    assert table.refresh().current_snapshot() is None


def test_a_query_that_fails_leaves_nothing_and_says_what_it_said(lake, spark, tmp_path):
    table = lake.create_table("j.fails", pa.schema([("id", pa.int64())]))
    with pytest.raises(Exception, match="four thousand"):
        table.append(
            spark.range(0, 5000, 1, 1).selectExpr(
                "if(id = 4000, raise_error('four thousand'), id) AS id"
            )
        )
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_folder_that_cannot_be_made_is_a_storage_error(lake, spark):
    table = lake.create_table("j.folder", pa.schema([("id", pa.int64())]), partition_by=["id"])
    from pathlib import Path

    (Path(table.location.removeprefix("file://")) / "data").write_text(
        "a file where the folder should be"
    )
    with pytest.raises(StorageError, match="cannot write"):
        table.append(spark.range(3))


def test_settings_of_the_session_do_not_change_files(lake, spark):
    asked = {
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.writeLegacyFormat": "true",
        "spark.sql.parquet.fieldId.write.enabled": "false",
    }
    table = lake.create_table("j.settings", data(1).schema)
    with configured(spark, asked):
        table.append(spark.createDataFrame(data(1).drop_columns(["local"])).coalesce(1))
    (file,) = table.scan().plan().files
    assert (
        pq.ParquetFile(file.file_path.removeprefix("file://")).schema.column(8).physical_type
        == "INT64"
    )
    found = table.scan(select=["id", "day", "at", "cost"]).to_arrow().sort_by("id")
    for name in ("day", "at", "cost"):
        assert found[name].to_pylist() == data(1)[name].to_pylist()


def test_types_that_spark_lacks_are_written_as_arrow_writes_them(lake, spark):
    chance = random.Random(3)
    values = {
        "u": pa.array([uuid.UUID(int=chance.getrandbits(128)).bytes for _ in range(50)], pa.uuid()),
        "t": pa.array([chance.randrange(86_400_000_000) for _ in range(50)], pa.time64("us")),
        "f": pa.array([bytes(chance.choices(range(256), k=3)) for _ in range(50)], pa.binary(3)),
    }
    given = pa.table({"id": pa.array(range(50), pa.int64()), **values})
    partition_by = ["bucket(3, u)", "bucket(2, t)", "bucket(2, f)"]
    theirs = lake.create_table("j.theirs", given.schema, partition_by=partition_by)
    theirs.append(given)
    ours = lake.create_table("j.ours", given.schema, partition_by=partition_by)
    text = [str(uuid.UUID(bytes=one)) for one in values["u"].storage.to_pylist()]
    frame = spark.createDataFrame(
        pa.table(
            {
                **dict(zip(given.column_names, given.columns, strict=True)),
                "u": text,
                "f": values["f"].cast(pa.binary()),
            }
        )
    )
    assert frame_obstacle(frame, ours.write_request(), ours.storage) is None
    ours.append(frame)
    assert ours.scan().to_arrow().sort_by("id") == given
    expected = {file.partition: file for file in theirs.scan().plan().files}
    files = ours.scan().plan().files
    assert {file.partition: file.record_count for file in files} == {
        key: file.record_count for key, file in expected.items()
    }


@pytest.mark.parametrize(
    ("schema", "partition_by", "properties", "why"),
    [
        ({"u": pa.uuid()}, [], {}, "binary in the frame and string"),
        ({"i": pa.int32()}, [], {"write.parquet.compression-codec": "brotli"}, "brotli"),
    ],
)
def test_what_it_cannot_write_is_said_and_written_by_python(
    lake, spark, schema, partition_by, properties, why
):
    table = lake.create_table(
        "j.other", pa.schema(list(schema.items())), partition_by=partition_by, properties=properties
    )
    shown = to_spark_schema(table.metadata.schema())
    frame = spark.createDataFrame([(None,)] * 3, shown)
    assert why in frame_obstacle(frame, table.write_request(), table.storage)
    table.append(frame)
    assert table.scan().to_arrow().num_rows == 3


def test_a_frame_that_must_be_checked_value_by_value_goes_through_python(lake, spark):
    table = lake.create_table("j.narrow", pa.schema([("id", pa.int32())]))
    assert "bigint in the frame and int" in frame_obstacle(
        spark.range(3), table.write_request(), table.storage
    )
    table.append(spark.range(3))
    assert table.scan().to_arrow()["id"].to_pylist() == [0, 1, 2]


ELSEWHERE = """
import sys
from lakehouse.lake import load_catalog
from lakehouse.spark import build_session
from lakehouse.spark.writing.native_files import frame_obstacle

spark = build_session("elsewhere", master="local-cluster[1,1,1024]")
table = load_catalog(sys.argv[1]).load_table("j.elsewhere")
frame = spark.range(0, 5000, 1, 2).selectExpr("id", "id % 5 AS key")
assert frame_obstacle(frame, table.write_request(), table.storage) is None
table.append(frame)
spark.stop()
"""


def test_executors_in_processes_of_their_own_get_the_classes(lake, tmp_path):
    table = lake.create_table(
        "j.elsewhere", pa.schema([("id", pa.int64()), ("key", pa.int64())]), partition_by=["key"]
    )
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, f"file://{tmp_path}/warehouse"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    table.refresh()
    assert sorted(file.partition for file in table.scan().plan().files) == [
        (key,) for key in range(5)
    ]
    assert sorted(table.scan(select=["id"]).to_arrow()["id"].to_pylist()) == list(range(5000))


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "uncompressed"])
def test_codecs_are_those_that_the_table_asks_for(lake, spark, codec):
    table = lake.create_table(
        "j.codec",
        pa.schema([("id", pa.int64()), ("text", pa.string())]),
        properties={"write.parquet.compression-codec": codec},
    )
    frame = spark.range(0, 500, 1, 1).selectExpr("id", "'the same text' AS text")
    assert frame_obstacle(frame, table.write_request(), table.storage) is None
    table.append(frame)
    (file,) = table.scan().plan().files
    found = pq.ParquetFile(file.file_path.removeprefix("file://"))
    assert found.metadata.row_group(0).column(0).compression.lower() == codec
    assert found.read()["id"].to_pylist() == list(range(500))
