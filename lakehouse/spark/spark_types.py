"""Iceberg schemas as Spark schemas, and back.

A Spark field carries its Iceberg id as `parquet.field.id`, by which Spark's Parquet reader finds
columns, and its initial default as `EXISTS_DEFAULT`, which that reader gives to rows of files older
than the column, where it can; Python workers read the columns where it cannot (`for_workers`).

Spark has no type for a uuid or for nanoseconds. Users see both as text, which loses nothing and is
ordered as the values are: nanoseconds as `2026-01-31 12:00:00.123456789`, with `Z` behind them
where they are an instant.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyspark.sql import types as sp

from lakehouse.errors import InvalidInputError, UnsupportedTypeError
from lakehouse.spec.schema.iceberg_types import VariantType
from lakehouse.spec.schema.schema_json import check_names

FIELD_ID = "parquet.field.id"
EXISTS_DEFAULT = "EXISTS_DEFAULT"
CURRENT_DEFAULT = "CURRENT_DEFAULT"
ICEBERG_TYPE = "lakehouse.type"
COMMENT = "comment"
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - wall-clock time

_TO_SPARK: dict[type[ice.IcebergType], sp.DataType] = {
    ice.BooleanType: sp.BooleanType(),
    ice.IntegerType: sp.IntegerType(),
    ice.LongType: sp.LongType(),
    ice.FloatType: sp.FloatType(),
    ice.DoubleType: sp.DoubleType(),
    ice.DateType: sp.DateType(),
    ice.TimeType: sp.TimeType(6),
    ice.TimestampType: sp.TimestampNTZType(),
    ice.TimestamptzType: sp.TimestampType(),
    ice.StringType: sp.StringType(),
    ice.BinaryType: sp.BinaryType(),
    ice.FixedType: sp.BinaryType(),
    ice.UUIDType: sp.BinaryType(),
    ice.UnknownType: sp.NullType(),
    ice.TimestampNanoType: sp.StringType(),
    ice.TimestamptzNanoType: sp.StringType(),
    VariantType: sp.VariantType(),
    ice.GeometryType: sp.BinaryType(),
    ice.GeographyType: sp.BinaryType(),
}
_SHOWN: dict[type[ice.IcebergType], sp.DataType] = {**_TO_SPARK, ice.UUIDType: sp.StringType()}
NANOSECONDS = (ice.TimestampNanoType, ice.TimestamptzNanoType)
_MARKED = (VariantType, ice.GeometryType, ice.GeographyType)
"""Types of which Spark's writer marks the Parquet columns otherwise, or not at all."""
_TO_ICEBERG: dict[type[sp.DataType], ice.PrimitiveType] = {
    sp.BooleanType: ice.BooleanType(),
    sp.ByteType: ice.IntegerType(),
    sp.ShortType: ice.IntegerType(),
    sp.IntegerType: ice.IntegerType(),
    sp.LongType: ice.LongType(),
    sp.FloatType: ice.FloatType(),
    sp.DoubleType: ice.DoubleType(),
    sp.DateType: ice.DateType(),
    sp.TimeType: ice.TimeType(),
    sp.TimestampNTZType: ice.TimestampType(),
    sp.TimestampType: ice.TimestamptzType(),
    sp.StringType: ice.StringType(),
    sp.VarcharType: ice.StringType(),
    sp.CharType: ice.StringType(),
    sp.BinaryType: ice.BinaryType(),
    sp.VariantType: VariantType(),
}

_TO_ARROW: dict[type[sp.DataType], pa.DataType] = {
    sp.BooleanType: pa.bool_(),
    sp.ByteType: pa.int8(),
    sp.ShortType: pa.int16(),
    sp.IntegerType: pa.int32(),
    sp.LongType: pa.int64(),
    sp.FloatType: pa.float32(),
    sp.DoubleType: pa.float64(),
    sp.DateType: pa.date32(),
    sp.TimeType: pa.time64("ns"),
    sp.TimestampNTZType: pa.timestamp("us"),
    sp.TimestampType: pa.timestamp("us", tz="UTC"),
    sp.StringType: pa.string(),
    sp.VarcharType: pa.string(),
    sp.CharType: pa.string(),
    sp.BinaryType: pa.binary(),
    sp.NullType: pa.null(),
    sp.VariantType: pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
        ]
    ),
}


