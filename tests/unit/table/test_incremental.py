"""Incremental reads, changelogs and time travel by run, against a model kept beside the table."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

import lakehouse as lh
from lakehouse.data.conversion.row_codes import row_codes
from lakehouse.ingestion.stamp import RunStamp

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("p", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


def data(*ids: int, p: str = "a") -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": n, "p": p, "tags": [p, str(n)] if n % 2 else None} for n in ids], schema=SCHEMA
    )


@pytest.fixture(params=["copy-on-write", "merge-on-read"])
def table(request, tmp_path):
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    properties = {"write.delete.mode": request.param}
    return catalog.create_table(
        "raw.t", SCHEMA, partition_by=["p"], properties=properties, format_version=3
    )


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


def changes(log: pa.Table) -> list[tuple[int, str, int]]:
    return sorted(
        (row["_change_ordinal"], row["_change_type"], row["id"])
        for row in log.drop_columns(["tags"]).to_pylist()
    )


def test_appends_between_two_snapshots(table):
    first = table.append(data(1, 2)).snapshot_id
    second = table.append(data(3)).snapshot_id
    table.delete("id = 1")
    table.compact()
    third = table.append(data(4, 5, p="b")).snapshot_id
    assert ids(table.scan_appends(first).to_arrow()) == [3, 4, 5]
    assert ids(table.scan_appends(first, second).to_arrow()) == [3]
    assert ids(table.scan_appends(second, where="id >= 5").to_arrow()) == [5]
    assert table.scan_appends(first, select="id").to_arrow().column_names == ["id"]
    assert table.scan_appends(first).count() == 3
    assert len(table.scan_appends(second, third).plan().files) == 1
    assert table.scan_appends(third).to_arrow().num_rows == 0
    with pytest.raises(lh.NoSuchSnapshotError, match="no ancestor"):
        table.scan_appends(third, first).to_arrow()
    with pytest.raises(lh.InvalidInputError, match="Spark"):
        table.scan_appends(first).to_spark(object())


def test_a_changelog_knows_what_came_and_went(table):
    first = table.append(data(1, 2, 3)).snapshot_id
    second = table.delete("id = 2").snapshot_id
    third = table.overwrite(data(3, 4), where="id = 3").snapshot_id
    log = table.changelog(first).to_arrow()
    assert changes(log) == [(0, "DELETE", 2), (1, "INSERT", 4)]
    assert set(log["_commit_snapshot_id"].to_pylist()) == {second, third}
    assert log.schema.names == [
        "id",
        "p",
        "tags",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
    ]
    assert changes(table.changelog(to_snapshot_id=first).to_arrow()) == [
        (0, "INSERT", n) for n in (1, 2, 3)
    ]
    assert changes(table.changelog(first, where="id > 3").to_arrow()) == [(1, "INSERT", 4)]
    assert table.changelog(first, select=["tags"]).to_arrow().column_names[0] == "tags"
    assert table.changelog(third).to_arrow().num_rows == 0


def test_compactions_change_nothing(table):
    first = table.append(data(1, 2)).snapshot_id
    for number in range(6):
        table.append(data(10 + number))
    table.delete("id = 10")
    table.compact()
    table.rewrite_manifests()
    log = table.changelog(first).to_arrow()
    assert changes(log) == [*((n, "INSERT", 10 + n) for n in range(6)), (6, "DELETE", 10)]
    assert changes(table.changelog(first, net=True).to_arrow()) == [
        (n, "INSERT", 10 + n) for n in range(1, 6)
    ]


def test_net_changes_forget_what_came_back(table):
    first = table.append(data(1, 2)).snapshot_id
    table.delete("id = 1")
    table.append(data(1, 7))
    table.delete("id = 7")
    assert changes(table.changelog(first).to_arrow()) == [
        (0, "DELETE", 1),
        (1, "INSERT", 1),
        (1, "INSERT", 7),
        (2, "DELETE", 7),
    ]
    assert table.changelog(first, net=True).to_arrow().num_rows == 0


def test_a_changelog_across_a_schema_change(table):
    first = table.append(data(1)).snapshot_id
    with table.update_schema() as schema:
        schema.add_column("extra", "string")
        schema.rename_column("id", "number")
    table.append(pa.table({"number": [2], "p": ["a"], "extra": ["x"]}))
    table.delete("number = 1")
    rows = table.changelog(first).to_arrow().select(["number", "extra", "_change_type"]).to_pylist()
    assert rows == [
        {"number": 2, "extra": "x", "_change_type": "INSERT"},
        {"number": 1, "extra": None, "_change_type": "DELETE"},
    ]


KEYED = pa.schema(
    [
        pa.field("place", pa.struct([pa.field("id", pa.int64(), nullable=False)]), nullable=False),
        pa.field("p", pa.string(), nullable=False),
        pa.field("day", pa.date32()),
        pa.field("value", pa.float64()),
    ]
)


def keyed(rows):
    """Rows by key (id, p) with their value; the day follows from the id."""
    return [
        {"place": {"id": i}, "p": p, "day": dt.date(1969, 12, 30) + dt.timedelta(i), "value": value}
        for (i, p), value in rows.items()
    ]


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("seed", range(3))
def test_halves_of_updates_and_partitions_of_rows(mode, seed):
    """Against dictionaries of the table at each snapshot, and pyiceberg's transforms."""
    rng = random.Random(seed)
    table = lh.load_catalog("memory://pairs").create_table(
        f"raw.pairs_{mode[0]}{seed}",
        KEYED,
        partition_by=["bucket(3, place.id)"],
        properties={"write.merge.mode": mode, "write.delete.mode": mode},
    )
    with table.update_schema() as schema:
        schema.set_identifier_fields("place.id", "p")
    states, at = {}, {None: {}}
    for step in range(6):
        if step == 3:
            with table.update_partition_spec() as spec:
                spec.add("day(day)")
        states = dict(states)
        if step % 3 == 2:
            table.delete("place.id % 5 = 1")
            states = {key: value for key, value in states.items() if key[0] % 5 != 1}
        else:
            values = [0.5, -0.0, float("nan"), None]
            fresh = {(rng.randrange(20), rng.choice("ab")): rng.choice(values) for _ in range(6)}
            table.upsert(pa.Table.from_pylist(keyed(fresh), KEYED), keys=["place.id", "p"])
            states |= fresh
        at[table.current_snapshot().snapshot_id] = states
    expected = []
    for old, (id_, new) in zip(at.values(), list(at.items())[1:], strict=False):
        for key in old.keys() | new.keys():
            halves = [repr(rows[key]) if key in rows else None for rows in (old, new)]
            kinds = ("UPDATE_BEFORE", "UPDATE_AFTER") if all(halves) else ("DELETE", "INSERT")
            if halves[0] != halves[1]:
                expected += [(id_, *one, *key) for one in zip(kinds, halves, strict=True) if one[1]]
    select = ["_partition", "p", "day", "value", "place"]
    rows = table.changelog(updates=True, select=select).to_arrow().to_pylist()
    assert Counter(
        (row["_commit_snapshot_id"], row["_change_type"], repr(row["value"]), row["place"]["id"],
         row["p"])
        for row in rows
    ) == Counter(expected)  # fmt: skip
    named = table.changelog(updates=["p", "place.id"], select=select).to_arrow().to_pylist()
    assert repr(named) == repr(rows)
    bucket, evolved = BucketTransform(3).transform(LongType()), list(at)[4:]
    for row in rows:
        assert row["_partition"]["place.id_bucket"] == bucket(row["place"]["id"])
        came = row["_change_type"] in ("INSERT", "UPDATE_AFTER")
        if row["_commit_snapshot_id"] not in evolved:
            assert row["_partition"]["day_day"] is None
        elif came:
            assert row["_partition"]["day_day"] == row["day"]
        else:
            assert row["_partition"]["day_day"] in (None, row["day"])
    assert {row["_change_type"] for row in rows} == {
        "INSERT", "DELETE", "UPDATE_BEFORE", "UPDATE_AFTER"
    }  # fmt: skip


