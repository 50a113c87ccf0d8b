"""Schemas as JSON, with defaults (spec: Appendix C, Schemas; Appendix D, JSON); fresh ids."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from itertools import count
from types import MappingProxyType
from typing import Any
from uuid import UUID

from pydantic import ValidationError as ModelError
from pyiceberg.conversions import from_json, to_json
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
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
    UUIDType,
)

from lakehouse.errors import CorruptMetadataError, InvalidSchemaError, LakehouseError
from lakehouse.spec.json_fields import (
    as_int,
    optional_bool,
    optional_int,
    optional_str,
    require_int,
    require_list,
    require_object,
    require_str,
)
from lakehouse.spec.schema.iceberg_types import (
    MAX_COLUMN_ID,
    fields_by_id,
    primitive_from_string,
    primitive_to_string,
)

MAX_TYPE_DEPTH = 64
ID_MAX = 2**31 - 1
"""Ids of schemas and fields are ints."""
_PYTHON_TYPES: dict[type, type | tuple[type, ...]] = {
    BooleanType: bool,
    IntegerType: int,
    LongType: int,
    FloatType: (float, int),
    DoubleType: (float, int),
    DateType: dt.date,
    TimeType: dt.time,
    TimestampType: dt.datetime,
    TimestamptzType: dt.datetime,
    StringType: str,
    UUIDType: UUID,
    FixedType: bytes,
    BinaryType: bytes,
    DecimalType: Decimal,
}
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps without zone
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def schema_to_json(schema: Schema) -> dict[str, Any]:
    """The JSON object of the spec."""
    document = {
        "type": "struct",
        "fields": [field_to_json(field) for field in schema.fields],
        "schema-id": schema.schema_id,
    }
    if schema.identifier_field_ids:
        document["identifier-field-ids"] = list(schema.identifier_field_ids)
    return document


def schema_from_json(document: Any, where: str = "schema") -> Schema:
    """Read the spec's JSON object; a missing schema-id is 0 (v1).

    Raises CorruptMetadataError naming `where`.
    """
    struct = type_from_json(require_object(document, where), where)
    if not isinstance(struct, StructType):
        raise CorruptMetadataError(f"{where}: a schema must be a struct.")
    schema_id = optional_int(document, "schema-id", where)
    ids = document.get("identifier-field-ids")
    identifiers = (
        []
        if ids is None
        else [as_int(i, f"{where}.identifier-field-ids") for i in require_list(ids, where)]
    )
    try:
        fields_by_id(struct.fields)
        return Schema(*struct.fields, schema_id=schema_id or 0, identifier_field_ids=identifiers)
    except (ValueError, TypeError, ValidationError) as error:
        raise CorruptMetadataError(f"{where}: {_reason(error)}") from error


def with_unknown_keys(document: dict[str, Any], original: Any) -> dict[str, Any]:
    """A schema's JSON with the keys that an older schema of the table has beyond those of the spec.

    Keys of fields, lists and maps follow their ids, so that they survive renaming and moving.
    """
    known = {_identity(node): node for node in _nodes(original)}
    for node in _nodes(document):
        old = known.get(_identity(node), {})
        node |= {key: old[key] for key in old if key not in _KNOWN_KEYS}
    return document


_KNOWN_KEYS = frozenset(
    {
        *("type", "fields", "schema-id", "identifier-field-ids"),
        *("id", "name", "required", "doc", "initial-default", "write-default"),
        *("element-id", "element", "element-required"),
        *("key-id", "key", "value-id", "value", "value-required"),
    }
)


def _identity(node: Any) -> tuple[str, Any]:
    """What makes a JSON object of a schema the same in another version."""
    for key in ("id", "element-id", "key-id"):
        if key in node:
            return key, node[key]
    return "schema", None


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    """The JSON objects of a schema: itself, fields, lists and maps; structs as their fields."""
    if not isinstance(node, dict):
        return
    if node.get("type") != "struct" or "schema-id" in node:
        yield node
    for below in (*node.get("fields", ()), node.get("element"), node.get("value")):
        yield from _nodes(below)
    yield from _nodes(node.get("key"))
    yield from _nodes(node.get("type"))


def type_to_json(field_type: IcebergType) -> Any:
    """A type string, or an object for nested types."""
    if isinstance(field_type, StructType):
        return {"type": "struct", "fields": [field_to_json(field) for field in field_type.fields]}
    if isinstance(field_type, ListType):
        return {
            "type": "list",
            "element-id": field_type.element_id,
            "element": type_to_json(field_type.element_type),
            "element-required": field_type.element_required,
        }
    if isinstance(field_type, MapType):
        return {
            "type": "map",
            "key-id": field_type.key_id,
            "key": type_to_json(field_type.key_type),
            "value-id": field_type.value_id,
            "value": type_to_json(field_type.value_type),
            "value-required": field_type.value_required,
        }
    return primitive_to_string(field_type)


def type_from_json(document: Any, where: str, depth: int = 0) -> IcebergType:
    """Read a type; raises CorruptMetadataError naming `where`."""
    if depth > MAX_TYPE_DEPTH:
        raise CorruptMetadataError(f"{where}: types are nested more than {MAX_TYPE_DEPTH} deep.")
    try:
        if isinstance(document, str):
            return primitive_from_string(document)
        kind = require_str(document, "type", where)
        if kind == "struct":
            fields = require_list(document.get("fields"), f"{where}.fields")
            return StructType(
                *(
                    field_from_json(field, f"{where}.fields[{i}]", depth)
                    for i, field in enumerate(fields)
                )
            )
        if kind == "list":
            return ListType(
                element_id=_field_id(document, "element-id", where),
                element_type=type_from_json(document.get("element"), f"{where}.element", depth + 1),
                element_required=optional_bool(document, "element-required", where, default=False),
            )
        if kind == "map":
            return MapType(
                key_id=_field_id(document, "key-id", where),
                key_type=type_from_json(document.get("key"), f"{where}.key", depth + 1),
                value_id=_field_id(document, "value-id", where),
                value_type=type_from_json(document.get("value"), f"{where}.value", depth + 1),
                value_required=optional_bool(document, "value-required", where, default=False),
            )
    except CorruptMetadataError:
        raise
    except (ValueError, TypeError, ValidationError) as error:
        raise CorruptMetadataError(f"{where}: {_reason(error)}") from error
    raise CorruptMetadataError(f"{where}: {kind[:50]!r} is not a type.")


def field_to_json(field: NestedField) -> dict[str, Any]:
    """The JSON object of a struct's field."""
    document: dict[str, Any] = {
        "id": field.field_id,
        "name": field.name,
        "required": field.required,
        "type": type_to_json(field.field_type),
    }
    if field.doc is not None:
        document["doc"] = field.doc
    if field.initial_default is not None:
        document["initial-default"] = default_to_json(field.field_type, field.initial_default)
    if field.write_default is not None:
        document["write-default"] = default_to_json(field.field_type, field.write_default)
    return document


