"""The scope rules of deletes, and how tasks are cut and packed."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform, VoidTransform

from lakehouse.errors import CorruptMetadataError
from lakehouse.scan.delete_index import DeleteIndex
from lakehouse.scan.scan_tasks import FileScanTask, LazyItems, SplitOptions, combine, split
from lakehouse.spec.manifests.data_file import (
    CONTENT_EQUALITY_DELETES,
    CONTENT_POSITION_DELETES,
    FILE_FIELD_ID,
    PATH_FIELD_ID,
    STATUS_ADDED,
    DataFile,
    ManifestEntry,
)

SPECS = {
    0: PartitionSpec(spec_id=0),
    1: PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"), spec_id=1),
    2: PartitionSpec(PartitionField(1, 1000, VoidTransform(), "p"), spec_id=2),
    3: PartitionSpec(
        PartitionField(1, 1000, VoidTransform(), "p"),
        PartitionField(2, 1001, IdentityTransform(), "q"),
        spec_id=3,
    ),
}


def file(path="f.parquet", *, partition=("a",), spec_id=1, **fields) -> DataFile:
    return DataFile(
        file_path=path,
        partition=partition,
        spec_id=spec_id,
        record_count=1,
        file_size_in_bytes=10,
        **fields,
    )


def deletes(sequence_number: int, **fields) -> ManifestEntry:
    return ManifestEntry(
        status=STATUS_ADDED, sequence_number=sequence_number, data_file=file("d", **fields)
    )


def found(entry: ManifestEntry, data: DataFile, sequence_number: int) -> bool:
    return bool(DeleteIndex([entry], SPECS).deletes_for(data, sequence_number))


POSITION = {"content": CONTENT_POSITION_DELETES}
EQUALITY = {"content": CONTENT_EQUALITY_DELETES, "equality_ids": (1,)}
VECTOR = {**POSITION, "file_format": "puffin", "content_offset": 4, "content_size_in_bytes": 8}


@pytest.mark.parametrize(
    ("fields", "older", "same", "newer"),
    [
        (POSITION, True, True, False),
        ({**POSITION, "referenced_data_file": "f.parquet"}, True, True, False),
        (EQUALITY, True, False, False),
    ],
)
def test_sequence_numbers(fields, older, same, newer):
    answers = [found(deletes(5, **fields), file(), number) for number in (4, 5, 6)]
    assert answers == [older, same, newer]


def test_a_vector_is_never_older_than_its_file_nor_deletes_more_rows_than_it_has():
    """Like Iceberg's Java library, which refuses the first."""
    vector = deletes(5, **VECTOR, referenced_data_file="f.parquet")
    assert found(vector, file(), 4)
    assert found(vector, file(), 5)
    with pytest.raises(CorruptMetadataError, match=r"f\.parquet has sequence number 5, the file 6"):
        found(vector, file(), 6)
    with pytest.raises(CorruptMetadataError, match="deletes 1 rows, the file has 0"):
        found(vector, dataclasses.replace(file(), record_count=0), 5)


@pytest.mark.parametrize("fields", [POSITION, {**POSITION, "referenced_data_file": ""}, EQUALITY])
def test_other_partitions_and_specs_are_out_of_scope(fields):
    assert not found(deletes(5, **fields, partition=("b",)), file(), 1)
    assert not found(deletes(5, **fields), file(partition=("a",), spec_id=0), 1)


def exact(field_id: int) -> dict[str, object]:
    return {
        **POSITION,
        "lower_bounds": {field_id: b"f.parquet"},
        "upper_bounds": {field_id: b"f.parquet"},
    }


@pytest.mark.parametrize(
    "fields",
    [
        {**POSITION, "referenced_data_file": "f.parquet"},
        exact(PATH_FIELD_ID),
        exact(FILE_FIELD_ID),
    ],
)
def test_deletes_that_name_their_file_apply_wherever_they_are_listed(fields):
    """Like Iceberg's Java reader; DuckDB lists them under the current spec, not the file's."""
    for entry in (
        deletes(5, **fields, partition=("b",)),
        deletes(5, **fields, partition=(None,), spec_id=1),
    ):
        assert found(entry, file(partition=(), spec_id=0), 5)
        assert not found(entry, file(partition=(), spec_id=0), 6)
        assert not found(entry, file("other", partition=("b",)), 1)


def test_equality_deletes_without_partition_are_global():
    everywhere = deletes(5, **EQUALITY, spec_id=0, partition=())
    assert found(everywhere, file(partition=("z",)), 4)
    assert not found(deletes(5, **POSITION, spec_id=0, partition=()), file(), 4)


