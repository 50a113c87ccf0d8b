"""Changes of metadata alone: schemas, specs, sort orders, properties, statistics."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.errors import CommitConflictError, ValidationConflictError
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_requirements import (
    AssertTableUUID,
    Requirement,
    check_requirements,
)
from lakehouse.spec.metadata.table_updates import Update
from lakehouse.transaction.attempt.pending_operation import Attempt
from lakehouse.transaction.attempt.uncommitted_files import Workspace


@dataclass(frozen=True, eq=False)
class MetadataChange:
    """Updates computed from the base, valid while the requirements hold."""

    updates: tuple[Update, ...]
    requirements: tuple[Requirement, ...] = ()

    def prepare(self, workspace: Workspace, metadata: TableMetadata) -> None:
        """Nothing is written."""

    def apply(self, attempt: Attempt) -> None:
        """Check the requirements against the attempt's base, then apply."""
        try:
            check_requirements(attempt.base.metadata, self.requirements)
        except CommitConflictError as error:
            raise ValidationConflictError(
                f"Table {attempt.table}: the change was made for an older version of the table. "
                f"{error.message}",
                table=attempt.table,
            ) from error
        attempt.require(AssertTableUUID(attempt.base.metadata.table_uuid), *self.requirements)
        attempt.change(*self.updates)
