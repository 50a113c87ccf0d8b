"""Any sequence of evolutions: ids are never reused, and old data reads as when it was written."""

from __future__ import annotations

import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pyiceberg.table.metadata import TableMetadataUtil

from lakehouse.errors import InvalidPartitionSpecError, InvalidSchemaError
from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.evolution.update_sort_order import UpdateSortOrder
from lakehouse.spec.metadata.metadata_draft import apply_updates
from lakehouse.spec.metadata.metadata_json import parse, serialize
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import Changes, check_requirements
from lakehouse.spec.partitioning.partition_terms import sort_order_to_json, spec_to_json
from lakehouse.spec.schema.iceberg_types import child_fields, fields_by_id
from lakehouse.spec.schema.schema_json import schema_to_json
from tests.unit.spec.samples import grown, table

NAMES = st.sampled_from(["a", "b", "c", "id", "ts", "name", "price", "day", "x", "y", "lat"])
PLACES = st.sampled_from(["", "place.", "points.element.", "marks.value.", "points.element.s."])
TYPES = st.sampled_from(
    [
        "int",
        "long",
        "float",
        "double",
        "string",
        "date",
        "timestamp",
        "decimal(9, 2)",
        "decimal(12, 2)",
        "struct<x: int, s: struct<y: date>>",
        "list<struct<a: int>>",
        "map<string, int>",
    ]
)
TERMS = st.sampled_from(
    [
        "day(ts)",
        "hour(ts)",
        "month(ts)",
        "bucket(4, id)",
        "bucket(8, id)",
        "truncate(3, name)",
        "price",
        "place.lat",
        "day",
        "year(day)",
        "a",
    ]
)