def test_equality_deletes_whose_partition_fields_are_all_void_are_global():
    """Fields are never taken out of a v1 spec: `void` takes their place."""
    everywhere = deletes(5, **EQUALITY, spec_id=2, partition=(None,))
    assert found(everywhere, file(partition=("z",)), 4)
    assert found(everywhere, file(partition=(), spec_id=0), 4)
    assert not found(everywhere, file(partition=("z",)), 5)
    assert not found(deletes(5, **EQUALITY, spec_id=3, partition=(None, "a")), file(), 4)
    assert not found(deletes(5, **POSITION, spec_id=2, partition=(None,)), file(), 4)


def test_nan_partitions_are_equal():
    assert found(deletes(5, **POSITION, partition=(math.nan,)), file(partition=(math.nan,)), 1)
    assert not found(deletes(5, **POSITION, partition=(0.0,)), file(partition=(-0.0,)), 1)


def test_a_vector_stands_for_all_position_deletes():
    entries = [
        deletes(3, **POSITION),
        deletes(4, **POSITION, referenced_data_file="f.parquet"),
        deletes(5, **VECTOR, referenced_data_file="f.parquet"),
        deletes(6, **EQUALITY),
    ]
    index = DeleteIndex(entries, SPECS)
    assert index.deletes_for(file(), 1) == (entries[2].data_file, entries[3].data_file)
    assert index.deletes_for(file("other"), 1) == (entries[0].data_file, entries[3].data_file)


@pytest.mark.parametrize(
    ("lower", "upper"), [(b"a", b"e"), (b"g", b"z"), (b"z", b"a"), (b"f", b"f"), (b"a", None)]
)
def test_bounds_of_paths_skip_no_position_deletes(lower, upper):
    """Not all writers' bounds cover the paths in the file; Iceberg's Java does not skip either."""
    bounds = {
        "lower_bounds": {PATH_FIELD_ID: lower},
        "upper_bounds": {} if upper is None else {PATH_FIELD_ID: upper},
    }
    assert found(deletes(5, **POSITION, **bounds), file(), 1)


@pytest.mark.parametrize("second", [4, 5])
def test_two_vectors_of_a_file_contradict_each_other(second):
    entries = [deletes(5, **VECTOR, referenced_data_file="f.parquet")]
    entries += [deletes(second, **VECTOR, referenced_data_file="f.parquet")]
    with pytest.raises(CorruptMetadataError, match=r"f\.parquet has two deletion vectors"):
        DeleteIndex(entries, SPECS)


def test_a_vector_that_names_no_file_is_refused():
    with pytest.raises(CorruptMetadataError, match="names no data file"):
        DeleteIndex([deletes(5, **VECTOR)], SPECS)


def task(size: int, offsets: tuple[int, ...] | None = None) -> FileScanTask:
    made = dataclasses.replace(file(), file_size_in_bytes=size, split_offsets=offsets)
    return FileScanTask(data_file=made, length=size)


@given(
    st.lists(
        st.tuples(st.integers(1, 400), st.lists(st.integers(0, 399), max_size=5, unique=True)),
        max_size=12,
    ),
    st.integers(10, 300),
    st.integers(1, 4),
)
def test_every_byte_is_in_one_group(sizes, target, lookback):
    tasks = [task(size, tuple(sorted(offsets)) or None) for size, offsets in sizes]
    groups = list(combine(tasks, SplitOptions(target, lookback, 4)))
    pieces = sorted(
        (id(piece.data_file), piece.start, piece.length)
        for group in groups
        for piece in group.tasks
    )
    whole = {id(one.data_file): one.length for one in tasks}
    for owner, size in whole.items():
        end = 0
        for start, length in [(start, length) for mine, start, length in pieces if mine == owner]:
            assert start == end
            end = start + length
        assert end == size
    for group in groups:
        assert len(group.tasks) == 1 or group.size_bytes <= target


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        (None, [(0, 100)]),
        ((4,), [(0, 100)]),
        ((4, 30, 60, 90), [(0, 60), (60, 40)]),
        ((4, 60, 30), [(0, 100)]),
        ((4, 200), [(0, 100)]),
    ],
)
def test_cut_at_split_offsets(offsets, expected):
    assert [(one.start, one.length) for one in split(task(100, offsets), 40)] == expected


def test_small_files_share_a_group():
    groups = list(combine([task(10) for _ in range(10)], SplitOptions(100, 10, 20)))
    assert [len(group.tasks) for group in groups] == [5, 5]


def test_lazy_items_make_parts_once():
    made = []

    def make(part: int) -> list[int]:
        made.append(part)
        return [part * 10 + n for n in range(part)]

    items = LazyItems([1, 0, 3], [1, 0, 3], make)
    assert len(items) == 4
    assert made == []
    assert (items[-1], items[3], items[1]) == (32, 32, 30)
    assert made == [3]
    assert list(items) == [10, 30, 31, 32]
    assert items[1:3] == [30, 31]
    with pytest.raises(IndexError):
        items[4]
