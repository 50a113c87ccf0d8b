"""Adds columnar twins: the same manifests, byte by byte, under names with their twins' seals."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.spec.manifests.columnar_manifest import seal_of
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.attempt.new_snapshot import add_snapshot
from lakehouse.transaction.attempt.pending_operation import Attempt, head_of
from lakehouse.transaction.attempt.snapshot_summary import SummaryBuilder
from lakehouse.transaction.attempt.uncommitted_files import Workspace


@dataclass(frozen=True, eq=False)
class AddTwins:
    """Give manifests without a columnar twin one; see Transaction.add_twins."""

    branch: str

    def prepare(self, workspace: Workspace, metadata: TableMetadata) -> None:
        """Write them for the base's manifests."""
        for one in workspace.manifests(head_of(metadata, self.branch)):
            self._with_twin(workspace, metadata, one)

    def apply(self, attempt: Attempt) -> None:
        """One snapshot, or none when every manifest has its twin."""
        workspace, current = attempt.workspace, attempt.workspace.manifests(attempt.head())
        listed = [self._with_twin(workspace, attempt.metadata, one) for one in current]
        created = sum(new is not old for new, old in zip(listed, current, strict=True))
        if not created:
            return
        extra = {
            "manifests-created": str(created),
            "manifests-kept": str(len(current) - created),
            "manifests-replaced": str(created),
        }
        summary = SummaryBuilder()
        add_snapshot(
            attempt, id(self), OPERATION_REPLACE, listed, summary, extra=extra, merge=False
        )

    def _with_twin(
        self, workspace: Workspace, metadata: TableMetadata, one: ManifestFile
    ) -> ManifestFile:
        if seal_of(one.manifest_path) is not None:
            return one
        key = ("twin", id(self), one.manifest_path)
        return workspace.once(key, lambda: workspace.add_twin(one, metadata))
