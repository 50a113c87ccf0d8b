"""Binding: names, literals at and beyond the edges of their types, negation."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from uuid import UUID

import pytest
from pyiceberg import expressions as ex
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.bound_filter import FALSE, TRUE, Leaf, Op
from lakehouse.expressions.filter_binding import bind
from lakehouse.expressions.filter_text import describe

SCHEMA = Schema(
    NestedField(1, "i", IntegerType()),
    NestedField(2, "l", LongType()),
    NestedField(3, "f", FloatType()),
    NestedField(4, "d", DoubleType()),
    NestedField(5, "m", DecimalType(5, 2)),
    NestedField(6, "s", StringType()),
    NestedField(7, "day", DateType()),
    NestedField(8, "ts", TimestampType()),
    NestedField(9, "tz", TimestamptzType()),
    NestedField(10, "ns", TimestampNanoType()),
    NestedField(11, "time", TimeType()),
    NestedField(12, "u", UUIDType()),
    NestedField(13, "b", BooleanType()),
    NestedField(14, "bin", BinaryType()),
    NestedField(15, "n", StructType(NestedField(16, "X", IntegerType()))),
    NestedField(17, "items", ListType(18, LongType())),
)
HOUR_US = 3_600_000_000
INF = float("inf")


@pytest.mark.parametrize(
    ("where", "op", "value"),
    [
        ("i < 5", Op.LT, 5),
        ("5 < i", Op.GT, 5),
        ("i < 3000000000", Op.NOT_NULL, None),
        ("i >= -3000000000", Op.NOT_NULL, None),
        ("i != 3000000000", Op.NOT_NULL, None),
        ("i < 1.5", Op.LTE, 1),
        ("i <= 1.5", Op.LTE, 1),
        ("i > -1.5", Op.GT, -2),
        ("i >= 1.5", Op.GT, 1),
        ("i in (1, 2, 3000000000)", Op.IN, (1, 2)),
        ("i not in (1.5, 2.5)", Op.NOT_NULL, None),
        ("m > 1.005", Op.GT, Decimal("1.00")),
        ("m < -1.005", Op.LTE, Decimal("-1.01")),
        ("m < 1000", Op.NOT_NULL, None),
        ("m = 7", Op.EQ, Decimal("7.00")),
        ("day = '1969-12-31'", Op.EQ, -1),
        ("day < '1970-01-02T12:00:00'", Op.LTE, 1),
        ("day >= '1970-01-02T12:00:00'", Op.GT, 1),
        ("ts >= '1970-01-01'", Op.GTE, 0),
        ("ts >= '1969-12-31 23:00:00'", Op.GTE, -HOUR_US),
        ("ts > '1970-01-01T00:00:00.0000015'", Op.GT, 1),
        ("tz = '1970-01-01T00:00:00'", Op.EQ, 0),
        ("tz = '1970-01-01T00:00:00+01:00'", Op.EQ, -HOUR_US),
        ("tz = '1970-01-01T00:00:00Z'", Op.EQ, 0),
        ("ns = '1970-01-01T00:00:00.000000001'", Op.EQ, 1),
        ("time < '01:00:00'", Op.LT, HOUR_US),
        ("u = '00000000-0000-0000-0000-000000000005'", Op.EQ, UUID(int=5)),
        ("b = true", Op.EQ, True),
        ("bin = 'ab'", Op.EQ, b"ab"),
        ("s like 'a%'", Op.STARTS_WITH, "a"),
        ("not s like 'a%'", Op.NOT_STARTS_WITH, "a"),
        ("not (i > 5)", Op.LTE, 5),
        ("not i is null", Op.NOT_NULL, None),
        ("i is not nan", Op.NOT_NULL, None),
        ("n.X = 1", Op.EQ, 1),
    ],
)
def test_leaf(where, op, value):
    found = bind(where, SCHEMA)
    assert isinstance(found, Leaf)
    assert (found.op, found.value) == (op, value)


@pytest.mark.parametrize(
    "where",
    [
        "i = 1.5",
        "i = 3000000000",
        "i > 3000000000",
        "i in (1.5, 2.5)",
        "i is nan",
        "m = 1.005",
        "m >= 1000",
        "day = '1970-01-02T12:00:00'",
    ],
)
def test_never_true(where):
    assert bind(where, SCHEMA) == FALSE


@pytest.mark.parametrize(
    "where", [None, "", "  ", "true", ex.AlwaysTrue(), ex.Not(ex.AlwaysFalse())]
)
def test_always_true(where):
    assert bind(where, SCHEMA) == TRUE


@pytest.mark.parametrize(
    ("expression", "op", "value"),
    [
        (ex.LessThan("f", 1e300), Op.LT, INF),
        (ex.GreaterThan("f", 1e300), Op.GTE, INF),
        (ex.GreaterThan("f", -1e300), Op.GT, -INF),
        (ex.LessThan("f", -1e300), Op.LTE, -INF),
        (ex.LessThan("i", INF), Op.NOT_NULL, None),
        (ex.EqualTo("d", INF), Op.EQ, INF),
        # Naive on purpose.
        (ex.EqualTo("ts", dt.datetime(1970, 1, 1, 1)), Op.EQ, HOUR_US),  # noqa: DTZ001
        (
            ex.EqualTo("tz", dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))),
            Op.EQ,
            0,
        ),
        (ex.EqualTo("day", dt.date(1970, 1, 2)), Op.EQ, 1),
        (ex.GreaterThan("ts", dt.date(1970, 1, 2)), Op.GT, 24 * HOUR_US),
        (ex.EqualTo("u", UUID(int=7)), Op.EQ, UUID(int=7)),
        (ex.EqualTo("m", 0.1), Op.EQ, Decimal("0.10")),
    ],
)
def test_python_values(expression, op, value):
    found = bind(expression, SCHEMA)
    assert isinstance(found, Leaf)
    assert (found.op, found.value) == (op, value)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("i <", "something is missing after <"),
        ("-- i = 5", "there is no condition in it"),
        (";", "there is no condition in it"),
        ("i = 1e", "1e is no number"),
        ("i = 1e99999999999999999999 and i = 2", "is no number"),
        ("nope = 1", "no column nope"),
        ("I = 1", "no column I"),
        ("n = 1", "only primitive fields"),
        ("items.element = 1", "list or map"),
        ("i = 'x'", "compared with i of type int"),
        ("day = 'yesterday'", "compared with day of type date"),
        ("ts = '1970-01-01T00:00:00+00:00'", "time zone"),
        ("i like 'a%'", "only strings"),
        ("s = 5", "compared with s of type string"),
        ("u = 'abc'", "compared with u of type uuid"),
        ("ts = 1.5", "compared with ts of type timestamp"),
        (42, "text or a pyiceberg expression"),
    ],
)
def test_errors_name_the_column(where, message):
    with pytest.raises(InvalidExpressionError, match=message):
        bind(where, SCHEMA)


def test_names_without_case_come_back_as_the_schema_spells_them():
    found = bind("N.x = 1 and S in ('a', 'b') and I is null", SCHEMA, case_sensitive=False)
    assert describe(found) == "n.X = 1 and s in ('a', 'b') and i is null"
    assert bind(describe(found), SCHEMA) == found


def test_names_that_differ_in_case_alone_are_told_apart_or_refused():
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "ID", LongType()),
        NestedField(
            3,
            "s",
            StructType(NestedField(4, "x", LongType()), NestedField(5, "X", LongType())),
        ),
    )
    found = bind("id = 1 and ID = 2 and s.X = 3", schema, case_sensitive=False)
    assert describe(found) == "id = 1 and ID = 2 and s.X = 3"
    with pytest.raises(InvalidExpressionError, match="Id may be ID or id"):
        bind("Id = 1", schema, case_sensitive=False)


def test_what_is_bound_passes_through():
    found = bind("i = 1", SCHEMA)
    assert bind(found, SCHEMA) is found
