"""Merge, upsert and update: what they refuse, what they say, and what other writers do."""

from __future__ import annotations

import math
import threading
from decimal import Decimal

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import (
    InvalidExpressionError,
    InvalidInputError,
    InvalidSchemaError,
    ValidationConflictError,
)
from lakehouse.evolution.update_schema import UpdateSchema

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int32()), ("x", pa.float64())])


def rows(*ids: int, day: int = 0, x: float = 0.0) -> pa.Table:
    count = len(ids)
    return pa.table({"id": list(ids), "day": [day] * count, "x": [x] * count}, schema=SCHEMA)


FORMS = [("copy-on-write", 2), ("merge-on-read", 2), ("merge-on-read", 3)]


@pytest.fixture
def catalog(tmp_path):
    return lh.load_catalog(f"file://{tmp_path}/warehouse")


def new_table(catalog, mode: str, version: int):
    names = [f"write.{command}.mode" for command in ("delete", "update", "merge")]
    table = catalog.create_table(
        "raw.t",
        SCHEMA,
        partition_by=["day"],
        format_version=version,
        properties=dict.fromkeys(names, mode),
    )
    table.append(rows(*range(10)))
    table.append(rows(*range(10, 20), day=1))
    return table


@pytest.fixture(params=FORMS, ids=str)
def table(catalog, request):
    return new_table(catalog, *request.param)


@pytest.fixture
def any_table(catalog):
    return new_table(catalog, *FORMS[2])


def content(table) -> dict[int, float]:
    found = table.refresh().scan().to_arrow().to_pylist()
    assert len({one["id"] for one in found}) == len(found), "a row is there twice"
    return {one["id"]: one["x"] for one in found}


def test_nothing_to_do_commits_nothing(table):
    before = table.metadata_location
    assert table.update({"x": "1"}, "id = 99").snapshot is None
    assert table.upsert(rows(), ["id"]).snapshot_id is None
    done = table.merge(rows(99), "t.id = s.id").when_matched_delete().execute()
    assert (done.snapshot, done.rows_deleted) == (None, 0)
    assert table.refresh().metadata_location == before


def test_files_without_a_key_stay(table):
    before = {file.file_path for file in table.scan().plan().files}
    table.upsert(rows(3, 4, x=1.0), ["id"])
    after = {file.file_path for file in table.refresh().scan().plan().files}
    untouched = {file.file_path for file in table.scan(where="day = 1").plan().files}
    assert untouched <= before & after


def test_a_row_that_moves_to_another_partition_is_there_once(table):
    table.update({"day": "1 - day"}, "id in (3, 13)")
    assert sorted(content(table)) == list(range(20))
    assert table.scan(where="day = 1 and id = 3").count() == 1
    assert table.scan(where="day = 0 and id = 3").count() == 0


def test_a_scan_of_the_table_itself_is_a_source(table):
    table.upsert(table.scan(where="id < 3"), ["id"])
    assert sorted(content(table)) == list(range(20))


@pytest.mark.parametrize(
    ("on", "clauses", "error", "match"),
    [
        ("t.id > s.id", {}, InvalidInputError, "equality"),
        ("t.nope = s.id", {}, InvalidExpressionError, "nope"),
        ("id = s.id", {}, InvalidExpressionError, "t.id or s.id"),
        ("t.id = s.id", {"x": "'text'"}, InvalidExpressionError, "text"),
        ("t.id = s.id", {"nope": "1"}, InvalidInputError, "id, day, x"),
        ("t.id = s.id", {"day": "s.x + 0.5"}, InvalidSchemaError, "day"),
        ("t.id = s.id", {"day": "2147483647 + t.day + 1"}, InvalidSchemaError, "day"),
        ("t.id = s.id", {"day": 7}, InvalidInputError, "SQL text"),
        ("t.id = s.id", {}, InvalidInputError, "changes nothing"),
    ],
)
def test_mistakes_are_named_and_change_nothing(any_table, on, clauses, error, match):
    before = content(any_table)
    merge = any_table.merge(rows(3, x=1.0), on)
    with pytest.raises(error, match=match):
        merge.when_matched_update(clauses).execute()
    assert content(any_table) == before


