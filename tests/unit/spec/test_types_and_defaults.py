"""Types as text, schemas as JSON, defaults."""

import datetime as dt
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    GeographyType,
    GeometryType,
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

from lakehouse.errors import InvalidSchemaError, UnsupportedTypeError
from lakehouse.spec.schema.iceberg_types import VariantType, primitive_from_string
from lakehouse.spec.schema.schema_json import (
    default_from_json,
    default_to_json,
    make_field,
    schema_from_json,
    schema_to_json,
)
from lakehouse.spec.types.arrow_types import VARIANT, schema_to_arrow
from lakehouse.spec.types.type_text import to_iceberg_type, type_from_text

NAIVE = dt.datetime.fromisoformat("2020-01-01T00:00:00")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("string", StringType()),
        ("  Long ", LongType()),
        ("bigint", LongType()),
        ("decimal(10,2)", DecimalType(10, 2)),
        ("decimal( 10 , 2 )", DecimalType(10, 2)),
        ("fixed[16]", FixedType(16)),
        ("fixed(16)", FixedType(16)),
        ("timestamptz_ns", TimestamptzNanoType()),
        ("unknown", UnknownType()),
        ("variant", VariantType()),
        ("geometry", GeometryType()),
        ("geometry(srid:4326)", GeometryType("srid:4326")),
        ("geography(srid:4326, karney)", GeographyType("srid:4326", "karney")),
        ("GEOMETRY(projjson:MyCrs)", GeometryType("projjson:MyCrs")),
        ("Geometry( EPSG:4326 )", GeometryType("EPSG:4326")),
        ("geometry('EPSG:4326')", GeometryType("EPSG:4326")),
        ("geometry(projjson:a, B)", GeometryType("projjson:a, B")),
        (
            'geometry({"id": {"a": [1, 2]}, "n": "X (Y)"})',
            GeometryType('{"id": {"a": [1, 2]}, "n": "X (Y)"}'),
        ),
        ("geometry()", GeometryType()),
        ("Geography(OGC:CRS84, Vincenty)", GeographyType("OGC:CRS84", "vincenty")),
        ("geography('srid:1', 'thomas')", GeographyType("srid:1", "thomas")),
        ("geography(, andoyer)", GeographyType("OGC:CRS84", "andoyer")),
        ("geography(projjson:A,b, spherical)", GeographyType("projjson:A,b")),
        ('geography({"a": 1, "B": 2})', GeographyType('{"a": 1, "B": 2}')),
        (
            "list<geography(EPSG:4326, karney)>",
            ListType(1, GeographyType("EPSG:4326", "karney"), element_required=False),
        ),
        ("list<int>", ListType(1, IntegerType(), element_required=False)),
        (
            "map<string, decimal(3,1)>",
            MapType(1, StringType(), 2, DecimalType(3, 1), value_required=False),
        ),
    ],
)
def test_types_by_name(text, expected):
    assert type_from_text(text) == expected


def test_nested_types_by_name():
    parsed = type_from_text(
        "struct<lat: double required, `odd, name`: list<map<string, struct<x: int>>>, t: "
        "decimal(9, 2)>"
    )
    lat, odd, last = parsed.fields
    assert (lat.name, lat.required, lat.field_type) == ("lat", True, DoubleType())
    assert odd.name == "odd, name"
    assert odd.field_type.element_type.value_type.fields[0].name == "x"
    assert last.field_type == DecimalType(9, 2)


@pytest.mark.parametrize(
    "text",
    ["", "strin",  "list<", "list<int", "list<int>>", "map<int>", "struct<>", "struct<a>",
     "struct<a:>", "decimal(99,2)", "decimal", "decimal(2,3)", "fixed[x]", "int int", "<int>",
     "list<int> x", "list<" * 500],
)  # fmt: skip
def test_not_types(text):
    with pytest.raises(InvalidSchemaError):
        type_from_text(text)


