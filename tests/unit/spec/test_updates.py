"""Folding updates into metadata."""

from dataclasses import replace

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, UnknownTransform
from pyiceberg.types import LongType, NestedField, StringType, UnknownType

from lakehouse.errors import (
    CommitConflictError,
    InvalidInputError,
    InvalidPartitionSpecError,
    InvalidPropertyError,
    InvalidSchemaError,
    NoSuchRefError,
    NoSuchSnapshotError,
)
from lakehouse.spec.metadata import table_updates as up
from lakehouse.spec.metadata.metadata_draft import apply_updates, expired_metadata_files
from lakehouse.spec.metadata.snapshot import SnapshotLogEntry, SnapshotRef
from lakehouse.spec.partitioning.partition_terms import parse_sort_order
from lakehouse.spec.partitioning.sort_order import SortOrder
from tests.unit.spec.samples import UUID, commit, grown, snapshot, table


def log(metadata):
    return [(entry.timestamp_ms, entry.snapshot_id) for entry in metadata.snapshot_log]


class TestSnapshots:
    def test_append_moves_main_and_everything_that_goes_with_it(self):
        after = grown(table(), 2)
        assert after.current_snapshot_id == 2
        assert after.last_sequence_number == 2
        assert after.last_updated_ms == 1_020
        assert log(after) == [(1_010, 1), (1_020, 2)]
        assert after.refs == {"main": SnapshotRef(2)}
        assert [item.snapshot_id for item in after.ancestors(2)] == [2, 1]

    def test_the_base_is_not_changed(self):
        base = grown(table(), 1)
        before = replace(base)
        grown(base, 3, start=5)
        assert base == before
        assert len(base.snapshots) == 1

    def test_a_staged_snapshot_is_in_no_log(self):
        after = commit(grown(table(), 1), up.AddSnapshot(snapshot(2, 1)))
        assert after.current_snapshot_id == 1
        assert log(after) == [(1_010, 1)]
        assert after.snapshot(2).parent_snapshot_id == 1

    def test_a_clock_behind_the_parent_does_not_take_history_back(self):
        base = grown(table(), 1)
        late = commit(
            base, up.AddSnapshot(snapshot(2, 1, at=3)), up.SetSnapshotRef("main", 2), now=3
        )
        assert late.snapshot(2).timestamp_ms == 1_010
        assert late.last_updated_ms == 1_010
        assert log(late) == [(1_010, 1), (1_010, 2)]
        assert late.next_timestamp_ms(5, 2) == 1_010
        assert late.next_timestamp_ms(2_000, 2) == 2_000

    def test_only_the_last_of_several_snapshots_in_one_commit_is_logged(self):
        after = commit(
            table(),
            up.AddSnapshot(snapshot(1)),
            up.SetSnapshotRef("main", 1),
            up.AddSnapshot(snapshot(2, 1)),
            up.SetSnapshotRef("main", 2),
        )
        assert log(after) == [(1_020, 2)]

    @pytest.mark.parametrize("number", [1, 2])
    def test_a_taken_id_or_sequence_number_is_a_conflict(self, number):
        base = grown(table(), 2)
        with pytest.raises(CommitConflictError):
            commit(base, up.AddSnapshot(replace(snapshot(number, 1), snapshot_id=99)))
        with pytest.raises(CommitConflictError):
            commit(base, up.AddSnapshot(replace(snapshot(9, 1), snapshot_id=number)))

    @pytest.mark.parametrize("parent", [None, 1])
    @pytest.mark.parametrize(
        ("wrong", "words"),
        [({"schema_id": 7}, "schema 7, which"), ({"sequence_number": -1}, "sequence number -1")],
    )
    def test_no_schema_or_no_sequence_number_is_refused(self, parent, wrong, words):
        base = grown(table(), 1)
        added = replace(snapshot(9, parent), snapshot_id=99)
        commit(base, up.AddSnapshot(replace(added, schema_id=0)))
        with pytest.raises(InvalidInputError, match=words):
            commit(base, up.AddSnapshot(replace(added, **wrong)))

    def test_rollback_is_logged_with_the_time_of_the_change(self):
        after = commit(grown(table(), 3), up.SetSnapshotRef("main", 1), now=5_000)
        assert after.current_snapshot_id == 1
        assert log(after)[-1] == (5_000, 1)
        assert after.snapshot_as_of(4_999).snapshot_id == 3
        assert after.snapshot_as_of(5_000).snapshot_id == 1

    def test_the_same_ref_again_changes_nothing(self):
        base = grown(table(), 2)
        assert commit(base, up.SetSnapshotRef("main", 2), now=9_999) is base


