"""Changes of metadata alone: schemas, specs, properties, statistics, snapshots that expired.

And what has to hold still outside the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakehouse.errors import CommitConflictError, InvalidInputError, ValidationConflictError
from lakehouse.spec.metadata.metadata_draft import apply_updates
from lakehouse.spec.metadata.snapshot import MAIN_BRANCH
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRef,
    RemoveSnapshots,
    Requirement,
    Update,
    check_requirements,
)
from lakehouse.transaction.table_change import Attempt, Operation, Step


@dataclass(frozen=True, eq=False)
class MetadataChange(Operation):
    """Updates of the version decided on, valid while the requirements hold."""

    updates: tuple[Update, ...]
    requirements: tuple[Requirement, ...] = ()

    def applied_to(self, metadata: TableMetadata) -> TableMetadata:
        """The metadata that new data files are written for."""
        return apply_updates(metadata, self.updates, now_ms=metadata.last_updated_ms)

    def step(self, attempt: Attempt) -> Step:
        """Check the requirements against the newest version, then update."""
        try:
            check_requirements(attempt.base.metadata, self.requirements)
        except CommitConflictError as error:
            raise ValidationConflictError(
                f"Table {attempt.table}: the change was made for an older version of the table. "
                f"{error.message}",
                table=attempt.table,
            ) from error
        same_table = AssertTableUUID(attempt.base.metadata.table_uuid)
        return Step(requirements=(same_table, *self.requirements), updates=self.updates)


@dataclass(frozen=True, eq=False)
class Assumption(Operation):
    """Something outside the table that has to hold still; see Transaction.assume."""

    check: Callable[[], None]

    def step(self, attempt: Attempt) -> Step:
        """Check again when others have committed to the table since the caller decided."""
        if attempt.base.metadata_location != attempt.decided_on.metadata_location:
            self.check()
        return Step()


@dataclass(frozen=True, eq=False)
class Expire(Operation):
    """Remove snapshots and refs; see Transaction.expire.

    Deletes no files: that is maintenance, after the commit.
    """

    snapshot_ids: tuple[int, ...]
    remove_refs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if MAIN_BRANCH in self.remove_refs:
            raise InvalidInputError("main cannot be removed.")

    def step(self, attempt: Attempt) -> Step:
        """Refuse while a ref names one of the snapshots; require that refs stay where they were.

        Snapshots and refs that somebody else removed meanwhile are passed over.
        """
        metadata, before = attempt.metadata, attempt.decided_on.metadata
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
            id_ for id_ in self.snapshot_ids if metadata.snapshot_or_none(id_) is not None
        )
        if not gone and not present:
            return Step()
        base = attempt.base.metadata
        refs = (
            AssertRefSnapshotId(name, ref.snapshot_id) for name, ref in sorted(base.refs.items())
        )
        updates: list[Update] = [RemoveSnapshotRef(name) for name in gone]
        if present:
            updates.append(RemoveSnapshots(present))
        return Step(requirements=(AssertTableUUID(base.table_uuid), *refs), updates=updates)