def test_types_of_every_kind_are_taken():
    assert to_iceberg_type(pa.large_string()) == StringType()
    assert to_iceberg_type(LongType()) == LongType()
    with pytest.raises(UnsupportedTypeError, match="speed"):
        to_iceberg_type(pa.duration("s"), "speed")
    for wrong in (5, None, str, NestedField(1, "a", LongType())):
        with pytest.raises(InvalidSchemaError):
            to_iceberg_type(wrong)


def test_json_spellings_with_and_without_blanks():
    for text in ("decimal(9,2)", "decimal(9, 2)", "decimal( 9 ,2 )"):
        assert primitive_from_string(text) == DecimalType(9, 2)


@pytest.mark.parametrize(
    ("kind", "json_value", "value"),
    [
        (IntegerType(), 5, 5),
        (LongType(), -(2**63), -(2**63)),
        (DoubleType(), 1.5, 1.5),
        (StringType(), "", ""),
        (DateType(), "1969-12-31", dt.date(1969, 12, 31)),
        (TimeType(), "22:31:08.000001", dt.time(22, 31, 8, 1)),
        (
            TimestampType(),
            "2017-11-16T22:31:08.123456",
            NAIVE.replace(2017, 11, 16, 22, 31, 8, 123456),
        ),
        (
            TimestamptzType(),
            "2017-11-16T22:31:08.123456+00:00",
            dt.datetime(2017, 11, 16, 22, 31, 8, 123456, tzinfo=dt.UTC),
        ),
        (TimestampNanoType(), "1970-01-01T00:00:01.123456789", 1_123_456_789),
        (TimestamptzNanoType(), "1969-12-31T23:59:59.999999999+00:00", -1),
        (
            UUIDType(),
            "f79c3e09-677c-4bbd-a479-3f349cb785e7",
            uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        ),
        (FixedType(2), "00ff", b"\x00\xff"),
        (BinaryType(), "00ff", b"\x00\xff"),
        (DecimalType(9, 2), "14.20", Decimal("14.20")),
        (StructType(NestedField(1, "a", LongType())), {}, ()),
    ],
)
def test_defaults_in_both_directions(kind, json_value, value):
    assert default_from_json(kind, json_value) == value
    assert default_to_json(kind, value) == json_value
    schema = Schema(
        make_field(7, "c", kind, initial_default=value, write_default=value), schema_id=2
    )
    assert schema_from_json(schema_to_json(schema)) == schema


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (IntegerType(), 2**31),
        (IntegerType(), True),
        (IntegerType(), "5"),
        (LongType(), 2**63),
        (DoubleType(), float("nan")),
        (DoubleType(), True),
        (StringType(), 5),
        (DateType(), NAIVE),
        (TimestampType(), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        (TimestamptzType(), NAIVE),
        (TimestampNanoType(), "2020-01-01T00:00:00+00:00"),
        (TimestampNanoType(), "2020-01-01T00:00:00.0000000001"),
        (DecimalType(3, 1), Decimal("1.25")),
        (DecimalType(3, 1), Decimal(100)),
        (DecimalType(3, 1), Decimal("NaN")),
        (FixedType(2), b"abc"),
        (UUIDType(), "x"),
        (UnknownType(), 5),
        (VariantType(), 5),
        (GeometryType(), "POINT (0 0)"),
        (ListType(1, LongType()), []),
        (StructType(NestedField(1, "a", LongType())), {"a": 1}),
    ],
)
def test_defaults_that_are_no_value_of_the_type(kind, value):
    with pytest.raises(InvalidSchemaError):
        default_from_json(kind, value)


def test_a_variant_column_is_bytes_in_arrow():
    optional = {"required": False, "type": "variant"}
    fields = [{"id": 1, "name": "v", **optional}, {"id": 2, "name": "w", **optional}]
    schema = schema_from_json({"type": "struct", "fields": fields})
    assert schema_to_json(schema)["fields"][0]["type"] == "variant"
    assert schema_to_arrow(schema).types == [VARIANT, VARIANT]
