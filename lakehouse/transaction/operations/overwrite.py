"""Overwrite: replace files by others in one snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.expressions.bound_filter import Bound
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.snapshot import OPERATION_DELETE, OPERATION_OVERWRITE
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.attempt.added_files import checked
from lakehouse.transaction.attempt.pending_operation import Attempt, Isolation, head_of
from lakehouse.transaction.attempt.uncommitted_files import Workspace
from lakehouse.transaction.conflicts.conflict_rules import Targets, no_new_deletes
from lakehouse.transaction.conflicts.decided_rows import DecidedRows
from lakehouse.transaction.conflicts.key_test import KeyTest
from lakehouse.transaction.operations.file_replacement import (
    Replacement,
    concurrent_changes,
    isolation_of,
    scope_of,
    subject_of,
)
from lakehouse.transaction.operations.row_decisions.moved_rows import rows_still_there
from lakehouse.transaction.operations.row_decisions.phantom_rows import no_phantoms


@dataclass(frozen=True, eq=False)
class Overwrite:
    """Replace `removed` by `added`; see Transaction.overwrite."""

    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    branch: str
    conflict_filter: Bound | None = None
    isolation: Isolation | None = None
    keys: KeyTest | None = None
    rows: tuple[DecidedRows, ...] = ()

    def __post_init__(self) -> None:
        checked(self.added, "The files to add")
        checked(self.removed, "The files to remove")

    def prepare(self, workspace: Workspace, metadata: TableMetadata) -> None:
        """Write manifests against the base."""
        self._replacement().prepare(workspace, metadata, head_of(metadata, self.branch))

    def apply(self, attempt: Attempt) -> None:
        """Validate, then one snapshot."""
        subject, changes = subject_of(attempt, "overwrite"), concurrent_changes(attempt)
        if (
            isolation_of(attempt, self.isolation, lambda table: table.update_isolation)
            == "serializable"
        ):
            scope = scope_of(attempt, self.conflict_filter, (*self.removed, *self.added))
            no_phantoms(attempt, subject, scope, changes, id(self), self.keys)
            rows_still_there(attempt, subject, self.rows, changes, serializable=True)
        no_new_deletes(subject, Targets.of(self.removed), changes)
        only_removes = self.removed and not self.added
        operation = OPERATION_DELETE if only_removes else OPERATION_OVERWRITE
        self._replacement().apply(attempt, operation, subject, changes)

    def _replacement(self) -> Replacement:
        return Replacement(id(self), self.removed, self.added)
