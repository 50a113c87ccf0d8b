"""Changes applied in batches leave the rows that SQLite has after applying them one by one.

Held fixed: one writer, a window that no change outlives. Varied: batch boundaries, the order within
and across batches (late older changes, deletes before late updates), equal sequences, batches that
come twice, keys of one and of two columns, sequences of one and of two columns and of several
types, nulls in values, rows from before without a sequence, columns that appear or widen, format
version, copy-on-write and merge-on-read, partitioning, compaction between.

`LAKEHOUSE_CHANGES_EXAMPLES=1000` makes the run long.
"""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
import tempfile

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import lakehouse as lh

EXAMPLES = int(os.environ.get("LAKEHOUSE_CHANGES_EXAMPLES", "20"))
CHANGE = st.fixed_dictionaries(
    {
        "id": st.integers(0, 4),
        "region": st.sampled_from(["a", "B", "ä"]),
        "major": st.integers(0, 6),
        "minor": st.integers(0, 2),
        "op": st.sampled_from(["c", "u", "u", "d", None]),
        "name": st.one_of(st.none(), st.text("xy'", max_size=2)),
        "amount": st.one_of(st.none(), st.integers(-9, 9), st.just(2**40)),
        "later": st.one_of(st.none(), st.booleans()),
    }
)
MAJORS = {
    "int": (pa.int64(), lambda n: n),
    "text": (pa.string(), lambda n: ["", "A", "a", "a0", "ab", "ä", "€"][n]),
    "time": (
        pa.timestamp("us", tz="UTC"),
        lambda n: dt.datetime(1969, 12, 31, 23, 59, 57, tzinfo=dt.UTC) + dt.timedelta(seconds=n),
    ),
}
TYPES = {
    "id": pa.int32(),
    "region": pa.string(),
    "minor": pa.int32(),
    "op": pa.string(),
    "name": pa.string(),
    "amount": pa.int64(),
    "later": pa.bool_(),
}
ROWS = ["name", "amount", "later"]


class Replay:
    """SQLite's table, in which deleted rows stay as marked ones."""

    def __init__(self, keys):
        self.keys = keys
        self.db = sqlite3.connect(":memory:")
        columns = "id, region, major, minor, name, amount, later, gone, change INTEGER"
        self.db.execute(f"CREATE TABLE t ({columns}, PRIMARY KEY ({', '.join(keys)}))")
        self.count = 0

    def rows_before(self, rows):
        for row in rows:
            self.db.execute(
                "INSERT OR REPLACE INTO t VALUES (?, ?, NULL, NULL, ?, ?, NULL, 0, 0)",
                [row["id"], row["region"], row["name"], row["amount"]],
            )

    def apply(self, change, sequence_by, names):
        self.count += 1
        gone = change["op"] == "d"
        if gone:  # a row that comes again later begins anew
            change, names = {**change, **dict.fromkeys(ROWS)}, list(dict.fromkeys([*names, *ROWS]))
        set_to = [f"{one} = excluded.{one}" for one in (*names, "gone", "change")]
        newer = ", ".join(f"excluded.{one}" for one in sequence_by)
        held = ", ".join(f"t.{one}" for one in sequence_by)
        self.db.execute(
            "INSERT INTO t VALUES "
            "(:id, :region, :major, :minor, :name, :amount, :later, :gone, :change) "
            f"ON CONFLICT ({', '.join(self.keys)}) DO UPDATE SET {', '.join(set_to)} "
            f"WHERE t.{sequence_by[0]} IS NULL OR ({newer}) >= ({held})",
            {**change, "gone": gone, "change": self.count},
        )

    def live(self):
        found = self.db.execute(
            "SELECT id, region, major, minor, name, amount, later, change FROM t WHERE NOT gone"
        )
        return {tuple(row[: len(self.keys)]): row for row in found}


def plain(row, major_of):
    at = row.get("major")
    return (
        row["id"],
        row["region"],
        None if at is None else major_of.index(at),
        row.get("minor"),
        row["name"],
        row["amount"],
        None if row.get("later") is None else int(row["later"]),
    )


