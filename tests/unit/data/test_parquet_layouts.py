"""Parquet files of several layouts: row groups, pages, nanoseconds, other writers, flipped bits."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan, Or
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

import lakehouse as lh
from lakehouse.data.reading.scan_reader import ReadRequest, read_table
from lakehouse.data.writing.data_file_writer import WriteRequest, hashed_folders, write_all
from lakehouse.data.writing.delete_writer import FileDeletes, write_deletes
from lakehouse.errors import CorruptMetadataError, InvalidSchemaError
from lakehouse.expressions.filter_binding import bind
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.schema.iceberg_types import METADATA_COLUMNS
from lakehouse.storage.memory import MemoryStorage
from lakehouse.storage.storage_by_scheme import storage_for
from tests.table_census import take_census

KINDS = [
    BooleanType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DateType(),
    TimestampType(),
    TimestamptzType(),
]
KINDS += [StringType(), BinaryType()]
SCHEMA = Schema(*(NestedField(i, str(kind), kind) for i, kind in enumerate(KINDS, 1)))
COUNTER = itertools.count()


def rows(count, start=0):
    """Values of many types, with nulls, long and short texts."""
    n = np.arange(start, start + count)
    times = pa.array(n * 1_000_003 - 10**9, pa.timestamp("us"), mask=n % 11 == 5)
    columns = {
        "boolean": pa.array(n % 3 == 0, mask=n % 5 == 1),
        "int": pa.array(n.astype(np.int32) - 50, mask=n % 7 == 3),
        "long": pa.array(n * 2**33),
        "float": pa.array(np.where(n % 13 == 0, np.nan, n / 3).astype(np.float32)),
        "double": pa.array(np.where(n % 17 == 0, -0.0, n / 7), mask=n % 19 == 2),
        "date": pa.array((n % 40000 - 20000).astype(np.int32), pa.int32()).cast(pa.date32()),
        "timestamp": times,
        "timestamptz": times.cast(pa.timestamp("us", "UTC")),
        "string": pa.array(
            [None if i % 6 == 4 else f"{i % 10}" * (i % 23) + "ü" for i in n.tolist()]
        ),
        "binary": pa.array(
            [None if i % 8 == 1 else bytes([i % 256]) * (i % 15) for i in n.tolist()], pa.binary()
        ),
    }
    return pa.table(columns)


def write(storage, table, schema=SCHEMA, location=None, **properties):
    request = WriteRequest(
        schema=schema,
        spec=UNPARTITIONED_PARTITION_SPEC,
        location=location or "memory://bulk/data",
        write_id=f"w{next(COUNTER)}",
        properties=properties,
    )
    return write_all(table, request, storage)


def tasks_of(files, **more):
    return [FileScanTask(data_file=file, length=file.file_size_in_bytes, **more) for file in files]


def read(tasks, storage, schema=SCHEMA):
    found = read_table(tasks, ReadRequest(schema=schema, table_schema=SCHEMA), storage)
    found.validate(full=True)
    return found


@pytest.mark.parametrize("kind", [TimestampNanoType(), TimestamptzNanoType()], ids=str)
def test_nanoseconds_are_compared_as_such(kind):
    schema = Schema(NestedField(1, "t", kind))
    zone = "+00:00" if isinstance(kind, TimestamptzNanoType) else ""
    unit = pa.timestamp("ns", "UTC" if zone else None)
    ticks = pa.array([1_700_000_000_123_456_000 + n for n in range(1000)]).cast(unit)
    storage = MemoryStorage()
    request = WriteRequest(
        schema=schema,
        spec=UNPARTITIONED_PARTITION_SPEC,
        location="memory://ns",
        write_id=f"n{next(COUNTER)}",
        format_version=3,
    )
    files = write_all(pa.table({"t": ticks}), request, storage)
    for operator, count in ((LessThan, 789), (GreaterThanOrEqual, 211), (EqualTo, 1)):
        where = operator("t", f"2023-11-14T22:13:20.123456789{zone}")
        got = read_table(
            tasks_of(files, residual=bind(where, schema)),
            ReadRequest(schema=schema),
            storage,
        )
        assert got.num_rows == count


def test_row_groups_that_pruning_leaves_are_read_alone(tmp_path):
    storage = storage_for(str(tmp_path))
    files = write(
        storage,
        rows(5000),
        location=f"file://{tmp_path}",
        **{"write.parquet.row-group-limit": "500"},
    )
    where = Or(
        LessThan("long", 500 * 2**33),
        And(GreaterThanOrEqual("long", 3000 * 2**33), LessThan("long", 4000 * 2**33)),
    )
    got = read(tasks_of(files, residual=bind(where, SCHEMA)), storage)
    assert got["long"].to_pylist() == [n * 2**33 for n in (*range(500), *range(3000, 4000))]


def test_deleted_rows_and_positions(tmp_path):
    storage = storage_for(str(tmp_path))
    location = f"file://{tmp_path}"
    files = write(
        storage, rows(5000), location=location, **{"write.parquet.row-group-limit": "600"}
    )
    gone = np.arange(0, 5000, 7)
    request = WriteRequest(
        schema=SCHEMA,
        spec=UNPARTITIONED_PARTITION_SPEC,
        location=location,
        write_id="d",
        format_version=3,
    )
    deletes = tuple(write_deletes([FileDeletes(files[0], gone)], request, storage))
    schema = Schema(METADATA_COLUMNS["_pos"], *SCHEMA.fields)
    got = read(
        tasks_of(files, deletes=deletes, residual=bind("int >= 10", SCHEMA)),
        storage,
        schema=schema,
    )
    assert not set(got["_pos"].to_pylist()) & set(gone.tolist())
    assert got["_pos"].to_pylist() == [n for n in range(60, 5000) if n % 7 != 3 and n % 7]


def test_a_flipped_bit_of_a_large_file_is_noticed(tmp_path):
    storage = storage_for(str(tmp_path))
    files = write(
        storage,
        rows(5000),
        location=f"file://{tmp_path}",
        **{"write.parquet.row-group-limit": "900"},
    )
    metadata = pq.read_metadata(pa.BufferReader(storage.read(files[0].file_path)))
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    chunks = [group.column(at) for group in groups for at in range(metadata.num_columns)]
    # Parquet's checksums are those of pages, not of their headers, which have up to 60 bytes here
    bodies = [
        at
        for chunk in chunks
        if not chunk.has_dictionary_page
        for at in range(
            chunk.data_page_offset + 60, chunk.data_page_offset + chunk.total_compressed_size
        )
    ]
    for at in np.random.default_rng(3).choice(bodies, 40).tolist():
        damaged = flipped(storage, files[0], at)
        with pytest.raises(CorruptMetadataError) as caught:
            read_table(tasks_of([damaged]), ReadRequest(schema=SCHEMA), storage)
        assert damaged.file_path in str(caught.value)


def flipped(storage, one, at):
    raw = bytearray(storage.read(one.file_path))
    raw[at] ^= 0x10
    path = one.file_path.replace(".parquet", f"-{at}.parquet")
    storage.write(path, bytes(raw))
    return dataclasses.replace(one, file_path=path)


def foreign(storage, table, **options):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    name, raw = f"memory://bulk/foreign-{next(COUNTER)}.parquet", sink.getvalue().to_pybytes()
    storage.write(name, raw)
    return DataFile(file_path=name, record_count=table.num_rows, file_size_in_bytes=len(raw)), raw


OPTIONS = [
    {"write_page_checksum": True},
    {"write_page_checksum": True, "data_page_version": "2.0"},
    {"write_page_checksum": True, "write_page_index": True, "data_page_size": 100},
    {"write_page_checksum": False},
    {"compression": "snappy", "use_dictionary": False, "write_page_checksum": True},
    {"compression": "none", "row_group_size": 30, "write_page_checksum": True},
    {"use_deprecated_int96_timestamps": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_files_of_other_writers(options):
    storage = MemoryStorage()
    ids = [
        pa.field(one.name, one.type, metadata={"PARQUET:field_id": str(i)})
        for i, one in enumerate(rows(1).schema, 1)
    ]
    table = rows(200).cast(pa.schema(ids))
    files = [foreign(storage, table.slice(start, 100), **options)[0] for start in (0, 100)]
    got = read(tasks_of(files), storage)
    assert repr(got.to_pylist()) == repr(table.to_pylist())


def test_files_without_rows_that_follow_each_other():
    storage = MemoryStorage()
    ids = [
        pa.field(one.name, one.type, metadata={"PARQUET:field_id": str(i)})
        for i, one in enumerate(rows(1).schema, 1)
    ]
    empty = rows(1).cast(pa.schema(ids)).slice(0, 0)
    assert read(tasks_of([foreign(storage, empty)[0] for _ in range(2)]), storage).num_rows == 0


def test_a_required_column_with_nulls_names_the_file_that_holds_them():
    storage = MemoryStorage()
    lax = Schema(NestedField(1, "v", LongType()))
    strict = Schema(NestedField(1, "v", LongType(), required=True))
    good, bad, last = (
        one
        for values in ([1], [None], [3])
        for one in write(storage, pa.table({"v": pa.array(values, pa.int64())}), lax)
    )
    with pytest.raises(InvalidSchemaError) as caught:
        read_table(tasks_of([good, bad, last]), ReadRequest(schema=strict), storage)
    assert bad.file_path in str(caught.value)


PAGES = {
    "write.parquet.page-version": "v2",
    "write.parquet.page-row-limit": "100",
    "write.parquet.compression-codec": "uncompressed",
    "write.parquet.dict-encoding-enabled.column.n": "false",
    "write.parquet.stats-enabled.column.s": "false",
    "write.parquet.bloom-filter-enabled.column.s": "true",
    "write.parquet.bloom-filter-fpp.column.s": "0.001",
    "write.parquet.bloom-filter-ndv.column.s": "1000",
}


def test_pages_dictionaries_statistics_and_bloom_filters_are_as_the_table_says(tmp_path) -> None:
    """The judges: page headers (format of Parquet: 15, then the type twice), and DuckDB."""
    rows = pa.table({"n": pa.array([0] * 1000, pa.int64()), "s": [f"{n % 7}" for n in range(1000)]})
    files = {}
    for name, properties in (("asked", PAGES), ("plain", {})):
        request = WriteRequest(
            table="t",
            location=str(tmp_path / name),
            schema=Schema(
                NestedField(1, "n", LongType(), required=False),
                NestedField(2, "s", StringType(), required=False),
            ),
            spec=UNPARTITIONED_PARTITION_SPEC,
            properties=properties,
            write_id=name,
        )
        (files[name],) = write_all(rows, request, storage_for(str(tmp_path)))
        found = pq.read_table(files[name].file_path.removeprefix("file://"))
        assert found.to_pydict() == rows.to_pydict()
    paths = {name: file.file_path.removeprefix("file://") for name, file in files.items()}
    for name, kind, pages in (("asked", b"\x15\x06\x15", 10), ("plain", b"\x15\x00\x15", 1)):
        chunk = pq.read_metadata(paths[name]).row_group(0).column(0)  # of zeros
        begin, length = chunk.data_page_offset, chunk.total_compressed_size
        content = Path(paths[name]).read_bytes()[begin : begin + length]
        assert content.startswith(kind)
        assert pages <= content.count(kind) < 3 * pages
    with duckdb.connect() as connection:
        for name, path in paths.items():
            told = connection.execute(
                "SELECT path_in_schema, dictionary_page_offset IS NOT NULL, "
                "stats_min_value IS NOT NULL, "
                f"bloom_filter_offset IS NOT NULL FROM parquet_metadata('{path}') ORDER BY 1"
            ).fetchall()
            asked = [("n", False, True, False), ("s", True, False, True)]
            plain = [("n", True, True, False), ("s", True, True, False)]
            assert told == (asked if name == "asked" else plain)
        probe = (
            f"SELECT bool_and(bloom_filter_excludes) FROM parquet_bloom_probe('{paths['asked']}'"
        )
        assert connection.execute(f"{probe}, 's', '9')").fetchone() == (True,)
        assert connection.execute(f"{probe}, 's', '6')").fetchone() == (False,)
    # a column without statistics in the file has none in the manifest
    assert files["asked"].lower_bounds.keys() == {1}
    assert files["plain"].lower_bounds.keys() == {1, 2}


@pytest.mark.parametrize(
    ("path", "folders"),
    [
        ("a", "0101/0110/1001/10110010"),
        ("b", "1110/0111/1110/00000011"),
        ("c", "0010/1101/0110/01011111"),
        ("d", "1001/0001/0100/01110011"),
    ],
)
def test_hashes_of_paths_are_javas(path, folders) -> None:
    """The judge: what Iceberg's own test of its provider of locations expects."""
    assert hashed_folders(path) == folders