@pytest.mark.parametrize("key", [3, 99])
def test_an_upsert_refuses_a_key_that_is_there_twice(any_table, key):
    before = content(any_table)
    with pytest.raises(InvalidInputError, match=f"share their key with another, such as {key}"):
        any_table.upsert(rows(1, key, key, x=1.0), ["id"])
    assert content(any_table) == before


FLOATS = [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("there", FLOATS)
def test_floats_as_keys(catalog, there, kind):
    """Beside each other value, in either order; DuckDB says what is equal."""
    peer = duckdb.connect()
    for other in FLOATS:
        if other == there or (other != other and there != there):
            continue
        table = catalog.create_table("raw.f", pa.schema([("f", kind), ("n", pa.int64())]))
        table.append(pa.table({"f": pa.array([there], kind), "n": [0]}))
        for keys in ([there, other], [other, there]):
            data = pa.table({"f": pa.array(keys, kind), "n": [1, 1]})
            peer.register("t", table.scan().to_arrow())
            peer.register("s", data)
            # EXISTS, since its inner join loses NaN.
            query = "SELECT count(*) FROM t WHERE EXISTS (SELECT 1 FROM s WHERE t.f = s.f)"
            wanted = peer.execute(query).fetchone()[0]
            assert table.upsert(data, ["f"]).rows_updated == wanted
        assert table.scan().count() == 2
        catalog.drop_table("raw.f", purge=True)


ALIKE = [
    (pa.array([2**53 + 1, 3]), pa.array([float(2**53), 3.5])),
    (pa.array([2**24 + 1, 3], pa.int32()), pa.array([float(2**24), 3.5], pa.float32())),
    (pa.array([7, 3]), pa.array([Decimal("7.00"), Decimal("3.01")])),
    (
        pa.array([Decimal("7.00"), Decimal("3.01")], pa.decimal128(3, 2)),
        pa.array([7, 3], pa.int32()),
    ),
    (
        pa.array([86_400_000_000, 1], pa.int64()).cast(pa.timestamp("us")),
        pa.array([1, 2], pa.int32()).cast(pa.date32()),
    ),
]


@pytest.mark.parametrize(("there", "given"), ALIKE, ids=lambda keys: str(keys.type))
def test_keys_of_two_types_are_equal_where_a_filter_says_so(catalog, there, given):
    table = catalog.create_table("raw.t", pa.schema({"k": there.type, "other": given.type}))
    table.append(pa.table({"k": there, "other": given}))
    assert table.scan("k = other").to_arrow()["k"].to_pylist() == there[:1].to_pylist()
    source = pa.table({"key": given})
    assert table.merge(source, "t.k = s.key").when_matched_delete().execute().rows_deleted == 1
    assert table.scan().to_arrow()["k"].to_pylist() == there[1:].to_pylist()


FOREIGN = [
    (pa.time64("us"), pa.array([1_000, 2_000], pa.int64()).cast(pa.time64("ns"))),
    (pa.int64(), pa.array([1, 2], pa.uint64())),
    (pa.decimal128(9, 2), pa.array([Decimal("1.00"), Decimal("2.50")], pa.decimal256(50, 2))),
]


@pytest.mark.parametrize("memory_bytes", [1 << 10, 1 << 30], ids=["spilled", "in memory"])
@pytest.mark.parametrize(("kind", "given"), FOREIGN, ids=lambda one: str(getattr(one, "type", one)))
def test_types_that_an_append_takes_are_merged_too(catalog, kind, given, memory_bytes):
    table = catalog.create_table("raw.t", pa.schema({"k": kind, "v": pa.int64()}))
    table.append(pa.table({"k": given[:1], "v": [0]}))
    source = pa.table({"k": given, "v": [1, 2]})
    done = table.upsert(source, ["k"], memory_bytes=memory_bytes)
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    found = table.scan().to_arrow().sort_by("v")
    assert found["v"].to_pylist() == [1, 2]
    assert found["k"].to_pylist() == given.cast(kind).to_pylist()


def test_a_type_that_neither_iceberg_nor_the_table_has_is_refused(any_table):
    source = pa.table({"id": [1], "other": pa.array([1], pa.duration("us"))})
    with pytest.raises(lh.InvalidInputError, match="'other' of Arrow type duration"):
        any_table.upsert(source, ["id"])


def test_keys_that_their_common_type_lacks_are_an_error_of_ours(catalog):
    last = pa.array([2**61], pa.int64()).cast(pa.timestamp("us"))
    table = catalog.create_table("raw.t", pa.schema({"at": last.type}))
    table.append(pa.table({"at": last}))
    source = pa.table({"at": pa.array([1], pa.int64()).cast(pa.timestamp("ns"))})
    merge = table.merge(source, "t.at = s.at").when_not_matched_by_source_delete()
    with pytest.raises(InvalidExpressionError, match="cannot be compared"):
        merge.execute()


def test_keys_beyond_pythons_calendar(catalog):
    days = pa.array([-800_000, 4_000_000], pa.int32()).cast(pa.date32())
    table = catalog.create_table("raw.d", pa.schema([("d", pa.date32()), ("n", pa.int64())]))
    table.append(pa.table({"d": days, "n": [0, 0]}))
    assert table.upsert(pa.table({"d": days, "n": [1, 1]}), ["d"]).rows_updated == 2
    twice = pa.table({"d": pa.concat_arrays([days, days]), "n": [1] * 4})
    with pytest.raises(InvalidInputError, match="share their key with another"):
        table.upsert(twice, ["d"])


def test_a_condition_is_computed_for_rows_that_no_clause_before_took(catalog):
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    table = catalog.create_table("raw.s", schema)
    table.append(pa.table({"id": [1, 2], "s": ["no number", "7"]}))
    merge = table.merge(pa.table({"id": [1, 2]}), ["id"]).when_matched_delete("t.id = 1")
    merge = merge.when_matched_update({"s": "'x'"}, "cast(t.s as int) > 5")
    assert merge.execute().rows_updated == 1
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "s": "x"}]


