"""Expire: remove snapshots and refs from the metadata.

Deletes no files: that is maintenance, after the commit.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.errors import InvalidInputError, ValidationConflictError
from lakehouse.spec.metadata.snapshot_refs import MAIN_BRANCH
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_requirements import AssertRefSnapshotId, AssertTableUUID
from lakehouse.spec.metadata.table_updates import RemoveSnapshotRef, RemoveSnapshots
from lakehouse.transaction.attempt.pending_operation import Attempt
from lakehouse.transaction.attempt.uncommitted_files import Workspace


@dataclass(frozen=True, eq=False)
class Expire:
    """Remove snapshots and refs; see Transaction.expire."""

    snapshot_ids: tuple[int, ...]
    remove_refs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if MAIN_BRANCH in self.remove_refs:
            raise InvalidInputError("main cannot be removed.")

    def prepare(self, workspace: Workspace, metadata: TableMetadata) -> None:
        """Nothing is written."""

    def apply(self, attempt: Attempt) -> None:
        """Refuse while a ref names one of the snapshots; require that refs stay where they were.

        Snapshots and refs that somebody else removed meanwhile are passed over.
        """
        metadata, before = attempt.metadata, attempt.started.metadata
        gone = [name for name in self.remove_refs if name in metadata.refs]
        for name in gone:
            if before.refs.get(name) != metadata.refs[name]:
                raise ValidationConflictError(
                    f"Table {attempt.table}: ref {name!r} was moved since it was chosen for "
                    "expiry. Plan the expiry again.",
                    table=attempt.table,
                    ref=name,
                )
        wanted = set(self.snapshot_ids)
        for name, ref in metadata.refs.items():
            if name not in gone and ref.snapshot_id in wanted:
                raise ValidationConflictError(
                    f"Table {attempt.table}: {ref.type} {name!r} names snapshot "
                    f"{ref.snapshot_id}, which was to be expired. Plan the expiry again.",
                    table=attempt.table,
                    ref=name,
                    snapshot_id=ref.snapshot_id,
                )
        present = tuple(
            one for one in self.snapshot_ids if metadata.snapshot_or_none(one) is not None
        )
        if not gone and not present:
            return
        attempt.require(
            AssertTableUUID(attempt.base.metadata.table_uuid),
            *(
                AssertRefSnapshotId(name, ref.snapshot_id)
                for name, ref in sorted(attempt.base.metadata.refs.items())
            ),
        )
        if gone:
            attempt.change(*(RemoveSnapshotRef(name) for name in gone))
        if present:
            attempt.change(RemoveSnapshots(present))
