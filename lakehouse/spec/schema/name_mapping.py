"""Name mapping: field ids by column name, for data files without ids.

Spec: Column Projection, Name Mapping Serialization.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping, parse_mapping_from_json
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from lakehouse.errors import InvalidPropertyError, InvalidSchemaError
from lakehouse.spec.table_properties import NAME_MAPPING


def parse_name_mapping(text: str) -> NameMapping:
    """The JSON of `schema.name-mapping.default`. Raises InvalidPropertyError."""
    try:
        return parse_mapping_from_json(text)
    except (ValidationError, ValueError) as error:
        raise InvalidPropertyError(
            f"{NAME_MAPPING} is not a name mapping: {error}", property=NAME_MAPPING
        ) from error


def covering(text: str | None, schema: Schema) -> str:
    """A name mapping, as JSON, that has every column of the schema; `text` itself when it does.

    Names that are mapped already stay, so that files imported earlier read as before. The present
    name of a column is added where it is missing, as after a rename.

    Raises:
        InvalidPropertyError: `text` is not a name mapping.
        InvalidSchemaError: the present name of a column stands for another column in it.
    """
    known = [] if text is None else list(parse_name_mapping(text).root)
    mapped = _extended(known, schema.as_struct(), "")
    if text is not None and mapped == known:
        return text
    return NameMapping(mapped).model_dump_json()


def _extended(known: Sequence[MappedField], kind: IcebergType, path: str) -> list[MappedField]:
    by_id = {mapped.field_id: mapped for mapped in known if mapped.field_id is not None}
    taken = {name: mapped.field_id for mapped in known for name in mapped.names}
    result = list(known)
    for field_id, name, child in _children(kind):
        if taken.get(name, field_id) != field_id:
            raise InvalidSchemaError(
                f"{NAME_MAPPING} says that {path + name!r} is field {taken[name]}, but now "
                f"field {field_id} has that name: set the property so that each name stands "
                "for one column.",
                column=path + name,
            )
        present = by_id.get(field_id)
        names = [] if present is None else list(present.names)
        below = [] if present is None else list(present.fields)
        extended = MappedField(
            field_id=field_id,
            names=names if name in names else [*names, name],
            fields=_extended(below, child, f"{path}{name}."),
        )
        if present is None:
            result.append(extended)
        elif extended != present:
            result[result.index(present)] = extended
    return result


def _children(kind: IcebergType) -> list[tuple[int, str, IcebergType]]:
    if isinstance(kind, StructType):
        return [(field.field_id, field.name, field.field_type) for field in kind.fields]
    if isinstance(kind, ListType):
        return [(kind.element_id, "element", kind.element_type)]
    if isinstance(kind, MapType):
        return [(kind.key_id, "key", kind.key_type), (kind.value_id, "value", kind.value_type)]
    return []
