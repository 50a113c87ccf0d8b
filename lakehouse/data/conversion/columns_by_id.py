"""Columns by field id, nested ones too: of batches in an Iceberg schema, and of Parquet files."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from lakehouse.errors import InvalidPartitionSpecError
from lakehouse.spec.schema.iceberg_types import fields_of, paths_of
from lakehouse.spec.types.arrow_types import FIELD_ID_KEY


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


def field_id_of(field: pa.Field) -> int | None:
    """The field id in an Arrow field's metadata, as the Parquet reader puts it there."""
    text = (field.metadata or {}).get(FIELD_ID_KEY)
    return None if text is None else int(text)


def leaf_field_ids(footer: pq.FileMetaData) -> list[int | None]:
    """Field id of each leaf column of a row group, in order; None where the file has none."""
    ids: list[int | None] = []
    for field in footer.schema.to_arrow_schema():
        _collect(field, ids)
    return ids


def _collect(field: pa.Field, ids: list[int | None]) -> None:
    kind = field.type
    if pa.types.is_struct(kind):
        for child in kind:
            _collect(child, ids)
    elif pa.types.is_map(kind):
        _collect(kind.key_field, ids)
        _collect(kind.item_field, ids)
    elif (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ):
        _collect(kind.value_field, ids)
    else:
        ids.append(field_id_of(field))
