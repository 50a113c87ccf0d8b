"""Batches of a table's changes, applied one after another, make the table.

The oracle is a scan of the table at each position that is a whole snapshot.

Held fixed: one branch, one reader that has the columns of the beginning. Varied: histories of
appends, deletes, updates, overwrites, merges, compaction and evolution, partitioned or not, by
copy on write and merge on read; limits of files, rows and bytes; where a batch ends and is planned
again after more was committed; expiry of what was read.
"""

from __future__ import annotations

import tempfile
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakehouse as lh
from lakehouse.data.reading.changelog_rows import read_changelog
from lakehouse.errors import InvalidInputError, NoSuchSnapshotError, UnsupportedFeatureError
from lakehouse.scan import stream_plan
from lakehouse.scan.changelog_plan import ChangelogStep
from lakehouse.scan.planner import ScanRequest
from lakehouse.scan.stream_plan import Limits, Position, StreamPlan
from lakehouse.table.scan import read_request

SCHEMA = pa.schema({"id": pa.int64(), "x": pa.string()})
IDS = st.integers(0, 5)
COMMIT = st.one_of(
    st.tuples(st.just("append"), st.lists(IDS, min_size=1, max_size=4)),
    st.tuples(st.just("append"), st.lists(IDS, min_size=1, max_size=4)),
    st.tuples(st.just("delete"), IDS),
    st.tuples(st.just("update"), IDS),
    st.tuples(st.just("overwrite"), IDS),
    st.tuples(st.just("merge"), st.lists(IDS, min_size=1, max_size=3, unique=True)),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("evolve"), st.none()),
    st.tuples(st.just("read"), st.none()),
    st.tuples(st.just("expire"), st.none()),
)
LIMITS = st.builds(
    Limits,
    files=st.one_of(st.none(), st.integers(1, 3)),
    rows=st.one_of(st.none(), st.integers(1, 4)),
    bytes=st.one_of(st.none(), st.sampled_from([1, 1500])),
)
LAYOUT = st.sampled_from(["", "x", "bucket(2, id)"])
MODE = st.sampled_from(["copy-on-write", "merge-on-read"])


def rows(ids, mark):
    return pa.table({"id": ids, "x": [f"{mark}{one % 2}" for one in ids]}, schema=SCHEMA)


class History:
    def __init__(self, folder, by, mode):
        self.lake = lh.load_catalog(f"file://{folder}")
        modes = {f"write.{one}.mode": mode for one in ("delete", "update", "merge")}
        parts = [by] if by else []
        self.table = self.lake.create_table("raw.t", SCHEMA, partition_by=parts, properties=modes)
        self.schema = self.table.schema()
        self.count = 0

    def commit(self, kind, what):
        table, self.count = self.table.refresh(), self.count + 1
        mark = chr(ord("a") + self.count % 3)
        if kind == "append":
            table.append(rows(what, mark))
        elif kind == "delete":
            table.delete(f"id = {what}")
        elif kind == "update":
            table.update({"x": f"'{mark}'"}, f"id = {what}")
        elif kind == "overwrite":
            table.overwrite(rows([what, what], mark), f"id = {what}")
        elif kind == "merge":
            if len(set(table.scan().to_arrow()["id"].to_pylist())) == table.scan().count():
                table.upsert(rows(what, mark), ["id"])
        elif kind == "compact":
            table.compact(lh.CompactionOptions(rewrite_all=True))
        elif kind == "evolve":
            with table.update_schema() as schema:
                schema.add_column(f"new{self.count}", "int")
        elif table.current_snapshot() is not None:
            table.expire_snapshots(lh.ExpiryOptions(older_than_ms=2**50, retain_last=1))

    def plan(self, *, changes=True, **how):
        table = self.table.refresh()
        return StreamPlan("t", table.metadata, "main", table.storage, changes, **how)

    def changed(self, start, end, plan=None):
        """What the rows between two positions add to a multiset of rows."""
        plan = plan or self.plan()
        found = Counter()
        request = read_request(
            ScanRequest(metadata=plan.metadata, snapshot_id=end.snapshot_id), self.schema
        )
        for unit in plan.between(start, end):
            step = ChangelogStep(0, unit.snapshot, unit.before, unit.after)
            for row in read_changelog([step], request, plan.storage).to_pylist():
                sign = 1 if row["_change_type"] == "INSERT" else -1
                found[row["id"], row["x"]] += sign
        return found

    def rows(self, snapshot_id):
        if snapshot_id is None:
            return Counter()
        scan = self.table.refresh().scan(snapshot_id=snapshot_id, select=["id", "x"])
        return Counter((row["id"], row["x"]) for row in scan.to_arrow().to_pylist())


def same(one, other):
    return {row: n for row, n in one.items() if n} == {row: n for row, n in other.items() if n}


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(COMMIT, min_size=3, max_size=10), LIMITS, LAYOUT, MODE)
def test_changes_applied_batch_by_batch_make_the_table(commits, limits, by, mode):
    follow(commits, limits, by, mode)


