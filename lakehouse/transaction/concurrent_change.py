"""What another writer committed meanwhile, as the conflict rules look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow.compute as pc

from lakehouse.spec.manifests.data_file import STATUS_ADDED, STATUS_DELETED
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import (
    CONTENT_DATA_MANIFEST,
    CONTENT_DELETE_MANIFEST,
    ManifestFile,
)
from lakehouse.spec.metadata.snapshot import OPERATION_APPEND, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.snapshot_producer import SnapshotProducer


@dataclass(frozen=True)
class ConcurrentChange:
    """A snapshot committed since, and the entries that it added and removed, read on demand.

    Attributes:
        snapshot: the other writer's.
        producer: reads its manifests.
        metadata: of the table, with its schemas and specs.
    """

    snapshot: Snapshot
    producer: SnapshotProducer = field(repr=False, compare=False)
    metadata: TableMetadata = field(repr=False, compare=False)

    @property
    def added_data(self) -> list[Entries]:
        """Data files it added."""
        return _with_status(self._own(CONTENT_DATA_MANIFEST), STATUS_ADDED)

    @property
    def removed_data(self) -> list[Entries]:
        """Data files it removed."""
        return _with_status(self._own(CONTENT_DATA_MANIFEST), STATUS_DELETED)

    @property
    def added_deletes(self) -> list[Entries]:
        """Delete files that it added.

        An append has none (spec: Snapshots, operation), so rewrites need not read its manifests.
        """
        if self.snapshot.operation == OPERATION_APPEND:
            return []
        return _with_status(self._own(CONTENT_DELETE_MANIFEST), STATUS_ADDED)

    @property
    def removed_deletes(self) -> list[Entries]:
        """Delete files that it removed."""
        return _with_status(self._own(CONTENT_DELETE_MANIFEST), STATUS_DELETED)

    def _own(self, content: int) -> list[Entries]:
        """Entries of its own in manifests of one content, read once a transaction."""
        return self.producer.once(
            ("change", self.snapshot.snapshot_id, content), partial(self._read, content)
        )

    def _read(self, content: int) -> list[Entries]:
        parts: list[Entries] = []
        for manifest in self.producer.manifests(self.snapshot):
            own = (
                manifest.added_snapshot_id == self.snapshot.snapshot_id
                and manifest.content == content
            )
            if own and _changed(manifest):
                entries = self.producer.entries(manifest, self.metadata)
                parts.append(
                    entries.filter(
                        pc.equal(entries.table["snapshot_id"], self.snapshot.snapshot_id)
                    )
                )
        return parts


def load_changes(
    producer: SnapshotProducer, metadata: TableMetadata, snapshots: Sequence[Snapshot]
) -> list[ConcurrentChange]:
    """The changes of each snapshot; each manifest is read at most once for all attempts."""
    return [ConcurrentChange(snapshot, producer, metadata) for snapshot in snapshots]


def _with_status(parts: Sequence[Entries], status: int) -> list[Entries]:
    chosen = [entries.filter(pc.equal(entries.table["status"], status)) for entries in parts]
    return [entries for entries in chosen if len(entries)]


def _changed(manifest: ManifestFile) -> bool:
    return manifest.added_files_count != 0 or manifest.deleted_files_count != 0
