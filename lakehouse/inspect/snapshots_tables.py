"""Metadata tables of snapshots, their history and refs, metadata files and manifests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.types import IcebergType

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.spec.manifests.manifest_list import (
    CONTENT_DATA_MANIFEST,
    CONTENT_DELETE_MANIFEST,
    FieldSummary,
    ManifestFile,
)
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.types.arrow_types import partition_types
from lakehouse.spec.types.internal_values import decode_bounds, typed_array

TIMESTAMP = pa.timestamp("us", tz="UTC")


def timestamps(milliseconds: Sequence[int | None]) -> pa.Array:
    """Milliseconds since the epoch as `timestamp[us, UTC]`."""
    return pa.array(
        [None if value is None else value * 1000 for value in milliseconds], pa.int64()
    ).cast(TIMESTAMP)


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
    snapshots = list(metadata.snapshots)
    columns = [
        timestamps([snapshot.timestamp_ms for snapshot in snapshots]),
        pa.array([snapshot.snapshot_id for snapshot in snapshots], pa.int64()),
        pa.array([snapshot.parent_snapshot_id for snapshot in snapshots], pa.int64()),
        pa.array([snapshot.operation for snapshot in snapshots], pa.string()),
        pa.array([snapshot.manifest_list or None for snapshot in snapshots], pa.string()),
        pa.array([_summary(snapshot) for snapshot in snapshots], pa.map_(pa.string(), pa.string())),
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
    snapshots = [metadata.snapshot_or_none(entry.snapshot_id) for entry in log]
    columns = [
        timestamps([entry.timestamp_ms for entry in log]),
        pa.array([entry.snapshot_id for entry in log], pa.int64()),
        pa.array(
            [None if snapshot is None else snapshot.parent_snapshot_id for snapshot in snapshots],
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
        pa.array([entry[0] for entry in latest], pa.int64()),
        pa.array(
            [None if entry[1] is None else entry[1].schema_id for entry in latest], pa.int32()
        ),
        pa.array(
            [None if entry[1] is None else entry[1].sequence_number for entry in latest], pa.int64()
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


_SUMMARY = pa.struct(
    [
        pa.field("contains_null", pa.bool_(), nullable=False),
        pa.field("contains_nan", pa.bool_()),
        pa.field("lower_bound", pa.string()),
        pa.field("upper_bound", pa.string()),
    ]
)
MANIFESTS = pa.schema(
    [
        pa.field("content", pa.int32(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("partition_spec_id", pa.int32(), nullable=False),
        pa.field("added_snapshot_id", pa.int64()),
        pa.field("added_data_files_count", pa.int32(), nullable=False),
        pa.field("existing_data_files_count", pa.int32(), nullable=False),
        pa.field("deleted_data_files_count", pa.int32(), nullable=False),
        pa.field("added_delete_files_count", pa.int32(), nullable=False),
        pa.field("existing_delete_files_count", pa.int32(), nullable=False),
        pa.field("deleted_delete_files_count", pa.int32(), nullable=False),
        pa.field("partition_summaries", pa.list_(_SUMMARY), nullable=False),
    ]
)
ALL_MANIFESTS = MANIFESTS.append(
    pa.field("reference_snapshot_id", pa.int64(), nullable=False)
).append(pa.field("key_metadata", pa.binary()))


def manifests_table(manifests: Sequence[ManifestFile], metadata: TableMetadata) -> pa.Table:
    """One row a manifest; bounds of partition summaries as text."""
    return pa.Table.from_pylist(_rows(manifests, metadata), schema=MANIFESTS)


def all_manifests_table(
    listed: Sequence[tuple[int, Sequence[ManifestFile]]], metadata: TableMetadata
) -> pa.Table:
    """One row a manifest and snapshot that lists it (`reference_snapshot_id`)."""
    rows = [
        {**row, "reference_snapshot_id": snapshot_id, "key_metadata": manifest.key_metadata}
        for snapshot_id, manifests in listed
        for manifest, row in zip(manifests, _rows(manifests, metadata), strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=ALL_MANIFESTS)


def _rows(manifests: Sequence[ManifestFile], metadata: TableMetadata) -> list[dict[str, Any]]:
    types = types_of(metadata)
    kinds = {
        spec.spec_id: list(partition_types(spec, types).values())
        for spec in metadata.partition_specs
    }
    rows = []
    for manifest in manifests:
        row: dict[str, Any] = {
            "content": manifest.content,
            "path": manifest.manifest_path,
            "length": manifest.manifest_length,
            "partition_spec_id": manifest.partition_spec_id,
            "added_snapshot_id": manifest.added_snapshot_id,
            "partition_summaries": [
                _partition_summary(summary, kind)
                for summary, kind in zip(
                    manifest.partitions or (), kinds[manifest.partition_spec_id], strict=False
                )
            ],
        }
        for what, content in (("data", CONTENT_DATA_MANIFEST), ("delete", CONTENT_DELETE_MANIFEST)):
            for state in ("added", "existing", "deleted"):
                count = getattr(manifest, f"{state}_files_count") or 0
                row[f"{state}_{what}_files_count"] = count if manifest.content == content else 0
        rows.append(row)
    return rows


def _partition_summary(summary: FieldSummary, kind: IcebergType | None) -> dict[str, Any]:
    return {
        "contains_null": summary.contains_null,
        "contains_nan": summary.contains_nan,
        "lower_bound": _text(summary.lower_bound, kind),
        "upper_bound": _text(summary.upper_bound, kind),
    }


def _text(bound: bytes | None, kind: IcebergType | None) -> str | None:
    if bound is None:
        return None
    if kind is None:
        return bound.hex()
    value = typed_array(decode_bounds(pa.array([bound], pa.binary()), kind).to_pylist(), kind)[
        0
    ].as_py()
    return value.hex() if isinstance(value, bytes) else str(value)
