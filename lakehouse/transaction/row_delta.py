"""Row delta: add data files and delete files (merge on read)."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.expressions import BooleanExpression

from lakehouse.errors import InvalidInputError
from lakehouse.spec.data_file import CONTENT_DATA, DataFile
from lakehouse.spec.snapshot import OPERATION_APPEND, OPERATION_DELETE, OPERATION_OVERWRITE
from lakehouse.spec.table_metadata import TableMetadata
from lakehouse.transaction.added import checked
from lakehouse.transaction.conflicts import no_added_data, no_new_vectors, still_live
from lakehouse.transaction.operation import Attempt, Isolation, head_of
from lakehouse.transaction.replace import (
    Replacement,
    concurrent_changes,
    isolation_of,
    scope_of,
    subject_of,
)
from lakehouse.transaction.workspace import Workspace


@dataclass(frozen=True, eq=False)
class RowDelta:
    """Add data and delete files; see Transaction.row_delta."""

    data_files: tuple[DataFile, ...]
    delete_files: tuple[DataFile, ...]
    removed_delete_files: tuple[DataFile, ...]
    branch: str
    conflict_filter: BooleanExpression | None = None
    isolation: Isolation | None = None

    def __post_init__(self) -> None:
        checked((*self.data_files, *self.delete_files), "The files to add")
        checked(self.removed_delete_files, "The delete files to remove")
        for file in (*self.delete_files, *self.removed_delete_files):
            if file.content == CONTENT_DATA:
                raise InvalidInputError(
                    f"{file.file_path} holds data, not deletes.", file=file.file_path
                )

    def prepare(self, workspace: Workspace, metadata: TableMetadata) -> None:
        """Write manifests against the base."""
        self._replacement().prepare(workspace, metadata, head_of(metadata, self.branch))

    def apply(self, attempt: Attempt) -> None:
        """Validate, then one snapshot."""
        subject, changes = subject_of(attempt, "row delta"), concurrent_changes(attempt)
        referenced = {
            file.referenced_data_file
            for file in self.delete_files
            if file.referenced_data_file is not None
        }
        still_live(subject, referenced, changes)
        no_new_vectors(subject, referenced, changes)
        decided = self.conflict_filter is not None or bool(self.delete_files)
        if (
            decided
            and isolation_of(attempt, self.isolation, lambda table: table.delete_isolation)
            == "serializable"
        ):
            no_added_data(
                subject,
                scope_of(attempt, self.conflict_filter, (*self.delete_files, *self.data_files)),
                changes,
            )
        if not self.delete_files and not self.removed_delete_files:
            operation = OPERATION_APPEND
        else:
            operation = OPERATION_OVERWRITE if self.data_files else OPERATION_DELETE
        self._replacement().apply(attempt, operation, subject, changes)

    def _replacement(self) -> Replacement:
        return Replacement(
            id(self), self.removed_delete_files, (*self.data_files, *self.delete_files)
        )
