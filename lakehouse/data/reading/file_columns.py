"""The columns of a Parquet file as a tree with field ids, its own or those of a name mapping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pydantic import ValidationError
from pyiceberg.table.name_mapping import MappedField, parse_mapping_from_json

from lakehouse.data.conversion.leaf_field_ids import field_id_of
from lakehouse.errors import InvalidPropertyError, InvalidSchemaError
from lakehouse.spec.table_properties import NAME_MAPPING


@dataclass(slots=True)
class FileColumn:
    """A column, nested or not, of a Parquet file.

    Attributes:
        name: in the file.
        type: Arrow type in which it is read.
        field_id: Iceberg field id, None when it has none.
        children: struct fields; the element of a list; key and value of a map.
        leaves: indices of its Parquet leaf columns.
    """

    name: str
    type: pa.DataType
    field_id: int | None
    children: list[FileColumn] = field(default_factory=list)
    leaves: range = range(0)


def file_columns(arrow_schema: pa.Schema, name_mapping: str | None, path: str) -> list[FileColumn]:
    """Top-level columns of a file.

    Args:
        arrow_schema: of the file, with `PARQUET:field_id` metadata where the file has ids.
        name_mapping: JSON of `schema.name-mapping.default`, used when the file has no ids at all.
        path: of the file, for messages.

    Raises:
        InvalidSchemaError: no field ids and no name mapping.
        InvalidPropertyError: the name mapping is not valid.
    """
    counter = [0]
    columns = [_column(one, counter) for one in arrow_schema]
    if columns and not any(_has_ids(one) for one in columns):
        if name_mapping is None:
            raise InvalidSchemaError(
                f"file {path} has no field ids and the table no {NAME_MAPPING}; set the property "
                "to say which column is which",
                file=path,
            )
        try:
            mapping = parse_mapping_from_json(name_mapping)
        except (ValidationError, ValueError) as error:
            raise InvalidPropertyError(
                f"{NAME_MAPPING} is not a name mapping: {error}", property=NAME_MAPPING
            ) from error
        _assign(columns, mapping.root)
    return columns


def _column(one: pa.Field, counter: list[int]) -> FileColumn:
    kind = one.type
    start = counter[0]
    if pa.types.is_struct(kind):
        children = [_column(child, counter) for child in kind]
    elif pa.types.is_map(kind):
        children = [_column(kind.key_field, counter), _column(kind.item_field, counter)]
    elif (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ):
        children = [_column(kind.value_field, counter)]
    else:
        children = []
        counter[0] += 1
    return FileColumn(one.name, kind, field_id_of(one), children, range(start, counter[0]))


def _has_ids(column: FileColumn) -> bool:
    return column.field_id is not None or any(_has_ids(child) for child in column.children)


def _assign(columns: Sequence[FileColumn], mapped: Sequence[MappedField]) -> None:
    by_name = {name: one for one in mapped for name in one.names}
    for column in columns:
        found = by_name.get(column.name)
        if found is None:
            continue
        column.field_id = found.field_id
        _assign(_renamed(column), found.fields)


def _renamed(column: FileColumn) -> list[FileColumn]:
    """Children under the names that mappings use, however the file names parts of collections."""
    if pa.types.is_struct(column.type):
        return column.children
    names = ["element"] if len(column.children) == 1 else ["key", "value"]
    for child, name in zip(column.children, names, strict=False):
        child.name = name
    return column.children
