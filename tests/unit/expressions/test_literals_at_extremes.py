"""Literals of every number type, at and beyond every edge, against arithmetic on fractions."""

from __future__ import annotations

import math
import operator as op
import struct
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg import expressions as ex
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, LongType, NestedField

import lakehouse as lh
from lakehouse.expressions.bound_filter import every_mask, fold, matches, some_mask
from lakehouse.expressions.filter_binding import bind
from lakehouse.expressions.transforms.partition_transforms import arrow_array

OPERATORS = {
    ex.EqualTo: lambda left, right: left == right,
    ex.NotEqualTo: lambda left, right: left != right,
    ex.LessThan: lambda left, right: left < right,
    ex.LessThanOrEqual: lambda left, right: left <= right,
    ex.GreaterThan: lambda left, right: left > right,
    ex.GreaterThanOrEqual: lambda left, right: left >= right,
}
TINY_FLOAT, BIG_FLOAT = 2.0**-149, float(np.finfo(np.float32).max)
FLOATS = [
    -math.inf,
    -BIG_FLOAT,
    -1.5,
    -TINY_FLOAT,
    -0.0,
    0.0,
    TINY_FLOAT,
    1.5,
    BIG_FLOAT,
    math.inf,
    math.nan,
]
KINDS = {
    "int": (IntegerType(), [-(2**31), -1, 0, 1, 2**31 - 1]),
    "long": (LongType(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    "float": (FloatType(), FLOATS),
    "double": (DoubleType(), [*FLOATS, 5e-324, -5e-324, 1.7976931348623157e308]),
    "decimal(5,2)": (
        DecimalType(5, 2),
        [Decimal(text) for text in ("-999.99", "-0.01", "0.00", "0.01", "999.99")],
    ),
    "decimal(38,38)": (
        DecimalType(38, 38),
        [Decimal(f"{sign}{digits}E-38") for sign in ("-", "") for digits in (1, 10**38 - 1)],
    ),
    "decimal(38,0)": (DecimalType(38, 0), [Decimal(1 - 10**38), Decimal(0), Decimal(10**38 - 1)]),
}
LITERALS = [
    0, 1, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1,
    10**38, -(10**38), 10**400,
    0.5, -0.5, -0.0, 1e-90, -1e-90, 5e-324, -5e-324, 1e300, -1e300, math.inf, -math.inf,
    *(Decimal(text) for text in ("0E+100", "0E-100", "-0", "1E-90", "-1E-90", "1E-38", "1E-39")),
    *(Decimal(text) for text in ("-1E-39", "0.005", "-0.005", "999.99", "999.995", "-999.995")),
    *(Decimal(text) for text in ("1E+90", "-1E+90")),
    *(Decimal(text) for text in ("1E+999999", "-1E+999999", "1E-999999")),
    "1e-90", "-1e-90", "0e100", "1e999999", "nan", "inf", "-inf",
]  # fmt: skip


def place(value):
    """A number on the line on which NaN is above infinity; sign of zero forgotten."""
    number = Decimal(value) if isinstance(value, str) else value
    if isinstance(number, Decimal) and not number.is_finite():
        number = float(number)
    if isinstance(number, float) and math.isnan(number):
        return (2, Fraction(0))
    if isinstance(number, float) and math.isinf(number):
        return (1 if number > 0 else -1, Fraction(0))
    if isinstance(number, Decimal) and abs(number.adjusted()) > 1000 and number:
        # far outside every type: any number on the same side of all values will do
        number = number.scaleb(1000 * (1 if number.adjusted() > 0 else -1) - number.adjusted())
    return (0, Fraction(repr(number)) if isinstance(number, float) else Fraction(number))


def rounded(literal, kind):
    """A literal is rounded to a floating column first (docs/filters.md), unless out of range."""
    where, number = place(literal)
    if where or not isinstance(kind, FloatType | DoubleType):
        return where, number
    try:
        found = float(number)
        if isinstance(kind, FloatType):
            (found,) = struct.unpack("<f", struct.pack("<f", found))
    except OverflowError:
        return where, number
    return place(found) if math.isfinite(found) else (where, number)


def is_number(literal):
    return not isinstance(literal, str) or Decimal(literal).is_finite()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("literal", LITERALS, ids=repr)
def test_comparisons(kind, literal):
    iceberg, values = KINDS[kind]
    if (
        not isinstance(iceberg, FloatType | DoubleType)
        and not is_number(literal)
        and "nan" in str(literal)
    ):
        return
    schema = Schema(NestedField(1, "x", iceberg))
    column = arrow_array([*values, None], iceberg)
    right = rounded(literal, iceberg)
    for operator, holds in OPERATORS.items():
        found = fold(
            bind(operator("x", literal), schema),
            lambda leaf: matches(column, leaf),
            lambda constant: np.full(len(column), constant),
            every_mask,
            some_mask,
        )
        expected = [holds(place_exact(value, iceberg), right) for value in values]
        assert found.tolist() == [*expected, False], operator.__name__


def place_exact(value, kind):
    if isinstance(value, float) and math.isfinite(value):
        return (0, Fraction(repr(value)) if isinstance(kind, DoubleType) else Fraction(value))
    return place(value)


@pytest.mark.parametrize("kind", KINDS)
def test_membership(kind):
    iceberg, values = KINDS[kind]
    schema = Schema(NestedField(1, "x", iceberg))
    column = arrow_array([*values, None], iceberg)
    floating = isinstance(iceberg, FloatType | DoubleType)
    literals = [literal for literal in LITERALS if floating or is_number(literal)]
    wanted = {rounded(literal, iceberg) for literal in literals}
    for operator, listed in ((ex.In, True), (ex.NotIn, False)):
        found = fold(
            bind(operator("x", [str(literal) for literal in literals]), schema),
            lambda leaf: matches(column, leaf),
            lambda constant: np.full(len(column), constant),
            every_mask,
            some_mask,
        )
        expected = [(place_exact(value, iceberg) in wanted) is listed for value in values]
        assert found.tolist() == [*expected, False]


@pytest.mark.parametrize("width", [1, 10])
@pytest.mark.parametrize("sign", ["", "-"])
def test_decimals_of_more_digits_than_python_computes_with(tmp_path, width, sign):
    kind = pa.decimal128(38, 10)
    table = lh.load_catalog(str(tmp_path)).create_table(
        "a.b", pa.schema([("w", kind)]), partition_by=[f"truncate({width}, w)"]
    )
    values = [Decimal(f"{sign}1234567890123456789012345678.901234567{one}") for one in range(10)]
    table.append(pa.table({"w": pa.array(values, kind)}))
    for value in values:
        for operator, holds in {"<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}.items():
            expected = [one for one in values if holds(one, value)]
            for name in ("w", "-(-w)"):
                found = table.scan(where=f"{name} {operator} {value:f}")
                assert sorted(found.to_arrow()["w"].to_pylist()) == sorted(expected)
                assert found.count() == len(expected)
