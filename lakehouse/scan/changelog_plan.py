"""What each snapshot of a range did to the files, from manifests: the base of a changelog."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakehouse.errors import NoSuchSnapshotError
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.scan.delete_index import DeleteIndex
from lakehouse.scan.planner import snapshots_after
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import STATUS_DELETED, DataFile, ManifestEntry
from lakehouse.spec.manifests.manifest_list import CONTENT_DATA_MANIFEST, ManifestFile
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_protocol import Storage

_DeleteKey = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class ChangelogStep:
    """One snapshot and the data files whose live rows it changed.

    Attributes:
        ordinal: place of the snapshot in the range, from 0; rewrites are not counted.
        snapshot: the snapshot.
        before: files that it removed or deleted rows of, with the deletes that applied before.
        after: files that it added or deleted rows of, with the deletes that apply since.
    """

    ordinal: int
    snapshot: Snapshot
    before: tuple[FileScanTask, ...]
    after: tuple[FileScanTask, ...]


def plan_changelog(
    metadata: TableMetadata,
    from_snapshot_id: int | None,
    to_snapshot_id: int | None,
    storage: Storage,
) -> list[ChangelogStep]:
    """The snapshots after `from_snapshot_id` up to `to_snapshot_id`, oldest first.

    Rewrites (operation `replace`) change no rows and are left out; so are files that only moved
    between manifests.

    Args:
        metadata: the table version.
        from_snapshot_id: exclusive; None starts with the first snapshot.
        to_snapshot_id: inclusive; None is the current one.
        storage: where the manifests are.

    Raises:
        NoSuchSnapshotError: `from_snapshot_id` is no ancestor of `to_snapshot_id`, or a snapshot
            between has been expired.
        CorruptMetadataError: a manifest is damaged.
    """
    to = metadata.current_snapshot_id if to_snapshot_id is None else to_snapshot_id
    newest_first = (
        list(metadata.ancestors(to))
        if from_snapshot_id is None
        else snapshots_after(metadata, to, from_snapshot_id)
    )
    changing = [
        snapshot for snapshot in reversed(newest_first) if snapshot.operation != OPERATION_REPLACE
    ]
    return [
        changelog_step(number, snapshot, metadata, storage)
        for number, snapshot in enumerate(changing)
    ]


def changelog_step(
    ordinal: int, snapshot: Snapshot, metadata: TableMetadata, storage: Storage
) -> ChangelogStep:
    """The files whose live rows a snapshot changed; raises as `plan_changelog`."""
    parent_id = snapshot.parent_snapshot_id
    parent = None if parent_id is None else metadata.snapshot_or_none(parent_id)
    if parent is None and not snapshot.is_first:
        raise NoSuchSnapshotError(
            f"Table {metadata.location}: what snapshot {snapshot.snapshot_id} changed is not "
            f"known any more, its parent ({parent_id or 'unknown'}) has been expired. Start from a "
            "snapshot that still exists.",
            snapshot_id=parent_id,
        )
    old = _Side(metadata, storage, [] if parent is None else load_manifests(storage, parent))
    new = _Side(metadata, storage, load_manifests(storage, snapshot))
    everywhere = {delete.manifest_path for delete in old.deletes} != {
        delete.manifest_path for delete in new.deletes
    }
    before = old.tasks(set() if everywhere else {manifest.manifest_path for manifest in new.data})
    after = new.tasks(set() if everywhere else {manifest.manifest_path for manifest in old.data})
    same = {
        path
        for path, task in before.items()
        if path in after and _deletes(task) == _deletes(after[path])
    }
    return ChangelogStep(
        ordinal,
        snapshot,
        tuple(task for path, task in before.items() if path not in same),
        tuple(task for path, task in after.items() if path not in same),
    )


def _deletes(task: FileScanTask) -> set[_DeleteKey]:
    return {(delete.file_path, delete.content_offset) for delete in task.deletes}


class _Side:
    """A snapshot before or after a step."""

    def __init__(
        self, metadata: TableMetadata, storage: Storage, manifests: Iterable[ManifestFile]
    ) -> None:
        self._reader = ManifestReader.of(storage, metadata)
        listed = list(manifests)
        self.data = [manifest for manifest in listed if manifest.content == CONTENT_DATA_MANIFEST]
        self.deletes = [
            manifest for manifest in listed if manifest.content != CONTENT_DATA_MANIFEST
        ]

    def tasks(self, shared: set[str]) -> dict[str, FileScanTask]:
        """Live files by path, but for those of manifests that the other side has too."""
        live = self._live(
            [manifest for manifest in self.data if manifest.manifest_path not in shared]
        )
        if not live:
            return {}
        index = DeleteIndex(self._live(self.deletes), self._reader.specs)
        return {
            entry.data_file.file_path: _task(entry.data_file, entry.sequence_number or 0, index)
            for entry in live
        }

    def _live(self, manifests: Sequence[ManifestFile]) -> list[ManifestEntry]:
        return [
            entry
            for entries in self._reader.entries_of_all(manifests)
            for entry in entries.to_manifest_entries()
            if entry.status != STATUS_DELETED
        ]


def _task(file: DataFile, sequence_number: int, index: DeleteIndex) -> FileScanTask:
    return FileScanTask(
        data_file=file,
        deletes=index.deletes_for(file, sequence_number),
        length=file.file_size_in_bytes,
        sequence_number=sequence_number,
    )
