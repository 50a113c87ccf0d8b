from __future__ import annotations

from datetime import UTC, datetime

from lakehouse.maintenance.advice.due_actions import ActionKind, decide, due
from lakehouse.maintenance.health.disk_use import DiskUse
from lakehouse.maintenance.maintenance_policy import MaintenancePolicy
from tests.unit.maintenance.healths import MB, partition, table

NOON = int(datetime(2026, 6, 1, 12, 30, tzinfo=UTC).timestamp() * 1000)
HOUR = 3_600_000
POLICY = MaintenancePolicy()


def kinds(health, policy=POLICY, now_ms=NOON):
    return [one.kind for one in decide(health, policy, now_ms)]


def test_a_healthy_table_is_left_alone():
    assert decide(table([partition("a", [120 * MB] * 50)]), POLICY, NOON) == []
    assert decide(table(), POLICY, NOON) == []


def test_compaction_is_launched_from_so_many_files_on():
    assert kinds(table([partition("a", [MB] * 8)])) == []
    (action,) = decide(table([partition("a", [MB] * 9)]), POLICY, NOON)
    assert (action.kind, action.amount, action.bytes, action.partitions) == (
        ActionKind.COMPACT,
        8,
        9 * MB,
        ("a",),
    )
    assert action.reason == "8 files fewer in 1 partition for 9.0 MiB read"
    assert due([action], NOON) == [action]


def test_partitions_with_too_few_small_files_do_not_count():
    scattered = [partition(f"p{number}", [MB] * 4) for number in range(50)]
    assert kinds(table(scattered)) == []
    assert kinds(table(scattered), MaintenancePolicy(min_input_files=4)) == [ActionKind.COMPACT]


def test_the_best_partition_comes_first_and_the_budget_bounds_the_rest():
    partitions = [
        partition("large", [80 * MB] * 20),
        partition("small", [MB] * 20),
        partition("middle", [10 * MB] * 20),
    ]
    (action,) = decide(table(partitions), POLICY, NOON)
    assert action.partitions == ("small", "middle", "large")
    (action,) = decide(table(partitions), MaintenancePolicy(budget_bytes=300 * MB), NOON)
    assert (action.partitions, action.bytes) == (("small", "middle"), 220 * MB)
    assert "1 wait for another run (budget 300.0 MiB)" in action.reason
    (action,) = decide(table(partitions[:1]), MaintenancePolicy(budget_bytes=100 * MB), NOON)
    assert action.partitions == ("large",)


def test_deletes_are_applied_whatever_the_number_of_files():
    (action,) = decide(table([partition("a", [120 * MB], deletes=1, deleted=40)]), POLICY, NOON)
    assert "deletes to apply in 1" in action.reason
    assert kinds(table([partition("a", [120 * MB], deletes=1, deleted=20)])) == []


def test_recent_partitions_wait():
    hot = [partition("a", [MB] * 20, updated=NOON - HOUR)]
    assert kinds(table(hot), MaintenancePolicy(skip_recent_ms=2 * HOUR)) == []
    assert kinds(table(hot), MaintenancePolicy(skip_recent_ms=HOUR // 2)) == [ActionKind.COMPACT]
    assert kinds(table([partition("a", [MB] * 20, updated=NOON - 5 * 60_000 + 1)])) == [], (
        "five minutes by default"
    )
    assert kinds(table([partition("a", [MB] * 20, updated=NOON - 5 * 60_000)])) == [
        ActionKind.COMPACT
    ]


def test_a_partition_that_is_written_all_the_time_waits_an_hour_at_most():
    def hot(since):
        return table([partition("a", [MB] * 20, updated=NOON - 1, waiting_since=since)])

    assert kinds(hot(NOON - HOUR + 1)) == kinds(hot(None)) == []
    assert kinds(hot(NOON - HOUR)) == kinds(hot(0)) == [ActionKind.COMPACT]
    assert kinds(hot(NOON - HOUR), MaintenancePolicy(wait_at_most_ms=2 * HOUR)) == []


def test_outside_its_hours_an_action_waits_and_says_until_when():
    night = MaintenancePolicy(hours=frozenset({22, 23}))
    (action,) = decide(table([partition("a", [MB] * 20)]), night, NOON)
    assert due([action], NOON) == []
    assert datetime.fromtimestamp(action.due_ms / 1000, UTC) == datetime(2026, 6, 1, 22, tzinfo=UTC)
    assert due([action], action.due_ms) == [action]


def test_expiry_manifests_and_orphans():
    health = table(
        expirable_snapshots=3,
        manifests=101,
        disk=DiskUse(unreferenced_bytes=5 << 30, orphan_bytes=2 << 30),
    )
    found = {one.kind: one for one in decide(health, POLICY, NOON)}
    assert set(found) == {
        ActionKind.EXPIRE,
        ActionKind.REWRITE_MANIFESTS,
        ActionKind.REMOVE_ORPHANS,
    }
    assert (found[ActionKind.EXPIRE].amount, found[ActionKind.REWRITE_MANIFESTS].amount) == (3, 1)
    assert "2.0 GiB that nothing names, 1.0 GiB allowed" in found[ActionKind.REMOVE_ORPHANS].reason
    calm = MaintenancePolicy(
        min_expirable_snapshots=4, max_manifests=101, max_unreferenced_bytes=2 << 30
    )
    assert decide(health, calm, NOON) == []
    assert kinds(table(disk=None)) == []


def test_quotas_alert_also_where_maintenance_is_off():
    policy = MaintenancePolicy(enabled=False, quota_files=10, quota_bytes=5 * MB, quota_snapshots=2)
    health = table([partition("a", [MB] * 20)], snapshots=2, expirable_snapshots=9, manifests=999)
    found = decide(health, policy, NOON)
    assert [(one.kind, one.amount) for one in found] == [
        (ActionKind.ALERT, 10),
        (ActionKind.ALERT, 15 * MB),
    ]
    assert found[0].reason == "20 data files, the quota is 10"
    assert due(found, NOON) == []
