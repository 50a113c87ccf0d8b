"""Rewrite files: the same rows in other files (compaction)."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.errors import InvalidInputError
from lakehouse.spec.manifests.data_file import CONTENT_DATA, DataFile
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.attempt.added_files import checked
from lakehouse.transaction.attempt.pending_operation import Attempt, head_of
from lakehouse.transaction.attempt.uncommitted_files import Workspace
from lakehouse.transaction.conflicts.conflict_rules import (
    Targets,
    no_new_deletes,
    reaches_moved_rows_alike,
)
from lakehouse.transaction.operations.file_replacement import (
    Replacement,
    concurrent_changes,
    subject_of,
)


@dataclass(frozen=True, eq=False)
class RewriteFiles:
    """Replace files by others with the same rows; see Transaction.rewrite_files."""

    removed: tuple[DataFile, ...]
    added: tuple[DataFile, ...]
    branch: str
    data_sequence_number: int

    def __post_init__(self) -> None:
        checked(self.removed, "The files to rewrite")
        checked(self.added, "The rewritten files")
        if not self.removed:
            raise InvalidInputError("A rewrite needs files to replace; use append to add rows.")
        data_in = sum(file.record_count for file in self.removed if file.content == CONTENT_DATA)
        data_out = sum(file.record_count for file in self.added if file.content == CONTENT_DATA)
        if data_out > data_in:
            raise InvalidInputError(
                f"A rewrite cannot add rows: {data_in} went in, {data_out} came out."
            )

    def prepare(self, workspace: Workspace, metadata: TableMetadata) -> None:
        """Write manifests against the base."""
        self._replacement().prepare(workspace, metadata, head_of(metadata, self.branch))

    def apply(self, attempt: Attempt) -> None:
        """Validate, then one snapshot."""
        latest = attempt.metadata.next_sequence_number()
        if self.data_sequence_number > latest:
            raise InvalidInputError(
                f"Table {attempt.table}: rewritten files cannot have sequence number "
                f"{self.data_sequence_number}, above {latest}, the commit's: later deletes would "
                "not reach them.",
                table=attempt.table,
            )
        subject, changes = subject_of(attempt, "rewrite"), concurrent_changes(attempt)
        data = tuple(file for file in self.removed if file.content == CONTENT_DATA)
        added = tuple(file for file in self.added if file.content == CONTENT_DATA)
        alike = reaches_moved_rows_alike(data, added, self.data_sequence_number)
        no_new_deletes(subject, Targets.of(data), changes, still_reached=alike)
        self._replacement().apply(attempt, OPERATION_REPLACE, subject, changes)

    def _replacement(self) -> Replacement:
        return Replacement(id(self), self.removed, self.added, self.data_sequence_number)
