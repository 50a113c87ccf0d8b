"""Which snapshots and refs retention lets go. Pure: metadata and a time in, a decision out.

Spec, "Snapshot Retention Policy": a branch keeps its newest `min-snapshots-to-keep` ancestors and
those younger than `max-snapshot-age-ms`; a ref other than `main` whose snapshot is older than
`max-ref-age-ms` goes; what no kept ref reaches goes by age.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from lakehouse.errors import MaintenanceRefusedError, NoSuchSnapshotError
from lakehouse.spec.metadata.snapshot import Snapshot, SnapshotRef
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties

MAIN = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which snapshots and refs are kept, and which expire.

    Attributes:
        expired: snapshot id -> reason, in the order of the metadata.
        expired_refs: ref -> reason.
        kept: the other snapshots.
        cut_ms: snapshots committed before this time were old enough to go, unless their branch says
            otherwise.
    """

    expired: Mapping[int, str]
    expired_refs: Mapping[str, str]
    kept: frozenset[int]
    cut_ms: int


def decide_retention(
    metadata: TableMetadata,
    now_ms: int,
    *,
    older_than_ms: int | None = None,
    retain_last: int | None = None,
    snapshot_ids: tuple[int, ...] = (),
) -> Retention:
    """Apply the table's, the refs' and the caller's retention to every snapshot.

    Args:
        metadata: the table.
        now_ms: the clock.
        older_than_ms: replaces the table's `history.expire.max-snapshot-age-ms` default; a branch's
            own setting still wins.
        retain_last: replaces `history.expire.min-snapshots-to-keep` likewise; at least 1.
        snapshot_ids: these go whatever their age.

    Raises:
        MaintenanceRefusedError: a snapshot of `snapshot_ids` is named by a ref that stays.
        NoSuchSnapshotError: a snapshot of `snapshot_ids` does not exist.
        InvalidPropertyError: a `history.expire.*` property is not a positive integer.
    """
    properties = TableProperties(metadata.properties)
    cut_ms = now_ms - properties.max_snapshot_age_ms if older_than_ms is None else older_than_ms
    keep_count = max(1, properties.min_snapshots_to_keep if retain_last is None else retain_last)

    expired_refs = _expired_refs(metadata, now_ms, properties.max_ref_age_ms)
    kept_refs = {name: ref for name, ref in metadata.refs.items() if name not in expired_refs}
    _check_explicit(metadata, kept_refs, snapshot_ids)

    kept: set[int] = set()
    referenced: set[int] = set()
    for ref in kept_refs.values():
        line = _line(metadata, ref)
        referenced.update(snapshot.snapshot_id for snapshot in line)
        kept.update(_kept_of(line, ref, now_ms, cut_ms, keep_count))

    expired: dict[int, str] = {}
    for snapshot in metadata.snapshots:
        snapshot_id = snapshot.snapshot_id
        if snapshot_id in snapshot_ids:
            expired[snapshot_id] = "requested"
        elif snapshot_id in kept:
            continue
        elif snapshot_id in referenced:
            expired[snapshot_id] = "older than every branch that holds it keeps"
        elif snapshot.timestamp_ms < cut_ms:
            expired[snapshot_id] = "reached by no ref and older than the cut"
    all_ids = frozenset(snapshot.snapshot_id for snapshot in metadata.snapshots)
    return Retention(
        expired=expired, expired_refs=expired_refs, kept=all_ids - expired.keys(), cut_ms=cut_ms
    )


def _line(metadata: TableMetadata, ref: SnapshotRef) -> list[Snapshot]:
    """What a ref holds, newest first: a branch its ancestors, a tag the one snapshot."""
    ancestors = metadata.ancestors(ref.snapshot_id)
    return list(islice(ancestors, 1) if ref.type == "tag" else ancestors)


def _kept_of(
    line: Sequence[Snapshot], ref: SnapshotRef, now_ms: int, cut_ms: int, keep_count: int
) -> Iterator[int]:
    if ref.max_snapshot_age_ms is not None:
        cut_ms = now_ms - ref.max_snapshot_age_ms
    if ref.min_snapshots_to_keep is not None:
        keep_count = max(1, ref.min_snapshots_to_keep)
    for position, ancestor in enumerate(line):
        if position >= keep_count and ancestor.timestamp_ms < cut_ms:
            return
        yield ancestor.snapshot_id


def _expired_refs(metadata: TableMetadata, now_ms: int, default_max_age_ms: int) -> dict[str, str]:
    expired: dict[str, str] = {}
    for name, ref in metadata.refs.items():
        if name == MAIN:
            continue
        snapshot = metadata.snapshot_or_none(ref.snapshot_id)
        max_age_ms = default_max_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
        if snapshot is None:
            expired[name] = f"names snapshot {ref.snapshot_id}, which does not exist"
        elif now_ms - snapshot.timestamp_ms > max_age_ms:
            expired[name] = f"{ref.type} older than its max-ref-age-ms of {max_age_ms}"
    return expired


def _check_explicit(
    metadata: TableMetadata, kept_refs: Mapping[str, SnapshotRef], snapshot_ids: tuple[int, ...]
) -> None:
    for snapshot_id in snapshot_ids:
        if metadata.snapshot_or_none(snapshot_id) is None:
            raise NoSuchSnapshotError(
                f"Cannot expire snapshot {snapshot_id}: the table has none of this id",
                snapshot_id=snapshot_id,
            )
        holders = sorted(name for name, ref in kept_refs.items() if ref.snapshot_id == snapshot_id)
        if holders:
            raise MaintenanceRefusedError(
                f"Cannot expire snapshot {snapshot_id}: {', '.join(holders)} names it; move or "
                "drop the ref first",
                snapshot_id=snapshot_id,
            )