def follow(commits, limits, by, mode):
    with tempfile.TemporaryDirectory() as folder:
        history = History(folder, by, mode)
        copy, position = Counter(), Position()
        for kind, what in [*commits, ("read", None)]:
            if kind == "expire" and position != history.plan().head():
                continue  # what was not read yet is not to expire
            if kind != "read":
                history.commit(kind, what)
                continue
            plan = history.plan()
            until = plan.head()
            while position != until:
                end = plan.admitted(position, limits, until)
                assert end != position
                assert Position.from_json(end.to_json()) == end
                changed = history.changed(position, end)
                assert same(changed, history.changed(position, end))
                copy.update(changed)
                position = end
            assert same(copy, history.rows(until.snapshot_id))


MUTANTS = {
    "compaction is taken for a change": (
        "OPERATION_REPLACE",
        "nothing",
        [("append", [1, 2]), ("append", [3, 4]), ("compact", None)],
    ),
    "rows that moved between files count as new": (
        "_by_partition",
        lambda step: stream_plan._each(step.snapshot, (), step.after),
        [("append", [1, 2]), ("delete", 1)],
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_is_found(name, monkeypatch, tmp_path):
    attribute, mistaken, commits = MUTANTS[name]
    steps = [*commits, ("read", None)]
    follow(steps, Limits(files=1), "", "copy-on-write")
    monkeypatch.setattr(stream_plan, attribute, mistaken)
    history = History(tmp_path, "", "copy-on-write")
    for kind, what in commits:
        history.commit(kind, what)
    plan = history.plan()
    shown = sum(unit.size()[1] for unit in plan.between(Position(), plan.head()))
    monkeypatch.undo()
    assert shown != sum(unit.size()[1] for unit in plan.between(Position(), plan.head()))


@pytest.fixture
def history(tmp_path):
    made = History(tmp_path, "", "copy-on-write")
    for number in range(3):
        made.commit("append", [number])
    return made


def test_limits_count_from_the_first_unit_and_admit_at_least_one(history):
    plan = history.plan()
    until = plan.head()
    ids = [snapshot.snapshot_id for snapshot in history.table.refresh().metadata.snapshots]
    assert plan.admitted(Position(), Limits(files=2), until) == Position(ids[1])
    assert plan.admitted(Position(), Limits(rows=1), until) == Position(ids[0])
    assert plan.admitted(Position(), Limits(bytes=1), until) == Position(ids[0])
    assert plan.admitted(Position(ids[0]), Limits(), until) == until
    assert plan.admitted(until, Limits(files=1), until) == until


def test_what_is_no_append_is_told_or_passed_over(history):
    history.commit("delete", 0)
    start = Position(history.table.refresh().metadata.snapshots[2].snapshot_id)
    plan = history.plan(changes=False)
    with pytest.raises(UnsupportedFeatureError, match=r"Read t.changes"):
        plan.admitted(start, Limits(files=1), plan.head())
    plan = history.plan(changes=False, skipped=frozenset({"delete", "overwrite"}))
    assert list(plan.between(start, plan.head())) == []


def test_what_expired_before_it_was_read_is_told_or_passed_over(history):
    start = Position(history.table.refresh().metadata.snapshots[0].snapshot_id)
    history.commit("expire", None)
    history.commit("append", [9])
    plan = history.plan()
    with pytest.raises(NoSuchSnapshotError, match=r"has expired.*failOnDataLoss"):
        plan.admitted(start, Limits(files=1), plan.head())
    tolerant = history.plan(tolerates_loss=True)
    assert history.changed(start, tolerant.head(), tolerant) == Counter({(9, "c1"): 1})
    # from the beginning all rows are read, those of the oldest snapshot at once
    assert same(history.changed(Position(), plan.head()), history.rows(plan.head().snapshot_id))
    first = plan.admitted(Position(), Limits(files=1), plan.head())
    assert first.whole
    assert same(
        history.changed(Position(), first) + history.changed(first, plan.head()),
        history.rows(plan.head().snapshot_id),
    )


def test_what_was_rolled_back_after_it_was_read_is_told_or_passed_over(history):
    snapshots = history.table.refresh().metadata.snapshots
    start = Position(snapshots[2].snapshot_id)
    history.table.rollback_to(snapshots[1].snapshot_id)
    history.commit("append", [9])
    plan = history.plan()
    with pytest.raises(NoSuchSnapshotError, match="no longer part of branch main"):
        list(plan.between(start, plan.head()))
    tolerant = history.plan(tolerates_loss=True)
    assert sum(history.changed(start, tolerant.head(), tolerant).values()) == 1


@pytest.mark.parametrize("text", ["", "7", "{}x", '{"a": 1}', '{"snapshot_id": "x"}'])
def test_another_source_s_position_is_refused(text):
    with pytest.raises(InvalidInputError, match="checkpoint is of another source"):
        Position.from_json(text)
