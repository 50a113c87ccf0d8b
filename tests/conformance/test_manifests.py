"""Manifests and manifest lists both ways: pyiceberg reads ours, we read pyiceberg's."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import struct
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile as PyDataFile
from pyiceberg.manifest import ManifestEntry as PyManifestEntry
from pyiceberg.manifest import read_manifest_list as py_read_manifest_list
from pyiceberg.manifest import write_manifest as py_write_manifest
from pyiceberg.manifest import write_manifest_list as py_write_manifest_list
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    UUIDType,
)

from lakehouse.errors import CorruptMetadataError
from lakehouse.manifests.avro_decoding import BulkRefusedError, bulk_decode, decode_entries
from lakehouse.manifests.manifest_reader import decode_avro, inherit
from lakehouse.manifests.manifest_writer import encode_manifest, manifest_file
from lakehouse.spec.manifests.avro_container import inflated_blocks, read_header, write_container
from lakehouse.spec.manifests.columnar_manifest import (
    cast_to_table,
    encode_columnar,
    open_columnar,
    why_stale,
)
from lakehouse.spec.manifests.data_file import (
    STATUS_ADDED,
    STATUS_DELETED,
    STATUS_EXISTING,
    DataFile,
    ManifestEntry,
)
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import (
    CONTENT_DELETE_MANIFEST,
    ManifestFile,
    read_manifest_list,
    write_manifest_list,
)
from lakehouse.spec.schema.iceberg_types import field_types
from lakehouse.storage.storage_by_scheme import storage_for

SCHEMA = Schema(
    NestedField(1, "i", IntegerType()),
    NestedField(2, "ts", TimestamptzType()),
    NestedField(4, "d", DecimalType(9, 2)),
    NestedField(5, "f", FloatType()),
    NestedField(6, "dt", DateType()),
    NestedField(7, "st", StringType()),
    NestedField(8, "u", UUIDType()),
    NestedField(9, "b", BinaryType()),
    NestedField(10, "bo", BooleanType()),
    NestedField(11, "l", LongType()),
    NestedField(12, "fx", FixedType(5)),
    NestedField(13, "do", DoubleType()),
    NestedField(14, "big", DecimalType(38, 10)),
    schema_id=3,
)
SPEC = PartitionSpec(
    PartitionField(2, 1000, DayTransform(), "ts_day"),
    PartitionField(1, 1001, BucketTransform(16), "i_bucket"),
    PartitionField(4, 1002, IdentityTransform(), "d"),
    PartitionField(8, 1003, IdentityTransform(), "u"),
    PartitionField(12, 1004, IdentityTransform(), "fx"),
    PartitionField(7, 1005, TruncateTransform(3), "1 st-t"),
    PartitionField(5, 1006, IdentityTransform(), "f"),
    PartitionField(10, 1007, IdentityTransform(), "bo"),
    spec_id=2,
)
TYPES = field_types(SCHEMA)
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
VALUES: dict[int, st.SearchStrategy[Any]] = {
    1: INT32,
    2: INT64,
    4: st.integers(-(10**9) + 1, 10**9 - 1).map(lambda value: Decimal(value).scaleb(-2)),
    5: st.floats(width=32, allow_nan=False),
    6: INT32,
    7: st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
    8: st.uuids(),
    9: st.binary(max_size=6),
    10: st.booleans(),
    11: INT64,
    12: st.binary(min_size=5, max_size=5)
    | st.sampled_from([b"\x01\x02\x03\x04\xff", b"\x0a\x02\x03\x04\x05", b"\x0a\x0a\x0a\x0a\xff"]),
    13: st.floats(allow_nan=False),
    14: st.integers(-(10**37), 10**37).map(
        lambda value: Decimal((value < 0, tuple(map(int, str(abs(value)))), -10))
    ),
}
PARTITIONS = st.tuples(
    st.none() | st.integers(-800, 40_000),
    st.none() | st.integers(0, 15),
    st.none() | VALUES[4],
    st.none() | VALUES[8],
    st.none() | VALUES[12],
    st.none() | st.sampled_from(["", "a", "abc", "é😀"]),
    st.none() | VALUES[5],
    st.none() | st.booleans(),
)


def decode_manifest(data, manifest, spec, types):
    return inherit(decode_entries(data, manifest.manifest_path, spec, types), manifest)


@st.composite
def bounds(draw: st.DrawFn) -> dict[int, bytes]:
    fields = draw(st.sets(st.sampled_from(sorted(VALUES))))
    return {
        field_id: to_bytes(TYPES[field_id], draw(VALUES[field_id])) for field_id in sorted(fields)
    }


COUNTS = st.dictionaries(st.sampled_from(sorted(VALUES)), st.integers(0, 2**40)).map(
    lambda one: dict(sorted(one.items()))
)


@st.composite
def entries(draw: st.DrawFn) -> ManifestEntry:
    status = draw(st.sampled_from([STATUS_EXISTING, STATUS_ADDED, STATUS_DELETED]))
    number = st.integers(0, 2**40)
    inherited, sequence = (
        (st.none(), st.none()) if status == STATUS_ADDED else (number, st.integers(0, 42))
    )
    file = DataFile(
        file_path=draw(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)),
        file_format=draw(st.sampled_from(["parquet", "orc", "avro"])),
        partition=draw(PARTITIONS),
        spec_id=2,
        record_count=draw(number),
        file_size_in_bytes=draw(number),
        column_sizes=draw(COUNTS),
        value_counts=draw(COUNTS),
        null_value_counts=draw(COUNTS),
        nan_value_counts=draw(COUNTS),
        lower_bounds=draw(bounds()),
        upper_bounds=draw(bounds()),
        key_metadata=draw(st.none() | st.binary(max_size=3)),
        split_offsets=draw(
            st.none() | st.lists(number, max_size=3).map(lambda one: tuple(sorted(one)))
        ),
        sort_order_id=draw(st.none() | st.integers(0, 5)),
    )
    return ManifestEntry(
        status=status,
        snapshot_id=draw(inherited),
        sequence_number=draw(sequence),
        file_sequence_number=draw(sequence),
        data_file=file,
    )


def inherited(entry: ManifestEntry, manifest: ManifestFile) -> ManifestEntry:
    fill = {"snapshot_id": 99, "sequence_number": 42, "file_sequence_number": 42}
    missing = {name: value for name, value in fill.items() if getattr(entry, name) is None}
    assert manifest.added_snapshot_id == 99
    return dataclasses.replace(entry, **missing)


def written(
    rows: list[ManifestEntry], format_version: int, path: str = "m.avro"
) -> tuple[bytes, ManifestFile, Entries]:
    table = Entries.from_manifest_entries(rows, SPEC, TYPES)
    data = encode_manifest(table, SCHEMA, format_version=format_version)
    return (
        data,
        manifest_file(table, manifest_path=path, manifest_length=len(data), snapshot_id=99),
        table,
    )


@given(st.lists(entries(), min_size=1, max_size=6))
@settings(max_examples=30)
def test_values_survive_columns(rows):
    assert Entries.from_manifest_entries(rows, SPEC, TYPES).to_manifest_entries() == rows


RAW_BOUNDS = st.dictionaries(
    st.sampled_from([*sorted(VALUES), 99]),
    st.binary(max_size=17) | st.sampled_from([b"\0\0\xc0\x7f", b"\0\0\0\0\0\0\xf8\x7f"]),
)


@given(
    st.lists(st.tuples(entries(), RAW_BOUNDS, RAW_BOUNDS), min_size=1, max_size=4),
    st.sampled_from([2, 3]),
)
@settings(max_examples=60)
def test_a_few_entries_are_the_same_bytes_as_column_by_column(rows, format_version):
    """Also with bounds that are no values, were written before a promotion, or are not minimal."""
    rows = [
        dataclasses.replace(
            row,
            data_file=dataclasses.replace(
                row.data_file, lower_bounds=lower, upper_bounds=row.data_file.upper_bounds | upper
            ),
        )
        for row, lower, upper in rows
    ]
    slim = Entries.from_manifest_entries(rows, SPEC, TYPES, with_metrics=False)
    few = [row.data_file for row in rows]
    made = encode_manifest(slim, SCHEMA, format_version=format_version, few=few)
    assert made == written(rows, format_version)[0]


@given(st.lists(entries(), min_size=1, max_size=6), st.sampled_from([2, 3]))
@settings(max_examples=30)
def test_round_trip_and_inheritance(rows, format_version):
    data, manifest, _ = written(rows, format_version)
    manifest = dataclasses.replace(manifest, sequence_number=42)
    found = decode_manifest(data, manifest, SPEC, TYPES).to_manifest_entries()
    assert found == [inherited(row, manifest) for row in rows]


@given(st.lists(entries(), min_size=1, max_size=6))
@settings(max_examples=20)
def test_bulk_and_entry_by_entry_agree(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("bulk") / "m.avro"
    data, manifest, _ = written(rows, 2, str(path))
    path.write_bytes(data)
    manifest = dataclasses.replace(manifest, sequence_number=42)
    decoded = decode_avro([(str(path), path.read_bytes())], SPEC, TYPES)
    assert decoded.kind == "bulk", decoded.refused
    assert inherit(decoded.entries, manifest).to_manifest_entries() == [
        inherited(row, manifest) for row in rows
    ]


@given(st.lists(entries(), min_size=1, max_size=6))
@settings(max_examples=30)
def test_twin_holds_the_manifest(rows):
    _, manifest, table = written(rows, 2)
    manifest = dataclasses.replace(manifest, sequence_number=42)
    columnar = encode_columnar(table)
    assert columnar == encode_columnar(table)
    file = open_columnar(pa.BufferReader(columnar.data), columnar.checksum)
    assert why_stale(file.rows, manifest) is None
    assert why_stale(file.rows, dataclasses.replace(manifest, added_files_count=77))
    assert pq.read_table(pa.BufferReader(columnar.data)).equals(file.read())
    found = inherit(cast_to_table(file.read(), SPEC, TYPES), manifest)
    assert found.to_manifest_entries() == [inherited(row, manifest) for row in rows]


@given(st.lists(entries(), min_size=1, max_size=6))
@settings(max_examples=30)
def test_pyiceberg_reads_ours(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("ours")
    data, manifest, _ = written(rows, 2, str(folder / "m.avro"))
    (folder / "m.avro").write_bytes(data)
    listed, next_row_id = write_manifest_list(
        [manifest], snapshot_id=99, parent_snapshot_id=None, sequence_number=42, format_version=2
    )
    assert next_row_id is None
    (folder / "l.avro").write_bytes(listed)
    file_io = PyArrowFileIO()
    (found,) = py_read_manifest_list(file_io.new_input(str(folder / "l.avro")))
    ours = read_manifest_list(listed)[0]
    for name in (
        "manifest_path",
        "manifest_length",
        "partition_spec_id",
        "sequence_number",
        "min_sequence_number",
        "added_snapshot_id",
    ):
        assert getattr(found, name) == getattr(ours, name)
    assert (ours.partitions is None) is (found.partitions is None)
    for mine, theirs in zip(ours.partitions or (), found.partitions or (), strict=True):
        assert (mine.contains_null, mine.contains_nan) == (
            theirs.contains_null,
            theirs.contains_nan,
        )
        assert (mine.lower_bound, mine.upper_bound) == (theirs.lower_bound, theirs.upper_bound)
    read = found.fetch_manifest_entry(file_io, discard_deleted=False)
    for row, entry in zip(rows, read, strict=True):
        same(inherited(row, ours), entry)


@given(
    st.lists(entries(), min_size=1, max_size=5),
    st.sampled_from([b"\x01\x02\x03\x04\x05", b"\x01\x02\x03\x04\xff", b"\x0a\x0a\x0a\x0a\xff"]),
)
@settings(max_examples=20)
def test_the_length_of_a_fixed_partition_value_may_stand_before_it(rows, value):
    """As Iceberg's Java library writes it: the schema says fixed, the value is encoded as bytes."""
    rows = [with_fixed(row, value) for row in rows]
    data, manifest, _ = written(rows, 3)
    header = read_header(data, "m")
    schema = copy.deepcopy(header.schema)
    (changed,) = [one for one in partition_fields(schema) if one["name"] == "fx"]
    assert changed["type"] == ["null", "bytes"]
    changed["type"][1] = {"type": "fixed", "name": "fixed_5", "size": 5}
    java = write_container(schema, {}, inflated_blocks(data, header, "m"), level=1)
    found = decode_manifest(java, dataclasses.replace(manifest, sequence_number=42), SPEC, TYPES)
    assert found.to_manifest_entries() == [
        inherited(row, dataclasses.replace(manifest, sequence_number=42)) for row in rows
    ]
    with pytest.raises(BulkRefusedError):
        bulk_decode([("m", java)], SPEC, TYPES)
    with pytest.raises(CorruptMetadataError):
        decode_manifest(java[:-40], manifest, SPEC, TYPES)


