"""Changes of another database: what is refused, what is remembered, what other writers do."""

from __future__ import annotations

import datetime as dt
import random
import threading
from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakehouse as lh
from lakehouse.environment import Environment
from lakehouse.errors import InvalidExpressionError, InvalidInputError, InvalidSchemaError

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("lsn", pa.int64())])
FORMS = [("copy-on-write", 2), ("merge-on-read", 2), ("merge-on-read", 3)]
REMEMBER = "lakehouse.changes.remember-deletes-ms"


def changes(*told: tuple[str, int, int], **more) -> pa.Table:
    """Changes from (op, id, lsn)."""
    columns = {
        "id": pa.array([one[1] for one in told], pa.int64()),
        "name": [None if one[0] == "d" else f"{one[1]}@{one[2]}" for one in told],
        "lsn": pa.array([one[2] for one in told], pa.int64()),
        "op": pa.array([one[0] for one in told], pa.string()),
    }
    return pa.table({**columns, **more})


def apply(table, *told, **more):
    return table.apply_changes(changes(*told), ["id"], ["lsn"], "op = 'd'", **more)


def content(table, **scan) -> dict[int, int]:
    found = table.refresh().scan(**scan).to_arrow().to_pylist()
    assert len({one["id"] for one in found}) == len(found), "a row is there twice"
    return {one["id"]: one["lsn"] for one in found}


@pytest.fixture
def catalog(tmp_path):
    return lh.load_catalog(f"file://{tmp_path}/warehouse")


@pytest.fixture(params=FORMS, ids=str)
def table(catalog, request):
    mode, version = request.param
    properties = {"write.merge.mode": mode}
    return catalog.create_table("raw.t", SCHEMA, format_version=version, properties=properties)


@pytest.fixture
def any_table(catalog):
    return catalog.create_table("raw.t", SCHEMA)


def test_counts_say_what_became_of_each_change(table):
    apply(table, ("c", 1, 1), ("c", 2, 5), ("c", 3, 1))
    done = apply(
        table, ("u", 1, 7), ("u", 1, 6), ("u", 2, 4), ("d", 3, 2), ("c", 4, 1), ("d", 9, 1)
    )
    assert (done.rows_updated, done.rows_deleted, done.rows_inserted) == (1, 1, 1)
    assert (done.changes, done.superseded, done.ignored, done.applied) == (6, 1, 1, 4)
    assert content(table) == {1: 7, 2: 5, 4: 1}


def test_an_update_keeps_the_row_id(catalog):
    table = catalog.create_table("raw.t", SCHEMA, format_version=3)
    apply(table, ("c", 1, 1), ("c", 2, 1))
    before = table.scan(where="id = 2", select=["_row_id"]).to_arrow().to_pylist()
    apply(table, ("u", 2, 2))
    assert table.scan(where="id = 2", select=["_row_id"]).to_arrow().to_pylist() == before


def test_only_the_table_itself_tells_the_rows(table, catalog):
    apply(table, ("c", 1, 1), ("c", 2, 1))
    apply(table, ("d", 1, 2))
    assert catalog.list_tables() == ["raw.t", "raw.t_deletes"]
    assert table.scan().to_arrow().column_names == ["id", "name", "lsn"]
    assert table.scan().count() == 1


def test_a_change_older_than_a_delete_comes_too_late(table):
    apply(table, ("c", 1, 1))
    apply(table, ("d", 1, 5), ("d", 2, 5))
    late = apply(table, ("u", 1, 4), ("c", 2, 3), ("c", 3, 1))
    assert (late.ignored, late.rows_inserted) == (2, 1)
    assert content(table) == {3: 1}
    assert apply(table, ("c", 1, 6)).rows_inserted == 1


def test_a_delete_is_remembered_for_a_window(tmp_path):
    now = [dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)]
    clock = replace(Environment.system(), now_ms=lambda: int(now[0].timestamp() * 1000))
    lake = lh.load_catalog(f"file://{tmp_path}/warehouse", environment=clock)
    table = lake.create_table("raw.t", SCHEMA, properties={REMEMBER: str(3 * 86_400_000)})
    apply(table, ("d", 1, 5))
    now[0] += dt.timedelta(days=2)
    apply(table, ("d", 2, 5))
    assert lake.load_table("raw.t_deletes").scan().count() == 2
    now[0] += dt.timedelta(days=2)
    apply(table, ("d", 3, 5))
    kept = lake.load_table("raw.t_deletes").scan().to_arrow()["id"].to_pylist()
    assert sorted(kept) == [2, 3]
    assert apply(table, ("u", 1, 4), ("u", 2, 4)).ignored == 1
    assert content(table) == {1: 4}


