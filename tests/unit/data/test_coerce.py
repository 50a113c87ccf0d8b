"""Input data to table schemas: what fits, what is refused, and that messages name the column."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
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
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse.data.writing.input_columns import Coercer, coerce
from lakehouse.errors import InvalidSchemaError
from lakehouse.spec.types.arrow_types import schema_to_arrow

VIEWS = pa.array(["a", None, "c"], pa.string_view())
TEXTS = ListType(1, StringType(), element_required=False)
UUID_BYTES = bytes.fromhex("f79c3e09677c4bbda4793f349cb785e7")


def one(kind, **changes):
    return Schema(NestedField(1, "x", kind, **{"required": False, **changes}))


def batch(array, name="x"):
    return pa.RecordBatch.from_arrays([array], names=[name])


ACCEPTED = [
    (BooleanType(), pa.array([True, None]), [True, None]),
    (IntegerType(), pa.array([1, None], pa.int8()), [1, None]),
    (IntegerType(), pa.array([2**31 - 1], pa.int64()), [2**31 - 1]),
    (IntegerType(), pa.array([7], pa.uint64()), [7]),
    (LongType(), pa.array([2**32 - 1], pa.uint32()), [2**32 - 1]),
    (FloatType(), pa.array([1.5], pa.float64()), [1.5]),
    (DoubleType(), pa.array([1.5], pa.float16()), [1.5]),
    (DoubleType(), pa.array([3], pa.int64()), [3.0]),
    (DecimalType(9, 2), pa.array([Decimal("1.5")], pa.decimal128(5, 1)), [Decimal("1.50")]),
    (DecimalType(38, 2), pa.array([3], pa.int32()), [Decimal("3.00")]),
    (DateType(), pa.array([dt.date(2020, 1, 1)], pa.date64()), [dt.date(2020, 1, 1)]),
    (TimeType(), pa.array([dt.time(1, 2, 3)], pa.time32("s")), [dt.time(1, 2, 3)]),
    (
        TimestampType(),
        pa.array([1], pa.timestamp("s")),
        [dt.datetime(1970, 1, 1, 0, 0, 1)],  # noqa: DTZ001
    ),
    (
        TimestampType(),
        pa.array([1000], pa.timestamp("ns")),
        [dt.datetime(1970, 1, 1, 0, 0, 0, 1)],  # noqa: DTZ001
    ),
    (
        TimestamptzType(),
        pa.array([0], pa.timestamp("us", "Europe/Berlin")),
        [dt.datetime(1970, 1, 1, tzinfo=dt.UTC)],
    ),
    (StringType(), pa.array(["a", "a", None]).dictionary_encode(), ["a", "a", None]),
    (StringType(), pa.array(["a"], pa.large_string()), ["a"]),
    (StringType(), pa.array(["a"], pa.string_view()), ["a"]),
    (StringType(), pa.nulls(2), [None, None]),
    (StringType(), pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]), ["a", "a", "b"]),
    (StringType(), pa.DictionaryArray.from_arrays([2, 1, None, 0], VIEWS), ["c", None, None, "a"]),
    (StringType(), pa.RunEndEncodedArray.from_arrays([2, 3, 4], VIEWS)[1:], ["a", None, "c"]),
    (TEXTS, pa.array([["a", None], None, []], pa.list_(pa.string_view())), [["a", None], None, []]),
    (
        TEXTS,
        pa.ListArray.from_arrays([0, 1, 2, 3], VIEWS, mask=pa.array([False, True, False])),
        [["a"], None, ["c"]],
    ),
    (BinaryType(), pa.array([b"ab"], pa.binary(2)), [b"ab"]),
    (FixedType(2), pa.array([b"ab", None], pa.binary_view()), [b"ab", None]),
    (FixedType(2), pa.array([b"ab", None]), [b"ab", None]),
    (UUIDType(), pa.array([UUID_BYTES], pa.binary(16)), [UUID_BYTES]),
    (UUIDType(), pa.array(["f79c3e09-677c-4bbd-a479-3f349cb785e7", None]), [UUID_BYTES, None]),
]


@pytest.mark.parametrize(
    ("kind", "array", "expected"), ACCEPTED, ids=lambda v: str(getattr(v, "type", v))[:30]
)
def test_accepted(kind, array, expected):
    result = Coercer(one(kind)).batch(batch(array))
    assert result.schema == schema_to_arrow(one(kind))
    assert result.schema.field(0).metadata[b"PARQUET:field_id"] == b"1"
    column = result.column(0)
    got = (
        column.storage.to_pylist() if isinstance(column, pa.ExtensionArray) else column.to_pylist()
    )
    assert got == expected


REFUSED = [
    (IntegerType(), pa.array([2**31], pa.int64()), "2147483648"),
    (LongType(), pa.array([2**63], pa.uint64()), "9223372036854775808"),
    (IntegerType(), pa.array([1.0]), "double"),
    (IntegerType(), pa.array(["1"]), "string"),
    (FloatType(), pa.array([0.1], pa.float64()), "0.1"),
    (DoubleType(), pa.array([2**53 + 1], pa.int64()), "9007199254740993"),
    (DecimalType(4, 1), pa.array([Decimal("1.25")], pa.decimal128(5, 2)), "decimal"),
    (DecimalType(4, 1), pa.array([Decimal(12345)], pa.decimal128(5, 0)), "decimal"),
    (DecimalType(4, 1), pa.array([1.5]), "double"),
    (TimestampType(), pa.array([1], pa.timestamp("ns")), "would lose data"),
    (TimestampNanoType(), pa.array([2**62], pa.timestamp("us")), "out of bounds"),
    (TimestampType(), pa.array([1], pa.timestamp("us", "UTC")), "make the column timestamptz"),
    (TimestamptzType(), pa.array([1], pa.timestamp("us")), "assume_timezone"),
    (StringType(), pa.array([b"\xff"]), "binary"),
    (StringType(), pa.array([1]), "int64"),
    (BinaryType(), pa.array(["a"]), "string"),
    (FixedType(2), pa.array([b"abc"]), "2 bytes"),
    (UUIDType(), pa.array(["nonsense"]), "uuid"),
    (ListType(2, LongType(), element_required=False), pa.array([1]), "list"),
    (MapType(2, StringType(), 3, LongType(), value_required=False), pa.array([[1]]), "map"),
    (StructType(NestedField(2, "a", LongType())), pa.array([1]), "struct"),
]


@pytest.mark.parametrize(
    ("kind", "array", "what"), REFUSED, ids=lambda v: str(getattr(v, "type", v))[:30]
)
def test_refused_with_table_column_and_value(kind, array, what):
    with pytest.raises(InvalidSchemaError, match=r"'x' of table raw\.events") as error:
        Coercer(one(kind), "raw.events").batch(batch(array))
    assert what in str(error.value)


def test_naming():
    schema = Schema(
        NestedField(1, "a", LongType(), required=True), NestedField(2, "b", StringType())
    )
    with pytest.raises(InvalidSchemaError, match=r"'A' is not in the table's schema .*a, b"):
        Coercer(schema).batch(batch(pa.array([1]), "A"))
    with pytest.raises(InvalidSchemaError, match="'a' is required and missing"):
        Coercer(schema).batch(batch(pa.array(["x"]), "b"))
    with pytest.raises(InvalidSchemaError, match="'a' is required but null in row 1"):
        Coercer(schema).batch(batch(pa.array([1, None]), "a"))
    with pytest.raises(InvalidSchemaError, match="'a' is there twice"):
        Coercer(schema).batch(
            pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
        )
    assert Coercer(schema).batch(batch(pa.array([1]), "a")).to_pylist() == [{"a": 1, "b": None}]


def test_order_and_defaults():
    schema = Schema(
        NestedField(1, "a", LongType()),
        NestedField(2, "b", StringType(), required=True, write_default="new"),
        NestedField(3, "d", DateType(), write_default=dt.date(2020, 2, 29)),
    )
    got = Coercer(schema).batch(batch(pa.array([1, 2]), "a"))
    assert got.to_pylist() == [{"a": n, "b": "new", "d": dt.date(2020, 2, 29)} for n in (1, 2)]


def test_nested_by_name_and_required_children_of_null_parents():
    inner = StructType(
        NestedField(2, "p", LongType(), required=True), NestedField(3, "q", StringType())
    )
    schema = Schema(
        NestedField(1, "s", inner),
        NestedField(4, "l", ListType(5, inner, element_required=True)),
        NestedField(6, "m", MapType(7, StringType(), 8, IntegerType(), value_required=True)),
    )
    source = pa.schema(
        [
            ("m", pa.map_(pa.string(), pa.int64())),
            ("l", pa.large_list(pa.struct([("q", pa.large_string()), ("p", pa.int8())]))),
            ("s", pa.struct([("p", pa.int32())])),
        ]
    )
    rows = [
        {"m": [("k", 1)], "l": [{"q": "a", "p": 1}], "s": {"p": 1}},
        {"m": None, "l": None, "s": None},
        {"m": [], "l": [], "s": {"p": 2}},
    ]
    (got,) = coerce(pa.Table.from_pylist(rows, schema=source), schema)
    assert got.schema == schema_to_arrow(schema)
    assert got.to_pylist() == [
        {"s": {"p": 1, "q": None}, "l": [{"p": 1, "q": "a"}], "m": [("k", 1)]},
        {"s": None, "l": None, "m": None},
        {"s": {"p": 2, "q": None}, "l": [], "m": []},
    ]
    rows[2]["s"] = {"p": None}
    with pytest.raises(InvalidSchemaError, match=r"'s\.p' is required but null in row 2"):
        list(coerce(pa.Table.from_pylist(rows, schema=source), schema))
    rows[2] = {"m": [("k", None)], "l": [], "s": None}
    with pytest.raises(InvalidSchemaError, match=r"'m\.value' is required"):
        list(coerce(pa.Table.from_pylist(rows, schema=source), schema))


def test_slices_keep_their_place():
    schema = Schema(
        NestedField(1, "l", ListType(2, LongType(), element_required=False)),
        NestedField(3, "s", StructType(NestedField(4, "a", LongType()))),
    )
    table = pa.table(
        {
            "l": pa.array([[1], [2, 3], None, [4]], pa.list_(pa.int32())),
            "s": pa.array([{"a": 1}, None, {"a": 3}, {"a": 4}]),
        }
    )
    (got,) = coerce(table.to_batches()[0].slice(1, 3), schema)
    assert got.to_pylist() == [
        {"l": [2, 3], "s": None},
        {"l": None, "s": {"a": 3}},
        {"l": [4], "s": {"a": 4}},
    ]


def test_no_rows_still_have_a_schema():
    with pytest.raises(InvalidSchemaError, match="'y'"):
        list(coerce(pa.schema([("y", pa.int64())]).empty_table(), one(LongType())))
    reader = pa.RecordBatchReader.from_batches(pa.schema([("y", pa.int64())]), [])
    with pytest.raises(InvalidSchemaError, match="'y'"):
        list(coerce(reader, one(LongType())))