def test_days_may_be_plain_integers():
    """As Iceberg's specification lets readers find them; we write dates."""
    rows = []
    for row in example_entries():
        days, *others = row.data_file.partition
        partition = (days, *others[:4], "text", *others[4:])
        file = dataclasses.replace(row.data_file, partition=partition)
        rows.append(dataclasses.replace(row, data_file=file))
    data, manifest, _ = written(rows, 2)
    header = read_header(data, "m")
    schema = copy.deepcopy(header.schema)
    day = partition_fields(schema)[0]
    assert day["type"] == ["null", {"type": "int", "logicalType": "date"}]
    day["type"][1] = "int"
    plain = write_container(schema, {}, inflated_blocks(data, header, "m"), level=1)
    manifest = dataclasses.replace(manifest, sequence_number=42)
    for decoded in (
        decode_manifest(plain, manifest, SPEC, TYPES),
        inherit(decode_avro([("m", plain)], SPEC, TYPES).entries, manifest),
    ):
        assert decoded.to_manifest_entries() == [inherited(row, manifest) for row in rows]


def with_fixed(row: ManifestEntry, value: bytes) -> ManifestEntry:
    partition = list(row.data_file.partition)
    partition[4] = value
    file = dataclasses.replace(row.data_file, partition=tuple(partition))
    return dataclasses.replace(row, data_file=file)


