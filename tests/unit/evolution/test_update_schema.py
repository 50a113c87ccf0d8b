import datetime as dt
from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    UnknownType,
)

from lakehouse.errors import CommitConflictError, InvalidSchemaError
from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.lake import load_catalog
from lakehouse.spark.catalog.staged_tables import replaced_table
from lakehouse.spec.metadata.metadata_draft import apply_updates
from lakehouse.spec.metadata.table_metadata import new_table_metadata
from lakehouse.spec.metadata.table_updates import check_requirements
from lakehouse.spec.partitioning.partition_terms import parse_partition_spec, parse_sort_order
from lakehouse.spec.schema.schema_json import schema_to_json
from lakehouse.spec.types.arrow_types import schema_from_arrow
from tests.unit.spec.samples import UUID, table


def applied(metadata, changes):
    check_requirements(metadata, changes.requirements)
    return apply_updates(metadata, changes.updates, now_ms=2_000)


def evolved(change, metadata=None):
    metadata = metadata or table()
    builder = UpdateSchema(metadata)
    change(builder)
    return applied(metadata, builder.changes())


def names(metadata):
    return [field.name for field in metadata.schema().fields]


class TestAdd:
    def test_at_the_end_with_the_next_id(self):
        base = table()
        after = evolved(
            lambda s: s.add_column("device", "string", doc="which").add_column("n", pa.int16()),
            base,
        )
        device, n = after.schema().fields[-2:]
        assert (device.field_id, device.required, device.doc) == (
            base.last_column_id + 1,
            False,
            "which",
        )
        assert (n.field_id, n.field_type) == (base.last_column_id + 2, IntegerType())
        assert after.last_column_id == base.last_column_id + 2
        assert after.current_schema_id == 1
        assert after.schema(0) == base.schema()

    @pytest.mark.parametrize(
        "path",
        [
            "place.alt",
            ("place", "alt"),
            "points.element.alt",
            "points.alt",
            "marks.value.alt",
            "marks.alt",
        ],
    )
    def test_into_structs_at_any_depth(self, path):
        after = evolved(lambda s: s.add_column(path, "double"))
        full = {
            "place.alt": "place.alt",
            "points.alt": "points.element.alt",
            "marks.alt": "marks.value.alt",
        }
        path = ".".join(path) if isinstance(path, tuple) else path
        assert after.schema().find_type(full.get(path, path)) == DoubleType()

    def test_nested_types_get_ids_of_their_own(self):
        base = table()
        given = StructType(
            NestedField(1, "a", ListType(1, LongType())),
            NestedField(1, "b", MapType(2, StringType(), 3, LongType())),
        )
        after = evolved(lambda s: s.add_column("extra", given), base)
        added = {i for i in after.schema().field_ids if i > base.last_column_id}
        assert len(added) == 6
        assert base.schema().field_ids <= after.schema().field_ids

    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("id", "already"),
            ("place.lat", "already"),
            ("nope.x", "no struct"),
            ("id.x", "no struct"),
            ("", "name"),
            ((), "name"),
        ],
    )
    def test_where_it_cannot_go(self, path, reason):
        with pytest.raises(InvalidSchemaError, match=reason):
            UpdateSchema(table()).add_column(path, "int")

    def test_a_name_with_a_dot_is_given_as_a_sequence(self):
        after = evolved(lambda s: s.add_column(("a.b",), "int"))
        assert names(after)[-1] == "a.b"
        assert "c" in names(evolved(lambda s: s.rename_column("a.b", "c"), after))

    def test_required_needs_a_default_and_defaults_need_v3(self):
        with pytest.raises(InvalidSchemaError, match="default"):
            UpdateSchema(table(version=3)).add_column("n", "int", required=True)
        with pytest.raises(InvalidSchemaError, match="version 3"):
            UpdateSchema(table()).add_column("n", "int", default=5)
        after = evolved(
            lambda s: s.add_column("n", "int", required=True, default=5), table(version=3)
        )
        field = after.schema().find_field("n")
        assert (field.required, field.initial_default, field.write_default) == (True, 5, 5)
        with pytest.raises(InvalidSchemaError):
            UpdateSchema(table(version=3)).add_column("n", "int", default="five")

    def test_types_of_v3_in_v2_are_refused(self):
        for kind in ("timestamp_ns", "unknown", "variant", "geometry"):
            with pytest.raises(InvalidSchemaError, match="version 3"):
                evolved(lambda s, kind=kind: s.add_column("n", kind))
            assert (
                evolved(lambda s, kind=kind: s.add_column("n", kind), table(version=3))
                .schema()
                .find_field("n")
            )

    def test_map_keys_cannot_grow(self):
        keyed = table_of(
            NestedField(
                1, "m", MapType(2, StructType(NestedField(3, "k", LongType())), 4, LongType())
            )
        )
        for change in (
            lambda s: s.add_column("m.key.x", "int"),
            lambda s: s.drop_column("m.key.k"),
            lambda s: s.rename_column("m.key.k", "z"),
            lambda s: s.update_column("m.key.k", doc="x"),
            lambda s: s.move_first("m.key.k"),
        ):
            with pytest.raises(InvalidSchemaError, match="key"):
                change(UpdateSchema(keyed))


