"""Updates and requirements in REST form are what pyiceberg's REST client and server models take."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

from lakehouse.errors import CorruptMetadataError
from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.evolution.update_sort_order import UpdateSortOrder
from lakehouse.spec.metadata import table_updates as up
from lakehouse.spec.metadata.metadata_json import serialize
from lakehouse.spec.metadata.table_updates import requirement_from_json, update_from_json
from lakehouse.spec.partitioning.partition_terms import sort_order_to_json
from tests.conformance.test_metadata_json import STATISTICS
from tests.unit.spec.samples import UUID, commit, grown, snapshot, table

BASE = grown(table(partition_by=("day(ts)",)), 3)

UPDATES = [
    up.AssignUUID(UUID),
    up.UpgradeFormatVersion(2),
    *UpdateSchema(BASE).add_column("a", "list<struct<x: int>>").changes().updates,
    *UpdatePartitionSpec(BASE).replace("ts_day", "hour(ts)").changes().updates,
    *UpdateSortOrder(BASE).desc("id").changes().updates,
    up.AddSnapshot(snapshot(4, 3)),
    up.SetSnapshotRef("main", 4),
    up.SetSnapshotRef("q3", 2, "tag", max_ref_age_ms=10),
    up.SetStatistics(STATISTICS),
    up.SetPartitionStatistics({"snapshot-id": 3, "statistics-path": "p", "file-size-in-bytes": 5}),
    up.RemoveStatistics(2),
    up.RemovePartitionStatistics(3),
    up.SetProperties({"a": "b"}),
    up.RemoveProperties(("a",)),
    up.RemoveSnapshotRef("q3"),
    up.RemoveSnapshots((1,)),
    up.SetLocation("s3://b/elsewhere"),
]


@pytest.mark.parametrize(
    "update",
    [*UPDATES, up.RemoveSchemas((5,)), up.RemovePartitionSpecs((5,))],
    ids=lambda u: u.action,
)
def test_updates_are_taken(update):
    taken = TypeAdapter(TableUpdate).validate_python(update.to_json())
    assert taken.action == update.action
    assert update_from_json(update.to_json()) == update
    assert update_from_json(taken.model_dump(mode="json", by_alias=True)).action == update.action


@pytest.mark.parametrize(
    "requirement",
    [
        up.AssertCreate(),
        up.AssertTableUUID(UUID),
        up.AssertRefSnapshotId("main", 3),
        up.AssertRefSnapshotId("audit", None),
        up.AssertLastAssignedFieldId(17),
        up.AssertCurrentSchemaId(0),
        up.AssertLastAssignedPartitionId(1000),
        up.AssertDefaultSpecId(0),
        up.AssertDefaultSortOrderId(0),
    ],
    ids=lambda r: r.type,
)
def test_requirements_are_taken(requirement):
    taken = TypeAdapter(TableRequirement).validate_python(requirement.to_json())
    assert taken.model_dump(mode="json") == requirement.to_json()
    assert requirement_from_json(taken.model_dump(mode="json")) == requirement
    if requirement.type != "assert-create":
        taken.validate(TableMetadataUtil.parse_raw(serialize(BASE).decode()))
        up.check_requirements(BASE, [requirement])


def test_the_same_updates_make_the_same_table():
    theirs = update_table_metadata(
        TableMetadataUtil.parse_raw(serialize(BASE).decode()),
        tuple(TypeAdapter(TableUpdate).validate_python(update.to_json()) for update in UPDATES),
        metadata_location="v3.json",
    )
    ours = commit(BASE, *UPDATES, location="v3.json")
    assert theirs.schema() == ours.schema()
    assert theirs.spec() == ours.spec()
    order = theirs.sort_order().model_dump(mode="json")
    assert order == sort_order_to_json(ours.sort_order())
    assert theirs.location == ours.location
    assert theirs.properties == ours.properties
    assert theirs.current_snapshot_id == ours.current_snapshot_id == 4
    assert theirs.last_sequence_number == ours.last_sequence_number
    assert (theirs.last_column_id, theirs.last_partition_id) == (
        ours.last_column_id,
        ours.last_partition_id,
    )
    assert set(theirs.refs) == set(ours.refs) == {"main"}
    assert (
        [s.snapshot_id for s in theirs.snapshots]
        == [s.snapshot_id for s in ours.snapshots]
        == [2, 3, 4]
    )
    assert [e.metadata_file for e in theirs.metadata_log] == [
        e.metadata_file for e in ours.metadata_log
    ]


@pytest.mark.parametrize(
    ("read", "document"),
    [
        (update_from_json, {"action": "add-colour", "colour": "red"}),
        (update_from_json, {"action": "set-current-schema"}),
        (update_from_json, {"action": "remove-properties", "removals": [1]}),
        (update_from_json, ["add-snapshot"]),
        (requirement_from_json, {"type": "assert-full-moon"}),
        (requirement_from_json, {"type": "assert-table-uuid"}),
    ],
)
def test_what_is_unknown_or_incomplete_is_refused(read, document):
    with pytest.raises(CorruptMetadataError):
        read(document)
