"""Many manifests decoded in one go say what each says by itself."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.scan.manifests.snapshot_entries import load_manifests
from lakehouse.spec.manifests.manifest import decode_alike, decode_manifest
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.metadata.all_field_types import types_of


def same(one: Entries, other: Entries) -> bool:
    names = sorted({*one.table.column_names, *other.table.column_names})
    return all(
        one.table[name].to_pylist() == other.table[name].to_pylist()
        for name in names
        if name in one.table.column_names and name in other.table.column_names
    ) and set(one.table.column_names) == set(other.table.column_names)


@pytest.fixture(params=[2, 3])
def table(request, tmp_path):
    lake = lh.load_catalog(str(tmp_path))
    made = lake.create_table(
        "ns.t",
        pa.schema({"id": pa.int64(), "city": pa.string()}),
        partition_by=["city"],
        properties={"format-version": str(request.param)},
    )
    for n in range(4):
        cities = ["Oslo", "Rome", None][: n % 3 + 1]
        made.append(pa.table({"id": [n, n + 1, n + 2][: len(cities)], "city": cities}))
    made.delete(where="city = 'Rome'")  # entries that exist, and deleted ones
    return made


def files_of(table):
    head = table.metadata.current_snapshot()
    return [
        (one, table.storage.read(one.manifest_path)) for one in load_manifests(table.storage, head)
    ]


def test_the_same_as_each_by_itself(table):
    files = files_of(table)
    assert len(files) > 2
    spec, types = table.spec(), types_of(table.metadata)
    each = [decode_manifest(data, one, spec, types) for one, data in files]
    together = decode_alike(files, spec, types)
    assert together is not None
    assert same(together, Entries.concat(each))
    statuses = set(together.table["status"].to_pylist())
    assert len(statuses) > 1, statuses
    if table.metadata.format_version == 3:
        assert None not in together.table["first_row_id"].to_pylist()


def test_one_that_is_not_listed_yet_keeps_its_sequence_number_open(table):
    (first, data), *others = [one for one in files_of(table) if not one[0].deleted_files_count]
    new = replace(first, sequence_number=None, first_row_id=None, added_snapshot_id=77)
    found = decode_alike([*others, (new, data)], table.spec(), types_of(table.metadata))
    mine = found.table.slice(
        sum(one.added_files_count + one.existing_files_count for one, _ in others)
    )
    assert set(mine["sequence_number"].to_pylist()) == {None}
    assert set(mine["snapshot_id"].to_pylist()) == {77}


def test_what_is_damaged_or_unlike_is_left_to_each_by_itself(table):
    files = files_of(table)
    spec, types = table.spec(), types_of(table.metadata)
    broken = [*files[:-1], (files[-1][0], files[-1][1][:-40])]
    assert decode_alike(broken, spec, types) is None
    assert (
        decode_alike([*files[:-1], (replace(files[-1][0], content=1), files[-1][1])], spec, types)
        is None
    )