def table_of(*fields, version=2, partition_by=(), sort_by=(), identifiers=()):
    schema = Schema(*fields, identifier_field_ids=list(identifiers))
    spec, order = parse_partition_spec(partition_by, schema), parse_sort_order(sort_by, schema)
    return new_table_metadata(schema, spec, order, "/t", {}, version, UUID, 1_000)


class TestDropAndRename:
    def test_a_dropped_column_never_comes_back_under_its_id(self):
        base = table()
        old = base.schema().find_field("name").field_id
        after = evolved(lambda s: s.drop_column("name").add_column("name", "string"), base)
        assert after.schema().find_field("name").field_id == base.last_column_id + 1 != old
        gone = evolved(lambda s: s.drop_column("name"), base)
        assert (
            evolved(lambda s: s.add_column("name", "string"), gone)
            .schema()
            .find_field("name")
            .field_id
            > old
        )
        assert gone.last_column_id == base.last_column_id

    def test_the_last_id_survives_dropping_the_newest_column(self):
        base = evolved(lambda s: s.add_column("x", "int"))
        gone = evolved(lambda s: s.drop_column("x"), base)
        again = evolved(lambda s: s.add_column("y", "int"), gone)
        assert again.schema().find_field("y").field_id == base.last_column_id + 1

    def test_names_can_be_swapped(self):
        base = table()
        after = evolved(
            lambda s: (
                s.rename_column("name", "tmp")
                .rename_column("price", "name")
                .rename_column("tmp", "price")
            ),
            base,
        )
        assert (
            after.schema().find_field("name").field_id == base.schema().find_field("price").field_id
        )
        assert names(after)[2:4] == ["price", "name"]

    @pytest.mark.parametrize("path", ["place.lat", "points.element.x", "marks.value.x", "points.x"])
    def test_nested(self, path):
        base = table()
        renamed = evolved(lambda s: s.rename_column(path, "z"), base)
        assert renamed.schema().find_field(base.schema().find_field(path).field_id).name == "z"
        dropped = evolved(lambda s: s.drop_column(path), base)
        assert base.schema().find_field(path).field_id not in dropped.schema().field_ids

    @pytest.mark.parametrize(
        "path", ["points.element", "marks.key", "marks.value", "nope", "place.nope", ""]
    )
    def test_what_is_no_column_is_refused(self, path):
        for change in (
            lambda s: s.drop_column(path),
            lambda s: s.rename_column(path, "z"),
            lambda s: s.move_first(path),
        ):
            with pytest.raises(InvalidSchemaError):
                change(UpdateSchema(table()))

    def test_columns_in_use_are_kept(self):
        used = table_of(
            NestedField(1, "ts", TimestamptzType()),
            NestedField(
                2, "s", StructType(NestedField(3, "k", LongType()), NestedField(4, "o", LongType()))
            ),
            NestedField(5, "i", LongType(), required=True),
            NestedField(6, "free", LongType()),
            partition_by=("day(ts)",),
            sort_by=("s.k",),
            identifiers=[5],
        )
        for path, reason in (
            ("ts", "ts_day"),
            ("s.k", "sort order"),
            ("s", "sort order"),
            ("i", "identifies"),
        ):
            with pytest.raises(InvalidSchemaError, match=reason):
                UpdateSchema(used).drop_column(path)
        assert names(evolved(lambda s: s.drop_column("free").drop_column("s.o"), used)) == [
            "ts",
            "s",
            "i",
        ]
        assert names(evolved(lambda s: s.set_identifier_fields().drop_column("i"), used)) == [
            "ts",
            "s",
            "free",
        ]

    def test_a_column_of_an_earlier_spec_is_kept_too(self):
        base = table(partition_by=("day(ts)",))
        later = applied(
            base, UpdatePartitionSpec(base).replace("day(ts)", "bucket(4, id)").changes()
        )
        with pytest.raises(InvalidSchemaError, match="spec 0"):
            UpdateSchema(later).drop_column("ts")

    def test_something_must_remain(self):
        with pytest.raises(InvalidSchemaError, match="last"):
            UpdateSchema(table_of(NestedField(1, "a", LongType()))).drop_column("a")
        with pytest.raises(InvalidSchemaError, match="last"):
            UpdateSchema(table()).drop_column("place.lat").drop_column("place.lon")

    def test_a_taken_name_is_refused(self):
        with pytest.raises(InvalidSchemaError, match="already"):
            UpdateSchema(table()).rename_column("name", "price")
        with pytest.raises(InvalidSchemaError):
            UpdateSchema(table()).rename_column("name", "")


