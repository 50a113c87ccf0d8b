"""Delete files as other engines and the spec want them."""

from __future__ import annotations

import dataclasses
import io
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType

from lakehouse.data.deletes.delete_loader import DeleteLoader, EqualityKeys
from lakehouse.data.reading.scan_reader import ReadRequest, read_table
from lakehouse.data.writing.data_file_writer import WriteRequest, write_all
from lakehouse.data.writing.delete_writer import FileDeletes, write_deletes
from lakehouse.errors import CorruptMetadataError, InvalidInputError, UnsupportedFeatureError
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile
from lakehouse.storage.memory import MemoryStorage

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "region", StringType()))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"), spec_id=4)


def request(version, **changes):
    values = {
        "schema": SCHEMA,
        "spec": SPEC,
        "location": "memory://deletes/data",
        "write_id": "d",
        "format_version": version,
        **changes,
    }
    return WriteRequest(**values)


def data_files(storage):
    table = pa.table({"id": np.arange(30), "region": ["eu", "us", "eu"] * 10})
    return write_all(
        table, request(2, write_id="w", properties={"write.target-file-size-bytes": "700"}), storage
    )


def test_position_delete_files_are_sorted_partitioned_and_bounded():
    storage = MemoryStorage()
    files = data_files(storage)
    items = [FileDeletes(file, np.array([1, 0, 1])) for file in reversed(files)]
    by_partition = request(2, properties={"write.delete.granularity": "partition"})
    written = write_deletes(items, by_partition, storage, task="3")
    assert {one.partition for one in written} == {file.partition for file in files}
    for one in written:
        mine = sorted(f.file_path for f in files if f.partition == one.partition)
        table = pq.read_table(io.BytesIO(storage.read(one.file_path)))
        assert table.to_pylist() == [
            {"file_path": path, "pos": pos} for path in mine for pos in (0, 1)
        ]
        assert [int(f.metadata[b"PARQUET:field_id"]) for f in table.schema] == [
            2147483546,
            2147483545,
        ]
        assert one.lower_bounds[2147483546].decode() == mine[0]
        assert one.upper_bounds[2147483546].decode() == mine[-1]
        assert one.record_count == 2 * len(mine)
        assert (one.content, one.spec_id, one.sort_order_id) == (1, 4, None)
        assert one.referenced_data_file == (mine[0] if len(mine) == 1 else None)
        assert "region=" in one.file_path


def test_each_data_file_has_its_own_position_delete_file_by_default():
    storage = MemoryStorage()
    again = write_all(
        pa.table({"id": [1], "region": ["eu"]}), request(2, write_id="again"), storage
    )
    files = [*data_files(storage), *again]
    written = write_deletes(
        [FileDeletes(file, np.array([0])) for file in files], request(2), storage
    )
    assert sorted(one.referenced_data_file for one in written) == sorted(
        file.file_path for file in files
    )
    assert (
        len({one.file_path for one in written})
        == len(files)
        > len({file.partition for file in files})
    )


@given(positions=st.lists(st.sets(st.integers(0, 99_999), min_size=1), min_size=1, max_size=4))
def test_pyiceberg_reads_our_vectors(positions):
    storage = MemoryStorage()
    files = [
        DataFile(
            file_path=f"memory://deletes/f{n}",
            partition=("eu",),
            spec_id=4,
            record_count=100_000,
            file_size_in_bytes=1,
        )
        for n in range(len(positions))
    ]
    items = [
        FileDeletes(one, np.array(sorted(some))) for one, some in zip(files, positions, strict=True)
    ]
    written = write_deletes(items, request(3), storage)
    assert len({one.file_path for one in written}) == 1
    raw = storage.read(written[0].file_path)
    theirs = deletion_vectors_from_puffin_file(PuffinFile(raw))
    assert {vector.referenced_data_file: vector.to_vector().to_pylist() for vector in theirs} == {
        one.file_path: sorted(some) for one, some in zip(files, positions, strict=True)
    }
    for one, some, blob in zip(written, positions, PuffinFile(raw).footer.blobs, strict=True):
        assert (one.content_offset, one.content_size_in_bytes, one.record_count) == (
            blob.offset,
            blob.length,
            len(some),
        )
        assert one.is_deletion_vector
        assert one.file_size_in_bytes == len(raw)
        assert blob.properties == {
            "referenced-data-file": one.referenced_data_file,
            "cardinality": str(len(some)),
        }


def test_a_vector_replaces_older_position_deletes():
    storage = MemoryStorage()
    one = data_files(storage)[0]
    old = write_deletes([FileDeletes(one, np.array([0, 1]))], request(2, write_id="old"), storage)
    new = write_deletes(
        [FileDeletes(one, np.array([0, 1, 2]))], request(3, write_id="new"), storage
    )
    rows = read_table([FileScanTask(data_file=one)], ReadRequest(schema=SCHEMA), storage).num_rows
    got = read_table(
        [FileScanTask(data_file=one, deletes=(*old, *new))], ReadRequest(schema=SCHEMA), storage
    )
    assert got.num_rows == rows - 3


def test_deletes_of_other_files_do_not_touch():
    storage = MemoryStorage()
    first, second, *_ = data_files(storage)
    deletes = write_deletes(
        [FileDeletes(first, np.arange(first.record_count))], request(2), storage
    )
    for one, left in ((first, 0), (second, second.record_count)):
        task = FileScanTask(data_file=one, deletes=tuple(deletes))
        assert read_table([task], ReadRequest(schema=SCHEMA), storage).num_rows == left


