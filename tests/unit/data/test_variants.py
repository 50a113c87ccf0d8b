"""Variants and geometries in files: DuckDB and PySpark are the judges."""

from __future__ import annotations

import datetime as dt
import json
import random
import struct
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    GeographyType,
    GeometryType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)
from pyspark.sql.variant_utils import VariantUtils

import lakehouse as lh
from lakehouse.data.conversion.variant_arrays import variants_of, variants_of_file
from lakehouse.errors import CorruptMetadataError, InvalidInputError, InvalidSchemaError
from lakehouse.inspect.files_tables import files_table
from lakehouse.spec.schema.iceberg_types import VariantType
from lakehouse.spec.types.arrow_types import schema_from_arrow, schema_to_arrow
from lakehouse.spec.types.variant_values import (
    array_value,
    decode_variant,
    encode_variant,
    variant_json,
)

POINTS = [struct.pack("<BIdd", 1, 1, 1.0, 2.0), None, struct.pack("<BIdd", 1, 1, 3.0, -4.0)]
FIELDS = StructType(
    NestedField(6, "a", ListType(8, GeometryType("EPSG:3857"), element_required=False)),
    NestedField(7, "b", MapType(9, StringType(), 10, VariantType(), value_required=False)),
)
SCHEMA = Schema(
    NestedField(1, "i", LongType(), required=False),
    NestedField(2, "v", VariantType(), required=False),
    NestedField(3, "g", GeometryType(), required=False),
    NestedField(4, "h", GeographyType("OGC:CRS84", "karney"), required=False),
    NestedField(5, "s", FIELDS, required=False),
)
SHREDDED = """SELECT * FROM (VALUES
    (1, {'a': 1, 'b': 'x', 'c': [1, 2]}::VARIANT), (2, 'text'::VARIANT), (3, NULL),
    (4, {'a': 'no int', 'z': 1.5::DECIMAL(9, 2), 'd': DATE '2020-01-01'}::VARIANT),
    (5, [1, NULL]::VARIANT), (6, TIMESTAMP '2020-01-01 00:00:00.5'::VARIANT),
    (7, 'ab'::BLOB::VARIANT), (8, '00000000-0000-0000-0000-000000000007'::UUID::VARIANT),
    (9, TIME '12:00:00.5'::VARIANT), (10, {'c': [], 'n': {'deep': true}}::VARIANT),
    (11, TIMESTAMP_NS '2020-01-01 00:00:00.123456789'::VARIANT)) t(i, v)"""
VALUES = [
    {"a": 1, "b": "x", "c": [1, 2]},
    "text",
    None,
    {"a": "no int", "z": Decimal("1.50"), "d": dt.date(2020, 1, 1)},
    [1, None],
    dt.datetime(2020, 1, 1, 0, 0, 0, 500_000),  # noqa: DTZ001
    b"ab",
    UUID(int=7),
    dt.time(12, 0, 0, 500_000),
    {"c": [], "n": {"deep": True}},
    "2020-01-01 00:00:00.123456789",
]