class TestRemovingSnapshots:
    def test_history_before_a_gap_is_removed(self):
        base = grown(table(), 4)
        after = commit(base, up.RemoveSnapshots((2,)), now=9_000)
        assert log(after) == [(1_030, 3), (1_040, 4)]
        assert [item.snapshot_id for item in after.snapshots] == [1, 3, 4]
        with pytest.raises(NoSuchSnapshotError):
            after.snapshot_as_of(1_010)
        with pytest.raises(NoSuchSnapshotError):
            after.snapshot(2)

    def test_after_a_rollback_the_state_rolled_back_to_is_still_answered(self):
        base = commit(grown(table(), 3), up.SetSnapshotRef("main", 1), now=5_000)
        after = commit(base, up.RemoveSnapshots((2, 3)), now=6_000)
        assert log(after) == [(5_000, 1)]
        assert after.current_snapshot().snapshot_id == 1

    def test_a_snapshot_that_was_never_current_leaves_the_log_alone(self):
        base = commit(grown(table(), 2), up.AddSnapshot(snapshot(3, 2)))
        assert log(commit(base, up.RemoveSnapshots((3,)))) == log(base)

    def test_statistics_go_with_their_snapshot(self):
        base = grown(table(), 2)
        for number in (1, 2):
            document = {"snapshot-id": number, "statistics-path": "x", "file-size-in-bytes": 1}
            base = commit(base, up.SetStatistics(document), up.SetPartitionStatistics(document))
        after = commit(base, up.RemoveSnapshots((1,)))
        assert [item["snapshot-id"] for item in after.statistics] == [2]
        assert [item["snapshot-id"] for item in after.partition_statistics] == [2]
        after = commit(after, up.RemoveStatistics(2), up.RemovePartitionStatistics(2))
        assert after.statistics == after.partition_statistics == ()

    def test_a_snapshot_that_a_ref_names_is_kept_as_a_conflict(self):
        base = commit(grown(table(), 3), up.SetSnapshotRef("q3", 1, "tag"))
        with pytest.raises(CommitConflictError, match="q3") as caught:
            commit(base, up.RemoveSnapshots((1, 2)))
        assert caught.value.context["ref"] == "q3"
        after = commit(base, up.RemoveSnapshots((1,)), up.RemoveSnapshotRef("q3"))
        assert set(after.refs) == {"main"}

    def test_an_unknown_id_is_nothing(self):
        base = grown(table(), 2)
        assert commit(base, up.RemoveSnapshots((77,)), now=9_999) is base

    def test_removing_main_leaves_no_current_snapshot(self):
        after = commit(grown(table(), 1), up.RemoveSnapshotRef("main"))
        assert after.current_snapshot() is None
        with pytest.raises(NoSuchRefError):
            after.ref("main")


class TestRefs:
    def test_branches_and_tags_with_retention(self):
        after = commit(
            grown(table(), 3),
            up.SetSnapshotRef("audit", 2, "branch", 5, 10, 20),
            up.SetSnapshotRef("q3", 1, "tag", max_ref_age_ms=7),
        )
        assert after.refs["audit"] == SnapshotRef(2, "branch", 5, 10, 20)
        assert after.snapshot_for_ref("q3").snapshot_id == 1
        assert after.current_snapshot_id == 3
        assert after.snapshot_as_of(1_015, "audit").snapshot_id == 1

    def test_a_ref_needs_its_snapshot(self):
        with pytest.raises(NoSuchSnapshotError):
            commit(grown(table(), 1), up.SetSnapshotRef("x", 5))

    @pytest.mark.parametrize("name", ["", " a", "a\n", None])
    def test_names(self, name):
        with pytest.raises(InvalidInputError):
            commit(grown(table(), 1), up.SetSnapshotRef(name, 1))

    def test_main_cannot_become_a_tag_and_tags_have_no_branch_retention(self):
        with pytest.raises(InvalidInputError):
            commit(grown(table(), 1), up.SetSnapshotRef("main", 1, "tag"))
        with pytest.raises(InvalidInputError):
            commit(grown(table(), 1), up.SetSnapshotRef("t", 1, "tag", min_snapshots_to_keep=1))
        with pytest.raises(InvalidInputError):
            commit(grown(table(), 1), up.SetSnapshotRef("b", 1, "branch", min_snapshots_to_keep=0))


