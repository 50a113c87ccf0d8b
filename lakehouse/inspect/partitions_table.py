"""Partitions as Arrow: live files, rows and deletes of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakehouse.inspect.readable_values import TIMESTAMP, timestamps
from lakehouse.spec.manifests.data_file import CONTENT_DATA, CONTENT_POSITION_DELETES, ManifestEntry
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.unified_partition import UnifiedPartition

_COUNTS = {
    "record_count": pa.int64(),
    "file_count": pa.int32(),
    "total_data_file_size_in_bytes": pa.int64(),
    "position_delete_record_count": pa.int64(),
    "position_delete_file_count": pa.int32(),
    "equality_delete_record_count": pa.int64(),
    "equality_delete_file_count": pa.int32(),
}


@dataclass(slots=True)
class _Totals:
    partition: tuple[int, tuple[Any, ...]]
    record_count: int = 0
    file_count: int = 0
    total_data_file_size_in_bytes: int = 0
    position_delete_record_count: int = 0
    position_delete_file_count: int = 0
    equality_delete_record_count: int = 0
    equality_delete_file_count: int = 0
    last_updated_ms: int | None = None
    last_updated_snapshot_id: int | None = None

    def add(self, entry: ManifestEntry, committed_ms: int | None) -> None:
        file = entry.data_file
        if file.content == CONTENT_DATA:
            self.record_count += file.record_count
            self.file_count += 1
            self.total_data_file_size_in_bytes += file.file_size_in_bytes
        elif file.content == CONTENT_POSITION_DELETES:
            self.position_delete_record_count += file.record_count
            self.position_delete_file_count += 1
        else:
            self.equality_delete_record_count += file.record_count
            self.equality_delete_file_count += 1
        if committed_ms is not None and (
            self.last_updated_ms is None or committed_ms > self.last_updated_ms
        ):
            self.last_updated_ms = committed_ms
            self.last_updated_snapshot_id = entry.snapshot_id


def partitions_table(entries: Sequence[ManifestEntry], metadata: TableMetadata) -> pa.Table:
    """One row for each partition and spec, from live entries.

    `partition` and `spec_id` are left out of tables that never had a partition.

    `last_updated_*` is the newest snapshot, of those that still exist, that added a file of the
    partition.
    """
    totals: dict[tuple[Any, ...], _Totals] = {}
    committed = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    for entry in entries:
        file = entry.data_file
        snapshot_ms = None if entry.snapshot_id is None else committed.get(entry.snapshot_id)
        totals.setdefault(file.partition_key, _Totals((file.spec_id, file.partition))).add(
            entry, snapshot_ms
        )
    column = UnifiedPartition.of(metadata)
    fields: list[pa.Field] = []
    arrays: list[pa.Array] = []
    if column.fields:
        struct = column.array([one.partition for one in totals.values()])
        fields += [
            pa.field("partition", struct.type, nullable=False),
            pa.field("spec_id", pa.int32(), nullable=False),
        ]
        arrays += [struct, pa.array([one.partition[0] for one in totals.values()], pa.int32())]
    rows = list(totals.values())
    for name, kind in _COUNTS.items():
        fields.append(pa.field(name, kind, nullable=False))
        arrays.append(pa.array([getattr(row, name) for row in rows], kind))
    fields += [
        pa.field("last_updated_at", TIMESTAMP),
        pa.field("last_updated_snapshot_id", pa.int64()),
    ]
    arrays += [
        timestamps([row.last_updated_ms for row in rows]),
        pa.array([row.last_updated_snapshot_id for row in rows], pa.int64()),
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