PROMOTIONS = [
    (IntegerType(), LongType(), 2, True),
    (FloatType(), DoubleType(), 2, True),
    (DecimalType(9, 2), DecimalType(10, 2), 2, True),
    (DecimalType(9, 2), DecimalType(9, 3), 2, False),
    (DecimalType(9, 2), DecimalType(8, 2), 2, False),
    (LongType(), IntegerType(), 2, False),
    (DoubleType(), FloatType(), 2, False),
    (IntegerType(), DoubleType(), 2, False),
    (IntegerType(), StringType(), 2, False),
    (DateType(), TimestampType(), 2, False),
    (DateType(), TimestampType(), 3, True),
    (DateType(), TimestampNanoType(), 3, True),
    (DateType(), TimestamptzType(), 3, False),
    (TimestampType(), TimestampNanoType(), 3, False),
    (UnknownType(), StringType(), 3, True),
    (UnknownType(), ListType(1, LongType()), 3, True),
    (StringType(), StructType(NestedField(1, "a", StringType())), 3, False),
    (IntegerType(), ListType(1, IntegerType()), 3, False),
]


class TestUpdate:
    @pytest.mark.parametrize(("old", "new", "version", "allowed"), PROMOTIONS)
    @pytest.mark.parametrize("place", ["c", "s.c", "l.element", "m.value"])
    def test_promotions_of_the_spec_and_no_others(self, old, new, version, allowed, place):
        base = table_of(
            NestedField(1, "c", old),
            NestedField(2, "s", StructType(NestedField(3, "c", old))),
            NestedField(4, "l", ListType(5, old, element_required=False)),
            NestedField(6, "m", MapType(7, StringType(), 8, old, value_required=False)),
            version=version,
        )
        builder = UpdateSchema(base)
        if allowed:
            after = applied(base, builder.update_column(place, new).changes())
            assert str(after.schema().find_type(place)) == str(new)
            assert (
                after.schema().find_field(place).field_id
                == base.schema().find_field(place).field_id
            )
        else:
            with pytest.raises(InvalidSchemaError, match="cannot change from"):
                builder.update_column(place, new)
            assert not builder.changes()

    @pytest.mark.parametrize(
        ("term", "allowed"),
        [
            ("d", False),
            ("bucket(4, d)", False),
            ("day(d)", True),
            ("month(d)", True),
            ("void(d)", True),
        ],
    )
    def test_a_promotion_that_changes_partition_values_is_refused(self, term, allowed):
        base = table_of(
            NestedField(1, "d", DateType()),
            NestedField(2, "o", LongType()),
            version=3,
            partition_by=(term,),
        )
        builder = UpdateSchema(base)
        if allowed:
            assert (
                applied(base, builder.update_column("d", "timestamp").changes())
                .schema()
                .find_type("d")
                == TimestampType()
            )
        else:
            with pytest.raises(InvalidSchemaError, match="other values"):
                builder.update_column("d", "timestamp")

    def test_int_in_a_bucket_can_be_promoted(self):
        base = table_of(NestedField(1, "i", IntegerType()), partition_by=("bucket(4, i)",))
        assert (
            evolved(lambda s: s.update_column("i", "long"), base).schema().find_type("i")
            == LongType()
        )

    def test_defaults_are_promoted_with_their_column(self):
        base = table_of(NestedField(1, "a", LongType()), version=3)
        base = evolved(
            lambda s: s.add_column("d", "date", default=dt.date(2020, 1, 2)).add_column(
                "f", "float", default=0.5
            ),
            base,
        )
        after = evolved(
            lambda s: s.update_column("d", "timestamp_ns").update_column("f", "double"), base
        )
        assert (
            schema_to_json(after.schema())["fields"][1]["initial-default"]
            == "2020-01-02T00:00:00.000000000"
        )
        assert after.schema().find_field("f").initial_default == 0.5

    def test_optional_doc_and_write_default(self):
        base = table(version=3)
        base = evolved(lambda s: s.add_column("n", "int", required=True, default=1), base)
        after = evolved(lambda s: s.make_optional("n").update_column("n", doc="d", default=2), base)
        field = after.schema().find_field("n")
        assert (field.required, field.doc, field.initial_default, field.write_default) == (
            False,
            "d",
            1,
            2,
        )
        cleared = (
            evolved(lambda s: s.update_column("n", doc=None, default=None), after)
            .schema()
            .find_field("n")
        )
        assert (cleared.doc, cleared.initial_default, cleared.write_default) == (None, 1, None)

    def test_elements_and_values_can_become_optional(self):
        base = table_of(NestedField(1, "l", ListType(2, LongType(), element_required=True)))
        assert (
            not evolved(lambda s: s.make_optional("l.element"), base)
            .schema()
            .fields[0]
            .field_type.element_required
        )

    def test_becoming_required_and_identifiers_becoming_optional_are_refused(self):
        with pytest.raises(InvalidSchemaError, match="may be null"):
            UpdateSchema(table()).update_column("ts", required=True)
        with pytest.raises(InvalidSchemaError, match="identifies"):
            UpdateSchema(table()).make_optional("id")
        assert not UpdateSchema(table()).update_column("id", required=True).changes()

    def test_a_refused_call_leaves_the_builder_as_it_was(self):
        builder = UpdateSchema(table())
        with pytest.raises(InvalidSchemaError):
            builder.update_column("day", "string", doc="x", required=False)
        with pytest.raises(InvalidSchemaError):
            builder.update_column("ts", doc="x", required=True)
        assert not builder.changes()