class TestSchemas:
    wider = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(40, "new", StringType()),
        schema_id=3,
    )

    def test_a_new_schema_gets_the_next_id_and_raises_last_column_id(self):
        base = table()
        after = commit(base, up.AddSchema(self.wider), up.SetCurrentSchema())
        assert after.current_schema_id == 1
        assert after.last_column_id == 40
        assert after.schema(0) == base.schema()

    def test_an_equal_schema_is_found_again(self):
        base = commit(table(), up.AddSchema(self.wider), up.SetCurrentSchema())
        after = commit(base, up.AddSchema(base.schema(0)), up.SetCurrentSchema())
        assert after.current_schema_id == 0
        assert len(after.schemas) == 2

    def test_last_column_id_never_goes_down(self):
        base = commit(table(), up.AddSchema(self.wider), up.SetCurrentSchema())
        narrow = Schema(NestedField(1, "id", LongType(), required=True))
        assert commit(base, up.AddSchema(narrow), up.SetCurrentSchema()).last_column_id == 40

    def test_the_current_schema_must_serve_spec_and_order(self):
        no_ts = Schema(NestedField(1, "id", LongType(), required=True))
        with pytest.raises(InvalidPartitionSpecError):
            commit(table(partition_by=("day(ts)",)), up.AddSchema(no_ts), up.SetCurrentSchema())
        with pytest.raises(InvalidPartitionSpecError):
            commit(table(sort_by=("ts",)), up.AddSchema(no_ts), up.SetCurrentSchema())

    def test_types_of_a_later_version_and_reserved_ids_are_refused(self):
        with pytest.raises(InvalidSchemaError, match="version 3"):
            commit(
                table(),
                up.AddSchema(Schema(NestedField(1, "u", UnknownType()))),
                up.SetCurrentSchema(),
            )
        with pytest.raises(InvalidSchemaError, match="reserved"):
            commit(table(), up.AddSchema(Schema(NestedField(2**31 - 1, "u", LongType()))))

    def test_removing(self):
        base = commit(table(), up.AddSchema(self.wider), up.SetCurrentSchema())
        assert [s.schema_id for s in commit(base, up.RemoveSchemas((0,))).schemas] == [1]
        with pytest.raises(InvalidSchemaError):
            commit(base, up.RemoveSchemas((1,)))

    def test_last_added_needs_one_added(self):
        for update in (up.SetCurrentSchema(), up.SetDefaultSpec(), up.SetDefaultSortOrder()):
            with pytest.raises(InvalidInputError):
                commit(table(), update)


