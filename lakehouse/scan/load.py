"""Reading the manifests of a snapshot as entries."""

from __future__ import annotations

from lakehouse.scan.report import PlanReport
from lakehouse.spec.entries import Entries
from lakehouse.spec.manifest_list import ManifestFile
from lakehouse.spec.snapshot import Snapshot
from lakehouse.spec.table_metadata import TableMetadata
from lakehouse.storage.protocol import Storage


def load_manifests(storage: Storage, snapshot: Snapshot) -> list[ManifestFile]:
    """The manifests of a snapshot, data and delete."""
    raise AssertionError(storage, snapshot)


def load_entries(storage: Storage, manifest: ManifestFile, metadata: TableMetadata) -> Entries:
    """All entries of a manifest, deleted ones too, every column, inheritance applied. Reads the Avro manifest, the truth."""
    raise AssertionError(storage, manifest, metadata, PlanReport)
