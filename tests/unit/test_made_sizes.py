"""What is counted for what is kept, against what Python's own allocator was asked for."""

from __future__ import annotations

import gc
import json
import tracemalloc
import uuid

import orjson
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType

from lakehouse.expressions.sql import sql_grammar
from lakehouse.kept_by_bytes import MADE, bytes_of, short_only
from lakehouse.manifests import avro_decoding
from lakehouse.spec.manifests.manifest_encoder import manifest_schema
from lakehouse.spec.metadata import metadata_json
from lakehouse.spec.metadata.metadata_json import RECENT, serialize
from lakehouse.spec.metadata.table_metadata import new_table_metadata, types_of
from lakehouse.spec.partitioning.sort_order import UNSORTED_SORT_ORDER
from lakehouse.spec.schema.iceberg_types import paths_of, schema_bytes, spelled
from lakehouse.spec.schema.schema_json import schema_from_json
from lakehouse.spec.types.arrow_types import schema_to_arrow

NESTED = {
    "type": "struct",
    "fields": [
        {"id": 10_000, "name": "inside", "type": "string", "required": False},
        {
            "id": 10_001,
            "name": "list",
            "required": False,
            "type": {
                "type": "list",
                "element-id": 10_002,
                "element": "long",
                "element-required": False,
            },
        },
        {
            "id": 10_003,
            "name": "map",
            "required": False,
            "type": {
                "type": "map",
                "key-id": 10_004,
                "key": "string",
                "value-id": 10_005,
                "value": "long",
                "value-required": False,
            },
        },
    ],
}


def document(columns, name="column", doc=None, last="long"):
    fields = [
        {"id": number + 1, "name": f"{name}_{number}", "type": "long", "required": False}
        for number in range(columns)
    ]
    fields[-1]["type"] = last
    for one in fields if doc else ():
        one["doc"] = f"{doc} {one['id']}"
    return {"type": "struct", "schema-id": 0, "fields": fields}


DOCUMENTS = {
    "one column": (document(1), 40),
    "five columns": (document(5), 40),
    "fifty columns": (document(50), 8),
    "four hundred columns": (document(400), 2),
    "long names": (document(20, name="n" * 500), 8),
    "long docs": (document(20, doc="said of it " * 100), 8),
    "docs beyond ASCII": (document(20, doc="\N{SNOWMAN}" * 500 + "\N{PILE OF POO}"), 8),
    "nested": (document(2, last=NESTED), 20),
}


@pytest.fixture(autouse=True)
def nothing_kept():
    MADE.clear()
    RECENT.clear()
    yield
    MADE.clear()
    RECENT.clear()


def taken(make, count):
    """Bytes that so many of what `make` gives take."""
    make()  # what is made once for all
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [make() for _ in range(count)]
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before, kept
    finally:
        tracemalloc.stop()


def known_whole(schema: Schema) -> Schema:
    """All that anybody finds out about a schema."""
    for name in dir(type(schema)):
        if name.startswith("_lazy"):
            getattr(schema, name)
    paths_of(schema)
    spelled(schema.fields[0].name, schema, case_sensitive=False)
    return schema


@pytest.mark.parametrize("which", DOCUMENTS)
def test_a_schema_takes_no_more_than_is_counted(which):
    told, count = DOCUMENTS[which]
    text = orjson.dumps(told)
    bytes_taken, kept = taken(lambda: known_whole(schema_from_json(orjson.loads(text))), count)
    counted = count * schema_bytes(kept[0])
    assert bytes_taken <= counted <= 3 * bytes_taken


@pytest.mark.slow
@pytest.mark.parametrize("which", DOCUMENTS)
def test_what_is_made_of_tables_takes_no_more_than_is_counted(which):
    """Each table with a schema of its own: parsed, written, planned and read."""
    told, count = DOCUMENTS[which]
    text, number = orjson.dumps(told), iter(range(1000))

    def make() -> None:
        # another text each time, as another table's is
        other = text.replace(b"long", b"int", 1) if next(number) % 2 else text
        schema, _ = metadata_json._schema_from_text(other + b" " * next(number))
        metadata = new_table_metadata(
            schema=known_whole(schema),
            spec=PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "bucket")),
            sort_order=UNSORTED_SORT_ORDER,
            location=f"/warehouse/raw/t{next(number)}",
            properties={"owner": "ann" * 10},
            format_version=2,
            table_uuid=str(uuid.uuid4()),
            now_ms=1,
        )
        serialize(metadata)
        types_of(metadata)
        schema_to_arrow(metadata.schema())

    before = [0, 0]

    def first_then_counted() -> None:
        make()
        if not before[0]:
            before[:] = MADE.held, RECENT.held

    bytes_taken, _ = taken(first_then_counted, count)
    counted = MADE.held + RECENT.held - sum(before)
    assert counted > 0
    assert bytes_taken <= counted


