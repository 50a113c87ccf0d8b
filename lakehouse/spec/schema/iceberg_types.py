"""Types of the spec by their names, the fields of a schema by id, path and name, reserved fields.

The types are pyiceberg's, and one that pyiceberg lacks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeVar

from pydantic import Field
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.types import (
    DEFAULT_GEOGRAPHY_ALGORITHM,
    DEFAULT_GEOGRAPHY_CRS,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
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

from lakehouse.errors import InvalidPartitionSpecError, InvalidSchemaError
from lakehouse.kept_by_bytes import bytes_of

Value = TypeVar("Value")
MAX_COLUMN_ID = 2147483447
"""The highest id a column may have (spec: Reserved Field IDs)."""


class VariantType(PrimitiveType):
    """Semi-structured values (v3), of which each brings its own type."""

    root: Literal["variant"] = Field(default="variant")

    def minimum_format_version(self) -> Literal[3]:
        """The first format version with this type: v3."""
        return 3


_NAMED: dict[str, IcebergType] = {
    "unknown": UnknownType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "time": TimeType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
    "timestamp_ns": TimestampNanoType(),
    "timestamptz_ns": TimestamptzNanoType(),
    "string": StringType(),
    "uuid": UUIDType(),
    "binary": BinaryType(),
    "variant": VariantType(),
}
_ALIASES = {
    "bool": "boolean",
    "integer": "int",
    "bigint": "long",
    "str": "string",
    "bytes": "binary",
    "varchar": "string",
}
_SCHEMA_BYTES, _FIELD_BYTES, _NAMES = 3072, 2560, 4
"""What a schema takes, a field of it, and how often the text of a field's path is kept."""
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)")
_FIXED = re.compile(r"fixed\s*[\[(]\s*(\d{1,9})\s*[\])]")
_GEOSPATIAL = re.compile(r"(geometry|geography)\s*(?:\(\s*(.*?)\s*\))?", re.DOTALL)
_ALGORITHM = re.compile(r"(.*?)\s*,\s*(['\"]?)(\w*)\2", re.DOTALL)
_ALGORITHMS = ("spherical", "vincenty", "thomas", "andoyer", "karney")


def primitive_from_string(text: str) -> IcebergType:
    """The type named by a type string such as `decimal(9, 2)`; raises InvalidSchemaError."""
    named = _NAMED.get(text)
    if named is not None:
        return named
    try:
        if match := _DECIMAL.fullmatch(text):
            precision, scale = int(match[1]), int(match[2])
            if scale > precision:
                raise InvalidSchemaError(f"Type {text!r}: the scale is larger than the precision.")
            return DecimalType(precision, scale)
        if match := _FIXED.fullmatch(text):
            return FixedType(int(match[1]))
        if match := _GEOSPATIAL.fullmatch(text):
            return _geospatial(match[1], match[2] or "")
    except (ValueError, TypeError, ValidationError) as error:
        if isinstance(error, InvalidSchemaError):
            raise
        raise InvalidSchemaError(f"Type {text!r}: {error}") from error
    raise InvalidSchemaError(
        f"{text[:100]!r} is not a type; known are {', '.join(_NAMED)}, decimal(P,S), fixed[L], "
        "geometry(CRS), geography(CRS, algorithm)."
    )


def primitive_to_string(field_type: IcebergType) -> str:
    """The type string of the spec.

    pyiceberg's quotes the reference system of a geometry, which is part of no name.
    """
    if isinstance(field_type, GeographyType) and field_type != GeographyType():
        # behind a comma an algorithm is expected
        plain = field_type.algorithm == DEFAULT_GEOGRAPHY_ALGORITHM and "," not in field_type.crs
        return f"geography({field_type.crs}{'' if plain else f', {field_type.algorithm}'})"
    if isinstance(field_type, GeometryType) and field_type != GeometryType():
        return f"geometry({field_type.crs})"
    return str(field_type)


def is_partitionable(field_type: IcebergType) -> bool:
    """Whether values of this type can be the source of a partition or sort field."""
    return field_type.is_primitive and not isinstance(
        field_type, (VariantType, GeometryType, GeographyType, UnknownType)
    )


