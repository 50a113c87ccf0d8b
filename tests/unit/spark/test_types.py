"""Schemas both ways."""

from __future__ import annotations

import math
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyspark.sql import types as sp

from lakehouse.errors import InvalidSchemaError, UnsupportedTypeError
from lakehouse.spark.spark_types import (
    EXISTS_DEFAULT,
    FIELD_ID,
    for_workers,
    sql_literal,
    to_iceberg_schema,
    to_spark_schema,
)
from lakehouse.spec.schema.iceberg_types import VariantType

BOTH_WAYS = [
    ice.BooleanType(),
    ice.IntegerType(),
    ice.LongType(),
    ice.FloatType(),
    ice.DoubleType(),
    ice.DateType(),
    ice.TimeType(),
    ice.TimestampType(),
    ice.TimestamptzType(),
    ice.StringType(),
    ice.BinaryType(),
    ice.DecimalType(38, 10),
]
kinds = st.recursive(
    st.sampled_from(BOTH_WAYS),
    lambda inner: st.one_of(
        st.builds(lambda kind, required: ice.ListType(100, kind, required), inner, st.booleans()),
        st.builds(
            lambda key, value, required: ice.MapType(100, key, 101, value, required),
            inner,
            inner,
            st.booleans(),
        ),
        st.lists(st.tuples(inner, st.booleans()), min_size=1, max_size=3).map(
            lambda fields: ice.StructType(
                *(ice.NestedField(i, f"n{i}", k, required=r) for i, (k, r) in enumerate(fields, 1))
            )
        ),
    ),
    max_leaves=5,
)


@given(
    st.lists(
        st.tuples(kinds, st.booleans(), st.sampled_from([None, "a doc"])), min_size=1, max_size=4
    )
)
def test_there_and_back(fields):
    raw = Schema(
        *(
            ice.NestedField(1000 + i, f"c{i}", kind, required=r, doc=doc)
            for i, (kind, r, doc) in enumerate(fields)
        )
    )
    schema = assign_fresh_schema_ids(raw)
    assert to_iceberg_schema(to_spark_schema(schema)).as_struct() == schema.as_struct()


def test_every_field_carries_its_id():
    inner = ice.StructType(ice.NestedField(9, "x", ice.IntegerType(), required=True))
    shown = to_spark_schema(
        Schema(
            ice.NestedField(7, "s", inner, required=False), ice.NestedField(3, "u", ice.UUIDType())
        )
    )
    assert shown["s"].metadata == {FIELD_ID: 7}
    assert shown["s"].dataType["x"].metadata == {FIELD_ID: 9}
    assert not shown["s"].dataType["x"].nullable
    assert shown["u"].dataType == sp.BinaryType()


def test_variants_and_geometries_have_types_in_spark():
    kinds = (VariantType(), ice.GeometryType(), ice.GeographyType())
    fields = [ice.NestedField(at, f"c{at}", kind, required=False) for at, kind in enumerate(kinds)]
    shown = to_spark_schema(Schema(*fields))
    assert [one.dataType for one in shown] == [sp.VariantType(), sp.BinaryType(), sp.BinaryType()]
    assert to_iceberg_schema(shown).find_type("c0") == VariantType()


@pytest.mark.parametrize("kind", [sp.DayTimeIntervalType(), sp.NullType()])
def test_a_type_iceberg_lacks_is_refused_by_name(kind):
    with pytest.raises(UnsupportedTypeError, match=r"'outer\.element'"):
        to_iceberg_schema(sp.StructType([sp.StructField("outer", sp.ArrayType(kind))]))


@pytest.mark.parametrize("kind", [sp.GeometryType(4326), sp.GeographyType(4326)])
def test_geometries_of_spark_are_refused_with_the_way_out(kind):
    with pytest.raises(UnsupportedTypeError, match=r"'g'.*WKB.*ST_AsBinary"):
        to_iceberg_schema(sp.StructType([sp.StructField("g", kind)]))


def test_a_name_that_occurs_twice_is_refused():
    """A query of a pipeline may have two columns of a name; Spark does not look."""
    with pytest.raises(InvalidSchemaError, match="'v'"):
        to_iceberg_schema(sp.StructType().add("k", "long").add("v", "long").add("v", "double"))


def test_narrow_integers_and_char_types_widen():
    schema = to_iceberg_schema(
        sp.StructType(
            [
                sp.StructField("b", sp.ByteType()),
                sp.StructField("s", sp.ShortType()),
                sp.StructField("v", sp.VarcharType(3)),
            ]
        )
    )
    assert [str(field.field_type) for field in schema.fields] == ["int", "int", "string"]


def test_initial_default_becomes_exists_default():
    field = ice.NestedField(1, "c", ice.StringType(), required=True, initial_default="it's \\ so")
    assert to_spark_schema(Schema(field))["c"].metadata[EXISTS_DEFAULT] == r"'it\'s \\ so'"


def test_what_sparks_reader_lacks_is_for_workers():
    long, key = ice.NestedField(2, "x", ice.LongType()), ice.NestedField(3, "u", ice.UUIDType())
    late = long.model_copy(update={"initial_default": 5})
    fields = {
        "plain": ice.StructType(long),
        "uuid": ice.UUIDType(),
        "nested_uuid": ice.StructType(key),
        "nested_default": ice.ListType(4, ice.StructType(late)),
        "nanos": ice.MapType(5, ice.StringType(), 6, ice.TimestampNanoType()),
    }
    schema = Schema(*(ice.NestedField(7 + i, *one) for i, one in enumerate(fields.items())))
    assert for_workers(schema) == ["nested_uuid", "nested_default", "nanos"]
    for kind, value in (("uuid", UUID(int=1)), ("binary", b""), ("long", 1)):
        field = ice.NestedField(1, "c", kind, required=False, initial_default=value)
        assert for_workers(Schema(field)) == ([] if kind == "long" else ["c"])


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (ice.BooleanType(), True, "true"),
        (ice.IntegerType(), -5, "CAST('-5' AS INT)"),
        (ice.DoubleType(), math.nan, "CAST('NaN' AS DOUBLE)"),
        (ice.FloatType(), -math.inf, "CAST('-Infinity' AS FLOAT)"),
        (ice.DecimalType(9, 2), Decimal("1.20"), "CAST('1.20' AS DECIMAL(9, 2))"),
        (ice.DateType(), -1, "DATE '1969-12-31'"),
        (ice.TimeType(), 1, "TIME '00:00:00.000001'"),
        (ice.TimestampType(), -1, "TIMESTAMP_NTZ '1969-12-31 23:59:59.999999'"),
        (ice.TimestamptzType(), 0, "TIMESTAMP '1970-01-01 00:00:00.000000+00:00'"),
        (ice.BinaryType(), b"\x00\xff", "X'00ff'"),
        (ice.UUIDType(), UUID(int=1), f"'{UUID(int=1)}'"),
        (ice.TimestampNanoType(), 1, "'1970-01-01 00:00:00.000000001'"),
    ],
)
def test_literals(kind, value, text):
    assert sql_literal(kind, value) == text


def test_a_date_beyond_what_sql_can_write_is_refused():
    with pytest.raises(UnsupportedTypeError, match="9999"):
        sql_literal(ice.DateType(), 4_000_000)