def decoded(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    return [None if one is None else decode_variant(**one) for one in array.to_pylist()]


def value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(8 if depth < 4 else 6)
    if kind < 2:
        return chance.choice([None, True, False])
    if kind == 2:
        return chance.randrange(-(2 ** chance.randrange(1, 63)), 2 ** chance.randrange(1, 63))
    if kind == 3:
        return chance.random() * 10.0 ** chance.randrange(-80, -40)
    if kind < 6:
        return "".join(chance.choice('aé"\\xyz𝄞') for _ in range(chance.choice((0, 3, 80))))
    if kind == 6:
        count = chance.choice((0, 2, 300) if depth == 0 else (0, 2))
        return [value(chance, depth + 1) for _ in range(count)]
    return {
        chance.choice("bcadé𝄞") + str(chance.randrange(9)): value(chance, depth + 1)
        for _ in range(chance.choice((0, 2, 9)))
    }


def test_the_bytes_are_those_of_pyspark_and_both_read_them():
    chance = random.Random(37)
    same = 0
    for _ in range(400):
        given = value(chance)
        metadata, encoded = encode_variant(given)
        assert decode_variant(metadata, encoded) == given
        assert VariantUtils.to_python(encoded, metadata) == given
        assert json.loads(variant_json(metadata, encoded)) == given
        theirs, names = VariantUtils.parse_json(json.dumps(given))
        assert json.loads(variant_json(names, theirs)) == given
        same += (names, theirs) == (metadata, encoded)
    assert same > 300  # they keep a name twice where an object has it after another


@pytest.mark.parametrize(
    "given",
    [
        dt.datetime(2020, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        Decimal("-12345678901234567890.123"),
        Decimal("1E+3"),
        2**70,
        b"\x00",
        UUID(int=9),
        dt.date(1969, 12, 31),
        float("inf"),
    ],
)
def test_values_beyond_json_come_back(given):
    assert decode_variant(*encode_variant(given)) == given


@pytest.mark.parametrize(
    "given", [object(), 10**38, Decimal("NaN"), Decimal(10) ** 40, Decimal("1E-39")]
)
def test_what_no_variant_holds_is_refused(given):
    with pytest.raises(InvalidInputError):
        encode_variant(given)


def test_damaged_bytes_are_corrupt_and_never_another_error():
    chance = random.Random(1)
    metadata, encoded = encode_variant({"a": [1, "x", {"b": Decimal("1.5")}], "c": b"12"})
    for _ in range(2000):
        broken = bytearray(encoded)
        broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            decode_variant(metadata, bytes(broken[: chance.randrange(1, len(broken) + 1)]))
        except CorruptMetadataError:
            continue
    for names in (b"", b"\x02\x00\x00", b"\x01\x05\x00"):
        with pytest.raises(CorruptMetadataError):
            decode_variant(names, b"\x00")


SHREDDINGS = ["", "STRUCT(a INTEGER, c INTEGER[])", "STRUCT(n STRUCT(deep BOOLEAN))", "VARCHAR"]


@pytest.mark.parametrize("shredding", SHREDDINGS)
def test_shredded_variants_of_duckdb_are_put_together(tmp_path: Path, shredding):
    path = tmp_path / "shredded.parquet"
    option = f", SHREDDING {{'v': '{shredding}'}}" if shredding else ""
    duckdb.sql(f"COPY ({SHREDDED}) TO '{path}' (FORMAT parquet{option})")
    assert "typed_value" in str(pq.read_metadata(path).schema)
    rows = pq.read_table(path, arrow_extensions_enabled=False)["v"].combine_chunks()
    assert decoded(variants_of_file(rows)) == VALUES
    assert decoded(variants_of_file(rows.slice(3, 2))) == VALUES[3:5]


def test_a_foreign_table_with_shredded_variants_is_read_changed_and_compacted(tmp_path: Path):
    lake = lh.load_catalog(tmp_path / "lake")
    lake.create_namespace("d")
    table = lake.create_table("d.t", SCHEMA, properties={"format-version": "3"})
    path = tmp_path / "lake" / "given.parquet"
    duckdb.sql(f"COPY (SELECT i::BIGINT AS i, v FROM ({SHREDDED})) TO '{path}' (FORMAT parquet)")
    table.set_properties({"schema.name-mapping.default": MAPPING})
    table.refresh().add_files([str(path)])
    table = table.refresh()
    assert decoded(table.scan().to_arrow().sort_by("i")["v"]) == VALUES
    for where, found in (
        ("variant_get(v, '$.b', 'string') = 'x'", [1]),
        ("variant_get(v, '$.n.deep', 'boolean')", [10]),
        ("variant_get(v, '$.a.x', 'int') IS NULL AND v IS NOT NULL AND i < 4", [1, 2, 3]),
    ):
        assert table.scan(where=where).to_arrow()["i"].to_pylist() == found
    table.delete(where="i IN (2, 5)")
    table.refresh().append(pa.table({"i": [20, 21], "v": [{"a": 1}, None]}))
    table.refresh().compact()
    table.refresh().expire_snapshots()
    rows = table.refresh().scan().to_arrow().sort_by("i")
    kept = [VALUES[at - 1] for at in (1, 3, 4, 6, 7, 8, 9, 10, 11)]
    assert decoded(rows["v"]) == [*kept, {"a": 1}, None]
    assert table.refresh().scan(where="v IS NULL").to_arrow()["i"].to_pylist() == [21]


@pytest.mark.slow
def test_variants_are_merged_and_updated(tmp_path: Path):
    lake = lh.load_catalog(tmp_path / "lake")
    lake.create_namespace("d")
    table = lake.create_table("d.t", SCHEMA, properties={"format-version": "3"})
    table.append(pa.table({"i": [1, 2], "v": [{"a": 1}, {"a": 2}], "g": POINTS[:2]}))
    table.refresh().update({"i": "i + 100"}, where="i = 2")
    table.refresh().upsert(
        pa.table({"i": [1, 30], "v": pa.array(['{"new": 1}', "[]"], pa.json_())}), keys=["i"]
    )
    rows = table.refresh().scan().to_arrow().sort_by("i")
    assert decoded(rows["v"]) == [{"new": 1}, [], {"a": 2}]
    changes = table.refresh().changelog().to_arrow()
    assert len(changes) > 3


MAPPING = json.dumps([{"field-id": 1, "names": ["i"]}, {"field-id": 2, "names": ["v"]}])


def test_parquet_says_what_the_columns_are_and_duckdb_reads_them(tmp_path: Path):
    lake = lh.load_catalog(tmp_path / "lake")
    lake.create_namespace("d")
    table = lake.create_table("d.t", SCHEMA, properties={"format-version": "3"})
    nested = pa.array(
        [{"a": POINTS, "b": [("k", 1)]}, None, {"a": None, "b": []}],
        pa.struct([("a", pa.list_(pa.binary())), ("b", pa.map_(pa.string(), pa.int64()))]),
    )
    rows = {"i": [1, 2, 3], "v": [{"a": 1}, None, {"a": None}], "g": POINTS, "h": POINTS}
    table.append(pa.table({**rows, "s": nested}))
    (file,) = [task.data_file.file_path for task in table.refresh().scan().plan().tasks]
    footer = str(pq.read_metadata(file.removeprefix("file://")).schema)
    for said in (
        "group field_id=2 v (Variant(1))",
        "binary field_id=3 g (Geometry(crs=))",
        "binary field_id=4 h (Geography(crs=, algorithm=karney))",
        "binary field_id=8 element (Geometry(crs=EPSG:3857))",
        "group field_id=10 value (Variant(1))",
    ):
        assert said in footer
    assert pq.read_metadata(file.removeprefix("file://")).row_group(0).column(3).statistics is None
    found = duckdb.sql(
        f"SELECT i, v.a::BIGINT, s.b['k']::VARCHAR FROM '{file.removeprefix('file://')}' ORDER BY i"
    )
    assert found.fetchall() == [(1, 1, "1"), (2, None, None), (3, None, None)]
    read = table.refresh().scan().to_arrow().sort_by("i")
    assert read["g"].to_pylist() == read["h"].to_pylist() == POINTS
    assert read["s"].to_pylist()[0]["a"] == POINTS
    assert table.refresh().scan(where="g IS NULL").to_arrow()["i"].to_pylist() == [2]


def test_arrow_schemas_with_these_types_round_trip():
    assert schema_from_arrow(schema_to_arrow(SCHEMA)).as_struct() == SCHEMA.as_struct()
    marked = pa.field(
        "v", pa.struct([]), metadata={"ARROW:extension:name": "arrow.parquet.variant"}
    )
    assert schema_from_arrow(pa.schema([marked])).find_type("v") == VariantType()


def test_any_arrow_value_becomes_a_variant():
    kind = pa.struct([("t", pa.date32()), ("m", pa.map_(pa.string(), pa.float64()))])
    given = pa.array([{"t": dt.date(2020, 1, 1), "m": [("k", 1.5)]}, None], kind)
    assert decoded(variants_of(given)) == [{"t": dt.date(2020, 1, 1), "m": {"k": 1.5}}, None]
    assert decoded(variants_of(variants_of(given))) == decoded(variants_of(given))
    for kind, one in ((pa.uuid(), UUID(int=3).bytes), (pa.decimal128(9, 2), Decimal("1.50"))):
        assert decoded(variants_of(pa.array([one], kind)))[0] in (UUID(int=3), Decimal("1.50"))
    for text in ("{", "[" * 5000 + "]" * 5000):
        with pytest.raises(InvalidInputError, match="no JSON"):
            variants_of(pa.array([text], pa.json_()))


@pytest.mark.parametrize(
    "given", [[{"value": 1}], [{"value": b"\0"}], [{"typed_value": "x"}], [{}], [[{"value": None}]]]
)
def test_a_field_may_be_called_as_those_of_shredded_groups(given):
    (variant,) = variants_of(pa.array([given])).to_pylist()
    assert decode_variant(**variant) == given


@pytest.mark.parametrize("frames", [0, 300])
def test_how_deep_a_value_may_be_is_not_up_to_who_reads_it(frames):
    def within(left, call):
        return within(left - 1, call) if left else call()

    def nested(levels):
        return [nested(levels - 1)] if levels else "x"

    deep = nested(254)
    variant = within(frames, lambda: encode_variant(deep))
    assert within(frames, lambda: decode_variant(*variant)) == deep
    assert within(frames, lambda: variant_json(*variant)) == json.dumps(deep)
    with pytest.raises(InvalidInputError, match="too deeply"):
        within(frames, lambda: encode_variant([deep]))
    metadata, value = variant
    with pytest.raises(CorruptMetadataError, match="too deeply"):
        within(frames, lambda: decode_variant(metadata, array_value([value])))


def test_an_optional_struct_with_a_required_field_may_be_left_out(tmp_path: Path):
    """pyarrow refuses nulls in required fields, also of structs that are null."""
    lake = lh.load_catalog(tmp_path / "lake")
    lake.create_namespace("d")
    inside = pa.struct([pa.field("x", pa.list_(pa.uuid()), nullable=False)])
    schema = pa.schema([("i", pa.int64()), ("s", inside)])
    table = lake.create_table("d.t", schema)
    table.append(pa.table({"i": [1]}))
    with table.refresh().update_schema() as update:
        update.add_column("u", "struct<y: int>")
    table = table.refresh()
    table.append(pa.table({"i": [2]}))
    table.refresh().compact()
    assert table.refresh().scan(where="s IS NULL").to_arrow().num_rows == 2
    with pytest.raises(InvalidSchemaError, match="required"):
        table.refresh().append(pa.table({"i": [3], "s": [{"x": None}]}))


def shredded(typed: pa.Array, *, value: bytes | None = None, valid: bool = True) -> pa.StructArray:
    """One row, shredded, whose names are `a` and `b`; a null has no names, as in Parquet."""
    names = encode_variant({"a": 1, "b": 1})[0]
    parts = [
        pa.array([names if valid else b""], pa.binary()),
        pa.array([value], pa.binary()),
        typed,
    ]
    fields = [
        pa.field("metadata", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("typed_value", typed.type),
    ]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=pa.array([not valid]))


def test_a_null_beside_shredded_values_has_no_names_to_read():
    rows = pa.concat_arrays(
        [shredded(pa.array([1])), shredded(pa.array([None], pa.int64()), valid=False)]
    )
    assert decoded(variants_of_file(rows)) == [1, None]


@pytest.mark.parametrize("kind", [pa.uint32(), pa.binary(4)])
def test_a_type_to_which_nothing_is_shredded_is_corrupt(kind):
    with pytest.raises(CorruptMetadataError, match="no variant is shredded to"):
        variants_of_file(shredded(pa.nulls(1, kind)))


@pytest.mark.parametrize("typed", [None, 7])
def test_a_shredded_field_is_in_no_object_beside_it(typed):
    group = pa.struct([("value", pa.binary()), ("typed_value", pa.int64())])
    objects = pa.array(
        [{"a": {"value": None, "typed_value": typed}}], pa.struct([pa.field("a", group)])
    )
    rest = encode_variant({"a": 1})[1]
    with pytest.raises(CorruptMetadataError, match="both shredded and not"):
        variants_of_file(shredded(objects, value=rest))


def test_files_are_told_where_java_wrote_bounds_of_variants(tmp_path: Path):
    lake = lh.load_catalog(tmp_path / "lake")
    lake.create_namespace("d")
    table = lake.create_table("d.t", SCHEMA, properties={"format-version": "3"})
    table.append(pa.table({"i": [1], "v": [{"a": 1}]}))
    metadata = table.refresh().metadata
    (file,) = table.refresh().scan().plan().files
    bound = b"".join(encode_variant({"$['a']": 1}))
    told = files_table([replace(file, lower_bounds={2: bound}, upper_bounds={2: bound})], metadata)
    metrics = told["readable_metrics"].to_pylist()[0]["v"]
    assert (metrics["lower_bound"], metrics["upper_bound"]) == (bound, bound)