def to_spark_schema(schema: Schema) -> sp.StructType:
    """The Spark schema under which Spark's Parquet reader reads files of the Iceberg schema.

    `fixed`, `uuid`, geometries and geographies (WKB) are `binary` here, `timestamp` is
    `timestamp_ntz`, `timestamptz` is `timestamp`, nanoseconds are text, which that reader does not
    have (`for_workers`). Every field has its id in `parquet.field.id`, and a top-level field that
    Spark's reader can fill in its initial default in `EXISTS_DEFAULT`.

    Raises:
        UnsupportedTypeError: Spark has no such type; the message names the column.
    """
    return sp.StructType([_spark_field(field, field.name, _TO_SPARK) for field in schema.fields])


def shown_schema(schema: Schema) -> sp.StructType:
    """The Spark schema that users see: as `to_spark_schema`, but a uuid is its text at any depth.

    The field of a uuid says so in its metadata (`lakehouse.type`), and one with a write default has
    it in `CURRENT_DEFAULT`, which Spark gives to rows that an INSERT leaves it out of.

    Raises:
        UnsupportedTypeError: as `to_spark_schema`.
    """
    return sp.StructType([_shown_field(field) for field in schema.fields])


def shown_type(kind: ice.IcebergType, path: str) -> sp.DataType:
    """The Spark type that users see for a column at `path`. Raises UnsupportedTypeError."""
    return _spark_type(kind, path, _SHOWN)


def for_workers(schema: Schema) -> list[str]:
    """Names of the columns that Python workers read, since Spark's Parquet reader cannot.

    It has no nanoseconds and no form of geometries for every reference system, makes no text of a
    uuid inside a column, and fills in no bytes, structs or nested fields where a file is older.
    """
    return [
        field.name
        for field in schema.fields
        if is_foreign(field.field_type)
        or (field.initial_default is not None and not _is_filled_in(field.field_type))
        or any(part.initial_default is not None for part in _inside(field.field_type))
    ]


def is_foreign(kind: ice.IcebergType) -> bool:
    """Whether Spark's Parquet reader and writer cannot make what users see of a column's values."""
    nested = not kind.is_primitive
    return _holds(kind, (*NANOSECONDS, *_MARKED)) or (nested and _holds(kind, (ice.UUIDType,)))


def _is_filled_in(kind: ice.IcebergType) -> bool:
    bytes_to_spark = ice.BinaryType | ice.FixedType | ice.UUIDType
    return kind.is_primitive and not isinstance(kind, bytes_to_spark)


def _holds(kind: ice.IcebergType, types: tuple[type[ice.IcebergType], ...]) -> bool:
    return isinstance(kind, types) or any(
        _holds(field.field_type, types) for field in _inside(kind)
    )


def _inside(kind: ice.IcebergType) -> Iterator[ice.NestedField]:
    """All fields below a type."""
    direct: Sequence[ice.NestedField] = ()
    if isinstance(kind, ice.StructType):
        direct = kind.fields
    elif isinstance(kind, ice.ListType):
        direct = [kind.element_field]
    elif isinstance(kind, ice.MapType):
        direct = [kind.key_field, kind.value_field]
    for field in direct:
        yield field
        yield from _inside(field.field_type)