def field_from_json(document: Any, where: str, depth: int = 0) -> NestedField:
    """Read a struct's field; raises CorruptMetadataError naming `where`."""
    name = require_str(document, "name", where)
    field_type = type_from_json(document.get("type"), f"{where} ({name})", depth + 1)
    try:
        return make_field(
            _field_id(document, "id", where),
            name,
            field_type,
            required=optional_bool(document, "required", where, default=False),
            doc=optional_str(document, "doc", where),
            initial_default=default_from_json(field_type, document.get("initial-default")),
            write_default=default_from_json(field_type, document.get("write-default")),
        )
    except InvalidSchemaError as error:
        raise CorruptMetadataError(f"{where} ({name}): {error.message}") from error


def make_field(
    field_id: int,
    name: str,
    field_type: IcebergType,
    *,
    required: bool = False,
    doc: str | None = None,
    initial_default: Any = None,
    write_default: Any = None,
) -> NestedField:
    """A field whose defaults are given as Python values already (see `default_from_json`).

    pyiceberg's own constructor converts defaults from JSON, which it cannot do for nanoseconds and
    structs.
    """
    return NestedField.model_construct(
        field_id=field_id,
        name=name,
        field_type=field_type,
        required=required,
        doc=doc,
        initial_default=initial_default,
        write_default=write_default,
    )