def test_what_cannot_be_deleted_is_refused():
    storage = MemoryStorage()
    one = data_files(storage)[0]
    with pytest.raises(UnsupportedFeatureError, match="format version 1"):
        write_deletes([FileDeletes(one, np.array([0]))], request(1), storage)
    for wrong in (-1, one.record_count):
        with pytest.raises(InvalidInputError, match="outside"):
            write_deletes([FileDeletes(one, np.array([wrong]))], request(2), storage)
    with pytest.raises(InvalidInputError, match="partition spec 9"):
        write_deletes(
            [FileDeletes(dataclasses.replace(one, spec_id=9), np.array([0]))], request(2), storage
        )
    with pytest.raises(InvalidInputError, match="delete file"):
        write_deletes(
            [FileDeletes(dataclasses.replace(one, content=1), np.array([0]))], request(2), storage
        )
    assert (
        write_deletes([FileDeletes(one, np.array([], dtype=np.int64))], request(2), storage) == []
    )


def test_each_delete_file_is_read_once():
    calls = []

    def read(one, schema):
        calls.append(one.file_path)
        return pa.table({"file_path": ["a", "b", "a"], "pos": pa.array([3, 1, 2], pa.int64())})

    loader = DeleteLoader(MemoryStorage(), read)
    delete = DataFile(file_path="memory://d", content=1, record_count=3, file_size_in_bytes=1)
    for path, expected in (("a", [2, 3]), ("b", [1]), ("c", None)):
        target = DataFile(file_path=path, record_count=9, file_size_in_bytes=1)
        found = loader.positions(target, [delete])
        assert (None if found is None else found.tolist()) == expected
    assert calls == ["memory://d"]


def test_equality_keys_of_many_wide_columns():
    """More combinations than 64 bits count."""
    count = 2000
    rng = np.random.default_rng(4)
    columns = {str(i): pa.array(rng.permutation(count)) for i in range(1, 8)}
    keys = EqualityKeys(tuple(range(1, 8)), pa.table(columns))
    rows = {
        i: pa.concat_arrays([columns[str(i)].slice(0, 10), columns[str(i)].slice(i, 10)])
        for i in range(1, 8)
    }
    assert keys.matches(rows).tolist() == [True] * 10 + [False] * 10


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_zeros_of_equality_deletes_have_signs_and_nan_is_one_value(kind):
    other_nan = np.array([0xFFC00001], np.uint32).view(np.float32)[0]
    keys = EqualityKeys((1,), pa.table({"1": pa.array([0.0, math.nan, None], kind)}))
    rows = {1: pa.array([0.0, -0.0, math.nan, other_nan, None, 1.0], kind, from_pandas=False)}
    assert keys.matches(rows).tolist() == [True, False, True, True, True, False]


def test_an_equality_delete_without_ids_is_corrupt():
    storage = MemoryStorage()
    one = data_files(storage)[0]
    bad = dataclasses.replace(one, content=CONTENT_EQUALITY_DELETES)
    with pytest.raises(CorruptMetadataError, match="no equality ids"):
        read_table(
            [FileScanTask(data_file=one, deletes=(bad,))], ReadRequest(schema=SCHEMA), storage
        )


def test_an_equality_delete_of_a_dropped_column_still_applies():
    storage = MemoryStorage()
    old = Schema(*SCHEMA.fields, NestedField(3, "x", LongType()))
    new = Schema(SCHEMA.fields[0], NestedField(4, "x", LongType()))
    spec = PartitionSpec(spec_id=0)
    table = pa.table({"id": [1, 2, 3], "region": ["a", "b", "c"], "x": [10, 20, 30]})
    (one,) = write_all(table, request(2, schema=old, spec=spec, write_id="o"), storage)
    keys = Schema(NestedField(3, "x", LongType()))
    (key_file,) = write_all(
        pa.table({"x": [20]}), request(2, schema=keys, spec=spec, write_id="k"), storage
    )
    delete = dataclasses.replace(key_file, content=CONTENT_EQUALITY_DELETES, equality_ids=(3,))
    got = read_table(
        [FileScanTask(data_file=one, deletes=(delete,))],
        ReadRequest(schema=new, older_schemas=(old,)),
        storage,
    )
    assert got.to_pylist() == [{"id": 1, "x": None}, {"id": 3, "x": None}]


def test_keys_of_an_equality_delete_are_dictionaries_inside_a_struct_in_several_row_groups():
    storage = MemoryStorage()
    struct = StructType(NestedField(4, "name", StringType()))
    schema = Schema(SCHEMA.fields[0], NestedField(3, "s", struct))
    table = pa.table({"id": [1, 2, 3], "s": [{"name": one} for one in "abc"]})
    spec = PartitionSpec(spec_id=0)
    (one,) = write_all(table, request(2, schema=schema, spec=spec, write_id="o"), storage)
    names = pa.array(["a", "b"]).dictionary_encode()
    field = pa.field("name", names.type, metadata={"PARQUET:field_id": "4"})
    array = pa.StructArray.from_arrays([names], fields=[field])
    around = pa.field("s", array.type, metadata={"PARQUET:field_id": "3"})
    keys = pa.table([array], schema=pa.schema([around]))
    sink = io.BytesIO()
    pq.write_table(keys, sink, row_group_size=1)
    storage.write("memory://deletes/keys.parquet", sink.getvalue())
    delete = DataFile(
        file_path="memory://deletes/keys.parquet",
        record_count=2,
        file_size_in_bytes=len(sink.getvalue()),
        content=CONTENT_EQUALITY_DELETES,
        equality_ids=(4,),
    )
    task = FileScanTask(data_file=one, deletes=(delete,))
    assert read_table([task], ReadRequest(schema=schema), storage)["id"].to_pylist() == [3]