def test_deletes_need_not_be_remembered(catalog):
    table = catalog.create_table("raw.t", SCHEMA, properties={REMEMBER: "0"})
    apply(table, ("c", 1, 1))
    apply(table, ("d", 1, 5))
    assert catalog.list_tables() == ["raw.t"]
    apply(table, ("u", 1, 4))
    assert content(table) == {1: 4}


def test_a_batch_of_one_name_is_applied_once_and_says_so(table):
    first = apply(table, ("c", 1, 1), commit_id="source:0-1")
    again = apply(table, ("c", 1, 1), commit_id="source:0-1")
    assert (first.replayed, again.replayed) == (False, True)
    assert again.snapshot_id == first.snapshot_id == table.refresh().metadata.current_snapshot_id
    nothing = apply(table, ("u", 1, 0), commit_id="source:1-2")
    assert (nothing.ignored, nothing.snapshot.parent_snapshot_id) == (1, first.snapshot_id)
    assert nothing.snapshot.summary["lakehouse.commit-id"] == "source:1-2"
    assert apply(table, ("u", 1, 0), commit_id="source:1-2").replayed
    assert content(table) == {1: 1}


def test_nothing_new_commits_nothing(table):
    apply(table, ("c", 1, 3))
    before = table.metadata_location
    assert apply(table, ("u", 1, 2)).snapshot is None
    assert apply(table).snapshot is None
    assert table.refresh().metadata_location == before


def test_equal_sequences_go_by_the_order_of_the_data(table):
    apply(table, ("c", 1, 1), ("d", 1, 1), ("c", 2, 1), ("u", 2, 1))
    assert content(table) == {2: 1}
    apply(table, ("d", 2, 1), ("c", 1, 1))
    assert content(table) == {1: 1}


def test_drift_adds_columns_and_widens_them_in_the_same_commit(catalog):
    table = catalog.create_table(
        "raw.t", pa.schema([("id", pa.int32()), ("name", pa.string()), ("lsn", pa.int64())])
    )
    before = len(table.snapshots())
    done = table.apply_changes(
        pa.table({"id": [1, 2**40], "lsn": [1, 2], "plan": ["free", None]}), ["id"], ["lsn"]
    )
    assert done.columns_changed == ("id", "plan")
    assert len(table.snapshots()) == before + 1
    ids = {field.name: field.field_id for field in table.schema().fields}
    assert (ids["id"], ids["plan"]) == (1, 4)
    rows = table.scan(where="id > 1").to_arrow().to_pylist()
    assert rows == [{"id": 2**40, "name": None, "lsn": 2, "plan": None}]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (pa.array(["x"]), "'amount'.*is string in the data but int"),
        (pa.array([1.5]), "'amount'.*is double in the data but int"),
        (pa.array([True]), "cannot be widened|nor can the column"),
    ],
    ids=str,
)
def test_values_that_fit_no_column_are_refused(catalog, given, match):
    table = catalog.create_table(
        "raw.t", pa.schema([("id", pa.int64()), ("lsn", pa.int64()), ("amount", pa.int32())])
    )
    with pytest.raises(InvalidSchemaError, match=match):
        table.apply_changes(pa.table({"id": [1], "lsn": [1], "amount": given}), ["id"], ["lsn"])
    assert table.refresh().scan().count() == 0
    assert [field.name for field in table.schema().fields] == ["id", "lsn", "amount"]


def test_a_row_that_comes_again_begins_anew(catalog):
    table = catalog.create_table(
        "raw.t", SCHEMA.append(pa.field("secret", pa.string())), format_version=3
    )
    first = changes(("c", 1, 1), ("c", 2, 1), secret=["a", "b"])
    table.apply_changes(first, ["id"], ["lsn"], "op = 'd'")
    apply(table, ("u", 1, 4), ("d", 1, 3), ("u", 2, 4), ("d", 2, 0))
    found = table.scan().to_arrow().to_pylist()
    assert {one["id"]: one["secret"] for one in found} == {1: None, 2: "b"}