def default_from_json(field_type: IcebergType, value: Any) -> Any:
    """A default as Python value; None is no default; raises InvalidSchemaError.

    It is what pyiceberg uses for the type (date, datetime, Decimal, UUID, bytes, ...); int
    nanoseconds since the epoch for the ns types; an empty tuple for a struct, whose fields have
    their own.
    """
    if value is None:
        return None
    if isinstance(field_type, StructType):
        if value not in ({}, ()):
            raise InvalidSchemaError(
                f"default {value!r}: that of a struct can only be null or {{}}, its fields have "
                "their own."
            )
        return ()
    if not isinstance(field_type, PrimitiveType):
        raise InvalidSchemaError(
            f"default {value!r} on {field_type}: lists and maps have no default but null."
        )
    try:
        if isinstance(field_type, (TimestampNanoType, TimestamptzNanoType)):
            return nanoseconds(value, zoned=isinstance(field_type, TimestamptzNanoType))
        return _checked(field_type, from_json(field_type, value))
    except InvalidSchemaError:
        raise
    except (
        ValueError,
        TypeError,
        ArithmeticError,
        AttributeError,
        NotImplementedError,
        ValidationError,
    ) as error:
        raise InvalidSchemaError(
            f"default {value!r} is not a value of type {field_type}: {_reason(error)}"
        ) from error


def default_to_json(field_type: IcebergType, value: Any) -> Any:
    """The JSON single-value form of a default that `default_from_json` would give back."""
    if isinstance(field_type, StructType):
        return {}
    if isinstance(field_type, (TimestampNanoType, TimestamptzNanoType)):
        seconds, nanos = divmod(value, 1_000_000_000)
        text = (_EPOCH + dt.timedelta(seconds=seconds)).isoformat(
            timespec="seconds"
        ) + f".{nanos:09d}"
        return f"{text}+00:00" if isinstance(field_type, TimestamptzNanoType) else text
    if not isinstance(field_type, PrimitiveType):
        raise InvalidSchemaError(f"A {field_type} cannot have a default.")
    return to_json(field_type, value)


def nanoseconds(value: Any, *, zoned: bool) -> int:
    """Nanoseconds since the epoch of an ISO 8601 text, a datetime or an int."""
    if isinstance(value, bool):
        raise InvalidSchemaError(f"default {value!r} is not a timestamp.")
    if isinstance(value, int):
        return value
    nanos = 0
    if isinstance(value, str):
        head, _, rest = value.partition(".")
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        if len(digits) > 9:
            raise InvalidSchemaError(f"default {value!r} has more than nine digits of a second.")
        nanos = int(digits.ljust(9, "0")) if digits else 0
        value = dt.datetime.fromisoformat(head + rest[len(digits) :])
    if not isinstance(value, dt.datetime) or (value.tzinfo is not None) != zoned:
        raise InvalidSchemaError(
            f"default {value!r} is not a timestamp {'with' if zoned else 'without'} zone."
        )
    span = value - (_EPOCH_UTC if zoned else _EPOCH)
    return (span.days * 86400 + span.seconds) * 1_000_000_000 + span.microseconds * 1000 + nanos


def _checked(field_type: PrimitiveType, given: object) -> Any:
    """`given`, if it is a value of the type that JSON can hold; decimals get the type's scale."""
    expected = _PYTHON_TYPES.get(type(field_type))
    wrong_kind = isinstance(given, bool) != (expected is bool) or (
        expected is dt.date and isinstance(given, dt.datetime)
    )
    if expected is None or not isinstance(given, expected) or wrong_kind:
        raise TypeError(f"it is a {type(given).__name__}")
    value: Any = given
    if (
        isinstance(field_type, (IntegerType, LongType))
        and not field_type.min <= value <= field_type.max
    ):
        raise ValueError("it is out of range")
    if isinstance(value, dt.datetime) and (value.tzinfo is not None) != isinstance(
        field_type, TimestamptzType
    ):
        raise ValueError("its zone does not fit")
    if isinstance(field_type, (FloatType, DoubleType)):
        if not math.isfinite(value):
            raise ValueError("it is not finite")
        return float(value)
    if isinstance(field_type, DecimalType):
        if not value.is_finite():
            raise ValueError("it is not finite")
        return value.quantize(
            Decimal(1).scaleb(-field_type.scale),
            context=Context(prec=field_type.precision, traps=[Inexact, InvalidOperation]),
        )
    to_json(field_type, value)
    return value


def _field_id(document: Any, key: str, where: str) -> int:
    value = require_int(document, key, where)
    if not 0 <= value <= ID_MAX:
        raise CorruptMetadataError(f"{where}.{key}: {value} is not a field id.")
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, LakehouseError):
        return error.message
    if isinstance(error, ModelError):  # its text begins with their number
        return "; ".join(detail["msg"] for detail in error.errors())
    return str(error).splitlines()[0]