class TestMove:
    def test_first_before_after(self):
        after = evolved(
            lambda s: s.move_first("price").move_before("marks", "name").move_after("id", "place")
        )
        assert names(after) == ["price", "ts", "marks", "name", "day", "place", "id", "points"]

    def test_within_a_struct_only(self):
        after = evolved(
            lambda s: s.move_first("place.lon").move_after("points.element.x", "points.element.y")
        )
        assert [f.name for f in after.schema().find_type("place").fields] == ["lon", "lat"]
        with pytest.raises(InvalidSchemaError, match="same struct"):
            UpdateSchema(table()).move_before("place.lon", "id")
        assert not UpdateSchema(table()).move_before("id", "id").changes()

    def test_a_column_added_just_now(self):
        assert names(evolved(lambda s: s.add_column("z", "int").move_first("z")))[0] == "z"


class TestIdentifiers:
    def test_only_what_identifies(self):
        after = evolved(lambda s: s.set_identifier_fields())
        assert after.schema().identifier_field_ids == []
        for path in ("name", "place.lat", "points.element.y", "marks.value.y"):
            with pytest.raises(InvalidSchemaError):
                UpdateSchema(table()).set_identifier_fields(path).changes()
        with pytest.raises(InvalidSchemaError, match="no column"):
            UpdateSchema(table()).set_identifier_fields("nope")


