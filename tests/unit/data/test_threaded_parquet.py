"""Files that several threads encode have the bytes that pyarrow writes on one."""

from __future__ import annotations

import datetime as dt
import decimal
import io
from contextlib import contextmanager
from dataclasses import replace
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DoubleType,
    GeometryType,
    LongType,
    NestedField,
    StringType,
    UUIDType,
)

from lakehouse.data.writing.data_file_writer import WriteRequest, write_all
from lakehouse.data.writing.threaded_parquet import ThreadedParquetWriter, is_worth_threads
from lakehouse.errors import StorageError
from lakehouse.spec.schema.iceberg_types import VariantType
from lakehouse.storage.memory import MemoryStorage
from tests.unit.data.test_writer import FullDisk

OPTIONS = {
    "compression": "zstd",
    "store_schema": False,
    "store_decimal_as_integer": True,
    "write_page_index": True,
    "write_page_checksum": True,
    "max_rows_per_page": 200,
}
ROWS = 3000


def of_many_types(seed):
    rng = np.random.default_rng(seed)
    numbers = rng.integers(-(2**62), 2**62, ROWS)
    some = np.where(rng.random(ROWS) < 0.3, None, numbers)
    columns = {
        "long": pa.array(some, pa.int64()),
        "int": pa.array(rng.integers(0, 5, ROWS), pa.int32()),
        "double": pa.array(rng.choice([0.0, -0.0, np.nan, 1.5], ROWS)),
        "flag": pa.array(rng.random(ROWS) < 0.5),
        "text": pa.array([f"text {number % 97}" * (number % 5) for number in numbers]),
        "bytes": pa.array([bytes(rng.bytes(16)) for _ in range(ROWS)], pa.binary(16)),
        "none": pa.nulls(ROWS, pa.int32()),
        "money": pa.array([decimal.Decimal(int(number)) for number in numbers], pa.decimal128(25)),
        "at": pa.array(numbers % 10**15, pa.timestamp("us", "UTC")),
        "day": pa.array([dt.date(1970, 1, 1 + int(number % 28)) for number in numbers]),
        "list": pa.array([None if number % 7 == 0 else [1] * (number % 4) for number in numbers]),
        "map": pa.array(
            [[("a", int(number))] for number in numbers], pa.map_(pa.string(), pa.int64())
        ),
        "inside": pa.array(
            [{"x": int(number), "y": {"z": "b"}} if number % 2 else None for number in numbers]
        ),
    }
    names = rng.permutation(list(columns))[: rng.integers(2, len(columns) + 1)]
    table = pa.table({name: columns[name] for name in names})
    fields = [
        field.with_metadata({"PARQUET:field_id": str(number)})
        for number, field in enumerate(table.schema)
    ]
    return table, pa.schema(fields)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"write_statistics": ["double", "inside.x"]},
        {"write_statistics": False, "data_page_version": "2.0"},
        {"use_dictionary": ["text"], "column_encoding": {"long": "DELTA_BINARY_PACKED"}},
        {"compression": "none", "write_page_checksum": False},
    ],
)
@pytest.mark.parametrize("groups", [0, 1, 20])
def test_bytes_and_footer_are_those_of_pyarrow(more, groups):
    for seed in range(2):
        table, schema = of_many_types(seed)
        options = OPTIONS | more
        if "column_encoding" in more:
            options["column_encoding"] = {
                name: kind for name, kind in more["column_encoding"].items() if name in schema.names
            }
        written = []
        for make in (pq.ParquetWriter, ThreadedParquetWriter):
            out = io.BytesIO()
            writer = make(out, schema, **options)
            writer.add_key_value_metadata({"a": "b"})
            for number in range(groups):
                part = table.slice(number * ROWS // groups, ROWS // groups)
                writer.write_table(part, ROWS)
            writer.close()
            written.append((out.getvalue(), writer))
        (expected, theirs), (given, ours) = written
        assert given == expected
        assert ours.metadata.equals(theirs.writer.metadata)


SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "x", DoubleType()),
    NestedField(3, "s", StringType()),
    NestedField(4, "b", BinaryType()),
    NestedField(5, "u", UUIDType()),
    NestedField(6, "v", VariantType()),
    NestedField(7, "g", GeometryType()),
)
POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")
REQUEST = WriteRequest(
    schema=SCHEMA,
    spec=UNPARTITIONED_PARTITION_SPEC,
    location="memory://t/data/",
    write_id="abc",
    properties={"write.parquet.row-group-size-bytes": "12000000"},
    format_version=3,
)


def few_long_rows():
    rng = np.random.default_rng(2)
    return pa.table(
        {
            "id": range(60),
            "x": [0.5, float("nan"), None] * 20,
            "s": ["long text " * 20_000] * 60,
            "b": [rng.bytes(400_000) for _ in range(60)],
            "u": [UUID(int=number).bytes for number in range(60)],
            "v": [{"a": number} for number in range(60)],
            "g": [POINT] * 60,
        }
    )


@contextmanager
def threads(count):
    before = pa.cpu_count()
    pa.set_cpu_count(count)
    try:
        yield
    finally:
        pa.set_cpu_count(before)


def test_files_and_their_metrics_are_the_same_on_any_number_of_threads():
    data, written = few_long_rows(), {}
    for count in (1, 2, 5):
        storage = MemoryStorage()
        with threads(count):
            assert is_worth_threads(data) is (count > 1)
            files = write_all(data, REQUEST, storage)
        written[count] = files, [storage.read(file.file_path) for file in files]
    assert written[1] == written[2] == written[5]
    (file,) = written[1][0]
    assert len(file.split_offsets) > 1
    assert file.nan_value_counts == {2: 20}


def test_small_row_groups_and_single_columns_are_not_worth_it():
    data = few_long_rows()
    with threads(2):
        assert is_worth_threads(data.select(["id", "b"]))
        assert not is_worth_threads(data.select(["b"]))
        assert not is_worth_threads(data.slice(0, 5))


def test_a_bloom_filter_is_written_by_one_thread():
    properties = {"write.parquet.bloom-filter-enabled.column.id": "true"}
    request = replace(REQUEST, properties=properties)
    storage = MemoryStorage()
    with threads(2):
        (file,) = write_all(few_long_rows(), request, storage)
    footer = pq.read_metadata(io.BytesIO(storage.read(file.file_path)))
    assert footer.row_group(0).column(0).bloom_filter_offset


@pytest.mark.parametrize("budget", [0, 1000, 13_000_000])
def test_a_full_disk_surfaces_and_leaves_nothing(budget):
    storage = FullDisk(budget)
    place = f"memory://threaded-full-disk-{budget}"
    with threads(2), pytest.raises(StorageError, match="no space left"):
        write_all(few_long_rows(), replace(REQUEST, location=place), storage)
    assert list(storage.list(place)) == []
