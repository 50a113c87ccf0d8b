"""v3 row lineage: a row keeps its `_row_id` wherever it moves, and knows its last write."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakehouse as lh

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])
LINEAGE = ["id", "_row_id", "_last_updated_sequence_number"]


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "p": ["ab"[n % 2] for n in ids]}, schema=SCHEMA)


def lineage(table: lh.Table, **scan) -> dict[int, tuple[int, int]]:
    found = table.scan(select=LINEAGE, **scan).to_arrow().to_pylist()
    assert len({row["_row_id"] for row in found}) == len(found), "a row id was given twice"
    return {row["id"]: (row["_row_id"], row["_last_updated_sequence_number"]) for row in found}


@pytest.fixture(params=["copy-on-write", "merge-on-read"])
def table(request, tmp_path):
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    properties = {"write.delete.mode": request.param}
    return catalog.create_table(
        "raw.t", SCHEMA, partition_by=["p"], format_version=3, properties=properties
    )


def test_rows_get_ids_from_manifest_and_snapshot(table):
    first = table.append(rows(0, 2, 4))
    assert (first.first_row_id, first.added_rows, table.metadata.next_row_id) == (0, 3, 3)
    second = table.append(rows(6, 1))
    assert (second.first_row_id, second.added_rows, table.metadata.next_row_id) == (3, 2, 5)
    found = lineage(table)
    assert {n: found[n] for n in (0, 2, 4)} == {0: (0, 1), 2: (1, 1), 4: (2, 1)}
    assert {found[6][0], found[1][0]} == {3, 4}
    assert {found[6][1], found[1][1]} == {2}
    files = table.inspect.files().select(["first_row_id", "record_count"]).to_pylist()
    assert sorted((file["first_row_id"], file["record_count"]) for file in files) == [
        (0, 3),
        (3, 1),
        (4, 1),
    ]


def test_rows_keep_their_ids_through_deletes_and_rewrites(table):
    for start in range(0, 12, 4):
        table.append(rows(*range(start, start + 4)))
    before = lineage(table)
    table.delete("id = 5 or id = 0")
    kept = {n: one for n, one in before.items() if n not in (0, 5)}
    assert lineage(table) == kept
    table.compact(lh.CompactionOptions(min_input_files=2))
    assert lineage(table) == kept
    table.rewrite_manifests()
    assert lineage(table) == kept
    table.append(rows(20))
    new = lineage(table).pop(20)
    assert new[0] >= 12
    assert new[1] == table.current_snapshot().sequence_number
    assert lineage(table, where="id < 20") == kept


def test_the_first_commit_after_an_upgrade_gives_ids_to_older_rows(tmp_path):
    table = lh.load_catalog(f"file://{tmp_path}/warehouse").create_table("raw.t", SCHEMA)
    table.append(rows(1, 2))
    before = table.append(rows(3))
    table.set_properties({"format-version": "3"})
    assert table.metadata.next_row_id == 0
    assert table.scan(select=["_row_id"]).to_arrow()["_row_id"].to_pylist() == [None] * 3
    after = table.append(rows(4))
    assert (after.first_row_id, after.added_rows, table.metadata.next_row_id) == (0, 4, 4)
    found = lineage(table)
    assert {row_id for row_id, _ in found.values()} == {0, 1, 2, 3}
    assert {number: found[number][1] for number in found} == {1: 1, 2: 1, 3: 2, 4: 3}
    old = table.scan(select=LINEAGE[1:], snapshot_id=before.snapshot_id).to_arrow().to_pylist()
    assert old == [dict.fromkeys(LINEAGE[1:])] * 3


def test_a_table_of_version_2_has_no_row_ids(tmp_path):
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    table = catalog.create_table("raw.t", SCHEMA)
    table.append(rows(1, 2))
    with pytest.raises(lh.LakehouseError):
        table.scan(select=["_nope"]).to_arrow()
    assert table.scan(select=["_row_id"]).to_arrow()["_row_id"].to_pylist() == [None, None]
    assert table.scan(select=["_file", "id", "_pos"]).to_arrow().column_names == [
        "_file",
        "id",
        "_pos",
    ]
    assert table.scan(select=["_pos"], where="id = 2").to_arrow()["_pos"].to_pylist() == [1]


@pytest.mark.parametrize("version", [2, 3])
def test_deleted_rows_are_shown_when_asked_for(tmp_path, version):
    properties = {"write.delete.mode": "merge-on-read"}
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    table = catalog.create_table("raw.t", SCHEMA, format_version=version, properties=properties)
    table.append(rows(*range(6)))
    for gone in (1, 3):
        table.delete(f"id = {gone}")
    assert table.scan().to_arrow()["id"].to_pylist() == [0, 2, 4, 5]
    shown = table.scan(select=["id", "_deleted", "_pos"]).to_arrow().to_pylist()
    assert shown == [{"id": n, "_deleted": n in (1, 3), "_pos": n} for n in range(6)]
    assert table.scan("id > 2", ["_deleted"]).to_arrow()["_deleted"].to_pylist() == [
        True,
        False,
        False,
    ]
    assert table.scan(select=["id", "_deleted"]).count() == 6
    assert table.scan("id > 2", ["_deleted"]).count() == 3
    assert table.scan(select=["id", "_deleted"], limit=5).count() == 5
    assert table.scan("id > 2").count() == 2


NUMBERS = itertools.count()
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.integers(0, 14)),
        st.tuples(st.just("compact"), st.just(0)),
    ),
    min_size=2,
    max_size=6,
)


@settings(max_examples=10)
@given(steps=STEPS, mode=st.sampled_from(["copy-on-write", "merge-on-read"]))
def test_an_id_is_given_once_and_never_changes(steps, mode):
    catalog = lh.load_catalog("memory://lineage")
    table = catalog.create_table(
        f"raw.t{next(NUMBERS)}", SCHEMA, format_version=3, properties={"write.delete.mode": mode}
    )
    seen: dict[int, tuple[int, int]] = {}
    number = 0
    for verb, argument in steps:
        if verb == "append":
            table.append(rows(*range(number, number + argument)))
            number += argument
        elif verb == "delete":
            table.delete(f"id = {argument}")
        else:
            table.compact(lh.CompactionOptions(min_input_files=2))
        for row, given_id in lineage(table).items():
            assert seen.setdefault(row, given_id) == given_id
    assert len({row_id for row_id, _ in seen.values()}) == len(seen)
    assert max((row_id for row_id, _ in seen.values()), default=-1) < (
        table.metadata.next_row_id or 0
    )


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("begins", [2, 3])
@pytest.mark.parametrize("name", ["_row_id", "_last_updated_sequence_number"])
def test_a_column_of_the_table_may_have_the_name(tmp_path, mode, begins, name):
    """The specification reserves field ids, not names: the lineage is found by id."""
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    schema = pa.schema([(name, pa.int64()), ("id", pa.int64())])
    table = catalog.create_table(
        "raw.t", schema, format_version=begins, properties={"write.delete.mode": mode}
    )
    table.set_properties({"format-version": "3"})
    for number in range(3):
        table.append(pa.table({name: [number * 100, 7], "id": [number, number + 10]}))
    table.delete("id = 1")
    table.overwrite(pa.table({name: [5], "id": [99]}), "id = 2")
    table.compact(lh.CompactionOptions(min_input_files=2))
    expected = {0: 0, 10: 7, 11: 7, 12: 7, 99: 5}
    assert {row["id"]: row[name] for row in table.scan().to_arrow().to_pylist()} == expected
    assert table.scan(where=f"{name} = 7").count() == 3
    other = ({"_row_id", "_last_updated_sequence_number"} - {name}).pop()
    kept = {
        row["id"]: row[other] for row in table.scan(select=["id", other]).to_arrow().to_pylist()
    }
    ids, sequences = {0: 0, 10: 1, 11: 3, 12: 5}, {0: 1, 10: 1, 11: 2, 12: 3}
    assert {n: kept[n] for n in ids} == (ids if other == "_row_id" else sequences)
