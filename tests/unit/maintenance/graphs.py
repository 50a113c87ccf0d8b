"""Histories of snapshots without files, for the pure rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakehouse.spec.metadata.snapshot import Snapshot, SnapshotRef
from lakehouse.spec.metadata.table_metadata import TableMetadata, new_table_metadata, snapshot_list
from lakehouse.spec.partitioning.sort_order import UNSORTED_SORT_ORDER

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


def snapshot(snapshot_id: int, parent: int | None = None, at: int | None = None) -> Snapshot:
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent,
        sequence_number=snapshot_id,
        timestamp_ms=snapshot_id * 1000 if at is None else at,
        manifest_list=f"/t/metadata/snap-{snapshot_id}.avro",
        summary={"operation": "append"},
    )


def metadata_of(
    snapshots: Sequence[Snapshot],
    refs: Mapping[str, SnapshotRef] | None = None,
    properties: Mapping[str, str] | None = None,
) -> TableMetadata:
    empty = new_table_metadata(
        schema=SCHEMA,
        spec=UNPARTITIONED_PARTITION_SPEC,
        sort_order=UNSORTED_SORT_ORDER,
        location="/t",
        properties=dict(properties or {}),
        format_version=2,
        table_uuid="5f0d6a2c-98c0-4f5c-9a7e-2c9a3a1b1b1b",
        now_ms=0,
    )
    if refs is None:
        refs = {"main": SnapshotRef(snapshots[-1].snapshot_id)} if snapshots else {}
    main = refs.get("main")
    return dataclasses.replace(
        empty,
        snapshots=snapshot_list(list(snapshots)),
        refs=dict(refs),
        current_snapshot_id=None if main is None else main.snapshot_id,
        last_sequence_number=max((one.sequence_number for one in snapshots), default=0),
    )


def line(count: int) -> list[Snapshot]:
    return [snapshot(number, number - 1 or None) for number in range(1, count + 1)]