def test_a_delete_needs_its_key_alone(catalog):
    required = pa.schema(
        [pa.field("id", pa.int64(), False), ("lsn", pa.int64()), pa.field("n", pa.int32(), False)]
    )
    table = catalog.create_table("raw.t", required)
    both = pa.table(
        {"id": [1, 2, 1], "lsn": [1, 1, 2], "n": [7, 8, None], "gone": [False, False, True]}
    )
    assert table.apply_changes(both, ["id"], ["lsn"], "gone").rows_inserted == 1
    with pytest.raises(InvalidSchemaError, match=r"'n'.*required"):
        table.apply_changes(both.slice(2), ["id"], ["lsn"])


def test_columns_of_delete_when_are_kept_where_the_table_has_them(catalog):
    table = catalog.create_table("raw.t", SCHEMA.append(pa.field("op", pa.string())))
    apply(table, ("c", 1, 1))
    assert table.scan().to_arrow()["op"].to_pylist() == ["c"]


@pytest.mark.parametrize(
    ("keys", "sequence_by", "delete_when", "error", "match"),
    [
        ("id", ["lsn"], None, InvalidInputError, "keys is a list"),
        (["id"], [], None, InvalidInputError, "sequence_by is a list"),
        (["nope"], ["lsn"], None, InvalidInputError, "no column 'nope', which keys names"),
        (["id"], ["nope"], None, InvalidInputError, "no column 'nope', which sequence_by names"),
        (["id"], ["lsn"], "nope = 1", InvalidExpressionError, "nope"),
        (["id"], ["lsn"], "op =", InvalidExpressionError, "missing"),
        (["x"], ["lsn"], None, InvalidInputError, "'x'.*double.*tells no rows apart"),
        (["id"], ["x"], None, InvalidInputError, "'x'.*double.*orders no changes"),
        (["void"], ["lsn"], None, InvalidInputError, "1 changes have no value of 'void'"),
        (["id"], ["void"], None, InvalidInputError, "such as change 1"),
    ],
    ids=str,
)
def test_mistakes_are_named_and_change_nothing(
    any_table, catalog, keys, sequence_by, delete_when, error, match
):
    before = any_table.metadata_location
    data = changes(("c", 1, 1), ("d", 2, 1), x=[0.5, 1.5], void=pa.array([1, None], pa.int64()))
    with pytest.raises(error, match=match):
        any_table.apply_changes(data, keys, sequence_by, delete_when)
    assert any_table.refresh().metadata_location == before
    assert catalog.list_tables() == ["raw.t"]


def test_a_table_that_is_something_else_is_left_alone(any_table, catalog):
    other = catalog.create_table("raw.t_deletes", SCHEMA)
    other.append(changes(("c", 1, 1)).drop_columns("op"))
    with pytest.raises(InvalidInputError, match="is a table of its own"):
        apply(any_table, ("d", 1, 1))
    assert other.refresh().scan().count() == 1
    any_table.set_properties({"lakehouse.changes.deletes-table": "raw.t_memory"})
    apply(any_table, ("d", 1, 1))
    assert catalog.load_table("raw.t_memory").scan().count() == 1


def test_a_table_of_the_same_name_does_not_inherit_deletes(any_table, catalog):
    apply(any_table, ("d", 1, 5))
    catalog.drop_table("raw.t")
    new = catalog.create_table("raw.t", SCHEMA)
    with pytest.raises(InvalidInputError, match="is a table of its own"):
        apply(new, ("c", 1, 1))


def test_other_keys_need_other_deletes(any_table):
    apply(any_table, ("d", 1, 5))
    with pytest.raises(InvalidInputError, match="its columns are id, lsn, remembered_at"):
        any_table.apply_changes(changes(("c", 1, 1)), ["id", "name"], ["lsn"])


def test_deletes_are_found_after_the_table_is_renamed(tmp_path):
    lake = lh.load_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    apply(lake.create_table("raw.t", SCHEMA), ("d", 1, 5))
    renamed = lake.rename_table("raw.t", "raw.u")
    assert apply(renamed, ("c", 1, 4)).ignored == 1


def test_a_branch_has_deletes_of_its_own(any_table):
    apply(any_table, ("c", 1, 1))
    any_table.create_branch("work")
    apply(any_table, ("d", 1, 5), branch="work")
    assert apply(any_table, ("u", 1, 4), branch="work").ignored == 1
    assert apply(any_table, ("u", 1, 4)).rows_updated == 1
    assert (content(any_table), content(any_table, ref="work")) == ({1: 4}, {})