def test_updates_that_nobody_can_tell_are_refused(table):
    table.append(data(1, 1, 2))
    with pytest.raises(lh.InvalidInputError, match="not unique by id: several of id 1 came"):
        table.changelog(updates="id").to_arrow()
    for options, message in (
        ({"updates": True}, "no identifier fields"),
        ({"updates": ["nobody"]}, "the same nobody; columns are id, p, tags"),
        ({"updates": ["tags.element"]}, "the same tags.element"),
        ({"updates": "id", "net": True}, "leave one out"),
    ):
        with pytest.raises(lh.InvalidInputError, match=message):
            table.changelog(**options)
    with pytest.raises(lh.InvalidSchemaError, match="cannot select _file"):
        table.changelog(select="_file").to_arrow()


def test_a_changelog_without_its_past_is_refused(table):
    first = table.append(data(1)).snapshot_id
    table.append(data(2))
    last = table.append(data(3)).snapshot_id
    table.expire_snapshots(
        older_than=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1), retain_last=1
    )
    with pytest.raises(lh.NoSuchSnapshotError, match="expired"):
        table.changelog(first, last).to_arrow()
    with pytest.raises(lh.NoSuchSnapshotError, match="expired"):
        table.changelog().to_arrow()


NUMBERS = itertools.count()
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 5), min_size=1, max_size=4)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("overwrite"), st.integers(0, 5), st.lists(st.integers(0, 5), max_size=3)),
        st.tuples(st.just("compact")),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=12)
