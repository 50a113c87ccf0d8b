"""A data file of which the last row goes by merge on read goes itself, in the same snapshot.

Judged by brute force over rows, and by pyiceberg's reading of the same metadata.
"""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakehouse as lh

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64())])
MODES = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


def rows(ids, x=0):
    return pa.table({"id": list(ids), "x": [x] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def table(tmp_path):
    """Two files of ten rows."""
    made = lh.load_catalog(f"file://{tmp_path}/w").create_table(
        "raw.t", SCHEMA, format_version=3, properties=MODES
    )
    made.append(rows(range(10)))
    made.append(rows(range(10, 20)))
    return made


def reloaded(table):
    """Another handle of the table, as it is now."""
    return lh.load_catalog(table.location.removesuffix("/raw/t")).load_table("raw.t")


def content(table):
    found = table.scan().to_arrow().to_pylist()
    assert len({one["id"] for one in found}) == len(found)
    peer = StaticTable.from_metadata(table.metadata_location)
    told = [task.file.file_path for task in peer.scan().plan_files()]
    assert sorted(told) == sorted(file.file_path for file in table.scan().plan().files)
    return {one["id"]: one["x"] for one in found}


def files(table):
    plan = table.scan().plan()
    return len(plan.files), sum(len(task.deletes) for task in plan.tasks)


VERBS = {
    "upsert": lambda t, ids: t.upsert(rows(ids, 7), ["id"]),
    "update": lambda t, ids: t.update({"x": "7"}, f"id in {(*ids, -1)}"),
    "merge": lambda t, ids: (
        t.merge(rows(ids, 7), "t.id = s.id").when_matched_update_all().execute()
    ),
    "delete": lambda t, ids: t.delete(f"id in {(*ids, -1)} and x < 9"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_file_without_rows_is_gone(table, verb):
    first = table.current_snapshot()
    VERBS[verb](table, range(10))
    kept = {} if verb == "delete" else dict.fromkeys(range(10), 7)
    assert content(table) == dict.fromkeys(range(10, 20), 0) | kept
    assert files(table) == (1 + (verb != "delete"), 0)
    done = table.current_snapshot()
    assert done.parent_snapshot_id == first.snapshot_id, "one snapshot"
    assert done.operation == ("delete" if verb == "delete" else "overwrite")
    counted = {name: done.summary.get(name) for name in ("deleted-data-files", "deleted-records")}
    assert counted == {"deleted-data-files": "1", "deleted-records": "10"}
    assert done.summary["total-records"] == str(len(content(table)))
    before = table.scan(snapshot_id=first.snapshot_id).to_arrow()
    assert sorted(before["id"].to_pylist()) == list(range(20))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("left", [0, 4, 9])
def test_a_file_with_a_row_left_stays(table, verb, left):
    """The row that is left may be the first, the last, or one between."""
    VERBS[verb](table, [one for one in range(10) if one != left])
    assert content(table)[left] == 0
    assert files(table) == (2 + (verb != "delete"), 1)


@pytest.mark.parametrize("first", VERBS)
@pytest.mark.parametrize("second", VERBS)
def test_vectors_of_earlier_commits_count_and_go_too(table, first, second):
    VERBS[first](table, range(6))
    assert files(table)[1] == 1
    VERBS[second](table, range(6, 10))
    gone = {*(range(6) if first == "delete" else ()), *(range(6, 10) if second == "delete" else ())}
    assert content(table) == {one: 7 if one < 10 else 0 for one in range(20) if one not in gone}
    assert files(table)[1] == 0


@pytest.mark.parametrize("theirs", VERBS)
@pytest.mark.parametrize("mine", VERBS)
def test_two_writers_empty_a_file_together(table, theirs, mine):
    """Neither knows that nothing is left: the second commit finds out."""
    stale = reloaded(table)
    VERBS[theirs](table, range(5))
    done = VERBS[mine](stale, range(5, 10))
    assert done.decided_again == 0
    gone = {*(range(5) if theirs == "delete" else ()), *(range(5, 10) if mine == "delete" else ())}
    assert content(stale) == {one: 7 if one < 10 else 0 for one in range(20) if one not in gone}
    assert files(stale)[1] == 0


@pytest.mark.parametrize("mine", ["upsert", "update", "merge"])
def test_who_decided_on_rows_of_the_file_decides_again(table, mine):
    stale = reloaded(table)
    VERBS["upsert"](table, range(10))
    assert VERBS[mine](stale, [3, 12]).decided_again == 1
    assert content(stale) == {one: 7 if one < 10 else 0 for one in range(20)} | {12: 7}


def test_a_delete_of_rows_of_the_file_is_refused(table):
    """As that of a row that another writer changed is."""
    stale = reloaded(table)
    VERBS["upsert"](table, range(10))
    with pytest.raises(lh.errors.ValidationConflictError, match="removed 1 file"):
        stale.delete("id in (3, 12)")
    assert content(table) == {one: 7 if one < 10 else 0 for one in range(20)}


def test_changes_between_snapshots_are_those_of_the_rows(table):
    first = table.current_snapshot().snapshot_id
    table.upsert(rows(range(4), 5), ["id"])
    middle = table.current_snapshot().snapshot_id
    table.delete("id in (4,5,6,7,8,9)")
    found = table.changelog(middle).to_arrow().to_pylist()
    assert sorted((one["_change_type"], one["id"]) for one in found) == [
        ("DELETE", one) for one in range(4, 10)
    ]
    whole = table.changelog(first).to_arrow().to_pylist()
    deleted = sorted(one["id"] for one in whole if one["_change_type"] == "DELETE")
    assert deleted[-6:] == list(range(4, 10))


def test_row_ids_stay_and_expiry_deletes_the_file(table):
    ids = {
        one["id"]: one["_row_id"]
        for one in table.scan(select=["id", "_row_id"]).to_arrow().to_pylist()
    }
    (old,) = (file for file in table.scan(where="id = 3").plan().files)
    table.upsert(rows(range(10), 7), ["id"])
    now = table.scan(select=["id", "_row_id"]).to_arrow().to_pylist()
    assert {one["id"]: one["_row_id"] for one in now} == ids
    assert table.storage.exists(old.file_path)
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    table.expire_snapshots(older_than=later, retain_last=1)
    assert not table.storage.exists(old.file_path)
    assert len(content(table)) == 20
