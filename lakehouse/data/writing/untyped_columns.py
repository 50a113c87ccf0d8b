"""Columns of nulls alone, which have no type: nobody can store them before format version 3."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from lakehouse.data.conversion.nested_arrays import make_struct


def without_untyped(
    data: pa.Table | pa.RecordBatchReader,
    known: Schema | StructType,
    kept: Collection[str] = (),
) -> tuple[pa.Table | pa.RecordBatchReader, list[str]]:
    """Rows without the columns, and fields of structs, that have no type and are not known.

    Nothing is lost: they say that there is no value, and are columns when the first one comes.

    Args:
        data: the rows.
        known: columns that have a type elsewhere.
        kept: names of columns that stay as they are.

    Returns:
        The rows, and the paths of what they lack now.
    """
    dropped: list[str] = []
    fields = _typed(list(data.schema), known, kept, "", dropped)
    if not dropped:
        return data, []
    schema = pa.schema(fields, data.schema.metadata)
    batches = data.to_batches() if isinstance(data, pa.Table) else data
    pruned = (
        pa.RecordBatch.from_struct_array(_pruned(batch.to_struct_array(), pa.struct(fields))).cast(
            schema
        )
        for batch in batches
    )
    reader = pa.RecordBatchReader.from_batches(schema, pruned)
    return (reader.read_all() if isinstance(data, pa.Table) else reader), dropped


def _typed(
    fields: list[pa.Field],
    known: Schema | StructType,
    kept: Collection[str],
    prefix: str,
    dropped: list[str],
) -> list[pa.Field]:
    types = {field.name: field.field_type for field in known.fields}
    typed = []
    for field in fields:
        path = prefix + field.name
        if path in kept or (pa.types.is_null(field.type) and field.name in types):
            typed.append(field)
        elif pa.types.is_null(field.type):
            dropped.append(path)
        elif pa.types.is_struct(field.type):
            kind = types.get(field.name)
            inner = kind if isinstance(kind, StructType) else StructType()
            children = _typed(list(field.type), inner, (), f"{path}.", dropped)
            if children or not field.type.num_fields:
                typed.append(field.with_type(pa.struct(children)))
            else:  # a struct of nothing is no type either
                dropped.append(path)
        else:
            typed.append(field)
    return typed


def _pruned(array: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    children = []
    for field in kind:
        child = array.field(field.name)
        if pa.types.is_struct(field.type) and child.type != field.type:
            child = _pruned(child, field.type)
        children.append(child)
    present = array.is_valid() if array.null_count else None
    return make_struct(children, kind, present, len(array))