def test_a_row_that_several_source_rows_delete_counts_once(any_table):
    source = pa.table({"id": [3, 3, 3], "k": [0, 1, 1]})
    merge = any_table.merge(source, ["id"]).when_matched_delete("s.k = 0")
    assert merge.when_matched_delete("s.k = 1").execute().rows_deleted == 1
    assert 3 not in content(any_table)


def test_another_table_of_the_name_is_left_alone(any_table, catalog):
    catalog.drop_table("raw.t")
    other = catalog.create_table("raw.t", SCHEMA)
    other.append(rows(500))
    with pytest.raises(ValidationConflictError, match="was dropped"):
        any_table.upsert(rows(1, 2, x=1.0), ["id"])
    assert content(other) == {500: 0.0}


def test_rows_without_a_key_are_inserted_however_many(any_table):
    data = pa.table({"id": pa.array([None, None], pa.int64()), "x": [1.0, 2.0]})
    assert any_table.upsert(data, ["id"]).rows_inserted == 2


SOURCES = {
    "table": lambda table, kept: kept,
    "polars": lambda table, kept: pl.DataFrame(kept),
    "pandas": lambda table, kept: kept.to_pandas(),
    "duckdb": lambda table, kept: duckdb.from_arrow(kept),
    "scan": lambda table, kept: table.scan("id < 3"),
    "batches": lambda table, kept: kept.to_batches(),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_source_is_read_again_after_the_plan(any_table, source):
    given = source(any_table, rows(0, 1, 2))
    merge = any_table.merge(given, ["id"]).when_not_matched_by_source_delete()
    assert [merge.plan().rows_deleted for _ in range(2)] == [17, 17]
    assert merge.execute().rows_deleted == 17
    assert merge.execute().rows_deleted == 0
    assert sorted(content(any_table)) == [0, 1, 2]


@pytest.mark.parametrize("several", [False, True])
def test_a_stream_that_was_planned_is_not_taken_for_an_empty_source(any_table, several):
    stream = rows(0, 1, 2).to_reader()
    given = [stream] if several else stream
    merge = any_table.merge(given, ["id"]).when_not_matched_by_source_delete()
    assert merge.plan().rows_deleted == 17
    with pytest.raises(InvalidInputError, match="have been read"):
        merge.execute()
    assert len(content(any_table)) == 20


def test_a_clause_that_never_acts_is_refused(any_table):
    merge = any_table.merge(rows(3), "t.id = s.id").when_matched_delete().when_matched_update_all()
    with pytest.raises(InvalidInputError, match="would never act"):
        merge.execute()


def test_overflow_is_an_error_and_nothing_is_lost(catalog):
    table = catalog.create_table("raw.n", pa.schema([("id", pa.int64()), ("n", pa.int64())]))
    table.append(pa.table({"id": [1, 2], "n": [1, 2**62]}))
    with pytest.raises(InvalidExpressionError, match="overflow"):
        table.update({"n": "n * 2"})
    assert table.refresh().scan().to_arrow()["n"].to_pylist() == [1, 2**62]


def test_a_named_commit_happens_once(table):
    first = table.update({"x": "x + 1"}, "id = 3", commit_id="step-1")
    again = table.update({"x": "x + 1"}, "id = 3", commit_id="step-1")
    assert (first.rows_updated, again.replayed, again.snapshot_id) == (1, True, first.snapshot_id)
    assert content(table)[3] == 1.0


def test_a_branch_is_changed_alone(table):
    table.create_branch("work")
    table.upsert(rows(3, 77, x=5.0), ["id"], branch="work")
    assert 77 not in content(table)
    there = table.scan(ref="work").to_arrow().to_pylist()
    assert {one["id"]: one["x"] for one in there}[77] == 5.0


def test_what_another_writer_did_meanwhile_is_decided_on_again(table, catalog):
    stale = catalog.load_table("raw.t")
    table.update({"x": "x + 1"}, "id in (3, 4)")
    table.append(rows(50, x=9.0))
    done = stale.upsert(rows(4, 50, 51, x=7.0), ["id"])
    assert (done.rows_updated, done.rows_inserted) == (2, 1)
    found = content(table)
    assert (found[3], found[4], found[50], found[51]) == (1.0, 7.0, 7.0, 7.0)


def test_a_table_compacted_meanwhile_is_decided_on_again(table, catalog):
    table.append(rows(*range(20, 30)))
    stale = catalog.load_table("raw.t")
    table.compact()
    stale.update({"x": "x + 1"}, "id = 25")
    assert content(table)[25] == 1.0
    assert len(content(table)) == 30


def test_upserts_of_one_file_from_many_threads_all_land(table, catalog):
    table.set_properties({"commit.retry.num-retries": "50", "commit.retry.min-wait-ms": "1"})

    def work(number: int) -> None:
        mine = catalog.load_table("raw.t")
        for turn in range(3):
            mine.refresh().upsert(rows(number, 100 + number, x=float(turn)), ["id"])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    found = content(table)
    assert {number: found[number] for number in (*range(4), *range(100, 104))} == dict.fromkeys(
        [*range(4), *range(100, 104)], 2.0
    )
    assert len(found) == 24


def test_a_change_is_part_of_a_transaction(table, catalog):
    before = table.metadata_location
    work = table.transaction().set_properties({"owner": "ada"})
    done = table.upsert(rows(3, 77, x=5.0), ["id"], transaction=work)
    assert (done.rows_updated, done.rows_inserted, done.snapshot) == (1, 1, None)
    work.append(table.write_files(rows(99)))
    assert catalog.load_table("raw.t").metadata_location == before
    work.commit({"why": "test"}, commit_id="once")
    found = content(table)
    assert (found[3], found[77], found[99], len(found)) == (5.0, 5.0, 0.0, 22)
    assert table.properties["owner"] == "ada"
    assert table.metadata.current_snapshot().summary["why"] == "test"


@pytest.mark.parametrize("verb", ["update", "upsert", "merge"])
def test_a_transaction_fails_when_others_changed_what_it_was_decided_on(table, catalog, verb):
    work = table.transaction()
    if verb == "update":
        table.update({"x": "x + 1"}, "id = 3", transaction=work)
    elif verb == "upsert":
        table.upsert(rows(3, x=5.0), ["id"], transaction=work)
    else:
        table.merge(rows(3), ["id"], transaction=work).when_matched_delete().execute()
    catalog.load_table("raw.t").update({"x": "8"}, "id = 3")
    with pytest.raises(ValidationConflictError):
        work.commit()
    assert content(table)[3] == 8.0


def test_what_a_transaction_would_not_see_is_refused(any_table):
    def upsert(work, **into):
        return any_table.upsert(rows(3, x=5.0), ["id"], transaction=work, **into)

    work = any_table.transaction()
    upsert(work)
    with pytest.raises(InvalidInputError, match="changed rows or refs already"):
        upsert(work)
    with pytest.raises(InvalidInputError, match="changed rows or refs already"):
        upsert(any_table.transaction().append(any_table.write_files(rows(3))))
    with pytest.raises(InvalidInputError, match="are the transaction's"):
        upsert(any_table.transaction(), branch="work")
    changed = UpdateSchema(any_table.metadata).add_column("y", "long").changes()
    work = any_table.transaction().update(changed.updates, changed.requirements)
    with pytest.raises(InvalidInputError, match="commit that before"):
        upsert(work)
    stale = any_table.transaction()
    any_table.set_properties({"a": "b"})
    with pytest.raises(InvalidInputError, match="another version"):
        upsert(stale)


NESTED = [
    pa.struct([("u", pa.uuid())]),
    pa.list_(pa.uuid()),
    pa.map_(pa.uuid(), pa.uuid()),
    pa.struct([("s", pa.list_(pa.struct([("u", pa.uuid())])))]),
]


@pytest.mark.parametrize("memory_bytes", [1 << 10, 1 << 30], ids=["spilled", "in memory"])
@pytest.mark.parametrize("kind", NESTED, ids=str)
def test_uuids_within_nested_columns(catalog, kind, memory_bytes):
    table = catalog.create_table("raw.u", pa.schema([("id", pa.int64()), ("x", kind)]))
    ids = list(range(500))
    table.append(pa.table({"id": ids, "x": pa.nulls(500, kind)}))
    source = pa.table({"id": [*ids[250:], *range(500, 750)], "x": pa.nulls(500, kind)})
    done = table.upsert(source, ["id"], memory_bytes=memory_bytes)
    assert (done.rows_updated, done.rows_inserted) == (250, 250)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(750))
    assert table.update({"id": "id + 1000"}, where="id < 10").rows_updated == 10


def test_equal_rows_are_written_again_by_an_upsert_and_left_alone_by_a_condition(table):
    same = pa.concat_tables([rows(3, 4), rows(15, day=1)])
    before = table.current_snapshot().snapshot_id
    differs = "s.day IS DISTINCT FROM t.day OR s.x IS DISTINCT FROM t.x"
    merge = table.merge(same, on=["id"]).when_matched_update_all(differs)
    assert merge.execute().rows_updated == 0
    assert table.current_snapshot().snapshot_id == before
    other = pa.concat_tables([rows(3), rows(4, x=None)])
    merge = table.merge(other, on=["id"]).when_matched_update_all(differs)
    assert merge.execute().rows_updated == 1
    assert table.scan(where="x IS NULL").to_arrow()["id"].to_pylist() == [4]
    assert table.upsert(same.slice(0, 1), keys=["id"]).rows_updated == 1
