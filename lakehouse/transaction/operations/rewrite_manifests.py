"""Rewrites manifests: the same live entries by partition, in manifests of the target size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.transaction.attempt.added_files import write_split
from lakehouse.transaction.attempt.new_snapshot import add_snapshot
from lakehouse.transaction.attempt.pending_operation import Attempt, head_of
from lakehouse.transaction.attempt.removed_files import as_existing, has_live, live
from lakehouse.transaction.attempt.snapshot_summary import SummaryBuilder
from lakehouse.transaction.attempt.uncommitted_files import Workspace


@dataclass(frozen=True, eq=False)
class RewriteManifests:
    """Regroup live entries; see Transaction.rewrite_manifests."""

    branch: str
    target_size_bytes: int | None = None

    def prepare(self, workspace: Workspace, metadata: TableMetadata) -> None:
        """Rewrite the base's manifests."""
        self._rewrite(workspace, metadata, workspace.manifests(head_of(metadata, self.branch)))

    def apply(self, attempt: Attempt) -> None:
        """One snapshot, or none when there is nothing to regroup.

        Manifests that others added since are kept beside; when others replaced one that was
        rewritten, all is done again.
        """
        workspace, metadata = attempt.workspace, attempt.metadata
        current = [one for one in workspace.manifests(attempt.head()) if has_live(one)]
        done: set[str] = workspace.once(("rewritten paths", id(self)), set)
        paths = {one.manifest_path for one in current}
        sources = (
            [one for one in current if one.manifest_path in done]
            if done and done <= paths
            else current
        )
        created, entries = self._rewrite(workspace, metadata, sources)
        if not created:
            return
        rewritten = {one.manifest_path for one in sources if self._worth(metadata, sources, one)}
        kept = [one for one in current if one.manifest_path not in rewritten]
        extra = {
            "manifests-created": str(len(created)),
            "manifests-kept": str(len(kept)),
            "manifests-replaced": str(len(rewritten)),
            "entries-processed": str(entries),
        }
        add_snapshot(
            attempt, id(self), OPERATION_REPLACE, [*created, *kept], SummaryBuilder(), extra=extra
        )

    def _rewrite(
        self, workspace: Workspace, metadata: TableMetadata, manifests: Sequence[ManifestFile]
    ) -> tuple[list[ManifestFile], int]:
        """New manifests and how many entries they hold."""
        sources = [
            one for one in manifests if has_live(one) and self._worth(metadata, manifests, one)
        ]
        if not sources:
            return [], 0
        key = ("rewritten", id(self), tuple(sorted(one.manifest_path for one in sources)))

        def write() -> tuple[list[ManifestFile], int]:
            snapshot_id = workspace.new_snapshot_id(metadata, id(self))
            done: set[str] = workspace.once(("rewritten paths", id(self)), set)
            done.clear()
            done.update(one.manifest_path for one in sources)
            groups: dict[tuple[int, int], list[ManifestFile]] = {}
            for one in sources:
                groups.setdefault((one.content, one.partition_spec_id), []).append(one)
            created: list[ManifestFile] = []
            count = 0
            for (content, _), members in groups.items():
                entries = _by_partition(
                    [as_existing(live(workspace.entries(one, metadata))) for one in members]
                )
                count += len(entries)
                created.extend(
                    write_split(
                        workspace,
                        metadata,
                        entries,
                        content=content,
                        snapshot_id=snapshot_id,
                        target_bytes=self.target_size_bytes,
                    )
                )
            return created, count

        return workspace.once(key, write)

    def _worth(
        self, metadata: TableMetadata, manifests: Sequence[ManifestFile], one: ManifestFile
    ) -> bool:
        """Whether rewriting helps: too large, small and not alone, or with deleted entries."""
        target = (
            self.target_size_bytes
            or TableProperties(metadata.properties).manifest_target_size_bytes
        )
        same = [
            other
            for other in manifests
            if has_live(other)
            and (other.content, other.partition_spec_id) == (one.content, one.partition_spec_id)
        ]
        return len(same) > 1 or one.manifest_length > 2 * target or bool(one.deleted_files_count)


def _by_partition(parts: Sequence[Entries]) -> Entries:
    entries = Entries.concat(parts)
    keys = [(f"partition.{field.field_id}", "ascending") for field in entries.spec.fields]
    order = pc.sort_indices(entries.table, sort_keys=[*keys, ("file_path", "ascending")])
    return Entries(entries.table.take(order), entries.spec)
