from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse.errors import MaintenanceRefusedError, StorageError, ValidationConflictError
from lakehouse.maintenance.retention.snapshot_expiry import (
    ExpiryOptions,
    execute_expiry,
    expire_snapshots,
    plan_expiry,
)
from lakehouse.spec.metadata.table_updates import SetStatistics
from tests.integration.maintenance_support import (
    DAY,
    DyingCatalog,
    FailingCatalog,
    Killed,
    at,
    contents,
    events,
    lake_in_memory,
    rows,
)
from tests.table_census import take_census

ALL = ExpiryOptions(older_than_ms=1 << 62)


def history(lake, count=4):
    """Appends, each followed by an overwrite of half of it: files and manifests come and go."""
    table = events(lake)
    for number in range(count):
        table.append(rows(range(10 * number, 10 * number + 10), region=f"r{number % 2}"))
        table.delete(f"id = {10 * number}")
    return table


def census(table):
    return take_census(table.catalog, table.identifier)


def test_exactly_the_unreachable_files_go():
    table = history(lake_in_memory())
    before = census(table)
    expected = contents(table)
    plan = plan_expiry(table.catalog, table.identifier, ALL)
    result = execute_expiry(table.catalog, plan)
    after = census(table)
    assert len(table.refresh().metadata.snapshots) == 1
    assert (after.missing, after.unreachable) == (frozenset(), frozenset())
    assert contents(table) == expected
    assert set(after.present) <= set(before.present) | {
        key for key in after.present if key.endswith(".metadata.json")
    }
    assert sum(result.deleted_files.values()) > 0
    assert result.expired_snapshot_ids == plan.expired_snapshot_ids


def test_the_plan_names_what_the_execution_deletes():
    table = history(lake_in_memory())
    before = set(census(table).present)
    plan = plan_expiry(table.catalog, table.identifier, ALL)
    execute_expiry(table.catalog, plan)
    after = set(census(table).present)
    planned = {location for location in plan.unreachable.locations() if location in before}
    assert planned == {
        key for key in before - after if not key.endswith((".metadata.json", "version-hint.text"))
    }


def test_a_plan_changes_nothing():
    table = history(lake_in_memory())
    before = census(table)
    plan_expiry(table.catalog, table.identifier, ALL)
    assert census(table) == before


def test_an_empty_table_has_nothing_to_expire():
    table = events(lake_in_memory())
    result = expire_snapshots(table.catalog, table.identifier, ALL)
    assert (result.expired_snapshot_ids, dict(result.deleted_files)) == ((), {})


def test_tags_and_branches_keep_their_files():
    table = history(lake_in_memory())
    tagged = table.snapshots()[1].snapshot_id
    table.create_tag("q1", tagged)
    table.create_branch("audit")
    table.append(rows([999], region="us"), branch="audit")
    at_tag = contents(table, tagged)
    expire_snapshots(table.catalog, table.identifier, ALL)
    table.refresh()
    assert census(table).missing == frozenset()
    assert contents(table, tagged) == at_tag
    assert (999, "us", 999.0) in set(contents(table, table.metadata.ref("audit").snapshot_id))


def test_a_tag_made_after_the_plan_saves_its_snapshot():
    table = history(lake_in_memory())
    plan = plan_expiry(table.catalog, table.identifier, ALL)
    saved = plan.expired_snapshot_ids[0]
    rows_then = contents(table, saved)
    table.create_tag("rescue", saved)
    with pytest.raises(ValidationConflictError, match="rescue"):
        execute_expiry(table.catalog, plan)
    assert contents(table, saved) == rows_then
    result = expire_snapshots(table.catalog, table.identifier, ALL)
    assert saved not in result.expired_snapshot_ids
    assert contents(table.refresh(), saved) == rows_then
    assert census(table).missing == frozenset()


def test_a_rollback_made_after_the_plan_saves_its_snapshot():
    table = history(lake_in_memory())
    plan = plan_expiry(table.catalog, table.identifier, ALL)
    target = plan.expired_snapshot_ids[2]
    rows_then = contents(table, target)
    table.rollback_to(target)
    with pytest.raises(ValidationConflictError):
        execute_expiry(table.catalog, plan)
    assert contents(table) == rows_then
    assert census(table).missing == frozenset()


