"""Distinct counts that metadata records beside its statistics files (spec: Table Statistics)."""

from __future__ import annotations

from lakehouse.spec.metadata.table_metadata import TableMetadata

THETA_SKETCH = "apache-datasketches-theta-v1"
"""Type of the blobs whose property `ndv` is the count."""
SKETCH_ENTRIES = 4096
"""Nominal entries of a sketch: of fewer different values the count is exact."""


def recorded_distinct(metadata: TableMetadata, snapshot_id: int | None) -> dict[int, int]:
    """Field id -> different values of one column as counted at a snapshot, whoever counted."""
    found: dict[int, int] = {}
    for record in metadata.statistics:
        if record.get("snapshot-id") != snapshot_id:
            continue
        for blob in record.get("blob-metadata", ()):
            fields, ndv = blob.get("fields", ()), str(blob.get("properties", {}).get("ndv", ""))
            if blob.get("type") == THETA_SKETCH and len(fields) == 1 and ndv.isdecimal():
                found[fields[0]] = int(ndv)
    return found
