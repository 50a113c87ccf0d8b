"""Damaged Parquet files: rows, or a typed error; never a crash, a hang or memory without bound."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from lakehouse.data.deletes.deletion_vector import decode_vector, encode_vector
from lakehouse.data.reading.parquet_reader import column_chunks
from lakehouse.data.reading.scan_reader import ReadRequest, read_table
from lakehouse.data.writing.data_file_writer import WriteRequest, write_all
from lakehouse.errors import CorruptMetadataError, LakehouseError
from lakehouse.expressions.filter_binding import bind
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.storage.memory import MemoryStorage

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "x", DoubleType()),
    NestedField(3, "s", StringType()),
    NestedField(
        4,
        "l",
        ListType(5, StructType(NestedField(6, "d", DecimalType(20, 2))), element_required=False),
    ),
)
PLACE = "memory://parquet-fuzz"


def valid_file():
    count = 200
    items = pa.array([[{"d": None}]] * count, pa.list_(pa.struct([("d", pa.decimal128(20, 2))])))
    table = pa.table(
        {
            "id": np.arange(count),
            "x": np.arange(count) / 3,
            "s": [f"t{n % 7}" for n in range(count)],
            "l": items,
        }
    )
    request = WriteRequest(
        schema=SCHEMA,
        spec=UNPARTITIONED_PARTITION_SPEC,
        location=PLACE,
        write_id="w",
        properties={"write.parquet.row-group-limit": "80"},
    )
    (one,) = write_all(table, request, MemoryStorage())
    return one, MemoryStorage().read(one.file_path)


FILE, RAW = valid_file()
FOOTER = len(RAW) - 8 - int.from_bytes(RAW[-8:-4], "little")


@st.composite
def damaged(draw):
    data = bytearray(RAW)
    match draw(st.sampled_from(["cut", "footer", "anywhere", "insert"])):
        case "cut":
            return bytes(data[: draw(st.integers(0, len(data) - 1))])
        case "insert":
            at = draw(st.integers(0, len(data) - 1))
            data[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
        case place:
            low = FOOTER if place == "footer" else 0
            for _ in range(draw(st.integers(1, 4))):
                data[draw(st.integers(low, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@settings(max_examples=400)
@given(raw=damaged(), filtered=st.booleans(), flat=st.booleans())
def test_damaged_files_give_rows_or_a_typed_error(raw, filtered, flat):
    storage = MemoryStorage()
    location = f"{PLACE}/damaged.parquet"
    storage.write(location, raw)
    one = dataclasses.replace(FILE, file_path=location, file_size_in_bytes=len(raw))
    before = pa.total_allocated_bytes()
    task = (
        FileScanTask(data_file=one, residual=bind("id > 100 and s is not null", SCHEMA))
        if filtered
        else FileScanTask(data_file=one)
    )
    try:
        schema = SCHEMA.select("id", "x", "s") if flat else SCHEMA
        read_table([task], ReadRequest(schema=schema, table_schema=SCHEMA, threads=1), storage)
    except LakehouseError as error:
        assert location in str(error)  # noqa: PT017
    assert pa.total_allocated_bytes() - before < 64 * 1024 * 1024


@given(
    footer=st.binary(max_size=300) | st.integers(FOOTER, len(RAW)).map(lambda at: RAW[FOOTER:at])
)
def test_footers_of_any_bytes(footer):
    try:
        groups = column_chunks(footer, 4, "x.parquet")
    except CorruptMetadataError as error:
        assert "x.parquet" in str(error)  # noqa: PT017
    else:
        assert all(len(group) == 4 for group in groups)


POSITIONS = st.sets(st.integers(0, 2**40) | st.integers(0, 70_000))


@given(positions=POSITIONS)
def test_vectors_come_back(positions):
    blob = encode_vector(np.array(sorted(positions), dtype=np.int64))
    assert decode_vector(blob, "x.puffin", len(positions)).tolist() == sorted(positions)
    with pytest.raises(CorruptMetadataError, match="manifest entry"):
        decode_vector(blob, "x.puffin", len(positions) + 1)


@given(positions=POSITIONS, data=st.data())
def test_damaged_vectors_are_noticed(positions, data):
    blob = bytearray(encode_vector(np.array(sorted(positions), dtype=np.int64)))
    at = data.draw(st.integers(0, len(blob) - 1))
    blob[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptMetadataError, match=r"x\.puffin"):
        decode_vector(bytes(blob), "x.puffin")
    with pytest.raises(CorruptMetadataError, match=r"x\.puffin"):
        decode_vector(bytes(blob[:at]), "x.puffin")