def test_an_append_made_after_the_plan_is_kept_and_does_not_hinder():
    table = history(lake_in_memory())
    plan = plan_expiry(table.catalog, table.identifier, ALL)
    table.append(rows([777]))
    expected = contents(table)
    execute_expiry(table.catalog, plan)
    assert contents(table) == expected
    assert census(table).missing == frozenset()


def test_an_unreadable_kept_manifest_aborts_and_the_next_run_finishes():
    table = history(lake_in_memory())
    plan = plan_expiry(table.catalog, table.identifier, ALL)
    before = set(census(table).present)
    current = table.metadata.current_snapshot().manifest_list
    broken = FailingCatalog(table.catalog, [current.rsplit("/", 1)[-1]], StorageError("EIO"))
    with pytest.raises(StorageError, match="EIO"):
        execute_expiry(broken, plan)
    assert before <= set(census(table).present)
    result = expire_snapshots(table.catalog, table.identifier, ALL)
    assert result.resumed == 1
    assert (census(table).missing, census(table).unreachable) == (frozenset(), frozenset())


def test_killed_at_every_step_and_run_again():
    """I13 and I7: killed at any step, the table reads the same and nothing reachable is gone.

    The next run leaves no garbage.
    """
    steps = 0
    while True:
        table = history(lake_in_memory(), count=2)
        expected = contents(table)
        dying = DyingCatalog(table.catalog, steps)
        try:
            execute_expiry(dying, plan_expiry(table.catalog, table.identifier, ALL))
        except Killed:
            killed = True
        else:
            killed = False
        found = census(table)
        assert found.missing == frozenset()
        assert contents(table) == expected
        expire_snapshots(table.catalog, table.identifier, ALL, environment=at(days=2))
        found = census(table)
        assert (found.missing, found.unreachable) == (frozenset(), frozenset()), (
            f"killed after {steps} steps"
        )
        assert not [key for key in found.present if "expiry-" in key]
        assert contents(table) == expected
        if not killed:
            assert steps > 10
            return
        steps += 1


def test_files_stay_when_asked_to():
    table = history(lake_in_memory())
    before = set(census(table).present)
    result = expire_snapshots(
        table.catalog, table.identifier, dataclasses.replace(ALL, remove_files=False)
    )
    assert dict(result.deleted_files) == {}
    assert before <= set(census(table).present)
    assert census(table).unreachable


def test_gc_disabled_refuses_to_remove_files():
    table = history(lake_in_memory())
    table.set_properties({"gc.enabled": "false"})
    with pytest.raises(MaintenanceRefusedError, match=r"gc\.enabled"):
        expire_snapshots(table.catalog, table.identifier, ALL)
    expire_snapshots(table.catalog, table.identifier, dataclasses.replace(ALL, remove_files=False))
    assert len(table.refresh().metadata.snapshots) == 1


def test_old_metadata_goes_only_when_asked_and_never_what_the_log_names():
    lake = lake_in_memory()
    table = events(lake, properties={"write.metadata.previous-versions-max": "2"})
    for number in range(6):
        table.append(rows([number]))
    environment = at(days=1)
    later = environment.now_ms()
    expire_snapshots(
        table.catalog, table.identifier, ExpiryOptions(older_than_ms=later), environment=environment
    )
    kept = {key for key in census(table).present if key.endswith(".metadata.json")}
    result = expire_snapshots(
        table.catalog,
        table.identifier,
        ExpiryOptions(older_than_ms=later, remove_old_metadata=True),
        environment=environment,
    )
    now = {key for key in census(table).present if key.endswith(".metadata.json")}
    assert result.deleted_files["metadata"] == len(kept - now) > 0
    assert len(now) == 3
    assert table.refresh().metadata_location in now


def test_statistics_files_of_expired_snapshots_go_and_others_stay():
    table = history(lake_in_memory(), count=2)
    storage = table.storage
    first, last = table.snapshots()[0].snapshot_id, table.metadata.current_snapshot_id
    transaction = table.transaction()
    for snapshot_id in (first, last):
        path = f"{table.location}/metadata/{snapshot_id}.stats"
        storage.write(path, b"puffin")
        record = {
            "snapshot-id": snapshot_id,
            "statistics-path": path,
            "file-size-in-bytes": 6,
            "file-footer-size-in-bytes": 3,
            "blob-metadata": [],
        }
        transaction.update([SetStatistics(record)])
    transaction.commit()
    expire_snapshots(table.catalog, table.identifier, ALL)
    assert not storage.exists(f"{table.location}/metadata/{first}.stats")
    assert storage.exists(f"{table.location}/metadata/{last}.stats")
    assert (census(table).missing, census(table).unreachable) == (frozenset(), frozenset())


