"""What overwrite, delete, row_delta and rewrite_files share: remove and add files at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from lakehouse.expressions.bound_filter import Bound
from lakehouse.expressions.filter_binding import widen
from lakehouse.spec.manifests.data_file import CONTENT_DATA, DataFile
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.all_field_types import types_of
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.transaction.attempt.added_files import file_key, write_added
from lakehouse.transaction.attempt.matching_deletes import check_added_deletes, deletes_naming
from lakehouse.transaction.attempt.new_snapshot import add_snapshot
from lakehouse.transaction.attempt.pending_operation import Attempt, Isolation, head_of
from lakehouse.transaction.attempt.removed_files import Filtered, remove_files
from lakehouse.transaction.attempt.snapshot_summary import SummaryBuilder
from lakehouse.transaction.attempt.uncommitted_files import Workspace
from lakehouse.transaction.conflicts.concurrent_changes import ConcurrentChange, load_changes
from lakehouse.transaction.conflicts.conflict_rules import Scope, Subject, missing_files


@dataclass(frozen=True, slots=True)
class Replacement:
    """Files to remove and files to add in their place.

    Attributes:
        key: names the operation over all attempts.
        removed: data and delete files that must be live; deletes that are about removed data
            files alone go with them.
        added: data and delete files.
        data_sequence_number: for added data files; None: the commit's.
        edition: tells apart what is added, where that depends on the attempt.
    """

    key: Hashable
    removed: tuple[DataFile, ...]
    added: tuple[DataFile, ...]
    data_sequence_number: int | None = None
    edition: Hashable = None

    def manifests_of_added(
        self, workspace: Workspace, metadata: TableMetadata
    ) -> list[ManifestFile]:
        """Write the manifests of the added files, once an edition."""
        snapshot_id = workspace.new_snapshot_id(metadata, self.key)
        return workspace.once(
            ("added", self.key, self.edition),
            lambda: write_added(
                workspace,
                metadata,
                self.added,
                snapshot_id=snapshot_id,
                data_sequence_number=self.data_sequence_number,
            ),
        )

    def prepare(
        self, workspace: Workspace, metadata: TableMetadata, branch_head: Snapshot | None
    ) -> None:
        """Write the added files' manifests; rewrite those of the base that list removed files."""
        self.manifests_of_added(workspace, metadata)
        self._remove(workspace, metadata, branch_head)

    def apply(
        self,
        attempt: Attempt,
        operation: str,
        subject: Subject,
        changes: list[ConcurrentChange],
        extra: Mapping[str, str] | None = None,
    ) -> Snapshot:
        """Make the snapshot, with `extra` in its summary.

        Raises:
            ValidationConflictError: a removed file is not live.
            InvalidInputError: see `check_added_deletes`.
        """
        workspace = attempt.workspace
        kept = self._remove(workspace, attempt.metadata, attempt.head())
        if kept.missing:
            raise missing_files(subject, {path for path, _ in kept.missing}, changes)
        check_added_deletes(attempt, self.added, self.removed)
        attempt.removed.update(one.file_path for one in kept.found if one.content == CONTENT_DATA)
        summary = SummaryBuilder()
        summary.add(self.added)
        summary.remove(kept.found)
        added = self.manifests_of_added(workspace, attempt.metadata)
        return add_snapshot(
            attempt, self.key, operation, [*added, *kept.manifests], summary, extra=extra
        )

    def _remove(
        self, workspace: Workspace, metadata: TableMetadata, head: Snapshot | None
    ) -> Filtered:
        """The manifests without the removed files, and without deletes about these alone.

        A deletion vector must not outlive its data file (spec: Deletion Vectors).
        """
        manifests = workspace.manifests(head)
        data = [file for file in self.removed if file.content == CONTENT_DATA]
        listed = {file_key(file) for file in self.removed}
        about = deletes_naming(workspace, metadata, manifests, data) if data else []
        removed = (*self.removed, *(file for file in about if file_key(file) not in listed))
        snapshot_id = workspace.new_snapshot_id(metadata, self.key)
        return remove_files(workspace, metadata, manifests, removed, snapshot_id=snapshot_id)


def concurrent_changes(attempt: Attempt) -> list[ConcurrentChange]:
    """What others committed to the branch since the transaction's base."""
    return load_changes(attempt.workspace, attempt.base.metadata, attempt.since())


def subject_of(attempt: Attempt, action: str) -> Subject:
    """How errors name the operation."""
    head = head_of(attempt.started.metadata, attempt.branch)
    return Subject(attempt.table, action, None if head is None else head.snapshot_id)


def scope_of(attempt: Attempt, where: Bound | None, files: tuple[DataFile, ...]) -> Scope:
    """The rows an operation decided on: a filter, or else the partitions of its files."""
    metadata = attempt.metadata
    types = types_of(metadata)
    return Scope(
        None if where is None else widen(where, types),
        types,
        frozenset(file.partition_key for file in files),
    )


def isolation_of(
    attempt: Attempt, given: Isolation | None, read: Callable[[TableProperties], str]
) -> Isolation:
    """The isolation level asked for, else the table's."""
    level = given if given is not None else read(TableProperties(attempt.metadata.properties))
    return "snapshot" if level == "snapshot" else "serializable"
