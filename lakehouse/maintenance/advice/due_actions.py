"""What to do with a table now: health x policy x time -> actions with reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lakehouse.maintenance.health.table_health import PartitionHealth, TableHealth
from lakehouse.maintenance.maintenance_policy import MaintenancePolicy
from lakehouse.maintenance.shown_plan import human_bytes


class ActionKind(StrEnum):
    """Kinds of maintenance that can be launched; an alert is for a person."""

    COMPACT = "compact"
    REWRITE_MANIFESTS = "rewrite-manifests"
    EXPIRE = "expire"
    REMOVE_ORPHANS = "remove-orphans"
    TUNE = "tune"
    ALERT = "alert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One maintenance action that is due, or an alert for a person.

    Attributes:
        amount: what it would remove: files, manifests, snapshots and refs, bytes; for an alert,
            what is above the quota.
        bytes: that it would read.
        reason: why, one line.
        partitions: where, the best first; empty: the whole table.
        due_ms: when the policy's hours allow it, the time of the decision at the earliest.
    """

    kind: ActionKind
    amount: int
    reason: str
    due_ms: int
    bytes: int = 0
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What compaction of one partition is expected to bring.

    Attributes:
        files: data and delete files fewer.
        bytes: read, and about as many written.
        reason: why it is worth it.
    """

    partition: PartitionHealth
    files: int
    bytes: int
    reason: str

    @property
    def files_per_byte(self) -> float:
        """Files removed per byte rewritten."""
        return self.files / max(1, self.bytes)


def decide(health: TableHealth, policy: MaintenancePolicy, now_ms: int) -> list[Action]:
    """What health and policy ask for: alerts, then actions to launch, or to launch in their hours.

    Args:
        health: measured with the same policy.
        policy: of the table.
        now_ms: milliseconds since the epoch.
    """
    partitions = () if health.unwritable else health.partitions
    return [
        *_alerts(health, policy, now_ms),
        *decide_compaction(partitions, policy, target_bytes=health.target_bytes, now_ms=now_ms),
        *_manifests(health, policy, now_ms),
        *decide_expiry(health.expirable_snapshots, policy, now_ms),
        *_orphans(health, policy, now_ms),
    ]


def due(actions: Iterable[Action], now_ms: int) -> list[Action]:
    """Those that may be launched now; alerts are not launched."""
    return [
        action
        for action in actions
        if action.kind is not ActionKind.ALERT and action.due_ms <= now_ms
    ]


def decide_compaction(
    partitions: Sequence[PartitionHealth],
    policy: MaintenancePolicy,
    *,
    target_bytes: int,
    now_ms: int,
) -> list[Action]:
    """One compaction if it saves `min_removable_files` or if deletes are to be applied, or None."""
    if not policy.enabled:
        return []
    gains = compaction_gains(partitions, policy, target_bytes=target_bytes, now_ms=now_ms)
    chosen = _affordable(gains, policy.budget_bytes)
    files = sum(gain.files for gain in chosen)
    deletes = sum(deletes_to_apply(gain.partition, policy) for gain in chosen)
    if files < policy.min_removable_files and not deletes:
        return []
    size = sum(gain.bytes for gain in chosen)
    reason = (
        f"{files:,} files fewer in {_count(len(chosen), 'partition')} for {human_bytes(size)} read"
    )
    if deletes:
        reason += f"; deletes to apply in {deletes:,}"
    if len(chosen) < len(gains):
        reason += (
            f"; {len(gains) - len(chosen):,} wait for another run (budget "
            f"{human_bytes(policy.budget_bytes)})"
        )
    return [
        Action(
            kind=ActionKind.COMPACT,
            amount=files,
            bytes=size,
            reason=reason,
            partitions=tuple(gain.partition.partition for gain in chosen),
            due_ms=policy.next_opening_ms(now_ms),
        )
    ]


def decide_expiry(expirable: int, policy: MaintenancePolicy, now_ms: int) -> list[Action]:
    """One expiry, or none; `expirable` counts snapshots and refs beyond retention."""
    if not policy.enabled or expirable < policy.min_expirable_snapshots:
        return []
    reason = f"{_count(expirable, 'snapshot or ref', 'snapshots and refs')} beyond retention"
    return [
        Action(
            kind=ActionKind.EXPIRE,
            amount=expirable,
            reason=reason,
            due_ms=policy.next_opening_ms(now_ms),
        )
    ]


def compaction_gains(
    partitions: Iterable[PartitionHealth],
    policy: MaintenancePolicy,
    *,
    target_bytes: int,
    now_ms: int,
) -> list[Gain]:
    """What compaction would bring, partition by partition, most files per byte first.

    Those that `rests` refuses are left out.
    """
    gains: list[Gain] = []
    for partition in partitions:
        if not rests(partition, policy, now_ms):
            continue
        if deletes_to_apply(partition, policy):
            files = _count(partition.delete_files, "delete file")
            reason = f"{partition.deleted_records:,} deleted rows in {files}"
            gains.append(
                Gain(
                    partition=partition,
                    files=partition.removable_files + partition.delete_files,
                    bytes=partition.bytes,
                    reason=reason,
                )
            )
        elif partition.removable_files and (
            partition.small_files >= policy.min_input_files or partition.small_bytes > target_bytes
        ):
            reason = (
                f"{_count(partition.small_files, 'small file')} become "
                f"{partition.small_files - partition.removable_files:,}"
            )
            gains.append(
                Gain(
                    partition=partition,
                    files=partition.removable_files,
                    bytes=partition.small_bytes,
                    reason=reason,
                )
            )
    return sorted(gains, key=lambda gain: (-gain.files_per_byte, gain.partition.partition))


def rests(partition: PartitionHealth, policy: MaintenancePolicy, now_ms: int) -> bool:
    """Whether a partition is quiet (nothing written for `skip_recent_ms`) or has waited enough.

    Enough is `wait_at_most_ms`.
    """
    if (
        partition.last_updated_ms is None
        or partition.last_updated_ms <= now_ms - policy.skip_recent_ms
    ):
        return True
    return (
        partition.waiting_since_ms is not None
        and partition.waiting_since_ms <= now_ms - policy.wait_at_most_ms
    )


def deletes_to_apply(partition: PartitionHealth, policy: MaintenancePolicy) -> bool:
    """Whether a partition's deleted rows reach the policy's share, or delete files are too many."""
    if (
        policy.delete_files_per_file
        and partition.delete_files > policy.delete_files_per_file * partition.data_files
    ):
        return True
    return (
        partition.deleted_records > 0
        and partition.deleted_records >= policy.delete_ratio * partition.records
    )


def _affordable(gains: Sequence[Gain], budget_bytes: int) -> list[Gain]:
    """The best that fit the budget.

    The very best is taken also when it does not fit: the plan then takes what does.
    """
    if not budget_bytes:
        return list(gains)
    chosen: list[Gain] = []
    left = budget_bytes
    for gain in gains:
        if gain.bytes <= left or not chosen:
            chosen.append(gain)
            left -= gain.bytes
    return chosen


def _manifests(health: TableHealth, policy: MaintenancePolicy, now_ms: int) -> list[Action]:
    if health.unwritable or not policy.enabled or health.manifests <= policy.max_manifests:
        return []
    reason = (
        f"{health.manifests:,} manifests, {policy.max_manifests:,} allowed, "
        f"{health.manifest_overlap:.1f} around a value"
    )
    return [
        Action(
            kind=ActionKind.REWRITE_MANIFESTS,
            amount=health.manifests - policy.max_manifests,
            bytes=health.manifest_bytes,
            reason=reason,
            due_ms=policy.next_opening_ms(now_ms),
        )
    ]


def _orphans(health: TableHealth, policy: MaintenancePolicy, now_ms: int) -> list[Action]:
    if (
        not policy.enabled
        or health.disk is None
        or health.disk.orphan_bytes <= policy.max_unreferenced_bytes
    ):
        return []
    size = health.disk.orphan_bytes
    reason = (
        f"{human_bytes(size)} that nothing names, {human_bytes(policy.max_unreferenced_bytes)} "
        "allowed"
    )
    return [
        Action(
            kind=ActionKind.REMOVE_ORPHANS,
            amount=size,
            reason=reason,
            due_ms=policy.next_opening_ms(now_ms),
        )
    ]


def _alerts(health: TableHealth, policy: MaintenancePolicy, now_ms: int) -> Iterator[Action]:
    quotas = (
        ("data files", health.data_files, policy.quota_files),
        ("bytes of data files", health.bytes, policy.quota_bytes),
        ("snapshots", health.snapshots, policy.quota_snapshots),
    )
    for what, count, quota in quotas:
        if quota and count > quota:
            reason = f"{count:,} {what}, the quota is {quota:,}"
            yield Action(kind=ActionKind.ALERT, amount=count - quota, reason=reason, due_ms=now_ms)


def _count(count: int, singular: str, many: str | None = None) -> str:
    return f"{count:,} {singular if count == 1 else many or singular + 's'}"
