"""Row delta: add data files and delete files (merge on read)."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.errors import InvalidInputError
from lakehouse.expressions.bound_filter import Bound
from lakehouse.spec.manifests.data_file import CONTENT_DATA, CONTENT_POSITION_DELETES, DataFile
from lakehouse.spec.metadata.snapshot import OPERATION_APPEND, OPERATION_DELETE, OPERATION_OVERWRITE
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.attempt.added_files import checked
from lakehouse.transaction.attempt.pending_operation import Attempt, Isolation, head_of
from lakehouse.transaction.attempt.uncommitted_files import Workspace
from lakehouse.transaction.conflicts.concurrent_changes import ConcurrentChange
from lakehouse.transaction.conflicts.conflict_rules import (
    Subject,
    Targets,
    no_added_data,
    no_new_deletes,
    no_new_vectors,
    none_removed_below,
    still_live,
)
from lakehouse.transaction.operations.file_replacement import (
    Replacement,
    concurrent_changes,
    isolation_of,
    scope_of,
    subject_of,
)


@dataclass(frozen=True, eq=False)
class RowDelta:
    """Add data and delete files; see Transaction.row_delta."""

    data_files: tuple[DataFile, ...]
    delete_files: tuple[DataFile, ...]
    removed_delete_files: tuple[DataFile, ...]
    branch: str
    conflict_filter: Bound | None = None
    isolation: Isolation | None = None
    referenced_files: frozenset[str] = frozenset()

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
        self._check_data_files(attempt, subject, changes)
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

    def _check_data_files(
        self, attempt: Attempt, subject: Subject, changes: list[ConcurrentChange]
    ) -> None:
        """The data files that the deletes are about must be there, with the deletes they had."""
        by_position = [one for one in self.delete_files if one.content == CONTENT_POSITION_DELETES]
        named = {one.named_file for one in by_position if one.named_file is not None}
        referenced = frozenset((*named, *self.referenced_files))
        unnamed = [
            one for one in by_position if one.named_file is None and not self.referenced_files
        ]
        gone = sorted(referenced & attempt.removed)
        if gone:
            raise InvalidInputError(
                f"Table {attempt.table}: this transaction removes {gone[0]}, of which it deletes "
                "rows as well.",
                table=attempt.table,
                file=gone[0],
            )
        still_live(subject, referenced, changes)
        none_removed_below(subject, unnamed, changes)
        # may hold rows deleted here: were they deleted meanwhile, they would come back
        if self.data_files:
            partitions = frozenset(one.partition_key for one in by_position)
            no_new_deletes(subject, Targets(referenced, partitions, bool(unnamed)), changes)
        else:
            no_new_vectors(subject, referenced, changes)

    def _replacement(self) -> Replacement:
        return Replacement(
            id(self), self.removed_delete_files, (*self.data_files, *self.delete_files)
        )