def quoted(*path: str) -> str:
    """A column path with every part quoted."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in path)


def arrow_schema(schema: sp.StructType) -> pa.Schema:
    """The Arrow schema in which Spark and Python workers exchange rows; timestamps are in UTC.

    Raises:
        UnsupportedTypeError: a type that does not cross.
    """
    return pa.schema([_arrow_field(field, field.name) for field in schema.fields])


def to_iceberg_schema(schema: sp.StructType) -> Schema:
    """An Iceberg schema with ids assigned in order; comments become docs.

    Raises:
        UnsupportedTypeError: Iceberg has no such type; the message names the column.
        InvalidSchemaError: a name occurs twice at one level.
    """
    fields = list(_iceberg_fields(schema, itertools.count(1), ""))
    check_names(ice.StructType(*fields))
    return assign_fresh_schema_ids(Schema(*fields))


def to_iceberg_type(text: str) -> ice.IcebergType:
    """The Iceberg type of a Spark type as JSON. Raises UnsupportedTypeError, InvalidInputError."""
    kind = sp._parse_datatype_json_string(text)
    if isinstance(kind, sp.NullType):
        raise InvalidInputError("a column needs a type")
    wrapped = sp.StructType([sp.StructField("column", kind)])
    return to_iceberg_schema(wrapped).fields[0].field_type


def _arrow_field(field: sp.StructField, path: str) -> pa.Field:
    return pa.field(field.name, _arrow_type(field.dataType, path), nullable=field.nullable)


def _arrow_type(kind: sp.DataType, path: str) -> pa.DataType:
    if isinstance(kind, sp.StructType):
        return pa.struct([_arrow_field(field, f"{path}.{field.name}") for field in kind.fields])
    if isinstance(kind, sp.ArrayType):
        element = _arrow_type(kind.elementType, f"{path}.element")
        return pa.list_(pa.field("element", element, nullable=kind.containsNull))
    if isinstance(kind, sp.MapType):
        key, value = (_arrow_type(part, path) for part in (kind.keyType, kind.valueType))
        return pa.map_(key, pa.field("value", value, nullable=kind.valueContainsNull))
    if isinstance(kind, sp.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    arrow_type = _TO_ARROW.get(type(kind))
    if arrow_type is None:
        raise UnsupportedTypeError(
            f"column {path!r} is of Spark type {kind.simpleString()}, which does not cross to "
            "Python workers",
            column=path,
            type=kind.simpleString(),
        )
    return arrow_type


def _shown_field(field: ice.NestedField) -> sp.StructField:
    shown = _spark_field(field, field.name, _SHOWN)
    metadata = dict(shown.metadata)
    if isinstance(field.field_type, ice.UUIDType):
        metadata[ICEBERG_TYPE] = "uuid"
    if field.write_default is not None:
        metadata[CURRENT_DEFAULT] = default_literal(field)
    return sp.StructField(field.name, shown.dataType, shown.nullable, metadata)


def default_literal(field: ice.NestedField) -> str:
    """What a row has that is written without the column, as Spark SQL. Raises as `sql_literal`."""
    kind, value = field.field_type, field.write_default
    if value is None:
        return "NULL"
    if not isinstance(kind, ice.StructType):
        return sql_literal(kind, value)
    # the default of a struct is `{}`: its fields have their own (spec: Default values)
    parts = (f"{_quoted_text(field.name)}, {default_literal(field)}" for field in kind.fields)
    return f"named_struct({', '.join(parts)})"


def _spark_field(
    field: ice.NestedField,
    path: str,
    types: Mapping[type[ice.IcebergType], sp.DataType],
    *,
    top: bool = True,
) -> sp.StructField:
    metadata: dict[str, Any] = {FIELD_ID: field.field_id}
    if field.doc:
        metadata[COMMENT] = field.doc
    if top and field.initial_default is not None and _is_filled_in(field.field_type):
        metadata[EXISTS_DEFAULT] = sql_literal(field.field_type, field.initial_default)
    kind = _spark_type(field.field_type, path, types)
    return sp.StructField(field.name, kind, nullable=not field.required, metadata=metadata)


def _spark_type(
    kind: ice.IcebergType, path: str, types: Mapping[type[ice.IcebergType], sp.DataType]
) -> sp.DataType:
    if isinstance(kind, ice.StructType):
        return sp.StructType(
            [_spark_field(field, f"{path}.{field.name}", types, top=False) for field in kind.fields]
        )
    if isinstance(kind, ice.ListType):
        return sp.ArrayType(
            _spark_type(kind.element_type, f"{path}.element", types),
            containsNull=not kind.element_required,
        )
    if isinstance(kind, ice.MapType):
        return sp.MapType(
            _spark_type(kind.key_type, f"{path}.key", types),
            _spark_type(kind.value_type, f"{path}.value", types),
            valueContainsNull=not kind.value_required,
        )
    if isinstance(kind, ice.DecimalType):
        return sp.DecimalType(kind.precision, kind.scale)
    spark_type = types.get(type(kind))
    if spark_type is None:
        raise UnsupportedTypeError(
            f"column {path!r} is of type {kind}, which cannot be read: select other columns",
            column=path,
            type=str(kind),
        )
    return spark_type


def _iceberg_fields(
    struct: sp.StructType, ids: Iterator[int], path: str
) -> Iterator[ice.NestedField]:
    for field in struct.fields:
        name = f"{path}.{field.name}" if path else field.name
        yield ice.NestedField(
            field_id=next(ids),
            name=field.name,
            field_type=_iceberg_type(field.dataType, ids, name),
            required=not field.nullable,
            doc=field.metadata.get(COMMENT),
        )


def _iceberg_type(kind: sp.DataType, ids: Iterator[int], path: str) -> ice.IcebergType:
    if isinstance(kind, sp.StructType):
        return ice.StructType(*_iceberg_fields(kind, ids, path))
    if isinstance(kind, sp.ArrayType):
        element_id = next(ids)
        element = _iceberg_type(kind.elementType, ids, f"{path}.element")
        return ice.ListType(
            element_id=element_id, element_type=element, element_required=not kind.containsNull
        )
    if isinstance(kind, sp.MapType):
        key_id, value_id = next(ids), next(ids)
        return ice.MapType(
            key_id=key_id,
            key_type=_iceberg_type(kind.keyType, ids, f"{path}.key"),
            value_id=value_id,
            value_type=_iceberg_type(kind.valueType, ids, f"{path}.value"),
            value_required=not kind.valueContainsNull,
        )
    if isinstance(kind, sp.DecimalType):
        return ice.DecimalType(kind.precision, kind.scale)
    iceberg_type = _TO_ICEBERG.get(type(kind))
    if kind.typeName() in ("geometry", "geography"):
        raise UnsupportedTypeError(
            f"column {path!r} is of Spark type {kind.simpleString()}, and Spark sees geometries of "
            "Iceberg as WKB in BINARY: create the column from Python, write ST_AsBinary(g), and "
            "read ST_GeomFromWKB(g, 4326)",
            column=path,
            type=kind.simpleString(),
        )
    if iceberg_type is None:
        raise UnsupportedTypeError(
            f"column {path!r} is of Spark type {kind.simpleString()}, which an Iceberg table "
            "cannot hold: cast it first",
            column=path,
            type=kind.simpleString(),
        )
    return iceberg_type


def sql_literal(kind: ice.IcebergType, value: Any) -> str:
    """A Spark SQL literal of an internal value, or for dates and times a `datetime` object.

    Raises:
        UnsupportedTypeError: a value of a type that Spark SQL has no literal for, or beyond what
            its text can say.
    """
    if isinstance(kind, ice.BooleanType):
        return "true" if value else "false"
    if isinstance(kind, ice.IntegerType | ice.LongType):
        return f"CAST('{value}' AS {'INT' if isinstance(kind, ice.IntegerType) else 'BIGINT'})"
    if isinstance(kind, ice.FloatType | ice.DoubleType):
        return (
            f"CAST('{_float_text(value)}' AS "
            f"{'FLOAT' if isinstance(kind, ice.FloatType) else 'DOUBLE'})"
        )
    if isinstance(kind, ice.DecimalType):
        return f"CAST('{value:f}' AS DECIMAL({kind.precision}, {kind.scale}))"
    if isinstance(kind, ice.StringType):
        return _quoted_text(str(value))
    if isinstance(kind, ice.BinaryType | ice.FixedType):
        return f"X'{bytes(value).hex()}'"
    if isinstance(kind, ice.UUIDType):
        return f"'{value if isinstance(value, UUID) else UUID(bytes=bytes(value))}'"
    if isinstance(kind, NANOSECONDS):
        return f"'{nanosecond_text(kind, value)}'"
    return _temporal_literal(kind, value)


def nanosecond_text(kind: ice.IcebergType, value: int) -> str:
    """Nanoseconds since the epoch as users of Spark see them.

    >>> nanosecond_text(ice.TimestamptzNanoType(), -1)
    '1969-12-31 23:59:59.999999999Z'
    """
    seconds, rest = divmod(value, 1_000_000_000)
    zone = "Z" if isinstance(kind, ice.TimestamptzNanoType) else ""
    return f"{(_EPOCH + dt.timedelta(seconds=seconds)).isoformat(' ')}.{rest:09d}{zone}"


def _quoted_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _temporal_literal(kind: ice.IcebergType, value: Any) -> str:
    try:
        value = _counted(value)
        if isinstance(kind, ice.DateType):
            return f"DATE '{(dt.date(1970, 1, 1) + dt.timedelta(days=value)).isoformat()}'"
        if isinstance(kind, ice.TimeType):
            return (
                "TIME "
                f"'{(_EPOCH + dt.timedelta(microseconds=value)).time().isoformat('microseconds')}'"
            )
        if isinstance(kind, ice.TimestampType | ice.TimestamptzType):
            text = (_EPOCH + dt.timedelta(microseconds=value)).isoformat(" ", "microseconds")
            return (
                f"TIMESTAMP_NTZ '{text}'"
                if isinstance(kind, ice.TimestampType)
                else f"TIMESTAMP '{text}+00:00'"
            )
    except OverflowError as error:
        raise UnsupportedTypeError(
            f"{kind} {value} lies beyond the years 1 to 9999 that Spark SQL can write"
        ) from error
    raise UnsupportedTypeError(f"Spark SQL has no literal of type {kind}", type=str(kind))


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return ("Infinity" if value > 0 else "-Infinity") if math.isinf(value) else repr(float(value))


def _counted(value: Any) -> int:
    """Days or microseconds since the epoch, or since midnight."""
    if isinstance(value, dt.datetime):
        epoch = dt.datetime(1970, 1, 1, tzinfo=None if value.tzinfo is None else dt.UTC)
        return (value - epoch) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    if isinstance(value, dt.time):
        return (
            (value.hour * 60 + value.minute) * 60 + value.second
        ) * 1_000_000 + value.microsecond
    return int(value)