STEPS = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(["main", "b1", "b2"])),
    st.tuples(st.just("overwrite"), st.sampled_from(["r0", "r1"])),
    st.tuples(st.just("delete"), st.integers(0, 30)),
    st.tuples(st.just("tag"), st.integers(0, 10)),
    st.tuples(st.just("branch"), st.integers(0, 10)),
    st.tuples(st.just("drop"), st.integers(0, 10)),
    st.tuples(st.just("rollback"), st.integers(0, 5)),
    st.tuples(st.just("expire"), st.integers(1, 4)),
    st.tuples(st.just("explicit"), st.integers(0, 10)),
)


class Machine:
    """A table under random operations, beside a record of what every snapshot held."""

    def __init__(self):
        self.table = events(lake_in_memory())
        self.seen = {}
        self.next_id = 0
        self.names = 0

    def pick(self, number):
        found = self.table.snapshots()
        return found[number % len(found)].snapshot_id if found else None

    def run(self, step, value):
        table = self.table
        snapshot_id = self.pick(value) if isinstance(value, int) else None
        if step == "append":
            if value != "main" and table.metadata.current_snapshot_id is None:
                return
            table.append(rows([self.next_id], region=f"r{self.next_id % 2}"), branch=value)
            self.next_id += 1
        elif step == "overwrite":
            table.overwrite(rows([1000 + self.next_id], region=value), where=f"region = '{value}'")
        elif step == "delete":
            table.delete(f"id = {value}")
        elif step in ("tag", "branch") and snapshot_id is not None:
            self.names += 1
            getattr(table, f"create_{step}")(f"{step}{self.names}", snapshot_id)
        elif step == "drop":
            names = sorted(name for name in table.metadata.refs if name != "main")
            if names:
                table.remove_ref(names[value % len(names)])
        elif step == "rollback" and table.metadata.current_snapshot_id is not None:
            line = list(table.metadata.ancestors(table.metadata.current_snapshot_id))
            table.rollback_to(line[value % len(line)].snapshot_id)
        elif step == "expire":
            self.expire(ExpiryOptions(older_than_ms=1 << 62, retain_last=value))
        elif step == "explicit" and snapshot_id is not None:
            if snapshot_id not in {ref.snapshot_id for ref in table.metadata.refs.values()}:
                self.expire(ExpiryOptions(older_than_ms=1, snapshot_ids=(snapshot_id,)))

    def expire(self, options):
        expire_snapshots(self.table.catalog, self.table.identifier, options)
        self.table.refresh()
        found = census(self.table)
        assert found.unreachable == frozenset()

    def check(self):
        table = self.table
        assert census(table).missing == frozenset()
        for snapshot in table.metadata.snapshots:
            now = contents(table, snapshot.snapshot_id)
            assert self.seen.setdefault(snapshot.snapshot_id, now) == now
        for ref in table.metadata.refs.values():
            assert table.metadata.snapshot_or_none(ref.snapshot_id) is not None


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(STEPS, min_size=4, max_size=14))
def test_census_over_random_histories(steps):
    """I6, I7, I16: after expiry exactly what is reachable is there; snapshots read as before."""
    machine = Machine()
    for step, value in steps:
        machine.run(step, value)
        machine.check()
    machine.expire(ExpiryOptions(older_than_ms=1 << 62))
    machine.check()


def test_dropping_a_ref_by_age_drops_its_snapshots():
    table = history(lake_in_memory(), count=2)
    old = table.snapshots()[0].snapshot_id
    table.create_tag("short", old, max_ref_age_ms=1000)
    result = expire_snapshots(
        table.catalog,
        table.identifier,
        ExpiryOptions(older_than_ms=1 << 62),
        environment=at(days=1),
    )
    assert result.expired_refs == ("short",)
    assert old in result.expired_snapshot_ids
    assert "short" not in table.refresh().metadata.refs


def test_defaults_leave_a_fresh_table_alone():
    table = history(lake_in_memory(), count=2)
    assert expire_snapshots(table.catalog, table.identifier).expired_snapshot_ids == ()
    assert (
        len(
            expire_snapshots(
                table.catalog, table.identifier, environment=at(days=6)
            ).expired_snapshot_ids
        )
        == 3
    )
    assert DAY