@given(
    steps=STEPS,
    version=st.sampled_from([2, 3]),
    mode=st.sampled_from(["copy-on-write", "merge-on-read"]),
)
def test_replaying_a_changelog_gives_the_table(steps, version, mode):
    """Net or not, what came minus what went is the difference between the two snapshots."""
    catalog = lh.load_catalog("memory://changelog")
    name = f"raw.t{next(NUMBERS)}"
    table = catalog.create_table(
        name, SCHEMA, format_version=version, properties={"write.delete.mode": mode}
    )
    start = table.append(data(0, 1, 1)).snapshot_id
    before = Counter(ids(table.scan().to_arrow()))
    for verb, *arguments in steps:
        if verb == "append":
            table.append(data(*arguments[0]))
        elif verb == "delete":
            table.delete(f"id = {arguments[0]}")
        elif verb == "overwrite":
            table.overwrite(data(*arguments[1]), where=f"id = {arguments[0]}")
        else:
            table.compact(lh.CompactionOptions(min_input_files=2))
    after = Counter(ids(table.scan().to_arrow()))
    for net in (False, True):
        log = table.changelog(start, net=net).to_arrow()
        replayed = Counter(before)
        came, went = (
            Counter(number for _, kind, number in changes(log) if kind == one)
            for one in ("INSERT", "DELETE")
        )
        replayed.update(came)
        replayed.subtract(went)
        assert +replayed == +after
        assert min(replayed.values()) >= 0
        if net:
            assert not came.keys() & went.keys()
    catalog.drop_table(name, purge=True)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "x": st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")]),
            "s": st.none()
            | st.fixed_dictionaries(
                {"l": st.none() | st.lists(st.sampled_from([None, 1, 2]), max_size=2)}
            ),
            "m": st.none() | st.dictionaries(st.sampled_from("ab"), st.integers(0, 1), max_size=2),
        }
    ),
    max_size=12,
)


@given(rows=ROWS)
def test_equal_rows_have_equal_codes(rows):
    kinds = pa.schema(
        [
            ("x", pa.float64()),
            ("s", pa.struct([("l", pa.list_(pa.int32()))])),
            ("m", pa.map_(pa.string(), pa.int64())),
        ]
    )
    table = pa.concat_tables(
        [pa.Table.from_pylist([row], schema=kinds) for row in rows] or [kinds.empty_table()]
    )
    texts = [repr(row) for row in table.to_pylist()]
    codes = row_codes(table).tolist()
    assert [codes.index(code) for code in codes] == [texts.index(text) for text in texts]


def test_time_travel_by_the_run_that_wrote(table):
    stamp = RunStamp("b6c1-run", "raw/t")
    table.append(data(1), summary=stamp.summary())
    table.append(data(2), summary=stamp.summary())
    table.append(data(3), summary=RunStamp("other-b6c1-run", "raw/t").summary())
    assert ids(table.scan(run="b6c1-run").to_arrow()) == [1, 2]
    assert ids(table.scan(run="other-b6c1-run").to_arrow()) == [1, 2, 3]
    with pytest.raises(lh.NoSuchSnapshotError, match="b6c1-ru"):
        table.scan(run="b6c1-ru")
    with pytest.raises(lh.InvalidInputError, match="not both"):
        table.scan(run="b6c1-run", as_of=0)
