import orjson
import pytest

from lakehouse.errors import CommitConflictError, InvalidPartitionSpecError
from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.evolution.update_sort_order import UpdateSortOrder
from lakehouse.spec.metadata.metadata_draft import apply_updates
from lakehouse.spec.metadata.metadata_json import parse
from lakehouse.spec.metadata.table_updates import check_requirements
from tests.unit.spec.samples import table, v1_document


def applied(metadata, builder):
    changes = builder.changes()
    check_requirements(metadata, changes.requirements)
    return apply_updates(metadata, changes.updates, now_ms=2_000)


def fields(metadata):
    return [(field.field_id, field.name, str(field.transform)) for field in metadata.spec().fields]


class TestPartitionSpec:
    def test_adding(self):
        base = table(partition_by=("day(ts)",))
        after = applied(
            base,
            UpdatePartitionSpec(base)
            .add("bucket(16, id)")
            .add("truncate(4, name)")
            .add("place.lat", "lat"),
        )
        assert fields(after) == [
            (1000, "ts_day", "day"),
            (1001, "id_bucket_16", "bucket[16]"),
            (1002, "name_trunc_4", "truncate[4]"),
            (1003, "lat", "identity"),
        ]
        assert after.default_spec_id == 1
        assert after.last_partition_id == 1003
        assert after.spec(0) == base.spec()

    def test_replacing_month_by_day(self):
        base = table(partition_by=("month(ts)", "bucket(8, id)"))
        after = applied(base, UpdatePartitionSpec(base).replace("month(ts)", "day(ts)"))
        assert fields(after) == [(1001, "id_bucket", "bucket[8]"), (1002, "ts_day", "day")]

    def test_an_earlier_field_gets_its_id_and_name_back(self):
        base = table(partition_by=("bucket(8, id)",))
        gone = applied(base, UpdatePartitionSpec(base).remove("id_bucket").add("day(ts)"))
        back = applied(gone, UpdatePartitionSpec(gone).add("bucket(8, id)"))
        assert fields(back) == [(1001, "ts_day", "day"), (1000, "id_bucket", "bucket[8]")]
        renamed = applied(gone, UpdatePartitionSpec(gone).add("bucket(8, id)", "shard"))
        assert fields(renamed)[-1] == (1002, "shard", "bucket[8]")

    def test_ids_are_never_used_twice(self):
        base = table()
        one = applied(base, UpdatePartitionSpec(base).add("day(ts)"))
        none = applied(one, UpdatePartitionSpec(one).remove("day(ts)"))
        assert none.spec().is_unpartitioned()
        assert none.default_spec_id == 0
        other = applied(none, UpdatePartitionSpec(none).add("hour(ts)"))
        assert fields(other) == [(1001, "ts_hour", "hour")]

    def test_going_back_finds_the_earlier_spec(self):
        base = table(partition_by=("day(ts)",))
        there = applied(base, UpdatePartitionSpec(base).remove("ts_day"))
        back = applied(there, UpdatePartitionSpec(there).add("day(ts)"))
        assert back.default_spec_id == 0
        assert len(back.partition_specs) == 2

    def test_renaming(self):
        base = table(partition_by=("day(ts)",))
        after = applied(base, UpdatePartitionSpec(base).rename("day(ts)", "d"))
        assert fields(after) == [(1000, "d", "day")]
        assert not UpdatePartitionSpec(base).rename("ts_day", "ts_day").changes()

    def test_no_change_is_no_commit(self):
        base = table(partition_by=("day(ts)",))
        assert not UpdatePartitionSpec(base).changes()
        assert not UpdatePartitionSpec(base).remove("ts_day").add("day(ts)").changes()
        assert not UpdatePartitionSpec(base).add("id").remove("id").changes()

    @pytest.mark.parametrize(
        "change",
        [
            lambda p: p.add("day(ts)"),
            lambda p: p.add("nope"),
            lambda p: p.add("day(name)"),
            lambda p: p.add("bucket(4, id)", "ts_day"),
            lambda p: p.add("bucket(4, id)", "name"),
            lambda p: p.add("points.element.x"),
            lambda p: p.add("bucket(4, id)").add("bucket(4, id)"),
            lambda p: p.add("month(day)").add("year(day)"),
            lambda p: p.remove("nope"),
            lambda p: p.remove("hour(ts)"),
            lambda p: p.remove("ts_day").remove("ts_day"),
            lambda p: p.rename("nope", "x"),
            lambda p: p.rename("ts_day", ""),
            lambda p: p.rename("ts_day", "id"),
            lambda p: p.replace("ts_day", "nope"),
        ],
    )
    def test_what_cannot_be(self, change):
        builder = UpdatePartitionSpec(table(partition_by=("day(ts)",)))
        with pytest.raises(InvalidPartitionSpecError):
            change(builder)

    def test_a_replacement_that_fails_removes_nothing(self):
        builder = UpdatePartitionSpec(table(partition_by=("day(ts)",)))
        with pytest.raises(InvalidPartitionSpecError):
            builder.replace("ts_day", "nope")
        assert not builder.changes()

    def test_racing_changes_conflict(self):
        base = table()
        first = applied(base, UpdatePartitionSpec(base).add("day(ts)"))
        with pytest.raises(CommitConflictError):
            check_requirements(
                first, UpdatePartitionSpec(base).add("bucket(4, id)").changes().requirements
            )