@pytest.mark.parametrize("value", [b"\x01\x02\x03\x04\xff", b"\x0a\x02\x03\x04\x05", b"\x0a" * 5])
def test_a_fixed_partition_value_with_its_length_is_told_from_one_without(value):
    (row,) = [with_fixed(entry, value) for entry in example_entries()[:1]]
    spec = PartitionSpec(PartitionField(12, 1004, IdentityTransform(), "fx"), spec_id=2)
    file = dataclasses.replace(
        row.data_file, partition=(value,), column_sizes={}, split_offsets=None
    )
    rows = [dataclasses.replace(row, data_file=file)]
    made = Entries.from_manifest_entries(rows, spec, TYPES)
    data = encode_manifest(made, SCHEMA, format_version=2)
    header = read_header(data, "m")
    schema = copy.deepcopy(header.schema)
    (changed,) = partition_fields(schema)
    changed["type"][1] = {"type": "fixed", "name": "fixed_5", "size": 5}
    ((count, plain),) = inflated_blocks(data, header, "m")
    encoded = b"\x0a" + value
    assert plain.count(encoded) == 1
    for block in (plain, plain.replace(encoded, value)):
        written = write_container(schema, {}, [(count, block)], level=1)
        assert decode_entries(written, "m", spec, TYPES).to_manifest_entries() == rows


