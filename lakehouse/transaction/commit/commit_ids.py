"""Commits that their callers named, so that a step that is run again commits once."""

from __future__ import annotations

from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.attempt.pending_operation import head_of
from lakehouse.transaction.attempt.snapshot_summary import COMMIT_ID


def snapshots_of_commit(
    metadata: TableMetadata, branch: str, commit_id: str
) -> tuple[Snapshot, ...]:
    """The snapshots in the history of a branch that a commit of this name made, in order.

    What was rolled back, or written to another branch only, is not in the history and does not
    count; nor does what has expired. A branch that does not exist yet has the history of `main`,
    on which it would be built.

    Raises:
        InvalidInputError: `branch` is a tag.
    """
    wanted = commit_id.encode()
    if not any(wanted in part for part in metadata.snapshots.raw_parts()):
        return ()
    head = head_of(metadata, branch)
    line = metadata.ancestors(None if head is None else head.snapshot_id)
    return tuple(one for one in line if one.summary.get(COMMIT_ID) == commit_id)[::-1]