class TestSpecsAndOrders:
    def test_a_new_spec_gets_the_next_id(self):
        spec = PartitionSpec(PartitionField(2, 1000, DayTransform(), "ts_day"), spec_id=9)
        after = commit(table(), up.AddPartitionSpec(spec), up.SetDefaultSpec())
        assert after.default_spec_id == 1
        assert after.last_partition_id == 1000
        assert after.spec(0).is_unpartitioned()
        back = commit(after, up.SetDefaultSpec(0), up.RemovePartitionSpecs((1,)))
        assert list(back.specs()) == [0]
        assert back.last_partition_id == 1000

    def test_an_equivalent_spec_is_found_again(self):
        base = table(partition_by=("day(ts)",))
        assert (
            commit(
                base, up.AddPartitionSpec(replace_id(base.spec(), 5)), up.SetDefaultSpec(), now=9
            )
            is base
        )

    def test_a_field_id_is_never_given_to_another_field(self):
        stolen = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "b"), spec_id=1)
        with pytest.raises(InvalidPartitionSpecError, match="1000"):
            commit(table(partition_by=("day(ts)",)), up.AddPartitionSpec(stolen))

    @pytest.mark.parametrize(
        "field",
        [
            PartitionField(99, 1000, IdentityTransform(), "x"),
            PartitionField(3, 1000, DayTransform(), "x"),
            PartitionField(6, 1000, IdentityTransform(), "x"),
            PartitionField(11, 1000, IdentityTransform(), "x"),
            PartitionField(1, 1000, UnknownTransform("zorder"), "x"),
        ],
    )
    def test_fields_that_cannot_be_computed_are_refused(self, field):
        with pytest.raises(InvalidPartitionSpecError):
            commit(
                table(), up.AddPartitionSpec(PartitionSpec(field, spec_id=1)), up.SetDefaultSpec()
            )

    def test_sort_orders(self):
        order = parse_sort_order(["id"], table().schema())
        after = commit(table(), up.AddSortOrder(order), up.SetDefaultSortOrder())
        assert after.default_sort_order_id == 1
        again = commit(after, up.AddSortOrder(SortOrder(order_id=0)), up.SetDefaultSortOrder())
        assert again.default_sort_order_id == 0
        assert again.sort_order(1).fields == order.fields


def replace_id(spec, spec_id):
    return PartitionSpec(*spec.fields, spec_id=spec_id)


class TestTable:
    def test_properties(self):
        after = commit(
            table(), up.SetProperties({"a": "1", "b": "2"}), up.RemoveProperties(("a", "zz"))
        )
        assert after.properties == {"b": "2"}
        assert (
            commit(after, up.SetProperties({"b": "2"}), up.RemoveProperties(("zz",)), now=9_999)
            is after
        )

    @pytest.mark.parametrize(
        "bad",
        [
            {"format-version": "3"},
            {"current-snapshot-id": "1"},
            {"write.target-file-size-bytes": "many"},
            {"gc.enabled": "maybe"},
            {"a": None},
            {"a": 5},
            {"write.metadata.metrics.column.x": "some"},
        ],
    )
    def test_unusable_properties_are_refused(self, bad):
        with pytest.raises(InvalidPropertyError):
            commit(table(), up.SetProperties(bad))

    def test_location(self):
        assert commit(table(), up.SetLocation("s3://b/new/")).location == "s3://b/new"
        with pytest.raises(InvalidInputError):
            commit(table(), up.SetLocation(""))

    def test_versions_only_rise(self):
        after = commit(grown(table(), 1), up.UpgradeFormatVersion(3))
        assert (after.format_version, after.next_row_id) == (3, 0)
        with pytest.raises(InvalidInputError):
            commit(after, up.UpgradeFormatVersion(2))
        with pytest.raises(InvalidInputError):
            commit(after, up.UpgradeFormatVersion(4))

    def test_the_uuid_stays(self):
        assert commit(table(), up.AssignUUID(UUID.upper())).table_uuid == UUID
        with pytest.raises(InvalidInputError):
            commit(table(), up.AssignUUID("11111111-03fe-4693-9a96-a0705ddf69c1"))

    def test_row_ids_of_v3(self):
        base = grown(table(version=3), 2)
        assert base.next_row_id == 20
        with pytest.raises(CommitConflictError):
            commit(base, up.AddSnapshot(replace(snapshot(3, 2, version=3), first_row_id=19)))
        with pytest.raises(InvalidInputError):
            commit(base, up.AddSnapshot(snapshot(3, 2)))
        ahead = commit(
            base, up.AddSnapshot(replace(snapshot(3, 2, version=3), first_row_id=100, added_rows=5))
        )
        assert ahead.next_row_id == 105

    def test_time_never_goes_back(self):
        base = grown(table(), 3)
        after = commit(base, up.SetProperties({"a": "b"}), now=7)
        assert after.last_updated_ms == base.last_updated_ms

    def test_the_metadata_log_keeps_the_newest(self):
        metadata = table(properties={"write.metadata.previous-versions-max": "3"})
        for number in range(6):
            before = metadata
            metadata = commit(
                metadata,
                up.SetProperties({"n": str(number)}),
                now=2_000 + number,
                location=f"v{number}.json",
            )
        assert [entry.metadata_file for entry in metadata.metadata_log] == [
            "v3.json",
            "v4.json",
            "v5.json",
        ]
        assert metadata.metadata_log[-1].timestamp_ms == before.last_updated_ms
        assert expired_metadata_files(before, metadata) == ["v2.json"]

    def test_the_metadata_log_keeps_at_least_one(self):
        metadata = table(properties={"write.metadata.previous-versions-max": "0"})
        metadata = commit(metadata, up.SetProperties({"n": "1"}), location="v1.json")
        assert [entry.metadata_file for entry in metadata.metadata_log] == ["v1.json"]

    def test_a_table_made_of_updates(self):
        wanted = table(version=3, partition_by=("day(ts)",), sort_by=("ts",))
        made = apply_updates(
            None,
            [
                up.AssignUUID(UUID),
                up.UpgradeFormatVersion(3),
                up.SetLocation(wanted.location),
                up.AddSchema(wanted.schema()),
                up.SetCurrentSchema(),
                up.AddPartitionSpec(wanted.spec()),
                up.SetDefaultSpec(),
                up.AddSortOrder(wanted.sort_order()),
                up.SetDefaultSortOrder(),
            ],
            now_ms=1_000,
        )
        assert replace(made, sort_orders=wanted.sort_orders) == wanted

    def test_a_table_half_made_is_refused(self):
        with pytest.raises((InvalidInputError, InvalidSchemaError)):
            apply_updates(None, [up.AssignUUID(UUID)], now_ms=1)


