"""Field id -> type over all schemas a table had, to decode bounds and partition values."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from lakehouse.spec.schema.iceberg_types import fields_of

FieldTypes = Mapping[int, PrimitiveType]


def field_types(schema: Schema, *older: Schema) -> FieldTypes:
    """Types of all primitive fields, nested ones too.

    Pass the older schemas of the table so that columns dropped since keep their type; `schema` wins
    where both know a field, so that promoted columns compare in their present type.
    """
    types: dict[int, PrimitiveType] = {}
    for one in (*older, schema):
        for field_id, field in fields_of(one).items():
            if isinstance(field.field_type, PrimitiveType):
                types[field_id] = field.field_type
    return types