def check_column_ids(schema: Schema) -> None:
    """Raise InvalidSchemaError for an id that is reserved (Reserved Field IDs) or used twice."""
    for field_id, field in fields_by_id(schema.fields).items():
        if field_id > MAX_COLUMN_ID:
            raise InvalidSchemaError(f"Column {field.name!r} has the reserved field id {field_id}.")


def assign_fresh_ids(
    schema: Schema, first_id: int = 1, kept: Mapping[str, int] = MappingProxyType({})
) -> tuple[Schema, dict[int, int]]:
    """The same schema with schema id 0 and new column ids, level by level as Iceberg does it.

    Args:
        schema: ids in it do not matter, but for its identifier fields.
        first_id: ids count from it.
        kept: ids, below the first one, of columns by their full names, where there are such.

    Returns:
        The schema, and the new id of each old one.

    Raises:
        InvalidSchemaError: for a name that occurs twice at one level, or identifier fields that
            cannot identify.
    """
    struct, new_ids = _renumbered(schema, count(first_id))
    check_names(struct)
    if kept:
        named = Schema(*struct.fields)
        there = kept.keys() & set(named.column_names)
        own = {named.find_field(name).field_id: kept[name] for name in there}
        struct, new_ids = _renumbered(schema, (own.get(id_, id_) for id_ in count(first_id)))
    try:
        identifiers = [new_ids[field_id] for field_id in schema.identifier_field_ids]
        return Schema(*struct.fields, schema_id=0, identifier_field_ids=identifiers), new_ids
    except (ValueError, KeyError, ValidationError) as error:
        raise InvalidSchemaError(f"Schema cannot be used: {error}") from error


def _renumbered(schema: Schema, ids: Iterator[int]) -> tuple[StructType, dict[int, int]]:
    new_ids: dict[int, int] = {}
    struct = fresh_type(schema.as_struct(), lambda: next(ids), new_ids)
    if not isinstance(struct, StructType):
        raise InvalidSchemaError("A schema must be a struct.")
    return struct, new_ids


def fresh_type(
    field_type: IcebergType, next_id: Callable[[], int], new_ids: dict[int, int]
) -> IcebergType:
    """The type with new ids; those of one level come before those of the levels below."""
    if isinstance(field_type, StructType):
        ids = [_take(field.field_id, next_id, new_ids) for field in field_type.fields]
        return StructType(
            *(
                fresh_field(field, field_id, fresh_type(field.field_type, next_id, new_ids))
                for field, field_id in zip(field_type.fields, ids, strict=True)
            )
        )
    if isinstance(field_type, ListType):
        element_id = _take(field_type.element_id, next_id, new_ids)
        # by keywords: of those by position pyiceberg takes a struct without fields for none
        return ListType(
            element_id=element_id,
            element_type=fresh_type(field_type.element_type, next_id, new_ids),
            element_required=field_type.element_required,
        )
    if isinstance(field_type, MapType):
        key_id = _take(field_type.key_id, next_id, new_ids)
        value_id = _take(field_type.value_id, next_id, new_ids)
        key_type = fresh_type(field_type.key_type, next_id, new_ids)
        value_type = fresh_type(field_type.value_type, next_id, new_ids)
        return MapType(key_id, key_type, value_id, value_type, field_type.value_required)
    return field_type


def fresh_field(field: NestedField, field_id: int, field_type: IcebergType) -> NestedField:
    """The field with another id and type."""
    return make_field(
        field_id,
        field.name,
        field_type,
        required=field.required,
        doc=field.doc,
        initial_default=field.initial_default,
        write_default=field.write_default,
    )


def check_names(field_type: IcebergType) -> None:
    """Raise InvalidSchemaError if two fields of a struct share a name, or one has none."""
    if isinstance(field_type, StructType):
        seen: set[str] = set()
        for field in field_type.fields:
            if not field.name:
                raise InvalidSchemaError("A column has an empty name.")
            if field.name in seen:
                raise InvalidSchemaError(f"Two columns of one struct are named {field.name!r}.")
            seen.add(field.name)
            check_names(field.field_type)
    elif isinstance(field_type, ListType):
        check_names(field_type.element_type)
    elif isinstance(field_type, MapType):
        check_names(field_type.key_type)
        check_names(field_type.value_type)


def _take(old_id: int, next_id: Callable[[], int], new_ids: dict[int, int]) -> int:
    new_ids[old_id] = next_id()
    return new_ids[old_id]