def to_arrow(changes, kind, with_later):
    arrow_type, make = MAJORS[kind]
    columns = {
        name: pa.array([change[name] for change in changes], of)
        for name, of in TYPES.items()
        if name != "later" or with_later
    }
    columns["major"] = pa.array([make(change["major"]) for change in changes], arrow_type)
    if not any(abs(change["amount"] or 0) > 9 for change in changes):
        columns["amount"] = columns["amount"].cast(pa.int16())
    return pa.table(columns)


def a_table(draw, folder):
    version = draw(st.sampled_from([2, 3]))
    mode = draw(st.sampled_from(["merge-on-read", "copy-on-write"]))
    lake = lh.load_catalog(f"file://{folder}/warehouse")
    return lake.create_table(
        "raw.t",
        pa.schema(
            [
                ("id", pa.int64()),
                ("region", pa.string()),
                ("name", pa.string()),
                ("amount", pa.int32()),
            ]
        ),
        partition_by=draw(st.sampled_from([[], ["region"], ["bucket(3, id)"], ["name"]])),
        format_version=version,
        properties={f"write.{one}.mode": mode for one in ("delete", "update", "merge")},
    )


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_batches_leave_what_one_change_after_the_other_leaves(data):
    draw = data.draw
    keys = draw(st.sampled_from([["id"], ["id", "region"]]))
    kind = draw(st.sampled_from(sorted(MAJORS)))
    sequence_by = draw(st.sampled_from([["major"], ["major", "minor"]]))
    major_of = [MAJORS[kind][1](n) for n in range(7)]
    replay = Replay(keys)
    with tempfile.TemporaryDirectory() as folder:
        table = a_table(draw, folder)
        before = draw(st.lists(CHANGE, max_size=3, unique_by=lambda one: one["id"]))
        before = [{**one, "amount": min(one["amount"] or 0, 9)} for one in before]
        if before:
            names = ["id", "region", "name", "amount"]
            table.append(
                pa.table({n: pa.array([one[n] for one in before], TYPES[n]) for n in names})
            )
            replay.rows_before(before)
        batches = draw(st.lists(st.lists(CHANGE, max_size=8), min_size=1, max_size=5))
        seen: list[tuple[list[dict], bool, str]] = []
        for number, fresh in enumerate(batches):
            again = bool(seen) and draw(st.integers(0, 4)) == 0
            changes, with_later, name = (
                draw(st.sampled_from(seen)) if again else (fresh, draw(st.booleans()), f"b{number}")
            )
            named = draw(st.booleans())
            if named:
                seen += [] if again else [(changes, with_later, name)]
            if draw(st.integers(0, 4)) == 0:
                table.compact(lh.CompactionOptions(min_input_files=2))
            head = table.metadata.current_snapshot_id
            old = replay.live()
            had_later = "later" in table.schema().column_names
            done = table.apply_changes(
                to_arrow(changes, kind, with_later),
                keys,
                sequence_by,
                "op = 'd'",
                commit_id=name if named or again else None,
            )
            if again:
                assert done.replayed
                assert table.metadata.current_snapshot_id == head
                continue
            names = ["region", "major", "minor", "name", "amount", *(["later"] * with_later)]
            for change in sorted(changes, key=lambda one: [one[name] for name in sequence_by]):
                replay.apply(
                    {**change, "later": change["later"] if with_later else None}, sequence_by, names
                )
            new = replay.live()
            added = "later" in table.schema().column_names and not had_later
            assert ("later" in done.columns_changed) == added
            found = [plain(row, major_of) for row in table.scan().to_arrow().to_pylist()]
            assert sorted(map(repr, found)) == sorted(repr(row[:-1]) for row in new.values())
            common = old.keys() & new.keys()
            assert done.rows_inserted == len(new.keys() - old.keys())
            assert done.rows_deleted == len(old.keys() - new.keys())
            assert done.rows_updated == sum(old[one][-1] != new[one][-1] for one in common)
            assert done.changes == len(changes)
            assert done.superseded == len(changes) - len(
                {tuple(change[key] for key in keys) for change in changes}
            )
            acted = done.rows_inserted + done.rows_deleted + done.rows_updated
            absent = done.applied - acted
            assert 0 <= absent <= sum(change["op"] == "d" for change in changes)
