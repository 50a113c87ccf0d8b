"""Health of a table and its partitions, from metadata alone."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.catalog.protocol import Catalog
from lakehouse.environment import Environment
from lakehouse.maintenance.report import Report
from lakehouse.spec.identifier import Identifier


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """One partition: counts, bytes, small files and rows deleted."""

    spec_id: int
    partition: str
    data_files: int
    small_files: int
    bytes: int
    small_bytes: int
    records: int
    delete_files: int
    deleted_records: int
    expected_files: int
    last_updated_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth(Report):
    """One table: totals, partitions (worst first), manifests, snapshots, metadata.

    Attributes:
        data_files, small_files: small = below 0.75 x target.
        expected_files: data files that a full compaction would leave.
        delete_ratio: deleted records / records.
        skew: largest partition's bytes / mean partition's bytes.
    """

    identifier: Identifier
    snapshot_id: int | None
    data_files: int
    small_files: int
    expected_files: int
    bytes: int
    small_bytes: int
    records: int
    delete_files: int
    deleted_records: int
    delete_ratio: float
    manifests: int
    manifest_bytes: int
    snapshots: int
    oldest_snapshot_age_ms: int | None
    metadata_bytes: int
    refs: int
    skew: float
    partitions: tuple[PartitionHealth, ...]


def health(catalog: Catalog, identifier: Identifier, *, environment: Environment | None = None) -> TableHealth: ...
