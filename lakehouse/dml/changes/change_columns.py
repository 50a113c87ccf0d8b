"""Schema drift of changes: what their columns ask of the table's."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from lakehouse.data.writing.input_columns import coerce
from lakehouse.dml.changes.change_batch import ChangeBatch
from lakehouse.errors import InvalidSchemaError
from lakehouse.evolution.schema_changes import Changes
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.spec.metadata.table_metadata import TableMetadata


def room_for(batch: ChangeBatch, metadata: TableMetadata) -> Changes:
    """The change of the table's schema that makes room for the changes; empty when there is room.

    A column that the table lacks is added. One whose values do not fit is widened as the
    specification allows it ("Schema Evolution"); values that fit leave the column as it is,
    whatever their type.

    Raises:
        InvalidSchemaError: values do not fit, and the column cannot be widened to theirs.
    """
    update = UpdateSchema(metadata)
    kept = batch.rows.filter(pa.array(~batch.deletes))
    known = {one.name: one for one in metadata.schema().fields}
    for name in batch.stored(metadata):
        given = batch.schema.find_field(name)
        if name not in known:
            update.union_by_name(Schema(given))
            continue
        misfit = _misfit(kept.select([name]), known[name], batch.table)
        if misfit is not None:
            try:
                update.union_by_name(Schema(_optional(given)))
            except InvalidSchemaError as error:
                raise InvalidSchemaError(
                    f"{misfit.message}; nor can the column be widened: {error.message}",
                    table=batch.table,
                    column=name,
                ) from error
    return update.changes()


def _misfit(rows: pa.Table, field: NestedField, table: str) -> InvalidSchemaError | None:
    """Why the values of a column do not fit; that a value is missing is not asked here."""
    try:
        for _ in coerce(rows, Schema(_optional(field)), table=table):
            pass
    except InvalidSchemaError as error:
        return error
    return None


def _optional(field: NestedField) -> NestedField:
    return field.model_copy(update={"required": False})
