"""Hypothesis strategies: Iceberg schemas and Arrow data that fit them."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st
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
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse.spec.types.arrow_types import schema_to_arrow

PRIMITIVES = [
    BooleanType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DecimalType(9, 2),
    DecimalType(18, 0),
    DecimalType(38, 10),
    DateType(),
    TimeType(),
    TimestampType(),
    TimestamptzType(),
    TimestampNanoType(),
    TimestamptzNanoType(),
    StringType(),
    UUIDType(),
    FixedType(3),
    BinaryType(),
]

_LONG = st.integers(-(2**63), 2**63 - 1)
_MICROS = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31))  # noqa: DTZ001


def values(kind):
    """Python values of a type, as pa.array takes them."""
    if isinstance(kind, StructType):
        return st.fixed_dictionaries(
            {f.name: optional(f.field_type, f.required) for f in kind.fields}
        )
    if isinstance(kind, ListType):
        return st.lists(optional(kind.element_type, kind.element_required), max_size=3)
    if isinstance(kind, MapType):
        return st.lists(
            st.tuples(values(kind.key_type), optional(kind.value_type, kind.value_required)),
            max_size=3,
            unique_by=lambda pair: pair[0],
        )
    if isinstance(kind, DecimalType):
        limit = 10**kind.precision - 1
        scale = kind.scale
        return st.integers(-limit, limit).map(
            lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale))
        )
    if isinstance(kind, FixedType):
        return st.binary(min_size=len(kind), max_size=len(kind))
    return {
        BooleanType: st.booleans(),
        IntegerType: st.integers(-(2**31), 2**31 - 1),
        LongType: _LONG,
        FloatType: st.floats(width=32),
        DoubleType: st.floats(),
        DateType: st.dates(),
        TimeType: st.times(),
        TimestampType: _MICROS,
        TimestamptzType: _MICROS.map(lambda v: v.replace(tzinfo=dt.UTC)),
        TimestampNanoType: _LONG,
        TimestamptzNanoType: _LONG,
        StringType: st.text(max_size=30)
        | st.text("ab\ud7ff\ue000\U0010ffff", min_size=15, max_size=20),
        UUIDType: st.binary(min_size=16, max_size=16),
        BinaryType: st.binary(max_size=30)
        | st.text("\xff\xfe", min_size=15, max_size=18).map(lambda t: t.encode("latin-1")),
    }[type(kind)]


def optional(kind, required):
    return values(kind) if required else st.none() | values(kind)


@st.composite
def types(draw, ids, depth=2):
    """A type; nested ones to the given depth."""
    shape = (
        draw(st.sampled_from(["primitive", "primitive", "primitive", "struct", "list", "map"]))
        if depth
        else "primitive"
    )
    if shape == "struct":
        return StructType(*draw(fields(ids, depth - 1, max_size=3)))
    if shape == "list":
        return ListType(
            next(ids), draw(types(ids, depth - 1)), element_required=draw(st.booleans())
        )
    if shape == "map":
        key = draw(st.sampled_from([StringType(), IntegerType(), DateType()]))
        return MapType(
            next(ids),
            key,
            next(ids),
            draw(types(ids, depth - 1)),
            value_required=draw(st.booleans()),
        )
    return draw(st.sampled_from(PRIMITIVES))


@st.composite
def fields(draw, ids, depth, max_size):
    names = draw(
        st.lists(
            st.sampled_from(["a", "b", "a.c", "Ä", "x y", "_pos", "key", "element"]),
            min_size=1,
            max_size=max_size,
            unique=True,
        )
    )
    return [
        NestedField(next(ids), name, draw(types(ids, depth)), required=draw(st.booleans()))
        for name in names
    ]


@st.composite
def schemas(draw, max_fields=4, depth=2):
    ids = itertools.count(1)
    return Schema(*draw(fields(ids, depth, max_fields)))


@st.composite
def tables(draw, schema, max_rows=12):
    """An Arrow table in the Arrow schema of an Iceberg schema."""
    rows = draw(st.integers(0, max_rows))
    arrow = schema_to_arrow(schema)
    columns = []
    for one, target in zip(schema.fields, arrow, strict=True):
        data = draw(st.lists(optional(one.field_type, one.required), min_size=rows, max_size=rows))
        columns.append(build(data, target.type))
    return pa.Table.from_arrays(columns, schema=arrow)


def build(data, kind):
    """pa.array, for the types that it does not take Python values for."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(data, kind.storage_type))
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.array(data, pa.int64()).view(kind)
    if pa.types.is_struct(kind):
        mask = pa.array([v is None for v in data], pa.bool_())
        children = [build([None if v is None else v[f.name] for v in data], f.type) for f in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_list(kind):
        offsets, flat = flatten(data)
        return pa.ListArray.from_arrays(
            offsets, build(flat, kind.value_type), type=kind, mask=none_mask(data)
        )
    if pa.types.is_map(kind):
        offsets, flat = flatten(data)
        keys, items = (
            build([k for k, _ in flat], kind.key_type),
            build([v for _, v in flat], kind.item_type),
        )
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=none_mask(data))
    return pa.array(data, kind)


def flatten(data):
    offsets = [0]
    flat = []
    for value in data:
        flat.extend(value or [])
        offsets.append(len(flat))
    return pa.array(offsets, pa.int32()), flat


def none_mask(data):
    return pa.array([v is None for v in data], pa.bool_())


def plain(array):
    """Comparable Python values: ticks for times, bytes for uuid, text for NaN and signed zeros."""
    if isinstance(array, pa.ChunkedArray):
        return [v for chunk in array.chunks for v in plain(chunk)]
    if isinstance(array, pa.ExtensionArray):
        return plain(array.storage)
    kind = array.type
    if pa.types.is_struct(kind):
        children = [plain(array.field(i)) for i in range(kind.num_fields)]
        return [
            {kind.field(i).name: c[row] for i, c in enumerate(children)} if ok else None
            for row, ok in enumerate(array.is_valid().to_pylist())
        ]
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        parts = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
        parts = [plain(part) for part in parts]
        offsets = array.offsets.to_pylist()
        return [
            [tuple(part[i] for part in parts) for i in range(offsets[row], offsets[row + 1])]
            if ok
            else None
            for row, ok in enumerate(array.is_valid().to_pylist())
        ]
    if pa.types.is_temporal(kind):
        return array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    if pa.types.is_floating(kind):
        return [None if v is None else repr(v) for v in array.to_pylist()]
    return array.to_pylist()


def rows_of(table):
    """Rows as comparable tuples."""
    columns = [plain(column) for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []
