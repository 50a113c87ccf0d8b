"""pyiceberg's parser reads our table metadata alike, and we read pyiceberg's."""

from __future__ import annotations

import json

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.metadata import new_table_metadata as pyiceberg_new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import (
    NestedField,
    StringType,
    TimestampNanoType,
    TimestamptzNanoType,
    UnknownType,
)

from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.evolution.update_sort_order import UpdateSortOrder
from lakehouse.spec.metadata.metadata_json import parse, serialize
from lakehouse.spec.metadata.table_updates import (
    RemoveSnapshots,
    SetPartitionStatistics,
    SetProperties,
    SetSnapshotRef,
    SetStatistics,
    UpgradeFormatVersion,
)
from lakehouse.spec.partitioning.partition_terms import (
    parse_partition_spec,
    parse_sort_order,
    sort_order_to_json,
)
from tests.unit.spec.samples import commit, grown, schema, table, v1_document

STATISTICS = {
    "snapshot-id": 2,
    "statistics-path": "s3://b/s.puffin",
    "file-size-in-bytes": 413,
    "file-footer-size-in-bytes": 42,
    "blob-metadata": [
        {
            "type": "apache-datasketches-theta-v1",
            "snapshot-id": 2,
            "sequence-number": 2,
            "fields": [1],
            "properties": {"ndv": "3"},
        }
    ],
}


def lived(version):
    """A table with something in every section."""
    metadata = grown(
        table(version=version, partition_by=("month(ts)", "bucket(8, id)"), sort_by=("ts desc",)), 5
    )
    metadata = commit(
        metadata,
        SetProperties({"owner": "ü", "write.metadata.previous-versions-max": "2"}),
        location="v1.json",
    )
    metadata = commit(
        metadata,
        *UpdateSchema(metadata)
        .add_column("device", "string")
        .drop_column("place.lat")
        .changes()
        .updates,
        location="v2.json",
    )
    metadata = commit(
        metadata,
        *UpdatePartitionSpec(metadata).replace("month(ts)", "day(ts)").changes().updates,
        location="v3.json",
    )
    metadata = commit(
        metadata, *UpdateSortOrder(metadata).asc("id", nulls="last").changes().updates
    )
    metadata = commit(
        metadata,
        SetSnapshotRef("q3", 2, "tag", max_ref_age_ms=10),
        SetSnapshotRef("audit", 3, "branch", 2, 20, 30),
        SetStatistics(STATISTICS),
        SetPartitionStatistics({"snapshot-id": 3, "statistics-path": "p", "file-size-in-bytes": 5}),
        RemoveSnapshots((1,)),
    )
    return grown(metadata, 1, start=6)


def assert_same_meaning(ours, theirs):
    assert str(theirs.table_uuid) == ours.table_uuid
    assert theirs.location == ours.location
    assert theirs.last_updated_ms == ours.last_updated_ms
    assert theirs.last_column_id == ours.last_column_id
    assert theirs.last_partition_id == ours.last_partition_id
    assert tuple(theirs.schemas) == ours.schemas
    assert [s.schema_id for s in theirs.schemas] == [s.schema_id for s in ours.schemas]
    assert theirs.current_schema_id == ours.current_schema_id
    assert tuple(theirs.partition_specs) == ours.partition_specs
    assert theirs.default_spec_id == ours.default_spec_id
    assert [order.model_dump(mode="json") for order in theirs.sort_orders] == [
        sort_order_to_json(order) for order in ours.sort_orders
    ]
    assert theirs.default_sort_order_id == ours.default_sort_order_id
    assert theirs.properties == ours.properties
    assert theirs.current_snapshot_id == ours.current_snapshot_id
    assert [
        (s.snapshot_id, s.parent_snapshot_id, s.timestamp_ms, s.schema_id) for s in theirs.snapshots
    ] == [
        (s.snapshot_id, s.parent_snapshot_id, s.timestamp_ms, s.schema_id) for s in ours.snapshots
    ]
    assert [(e.timestamp_ms, e.snapshot_id) for e in theirs.snapshot_log] == [
        (e.timestamp_ms, e.snapshot_id) for e in ours.snapshot_log
    ]
    assert [(e.timestamp_ms, e.metadata_file) for e in theirs.metadata_log] == [
        (e.timestamp_ms, e.metadata_file) for e in ours.metadata_log
    ]
    assert {
        n: (r.snapshot_id, r.snapshot_ref_type.value, r.max_ref_age_ms, r.min_snapshots_to_keep)
        for n, r in theirs.refs.items()
    } == {
        n: (r.snapshot_id, r.type, r.max_ref_age_ms, r.min_snapshots_to_keep)
        for n, r in ours.refs.items()
    }
    if ours.format_version > 1:
        assert theirs.last_sequence_number == ours.last_sequence_number
        assert [s.sequence_number for s in theirs.snapshots] == [
            s.sequence_number for s in ours.snapshots
        ]
        assert [s.manifest_list for s in theirs.snapshots] == [
            s.manifest_list for s in ours.snapshots
        ]
        assert [dict(s.summary.additional_properties) for s in theirs.snapshots] == [
            {k: v for k, v in s.summary.items() if k != "operation"} for s in ours.snapshots
        ]


