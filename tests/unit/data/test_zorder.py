"""Positions on a Z-curve: each column keeps its order, and all workers agree."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from lakehouse.data.writing.zorder import ZOrder, zorder_ids
from lakehouse.errors import InvalidInputError
from lakehouse.spec.types.arrow_types import schema_to_arrow

TYPES = {
    "long": (LongType(), st.integers(-(2**63), 2**63 - 1)),
    "int": (IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    "bool": (BooleanType(), st.booleans()),
    "double": (DoubleType(), st.floats(allow_nan=True)),
    "text": (StringType(), st.text(max_size=6)),
    "bytes": (BinaryType(), st.binary(max_size=6)),
    "decimal": (DecimalType(9, 2), st.decimals(-99999, 99999, places=2)),
    "date": (DateType(), st.dates()),
    "ts": (
        TimestamptzType(),
        st.dates(dt.date(1900, 1, 1)).map(
            lambda day: dt.datetime(day.year, day.month, day.day, 5, tzinfo=dt.UTC)
        ),
    ),
    "uuid": (UUIDType(), st.uuids()),
}


def key(value):
    """Nulls first, NaN last, -0.0 as 0.0."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value)
    return (1, value.bytes if hasattr(value, "bytes") else value)


@st.composite
def rows(draw):
    first, second = draw(st.sampled_from(sorted(TYPES))), draw(st.sampled_from(sorted(TYPES)))
    size = draw(st.integers(1, 40))
    schema = Schema(
        NestedField(1, "a", TYPES[first][0], required=False),
        NestedField(2, "b", TYPES[second][0], required=False),
    )
    columns = [
        draw(st.lists(st.none() | TYPES[one][1], min_size=size, max_size=size))
        for one in (first, second)
    ]
    stored = [
        [
            value.bytes if hasattr(value, "hex") and hasattr(value, "bytes") else value
            for value in column
        ]
        for column in columns
    ]
    arrays = [
        pa.ExtensionArray.from_storage(f.type, pa.array(v, f.type.storage_type))
        if isinstance(f.type, pa.ExtensionType)
        else pa.array(v, f.type)
        for f, v in zip(schema_to_arrow(schema), stored, strict=True)
    ]
    return schema, columns, pa.Table.from_arrays(arrays, schema=schema_to_arrow(schema))


@given(rows())
def test_a_row_that_is_nowhere_smaller_never_comes_before(given_rows):
    schema, (first, second), table = given_rows
    # As Spark ships it.
    curve = pickle.loads(pickle.dumps(ZOrder.learn(["a", "b"], schema, table)))  # noqa: S301
    positions = curve.positions(table)
    keys = [(key(one), key(other)) for one, other in zip(first, second, strict=True)]
    for left in range(len(keys)):
        for right in range(len(keys)):
            if all(one <= other for one, other in zip(keys[left], keys[right], strict=True)):
                assert positions[left] <= positions[right], (keys[left], keys[right])
    assert (positions >= 0).all()


def test_rows_of_another_batch_lie_on_the_same_curve():
    schema = Schema(
        NestedField(1, "a", LongType(), required=False),
        NestedField(2, "b", LongType(), required=False),
    )
    chance = np.random.default_rng(1)
    table = pa.table(
        {"a": chance.integers(0, 10**6, 5000), "b": chance.integers(0, 10**6, 5000)},
        schema=schema_to_arrow(schema),
    )
    curve = ZOrder.learn(["a", "b"], schema, table)
    whole = curve.positions(table)
    parts = np.concatenate(
        [curve.positions(table.slice(0, 1234)), curve.positions(table.slice(1234))]
    )
    assert (whole == parts).all()
    assert len(np.unique(whole)) > 4900, "values are told apart"


SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(
        2, "at", StructType(NestedField(3, "x", LongType(), required=False)), required=False
    ),
    NestedField(4, "tags", ListType(5, StringType()), required=False),
)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["id"], "2 to 8"),
        (["id", "id"], "different"),
        (["id", "nope"], "the table has"),
        (["id", "at"], "no single value"),
        (["id", "tags.element"], "no single value"),
    ],
)
def test_what_cannot_be_a_curve_is_refused(names, says):
    with pytest.raises(InvalidInputError, match=says):
        zorder_ids(names, SCHEMA)


def test_a_column_inside_a_struct():
    table = pa.Table.from_pylist(
        [{"id": 1, "at": {"x": 2}, "tags": None}, {"id": 1, "at": None, "tags": []}],
        schema_to_arrow(SCHEMA),
    )
    assert zorder_ids(["id", "at.x"], SCHEMA) == (1, 3)
    low, high = ZOrder.learn(["id", "at.x"], SCHEMA, table).positions(table)[::-1]
    assert low < high
    assert Decimal(int(high)) > 0