class TestUnion:
    def test_adds_promotes_and_loosens(self):
        base = table_of(
            NestedField(1, "a", IntegerType(), required=True),
            NestedField(2, "s", StructType(NestedField(3, "x", FloatType()))),
            NestedField(4, "l", ListType(5, StructType(NestedField(6, "p", IntegerType())))),
            NestedField(7, "only", StringType()),
        )
        incoming = pa.schema(
            [
                pa.field(
                    "new", pa.struct([pa.field("deep", pa.int64(), nullable=False)]), nullable=False
                ),
                pa.field(
                    "l",
                    pa.list_(pa.struct([pa.field("q", pa.string()), pa.field("p", pa.int64())])),
                ),
                pa.field("s", pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.date32())])),
                pa.field("a", pa.int8()),
            ]
        )
        after = evolved(lambda s: s.union_by_name(incoming), base).schema()
        assert [f.name for f in after.fields] == ["a", "s", "l", "only", "new"]
        assert (after.find_field("a").required, after.find_type("a")) == (False, IntegerType())
        assert after.find_type("s.x") == DoubleType()
        assert after.find_type("s.y") == DateType()
        assert after.find_type("l.element.p") == LongType()
        assert after.find_type("l.element.q") == StringType()
        assert not after.find_field("new").required
        assert min(after.field_ids - base.schema().field_ids) > base.last_column_id

    def test_the_same_schema_and_narrower_data_change_nothing(self):
        base = table()
        assert not UpdateSchema(base).union_by_name(base.schema()).changes()
        wide = table_of(NestedField(1, "a", LongType()), NestedField(2, "d", DecimalType(10, 2)))
        narrow = pa.schema([pa.field("a", pa.int16()), pa.field("d", pa.decimal128(5, 2))])
        assert not UpdateSchema(wide).union_by_name(narrow).changes()
        assert not UpdateSchema(wide).union_by_name(pa.schema([pa.field("a", pa.null())])).changes()

    @pytest.mark.parametrize(
        "arrow",
        [
            pa.string(),
            pa.float64(),
            pa.list_(pa.int64()),
            pa.struct([pa.field("a", pa.int64())]),
            pa.timestamp("us"),
        ],
    )
    def test_incompatible_types_are_refused_whole(self, arrow):
        base = table_of(NestedField(1, "a", IntegerType()))
        builder = UpdateSchema(base)
        with pytest.raises(InvalidSchemaError, match="'a'"):
            builder.union_by_name(pa.schema([pa.field("b", pa.int64()), pa.field("a", arrow)]))
        assert not builder.changes()

    def test_a_struct_does_not_become_a_value(self):
        base = table_of(NestedField(1, "a", StructType(NestedField(2, "x", LongType()))))
        for arrow in (pa.int64(), pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64())):
            with pytest.raises(InvalidSchemaError, match="'a'"):
                UpdateSchema(base).union_by_name(pa.schema([pa.field("a", arrow)]))

    def test_it_joins_other_changes(self):
        after = evolved(
            lambda s: s.rename_column("name", "title").union_by_name(
                pa.schema([pa.field("title", pa.string()), pa.field("z", pa.int32())])
            )
        )
        assert names(after)[-1] == "z"
        assert "title" in names(after)

    def test_ids_in_the_data_do_not_matter(self):
        base = table_of(NestedField(1, "a", LongType()), NestedField(2, "b", StringType()))
        swapped = pa.schema(
            [
                pa.field("b", pa.string(), metadata={"PARQUET:field_id": "1"}),
                pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "2"}),
            ]
        )
        assert not UpdateSchema(base).union_by_name(swapped).changes()


class TestCommits:
    def test_no_change_is_no_commit(self):
        base = table()
        assert not UpdateSchema(base).changes()
        assert (
            not UpdateSchema(base).rename_column("name", "x").rename_column("x", "name").changes()
        )

    def test_racing_evolutions_conflict(self):
        base = table()
        first = UpdateSchema(base).add_column("x", "int").changes()
        for second in (
            UpdateSchema(base).add_column("y", "int").changes(),
            UpdateSchema(base).drop_column("name").changes(),
            UpdatePartitionSpec(base).add("day(ts)").changes(),
        ):
            with pytest.raises(CommitConflictError):
                check_requirements(applied(base, first), second.requirements)

    def test_dropping_a_column_conflicts_with_partitioning_by_it(self):
        base = table()
        drop = UpdateSchema(base).drop_column("ts").changes()
        partition = UpdatePartitionSpec(base).add("day(ts)").changes()
        with pytest.raises(CommitConflictError):
            check_requirements(applied(base, partition), drop.requirements)
        with pytest.raises(CommitConflictError):
            check_requirements(applied(base, drop), partition.requirements)

    def test_going_back_finds_the_earlier_schema(self):
        base = table()
        there = evolved(lambda s: s.rename_column("name", "title"), base)
        back = evolved(lambda s: s.rename_column("title", "name"), there)
        assert back.current_schema_id == 0
        assert len(back.schemas) == 2