@pytest.mark.parametrize("fields", [0, 3, 40])
def test_what_is_made_of_schemas_of_manifests_takes_no_more_than_is_counted(fields):
    spec = PartitionSpec(
        *(
            PartitionField(number + 1, 1000 + number, IdentityTransform(), f"field_{number}")
            for number in range(fields)
        )
    )
    kinds = {1000 + number: LongType() for number in range(fields)}
    text = json.dumps(manifest_schema(spec, kinds, 2)).encode()
    number = iter(range(1000))
    MADE.clear()
    avro_decoding._reader(text)
    one = MADE.held
    bytes_taken, _ = taken(lambda: avro_decoding._reader(text + b" " * (1 + next(number))), 10)
    assert bytes_taken <= MADE.held - one


@pytest.mark.parametrize(
    "text",
    [
        "x is null",
        "a = 1 or " * 50 + "b = 2",
        f"v in ({', '.join(map(str, range(500)))})",
        "lower(name) like 'x%' and cast(a as date) < date '2026-01-01'",
        "((((((a))))))=1",
    ],
)
def test_what_is_made_of_conditions_takes_no_more_than_is_counted(text):
    number = iter(range(1000))
    sql_grammar.parsed(text)
    one = MADE.held
    bytes_taken, _ = taken(lambda: sql_grammar.parsed(text + " " * (1 + next(number))), 5)
    assert bytes_taken <= MADE.held - one


def test_history_takes_no_more_than_is_counted():
    """As text, and when somebody has looked at all of it."""
    snapshots = [
        {
            "snapshot-id": number + 1,
            "parent-snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": number,
            "manifest-list": f"/warehouse/raw/t/metadata/snap-{number}.avro",
            "summary": {"operation": "append", **{f"total-{n}": str(n) for n in range(20)}},
            "schema-id": 0,
        }
        for number in range(300)
    ]
    first = new_table_metadata(
        schema=schema_from_json(document(1)),
        spec=PartitionSpec(),
        sort_order=UNSORTED_SORT_ORDER,
        location="/warehouse/raw/t",
        properties={},
        format_version=2,
        table_uuid=str(uuid.uuid4()),
        now_ms=1,
    )
    written = orjson.loads(metadata_json._text(first))
    written |= {"snapshots": snapshots, "current-snapshot-id": 300, "last-sequence-number": 300}
    text = orjson.dumps(written)
    parsed = metadata_json.parse(text, "here")

    def looked_at():
        found = metadata_json.parse(text, "here")
        assert len(list(found.snapshots)) == found.snapshots.ids()[-1]
        for snapshot in snapshots:
            assert found.snapshots.find(snapshot["snapshot-id"])
        return found

    for make in (lambda: metadata_json.parse(text, "here"), looked_at):
        bytes_taken, kept = taken(make, 3)
        assert bytes_taken <= 3 * kept[0].held_bytes()
    assert looked_at().held_bytes() > parsed.held_bytes()


def test_json_values_take_no_more_than_is_counted():
    values = {"a": [1, 2.5, None, True, "text" * 100], "b": {"c": {"d": ["x"] * 50}}, "e": "\u2603"}
    text = orjson.dumps(values)
    bytes_taken, kept = taken(lambda: orjson.loads(text), 50)
    assert bytes_taken <= 50 * bytes_of(kept[0])


def test_only_short_texts_are_kept():
    made = []
    text = short_only(10)(lambda one, other="": made.append(one) or one + other)
    for length in (1, 256, 257, 100_000):
        assert text("x" * length) == text("x" * length) == "x" * length
    assert [len(one) for one in made] == [1, 256, 257, 257, 100_000, 100_000]
