"""The Atlas table of Netflix's 2018 Iceberg talk, metadata only, written by pyiceberg.

28 days x 24 hours x 4 buckets of `name`.

Every partition has `files_per_partition` files sorted by `name`, each of which overlaps its
neighbours so that a name lies in about three. One manifest holds 8 partitions, in order of time:
336 manifests and 2,698,752 entries at full scale (2,688 x 1,004).
"""

from __future__ import annotations

import os
import uuid
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, update_table_metadata
from pyiceberg.transforms import BucketTransform, HourTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

DAYS = 28
BUCKETS = 4
PARTITIONS_PER_MANIFEST = 8
FULL_FILES_PER_PARTITION = 1004
SPAN = 2.9
FIRST_HOUR = 421_704
"""2018-02-09T00:00Z in hours since the epoch."""
SNAPSHOT_ID = 2018_02_01_0000001

SCHEMA = Schema(
    NestedField(1, "ts", TimestamptzType(), required=True),
    NestedField(2, "name", StringType(), required=True),
    NestedField(3, "app", StringType()),
    NestedField(4, "cluster", StringType()),
    NestedField(5, "node", StringType()),
    NestedField(6, "region", StringType()),
    NestedField(7, "step_ms", IntegerType()),
    NestedField(8, "samples", LongType()),
    NestedField(9, "value", DoubleType()),
    NestedField(10, "variance", DoubleType()),
)
SPEC = PartitionSpec(
    PartitionField(1, 1000, HourTransform(), "ts_hour"),
    PartitionField(2, 1001, BucketTransform(BUCKETS), "name_bucket"),
)
COLUMN_BYTES = (
    310_000,
    420_000,
    95_000,
    130_000,
    2_400_000,
    21_000,
    9_000,
    780_000,
    12_300_000,
    7_600_000,
)
KINDS = [field.field_type for field in SCHEMA.fields]


@dataclass(frozen=True)
class Atlas:
    """Where the table is and how large.

    Attributes:
        metadata_location: of its table metadata.
        files: data files.
        manifests: data manifests.
    """

    metadata_location: str
    files: int
    manifests: int


def metric(position: float) -> str:
    """The metric name at a place in [0, 1] of the order of names."""
    return f"sys.metric.{int(position * 10_000_000):08d}"


def build(root: Path, files_per_partition: int, *, workers: int | None = None) -> Atlas:
    """Write the table below `root` unless it is there already."""
    hours = DAYS * 24
    chunk_hours = PARTITIONS_PER_MANIFEST // BUCKETS
    table = root / f"atlas-{files_per_partition}"
    done = table / "metadata" / "v1.metadata.json"
    manifests = hours // chunk_hours
    files = hours * BUCKETS * files_per_partition
    if done.exists():
        return Atlas(str(done), files, manifests)
    (table / "metadata").mkdir(parents=True, exist_ok=True)
    jobs = [
        (str(table), start, chunk_hours, files_per_partition)
        for start in range(0, hours, chunk_hours)
    ]
    with ProcessPoolExecutor(workers or os.cpu_count()) as pool:
        written = list(pool.map(_manifest, jobs))
    io = PyArrowFileIO()
    list_path = f"{table}/metadata/snap-{SNAPSHOT_ID}.avro"
    with write_manifest_list(
        2, io.new_output(list_path), SNAPSHOT_ID, None, 1, "deflate"
    ) as writer:
        writer.add_manifests(written)
    metadata = new_table_metadata(
        SCHEMA, SPEC, UNSORTED_SORT_ORDER, str(table), {"format-version": "2"}, uuid.UUID(int=2018)
    )
    snapshot = Snapshot(
        snapshot_id=SNAPSHOT_ID,
        sequence_number=1,
        timestamp_ms=metadata.last_updated_ms,
        manifest_list=list_path,
        summary=Summary(Operation.APPEND),
        schema_id=metadata.current_schema_id,
    )
    metadata = update_table_metadata(
        metadata,
        (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(
                ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=SNAPSHOT_ID
            ),
        ),
    )
    ToOutputFile.table_metadata(metadata, io.new_output(str(done)))
    return Atlas(str(done), files, manifests)


def _manifest(job: tuple[str, int, int, int]) -> ManifestFile:
    table, first, hours, count = job
    path = f"{table}/metadata/{uuid.uuid5(uuid.NAMESPACE_URL, f'{table}/{first}')}-m0.avro"
    io = PyArrowFileIO()
    spec, schema = _assigned()
    with write_manifest(2, spec, schema, io.new_output(path), SNAPSHOT_ID, "deflate") as writer:
        for hour in range(first, first + hours):
            for bucket in range(BUCKETS):
                for data_file in partition_files(table, hour, bucket, count):
                    entry = ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=SNAPSHOT_ID,
                        data_file=data_file,
                    )
                    writer.add(entry)
    return writer.to_manifest_file()


def _assigned() -> tuple[PartitionSpec, Schema]:
    metadata = new_table_metadata(
        SCHEMA, SPEC, UNSORTED_SORT_ORDER, "file:///", {"format-version": "2"}, uuid.UUID(int=2018)
    )
    return metadata.spec(), metadata.schema()


def partition_files(table: str, hour: int, bucket: int, count: int) -> list[DataFile]:
    """The files of one partition as pyiceberg values, with sizes, counts and bounds.

    They come from one write job and have ten columns.
    """
    rng = np.random.default_rng(hour * BUCKETS + bucket)
    job = uuid.UUID(int=int(rng.integers(2**63)) << 64 | hour << 8 | bucket)
    rows = rng.integers(99_000, 101_000, count)
    sizes = rng.integers(24_000_000, 24_200_000, count)
    samples = rng.integers(60, 3600, (count, 2))
    values = np.round(rng.exponential(50, (count, 2)), 1)
    noise = rng.integers(0, 250, (count, 10))
    start = (FIRST_HOUR + hour) * 3_600_000_000
    made = []
    for k in range(count):
        n = int(rows[k])
        low = (
            start,
            metric(k / count),
            "accounts",
            "accounts-main",
            "i-00",
            "eu-west-1",
            5000,
            1,
            0.0,
            0.0,
        )
        high = (
            start + 3_595_000_000,
            metric(min((k + SPAN) / count, 1)),
            "zuul",
            "zuul-prod",
            "i-ff",
            "us-west-2",
            60_000,
            int(samples[k, 1]),
            float(values[k, 0]),
            float(values[k, 1]),
        )
        made.append(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=(
                    f"{table}/data/ts_hour={hour}/name_bucket={bucket}/"
                    f"{k:05d}-{k}-{job}-00001.parquet"
                ),
                file_format=FileFormat.PARQUET,
                partition=Record(FIRST_HOUR + hour, bucket),
                record_count=n,
                file_size_in_bytes=int(sizes[k]),
                column_sizes={i + 1: COLUMN_BYTES[i] + int(noise[k, i]) for i in range(10)},
                value_counts=dict.fromkeys(range(1, 11), n),
                null_value_counts=dict.fromkeys(range(1, 11), 0),
                nan_value_counts={9: 0, 10: 0},
                lower_bounds={i + 1: to_bytes(KINDS[i], value) for i, value in enumerate(low)},
                upper_bounds={i + 1: to_bytes(KINDS[i], value) for i, value in enumerate(high)},
                key_metadata=None,
                split_offsets=[4],
                equality_ids=None,
                sort_order_id=None,
            )
        )
    return made
