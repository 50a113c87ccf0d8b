import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from lakehouse.errors import InvalidSchemaError, UnsupportedTypeError
from lakehouse.spec.types.arrow_types import schema_from_arrow, schema_to_arrow


@pytest.mark.parametrize(
    ("arrow", "iceberg"),
    [
        (pa.bool_(), "boolean"),
        (pa.int8(), "int"),
        (pa.uint16(), "int"),
        (pa.int32(), "int"),
        (pa.uint32(), "long"),
        (pa.int64(), "long"),
        (pa.float16(), "float"),
        (pa.float32(), "float"),
        (pa.float64(), "double"),
        (pa.decimal128(38, 0), "decimal(38, 0)"),
        (pa.decimal256(12, 3), "decimal(12, 3)"),
        (pa.date32(), "date"),
        (pa.date64(), "date"),
        (pa.time32("ms"), "time"),
        (pa.time64("us"), "time"),
        (pa.timestamp("s"), "timestamp"),
        (pa.timestamp("us"), "timestamp"),
        (pa.timestamp("ms", tz="Europe/Berlin"), "timestamptz"),
        (pa.timestamp("ns"), "timestamp_ns"),
        (pa.timestamp("ns", tz="UTC"), "timestamptz_ns"),
        (pa.string(), "string"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.binary(), "binary"),
        (pa.large_binary(), "binary"),
        (pa.binary(7), "fixed[7]"),
        (pa.uuid(), "uuid"),
        (pa.time64("ns"), "time"),
        (pa.null(), "unknown"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "long"),
        (pa.json_(), "string"),
        (pa.list_(pa.int64()), "list<long>"),
        (pa.large_list(pa.int64()), "list<long>"),
        (pa.list_(pa.int64(), 3), "list<long>"),
        (pa.map_(pa.string(), pa.int32()), "map<string, int>"),
    ],
)
def test_every_arrow_type_that_iceberg_has(arrow, iceberg):
    schema = schema_from_arrow(pa.schema([pa.field("c", arrow)]))
    assert str(schema.fields[0].field_type) == iceberg


@pytest.mark.parametrize(
    "arrow",
    [
        pa.uint64(),
        pa.duration("s"),
        pa.decimal256(40, 2),
        pa.decimal128(5, -2),
        pa.decimal128(2, 5),
        pa.month_day_nano_interval(),
        pa.dense_union([pa.field("a", pa.int64())]),
        pa.opaque(pa.string(), "x", "y"),
    ],
)
def test_what_iceberg_lacks_is_refused_by_name(arrow):
    nested = pa.schema([pa.field("outer", pa.struct([pa.field("inner", pa.list_(arrow))]))])
    with pytest.raises(UnsupportedTypeError, match=r"outer\.inner\.element"):
        schema_from_arrow(nested)


NESTED = Schema(
    NestedField(5, "a", LongType(), required=True, doc="the a"),
    NestedField(
        9,
        "s",
        StructType(
            NestedField(
                7,
                "l",
                ListType(3, StructType(NestedField(2, "x", StringType())), element_required=True),
            ),
            NestedField(8, "m", MapType(20, StringType(), 21, LongType(), value_required=False)),
        ),
    ),
)


def test_ids_docs_and_nullability_survive_at_every_level():
    arrow = schema_to_arrow(NESTED)
    assert schema_from_arrow(arrow) == NESTED
    assert arrow.field("a").metadata == {b"PARQUET:field_id": b"5", b"doc": b"the a"}
    assert not arrow.field("a").nullable
    assert arrow.field("s").type.field("m").type.item_field.metadata[b"PARQUET:field_id"] == b"21"


def test_without_ids_they_are_assigned_level_by_level():
    fresh = schema_from_arrow(schema_to_arrow(NESTED, field_ids=False))
    assert [field.field_id for field in fresh.fields] == [1, 2]
    assert [field.field_id for field in fresh.fields[1].field_type.fields] == [3, 4]
    assert schema_to_arrow(NESTED, field_ids=False).field("a").metadata is None


def test_ids_on_some_fields_only_are_not_believed():
    half = pa.schema(
        [pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "77"}), pa.field("b", pa.int64())]
    )
    assert [field.field_id for field in schema_from_arrow(half).fields] == [1, 2]


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([pa.field("a", pa.int64()), pa.field("a", pa.string())]),
        pa.schema([pa.field("", pa.int64())]),
        pa.schema([pa.field(n, pa.int64(), metadata={"PARQUET:field_id": "1"}) for n in "ab"]),
        pa.schema([pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "x"})]),
        pa.schema(
            [pa.field("s", pa.struct([pa.field("a", pa.int64()), pa.field("a", pa.string())]))]
        ),
    ],
)
def test_schemas_that_cannot_be(schema):
    with pytest.raises(InvalidSchemaError):
        schema_from_arrow(schema)