def type_from_name(text: str) -> IcebergType:
    """As `primitive_from_string`, also taking SQL's names (bigint, bool, integer) and any case.

    The name of a coordinate reference system keeps its case.
    """
    name, parenthesis, rest = text.strip().partition("(")
    name = name.lower()
    return primitive_from_string(_ALIASES.get(name, name) + parenthesis + rest)


def fields_of(schema: Schema) -> Mapping[int, NestedField]:
    """Every field of a schema, at any depth, by id; collected once for a schema."""
    return schema._lazy_id_to_field  # noqa: SLF001 - what `Schema.find_field` finds them by


def paths_of(schema: Schema) -> Mapping[int, tuple[int, ...]]:
    """`field_paths` of a schema, computed once for it."""
    return once(schema, "_lazy_id_to_path", lambda: field_paths(schema.fields))


def find_path(schema: Schema, field_id: int) -> tuple[tuple[int, ...], NestedField]:
    """Positions from the top of the schema through structs down to a field, and the field.

    Raises:
        InvalidPartitionSpecError: no such field outside lists and maps.
    """
    path = paths_of(schema).get(field_id)
    if path is None:
        raise InvalidPartitionSpecError(
            f"source field {field_id} is not a column of schema {schema.schema_id}, or lies "
            "inside a list or map",
            field_id=field_id,
        )
    return path, fields_of(schema)[field_id]


def schema_bytes(schema: Schema) -> int:
    """What a schema takes in memory at most, with all that is computed from it."""
    return once(schema, "_lazy_bytes", lambda: _bytes_of(schema))


def _bytes_of(schema: Schema) -> int:
    size = _SCHEMA_BYTES
    pending = [(field, 0) for field in schema.fields]
    while pending:
        field, above = pending.pop()
        length = above + sys.getsizeof(field.name)
        size += _FIELD_BYTES + _NAMES * length
        size += bytes_of(field.doc, field.initial_default, field.write_default)
        children = child_fields(field.field_type)
        # lists and maps make the fields of what they hold once more
        size += 0 if isinstance(field.field_type, StructType) else len(children) * _FIELD_BYTES
        pending += [(child, length) for child in children]
    return size


def once(schema: Schema, name: str, find: Callable[[], Value]) -> Value:
    """What `find` computes from a schema, kept in it as `cached_property` does."""
    known = vars(schema)
    if name not in known:
        known[name] = find()
    value: Value = known[name]
    return value


def field_paths(fields: Iterable[NestedField]) -> dict[int, tuple[int, ...]]:
    """Positions from the top through structs down to each field outside lists and maps, by id."""
    paths: dict[int, tuple[int, ...]] = {}
    pending: list[tuple[tuple[int, ...], NestedField]] = [
        ((at,), field) for at, field in enumerate(fields)
    ]
    while pending:
        path, field = pending.pop()
        paths[field.field_id] = path
        if isinstance(field.field_type, StructType):
            pending += [((*path, at), child) for at, child in enumerate(field.field_type.fields)]
    return paths


def fields_by_id(fields: Iterable[NestedField]) -> dict[int, NestedField]:
    """Fields and every field below them, list elements, map keys and values included, by id.

    Raises InvalidSchemaError for an id that is used twice.
    """
    by_id: dict[int, NestedField] = {}
    pending = list(fields)
    while pending:
        field = pending.pop()
        if field.field_id in by_id:
            raise InvalidSchemaError(
                f"Field id {field.field_id} is used by both {by_id[field.field_id].name!r} and "
                f"{field.name!r}."
            )
        by_id[field.field_id] = field
        pending.extend(child_fields(field.field_type))
    return by_id


def child_fields(field_type: IcebergType) -> tuple[NestedField, ...]:
    """The fields directly inside a struct, list or map; none for other types."""
    if isinstance(field_type, StructType):
        return field_type.fields
    if isinstance(field_type, ListType):
        return (field_type.element_field,)
    if isinstance(field_type, MapType):
        return (field_type.key_field, field_type.value_field)
    return ()


FieldTypes = Mapping[int, PrimitiveType]


