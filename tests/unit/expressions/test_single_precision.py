"""A float column cast to double compares with doubles that no float is, as in DuckDB."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, NestedField

from lakehouse.expressions.filter_binding import bind
from lakehouse.expressions.row_evaluation import passing

SCHEMA = Schema(NestedField(1, "f", FloatType()))
LEAST, GREATEST = 1e-45, 3.4028234663852886e38
VALUES = [
    None, 0.0, -0.0, 1.5, -1.5, 0.1, LEAST, -LEAST, GREATEST, -GREATEST, 16777216.0,
    float("nan"), float("inf"), -float("inf"),
]  # fmt: skip
LITERALS = ["1e-90", "-1e-90", "0.1e0", "1.5e0", "16777217e0", "1e300", "-1e300", "7e-46", "0e0"]


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("literal", LITERALS)
def test_a_float_cast_to_double(op, literal):
    column = pa.array(VALUES, pa.float32())
    text = f"cast(f as double) {op} {literal}"
    found = passing(bind(text, SCHEMA), lambda _: column, len(column))
    peer = duckdb.connect()
    peer.register("t", pa.table({"f": column}))
    said = peer.execute(
        f"SELECT coalesce({text.replace(literal, f'({literal})::DOUBLE')}, false) FROM t"
    )
    assert found.tolist() == [one for (one,) in said.fetchall()]


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("number", [0.0, -2.0, 2.0**24, 2.0**53, -(2.0**53), 1e300])
@pytest.mark.parametrize("kind", [FloatType(), DoubleType()], ids=str)
def test_floor_of_numbers_that_have_no_next_whole_number(kind, number, op):
    values = [None, number, -number, number + 0.5, number + 1, number * 2, float("nan")]
    single = isinstance(kind, FloatType)
    if single:
        values = [None if value is None or abs(value) > 3e38 else value for value in values]
    column = pa.array(values, pa.float32() if single else pa.float64())
    text = f"floor(f) {op} {number!r}"
    schema = Schema(NestedField(1, "f", kind))
    found = passing(bind(text, schema), lambda _: column, len(column))
    peer = duckdb.connect()
    peer.register("t", pa.table({"f": column}))
    said = peer.execute(f"SELECT coalesce(floor(f) {op} ({number!r})::DOUBLE, false) FROM t")
    assert found.tolist() == [one for (one,) in said.fetchall()]
