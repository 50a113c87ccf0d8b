"""Long lists: shared, extended, cut, and decoded only where looked at."""

import pickle

import orjson
import pytest

from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.metadata.lazy_json_list import JsonList
from lakehouse.spec.metadata.metadata_draft import apply_updates
from lakehouse.spec.metadata.metadata_json import parse, serialize
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import snapshot_list
from lakehouse.spec.metadata.table_updates import AddSnapshot, RemoveSnapshots, SetSnapshotRef
from tests.unit.spec.samples import commit, grown, snapshot, table


@pytest.fixture(scope="module")
def long_table():
    return grown(table(), 1_100)


def ids(metadata):
    return [item.snapshot_id for item in metadata.snapshots]


def test_many_commits_in_memory_hold_what_the_file_holds(long_table):
    again = parse(serialize(long_table), "m")
    assert ids(long_table) == ids(again) == long_table.snapshots.ids() == list(range(1, 1_101))
    assert again == long_table
    assert [long_table.snapshot(n).sequence_number for n in (1, 511, 512, 513, 1_024, 1_100)] == [
        1,
        511,
        512,
        513,
        1_024,
        1_100,
    ]
    assert long_table.snapshots[-1].snapshot_id == 1_100
    assert long_table.snapshots[512].snapshot_id == 513
    assert [item.snapshot_id for item in long_table.snapshots[510:514]] == [511, 512, 513, 514]
    with pytest.raises(IndexError):
        long_table.snapshots[1_100]
    with pytest.raises(IndexError):
        long_table.snapshots[-1_101]


def test_removing_keeps_the_text_of_the_rest(long_table):
    for metadata in (long_table, parse(serialize(long_table), "m")):
        gone = tuple(n for n in range(1, 1_100) if n % 7)
        after = apply_updates(metadata, [RemoveSnapshots(gone)], now_ms=1)
        assert ids(after) == [n for n in range(1, 1_101) if n % 7 == 0 or n == 1_100]
        assert ids(parse(serialize(after), "m")) == ids(after)
        assert ids(metadata) == list(range(1, 1_101))
        assert [entry.snapshot_id for entry in after.snapshot_log] == [1_099, 1_100]


def test_opening_and_committing_decode_one_snapshot_however_many_there_are(long_table, monkeypatch):
    text = serialize(long_table)
    decoded = []
    original = Snapshot.from_json.__func__
    monkeypatch.setattr(
        Snapshot,
        "from_json",
        classmethod(lambda cls, *args: decoded.append(1) or original(cls, *args)),
    )
    metadata = parse(text, "m")
    metadata = commit(
        metadata, AddSnapshot(snapshot(1_101, 1_100)), SetSnapshotRef("main", 1_101), now=1
    )
    assert metadata.current_snapshot().snapshot_id == 1_101
    assert serialize(metadata).count(b'"manifest-list"') == 1_101
    assert len(decoded) == 1


def test_versions_share_what_they_hold():
    base = grown(table(), 3)
    left, right = grown(base, 1, start=10), grown(base, 2, start=20)
    assert (ids(base), ids(left), ids(right)) == ([1, 2, 3], [1, 2, 3, 10], [1, 2, 3, 20, 21])


def test_metadata_can_be_shipped_to_another_process(long_table):
    for metadata in (long_table, parse(serialize(long_table), "m"), table(version=3)):
        assert pickle.loads(pickle.dumps(metadata)) == metadata  # noqa: S301 - our own bytes


def test_an_empty_list():
    empty = snapshot_list()
    assert not empty
    assert len(empty) == 0
    assert empty.find(1) is None
    assert list(empty.without({1})) == []
    assert empty == []
    assert empty != 5


def test_ids_that_are_missing_or_no_numbers_are_corrupt():
    for item in ({"timestamp-ms": 5}, {"snapshot-id": "7", "timestamp-ms": 5}):
        raw = orjson.dumps(item)
        damaged = JsonList.from_raw(
            raw + b"," + raw, id_key="snapshot-id", decode=Snapshot.from_json, where="here"
        )
        assert damaged.find(8) is None
        with pytest.raises(CorruptMetadataError, match="here"):
            damaged.ids()


def test_a_snapshot_that_is_its_own_ancestor_is_corrupt():
    base = grown(table(), 2)
    text = serialize(base).replace(
        b'"snapshot-id":1,"sequence-number"',
        b'"snapshot-id":1,"parent-snapshot-id":2,"sequence-number"',
    )
    with pytest.raises(CorruptMetadataError, match="ancestor"):
        list(parse(text, "m").ancestors(2))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_list_that_is_fetched_late_is_the_list(count):
    items = [snapshot(number + 1) for number in range(count)]
    whole, asked = snapshot_list(items), []

    def late():
        asked.clear()
        return JsonList.late(snapshot_list(items[-1:]), lambda: asked.append(1) or whole)

    if items:
        assert late().find(items[-1].snapshot_id) == items[-1]
        assert late()
        assert late().held_bytes() > 0
        assert not asked
    for look in (list, len, bool, JsonList.ids, JsonList.raw_parts, lambda one: one == whole):
        assert look(late()) == look(whole)
    added = snapshot(count + 1)
    grown_late = late().append(added.snapshot_id, added, added.to_json(2))
    grown_whole = whole.append(added.snapshot_id, added, added.to_json(2))
    assert not asked
    assert b",".join(grown_late.raw_parts()) == b",".join(grown_whole.raw_parts())
    assert list(pickle.loads(pickle.dumps(grown_late))) == [*items, added]  # noqa: S301 - our own
    assert asked == [1]
