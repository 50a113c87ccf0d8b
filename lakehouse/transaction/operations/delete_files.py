"""Delete whole data files."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.expressions.bound_filter import Bound
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.snapshot import OPERATION_DELETE
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.attempt.added_files import checked
from lakehouse.transaction.attempt.pending_operation import Attempt, Isolation, head_of
from lakehouse.transaction.attempt.uncommitted_files import Workspace
from lakehouse.transaction.operations.file_replacement import (
    Replacement,
    concurrent_changes,
    isolation_of,
    scope_of,
    subject_of,
)
from lakehouse.transaction.operations.row_decisions.phantom_rows import no_phantoms


@dataclass(frozen=True, eq=False)
class DeleteFiles:
    """Remove data files; see Transaction.delete_files.

    Deletes added meanwhile only remove rows that go anyway.
    """

    removed: tuple[DataFile, ...]
    branch: str
    conflict_filter: Bound | None = None
    isolation: Isolation | None = None

    def __post_init__(self) -> None:
        checked(self.removed, "The files to delete")

    def prepare(self, workspace: Workspace, metadata: TableMetadata) -> None:
        """Rewrite manifests against the base."""
        self._replacement().prepare(workspace, metadata, head_of(metadata, self.branch))

    def apply(self, attempt: Attempt) -> None:
        """Validate, then one snapshot."""
        subject, changes = subject_of(attempt, "delete"), concurrent_changes(attempt)
        if (
            isolation_of(attempt, self.isolation, lambda table: table.delete_isolation)
            == "serializable"
        ):
            scope = scope_of(attempt, self.conflict_filter, self.removed)
            no_phantoms(attempt, subject, scope, changes, id(self))
        self._replacement().apply(attempt, OPERATION_DELETE, subject, changes)

    def _replacement(self) -> Replacement:
        return Replacement(id(self), self.removed, ())
