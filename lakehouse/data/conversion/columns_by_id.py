"""Finding a column, nested ones too, by field id in batches that follow an Iceberg schema."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from lakehouse.errors import InvalidPartitionSpecError


def find_path(schema: Schema, field_id: int) -> tuple[tuple[int, ...], NestedField]:
    """Positions from the top of the schema through structs down to a field, and the field.

    Raises:
        InvalidPartitionSpecError: no such field outside lists and maps.
    """
    found = next((one for one in _paths(schema.as_struct()) if one[1].field_id == field_id), None)
    if found is None:
        raise _no_column(schema, field_id)
    return found


def _paths(
    struct: StructType, above: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], NestedField]]:
    for position, one in enumerate(struct.fields):
        path = (*above, position)
        yield path, one
        if isinstance(one.field_type, StructType):
            yield from _paths(one.field_type, path)


def _no_column(schema: Schema, field_id: int) -> InvalidPartitionSpecError:
    return InvalidPartitionSpecError(
        f"source field {field_id} is not a column of schema {schema.schema_id}, or lies "
        "inside a list or map",
        field_id=field_id,
    )


def column_at(
    batch: pa.RecordBatch | pa.Table, path: tuple[int, ...]
) -> pa.Array | pa.ChunkedArray:
    """The column at a path of positions; null where a parent is null."""
    column = batch.column(path[0])
    return column if len(path) == 1 else pc.struct_field(column, list(path[1:]))


class FieldReader:
    """Finds fields in batches and tables of one schema by their ids.

    Args:
        schema: of the rows.
        field_ids: of the fields that will be asked for, outside lists and maps; all by default.

    Raises:
        InvalidPartitionSpecError: one of `field_ids` is no such field.
    """

    def __init__(self, schema: Schema, field_ids: Collection[int] | None = None) -> None:
        found = _paths(schema.as_struct())
        self._paths = {field.field_id: path for path, field in found}
        for field_id in field_ids or ():
            if field_id not in self._paths:
                raise _no_column(schema, field_id)

    def read(self, rows: pa.RecordBatch | pa.Table, field_id: int) -> pa.Array | pa.ChunkedArray:
        """The values of a field; null where a struct around it is."""
        return column_at(rows, self._paths[field_id])
