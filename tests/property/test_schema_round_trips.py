"""Random schemas: through pyiceberg's JSON, through Arrow, through text; and fresh ids."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
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
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from lakehouse.spec.schema.iceberg_types import fields_by_id
from lakehouse.spec.schema.schema_json import assign_fresh_ids, schema_from_json, schema_to_json
from lakehouse.spec.types.arrow_types import schema_from_arrow, schema_to_arrow
from lakehouse.spec.types.type_text import type_from_text

PLAIN = [
    BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), DateType(), TimeType(),
    TimestampType(),
    TimestamptzType(),    TimestampNanoType(), TimestamptzNanoType(), StringType(), UUIDType(),
    BinaryType(),
]  # fmt: skip
PRIMITIVES = st.one_of(
    st.sampled_from(PLAIN),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s))),
    st.integers(1, 40).map(FixedType),
)
NAMES = st.text(
    st.characters(
        codec="utf-8", exclude_characters="`", exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")
    ),
    min_size=1,
    max_size=6,
)


@st.composite
def structs(draw, ids, depth):
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    return StructType(
        *(
            NestedField(
                draw(ids),
                name,
                kind := draw(types(ids, depth)),
                required=draw(st.booleans()) and not isinstance(kind, UnknownType),
                doc=draw(
                    st.one_of(
                        st.none(), st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)
                    )
                ),
            )
            for name in names
        )
    )


def types(ids, depth):
    if depth == 0:
        return PRIMITIVES
    below = depth - 1
    return st.one_of(
        PRIMITIVES,
        structs(ids, below),
        st.builds(ListType, ids, types(ids, below), st.booleans()),
        st.builds(MapType, ids, types(ids, below), ids, types(ids, below), st.booleans()),
    )


@st.composite
def schemas(draw):
    pool = draw(st.permutations(range(1, 400)))
    position = iter(pool)
    ids = st.builds(lambda: next(position))
    struct = draw(structs(ids, 2))
    return Schema(*struct.fields, schema_id=draw(st.integers(0, 9)))


@given(schemas())
def test_json_is_the_json_of_pyiceberg(schema):
    ours = schema_to_json(schema)
    theirs = json.loads(schema.model_dump_json())
    theirs.pop("identifier-field-ids", None)
    assert ours == theirs
    assert schema_from_json(ours) == schema == Schema.model_validate_json(json.dumps(ours))
    assert schema_from_json(theirs).schema_id == schema.schema_id


@given(schemas())
def test_arrow_keeps_ids_types_nulls_and_docs(schema):
    arrow = schema_to_arrow(schema)
    assert schema_from_arrow(arrow) == schema
    assert schema_from_arrow(schema_to_pyarrow(schema)) == schema


@given(schemas())
def test_fresh_ids_are_those_of_pyiceberg(schema):
    ours, moved = assign_fresh_ids(schema)
    assert ours == assign_fresh_schema_ids(schema)
    before, after = fields_by_id(schema.fields), fields_by_id(ours.fields)
    assert sorted(after) == list(range(1, len(before) + 1))
    assert {old: before[old].name for old in before} == {
        old: after[new].name for old, new in moved.items()
    }


@given(PRIMITIVES)
def test_types_are_read_from_their_names(kind):
    assert type_from_text(str(kind)) == kind
    assert type_from_text(f"list<{kind}>").element_type == kind
