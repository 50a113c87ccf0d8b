"""Operations that write manifests anew: regrouped by partition, or with columnar ones.

The files that they list are the same before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from lakehouse.manifests.manifest_reader import ManifestReader
from lakehouse.spec.manifests.columnar_manifest import checksum_of
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.transaction.manifest_changes import as_existing, has_live, live
from lakehouse.transaction.snapshot_producer import SnapshotPlan, SnapshotProducer
from lakehouse.transaction.table_change import Operation, Staged, head_of


@dataclass(frozen=True, eq=False)
class RewriteManifests(Operation):
    """Regroup live entries; see Transaction.rewrite_manifests."""

    branch: str
    target_size_bytes: int | None = None

    def prepare(self, producer: SnapshotProducer, metadata: TableMetadata) -> None:
        """Rewrite the base's manifests."""
        self._rewrite(producer, metadata, producer.manifests(head_of(metadata, self.branch)))

    def apply(self, staged: Staged) -> None:
        """One snapshot, or none when there is nothing to regroup.

        Manifests that others added since are kept beside; when others replaced one that was
        rewritten, all is done again.
        """
        producer, metadata = staged.producer, staged.metadata
        current = [manifest for manifest in producer.manifests(staged.head()) if has_live(manifest)]
        done: set[str] = producer.once(("rewritten paths", self), set)
        paths = {manifest.manifest_path for manifest in current}
        sources = (
            [manifest for manifest in current if manifest.manifest_path in done]
            if done and done <= paths
            else current
        )
        created, entries = self._rewrite(producer, metadata, sources)
        if not created:
            return
        rewritten = {
            manifest.manifest_path
            for manifest in sources
            if self._worth(metadata, sources, manifest)
        }
        kept = [manifest for manifest in current if manifest.manifest_path not in rewritten]
        extra = {
            "manifests-created": str(len(created)),
            "manifests-kept": str(len(kept)),
            "manifests-replaced": str(len(rewritten)),
            "entries-processed": str(entries),
        }
        plan = SnapshotPlan(operation=OPERATION_REPLACE, manifests=[*created, *kept], extra=extra)
        staged.add_snapshot(self, plan)

    def _rewrite(
        self, producer: SnapshotProducer, metadata: TableMetadata, manifests: Sequence[ManifestFile]
    ) -> tuple[list[ManifestFile], int]:
        """New manifests and how many entries they hold."""
        sources = [
            manifest
            for manifest in manifests
            if has_live(manifest) and self._worth(metadata, manifests, manifest)
        ]
        if not sources:
            return [], 0
        key = ("rewritten", self, tuple(sorted(manifest.manifest_path for manifest in sources)))

        def write() -> tuple[list[ManifestFile], int]:
            snapshot_id = producer.snapshot_id(self, metadata)
            done: set[str] = producer.once(("rewritten paths", self), set)
            done.clear()
            done.update(manifest.manifest_path for manifest in sources)
            groups: dict[tuple[int, int], list[ManifestFile]] = {}
            for manifest in sources:
                groups.setdefault((manifest.content, manifest.partition_spec_id), []).append(
                    manifest
                )
            created: list[ManifestFile] = []
            count = 0
            for (content, _), members in groups.items():
                entries = _by_partition(
                    [
                        as_existing(live(producer.entries(manifest, metadata)))
                        for manifest in members
                    ]
                )
                count += len(entries)
                created.extend(
                    producer.manifest_writer.write_split(
                        entries,
                        metadata,
                        content=content,
                        snapshot_id=snapshot_id,
                        target_bytes=self.target_size_bytes,
                    )
                )
            return created, count

        return producer.once(key, write)

    def _worth(
        self, metadata: TableMetadata, manifests: Sequence[ManifestFile], manifest: ManifestFile
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
            and (other.content, other.partition_spec_id)
            == (manifest.content, manifest.partition_spec_id)
        ]
        return (
            len(same) > 1
            or manifest.manifest_length > 2 * target
            or bool(manifest.deleted_files_count)
        )


def _by_partition(parts: Sequence[Entries]) -> Entries:
    entries = Entries.concat(parts)
    keys = [(f"partition.{field.field_id}", "ascending") for field in entries.spec.fields]
    order = pc.sort_indices(entries.table, sort_keys=[*keys, ("file_path", "ascending")])
    return Entries(entries.table.take(order), entries.spec)


@dataclass(frozen=True, eq=False)
class AddColumnarManifests(Operation):
    """Write columnar manifests where there are none; see Transaction.add_columnar_manifests."""

    branch: str

    def prepare(self, producer: SnapshotProducer, metadata: TableMetadata) -> None:
        """Write them for the base's manifests."""
        for manifest in producer.manifests(head_of(metadata, self.branch)):
            self._with_columnar(producer, metadata, manifest)

    def apply(self, staged: Staged) -> None:
        """One snapshot, or none when there is a columnar manifest for each."""
        producer, current = staged.producer, staged.producer.manifests(staged.head())
        listed = [self._with_columnar(producer, staged.metadata, manifest) for manifest in current]
        created = sum(new is not old for new, old in zip(listed, current, strict=True))
        if not created:
            return
        extra = {
            "manifests-created": str(created),
            "manifests-kept": str(len(current) - created),
            "manifests-replaced": str(created),
        }
        plan = SnapshotPlan(operation=OPERATION_REPLACE, manifests=listed, extra=extra, merge=False)
        staged.add_snapshot(self, plan)

    def _with_columnar(
        self, producer: SnapshotProducer, metadata: TableMetadata, manifest: ManifestFile
    ) -> ManifestFile:
        if checksum_of(manifest.manifest_path) is not None:
            return manifest
        key = ("columnar", self, manifest.manifest_path)

        def write() -> ManifestFile:
            entries = ManifestReader.of(producer.storage, metadata).written_entries(manifest)
            data = DEFAULT_CACHE.fetch(producer.storage, manifest.manifest_path)
            return producer.manifest_writer.write_again(manifest, data, entries, metadata)

        return producer.once(key, write)
