"""What other writers did since a transaction began, read from the manifests of their snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow.compute as pc

from lakehouse.spec.data_file import STATUS_ADDED, STATUS_DELETED
from lakehouse.spec.entries import Entries
from lakehouse.spec.manifest_list import CONTENT_DATA_MANIFEST, ManifestFile
from lakehouse.spec.snapshot import Snapshot
from lakehouse.spec.table_metadata import TableMetadata
from lakehouse.transaction.workspace import Workspace


@dataclass(frozen=True, slots=True)
class ConcurrentChange:
    """One snapshot committed since, and the entries it added and removed.

    Attributes:
        snapshot: the other writer's.
        added_data: data files it added.
        removed_data: data files it removed.
        added_deletes: delete files it added.
    """

    snapshot: Snapshot
    added_data: list[Entries] = field(default_factory=list)
    removed_data: list[Entries] = field(default_factory=list)
    added_deletes: list[Entries] = field(default_factory=list)


def load_changes(workspace: Workspace, metadata: TableMetadata, snapshots: Sequence[Snapshot]) -> list[ConcurrentChange]:
    """Read what each snapshot changed; each is read once, however many attempts there are."""
    return [
        workspace.once(("change", snapshot.snapshot_id), partial(_load, workspace, metadata, snapshot)) for snapshot in snapshots
    ]


def _load(workspace: Workspace, metadata: TableMetadata, snapshot: Snapshot) -> ConcurrentChange:
    change = ConcurrentChange(snapshot)
    for manifest in workspace.manifests(snapshot):
        if manifest.added_snapshot_id != snapshot.snapshot_id or not _changed(manifest):
            continue
        entries = workspace.entries(manifest, metadata)
        own = entries.filter(pc.equal(entries.table["snapshot_id"], snapshot.snapshot_id))
        added = own.filter(pc.equal(own.table["status"], STATUS_ADDED))
        removed = own.filter(pc.equal(own.table["status"], STATUS_DELETED))
        if manifest.content == CONTENT_DATA_MANIFEST:
            _keep(change.added_data, added)
            _keep(change.removed_data, removed)
        else:
            _keep(change.added_deletes, added)
    return change


def _changed(manifest: ManifestFile) -> bool:
    return manifest.added_files_count != 0 or manifest.deleted_files_count != 0


def _keep(found: list[Entries], entries: Entries) -> None:
    if len(entries):
        found.append(entries)
