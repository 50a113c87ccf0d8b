"""Bounds of columns between values and bytes; there may be none."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse.spec.types.arrow_types import physical_type
from lakehouse.spec.types.internal_values import decode_bounds, encode_bounds

KINDS = [
    BinaryType(), BooleanType(), DateType(), DecimalType(9, 2), DecimalType(38, 10), DoubleType(),
    FixedType(3), FloatType(), IntegerType(), LongType(), StringType(), TimeType(), TimestampType(),
    TimestampNanoType(), TimestamptzType(), UUIDType(),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_columns_of_any_length_without_a_value(kind, rows):
    column = pa.nulls(rows, physical_type(kind))
    encoded = encode_bounds(column)
    assert (len(encoded), encoded.null_count) == (rows, rows)
    assert decode_bounds(encoded, kind).equals(column)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(IntegerType(), -7), (LongType(), 2**40), (DoubleType(), -0.5), (DateType(), -1)],
    ids=str,
)
def test_bytes_are_those_of_pyiceberg(kind, value):
    column = pa.array([value, None]).cast(physical_type(kind))
    assert encode_bounds(column).to_pylist() == [to_bytes(kind, value), None]
