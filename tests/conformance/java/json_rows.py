"""Rows as JSON, spelled as Java's `Values` spells them: both sides' rows compare as they are.

Dates, times and timestamps are their ticks, decimals their unscaled digits, floating point the bits
of the double (one spelling of NaN), uuid, fixed, binary, geometry and geography hexadecimal, a
variant an object of its metadata and value, both hexadecimal. A struct is an object by field id, a
map a list of pairs in the order of its keys.
"""

from __future__ import annotations

import json
import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse.spec.schema.iceberg_types import VariantType
from lakehouse.spec.types.arrow_types import schema_to_arrow
from tests.property.arrow_data import build

Row = dict[str, Any]

_BYTES = (FixedType, BinaryType, UUIDType, GeometryType, GeographyType)
_TICKS = (
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
    TimestampNanoType,
    TimestamptzNanoType,
)


def rows_of(table: pa.Table, schema: Schema) -> list[Row]:
    """The rows of an Arrow table that has the columns of a schema."""
    columns = [
        [one for chunk in column.chunks for one in _column(chunk, field.field_type)]
        for column, field in zip(table.columns, schema.fields, strict=True)
    ]
    ids = [str(field.field_id) for field in schema.fields]
    if not columns:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(ids, row, strict=True)) for row in zip(*columns, strict=True)]


def table_of(rows: list[Row], schema: Schema) -> pa.Table:
    """The inverse of `rows_of`."""
    arrow = schema_to_arrow(schema)
    columns = []
    for field, target in zip(schema.fields, arrow, strict=True):
        values = [_python(row.get(str(field.field_id)), field.field_type) for row in rows]
        columns.append(build(values, target.type))
    return pa.Table.from_arrays(columns, schema=arrow)


def spell_float(value: float) -> str:
    """The bits of a double."""
    return "nan" if math.isnan(value) else struct.pack(">d", value).hex()


def float_of(text: str) -> float:
    """The inverse of `spell_float`."""
    return math.nan if text == "nan" else struct.unpack(">d", bytes.fromhex(text))[0]


def sorted_maps(value: Any, kind: IcebergType) -> Any:
    """A value as Java tells it with the pairs of its maps in the order of their keys."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {
            str(field.field_id): sorted_maps(value[str(field.field_id)], field.field_type)
            for field in kind.fields
        }
    if isinstance(kind, ListType):
        return [sorted_maps(one, kind.element_type) for one in value]
    if isinstance(kind, MapType):
        pairs = [
            [sorted_maps(key, kind.key_type), sorted_maps(one, kind.value_type)]
            for key, one in value
        ]
        return sorted(pairs, key=lambda pair: json.dumps(pair[0]))
    return value


def _column(array: pa.Array, kind: IcebergType) -> list[Any]:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(kind, StructType):
        children = [
            _column(array.field(place), field.field_type) for place, field in enumerate(kind.fields)
        ]
        ids = [str(field.field_id) for field in kind.fields]
        return [
            {name: child[row] for name, child in zip(ids, children, strict=True)} if there else None
            for row, there in enumerate(array.is_valid().to_pylist())
        ]
    if isinstance(kind, ListType | MapType):
        offsets = array.offsets.to_pylist()
        if isinstance(kind, ListType):
            items = _column(array.values, kind.element_type)
        else:
            keys, values = _column(array.keys, kind.key_type), _column(array.items, kind.value_type)
            items = [list(pair) for pair in zip(keys, values, strict=True)]
        result = []
        for row, there in enumerate(array.is_valid().to_pylist()):
            found = items[offsets[row] : offsets[row + 1]]
            if isinstance(kind, MapType):
                found.sort(key=lambda pair: json.dumps(pair[0]))
            result.append(found if there else None)
        return result
    if isinstance(kind, _TICKS):
        return array.view(pa.int32() if isinstance(kind, DateType) else pa.int64()).to_pylist()
    return [None if value is None else _spelled(value, kind) for value in array.to_pylist()]


def _spelled(value: Any, kind: IcebergType) -> Any:
    if isinstance(kind, FloatType | DoubleType):
        return spell_float(value)
    if isinstance(kind, DecimalType):
        sign, digits, _ = value.as_tuple()
        return str((-1 if sign else 1) * int("".join(map(str, digits))))
    if isinstance(kind, VariantType):
        return {name: part.hex() for name, part in value.items()}
    return value.hex() if isinstance(kind, _BYTES) else value


def _python(value: Any, kind: IcebergType) -> Any:
    """A value as `build` takes it."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {
            field.name: _python(value[str(field.field_id)], field.field_type)
            for field in kind.fields
        }
    if isinstance(kind, ListType):
        return [_python(one, kind.element_type) for one in value]
    if isinstance(kind, MapType):
        return [(_python(key, kind.key_type), _python(one, kind.value_type)) for key, one in value]
    return plain(value, kind)


def plain(value: Any, kind: IcebergType) -> Any:
    """A primitive as Iceberg's internal value."""
    if isinstance(kind, FloatType | DoubleType):
        return float_of(value)
    if isinstance(kind, DecimalType):
        number = int(value)
        return Decimal((number < 0, tuple(map(int, str(abs(number)))), -kind.scale))
    if isinstance(kind, VariantType):
        return {name: bytes.fromhex(part) for name, part in value.items()}
    return bytes.fromhex(value) if isinstance(kind, _BYTES) else value
