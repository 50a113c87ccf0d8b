"""Name mapping: field ids by column name, for data files without ids.

Spec: Column Projection, Name Mapping Serialization.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from lakehouse.errors import CorruptMetadataError, InvalidPropertyError, InvalidSchemaError
from lakehouse.spec.json_fields import optional_int, optional_list, require_list, require_object
from lakehouse.spec.table_properties import NAME_MAPPING


@dataclass(frozen=True, slots=True)
class MappedField:
    """What names stand for.

    Attributes:
        field_id: the field; None: names of these are no field of the table.
        names: that it has or had.
        fields: fields of a struct, the element of a list, key and value of a map.
    """

    field_id: int | None
    names: tuple[str, ...]
    fields: tuple[MappedField, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the spec."""
        document: dict[str, Any] = {"names": list(self.names)}
        if self.field_id is not None:
            document["field-id"] = self.field_id
        if self.fields:
            document["fields"] = [field.to_json() for field in self.fields]
        return document


def parse_name_mapping(text: str) -> tuple[MappedField, ...]:
    """The JSON of `schema.name-mapping.default`. Raises InvalidPropertyError."""
    try:
        return _mapped(require_list(json.loads(text), NAME_MAPPING), NAME_MAPPING)
    except (CorruptMetadataError, ValueError, RecursionError) as error:
        raise InvalidPropertyError(
            f"{NAME_MAPPING} is not a name mapping: {error}", property=NAME_MAPPING
        ) from error


def _mapped(documents: list[Any], where: str) -> tuple[MappedField, ...]:
    return tuple(
        MappedField(
            optional_int(document, "field-id", here),
            tuple(_names(document, here)),
            _mapped(optional_list(document, "fields", here), f"{here}.fields"),
        )
        for position, document in enumerate(documents)
        for here in (f"{where}[{position}]",)
    )


def _names(document: Any, where: str) -> list[str]:
    names = require_list(require_object(document, where).get("names"), f"{where}.names")
    if not all(isinstance(name, str) for name in names):
        raise CorruptMetadataError(f"{where}.names: expected texts.")
    return names


def covering(text: str | None, schema: Schema) -> str:
    """A name mapping, as JSON, that has every column of the schema; `text` itself when it does.

    Names that are mapped already stay, so that files imported earlier read as before. The present
    name of a column is added where it is missing, as after a rename.

    Raises:
        InvalidPropertyError: `text` is not a name mapping.
        InvalidSchemaError: the present name of a column stands for another column in it.
    """
    known = () if text is None else parse_name_mapping(text)
    mapped = _extended(known, schema.as_struct(), "")
    if text is not None and mapped == known:
        return text
    documents = [field.to_json() for field in mapped]
    return json.dumps(documents, ensure_ascii=False, separators=(",", ":"))


def _extended(
    known: Sequence[MappedField], kind: IcebergType, path: str
) -> tuple[MappedField, ...]:
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
        names = () if present is None else present.names
        below = () if present is None else present.fields
        extended = MappedField(
            field_id,
            names if name in names else (*names, name),
            _extended(below, child, f"{path}{name}."),
        )
        if present is None:
            result.append(extended)
        elif extended != present:
            result[result.index(present)] = extended
    return tuple(result)


def _children(kind: IcebergType) -> list[tuple[int, str, IcebergType]]:
    if isinstance(kind, StructType):
        return [(field.field_id, field.name, field.field_type) for field in kind.fields]
    if isinstance(kind, ListType):
        return [(kind.element_id, "element", kind.element_type)]
    if isinstance(kind, MapType):
        return [(kind.key_id, "key", kind.key_type), (kind.value_id, "value", kind.value_type)]
    return []