def partition_fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    (data_file,) = [one for one in schema["fields"] if one["field-id"] == 2]
    (partition,) = [one for one in data_file["type"]["fields"] if one["field-id"] == 102]
    return partition["type"]["fields"]


def same(mine: ManifestEntry, theirs: PyManifestEntry) -> None:
    for name in ("status", "snapshot_id", "sequence_number", "file_sequence_number"):
        assert getattr(mine, name) == getattr(theirs, name), name
    file, other = mine.data_file, theirs.data_file
    assert (file.file_path, file.record_count, file.file_size_in_bytes) == (
        other.file_path,
        other.record_count,
        other.file_size_in_bytes,
    )
    assert file.file_format == other.file_format.value.lower()
    assert list(file.partition) == list(other.partition)
    for name in (
        "column_sizes",
        "value_counts",
        "null_value_counts",
        "nan_value_counts",
        "lower_bounds",
        "upper_bounds",
    ):
        assert dict(getattr(file, name)) == (getattr(other, name) or {}), name
    assert (None if file.split_offsets is None else list(file.split_offsets)) == other.split_offsets


PY_SPEC = PartitionSpec(*(field for field in SPEC.fields if field.field_id != 1005), spec_id=2)


@pytest.mark.parametrize("format_version", [1, 2])
@pytest.mark.parametrize("codec", ["deflate", "null", "zstandard"])
def test_we_read_pyicebergs(tmp_path, format_version, codec):
    rows = example_entries()
    file_io = PyArrowFileIO()
    path = str(tmp_path / "m.avro")
    with py_write_manifest(
        format_version, PY_SPEC, SCHEMA, file_io.new_output(path), 99, codec
    ) as writer:
        for row in rows:
            file = row.data_file
            arguments = {
                name: getattr(file, name)
                for name in ("file_path", "record_count", "file_size_in_bytes")
            }
            maps = (
                "column_sizes",
                "value_counts",
                "null_value_counts",
                "nan_value_counts",
                "lower_bounds",
                "upper_bounds",
            )
            arguments |= {name: getattr(file, name) for name in maps}
            arguments |= {
                "partition": Record(*file.partition),
                "file_format": "PARQUET",
                "content": 0,
            }
            arguments |= dict.fromkeys(("sort_order_id", "equality_ids", "key_metadata"))
            py_file = PyDataFile.from_args(
                split_offsets=list(file.split_offsets or ()), **arguments
            )
            writer.add(PyManifestEntry.from_args(status=1, snapshot_id=99, data_file=py_file))
    written_by_py = writer.to_manifest_file()
    list_path = str(tmp_path / "l.avro")
    with py_write_manifest_list(
        format_version, file_io.new_output(list_path), 99, None, 42, codec
    ) as list_writer:
        list_writer.add_manifests([written_by_py])
    storage = storage_for(path)
    (manifest,) = read_manifest_list(storage.read(list_path), list_path)
    assert manifest.added_files_count == len(rows)
    expected_number = 42 if format_version == 2 else 0
    entry_by_entry = decode_manifest(storage.read(path), manifest, PY_SPEC, TYPES)
    bulk = inherit(decode_avro([(path, storage.read(path))], PY_SPEC, TYPES).entries, manifest)
    for found in (entry_by_entry, bulk):
        for row, entry in zip(rows, found.to_manifest_entries(), strict=True):
            assert entry.data_file == row.data_file
            assert (entry.status, entry.snapshot_id) == (STATUS_ADDED, 99)
            assert (entry.sequence_number, entry.file_sequence_number) == (
                expected_number,
                expected_number,
            )


