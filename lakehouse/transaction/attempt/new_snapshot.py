"""Makes the snapshot of an attempt: manifest list, summary, updates, and the requirement."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from lakehouse.spec.manifests.manifest_list import (
    ManifestFile,
    listed_manifests,
    write_manifest_list,
)
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import refuse_v1
from lakehouse.spec.metadata.table_requirements import AssertRefSnapshotId, AssertTableUUID
from lakehouse.spec.metadata.table_updates import AddSnapshot, SetSnapshotRef
from lakehouse.spec.table_properties import TableProperties
from lakehouse.transaction.attempt.merged_manifests import merge_manifests
from lakehouse.transaction.attempt.pending_operation import Attempt
from lakehouse.transaction.attempt.removed_files import has_live
from lakehouse.transaction.attempt.snapshot_summary import RETRIES, SummaryBuilder


def add_snapshot(
    attempt: Attempt,
    key: Hashable,
    operation: str,
    manifests: Sequence[ManifestFile],
    summary: SummaryBuilder,
    *,
    extra: Mapping[str, str] | None = None,
    merge: bool = True,
) -> Snapshot:
    """Add a snapshot with these manifests to the attempt, as the new head of its branch.

    Args:
        attempt: gets the updates.
        key: names the operation, so that every attempt makes the same snapshot id.
        operation: append, replace, overwrite or delete.
        manifests: new ones first, then those kept; emptied ones of earlier snapshots are left out.
        summary: counts.
        extra: further summary entries.
        merge: whether small manifests may be merged, as `commit.manifest-merge.enabled` says.

    Raises UnsupportedFeatureError: a v1 table, for which no manifest lists are written.
    """
    metadata, workspace = attempt.metadata, attempt.workspace
    refuse_v1(metadata)
    parent = attempt.head()
    snapshot_id = workspace.new_snapshot_id(metadata, key)
    kept = [one for one in manifests if one.added_snapshot_id == snapshot_id or has_live(one)]
    if merge and TableProperties(metadata.properties).manifest_merge_enabled:
        kept = merge_manifests(workspace, metadata, kept, snapshot_id=snapshot_id)
    sequence_number = metadata.next_sequence_number()
    first_row_id = metadata.next_row_id
    version = metadata.format_version
    numbers: dict[str, Any] = {
        "snapshot_id": snapshot_id,
        "sequence_number": sequence_number,
        "format_version": version,
        "first_row_id": first_row_id if version >= 3 else None,
    }
    listed, next_row_id = listed_manifests(kept, **numbers)
    data, _ = write_manifest_list(
        listed, parent_snapshot_id=None if parent is None else parent.snapshot_id, **numbers
    )
    entries = {
        "operation": operation,
        **summary.build(None if parent is None else parent.summary),
        **(extra or {}),
        **attempt.summary,
    }
    if attempt.retries:
        entries[RETRIES] = str(attempt.retries)
    location = workspace.list_location(metadata, snapshot_id)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=None if parent is None else parent.snapshot_id,
        sequence_number=sequence_number,
        timestamp_ms=metadata.next_timestamp_ms(
            attempt.now_ms, None if parent is None else parent.snapshot_id
        ),
        manifest_list=location,
        summary=entries,
        schema_id=metadata.current_schema_id,
        first_row_id=None if next_row_id is None else first_row_id,
        added_rows=None if next_row_id is None else next_row_id - (first_row_id or 0),
    )
    attempt.pending.append((location, data))
    workspace.remember_list(snapshot, data, listed)
    _move_branch(attempt, snapshot)
    attempt.snapshots.append(snapshot)
    return snapshot


def _move_branch(attempt: Attempt, snapshot: Snapshot) -> None:
    """Make the snapshot the branch's head, provided that the branch did not move."""
    base_ref = attempt.base.metadata.refs.get(attempt.branch)
    parent = snapshot.parent_snapshot_id
    if parent is not None and attempt.branch not in attempt.metadata.refs:
        attempt.require_snapshot(parent)
    attempt.require(
        AssertTableUUID(attempt.base.metadata.table_uuid),
        AssertRefSnapshotId(attempt.branch, None if base_ref is None else base_ref.snapshot_id),
    )
    retention = attempt.metadata.refs.get(attempt.branch)
    attempt.change(
        AddSnapshot(snapshot),
        SetSnapshotRef(
            attempt.branch,
            snapshot.snapshot_id,
            "branch",
            min_snapshots_to_keep=None if retention is None else retention.min_snapshots_to_keep,
            max_snapshot_age_ms=None if retention is None else retention.max_snapshot_age_ms,
            max_ref_age_ms=None if retention is None else retention.max_ref_age_ms,
        ),
    )
