"""Metadata tables of one table version, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import pyarrow as pa

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.catalog.held_version import HeldVersion
from lakehouse.errors import InvalidInputError
from lakehouse.inspect.files_tables import (
    entries_table,
    files_table,
    partitions_table,
    position_deletes_table,
)
from lakehouse.inspect.snapshots_tables import (
    all_manifests_table,
    history_table,
    manifests_table,
    metadata_log_table,
    refs_table,
    snapshots_table,
)
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.spec.manifests.data_file import (
    CONTENT_DATA,
    CONTENT_POSITION_DELETES,
    STATUS_DELETED,
    DataFile,
    ManifestEntry,
)
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_protocol import Storage

METADATA_TABLES = (
    "snapshots",
    "history",
    "refs",
    "metadata_log_entries",
    "manifests",
    "entries",
    "files",
    "data_files",
    "delete_files",
    "partitions",
    "position_deletes",
    "all_manifests",
    "all_entries",
    "all_files",
    "all_data_files",
    "all_delete_files",
)
_OF_ONE_SNAPSHOT = METADATA_TABLES[4:11]


@dataclass(frozen=True, slots=True)
class MetadataTables:
    """Metadata tables of one table version, each as a `pa.Table` with Iceberg's columns.

    Where a method takes `snapshot_id`, None is the current snapshot; a table without one gives no
    rows. The `all_` tables cover every snapshot; a file can come more than once, as in Iceberg.
    """

    version: TableVersion
    storage: Storage
    held: HeldVersion | None = field(default=None, compare=False)

    @property
    def metadata(self) -> TableMetadata:
        """The metadata inspected."""
        return self.version.metadata

    def table(self, name: str, snapshot_id: int | None = None) -> pa.Table:
        """A metadata table by its name.

        Raises:
            InvalidInputError: there is none of this name, or it covers all snapshots and
                `snapshot_id` was given.
        """
        if name not in METADATA_TABLES:
            raise InvalidInputError(
                f"No metadata table {name!r}; there are {', '.join(METADATA_TABLES)}"
            )
        make: Callable[..., pa.Table] = getattr(self, name)
        if snapshot_id is None:
            return make()
        if name not in _OF_ONE_SNAPSHOT:
            raise InvalidInputError(
                f"Metadata table {name} covers all snapshots: leave snapshot_id {snapshot_id} out"
            )
        return make(snapshot_id)

    def snapshots(self) -> pa.Table:
        """committed_at, snapshot_id, parent_id, operation, manifest_list, summary."""
        return snapshots_table(self.metadata)

    def history(self) -> pa.Table:
        """made_current_at, snapshot_id, parent_id, is_current_ancestor."""
        return history_table(self.metadata)

    def refs(self) -> pa.Table:
        """One row for each branch and tag.

        Columns: name, type, snapshot_id, max_reference_age_in_ms, min_snapshots_to_keep,
        max_snapshot_age_in_ms.
        """
        return refs_table(self.metadata)

    def metadata_log_entries(self) -> pa.Table:
        """timestamp, file, latest_snapshot_id, latest_schema_id, latest_sequence_number."""
        return metadata_log_table(self.version)

    def manifests(self, snapshot_id: int | None = None) -> pa.Table:
        """Manifests of a snapshot, with file counts and partition summaries."""
        return manifests_table(self._manifests(snapshot_id), self.metadata)

    def entries(self, snapshot_id: int | None = None) -> pa.Table:
        """Manifest entries of a snapshot, deleted ones too."""
        return entries_table(self._entries(self._manifests(snapshot_id)), self.metadata)

    def files(self, snapshot_id: int | None = None) -> pa.Table:
        """Live data and delete files of a snapshot."""
        return files_table(self._files(self._manifests(snapshot_id)), self.metadata)

    def data_files(self, snapshot_id: int | None = None) -> pa.Table:
        """Live data files of a snapshot."""
        return files_table(_data(self._files(self._manifests(snapshot_id))), self.metadata)

    def delete_files(self, snapshot_id: int | None = None) -> pa.Table:
        """Live delete files and deletion vectors of a snapshot."""
        return files_table(_deletes(self._files(self._manifests(snapshot_id))), self.metadata)

    def partitions(self, snapshot_id: int | None = None) -> pa.Table:
        """Live files, rows and deletes of each partition of a snapshot."""
        live = [
            entry
            for entry in self._entries(self._manifests(snapshot_id))
            if entry.status != STATUS_DELETED
        ]
        return partitions_table(live, self.metadata)

    def position_deletes(self, snapshot_id: int | None = None) -> pa.Table:
        """Each position that a live delete file or deletion vector of a snapshot deletes.

        Columns: file_path, pos, row (always null), partition, spec_id, delete_file_path; in
        version 3 content_offset and content_size_in_bytes. The delete files are read.

        Raises:
            NoSuchFileError | CorruptMetadataError | UnsupportedFeatureError: as a scan's, of a
                delete file that is missing or cannot be read.
        """
        deletes = [
            file
            for file in self._files(self._manifests(snapshot_id))
            if file.content == CONTENT_POSITION_DELETES
        ]
        with self._reading():
            return position_deletes_table(deletes, self.metadata, self.storage)

    def all_manifests(self) -> pa.Table:
        """Manifests of every snapshot, with `reference_snapshot_id`."""
        listed = [
            (snapshot.snapshot_id, self._listed(snapshot)) for snapshot in self.metadata.snapshots
        ]
        return all_manifests_table(listed, self.metadata)

    def all_entries(self) -> pa.Table:
        """Entries of every manifest that any snapshot lists."""
        return entries_table(self._entries(self._all_manifests()), self.metadata)

    def all_files(self) -> pa.Table:
        """Files that are live in any snapshot."""
        return files_table(self._files(self._all_manifests()), self.metadata)

    def all_data_files(self) -> pa.Table:
        """Data files that are live in any snapshot."""
        return files_table(_data(self._files(self._all_manifests())), self.metadata)

    def all_delete_files(self) -> pa.Table:
        """Delete files that are live in any snapshot."""
        return files_table(_deletes(self._files(self._all_manifests())), self.metadata)

    def _snapshot(self, snapshot_id: int | None) -> Snapshot | None:
        return (
            self.metadata.current_snapshot()
            if snapshot_id is None
            else self.metadata.snapshot(snapshot_id)
        )

    def _manifests(self, snapshot_id: int | None) -> list[ManifestFile]:
        snapshot = self._snapshot(snapshot_id)
        return [] if snapshot is None else self._listed(snapshot)

    def _listed(self, snapshot: Snapshot) -> list[ManifestFile]:
        with self._reading(snapshot.snapshot_id):
            return load_manifests(self.storage, snapshot)

    def _reading(self, *snapshot_ids: int) -> AbstractContextManager[None]:
        return nullcontext() if self.held is None else self.held.reading(*snapshot_ids)

    def _all_manifests(self) -> list[ManifestFile]:
        manifests: dict[str, ManifestFile] = {}
        for snapshot in self.metadata.snapshots:
            for manifest in self._listed(snapshot):
                manifests.setdefault(manifest.manifest_path, manifest)
        return list(manifests.values())

    def _entries(self, manifests: Iterable[ManifestFile]) -> list[ManifestEntry]:
        reader = ManifestReader.of(self.storage, self.metadata)
        with self._reading():
            return [
                entry
                for entries in reader.entries_of_all(list(manifests))
                for entry in entries.to_manifest_entries()
            ]

    def _files(self, manifests: Iterable[ManifestFile]) -> list[DataFile]:
        return [
            entry.data_file for entry in self._entries(manifests) if entry.status != STATUS_DELETED
        ]


def _data(files: Iterable[DataFile]) -> list[DataFile]:
    return [file for file in files if file.content == CONTENT_DATA]


def _deletes(files: Iterable[DataFile]) -> list[DataFile]:
    return [file for file in files if file.content != CONTENT_DATA]