def meanwhile(tmp_path, act) -> lh.Table:
    """The table, opened by somebody who is overtaken once between looking and committing."""
    real, waiting = Environment.system(), [act]

    def new_uuid():
        if waiting:
            waiting.pop()()
        return real.new_uuid()

    lake = lh.load_catalog(
        f"file://{tmp_path}/warehouse", environment=replace(real, new_uuid=new_uuid)
    )
    return lake.load_table("raw.t")


@pytest.mark.parametrize("there", [(), (("c", 1, 1),)], ids=["absent", "there"])
def test_a_delete_that_came_meanwhile_is_newer(table, catalog, tmp_path, there):
    apply(table, ("c", 7, 1), *there)
    other = catalog.load_table("raw.t")
    slow = meanwhile(tmp_path, lambda: apply(other, ("d", 1, 9)))
    done = apply(slow, ("u", 1, 5), ("u", 7, 2))
    assert (done.ignored, done.rows_updated) == (1, 1)
    assert content(table) == {7: 2}


def test_a_row_that_came_meanwhile_is_deleted_by_a_newer_delete(table, catalog, tmp_path):
    apply(table, ("c", 7, 1))
    other = catalog.load_table("raw.t")
    slow = meanwhile(tmp_path, lambda: apply(other, ("c", 1, 5)))
    done = apply(slow, ("d", 1, 9), ("u", 7, 2))
    assert (done.rows_deleted, done.decided_again, done.rows_decided_again) == (1, 1, 2)
    assert content(table) == {7: 2}


def test_a_row_that_came_meanwhile_is_deleted_by_a_delete_that_found_none(table, catalog, tmp_path):
    other = catalog.load_table("raw.t")
    slow = meanwhile(tmp_path, lambda: apply(other, ("c", 1, 5), ("c", 2, 5)))
    assert apply(slow, ("d", 1, 9)).rows_deleted == 1
    assert content(table) == {2: 5}


def test_types_of_keys_may_differ_from_batch_to_batch(table):
    for kind in (pa.int32(), pa.int64(), pa.int16()):
        data = changes(("d", 1, 5))
        data = data.set_column(0, "id", data["id"].cast(kind))
        table.apply_changes(data, ["id"], ["lsn"], "op = 'd'")
    assert apply(table, ("u", 1, 4)).ignored == 1


def test_another_library_reads_the_current_rows(table):
    apply(table, ("c", 1, 1), ("c", 2, 1), ("c", 3, 1))
    apply(table, ("d", 1, 2), ("u", 2, 2))
    found = StaticTable.from_metadata(table.metadata_location).scan().to_arrow().to_pylist()
    assert {one["id"]: one["lsn"] for one in found} == {2: 2, 3: 1}


def test_a_column_that_came_meanwhile_is_taken(any_table, catalog, tmp_path):
    def evolve():
        with catalog.load_table("raw.t").update_schema() as schema:
            schema.add_column("plan", "string")

    slow = meanwhile(tmp_path, evolve)
    data = changes(("c", 1, 1), plan=["free"], city=["Oslo"])
    assert slow.apply_changes(data, ["id"], ["lsn"], "op = 'd'").columns_changed == ("city",)
    assert any_table.refresh().scan().to_arrow().to_pylist()[0]["plan"] == "free"


def test_writers_beside_each_other_leave_what_the_last_changes_say(table, catalog):
    table.set_properties({"commit.retry.num-retries": "50", "commit.retry.min-wait-ms": "1"})
    rng = random.Random(7)
    told = [(rng.choice("ccud"), rng.randrange(6), lsn) for lsn in range(48)]
    last = {one[1]: one for one in told}
    rng.shuffle(told)
    failed = []

    def work(mine) -> None:
        here = catalog.load_table("raw.t")
        try:
            for at in range(0, len(mine), 4):
                apply(here.refresh(), *mine[at : at + 4])
        except Exception as error:  # noqa: BLE001 - told by the assertion below
            failed.append(error)

    threads = [threading.Thread(target=work, args=(told[part::3],)) for part in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed
    assert content(table) == {key: one[2] for key, one in last.items() if one[0] != "d"}
