"""Append: add data files. Conflicts with nothing, unless the files must be new to the table."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.errors import InvalidInputError
from lakehouse.spec.manifests.data_file import CONTENT_DATA, DataFile
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.snapshot import OPERATION_APPEND
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.attempt.added_files import checked, write_added
from lakehouse.transaction.attempt.new_snapshot import add_snapshot
from lakehouse.transaction.attempt.pending_operation import Attempt
from lakehouse.transaction.attempt.snapshot_summary import SummaryBuilder
from lakehouse.transaction.attempt.uncommitted_files import Workspace
from lakehouse.transaction.conflicts.conflict_rules import none_added_twice
from lakehouse.transaction.operations.file_replacement import concurrent_changes, subject_of


@dataclass(frozen=True, eq=False)
class Append:
    """Add data files; see Transaction.append."""

    files: tuple[DataFile, ...]
    must_be_new: bool = False

    def __post_init__(self) -> None:
        checked(self.files, "The files to append")
        wrong = next((file for file in self.files if file.content != CONTENT_DATA), None)
        if wrong is not None:
            raise InvalidInputError(
                f"{wrong.file_path} holds deletes, not data: use row_delta.", file=wrong.file_path
            )

    def prepare(self, workspace: Workspace, metadata: TableMetadata) -> None:
        """Write the manifests of the added files."""
        self._manifests(workspace, metadata)

    def manifests_to_post(
        self, workspace: Workspace, metadata: TableMetadata, snapshot_id: int
    ) -> list[ManifestFile]:
        """Write the manifests of the added files for whoever makes the snapshot."""
        return write_added(
            workspace, metadata, self.files, snapshot_id=snapshot_id, inherits_snapshot=True
        )

    def counts(self) -> SummaryBuilder:
        """What is added."""
        summary = SummaryBuilder()
        summary.add(self.files)
        return summary

    def apply(self, attempt: Attempt) -> None:
        """One snapshot with the new manifests before the old.

        Raises:
            ValidationConflictError: a file that must be new is in the table by now.
        """
        if self.must_be_new:
            none_added_twice(subject_of(attempt, "append"), self.files, concurrent_changes(attempt))
        added = self._manifests(attempt.workspace, attempt.metadata)
        add_snapshot(
            attempt,
            id(self),
            OPERATION_APPEND,
            [*added, *attempt.workspace.manifests(attempt.head())],
            self.counts(),
        )

    def _manifests(self, workspace: Workspace, metadata: TableMetadata) -> list[ManifestFile]:
        snapshot_id = workspace.new_snapshot_id(metadata, id(self))
        return workspace.once(
            ("added", id(self)),
            lambda: write_added(workspace, metadata, self.files, snapshot_id=snapshot_id),
        )
