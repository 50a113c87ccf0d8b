"""Tables and snapshots that several tests start from."""

from __future__ import annotations

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from lakehouse.spec.metadata.metadata_draft import apply_updates
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata, new_table_metadata
from lakehouse.spec.metadata.table_updates import AddSnapshot, SetSnapshotRef, Update
from lakehouse.spec.partitioning.partition_terms import parse_partition_spec, parse_sort_order

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


def schema() -> Schema:
    point = StructType(
        NestedField(11, "x", IntegerType()), NestedField(12, "y", IntegerType(), required=True)
    )
    return Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "ts", TimestamptzType()),
        NestedField(3, "name", StringType(), doc="of the user"),
        NestedField(4, "price", DecimalType(9, 2)),
        NestedField(5, "day", DateType()),
        NestedField(
            6,
            "place",
            StructType(NestedField(7, "lat", IntegerType()), NestedField(8, "lon", IntegerType())),
        ),
        NestedField(9, "points", ListType(10, point, element_required=False)),
        NestedField(
            13, "marks", MapType(14, StringType(), 15, point_named(16), value_required=False)
        ),
        identifier_field_ids=[1],
    )


def point_named(first_id: int) -> StructType:
    return StructType(
        NestedField(first_id, "x", IntegerType()),
        NestedField(first_id + 1, "y", IntegerType(), required=True),
    )


def table(
    *,
    version: int = 2,
    partition_by: tuple[str, ...] = (),
    sort_by: tuple[str, ...] = (),
    properties: dict[str, str] | None = None,
) -> TableMetadata:
    columns = schema()
    return new_table_metadata(
        columns,
        parse_partition_spec(partition_by, columns),
        parse_sort_order(sort_by, columns),
        "s3://bucket/warehouse/raw/events",
        properties or {},
        version,
        UUID,
        1_000,
    )


def snapshot(
    number: int,
    parent: int | None = None,
    *,
    at: int | None = None,
    version: int = 2,
    rows: int = 10,
) -> Snapshot:
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=parent,
        sequence_number=number,
        timestamp_ms=1_000 + number * 10 if at is None else at,
        manifest_list=f"s3://bucket/warehouse/raw/events/metadata/snap-{number}.avro",
        summary={"operation": "append", "added-records": str(rows)},
        schema_id=0,
        first_row_id=(number - 1) * rows if version >= 3 else None,
        added_rows=rows if version >= 3 else None,
    )


def commit(
    base: TableMetadata, *updates: Update, now: int = 0, location: str | None = None
) -> TableMetadata:
    return apply_updates(base, updates, now_ms=now, base_location=location)


def grown(base: TableMetadata, count: int, *, start: int = 1) -> TableMetadata:
    """The table after `count` appends to main, with snapshot ids from `start`."""
    for number in range(start, start + count):
        added = snapshot(
            number,
            number - 1 if number > start else base.current_snapshot_id,
            version=base.format_version,
        )
        base = commit(
            base, AddSnapshot(added), SetSnapshotRef("main", number), now=1_000 + number * 10
        )
    return base


def v1_document() -> dict:
    """v1 by old writers: no ids for schema, spec or fields, no lists, embedded manifests."""
    return {
        "format-version": 1,
        "table-uuid": UUID,
        "location": "/warehouse/old",
        "last-updated-ms": 5_000,
        "last-column-id": 2,
        "schema": {
            "type": "struct",
            "fields": [
                {"id": 1, "name": "id", "required": True, "type": "long"},
                {"id": 2, "name": "ts", "required": False, "type": "timestamp"},
            ],
        },
        "partition-spec": [
            {"name": "ts_day", "transform": "day", "source-id": 2},
            {"name": "id_b", "transform": "bucket[4]", "source-id": 1},
        ],
        "properties": {"owner": "me"},
        "current-snapshot-id": 7,
        "snapshots": [
            {
                "snapshot-id": 6,
                "timestamp-ms": 4_000,
                "manifests": ["/warehouse/old/m0.avro", "/warehouse/old/m1.avro"],
            },
            {
                "snapshot-id": 7,
                "parent-snapshot-id": 6,
                "timestamp-ms": 5_000,
                "manifest-list": "/warehouse/old/l.avro",
                "summary": {"operation": "append"},
            },
        ],
        "snapshot-log": [
            {"timestamp-ms": 4_000, "snapshot-id": 6},
            {"timestamp-ms": 5_000, "snapshot-id": 7},
        ],
    }


UNPARTITIONED = PartitionSpec(spec_id=0)