class TestVersion1:
    def base(self):
        return parse(orjson.dumps(v1_document()), "m")

    def test_removed_fields_stay_as_void(self):
        after = applied(
            self.base(), UpdatePartitionSpec(self.base()).remove("ts_day").add("hour(ts)")
        )
        assert fields(after) == [
            (1000, "ts_day", "void"),
            (1001, "id_b", "bucket[4]"),
            (1002, "ts_hour", "hour"),
        ]

    def test_a_void_gives_its_name_away(self):
        after = applied(
            self.base(), UpdatePartitionSpec(self.base()).remove("ts_day").add("hour(ts)", "ts_day")
        )
        assert fields(after) == [
            (1000, "ts_day_1000", "void"),
            (1001, "id_b", "bucket[4]"),
            (1002, "ts_day", "hour"),
        ]

    def test_removed_and_added_again_is_as_before(self):
        assert not UpdatePartitionSpec(self.base()).remove("ts_day").add("day(ts)").changes()

    def test_the_table_stays_v1_and_keeps_the_void(self):
        metadata = applied(self.base(), UpdatePartitionSpec(self.base()).remove("id_b"))
        assert metadata.format_version == 1
        assert fields(metadata)[1] == (1001, "id_b", "void")


class TestSortOrder:
    def test_set_append_and_clear(self):
        base = table()
        after = applied(base, UpdateSortOrder(base).asc("ts").desc("bucket(4, id)", nulls="first"))
        assert [
            f"{field.transform}({field.source_id}) {field.direction} {field.null_order}"
            for field in after.sort_order().fields
        ] == ["identity(2) ASC NULLS FIRST", "bucket[4](1) DESC NULLS FIRST"]
        assert after.default_sort_order_id == 1
        cleared = applied(after, UpdateSortOrder(after).clear())
        assert cleared.default_sort_order_id == 0
        again = applied(
            cleared, UpdateSortOrder(cleared).set("ts", "bucket(4, id) desc nulls first")
        )
        assert again.default_sort_order_id == 1
        assert len(again.sort_orders) == 2

    def test_an_order_replaces_the_one_before(self):
        base = table(sort_by=("ts",))
        after = applied(base, UpdateSortOrder(base).asc("id"))
        assert [field.source_id for field in after.sort_order().fields] == [1]
        assert after.default_sort_order_id == 2

    def test_no_change_is_no_commit(self):
        base = table(sort_by=("ts",))
        assert not UpdateSortOrder(base).changes()
        assert not UpdateSortOrder(base).asc("ts").changes()

    @pytest.mark.parametrize("term", ["nope", "points", "day(name)", "marks.value.x", "", None])
    def test_what_cannot_be(self, term):
        for change in (
            lambda: UpdateSortOrder(table()).asc(term),
            lambda: UpdateSortOrder(table()).set(term),
        ):
            with pytest.raises(InvalidPartitionSpecError):
                change()

    def test_racing_changes_conflict(self):
        base = table()
        first = applied(base, UpdateSortOrder(base).asc("ts"))
        with pytest.raises(CommitConflictError):
            check_requirements(first, UpdateSortOrder(base).asc("id").changes().requirements)
        with pytest.raises(CommitConflictError):
            check_requirements(first, UpdateSchema(base).drop_column("ts").changes().requirements)
