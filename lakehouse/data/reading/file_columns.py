"""The columns of a Parquet file as a tree with field ids, its own or those of a name mapping."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pydantic import ValidationError
from pyiceberg.table.name_mapping import MappedField, parse_mapping_from_json

from lakehouse.errors import InvalidPropertyError, InvalidSchemaError
from lakehouse.spec.table_properties import NAME_MAPPING
from lakehouse.spec.types.arrow_types import field_id_of


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
        name_mapping: JSON of `schema.name-mapping.default`, for columns without ids.
        path: of the file, for messages.

    Raises:
        InvalidSchemaError: a column without field id and no name mapping, or an id of two columns.
        InvalidPropertyError: the name mapping is not valid.
    """
    counter = [0]
    columns = [_column(one, counter) for one in arrow_schema]
    lacking = next(_without_id(columns), None)
    if lacking is None:
        return _told_apart(columns, path)
    if name_mapping is None:
        raise InvalidSchemaError(
            f"column {lacking!r} of file {path} has no field id and the table no {NAME_MAPPING}; "
            "set the property to say which column is which",
            file=path,
            column=lacking,
        )
    try:
        mapping = parse_mapping_from_json(name_mapping)
    except (ValidationError, ValueError) as error:
        raise InvalidPropertyError(
            f"{NAME_MAPPING} is not a name mapping: {error}", property=NAME_MAPPING
        ) from error
    _assign(columns, mapping.root)
    return _told_apart(columns, path)


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


def _told_apart(columns: list[FileColumn], path: str) -> list[FileColumn]:
    """The columns. Raises InvalidSchemaError if two of them have one id, at any depth.

    Structs may come twice: delete files can repeat one around each key.
    """
    names: dict[int, str] = {}
    for name, column in _named(columns):
        if column.field_id is None or pa.types.is_struct(column.type):
            continue
        other = names.setdefault(column.field_id, name)
        if other is not name:
            raise twice(path, column.field_id, other, name)
    return columns


def twice(path: str, field_id: int, first: str, second: str) -> InvalidSchemaError:
    """The error of two columns of a file that have one id."""
    return InvalidSchemaError(
        f"file {path} has field id {field_id} twice, for {first!r} and {second!r}: which of them "
        "is the table's column is not known",
        file=path,
        column=second,
    )


def _named(columns: Sequence[FileColumn], above: str = "") -> Iterator[tuple[str, FileColumn]]:
    for column in columns:
        name = f"{above}{column.name}"
        yield name, column
        yield from _named(column.children, f"{name}.")


def _without_id(columns: Sequence[FileColumn], above: str = "") -> Iterator[str]:
    """Names of columns and fields of structs without an id; parts of collections need none."""
    for column in columns:
        name = f"{above}{column.name}"
        if column.field_id is None:
            yield name
        yield from _without_id_below(column, name)


def _without_id_below(column: FileColumn, name: str) -> Iterator[str]:
    if pa.types.is_struct(column.type):
        yield from _without_id(column.children, f"{name}.")
        return
    for part in column.children:
        yield from _without_id_below(part, f"{name}.{part.name}")


def _assign(columns: Sequence[FileColumn], mapped: Sequence[MappedField]) -> None:
    """Give columns without an id that of their name, unless another column has it."""
    by_name = {name: field for field in mapped for name in field.names}
    by_id = {field.field_id: field for field in mapped}
    taken = {column.field_id for column in columns}
    for column in columns:
        if column.field_id is not None:
            field = by_id.get(column.field_id)
        else:
            field = by_name.get(column.name)
            if field is not None and field.field_id not in taken:
                column.field_id = field.field_id
        if field is not None:
            _assign(_renamed(column), field.fields)


def _renamed(column: FileColumn) -> list[FileColumn]:
    """Children under the names that mappings use, however the file names parts of collections."""
    if pa.types.is_struct(column.type):
        return column.children
    names = ["element"] if len(column.children) == 1 else ["key", "value"]
    for child, name in zip(column.children, names, strict=False):
        child.name = name
    return column.children
