"""Row delta: add data files and delete files (merge on read)."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.errors import InvalidInputError
from lakehouse.expressions.bound_filter import Bound
from lakehouse.spec.manifests.data_file import CONTENT_DATA, CONTENT_POSITION_DELETES, DataFile
from lakehouse.spec.metadata.snapshot import (
    OPERATION_APPEND,
    OPERATION_DELETE,
    OPERATION_OVERWRITE,
    Snapshot,
)
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.attempt.added_files import checked
from lakehouse.transaction.attempt.pending_operation import Attempt, Isolation, head_of
from lakehouse.transaction.attempt.uncommitted_files import Workspace
from lakehouse.transaction.conflicts.concurrent_changes import ConcurrentChange
from lakehouse.transaction.conflicts.conflict_rules import (
    Subject,
    Targets,
    no_equality_deletes,
    no_new_deletes,
    no_new_vectors,
    none_removed_below,
    still_live,
)
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
from lakehouse.transaction.operations.row_decisions.row_positions import Vectors, write_vectors


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
    rows: tuple[DecidedRows, ...] = ()
    keys: KeyTest | None = None

    def __post_init__(self) -> None:
        checked((*self.data_files, *self.delete_files), "The files to add")
        checked(self.removed_delete_files, "The delete files to remove")
        for file in (*self.delete_files, *self.removed_delete_files):
            if file.content == CONTENT_DATA:
                raise InvalidInputError(
                    f"{file.file_path} holds data, not deletes.", file=file.file_path
                )
        checked((one.data_file for one in self.rows), "The rows to delete")

    def prepare(self, workspace: Workspace, metadata: TableMetadata) -> None:
        """Write vectors and manifests against the base."""
        head = head_of(metadata, self.branch)
        vectors = self._vectors(workspace, metadata, head, self.rows)
        self._replacement(vectors).prepare(workspace, metadata, head)

    def apply(self, attempt: Attempt) -> None:
        """Validate, then one snapshot."""
        subject, changes = subject_of(attempt, "row delta"), concurrent_changes(attempt)
        level = isolation_of(attempt, self.isolation, lambda table: table.delete_isolation)
        serializable = level == "serializable"
        rows = rows_still_there(attempt, subject, self.rows, changes, serializable=serializable)
        if self.rows:
            self._check_replaced(attempt, subject, changes, rows)
        else:
            self._check_data_files(attempt, subject, changes)
        decided = self.conflict_filter is not None or bool(self.delete_files or self.rows)
        if decided and serializable:
            targets = (one.data_file for one in self.rows)
            files = (*self.delete_files, *self.data_files, *targets)
            scope = scope_of(attempt, self.conflict_filter, files)
            no_phantoms(attempt, subject, scope, changes, id(self), self.keys)
        vectors = self._vectors(attempt.workspace, attempt.metadata, attempt.head(), rows)
        if vectors.location is not None:
            attempt.vectors.add(vectors.location)
        replacement = self._replacement(vectors)
        changed = (*replacement.added, *replacement.removed)
        if not vectors.emptied and all(one.content == CONTENT_DATA for one in changed):
            operation = OPERATION_APPEND
        else:
            operation = OPERATION_OVERWRITE if self.data_files else OPERATION_DELETE
        replacement.apply(attempt, operation, subject, changes)

    def _check_replaced(
        self,
        attempt: Attempt,
        subject: Subject,
        changes: list[ConcurrentChange],
        moved: tuple[DecidedRows, ...],
    ) -> None:
        """What must not happen to the files of rows that go, beside what happens to the rows."""
        going = [one for one in self.rows if len(one.gone)]
        self._check_not_removed(attempt, frozenset(one.path for one in going))
        if self.data_files:
            # compaction may have moved them to another partition spec, where deletes reach them
            partitions = frozenset(
                one.data_file.partition_key for one in (*going, *moved) if len(one.gone)
            )
            no_equality_deletes(subject, partitions, changes)

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
        self._check_not_removed(attempt, referenced)
        still_live(subject, referenced, changes)
        none_removed_below(subject, unnamed, changes)
        # may hold rows deleted here: were they deleted meanwhile, they would come back
        if self.data_files:
            partitions = frozenset(one.partition_key for one in by_position)
            no_new_deletes(subject, Targets(referenced, partitions, bool(unnamed)), changes)
        else:
            no_new_vectors(subject, referenced, changes)

    @staticmethod
    def _check_not_removed(attempt: Attempt, paths: frozenset[str]) -> None:
        gone = sorted(paths & attempt.removed)
        if gone:
            raise InvalidInputError(
                f"Table {attempt.table}: this transaction removes {gone[0]}, of which it deletes "
                "rows as well.",
                table=attempt.table,
                file=gone[0],
            )

    def _vectors(
        self,
        workspace: Workspace,
        metadata: TableMetadata,
        head: Snapshot | None,
        rows: tuple[DecidedRows, ...],
    ) -> Vectors:
        """The vectors for a base; none where files delete the rows."""
        if self.delete_files:
            return Vectors()
        return write_vectors(workspace, metadata, head, rows, id(self))

    def _replacement(self, vectors: Vectors) -> Replacement:
        return Replacement(
            id(self),
            (*self.removed_delete_files, *vectors.superseded, *vectors.emptied),
            (*self.data_files, *self.delete_files, *vectors.files),
            edition=vectors.location,
        )
