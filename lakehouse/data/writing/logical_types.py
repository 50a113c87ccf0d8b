"""Logical types of Parquet that pyarrow does not write, put into the footer of a written file.

Variants are groups marked VARIANT, geometries and geographies byte arrays marked as such, with
their reference systems (Iceberg's Appendix A; `LogicalType` of parquet.thrift).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DEFAULT_GEOGRAPHY_CRS,
    DEFAULT_GEOMETRY_CRS,
    GeographyType,
    GeometryType,
    IcebergType,
)

from lakehouse.data.conversion.thrift import STOP, read_struct, write_varint
from lakehouse.spec.schema.iceberg_types import VariantType, fields_of

_MAGIC = b"PAR1"
_TRAILER = struct.Struct("<I4s")
# Thrift's compact protocol: the distance to the field before, then the kind of the value.
_LOGICAL_TYPE = b"\x1c"
"""Field 10 of a `SchemaElement`, a struct, behind its field 9, the id of the column."""
_FIELD_ID = 9
_VARIANT, _GEOMETRY, _GEOGRAPHY = 16, 17, 18
_ALGORITHMS = ("spherical", "vincenty", "thomas", "andoyer", "karney")


def logical_types(schema: Schema) -> Mapping[int, bytes]:
    """The logical types of columns for which pyarrow has none, by field id, serialized."""
    types = {}
    for field_id, field in fields_of(schema).items():
        kind = _serialized(field.field_type)
        if kind is not None:
            types[field_id] = kind
    return types


def with_logical_types(end: bytes, kinds: Mapping[int, bytes]) -> bytes:
    """The end of a Parquet file, its footer within, with the logical types of columns by id.

    Raises ValueError for a footer that is not as Thrift's compact protocol has it.
    """
    length, magic = _TRAILER.unpack(end[-_TRAILER.size :])
    if magic != _MAGIC:
        raise ValueError("it does not end as a Parquet file")
    start = len(end) - _TRAILER.size - length
    footer = end[start : -_TRAILER.size]
    marked = _marked(footer, kinds)
    return end[:start] + marked + _TRAILER.pack(len(marked), _MAGIC)


def _marked(footer: bytes, kinds: Mapping[int, bytes]) -> bytes:
    # field 1 is the version, a number; field 2 the schema, a list of structs
    at = _after_number(footer, 1)
    if footer[0] != 0x15 or footer[at] != 0x19:
        raise ValueError("it does not begin with version and schema")
    count = footer[at + 1] >> 4
    at += 2
    if count == 15:
        end = _after_number(footer, at)
        count = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(footer[at:end]))
        at = end
    parts, copied = [], 0
    for _ in range(count):
        element, at = read_struct(footer, at)
        kind = kinds.get(element.get(_FIELD_ID, -1))
        if kind is not None and max(element) == _FIELD_ID:
            parts += [footer[copied : at - 1], _LOGICAL_TYPE, kind]
            copied = at - 1
    return b"".join([*parts, footer[copied:]])


def _after_number(data: bytes, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1


def _serialized(kind: IcebergType) -> bytes | None:
    if isinstance(kind, VariantType):
        return _union(_VARIANT, b"\x13\x01")  # version 1 of its specification
    if isinstance(kind, GeometryType):
        return _union(_GEOMETRY, _crs(kind.crs, DEFAULT_GEOMETRY_CRS))
    if isinstance(kind, GeographyType):
        crs = _crs(kind.crs, DEFAULT_GEOGRAPHY_CRS)
        number = _ALGORITHMS.index(kind.algorithm)
        return _union(_GEOGRAPHY, crs + (b"\x15" if crs else b"\x25") + bytes([number << 1]))
    return None


def _crs(name: str, default: str) -> bytes:
    """Field 1, a text, left out for the default."""
    if name == default:
        return b""
    raw = name.encode()
    return b"\x18" + write_varint(len(raw)) + raw


def _union(field: int, content: bytes) -> bytes:
    return b"\x0c" + write_varint(field << 1) + content + STOP + STOP
