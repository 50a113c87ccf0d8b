"""Append: add data files. Conflicts with nothing, unless the files must be new to the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lakehouse.errors import InvalidInputError
from lakehouse.spec.manifests.data_file import CONTENT_DATA, DataFile
from lakehouse.spec.metadata.snapshot import OPERATION_APPEND
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.conflicts.concurrent_changes import concurrent_changes
from lakehouse.transaction.conflicts.conflict_rules import none_added_twice, subject_of
from lakehouse.transaction.manifest_changes import checked
from lakehouse.transaction.snapshot_producer import SnapshotPlan, SnapshotProducer
from lakehouse.transaction.snapshot_summary import SummaryBuilder
from lakehouse.transaction.table_change import Operation, Staged


@dataclass(frozen=True, eq=False)
class Append(Operation):
    """Add data files; see Transaction.append."""

    holds_on_every_base: ClassVar[bool] = True

    files: tuple[DataFile, ...]
    must_be_new: bool = False

    def __post_init__(self) -> None:
        checked(self.files, "The files to append")
        wrong = next((file for file in self.files if file.content != CONTENT_DATA), None)
        if wrong is not None:
            raise InvalidInputError(
                f"{wrong.file_path} holds deletes, not data: use row_delta.", file=wrong.file_path
            )

    def prepare(self, producer: SnapshotProducer, metadata: TableMetadata) -> None:
        """Write the manifests of the added files."""
        producer.manifests_of_added(self, metadata, self.files)

    def apply(self, staged: Staged) -> None:
        """One snapshot with the new manifests before the old.

        Raises:
            ValidationConflictError: a file that must be new is in the table by now.
        """
        if self.must_be_new:
            none_added_twice(subject_of(staged, "append"), self.files, concurrent_changes(staged))
        producer = staged.producer
        added = producer.manifests_of_added(self, staged.metadata, self.files)
        staged.add_snapshot(
            self,
            SnapshotPlan(
                operation=OPERATION_APPEND,
                manifests=[*added, *producer.manifests(staged.head())],
                summary=SummaryBuilder.of(added=self.files),
            ),
        )
