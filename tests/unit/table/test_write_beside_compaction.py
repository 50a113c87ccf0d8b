"""A row-level write decided before a compaction landed: the same rows in other files."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import ValidationConflictError
from lakehouse.maintenance.compaction.file_groups import CompactionOptions

SCHEMA = pa.schema({"id": pa.int64(), "day": pa.int64()})


@pytest.fixture
def catalog(tmp_path):
    return lh.load_catalog(tmp_path.as_uri())


MODES = [
    ("copy-on-write", "file", 2),
    ("merge-on-read", "file", 2),
    ("merge-on-read", "partition", 2),
    ("merge-on-read", "file", 3),
]


@pytest.fixture(params=MODES, ids=lambda one: "-".join(map(str, one)))
def stale(request, catalog):
    """The table as it was before somebody else compacted it."""
    mode, granularity, version = request.param
    properties = {"write.delete.mode": mode, "write.delete.granularity": granularity}
    table = catalog.create_table("raw.t", SCHEMA, format_version=version, properties=properties)
    for first in range(0, 40, 10):
        table.append(rows(first))
    other = catalog.load_table("raw.t")
    other.compact(CompactionOptions(min_input_files=2))
    assert len(other.scan().plan().files) == 1
    return table


def rows(first):
    return pa.table(
        {"id": list(range(first, first + 10)), "day": [first // 20] * 10}, schema=SCHEMA
    )


def ids(table):
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def unreferenced(table):
    reached = {
        file.file_path
        for snapshot in table.snapshots()
        for file in table.scan(snapshot_id=snapshot.snapshot_id).plan().files
    }
    deletes = {file["file_path"] for file in table.inspect.all_delete_files().to_pylist()}
    return (
        {info.location for info in table.storage.list(table.location) if "/data/" in info.location}
        - reached
        - deletes
    )


def test_an_overwrite_is_decided_again(stale, catalog):
    written = stale.overwrite(pa.table({"id": [100], "day": [0]}, schema=SCHEMA), "day = 0")
    table = catalog.load_table("raw.t")
    assert ids(table) == [*range(20, 40), 100]
    assert [one.operation for one in table.history()[-2:]] == ["replace", "overwrite"]
    assert stale.current_snapshot() == written.snapshot == table.current_snapshot()
    assert unreferenced(table) == set()


def test_a_delete_is_decided_again(stale, catalog):
    stale.delete("id in (3, 17, 39)")
    table = catalog.load_table("raw.t")
    assert ids(table) == [one for one in range(40) if one not in (3, 17, 39)]
    assert unreferenced(table) == set()


def test_rows_that_somebody_else_removed_are_a_conflict(stale, catalog):
    catalog.load_table("raw.t").delete("id = 5")
    before = stale.metadata
    with pytest.raises(ValidationConflictError, match=r"raw\.t"):
        stale.overwrite(rows(0), "day = 0")
    assert stale.metadata is before
    table = catalog.load_table("raw.t")
    assert ids(table) == [one for one in range(40) if one != 5]
    assert unreferenced(table) == set()


def test_nothing_is_decided_again_under_another_schema(stale, catalog):
    """By merge on read nothing has to be, from version 3 on: the row is found where it is."""
    with catalog.load_table("raw.t").update_schema() as change:
        change.add_column("note", "string")
    if stale.metadata.format_version >= 3:
        assert stale.delete("id = 1").decided_again == 0
        assert ids(stale) == [0, *range(2, 40)]
        return
    with pytest.raises(ValidationConflictError):
        stale.delete("id = 1")
