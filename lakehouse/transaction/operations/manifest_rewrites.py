"""Operations that rewrite manifests: regrouped by partition, or with columnar ones.

The files that they list are the same before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow.compute as pc

from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from lakehouse.manifests.manifest_reader import ManifestReader
from lakehouse.manifests.manifest_writer import as_existing, has_live, live
from lakehouse.spec.manifests.columnar_manifest import checksum_of
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.transaction.snapshot_producer import (
    NewSnapshot,
    SnapshotManifests,
    SnapshotPlan,
    SnapshotProducer,
)
from lakehouse.transaction.table_change import Attempt, Operation, Step


@dataclass(frozen=True, eq=False)
class RewriteManifests(Operation):
    """Regroup live entries; see Transaction.rewrite_manifests."""

    target_size_bytes: int | None = None

    @property
    def plan(self) -> SnapshotPlan:
        """The whole snapshot, or none when there is nothing to regroup."""
        return _Regrouped(self.target_size_bytes)

    def step(self, attempt: Attempt) -> Step:  # noqa: ARG002 - holds on every base
        """The same on every base."""
        return Step(snapshot=self.plan)


@dataclass(frozen=True, eq=False)
class AddColumnarManifests(Operation):
    """Write columnar manifests where there are none; see Transaction.add_columnar_manifests."""

    @property
    def plan(self) -> SnapshotPlan:
        """The whole snapshot, or none when there is a columnar manifest for each."""
        return _WithColumnar()

    def step(self, attempt: Attempt) -> Step:  # noqa: ARG002 - holds on every base
        """The same on every base."""
        return Step(snapshot=self.plan)


@dataclass(frozen=True)
class _Regrouped(SnapshotPlan):
    """Manifests whose live entries are regrouped by partition.

    Manifests that others added since an earlier attempt are kept beside; when others replaced one
    that was rewritten, all is done again.
    """

    target_size_bytes: int | None
    operation = OPERATION_REPLACE

    def write(self, producer: SnapshotProducer, new: NewSnapshot) -> SnapshotManifests | None:
        every = producer.manifests(new.parent)
        current = [manifest for manifest in every if has_live(manifest)]
        paths = frozenset(manifest.manifest_path for manifest in current)
        earlier = producer.regrouped.get(new.number, paths)
        done = min(earlier, paths)
        same = [manifest for manifest in current if manifest.manifest_path in done]
        sources = [manifest for manifest in same if self._worth(new.metadata, same, manifest)]
        if not sources and len(current) == len(every):
            return None
        rewritten = frozenset(manifest.manifest_path for manifest in sources)
        producer.regrouped[new.number] = rewritten
        created, entries = producer.once(
            ("rewritten", new.number, rewritten),
            partial(self._write, producer, new, sources),
        )
        kept = [manifest for manifest in current if manifest.manifest_path not in rewritten]
        extra = {
            "manifests-created": str(len(created)),
            "manifests-kept": str(len(kept)),
            "manifests-replaced": str(len(rewritten) + len(every) - len(current)),
            "entries-processed": str(entries),
        }
        return SnapshotManifests(manifests=[*created, *kept], extra=extra)

    def _write(
        self, producer: SnapshotProducer, new: NewSnapshot, sources: Sequence[ManifestFile]
    ) -> tuple[list[ManifestFile], int]:
        """New manifests and how many entries they hold."""
        groups: dict[tuple[int, int], list[ManifestFile]] = {}
        for manifest in sources:
            groups.setdefault((manifest.content, manifest.partition_spec_id), []).append(manifest)
        created: list[ManifestFile] = []
        count = 0
        for (content, _), members in groups.items():
            entries = _by_partition(
                [
                    as_existing(live(producer.entries(manifest, new.metadata)))
                    for manifest in members
                ]
            )
            count += len(entries)
            created += producer.manifest_writer.write_split(
                entries,
                new.metadata,
                content=content,
                snapshot_id=new.snapshot_id,
                target_bytes=self.target_size_bytes,
            )
        return created, count

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


@dataclass(frozen=True)
class _WithColumnar(SnapshotPlan):
    """All manifests, with a columnar one for each."""

    operation = OPERATION_REPLACE

    def write(self, producer: SnapshotProducer, new: NewSnapshot) -> SnapshotManifests | None:
        current = producer.manifests(new.parent)
        listed = [
            producer.once(
                ("columnar", manifest.manifest_path),
                partial(_with_columnar, producer, new.metadata, manifest),
            )
            for manifest in current
        ]
        created = sum(new is not old for new, old in zip(listed, current, strict=True))
        if not created:
            return None
        extra = {
            "manifests-created": str(created),
            "manifests-kept": str(len(current) - created),
            "manifests-replaced": str(created),
        }
        return SnapshotManifests(manifests=listed, extra=extra, merge=False)


def _with_columnar(
    producer: SnapshotProducer, metadata: TableMetadata, manifest: ManifestFile
) -> ManifestFile:
    if checksum_of(manifest.manifest_path) is not None:
        return manifest
    entries = ManifestReader.of(producer.storage, metadata).written_entries(manifest)
    data = DEFAULT_CACHE.fetch(producer.storage, manifest.manifest_path)
    return producer.manifest_writer.write_again(manifest, data, entries, metadata)
