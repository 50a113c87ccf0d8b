"""Default values of columns, between Spark's literals and Iceberg's."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from pyiceberg import types as ice
from pyiceberg.schema import Schema

from lakehouse.errors import UnsupportedTypeError
from lakehouse.spec.schema.schema_json import default_from_json

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - wall-clock time


def with_defaults(schema: Schema, defaults: Mapping[str, Mapping[str, Any]]) -> Schema:
    """A new table's schema; top-level defaults become initial and write defaults."""
    if not defaults:
        return schema
    fields = []
    for field in schema.fields:
        if field.name not in defaults:
            fields.append(field)
            continue
        value = default_from_json(
            field.field_type, default_as_json(field.field_type, defaults[field.name])
        )
        fields.append(field.model_copy(update={"initial_default": value, "write_default": value}))
    return Schema(*fields, schema_id=schema.schema_id)


def default_as_json(kind: ice.IcebergType, literal: Mapping[str, Any] | None) -> Any:
    """A literal of Spark (`FilterJson.java`) as Iceberg's JSON single value (spec: Appendix D).

    Raises:
        UnsupportedTypeError: a type without a literal.
    """
    if literal is None or literal["value"] is None:
        return None
    value = literal["value"]
    if isinstance(kind, ice.BooleanType):
        return str(value) == "true"
    if isinstance(kind, ice.IntegerType | ice.LongType):
        return int(value)
    if isinstance(kind, ice.FloatType | ice.DoubleType):
        return float(value)
    if isinstance(kind, ice.DateType):
        return (dt.date(1970, 1, 1) + dt.timedelta(days=int(value))).isoformat()
    if isinstance(kind, ice.TimestampType):
        return (_EPOCH + dt.timedelta(microseconds=int(value))).isoformat()
    if isinstance(kind, ice.TimestamptzType):
        return (_EPOCH + dt.timedelta(microseconds=int(value))).isoformat() + "+00:00"
    if isinstance(kind, ice.TimeType):
        return (_EPOCH + dt.timedelta(microseconds=int(value) // 1000)).time().isoformat()
    if isinstance(
        kind, ice.StringType | ice.DecimalType | ice.BinaryType | ice.FixedType | ice.UUIDType
    ):
        return str(value)
    raise UnsupportedTypeError(f"a column of type {kind} has no default but null")
