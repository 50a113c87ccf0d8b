"""Metadata tables as Spark shows them: a uuid is text, as in the table itself."""

from __future__ import annotations

import pyarrow as pa


def shown(table: pa.Table) -> pa.Table:
    """The table with every uuid, inside structs too, as its text: Spark takes no Arrow extension types."""
    columns = [_with_text(column.combine_chunks()) for column in table.columns]
    fields = [
        field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _with_text(array: pa.Array) -> pa.Array:
    kind = array.type
    if isinstance(kind, pa.UuidType):
        return pa.array(
            [None if value is None else str(value) for value in array.to_pylist()], pa.string()
        )
    if not pa.types.is_struct(kind) or not kind.num_fields:
        return array
    children = [_with_text(child) for child in array.flatten()]
    fields = [kind.field(position).with_type(child.type) for position, child in enumerate(children)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
