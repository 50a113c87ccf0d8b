"""Metadata tables made from the metadata file alone: snapshots, history, refs, log entries."""

from __future__ import annotations

import pyarrow as pa

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.inspect.readable_values import TIMESTAMP, timestamps
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata

SNAPSHOTS = pa.schema(
    [
        pa.field("committed_at", TIMESTAMP, nullable=False),
        pa.field("snapshot_id", pa.int64(), nullable=False),
        pa.field("parent_id", pa.int64()),
        pa.field("operation", pa.string()),
        pa.field("manifest_list", pa.string()),
        pa.field("summary", pa.map_(pa.string(), pa.string())),
    ]
)
HISTORY = pa.schema(
    [
        pa.field("made_current_at", TIMESTAMP, nullable=False),
        pa.field("snapshot_id", pa.int64(), nullable=False),
        pa.field("parent_id", pa.int64()),
        pa.field("is_current_ancestor", pa.bool_(), nullable=False),
    ]
)
REFS = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("snapshot_id", pa.int64(), nullable=False),
        pa.field("max_reference_age_in_ms", pa.int64()),
        pa.field("min_snapshots_to_keep", pa.int32()),
        pa.field("max_snapshot_age_in_ms", pa.int64()),
    ]
)
METADATA_LOG_ENTRIES = pa.schema(
    [
        pa.field("timestamp", TIMESTAMP, nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("latest_snapshot_id", pa.int64()),
        pa.field("latest_schema_id", pa.int32()),
        pa.field("latest_sequence_number", pa.int64()),
    ]
)


def snapshots_table(metadata: TableMetadata) -> pa.Table:
    """Every snapshot, in the metadata's order; `operation` is a column, apart from `summary`."""
    found = list(metadata.snapshots)
    columns = [
        timestamps([snapshot.timestamp_ms for snapshot in found]),
        pa.array([snapshot.snapshot_id for snapshot in found], pa.int64()),
        pa.array([snapshot.parent_snapshot_id for snapshot in found], pa.int64()),
        pa.array([snapshot.operation for snapshot in found], pa.string()),
        pa.array([snapshot.manifest_list or None for snapshot in found], pa.string()),
        pa.array([_summary(snapshot) for snapshot in found], pa.map_(pa.string(), pa.string())),
    ]
    return pa.Table.from_arrays(columns, schema=SNAPSHOTS)


def history_table(metadata: TableMetadata) -> pa.Table:
    """Every change of the current snapshot, oldest first.

    The parent is null when the snapshot has been expired.
    """
    ancestors = {
        snapshot.snapshot_id for snapshot in metadata.ancestors(metadata.current_snapshot_id)
    }
    log = list(metadata.snapshot_log)
    known = [metadata.snapshot_or_none(entry.snapshot_id) for entry in log]
    columns = [
        timestamps([entry.timestamp_ms for entry in log]),
        pa.array([entry.snapshot_id for entry in log], pa.int64()),
        pa.array(
            [None if snapshot is None else snapshot.parent_snapshot_id for snapshot in known],
            pa.int64(),
        ),
        pa.array([entry.snapshot_id in ancestors for entry in log], pa.bool_()),
    ]
    return pa.Table.from_arrays(columns, schema=HISTORY)


def refs_table(metadata: TableMetadata) -> pa.Table:
    """Branches and tags by name; `type` is BRANCH or TAG."""
    refs = sorted(metadata.refs.items())
    columns = [
        pa.array([name for name, _ in refs], pa.string()),
        pa.array([ref.type.upper() for _, ref in refs], pa.string()),
        pa.array([ref.snapshot_id for _, ref in refs], pa.int64()),
        pa.array([ref.max_ref_age_ms for _, ref in refs], pa.int64()),
        pa.array([ref.min_snapshots_to_keep for _, ref in refs], pa.int32()),
        pa.array([ref.max_snapshot_age_ms for _, ref in refs], pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=REFS)


def metadata_log_table(version: TableVersion) -> pa.Table:
    """Every metadata file in the log, current last, with the snapshot then current."""
    metadata = version.metadata
    files = [(entry.timestamp_ms, entry.metadata_file) for entry in metadata.metadata_log]
    files.append((metadata.last_updated_ms, version.metadata_location))
    latest = [_current_at(metadata, timestamp) for timestamp, _ in files]
    columns = [
        timestamps([timestamp for timestamp, _ in files]),
        pa.array([file for _, file in files], pa.string()),
        pa.array([found[0] for found in latest], pa.int64()),
        pa.array(
            [None if found[1] is None else found[1].schema_id for found in latest], pa.int32()
        ),
        pa.array(
            [None if found[1] is None else found[1].sequence_number for found in latest], pa.int64()
        ),
    ]
    return pa.Table.from_arrays(columns, schema=METADATA_LOG_ENTRIES)


def _current_at(metadata: TableMetadata, timestamp_ms: int) -> tuple[int | None, Snapshot | None]:
    current = None
    for entry in metadata.snapshot_log:
        if entry.timestamp_ms <= timestamp_ms:
            current = entry.snapshot_id
    return current, None if current is None else metadata.snapshot_or_none(current)


def _summary(snapshot: Snapshot) -> list[tuple[str, str]]:
    return [(key, value) for key, value in snapshot.summary.items() if key != "operation"]
