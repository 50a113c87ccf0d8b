"""A write that its caller named is done once in the history of a branch."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse as lh

SCHEMA = pa.schema({"id": pa.int64()})
NAME = "run-7:step"


@pytest.fixture
def catalog(tmp_path):
    return lh.load_catalog(tmp_path.as_uri())


@pytest.fixture
def table(catalog):
    made = catalog.create_table("raw.t", SCHEMA)
    made.append(rows(1, 2, 3))
    return made


def rows(*ids):
    return pa.table({"id": list(ids)}, schema=SCHEMA)


def ids(catalog, ref="main"):
    return sorted(catalog.load_table("raw.t").scan(ref=ref).to_arrow()["id"].to_pylist())


def outside(tmp_path):
    path = tmp_path / f"{uuid.uuid4().hex}.parquet"
    pq.write_table(pa.table({"id": pa.array([9], pa.int64())}), path)
    return path.as_uri()


VERBS = {
    "append": (lambda table, _, **how: table.append(rows(9), **how), [1, 2, 3, 9]),
    "overwrite": (lambda table, _, **how: table.overwrite(rows(9), "id = 1", **how), [2, 3, 9]),
    "delete": (lambda table, _, **how: table.delete("id = 1", **how), [2, 3]),
    "add_files": (
        lambda table, path, **how: table.add_files([path], **how),
        [1, 2, 3, 9],
    ),
}


@pytest.fixture(params=VERBS)
def verb(request, tmp_path):
    call, expected = VERBS[request.param]
    path = outside(tmp_path)
    return lambda table, **how: call(table, path, commit_id=NAME, **how), expected


@pytest.mark.parametrize("handle", ["same", "fresh", "from before"])
def test_repeated_it_returns_its_snapshot_and_writes_no_file(catalog, table, verb, handle):
    call, expected = verb
    before = catalog.load_table("raw.t")
    first = call(table)
    table.append(rows(4))
    files = {info.location for info in table.storage.list(table.location)}
    again = {"same": table, "fresh": catalog.load_table("raw.t"), "from before": before}[handle]
    assert call(again).snapshot_id == first.snapshot_id
    assert {info.location for info in table.storage.list(table.location)} == files
    assert ids(catalog) == sorted([*expected, 4])


def test_rolled_back_it_is_written_again(catalog, table, verb):
    call, expected = verb
    before = table.current_snapshot()
    first = call(table)
    table.rollback_to(before.snapshot_id)
    assert ids(catalog) == [1, 2, 3]
    again = call(table)
    assert again.snapshot_id != first.snapshot_id
    assert again.snapshot_id == table.metadata.current_snapshot_id
    assert ids(catalog) == expected
    assert call(catalog.load_table("raw.t")).snapshot_id == again.snapshot_id


def test_each_branch_has_its_own(catalog, table, verb):
    call, expected = verb
    table.create_branch("audit")
    there = call(table, branch="audit")
    assert ids(catalog) == [1, 2, 3]
    here = call(table)
    assert here.snapshot_id != there.snapshot_id
    assert ids(catalog) == ids(catalog, "audit") == expected
    assert call(table, branch="audit").snapshot_id == there.snapshot_id


def test_published_by_fast_forward_it_is_done(catalog, table, verb):
    call, expected = verb
    table.create_branch("audit")
    first = call(table, branch="audit")
    table.fast_forward("main", "audit").remove_ref("audit")
    assert call(table).snapshot_id == first.snapshot_id
    assert call(table, branch="audit").snapshot_id == first.snapshot_id
    assert "audit" not in table.refs()
    assert ids(catalog) == expected


def test_published_by_cherry_pick_it_is_done(catalog, table):
    table.create_branch("audit")
    staged = table.append(rows(9), branch="audit", commit_id=NAME)
    table.append(rows(4))
    table.cherry_pick(staged.snapshot_id)
    assert table.append(rows(9), commit_id=NAME).snapshot_id == table.metadata.current_snapshot_id
    assert ids(catalog) == [1, 2, 3, 4, 9]


def test_a_branch_that_begins_at_the_commit_has_it(catalog, table, verb):
    call, expected = verb
    first = call(table)
    table.create_branch("later")
    assert call(table, branch="later").snapshot_id == first.snapshot_id
    assert ids(catalog, "later") == expected


def untouched():
    pytest.fail("the rows were asked for")
    yield


@pytest.mark.parametrize("verb", ["append", "overwrite"])
def test_repeated_it_does_not_look_at_the_rows(table, verb):
    first = table.append(rows(9), commit_id=NAME)
    assert getattr(table, verb)(untouched(), commit_id=NAME).snapshot_id == first.snapshot_id


# Batches of streams


def test_a_batch_of_a_stream_is_known_after_its_snapshot_expired(catalog, table):
    batch = lh.StreamBatch("q", 4)
    table.append(rows(9), commit_id=batch)
    table.append(rows(4))
    table.compact(lh.CompactionOptions(rewrite_all=True))
    table.expire_snapshots(lh.ExpiryOptions(older_than_ms=2**50, retain_last=1))
    again = table.append(rows(9), commit_id=batch)
    assert again.replayed
    assert again.snapshot_id == table.current_snapshot().snapshot_id
    assert ids(catalog) == [1, 2, 3, 4, 9]
    assert not table.append(rows(5), commit_id=lh.StreamBatch("q", 5)).replayed
    assert not table.append(rows(6), commit_id=lh.StreamBatch("r", 4)).replayed


def test_two_writers_of_one_batch_commit_it_once(catalog, table):
    """The one that lost the race looks for the batch again before it tries again."""
    batch = lh.StreamBatch("q", 0)
    other = catalog.load_table("raw.t")
    other.append(rows(8))
    assert not other.append(rows(9), commit_id=batch).replayed
    files = {one.location for one in table.storage.list(table.location)}
    transaction = table.transaction().append(table.write_files(rows(9)))
    assert transaction.commit(commit_id=batch).replayed
    assert ids(catalog) == [1, 2, 3, 8, 9]
    assert len({one.location for one in table.storage.list(table.location)} - files) == 1


@pytest.mark.parametrize(("query", "number"), [("", 0), ("a b", 0), ("a:b", 0), ("q", -1)])
def test_what_cannot_name_a_stream_is_refused(query, number):
    with pytest.raises(lh.InvalidInputError, match="stream"):
        lh.StreamBatch(query, number)


def test_a_mark_that_somebody_spoiled_is_no_mark(table):
    table.transaction().set_properties({"lakehouse.stream.q": "7"}).commit()
    with pytest.raises(lh.InvalidInputError, match="Remove it if the stream may"):
        table.refresh().append(rows(9), commit_id=lh.StreamBatch("q", 4))


class ReadLate(list):
    """Files before whose first look something happens."""

    def before(self, happens):
        self.happens = happens
        return self

    def __iter__(self):
        self.happens()
        return super().__iter__()


@pytest.mark.parametrize("verb", ["append", "overwrite"])
@pytest.mark.parametrize("fails", ["to a tag", "overtaken", "landed meanwhile"])
def test_files_that_were_given_stay_where_they_are_not_committed(catalog, table, verb, fails):
    files, other = table.write_files(rows(8, 9)), catalog.load_table("raw.t")
    write = getattr(table, verb)
    if fails == "to a tag":
        table.create_tag("marked")
        with pytest.raises(lh.LakehouseError, match="is a tag"):
            write(lh.WrittenFiles(tuple(files)), branch="marked")
    elif fails == "landed meanwhile":
        late = ReadLate(files).before(lambda: other.append(lh.WrittenFiles(tuple(files)), **named))
        named = {"commit_id": NAME}
        assert write(lh.WrittenFiles(late), **named).replayed
        assert ids(catalog) == [1, 2, 3, 8, 9]
        return
    elif verb == "overwrite":
        late = ReadLate(files).before(lambda: other.append(rows(4)))
        with pytest.raises(lh.LakehouseError, match="has since"):
            write(lh.WrittenFiles(late))
    assert all(table.storage.exists(file.file_path) for file in files)
    table.refresh().append(lh.WrittenFiles(tuple(files)))
    assert ids(catalog)[-2:] == [8, 9]


def test_disposable_files_go_with_a_write_that_fails(table):
    files = table.write_files(rows(8, 9))
    table.create_tag("marked")
    with pytest.raises(lh.LakehouseError, match="is a tag"):
        table.append(lh.WrittenFiles(tuple(files), disposable=True), branch="marked")
    assert not any(table.storage.exists(file.file_path) for file in files)