class Evolution(RuleBasedStateMachine):
    """The model remembers, outside of the table, what each id was when it was first seen."""

    metadata: TableMetadata

    @initialize(
        version=st.sampled_from([2, 3]),
        terms=st.sampled_from([(), ("day(ts)",), ("month(ts)", "bucket(4, id)")]),
    )
    def start(self, version, terms):
        self.metadata = grown(table(version=version, partition_by=terms), 1)
        self.places: dict[int, int | None] = {}
        self.schemas: dict[int, dict] = {}
        self.specs: dict[int, dict] = {}
        self.partition_fields: dict[int, tuple[int, str]] = {}
        self.gone: set[int] = set()
        self.written: dict[int, dict] = {}
        self.remember()

    def remember(self):
        current = self.parents(self.metadata.schema())
        for field_id, parent in current.items():
            assert field_id not in self.gone, f"id {field_id} was dropped and came back"
            assert self.places.setdefault(field_id, parent) == parent, (
                f"id {field_id} moved to another struct"
            )
        if self.metadata.current_schema_id in self.schemas:
            return
        self.gone |= set(self.places) - set(current)

    @staticmethod
    def parents(schema):
        found: dict[int, int | None] = {field.field_id: None for field in schema.fields}
        for field_id, field in fields_by_id(schema.fields).items():
            for child in child_fields(field.field_type):
                found[child.field_id] = field_id
        return found

    def commit(self, changes: Changes):
        before = self.metadata
        check_requirements(before, changes.requirements)
        after = apply_updates(
            before, changes.updates, now_ms=before.last_updated_ms + 1, base_location="v.json"
        )
        assert after.last_column_id >= before.last_column_id
        assert after.last_partition_id >= before.last_partition_id
        self.metadata = after
        new = set(self.parents(after.schema())) - set(self.places)
        assert all(field_id > before.last_column_id for field_id in new), (
            "a new column got an id from before"
        )
        self.remember()

    def evolve(self, change):
        builder = UpdateSchema(self.metadata)
        try:
            change(builder)
            changes = builder.changes()
        except InvalidSchemaError:
            return
        column = None
        try:
            self.commit(changes)
        except InvalidSchemaError as error:  # Iceberg's Java would open the table no more
            column = error.context["column"]
        specs = self.metadata.partition_specs
        assert column in {None, *(field.name for spec in specs for field in spec.fields)}

    @rule(place=PLACES, name=NAMES, kind=TYPES)
    def add(self, place, name, kind):
        self.evolve(lambda s: s.add_column(place + name, kind))

    @rule(place=PLACES, name=NAMES)
    def drop(self, place, name):
        self.evolve(lambda s: s.drop_column(place + name))

    @rule(place=PLACES, name=NAMES, kind=TYPES)
    def drop_and_add_in_one_commit(self, place, name, kind):
        self.evolve(lambda s: s.drop_column(place + name).add_column(place + name, kind))

    @rule(place=PLACES, name=NAMES, other=NAMES)
    def rename(self, place, name, other):
        self.evolve(lambda s: s.rename_column(place + name, other))

    @rule(place=PLACES, name=NAMES, other=NAMES)
    def swap(self, place, name, other):
        self.evolve(
            lambda s: (
                s.rename_column(place + name, "?")
                .rename_column(place + other, name)
                .rename_column(place + "?", other)
            )
        )

    @rule(place=PLACES, name=NAMES, other=NAMES, after=st.booleans())
    def move(self, place, name, other, after):
        self.evolve(
            lambda s: (s.move_after if after else s.move_before)(place + name, place + other)
        )

    @rule(place=PLACES, name=NAMES, kind=TYPES)
    def promote(self, place, name, kind):
        self.evolve(lambda s: s.update_column(place + name, kind))

    @rule(place=PLACES, name=NAMES)
    def loosen(self, place, name):
        self.evolve(lambda s: s.make_optional(place + name))

    @rule(pick=st.integers(0, 100))
    def union_with_an_earlier_schema(self, pick):
        earlier = self.metadata.schemas[pick % len(self.metadata.schemas)]
        self.evolve(lambda s: s.union_by_name(earlier))

    @rule(term=TERMS, remove=st.booleans())
    def partition(self, term, remove):
        builder = UpdatePartitionSpec(self.metadata)
        try:
            (builder.remove if remove else builder.add)(term)
        except InvalidPartitionSpecError:
            return
        self.commit(builder.changes())

    @rule(old=TERMS, new=TERMS)
    def repartition(self, old, new):
        builder = UpdatePartitionSpec(self.metadata)
        try:
            builder.replace(old, new)
        except InvalidPartitionSpecError:
            return
        self.commit(builder.changes())

    @rule(term=TERMS)
    def sort(self, term):
        builder = UpdateSortOrder(self.metadata)
        try:
            builder.asc(term)
        except InvalidPartitionSpecError:
            return
        self.commit(builder.changes())

    @rule()
    def append(self):
        number = self.metadata.last_sequence_number + 1
        self.metadata = grown(self.metadata, 1, start=number)

    @invariant()
    def earlier_schemas_and_specs_are_as_they_were(self):
        if not hasattr(self, "metadata"):
            return
        for schema in self.metadata.schemas:
            document = schema_to_json(schema)
            assert self.schemas.setdefault(schema.schema_id, document) == document
        assert set(self.schemas) == {schema.schema_id for schema in self.metadata.schemas}
        for spec in self.metadata.partition_specs:
            document = spec_to_json(spec)
            assert self.specs.setdefault(spec.spec_id, document) == document
            for field in spec.fields:
                made_of = (field.source_id, str(field.transform))
                assert self.partition_fields.setdefault(field.field_id, made_of) == made_of
        assert set(self.specs) == set(self.metadata.specs())

    @invariant()
    def every_snapshot_reads_with_the_schema_of_its_time(self):
        if not hasattr(self, "metadata"):
            return
        for snapshot in self.metadata.snapshots:
            document = schema_to_json(self.metadata.schema_for(snapshot))
            assert self.written.setdefault(snapshot.snapshot_id, document) == document

    @invariant()
    def the_file_says_the_same_to_us_and_to_pyiceberg(self):
        if not hasattr(self, "metadata"):
            return
        text = serialize(self.metadata)
        assert parse(text, "m") == self.metadata
        theirs = TableMetadataUtil.parse_obj(orjson.loads(text))
        assert theirs.schema() == self.metadata.schema()
        assert theirs.spec() == self.metadata.spec()
        order = theirs.sort_order().model_dump(mode="json")
        assert order == sort_order_to_json(self.metadata.sort_order())
        theirs.spec().check_compatible(theirs.schema())


def test_names_that_swap_with_that_of_a_partition_field_are_refused():
    state = Evolution()
    state.start(version=2, terms=())
    state.add(place="", name="a", kind="int")
    state.partition(term="price", remove=False)
    before = state.metadata
    state.swap(place="", name="a", other="price")
    assert state.metadata is before


TestEvolution = Evolution.TestCase
TestEvolution.settings = settings(
    max_examples=max(10, settings.default.max_examples // 4), stateful_step_count=25, deadline=None
)
