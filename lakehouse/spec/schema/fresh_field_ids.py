"""Assigning column ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from types import MappingProxyType

from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from lakehouse.errors import InvalidSchemaError
from lakehouse.spec.schema.schema_json import make_field


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
        struct, new_ids = _renumbered(schema, (own.get(one, one) for one in count(first_id)))
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