class TestNamesOfPartitionFields:
    """Iceberg's Java opens no table with a column that is named like another's partition field.

    `tests/conformance/java/schema_changes.py` asks it for such columns.
    """

    @pytest.fixture
    def bucketed(self):
        return applied(table(), UpdatePartitionSpec(table()).add("bucket(4, id)", "b").changes())

    @pytest.mark.parametrize(
        "change",
        [
            lambda s: s.add_column("b", "long"),
            lambda s: s.rename_column("name", "b"),
            lambda s: s.add_column("new", "long").rename_column("name", "b"),
        ],
    )
    def test_no_column_takes_one(self, bucketed, change):
        with pytest.raises(InvalidSchemaError, match=r"cannot be named 'b': .* another column"):
            evolved(change, bucketed)
        evolved(lambda s: s.add_column("b2", "long").add_column("place.b", "long"), bucketed)

    def test_nor_one_of_an_earlier_spec(self, bucketed):
        later = applied(bucketed, UpdatePartitionSpec(bucketed).remove("b").changes())
        with pytest.raises(InvalidSchemaError, match="cannot be named 'b'"):
            evolved(lambda s: s.add_column("b", "long"), later)

    def test_a_renamed_column_leaves_its_name_to_its_partition_field(self):
        base = applied(table(), UpdatePartitionSpec(table()).add("name").changes())
        renamed = evolved(lambda s: s.rename_column("name", "title"), base)
        with pytest.raises(InvalidSchemaError, match="cannot be named 'name'"):
            evolved(lambda s: s.add_column("name", "string"), renamed)
        assert names(evolved(lambda s: s.rename_column("title", "name"), renamed)) == names(base)

    def test_a_table_that_has_one_is_changed_as_before(self, bucketed):
        *others, field = bucketed.spec().fields
        clashing = PartitionField(field.source_id, field.field_id, field.transform, "name")
        spec = PartitionSpec(*others, clashing, spec_id=0)
        given = replace(bucketed, partition_specs=(spec,), default_spec_id=0)
        assert "new" in names(evolved(lambda s: s.add_column("new", "long"), given))

    @pytest.mark.parametrize("terms", [[], ["name"], ["place.lat"]])
    def test_a_replaced_table_keeps_what_its_partition_fields_are_named_after(
        self, tmp_path, terms
    ):
        """CREATE OR REPLACE, also with columns that come twice in a row."""
        place = pa.struct([("lat", pa.float64())])
        given = pa.schema({"id": pa.int64(), "name": pa.string(), "place": place})
        lake = load_catalog(str(tmp_path))
        before = lake.create_table("n.t", given, partition_by=["name", "place.lat"])
        known = {one: before.schema().find_field(one).field_id for one in ("name", "place.lat")}
        kept = schema_from_arrow(given).fields[1:]
        wanted = Schema(NestedField(99, "other", LongType(), required=False), *kept)
        for _ in range(2):
            replaced = replaced_table(lake.load_table("n.t"), wanted, terms, {})
            replaced.transaction.commit({})
            after = lake.load_table("n.t").schema()
            assert {one: after.find_field(one).field_id for one in known} == known
            assert after.find_field("other").field_id > before.metadata.last_column_id
        ids = [field.field_id for field in after.fields]
        assert len({*ids, known["place.lat"]}) == 4
        number = Schema(NestedField(1, "name", LongType(), required=False))
        with pytest.raises(InvalidSchemaError, match="cannot be named 'name'"):
            replaced_table(lake.load_table("n.t"), number, [], {})
