"""The JVM's writer on Hadoop's file systems.

Here it is one of Hadoop's own, which keeps `s3a://` on disk. S3A itself is 660 MB of JARs;
`benchmarks/spark_s3.py` and `make cluster` write through it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse.errors import InvalidSchemaError, StorageError
from lakehouse.spark.spark_types import to_spark_schema
from lakehouse.spark.writing.frame_files import write_data_files
from lakehouse.spark.writing.native_files import frame_obstacle, write_in_jvm
from lakehouse.storage.storage_by_scheme import storage_for
from tests.integration.spark_support import configured, lake, session
from tests.integration.test_spark_jvm_writer import METRICS, data

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark
OVERLOADED = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"


@pytest.fixture
def bucket(spark, tmp_path: Path):
    """`s3a://bucket/` on this disk."""
    folder = tmp_path / "bucket"
    folder.mkdir()
    asked = {
        "fs.s3a.impl": OVERLOADED,
        "fs.s3a.impl.disable.cache": "true",
        "fs.viewfs.overload.scheme.target.s3a.impl": OVERLOADED,
        "fs.viewfs.mounttable.bucket.link./t": folder.as_uri(),
    }
    with configured(spark, asked):
        yield folder


def _in_bucket(table, write_id: str = "w"):
    return replace(table.write_request(), location="s3a://bucket/t/data", write_id=write_id)


def test_objects_are_the_files_of_a_disk(lake, spark, bucket: Path) -> None:
    rows = data(3)
    table = lake.create_table("o.same", rows.schema, partition_by=["day(at)", "bucket(3, name)"])
    frame = spark.createDataFrame(rows, to_spark_schema(table.schema())).coalesce(1)
    request = _in_bucket(table)
    on_disk = write_in_jvm(frame, replace(request, location=table.location))
    objects = write_in_jvm(frame, request)
    assert all(one.file_path.startswith("s3a://bucket/t/data/") for one in objects)
    named = {one.file_path.removeprefix("s3a://bucket/t"): one for one in objects}
    assert len(named) == len(on_disk) > 5
    # a task's number is in its files' names
    by_partition = {one.partition_key: one for one in on_disk}
    for path, one in named.items():
        other = by_partition[one.partition_key]
        stored = bucket / path[1:]
        assert stored.stat().st_size == one.file_size_in_bytes == other.file_size_in_bytes
        rows_there = pq.read_table(stored).to_pylist()
        local = other.file_path.removeprefix("file://")
        assert repr(rows_there) == repr(pq.read_table(local).to_pylist())
        for metric in METRICS:
            assert repr(getattr(one, metric)) == repr(getattr(other, metric)), metric


def test_a_long_footer_is_read_again(lake, spark, bucket: Path) -> None:
    schema = pa.schema([(f"c{number:03}", pa.int64()) for number in range(40)])
    table = lake.create_table(
        "o.footer", schema, properties={"write.parquet.row-group-limit": "100"}
    )
    columns = [f"id + {number} AS c{number:03}" for number in range(40)]
    frame = spark.range(0, 20000, 1, 1).selectExpr(*columns)
    (file,) = write_in_jvm(frame, _in_bucket(table))
    stored = bucket / file.file_path.removeprefix("s3a://bucket/t/")
    footer = pq.read_metadata(stored)
    assert footer.serialized_size > 262144
    assert footer.num_row_groups == 200
    assert file.record_count == 20000
    assert len(file.split_offsets) == 200


@pytest.mark.parametrize("partition_by", [[], ["truncate(1000, id)"]])
def test_a_task_that_fails_leaves_no_object(lake, spark, bucket: Path, partition_by) -> None:
    table = lake.create_table(
        "o.fails",
        pa.schema([pa.field("id", pa.int64(), nullable=False)]),
        partition_by=partition_by,
    )
    frame = spark.range(0, 5000, 1, 1).selectExpr("nullif(id, 4321) AS id")
    with pytest.raises(InvalidSchemaError, match="required but null"):
        write_data_files(frame, _in_bucket(table), _s3())
    assert [one for one in bucket.rglob("*") if one.is_file()] == []


def test_what_the_file_system_refuses_is_a_storage_error(lake, spark, bucket: Path) -> None:
    table = lake.create_table("o.refused", pa.schema([("id", pa.int64())]))
    (bucket / "data").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="cannot write s3a://bucket/t/data"):
        write_data_files(spark.range(3), _in_bucket(table), _s3())


def _s3(**properties: str):
    return storage_for("s3://bucket/t", {"s3.region": "r", **properties})


def test_who_writes_objects_is_told(lake, spark, bucket: Path) -> None:
    table = lake.create_table("o.who", pa.schema([("id", pa.int64())]))
    frame, request = spark.range(3), _in_bucket(table)
    assert frame_obstacle(frame, request, _s3()) is None
    # these end, and Hadoop keeps a file system with the keys that it had first
    ending = {"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.session-token": "c"}
    assert "no file system" in frame_obstacle(frame, request, _s3(**ending))
    elsewhere = replace(request, location="gs://bucket/t/data")
    assert "no file system" in frame_obstacle(frame, elsewhere, storage_for("gs://bucket/t"))