def example_entries() -> list[ManifestEntry]:
    rows = []
    for number in range(5):
        partition = (
            number - 2,
            number,
            Decimal(number - 3).scaleb(-2),
            UUID(int=number),
            bytes([number] * 5),
            0.5 * number,
            number % 2 == 0,
        )
        file = DataFile(
            file_path=f"s3://b/f{number}.parquet",
            partition=partition if number else (None,) * 7,
            spec_id=2,
            record_count=number,
            file_size_in_bytes=100 + number,
            value_counts={1: 5, 5: 5},
            null_value_counts={1: 0},
            lower_bounds={
                1: to_bytes(IntegerType(), -number),
                4: to_bytes(DecimalType(9, 2), Decimal("-1.28")),
            },
            upper_bounds={1: to_bytes(IntegerType(), number), 7: "zz\U0001f600".encode()},
            split_offsets=(4, 50),
        )
        rows.append(ManifestEntry(status=STATUS_ADDED, data_file=file))
    return rows


def test_a_block_holds_many_entries():
    rows = [
        dataclasses.replace(row, data_file=row.data_file)
        for row in example_entries()
        for _ in range(40)
    ]
    table = Entries.from_manifest_entries(rows, PY_SPEC, TYPES)
    data = encode_manifest(table, SCHEMA, format_version=2)

    blocks = list(fastavro.block_reader(io.BytesIO(data)))
    assert [block.num_records for block in blocks] == [200]


