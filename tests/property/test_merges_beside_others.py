"""A merge that others overtake ends as if it had come after them: as DuckDB's does on their rows.

One that changes nothing came before those who committed while it found that out.

Held fixed: merge on read, one merge that is overtaken. Varied: all that `test_merge_against_duckdb`
varies (keys, clauses, types, nulls, versions, partitions, deletes); what others commit while it
decides, and how often they do so again while it decides again; the isolation, where `snapshot`
promises the same: of what it has decided on again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import lakehouse as lh
from lakehouse.table.table import Table
from tests.property.test_merge_against_duckdb import (
    CLAUSES,
    KEYS,
    ROW,
    SOURCE,
    TARGET,
    a_world,
    unique_by,
)
from tests.table_census import take_census

EXAMPLES = int(os.environ.get("LAKEHOUSE_MERGE_EXAMPLES", "12"))
FILTERS = ["n > 0", "s = 'a'", "id IN (1, 2, 3)", "d IS NULL", "f >= 0"]
OF_ITS_KEYS = CLAUSES.map(
    lambda clauses: [clause for clause in clauses if clause.when != "not matched by source"]
).filter(bool)
ON = st.sampled_from([*sorted(KEYS), *["t.id = s.id", "t.id IS NOT DISTINCT FROM s.id"] * 4])
STEP = st.one_of(
    st.tuples(st.just("append"), st.lists(ROW, min_size=1, max_size=3)),
    st.tuples(st.just("delete"), st.sampled_from(FILTERS)),
    st.tuples(st.just("update"), st.sampled_from(FILTERS)),
    st.tuples(st.just("upsert"), st.lists(ROW, min_size=1, max_size=3)),
    st.tuples(st.just("compact"), st.just(None)),
)


class Overtaken(Table):
    """Whenever it has taken a version to decide on, others commit."""

    others: list
    looked: Callable[[], None]

    def write_request(self, version=None):
        self.looked()
        if self.others:
            self.others.pop(0)()
        return super().write_request(version)


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_a_merge_that_others_overtake(data):
    with tempfile.TemporaryDirectory() as folder:
        world = a_world(data.draw, folder, modes=["merge-on-read"])
        world.append(data.draw(st.lists(ROW, min_size=4, max_size=12)))
        on = data.draw(ON)
        clauses = data.draw(OF_ITS_KEYS)
        rows = unique_by(data.draw(st.lists(ROW, min_size=6, max_size=12)), KEYS[on])
        source = pa.Table.from_pylist(rows, schema=SOURCE)
        rounds = data.draw(st.lists(st.lists(STEP, min_size=1, max_size=2), min_size=1, max_size=3))
        isolation = data.draw(st.sampled_from(["serializable", "serializable", "snapshot"]))
        world.table.set_properties({"write.merge.isolation-level": isolation})

        def commit(steps):
            world.table.refresh()
            for kind, given_ in steps:
                act(world, kind, given_)

        table = world.table
        stale = Overtaken(table.catalog, table.version, table.environment)
        stale.others = [lambda steps=steps: commit(steps) for steps in rounds]
        text = f"MERGE INTO t USING s ON {on} {' '.join(clause.sql() for clause in clauses)}"
        found = []
        stale.looked = lambda: found.append(would_change(world, source, text))
        merge = stale.merge(source, on)
        for clause in clauses:
            merge = clause.add(merge)
        done = merge.execute()
        if isolation == "snapshot" and done.decided_again < len(rounds):
            return  # rows that others added meanwhile may stay as they are
        before = world.peer.execute("SELECT count(*) FROM t").fetchone()[0]
        changed = 0
        if done.snapshot is None:
            assert found[-1] == 0
        else:
            world.peer.register("s", source)
            changed = world.peer.execute(text).fetchone()[0]
        world.check()
        after = world.peer.execute("SELECT count(*) FROM t").fetchone()[0]
        assert done.rows_inserted - done.rows_deleted == after - before
        assert done.rows_inserted + done.rows_updated + done.rows_deleted == changed
        assert done.rows_decided_again <= done.decided_again * len(rows)
        assert bool(done.rows_decided_again) == bool(done.decided_again)
        event(f"{done.decided_again} times")
        census = take_census(table.catalog, table.identifier)
        assert census.missing == frozenset()
        assert [one for one in census.unreachable if "/data/" in one] == []


def would_change(world, source, text) -> int:
    """How many rows DuckDB's MERGE would change now."""
    world.peer.register("s", source)
    world.peer.execute("BEGIN")
    changed = world.peer.execute(text).fetchone()[0]
    world.peer.execute("ROLLBACK")
    return changed


def act(world, kind, given_) -> None:
    """What another writer does, to our table and to DuckDB's."""
    if kind == "append":
        world.append(given_)
    elif kind == "delete":
        world.delete(given_)
    elif kind == "compact":
        world.table.compact(lh.CompactionOptions(rewrite_all=True))
    elif kind == "update":
        world.table.update({"n": "7"}, given_)
        world.peer.execute(f"UPDATE t SET n = 7 WHERE {given_}")
    else:
        rows = pa.Table.from_pylist(unique_by(given_, ["id"]), schema=TARGET)
        world.table.upsert(rows, ["id"])
        world.peer.register("more", rows)
        listed = ", ".join(f"{name} = s.{name}" for name in TARGET.names)
        values = ", ".join(f"s.{name}" for name in TARGET.names)
        world.peer.execute(
            f"MERGE INTO t USING more AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET {listed} "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(TARGET.names)}) VALUES ({values})"
        )
