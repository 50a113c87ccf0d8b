"""Batches of streams are in the history of a branch once, whatever happens beside them.

The oracle is a list of batches for each snapshot, kept by brute force: a snapshot has what its
parent had, and its own.

Held fixed: one table, appends of one row for each batch. Varied: two streams and two branches,
batches that come again (the last one, or all from an earlier one on), appends of others,
compaction, rollback, expiry down to the newest snapshot, by us and by pyiceberg, which takes the
parent from what is left, drops of a branch.
"""

from __future__ import annotations

import tempfile
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

import lakehouse as lh
from lakehouse.spec.metadata import commit_names
from lakehouse.spec.metadata.commit_names import StreamBatch, head_of
from lakehouse.spec.metadata.table_updates import SetProperties

SCHEMA = pa.schema({"batch": pa.string()})
OTHERS = "others"
STEP = st.one_of(
    st.tuples(st.just("batch"), st.sampled_from(["q1", "q2"]), st.sampled_from(["main", "b"])),
    st.tuples(st.just("again"), st.sampled_from(["q1", "q2"]), st.sampled_from(["main", "b"])),
    st.tuples(st.just("again"), st.sampled_from(["q1", "q2"]), st.sampled_from(["main", "b"])),
    st.tuples(st.just("append"), st.just(""), st.sampled_from(["main", "b"])),
    st.tuples(st.just("compact"), st.just(""), st.just("main")),
    st.tuples(st.just("rollback"), st.integers(1, 3), st.just("main")),
    st.tuples(st.just("expire"), st.integers(1, 2), st.just("main")),
    st.tuples(st.just("pyiceberg expires"), st.integers(1, 2), st.just("main")),
    st.tuples(st.just("drop"), st.just(""), st.just("b")),
)


ON_MAIN = [("batch", "q1", "main"), ("append", "", "main"), ("expire", 1, "main")]


class Oracle:
    """What each snapshot has."""

    def __init__(self, lake, folder):
        self.lake, self.folder = lake, folder
        self.rows = {None: Counter()}
        self.last = {}
        self.own = set()
        self.first = set()

    def table(self):
        return self.lake.load_table("raw.t")

    def head(self, table, branch):
        ref = table.metadata.refs.get(branch) or table.metadata.refs.get("main")
        return None if ref is None else ref.snapshot_id

    def append(self, branch, row, commit_id=None):
        table = self.table()
        head = self.head(table, branch)
        table.append(pa.table({"batch": [row]}, schema=SCHEMA), branch=branch, commit_id=commit_id)
        made = self.head(self.table(), branch)
        assert (made != head) == (commit_id is None or not self.rows[head][row])
        if made != head:
            self.rows[made] = self.rows[head] + Counter([row])
            self.own.add((branch, row))
            if head is None:
                self.first.add(made)

    def is_known(self, branch, row):
        """Whether what was rolled back can be told from what expired: something older is left.

        A batch that was written to main before a branch left it is known on the branch as long as
        the place where it left is there.
        """
        table = self.table()
        head = self.head(table, branch)
        if head is None:
            return True
        if self.rows[head][row]:
            left = list(table.metadata.ancestors(head))
            main = list(table.metadata.ancestors(self.head(table, "main")))
            names = {one.summary.get("lakehouse.commit-id") for one in left}
            return (branch, row) in self.own or f"stream:{row}" in names or left[-1] in main
        query, _, number = row.partition(":")
        noted = StreamBatch(query, int(number)).marked(table.metadata, branch)
        oldest = list(table.metadata.ancestors(head))[-1]
        if oldest.snapshot_id in self.first or noted is None or noted[0] < int(number):
            return True
        return noted[2] >= oldest.sequence_number

    def check(self):
        table = self.table()
        for branch in table.metadata.refs:
            found = table.scan(ref=branch).to_arrow()["batch"].to_pylist()
            assert Counter(found) == self.rows[self.head(table, branch)]