def test_header_says_what_the_spec_requires():
    data, _, _ = written([inherited_example()], 3)

    metadata = fastavro.reader(io.BytesIO(data)).metadata
    assert {
        "schema",
        "schema-id",
        "partition-spec",
        "partition-spec-id",
        "format-version",
        "content",
    } <= set(metadata)
    assert (
        metadata["schema-id"],
        metadata["partition-spec-id"],
        metadata["format-version"],
        metadata["content"],
    ) == (
        "3",
        "2",
        "3",
        "data",
    )
    assert [field["field-id"] for field in json.loads(metadata["partition-spec"])] == [
        1000 + n for n in range(8)
    ]


def inherited_example() -> ManifestEntry:
    file = DataFile(
        file_path="f", partition=(None,) * 8, spec_id=2, record_count=1, file_size_in_bytes=1
    )
    return ManifestEntry(status=STATUS_ADDED, data_file=file)


def test_first_row_ids_are_inherited_in_order():
    blank = inherited_example()
    rows = [
        dataclasses.replace(
            blank,
            data_file=dataclasses.replace(blank.data_file, record_count=count, first_row_id=first),
        )
        for count, first in ((25, 800), (50, None), (50, None))
    ]
    data, manifest, _ = written(rows, 3)
    listed, next_row_id = write_manifest_list(
        [manifest],
        snapshot_id=99,
        parent_snapshot_id=None,
        sequence_number=42,
        format_version=3,
        first_row_id=1000,
    )
    (read,) = read_manifest_list(listed)
    assert (read.first_row_id, next_row_id) == (1000, 1125)
    found = decode_manifest(data, read, SPEC, TYPES).to_manifest_entries()
    assert [entry.data_file.first_row_id for entry in found] == [800, 1000, 1050]


def test_first_row_id_assignment_follows_the_example_of_the_spec():
    counts = [
        ("existing", 75, 0, 925),
        ("added1", 100, 25, None),
        ("added2", 0, 100, None),
        ("added3", 125, 25, None),
    ]
    manifests = [
        ManifestFile(
            manifest_path=path,
            manifest_length=1,
            partition_spec_id=0,
            sequence_number=1,
            min_sequence_number=1,
            added_snapshot_id=9,
            added_files_count=1,
            existing_files_count=1,
            deleted_files_count=0,
            deleted_rows_count=0,
            added_rows_count=added,
            existing_rows_count=existing,
            first_row_id=first,
        )
        for path, added, existing, first in counts
    ]
    deletes = dataclasses.replace(
        manifests[1], manifest_path="deletes", content=CONTENT_DELETE_MANIFEST
    )
    data, next_row_id = write_manifest_list(
        [*manifests, deletes],
        snapshot_id=9,
        parent_snapshot_id=None,
        sequence_number=1,
        format_version=3,
        first_row_id=1000,
    )
    assert [one.first_row_id for one in read_manifest_list(data)] == [925, 1000, 1125, 1225, None]
    assert next_row_id == 1375


def test_summaries_keep_the_sign_of_zero_and_ignore_nan():
    spec = PartitionSpec(PartitionField(5, 1000, IdentityTransform(), "f"))

    def summary(*values):
        files = [
            DataFile(file_path="f", partition=(value,), record_count=1, file_size_in_bytes=1)
            for value in values
        ]
        table = Entries.from_manifest_entries(
            [ManifestEntry(status=STATUS_ADDED, data_file=file) for file in files], spec, TYPES
        )
        (found,) = manifest_file(
            table, manifest_path="m", manifest_length=1, snapshot_id=1
        ).partitions
        return found

    both = summary(0.0, -0.0)
    assert (both.lower_bound, both.upper_bound) == (struct.pack("<f", -0.0), struct.pack("<f", 0.0))
    odd = summary(float("nan"), None, 3.0)
    assert (odd.contains_null, odd.contains_nan) == (True, True)
    assert (odd.lower_bound, odd.upper_bound) == (struct.pack("<f", 3.0),) * 2
    empty = summary(None, None)
    assert (empty.contains_null, empty.contains_nan, empty.lower_bound, empty.upper_bound) == (
        True,
        False,
        None,
        None,
    )