class TestRequirements:
    @pytest.mark.parametrize(
        "requirement",
        [
            up.AssertCreate(),
            up.AssertTableUUID("11111111-03fe-4693-9a96-a0705ddf69c1"),
            up.AssertRefSnapshotId("main", 1),
            up.AssertRefSnapshotId("main", None),
            up.AssertRefSnapshotId("audit", 1),
            up.AssertLastAssignedFieldId(3),
            up.AssertCurrentSchemaId(3),
            up.AssertLastAssignedPartitionId(3),
            up.AssertDefaultSpecId(3),
            up.AssertDefaultSortOrderId(3),
        ],
    )
    def test_what_does_not_hold_is_a_conflict(self, requirement):
        with pytest.raises(CommitConflictError) as caught:
            up.check_requirements(grown(table(), 2), [requirement])
        assert caught.value.context["requirement"] == requirement.to_json()["type"]

    def test_what_holds_passes(self):
        metadata = grown(table(), 2)
        up.check_requirements(
            metadata,
            [
                up.AssertTableUUID(UUID.upper()),
                up.AssertRefSnapshotId("main", 2),
                up.AssertRefSnapshotId("audit", None),
                up.AssertLastAssignedFieldId(metadata.last_column_id),
                up.AssertCurrentSchemaId(0),
                up.AssertLastAssignedPartitionId(999),
                up.AssertDefaultSpecId(0),
                up.AssertDefaultSortOrderId(0),
            ],
        )
        up.check_requirements(None, [up.AssertCreate()])

    def test_without_a_table_only_creation_holds(self):
        for requirement in (
            up.AssertTableUUID(UUID),
            up.AssertRefSnapshotId("main", None),
            up.AssertDefaultSpecId(0),
        ):
            with pytest.raises(CommitConflictError):
                up.check_requirements(None, [requirement])


def test_a_long_log_is_answered_in_its_order():
    metadata = grown(table(), 3)
    assert metadata.snapshot_log[1] == SnapshotLogEntry(1_020, 2)
    assert metadata.snapshot_as_of(1_029).snapshot_id == 2
    with pytest.raises(NoSuchSnapshotError):
        metadata.snapshot_as_of(1_009)
    with pytest.raises(NoSuchSnapshotError):
        table().snapshot_as_of(10**15)