def field_types(schema: Schema, *older: Schema) -> FieldTypes:
    """Types of all primitive fields, nested ones too.

    Pass the older schemas of the table so that columns dropped since keep their type; `schema` wins
    where both know a field, so that promoted columns compare in their present type.
    """
    types: dict[int, PrimitiveType] = {}
    for known in (*older, schema):
        for field_id, field in fields_of(known).items():
            if isinstance(field.field_type, PrimitiveType):
                types[field_id] = field.field_type
    return types


def spelled(name: str, schema: Schema, *, case_sensitive: bool) -> str:
    """A dotted name as the schema spells it, or as it is where no column has it.

    A name that a column has exactly is that column's, whatever else there is.

    Raises:
        ValueError: several columns have it in another case, none in this one.
    """
    if case_sensitive:
        return name
    alike = once(schema, "_lazy_lower_to_names", lambda: _in_lower_case(schema)).get(
        name.lower(), {}
    )
    if name in alike:
        return name
    named = {column: spelling for spelling, column in alike.items()}
    if len(named) > 1:
        raise ValueError(f"{name} may be {' or '.join(sorted(named.values()))}")
    return next(iter(named.values()), name)


def _geospatial(name: str, parameters: str) -> IcebergType:
    """A geometry or geography: a reference system, which may hold commas, and an algorithm."""
    if name == "geometry":
        crs = _unquoted(parameters)
        return GeometryType(crs) if crs else GeometryType()
    match = _ALGORITHM.fullmatch(parameters)
    crs, algorithm = (match[1], match[3].lower()) if match is not None else (parameters, "")
    if algorithm and algorithm not in _ALGORITHMS:
        raise InvalidSchemaError(
            f"Type {f'{name}({parameters})'!r}: {algorithm!r} is no algorithm for edges; known are "
            f"{', '.join(_ALGORITHMS)}."
        )
    return GeographyType(
        _unquoted(crs) or DEFAULT_GEOGRAPHY_CRS, algorithm or DEFAULT_GEOGRAPHY_ALGORITHM
    )


def _unquoted(text: str) -> str:
    """A name without the quotes that pyiceberg puts around it."""
    quoted = len(text) > 1 and text[0] == text[-1] == "'"
    return text[1:-1] if quoted else text


def _in_lower_case(schema: Schema) -> dict[str, dict[str, int]]:
    """Ids by the names that are alike but for their case, by these in lower case."""
    ids: dict[str, dict[str, int]] = {}
    for name, column in index_by_name(schema).items():
        ids.setdefault(name.lower(), {})[name] = column
    return ids


ROW_ID = "_row_id"
LAST_UPDATED = "_last_updated_sequence_number"

PARTITION = NestedField(2147483642, "_partition", StructType(), required=True)
"""The partition of the file that a row is in; what is in the struct depends on the table."""
PARTITION_FIELDS = 2_000_000_000
"""Added to the id of a partition field: below `_partition`, ids must not be those of columns."""
METADATA_COLUMNS: Mapping[str, NestedField] = {
    field.name: field
    for field in (
        NestedField(2147483646, "_file", StringType(), required=True),
        NestedField(2147483645, "_pos", LongType(), required=True),
        NestedField(2147483644, "_deleted", BooleanType(), required=True),
        NestedField(2147483643, "_spec_id", IntegerType(), required=True),
        NestedField(2147483540, ROW_ID, LongType(), required=False),
        NestedField(2147483539, LAST_UPDATED, LongType(), required=False),
    )
}


def with_lineage(schema: Schema, format_version: int) -> Schema:
    """From v3 on the schema with the row lineage columns (spec: Row Lineage).

    A row that moves into another file keeps their values. They are known by their ids: where the
    table has a column of such a name, theirs ends in the id.
    """
    if format_version < 3:
        return schema
    taken = {field.name for field in schema.fields}
    lineage = [
        NestedField(
            field.field_id,
            f"{field.name}_{field.field_id}" if field.name in taken else field.name,
            field.field_type,
            required=False,
        )
        for field in (METADATA_COLUMNS[ROW_ID], METADATA_COLUMNS[LAST_UPDATED])
    ]
    return Schema(
        *schema.fields,
        *lineage,
        schema_id=schema.schema_id,
        identifier_field_ids=schema.identifier_field_ids,
    )
