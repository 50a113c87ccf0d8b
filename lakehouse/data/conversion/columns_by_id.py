"""Finding a column, nested ones too, by field id in batches that follow an Iceberg schema."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from lakehouse.errors import InvalidPartitionSpecError
from lakehouse.spec.schema.iceberg_types import fields_of, paths_of


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


def column_at(
    batch: pa.RecordBatch | pa.Table, path: tuple[int, ...]
) -> pa.Array | pa.ChunkedArray:
    """The column at a path of positions; null where a parent is null."""
    column = batch.column(path[0])
    return column if len(path) == 1 else pc.struct_field(column, list(path[1:]))


class FieldReader:
    """Finds fields in batches and tables by their ids.

    Args:
        paths: where each field is in the rows, by id.
    """

    def __init__(self, paths: Mapping[int, tuple[int, ...]]) -> None:
        self._paths = paths

    def read(self, rows: pa.RecordBatch | pa.Table, field_id: int) -> pa.Array | pa.ChunkedArray:
        """The values of a field; null where a struct around it is."""
        return column_at(rows, self._paths[field_id])