@pytest.mark.parametrize("version", [2, 3])
def test_pyiceberg_reads_what_we_write(version):
    ours = lived(version)
    theirs = TableMetadataUtil.parse_raw(serialize(ours).decode())
    assert theirs.format_version == version
    assert_same_meaning(ours, theirs)
    assert [s.model_dump() for s in theirs.statistics] == [STATISTICS]
    assert theirs.partition_statistics[0].snapshot_id == 3
    if version == 3:
        assert theirs.next_row_id == ours.next_row_id == 60


def test_we_read_what_pyiceberg_writes():
    theirs = TableMetadataUtil.parse_raw(serialize(lived(2)).decode())
    text = theirs.model_dump_json().encode()
    ours = parse(text, "m")
    assert_same_meaning(ours, theirs)
    assert ours == parse(serialize(lived(2)), "m")


def test_a_new_table_is_the_one_that_pyiceberg_makes():
    columns = schema()
    spec = parse_partition_spec(("day(ts)", "bucket(16, id)", "place.lat"), columns)
    order = sort_order_to_json(parse_sort_order(("ts desc", "id"), columns))
    their_order = SortOrder.model_validate(order)
    theirs = pyiceberg_new_table_metadata(
        columns, spec, their_order, "s3://bucket/warehouse/raw/events", {}
    )
    ours = table(partition_by=("day(ts)", "bucket(16, id)", "place.lat"), sort_by=("ts desc", "id"))
    assert ours.schema() == theirs.schema()
    assert ours.spec() == theirs.spec()
    assert sort_order_to_json(ours.sort_order()) == theirs.sort_order().model_dump(mode="json")
    assert (ours.last_column_id, ours.last_partition_id) == (
        theirs.last_column_id,
        theirs.last_partition_id,
    )


def test_v1_means_the_same_to_both():
    document = v1_document()
    for position, item in enumerate(document["partition-spec"]):
        item["field-id"] = 1000 + position
    document["snapshots"] = [{**document["snapshots"][1], "schema-id": 0}]
    document["snapshot-log"] = document["snapshot-log"][1:]
    ours = parse(json.dumps(document).encode(), "m")
    assert_same_meaning(ours, TableMetadataUtil.parse_raw(json.dumps(document)))
    assert_same_meaning(ours, TableMetadataUtil.parse_raw(serialize(ours).decode()))
    upgraded = commit(ours, SetProperties({"a": "b"}))
    assert_same_meaning(upgraded, TableMetadataUtil.parse_raw(serialize(upgraded).decode()))


def test_v3_types_and_an_upgrade_in_place():
    wide = Schema(
        NestedField(1, "n", TimestampNanoType()),
        NestedField(2, "z", TimestamptzNanoType()),
        NestedField(3, "u", UnknownType()),
        NestedField(4, "s", StringType(), initial_default="x", write_default="y"),
    )
    base = commit(grown(table(), 2), UpgradeFormatVersion(3))
    metadata = commit(
        base,
        *UpdateSchema(base)
        .union_by_name(wide)
        .add_column("d", "date", default="2020-01-02")
        .changes()
        .updates,
    )
    theirs = TableMetadataUtil.parse_raw(serialize(metadata).decode())
    assert_same_meaning(metadata, theirs)
    assert str(theirs.schema().find_field("d").initial_default) == "2020-01-02"


def test_an_empty_table_is_read_too():
    theirs = TableMetadataUtil.parse_raw(serialize(table()).decode())
    assert_same_meaning(table(), theirs)
    assert theirs.current_snapshot() is None
    assert theirs.spec() == PartitionSpec(spec_id=0)
    assert theirs.sort_order() == SortOrder(order_id=0)