@pytest.mark.parametrize(
    ("partitioned", "form"),
    [
        ("true", r"/data/[01]{4}/[01]{4}/[01]{4}/[01]{8}/day=1/[^/]*\.parquet$"),
        ("false", r"/data/[01]{4}/[01]{4}/[01]{4}/[01]{8}-[^/]*\.parquet$"),
    ],
)
def test_files_of_object_stores_are_spread(tmp_path, partitioned, form) -> None:
    """Appends, rewrites and compaction; nothing of it is an orphan."""
    table = lh.load_catalog(str(tmp_path)).create_table(
        "raw.t",
        pa.schema({"id": pa.int64(), "day": pa.int64()}),
        partition_by=["day"],
        properties={
            "write.object-storage.enabled": "true",
            "write.object-storage.partitioned-paths": partitioned,
        },
    )
    for start in (0, 10, 20):
        table.append(pa.table({"id": range(start, start + 10), "day": [1] * 10}))
    table.delete(where="id = 3")
    table.compact(CompactionOptions(rewrite_all=True))
    paths = [one["file_path"] for one in table.inspect.all_data_files().to_pylist()]
    assert len(set(paths)) == 5
    assert all(re.search(form, path) for path in paths)
    ids = table.scan().to_arrow()["id"].to_pylist()
    assert sorted(ids) == [n for n in range(30) if n != 3]
    assert not take_census(table.catalog, table.identifier).unreachable


@pytest.mark.parametrize(("kind", "days"), [("timestamp", 200_000_000), ("timestamp_ns", 200_000)])
def test_a_date_that_no_timestamp_has_is_an_error_when_it_is_read(tmp_path, kind, days) -> None:
    table = lh.load_catalog(str(tmp_path)).create_table(
        "raw.t", pa.schema({"d": pa.date32()}), properties={"format-version": "3"}
    )
    table.append(pa.table({"d": pa.array([0, days], pa.date32())}))
    with table.update_schema() as change:
        change.update_column("d", kind)
    with pytest.raises(InvalidSchemaError, match=f"not a valid {kind}"):
        table.scan().to_arrow()