@settings(max_examples=25)
@example([*ON_MAIN, ("again", "q1", "b")])
@example([*ON_MAIN, ("append", "", "b"), ("again", "q1", "b")])
@example([*ON_MAIN[:2], ("pyiceberg expires", 1, "main"), ("again", "q1", "main")])
@given(st.lists(STEP, min_size=4, max_size=18))
def test_a_batch_is_in_the_history_of_a_branch_once(steps):
    run(steps)


def head_alone(metadata, branch):
    head = head_of(metadata, branch)
    return iter([] if head is None else [head])


MUTANTS = {
    "the mark is not written": (
        StreamBatch,
        "mark",
        lambda self, snapshot, branch: SetProperties({}),
        [("batch", "q1", "main"), ("append", "", "main"), ("expire", 1, "main")],
    ),
    "the mark is looked for at the head alone": (
        commit_names,
        "_history",
        head_alone,
        [
            ("append", "", "main"),
            ("batch", "q1", "main"),
            ("rollback", 1, "main"),
            ("append", "", "main"),
        ],
    ),
    "the mark is believed after a rollback": (
        commit_names,
        "_oldest_with",
        lambda metadata, branch, batch: (
            tuple(metadata.snapshots)[-1:] if batch.marked(metadata, branch) else ()
        ),
        [("append", "", "main"), ("batch", "q1", "main"), ("rollback", 1, "main")],
    ),
    "branches share a mark": (
        StreamBatch,
        "property_name",
        lambda self, branch: f"lakehouse.stream.{self.query_id}",
        [
            ("append", "", "main"),
            ("append", "", "b"),
            ("batch", "q1", "main"),
            *[("append", "", "main")] * 2,
            ("expire", 1, "main"),
            ("again", "q1", "b"),
        ],
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_is_found(name, monkeypatch):
    place, attribute, mistaken, before = MUTANTS[name]
    steps = [*before, ("again", "q1", "main")]
    run(steps)
    monkeypatch.setattr(place, attribute, mistaken)
    with pytest.raises(AssertionError):
        run(steps)


def run(steps):
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{folder}/catalog.db"
        oracle = Oracle(lh.load_catalog(uri, warehouse=f"file://{folder}/warehouse"), folder)
        oracle.lake.create_table("raw.t", SCHEMA)
        for kind, what, branch in steps:
            step(oracle, kind, what, branch)
            oracle.check()


def step(oracle, kind, what, branch):
    table = oracle.table()
    if kind in ("batch", "again"):
        last = oracle.last.get(what, -1)
        number = max(last, 0) if kind == "again" else last + 1
        row = f"{what}:{number}"
        if oracle.is_known(branch, row):
            oracle.last[what] = number
            oracle.append(branch, row, StreamBatch(what, number))
    elif kind == "append":
        oracle.append(branch, OTHERS)
    elif kind == "drop" and branch in table.metadata.refs:
        table.transaction().remove_ref(branch).commit()
    elif table.current_snapshot() is None:
        return
    elif kind == "compact":
        head = oracle.head(table, "main")
        table.compact(lh.CompactionOptions(min_input_files=2))
        made = oracle.head(oracle.table(), "main")
        oracle.rows[made] = oracle.rows[head]
    elif kind == "rollback":
        older = list(table.metadata.ancestors(oracle.head(table, "main")))[: what + 1]
        table.rollback_to(older[-1].snapshot_id)
    elif kind == "pyiceberg expires":
        kept = list(table.metadata.ancestors(oracle.head(table, "main")))[:what]
        kept_ids = {one.snapshot_id for one in kept} | {
            ref.snapshot_id for ref in table.metadata.refs.values()
        }
        gone = [one.snapshot_id for one in table.snapshots() if one.snapshot_id not in kept_ids]
        if gone:
            theirs = SqlCatalog("lakehouse", uri=f"sqlite:///{oracle.folder}/catalog.db")
            expiry = theirs.load_table("raw.t").maintenance.expire_snapshots()
            expiry.by_ids(gone).commit()
    elif kind == "expire":
        table.expire_snapshots(lh.ExpiryOptions(older_than_ms=2**50, retain_last=what))
