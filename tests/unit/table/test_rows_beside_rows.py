"""Writers that change rows of one data file at once: rows that both change decide, not files.

A stale handle decides on what it loaded, and meets what others committed when it commits.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import ValidationConflictError

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64())])
FORMS = [(2, "file"), (2, "partition"), (3, "file")]


def rows(*ids: int, x: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "x": [x] * len(ids)}, schema=SCHEMA)


@pytest.fixture(params=FORMS, ids=str)
def catalog(tmp_path, request):
    """Of a table with two files of ten rows."""
    opened = lh.load_catalog(f"file://{tmp_path}/warehouse")
    version, granularity = request.param
    modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
    table = opened.create_table(
        "raw.t",
        SCHEMA,
        format_version=version,
        properties={**modes, "write.delete.granularity": granularity},
    )
    table.append(rows(*range(10)))
    table.append(rows(*range(10, 20)))
    return opened


def load(catalog):
    return catalog.load_table("raw.t")


def content(catalog) -> dict[int, int]:
    found = load(catalog).scan().to_arrow().to_pylist()
    assert len({one["id"] for one in found}) == len(found), "a row is there twice"
    return {one["id"]: one["x"] for one in found}


def change(table, verb: str, key: int):
    """Every way to change one row of the table."""
    if verb == "delete":
        return table.delete(f"id = {key}")
    if verb == "update":
        return table.update({"x": "x + 1"}, f"id = {key}")
    if verb == "upsert":
        return table.upsert(rows(key, x=1), ["id"])
    merge = table.merge(rows(key, x=1), "t.id = s.id")
    if verb == "merge update":
        return merge.when_matched_update({"x": "t.x + s.x"}).execute()
    return merge.when_matched_delete().execute()


VERBS = ["delete", "update", "upsert", "merge update", "merge delete"]


def expected(found: dict[int, int], verb: str, key: int) -> None:
    if "delete" in verb:
        del found[key]
    else:
        found[key] += 1


@pytest.mark.parametrize("mine", VERBS)
@pytest.mark.parametrize("theirs", ["delete", "update"])
def test_different_rows_of_a_file_are_decided_on_once(catalog, mine, theirs):
    stale, wanted = load(catalog), content(catalog)
    change(load(catalog), theirs, 3)
    change(load(catalog), theirs, 15)
    done = change(stale, mine, 4)
    assert done.decided_again == 0
    for verb, key in ((theirs, 3), (theirs, 15), (mine, 4)):
        expected(wanted, verb, key)
    assert content(catalog) == wanted
    nothing_is_left_over(load(catalog))


@pytest.mark.parametrize("mine", ["update", "upsert", "merge update"])
@pytest.mark.parametrize("theirs", ["update", "delete"])
def test_a_row_that_both_change_is_decided_on_again(catalog, mine, theirs):
    stale = load(catalog)
    change(load(catalog), theirs, 3)
    if (mine, theirs) == ("update", "delete") or (mine, theirs) == ("merge update", "delete"):
        assert change(stale, mine, 3).snapshot is None
        assert 3 not in content(catalog)
        return
    done = change(stale, mine, 3)
    assert done.decided_again == 1
    assert content(catalog)[3] == (1 if mine == "upsert" else 2)
    nothing_is_left_over(load(catalog))


def test_a_row_that_both_delete_is_a_conflict_that_says_so(catalog):
    stale = load(catalog)
    load(catalog).delete("id in (3, 4)")
    with pytest.raises(ValidationConflictError, match="replaced 1 rows of "):
        stale.delete("id in (4, 5)")
    assert sorted(set(range(20)) - content(catalog).keys()) == [3, 4]
    nothing_is_left_over(load(catalog))


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("beside", [4, 14], ids=["same file", "another file"])
def test_a_row_that_was_seen_and_kept_is_inserted_when_it_went(catalog, mode, beside):
    """It hangs on a row that it left alone: had that been gone, it would have inserted one."""
    load(catalog).set_properties({"write.merge.mode": mode})
    stale = load(catalog)
    load(catalog).delete("id = 3")
    merge = stale.merge(rows(3, beside, x=9), "t.id = s.id")
    merge = merge.when_matched_update_all(f"t.id = {beside}")
    done = merge.when_not_matched_insert_all().execute()
    assert (done.decided_again, done.rows_inserted, done.rows_updated) == (1, 1, 1)
    assert content(catalog)[3] == 9


@pytest.mark.parametrize("level", ["serializable", "snapshot"])
def test_what_was_only_seen_matters_to_serializable_writers_alone(catalog, level):
    load(catalog).set_properties({"write.merge.isolation-level": level})
    stale = load(catalog)
    load(catalog).delete("id = 3")
    merge = stale.merge(rows(3, 4, x=9), "t.id = s.id").when_matched_update_all("t.id = 4")
    done = merge.when_not_matched_insert_all().execute()
    assert done.decided_again == (level == "serializable")
    assert (3 in content(catalog)) == (level == "serializable")


PHANTOMS = [[100, 300], [100, 200, 300], [30, 400], [200], [4]]
"""What others append: beside the keys 4 and 200 within their bounds, or one of them."""


@pytest.mark.parametrize("catalog", FORMS[2:], ids=str, indirect=True)
@pytest.mark.parametrize("added", PHANTOMS, ids=str)
@pytest.mark.parametrize("verb", ["update", "upsert", "merge"])
def test_rows_that_others_add_matter_where_they_have_the_keys(catalog, verb, added):
    stale, keys = load(catalog), {4, 200}
    load(catalog).append(rows(*added))
    if verb == "update":
        done = stale.update({"x": "9"}, "id in (4, 200)")
    elif verb == "upsert":
        done = stale.upsert(rows(*keys, x=9), ["id"])
    else:
        merge = stale.merge(rows(*keys, x=9), ["id"]).when_matched_update_all()
        done = merge.when_not_matched_insert_all().execute()
    found = load(catalog).scan().to_arrow().to_pylist()
    assert done.decided_again == bool(keys & set(added))
    wanted = [*range(20), *added]
    if verb != "update":
        wanted += sorted(keys - set(wanted))
    assert sorted((one["id"], one["x"]) for one in found) == sorted(
        (key, 9 if key in keys else 0) for key in wanted
    )


@pytest.mark.parametrize("catalog", FORMS[2:], ids=str, indirect=True)
@pytest.mark.parametrize("added", PHANTOMS, ids=str)
def test_keys_that_the_transaction_itself_widens(catalog, added):
    """The columns of the decision are those of the transaction, files of others have the old."""
    narrow = pa.schema([("id", pa.int32()), ("n", pa.int64())])
    table = catalog.create_table("raw.n", narrow, format_version=3)
    table.append(pa.table({"id": [4, 5], "n": [0, 0]}, schema=narrow))
    stale = catalog.load_table("raw.n")
    table.append(pa.table({"id": added, "n": [0] * len(added)}, schema=narrow))
    changes = pa.table({"id": pa.array([4, 200], pa.int64()), "n": [1, 1], "new": ["x", "x"]})
    done = stale.apply_changes(changes, ["id"], ["n"])
    assert done.decided_again == bool({4, 200} & set(added))
    found = catalog.load_table("raw.n").scan(where="new = 'x'").to_arrow()["id"].to_pylist()
    assert sorted(set(found)) == [4, 200]


@pytest.mark.parametrize("catalog", FORMS[2:], ids=str, indirect=True)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("added", PHANTOMS, ids=str)
@pytest.mark.parametrize("verb", ["delete", "overwrite"])
def test_filters_are_held_against_the_rows_that_others_add(catalog, verb, added, mode):
    load(catalog).set_properties({"write.delete.mode": mode})
    stale = load(catalog)
    load(catalog).append(rows(*added))

    def write():
        where = "id in (4, 200)"
        return stale.delete(where) if verb == "delete" else stale.overwrite(rows(200), where)

    if {4, 200} & set(added):
        with pytest.raises(ValidationConflictError, match="which can hold rows"):
            write()
    else:
        assert write().rows_deleted == 1


def test_a_column_that_changed_meanwhile_is_not_read_as_what_it_was(catalog):
    """The files of others are read by the columns of the decision; there, any may matter."""
    stale = load(catalog)
    other = load(catalog)
    with other.update_schema() as update:
        update.rename_column("id", "key")
    other.append(pa.table({"key": [100, 300], "x": [0, 0]}))
    with pytest.raises(ValidationConflictError, match="which can hold rows"):
        stale.delete("id in (4, 200)")


@pytest.mark.parametrize("verb", VERBS)
def test_rows_of_a_file_that_compaction_moved_are_found_by_their_ids(catalog, verb):
    """Version 2 has no ids of rows: it decides again."""
    stale, wanted = load(catalog), content(catalog)
    change(load(catalog), "delete", 3)
    load(catalog).compact(lh.CompactionOptions(rewrite_all=True))
    change(load(catalog), "delete", 15)
    load(catalog).compact(lh.CompactionOptions(rewrite_all=True))
    change(load(catalog), "update", 16)
    if verb == "delete" and load(catalog).metadata.format_version < 3:
        with pytest.raises(ValidationConflictError, match="has since removed"):
            change(stale, verb, 4)
        return
    done = change(stale, verb, 4)
    assert done.decided_again == (load(catalog).metadata.format_version < 3)
    for theirs, key in (("delete", 3), ("delete", 15), ("update", 16), (verb, 4)):
        expected(wanted, theirs, key)
    assert content(catalog) == wanted
    nothing_is_left_over(load(catalog))


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_row_that_went_beside_a_compaction_is_decided_on_again(catalog, before):
    stale = load(catalog)
    if before:
        change(load(catalog), "update", 4)
    load(catalog).compact(lh.CompactionOptions(rewrite_all=True))
    if not before:
        change(load(catalog), "update", 4)
    assert change(stale, "update", 4).decided_again == 1
    assert content(catalog)[4] == 2


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
@pytest.mark.parametrize("verb", ["delete", "update"])
def test_a_row_that_changed_before_compaction_moved_it_is_not_the_one_decided_on(
    catalog, verb, isolation
):
    """It keeps its id, and no longer passes the filter: nothing else would notice."""
    levels = {f"write.{one}.isolation-level": isolation for one in ("delete", "update")}
    load(catalog).set_properties(levels)
    stale, theirs = load(catalog), load(catalog)
    theirs.update({"x": "7"}, "id = 4")
    theirs.compact(lh.CompactionOptions(rewrite_all=True))
    if verb == "update":
        assert stale.update({"x": "x + 1"}, "x = 0").decided_again == 1
        assert content(catalog) == {key: 7 if key == 4 else 1 for key in range(20)}
        return
    with pytest.raises(ValidationConflictError):
        stale.delete("x = 0")
    assert content(catalog) == {key: 7 if key == 4 else 0 for key in range(20)}


def test_many_writers_on_one_old_version(catalog):
    stale = [load(catalog) for _ in range(5)]
    for key, table in enumerate(stale):
        assert change(table, "update", key).decided_again == 0
        assert change(table.refresh(), "delete", key + 10).decided_again == 0
    found = content(catalog)
    assert [found.get(key) for key in range(20)] == [1] * 5 + [0] * 5 + [None] * 5 + [0] * 5
    nothing_is_left_over(load(catalog))


def nothing_is_left_over(table) -> None:
    """One vector a data file at most, and no file in the table's folder that nothing reaches."""
    deletes = table.inspect.delete_files().to_pylist()
    if table.metadata.format_version >= 3:
        about = [delete["referenced_data_file"] for delete in deletes]
        assert len(about) == len(set(about))
        assert all(delete["file_format"].lower() == "puffin" for delete in deletes)
    reached = {file["file_path"] for file in table.inspect.all_files().to_pylist()}
    there = {one.location for one in table.storage.list(table.location) if "/data/" in one.location}
    assert there <= reached
