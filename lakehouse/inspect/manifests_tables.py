"""Manifests as Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.types import IcebergType

from lakehouse.spec.manifests.bounds_columns import decode_bounds
from lakehouse.spec.manifests.manifest_list import (
    CONTENT_DATA_MANIFEST,
    CONTENT_DELETE_MANIFEST,
    FieldSummary,
    ManifestFile,
)
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.types.arrow_types import partition_types
from lakehouse.spec.types.internal_values import typed_array

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
                _summary(summary, kind)
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


def _summary(summary: FieldSummary, kind: IcebergType | None) -> dict[str, Any]:
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
