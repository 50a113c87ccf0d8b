"""Health, made up: partitions from file sizes, a table from partitions."""

from __future__ import annotations

from lakehouse.maintenance.health.table_health import PartitionHealth, TableHealth
from lakehouse.spec.identifier import Identifier

MB = 1 << 20
TARGET = 128 * MB


def packed(sizes, target=TARGET):
    """How many files of about the target size so many bytes make, counted here, not there."""
    total, files = sum(sizes), 1
    while total > 1.1 * target * files:
        files += 1
    return min(files, len(sizes)) if sizes else 0


def partition(
    name, sizes, *, deletes=0, deleted=0, updated=None, waiting_since=None, target=TARGET, spec_id=0
):
    small = [size for size in sizes if size < 0.75 * target]
    return PartitionHealth(
        spec_id=spec_id,
        partition=name,
        data_files=len(sizes),
        small_files=len(small),
        bytes=sum(sizes),
        small_bytes=sum(small),
        records=100 * len(sizes),
        delete_files=deletes,
        deleted_records=deleted,
        expected_files=len(sizes) - len(small) + packed(small, target),
        last_sequence_number=1,
        last_updated_ms=updated,
        waiting_since_ms=waiting_since,
    )


def table(partitions=(), **given):
    def total(name):
        return sum(getattr(one, name) for one in partitions)

    names = (
        "data_files",
        "small_files",
        "expected_files",
        "bytes",
        "small_bytes",
        "records",
        "delete_files",
        "deleted_records",
    )
    facts = {
        "identifier": Identifier.parse("raw.events"),
        "snapshot_id": 1,
        "target_bytes": TARGET,
        "small_below": int(0.75 * TARGET),
        **{name: total(name) for name in names},
        "entropy": 0.0,
        "delete_ratio": 0.0,
        "manifests": 1,
        "manifest_bytes": 10_000,
        "manifest_overlap": 1.0,
        "sort_overlap": None,
        "snapshots": 1,
        "expirable_snapshots": 0,
        "oldest_snapshot_age_ms": 1,
        "newest_snapshot_age_ms": 1,
        "metadata_bytes": 1,
        "refs": 1,
        "skew": 1.0,
        "partitions": tuple(partitions),
    }
    return TableHealth(**{**facts, **given})
