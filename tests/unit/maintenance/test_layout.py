from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from lakehouse.maintenance.health.file_layout import measure_layout, sort_overlap
from lakehouse.spec.manifests.data_file import DataFile, ManifestEntry
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.metadata.table_metadata import new_table_metadata
from lakehouse.spec.partitioning.partition_terms import parse_partition_spec, parse_sort_order
from lakehouse.spec.schema.iceberg_types import field_types

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "name", StringType(), required=False),
)


def table(sort_by=(), partition_by=("region",)):
    return new_table_metadata(
        schema=SCHEMA,
        spec=parse_partition_spec(partition_by, SCHEMA),
        sort_order=parse_sort_order(sort_by, SCHEMA),
        location="/t",
        properties={},
        format_version=2,
        table_uuid="00000000-0000-0000-0000-000000000001",
        now_ms=1,
    )


def file(number, region, low, high, *, name=None, status=1, offsets=None, size=100, content=0):
    lower, upper = {}, {}
    if low is not None:
        lower[1], upper[1] = to_bytes(LongType(), low), to_bytes(LongType(), high)
    if name is not None:
        lower[3], upper[3] = (to_bytes(StringType(), one) for one in name)
    data = DataFile(
        content=content,
        file_path=f"f{number}",
        partition=(region,),
        record_count=1,
        file_size_in_bytes=size,
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=offsets,
    )
    return ManifestEntry(
        status=status, snapshot_id=1, sequence_number=1, file_sequence_number=1, data_file=data
    )


def layout(entries, metadata=None):
    metadata = metadata or table()
    return measure_layout(
        [Entries.from_manifest_entries(entries, metadata.spec(), field_types(metadata.schema()))],
        metadata,
    )


ranges = st.tuples(st.integers(-20, 20), st.integers(0, 15)).map(
    lambda one: (one[0], one[0] + one[1])
)
files = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.one_of(st.none(), ranges)), max_size=25
)


@given(files)
def test_overlap_is_that_of_every_pair(found):
    entries = [
        file(number, region, *(pair or (None, None))) for number, (region, pair) in enumerate(found)
    ]
    pairs = overlapping = counted = 0
    for one, (region, mine) in enumerate(found):
        others = [
            pair
            for other, (where, pair) in enumerate(found)
            if other != one and where == region and pair
        ]
        if mine and others:
            counted += 1
            pairs += len(others)
            overlapping += sum(low <= mine[1] and mine[0] <= high for low, high in others)
    seen = layout(entries).column("id") if entries else None
    if not pairs:
        assert seen is None
    else:
        assert (seen.files, seen.share, seen.depth) == (
            counted,
            pytest.approx(overlapping / pairs),
            pytest.approx(1 + overlapping / counted),
        )


def test_strings_sort_as_strings_and_columns_come_least_overlap_first():
    entries = [
        file(n, "a", 0, 9, name=pair)
        for n, pair in enumerate([("a", "b"), ("ba", "c"), ("10", "9"), ("é", "ê")])
    ]
    found = layout(entries)
    assert [(one.column, one.share) for one in found.columns] == [("name", 0.0), ("id", 1.0)]


def test_deleted_entries_and_delete_files_do_not_count():
    entries = [
        file(0, "a", 0, 9),
        file(1, "a", 0, 9, status=2),
        file(2, "a", 0, 9, content=1),
        file(3, "a", 10, 19),
    ]
    found = layout(entries)
    assert (found.column("id").files, found.column("id").share) == (2, 0.0)
    assert found.mean_files_per_partition == 2


def test_row_groups_are_counted_where_they_are_recorded():
    entries = [
        file(0, "a", 0, 1, offsets=(4, 50), size=300),
        file(1, "a", 0, 1, offsets=(4,), size=100),
        file(2, "b", 0, 1),
    ]
    found = layout(entries)
    assert (found.row_groups, found.row_group_files, found.mean_row_group_bytes) == (
        3,
        2,
        pytest.approx(400 / 3),
    )
    assert found.mean_files_per_partition == 1.5
    assert layout([file(0, "a", 0, 1)]).mean_row_group_bytes is None


@pytest.mark.parametrize(
    ("sort_by", "depth"),
    [((), None), (("id",), 2.0), (("bucket(4, id)",), None), (("truncate(10, id)",), 2.0)],
)
def test_overlap_of_the_sort_order(sort_by, depth):
    metadata = table(sort_by)
    entries = Entries.from_manifest_entries(
        [file(0, "a", 0, 5), file(1, "a", 5, 9)], metadata.spec(), field_types(metadata.schema())
    )
    found = sort_overlap([entries], metadata)
    assert (found and found.depth) == depth


def test_an_empty_table():
    found = measure_layout([], table())
    assert (found.columns, found.mean_files_per_partition, found.row_groups) == ((), 0.0, 0)
