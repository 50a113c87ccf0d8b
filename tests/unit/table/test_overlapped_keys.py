"""A merge that lost to another writer decides again on the keys that were touched, on no others.

Each case says what others do while it decides, and which of its source rows that touches.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError
from lakehouse.table.table import Table
from tests.table_census import take_census

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64()), ("k", pa.string())])
FORMS = [(2, "partition"), (3, "file")]
V3 = FORMS[1:]


def rows(*ids: int | None, x: int = 0, k: str = "k") -> pa.Table:
    return pa.table({"id": ids, "x": [x] * len(ids), "k": [k] * len(ids)}, schema=SCHEMA)


@pytest.fixture(params=FORMS, ids=str)
def catalog(tmp_path, request):
    """Of a table with three files of ten rows."""
    opened = lh.load_catalog(f"file://{tmp_path}/warehouse")
    version, granularity = request.param
    modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
    table = opened.create_table(
        "raw.t",
        SCHEMA,
        format_version=version,
        properties={**modes, "write.delete.granularity": granularity},
    )
    for first in (0, 10, 20):
        table.append(rows(*range(first, first + 10)))
    return opened


def load(catalog):
    return catalog.load_table("raw.t")


def content(catalog) -> dict[int | None, int]:
    found = load(catalog).scan().to_arrow().to_pylist()
    assert len({one["id"] for one in found}) == len(found), "a row is there twice"
    return {one["id"]: one["x"] for one in found}


def healthy(catalog) -> None:
    census = take_census(catalog.catalog, load(catalog).identifier)
    assert census.missing == frozenset()
    assert [one for one in census.unreachable if "/data/" in one] == []


class Overtaken(Table):
    """Whenever it has taken a version to decide on, others commit."""

    def write_request(self):
        if self.others:
            self.others.pop(0)()
        return super().write_request()


def overtaken(catalog, *others) -> Overtaken:
    table = load(catalog)
    found = Overtaken(table.catalog, table.version, table.environment)
    found.others = list(others)
    return found


def upsert(table, *keys, x=1):
    return table.upsert(rows(*keys, x=x), ["id"])


TOUCHED = {
    "updated": (lambda t: t.update({"x": "x + 5"}, "id in (3, 4)"), {3, 4}),
    "upserted": (lambda t: upsert(t, 4, 104, x=5), {4, 104}),
    "deleted": (lambda t: t.delete("id = 13"), {13}),
    "of two files": (lambda t: t.delete("id in (3, 13, 7, 9)"), {3, 13}),
    "added": (lambda t: t.append(rows(103, 200)), {103}),
    "beside": (lambda t: t.delete("id in (7, 14)"), None),
    "added beside": (lambda t: t.append(rows(50, 200)), None),
}
MINE = (3, 4, 13, 103, 104, 105)


@pytest.mark.parametrize("level", ["serializable", "snapshot"])
@pytest.mark.parametrize("case", TOUCHED)
def test_exactly_the_touched_keys_are_decided_again(catalog, case, level):
    load(catalog).set_properties({"write.merge.isolation-level": level})
    act, touched = TOUCHED[case]
    table = overtaken(catalog, lambda: act(load(catalog)))
    before = content(catalog)
    done = upsert(table, *MINE)
    if case == "added" and level == "snapshot":  # there both rows stay
        assert (done.decided_again, done.rows_inserted) == (0, 3)
        return
    assert done.decided_again == (touched is not None)
    assert done.rows_decided_again == len(touched or ())
    found = content(catalog)
    assert {key: found[key] for key in MINE} == dict.fromkeys(MINE, 1)
    there = before.keys() & set(MINE) - ({13} if "delete" in case or "two" in case else set())
    if case == "of two files":
        there -= {3}
    there |= {104} if case == "upserted" else {103} if case == "added" else set()
    assert done.rows_updated == len(there)
    assert done.rows_inserted == len(set(MINE) - there)
    healthy(catalog)


@pytest.mark.parametrize("verb", ["upsert", "merge"])
def test_files_without_touched_keys_are_not_read_again(catalog, verb):
    """They are away while it decides again."""
    away = []

    def hide():
        for one in load(catalog).scan(where="id < 10 or id >= 20").plan().files:
            path = Path(one.file_path.removeprefix("file://"))
            away.append((path, path.rename(path.with_suffix(".away"))))

    table = overtaken(catalog, lambda: load(catalog).update({"x": "5"}, "id = 13"), hide)
    keys = (3, 4, 13, 14, 23, 24)
    if verb == "upsert":
        done = upsert(table, *keys, 103)
    else:
        merge = table.merge(rows(*keys, 103, x=1), ["id"])
        merge = merge.when_matched_update({"x": "s.x"}, "t.id <> 24")
        done = merge.when_not_matched_insert_all().execute()
    assert len(away) == 2
    for path, hidden in away:
        hidden.rename(path)
    assert (done.decided_again, done.rows_decided_again) == (1, 1)
    assert (done.rows_inserted, done.rows_updated) == (1, 6 if verb == "upsert" else 5)
    found = content(catalog)
    assert {key for key, x in found.items() if x} == {*keys, 103} - (
        set() if verb == "upsert" else {24}
    )
    healthy(catalog)


def test_a_row_that_was_seen_and_left_alone_is_inserted_when_it_went(catalog):
    table = overtaken(catalog, lambda: load(catalog).delete("id in (3, 14)"))
    merge = table.merge(rows(3, 4, 13, 103, x=9), ["id"]).when_matched_update_all("t.id = 4")
    done = merge.when_not_matched_insert_all().execute()
    assert (done.rows_decided_again, done.rows_inserted, done.rows_updated) == (1, 2, 1)
    assert {key for key, x in content(catalog).items() if x} == {3, 4, 103}
    healthy(catalog)


def test_others_come_again_and_again(catalog):
    """Each time some keys more; the second time of one that was decided on again before."""
    table = overtaken(
        catalog,
        lambda: load(catalog).update({"x": "x + 10"}, "id in (3, 4)"),
        lambda: load(catalog).update({"x": "x + 100"}, "id in (4, 13)"),
        lambda: upsert(load(catalog), 103, x=1000),
    )
    merge = table.merge(rows(3, 4, 13, 14, 103, 104, x=1), ["id"])
    merge = merge.when_matched_update({"x": "t.x + s.x"})
    done = merge.when_not_matched_insert_all().execute()
    assert (done.decided_again, done.rows_decided_again) == (3, 2 + 2 + 1)
    assert (done.rows_inserted, done.rows_updated, done.rows_deleted) == (1, 5, 0)
    found = content(catalog)
    wanted = {3: 11, 4: 111, 13: 101, 14: 1, 103: 1001, 104: 1}
    assert {key: found[key] for key in wanted} == wanted
    assert sum(map(bool, found.values())) == len(wanted)
    healthy(catalog)


def test_a_key_that_several_source_rows_have(catalog):
    """All rows of a key are decided on together."""
    table = overtaken(catalog, lambda: load(catalog).delete("id = 3"))
    source = pa.table({"id": [3, 3, 4, 4, 103], "x": [1, 2, 1, 2, 1], "k": list("abcde")})
    merge = table.merge(source.cast(SCHEMA), ["id"]).when_matched_delete()
    done = merge.when_not_matched_insert({"id": "s.id * 100 + s.x", "x": "s.x"}).execute()
    assert (done.rows_decided_again, done.rows_inserted, done.rows_deleted) == (2, 3, 1)
    assert {301, 302, 10301} <= content(catalog).keys()
    assert not {3, 4} & content(catalog).keys()


def test_a_source_row_that_matches_several_rows(catalog):
    load(catalog).append(rows(31, 32, 33, k="many"))
    load(catalog).append(rows(34, 35, k="more"))
    table = overtaken(catalog, lambda: load(catalog).update({"x": "7"}, "id = 32"))
    source = pa.table({"k": ["many", "more", "none"], "x": [1, 2, 3]})
    merge = table.merge(source, "t.k = s.k").when_matched_update({"x": "t.x + s.x"})
    done = merge.when_not_matched_insert({"id": "100", "k": "s.k", "x": "s.x"}).execute()
    assert (done.rows_decided_again, done.rows_inserted, done.rows_updated) == (1, 1, 5)
    found = content(catalog)
    assert [found[key] for key in (31, 32, 33, 34, 35, 100)] == [1, 8, 1, 2, 2, 3]
    healthy(catalog)


def test_an_update_that_changes_keys(catalog):
    """The written rows have keys of others: they are told apart by what they follow from."""
    table = overtaken(catalog, lambda: load(catalog).update({"x": "7"}, "id = 3"))
    source = pa.table({"id": [3, 4, 5], "to": [4, 5, 3]})
    done = table.merge(source, "t.id = s.id").when_matched_update({"id": "s.to"}).execute()
    assert (done.rows_decided_again, done.rows_updated) == (1, 3)
    found = content(catalog)
    assert (found[4], found[5], found[3], len(found)) == (7, 0, 0, 30)
    healthy(catalog)


def test_null_as_a_key(catalog):
    load(catalog).append(rows(None, 40))
    table = overtaken(catalog, lambda: load(catalog).update({"x": "x + 7"}, "id is null"))
    merge = table.merge(rows(None, 3, 103, x=1), "t.id IS NOT DISTINCT FROM s.id")
    merge = merge.when_matched_update({"x": "t.x + s.x"})
    done = merge.when_not_matched_insert_all().execute()
    assert (done.rows_decided_again, done.rows_inserted, done.rows_updated) == (1, 1, 2)
    found = content(catalog)
    assert (found[None], found[3], found[103]) == (8, 1, 1)


def test_null_that_matches_nothing_is_inserted_once(catalog):
    table = overtaken(catalog, lambda: upsert(load(catalog), 3, None, x=5))
    done = upsert(table, None, 3, 4)
    assert (done.rows_decided_again, done.rows_inserted, done.rows_updated) == (1, 1, 2)
    found = load(catalog).scan().to_arrow().to_pylist()
    assert sorted(one["x"] for one in found if one["id"] is None) == [1, 5]


def test_a_part_of_on_that_is_no_equality(catalog):
    """The row no longer passes it, so that the source row matches none."""
    table = overtaken(catalog, lambda: load(catalog).update({"x": "7"}, "id = 3"))
    merge = table.merge(rows(3, 4, 103, x=1), "t.id = s.id AND t.x < s.x")
    merge = merge.when_matched_update({"x": "s.x"})
    done = merge.when_not_matched_insert({"id": "s.id + 1000", "x": "s.x"}).execute()
    assert (done.rows_decided_again, done.rows_inserted, done.rows_updated) == (1, 2, 1)
    found = content(catalog)
    assert [found[key] for key in (3, 4, 1003, 1103)] == [7, 1, 1, 1]


def test_two_rows_for_one_that_are_an_error_only_by_now(catalog):
    load(catalog).update({"k": "'b'"}, "id = 3")
    table = overtaken(catalog, lambda: load(catalog).update({"k": "'a'"}, "id = 3"))
    source = pa.table({"id": [3, 3, 4], "x": [1, 2, 3]})
    merge = table.merge(source, ["id"]).when_matched_update({"x": "s.x"}, "t.k = 'a' OR t.id = 4")
    before = content(catalog)
    with pytest.raises(InvalidInputError, match="several source rows"):
        merge.execute()
    assert content(catalog) == before
    healthy(catalog)


@pytest.mark.parametrize("both", [True, False], ids=["and an overlap", "alone"])
def test_rows_that_compaction_moved(catalog, both):
    """By version 3 rows are found where they are; with an overlap beside, all that moved count."""
    version = load(catalog).metadata.format_version

    def act():
        load(catalog).compact(lh.CompactionOptions(rewrite_all=True))
        if both:
            load(catalog).update({"x": "7"}, "id = 3")

    done = upsert(overtaken(catalog, act), 3, 4, 13, 103, 104)
    again = both or version < 3
    assert (done.decided_again, done.rows_decided_again) == (again, 3 * again)
    assert (done.rows_inserted, done.rows_updated) == (2, 3)
    assert {key for key, x in content(catalog).items() if x} == {3, 4, 13, 103, 104}
    healthy(catalog)


@pytest.mark.parametrize("catalog", V3, ids=str, indirect=True)
def test_row_ids_stay_and_are_given_once(catalog):
    def lineage():
        columns = ["id", "_row_id", "_last_updated_sequence_number"]
        found = load(catalog).scan(select=columns).to_arrow().to_pylist()
        assert len({one["_row_id"] for one in found} - {None}) == len(found)
        return {one["id"]: (one["_row_id"], one[columns[2]]) for one in found}

    before = lineage()
    table = overtaken(catalog, lambda: load(catalog).update({"x": "x + 7"}, "id = 3"))
    done = upsert(table, *MINE)
    assert done.rows_decided_again == 1
    after = lineage()
    assert {key: after[key][0] for key in before} == {key: one for key, (one, _) in before.items()}
    number = done.snapshot.sequence_number
    assert {key for key, (_, made) in after.items() if made == number} == set(MINE)


@pytest.mark.parametrize("catalog", V3, ids=str, indirect=True)
def test_partitions_and_files_in_order(catalog):
    """Rows of one decision lie in many files, in another order than they were decided in."""
    modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("update", "merge")}
    table = catalog.create_table(
        "raw.p",
        SCHEMA,
        partition_by=["bucket(4, id)"],
        sort_by=["x desc"],
        format_version=3,
        properties=modes,
    )
    table.append(rows(*range(60)))
    slow = Overtaken(table.catalog, table.version, table.environment)
    touched = [1, 17, 30, 59]
    among = f"id in ({', '.join(map(str, touched))})"
    slow.others = [lambda: catalog.load_table("raw.p").update({"x": "x + 1000"}, among)]
    keys = list(range(0, 60, 2)) + touched[:2] + touched[3:] + list(range(100, 140))
    source = pa.table({"id": keys, "x": [(key * 37) % 101 for key in keys]})
    merge = slow.merge(source, ["id"]).when_matched_update({"x": "t.x + s.x"})
    done = merge.when_not_matched_insert_all().execute()
    assert done.rows_decided_again == len(touched)
    assert (done.rows_updated, done.rows_inserted) == (33, 40)
    found = catalog.load_table("raw.p").scan().to_arrow().to_pylist()
    wanted = dict.fromkeys(range(60), 0) | dict.fromkeys(touched, 1000)
    for key in keys:
        wanted[key] = wanted.get(key, 0) + (key * 37) % 101
    assert sorted((one["id"], one["x"]) for one in found) == sorted(wanted.items())
    census = take_census(catalog.catalog, table.identifier)
    assert (census.missing, [o for o in census.unreachable if "/data/" in o]) == (frozenset(), [])


def add_column(table):
    with table.update_schema() as update:
        update.add_column("later", "string")


WHOLE = {
    "not matched by source": ({}, lambda t: None, {}),
    "spilled": ({"memory_bytes": 1 << 10}, lambda t: None, {}),
    "another schema": ({}, add_column, {}),
    "copy on write": ({}, lambda t: None, {"write.merge.mode": "copy-on-write"}),
    "copy on write by now": (
        {},
        lambda t: t.set_properties({"write.merge.mode": "copy-on-write"}),
        {},
    ),
}


@pytest.mark.parametrize("case", WHOLE)
def test_where_all_keys_are_decided_again(catalog, case):
    options, beside, properties = WHOLE[case]
    if properties:
        load(catalog).set_properties(properties)

    def act():
        beside(load(catalog))
        load(catalog).update({"x": "x + 7"}, "id = 3")

    keys = [*range(25), *range(100, 125)]
    merge = overtaken(catalog, act).merge(rows(*keys, x=1), ["id"], **options)
    merge = merge.when_matched_update({"x": "t.x + s.x"}).when_not_matched_insert_all()
    if case == "not matched by source":
        merge = merge.when_not_matched_by_source_update({"x": "-1"})
    done = merge.execute()
    assert (done.decided_again, done.rows_decided_again) == (1, len(keys))
    left = -1 if case == "not matched by source" else 0
    wanted = dict.fromkeys(range(30), left) | dict.fromkeys(keys, 1) | {3: 8}
    assert content(catalog) == wanted
    healthy(catalog)
