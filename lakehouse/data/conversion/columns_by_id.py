"""Finding a column, nested ones too, by field id in batches that follow an Iceberg schema."""

from __future__ import annotations

from collections.abc import Collection

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
    found = _search(schema.as_struct(), field_id)
    if found is None:
        raise InvalidPartitionSpecError(
            f"source field {field_id} is not a column of schema {schema.schema_id}, or lies "
            "inside a list or map",
            field_id=field_id,
        )
    return found


def _search(struct: StructType, field_id: int) -> tuple[tuple[int, ...], NestedField] | None:
    for position, one in enumerate(struct.fields):
        if one.field_id == field_id:
            return (position,), one
        if isinstance(one.field_type, StructType):
            below = _search(one.field_type, field_id)
            if below is not None:
                return (position, *below[0]), below[1]
    return None


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
        field_ids: of the fields that will be asked for, outside lists and maps.
    """

    def __init__(self, schema: Schema, field_ids: Collection[int]) -> None:
        self._paths = {field_id: find_path(schema, field_id)[0] for field_id in field_ids}

    def read(self, rows: pa.RecordBatch | pa.Table, field_id: int) -> pa.Array | pa.ChunkedArray:
        """The values of a field; null where a struct around it is."""
        return column_at(rows, self._paths[field_id])
