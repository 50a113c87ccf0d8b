"""Reads the metadata tree below snapshots for maintenance, always from Avro manifests.

These are the truth; columnar manifests are derived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.spec.manifests.data_file import STATUS_DELETED
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_protocol import Storage

_COLUMNS = ("status", "file_path", "content", "file_size_in_bytes")


class LiveFile(NamedTuple):
    """A live file of a manifest: location, content (0 data, 1 and 2 deletes), bytes."""

    location: str
    content: int
    size: int


@dataclass(frozen=True, slots=True)
class StorageWalker:
    """Reads manifest lists and manifests from the storage of the table.

    Attributes:
        metadata: specs and schemas to decode manifests with; of a version that still knows the
            snapshots' specs.
    """

    storage: Storage
    metadata: TableMetadata
    _reader: ManifestReader = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_reader", ManifestReader.of(self.storage, self.metadata))

    def manifests(self, snapshot: Snapshot) -> Sequence[ManifestFile]:
        """A snapshot's manifests; raises NoSuchFileError, CorruptMetadataError, StorageError."""
        return load_manifests(self.storage, snapshot)

    def live_files(self, manifest: ManifestFile) -> Iterator[LiveFile]:
        """Files of entries that are not DELETED."""
        table = self._reader.entries(manifest, _COLUMNS).table
        columns = (table.column(name).to_pylist() for name in _COLUMNS)
        for status, location, content, size in zip(*columns, strict=True):
            if status != STATUS_DELETED:
                yield LiveFile(location, content, size)
