"""Values between Iceberg's types and those that Spark sees: uuids and nanoseconds are text."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    StringType,
    StructType,
    TimestamptzNanoType,
)

from lakehouse.data.conversion.nested_arrays import (
    list_parts,
    make_list,
    make_map,
    make_struct,
    map_parts,
)
from lakehouse.data.conversion.variant_arrays import is_variant
from lakehouse.spark.spark_types import NANOSECONDS


def shown_array(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Values as a type that Spark sees, which has uuids and nanoseconds as text."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        if isinstance(kind, pa.UuidType) and pa.types.is_string(target):
            return pa.array(
                [None if value is None else str(value) for value in array.to_pylist()], target
            )
        return array.storage.cast(target)
    if pa.types.is_timestamp(kind) and pa.types.is_string(target):
        return array.cast(target)
    if is_variant(kind) and is_variant(target):
        children = [array.field(field.name) for field in target]
        return make_struct(children, target, array.is_valid(), len(array))
    if pa.types.is_struct(kind):
        children = [
            shown_array(array.field(position), field.type) for position, field in enumerate(target)
        ]
        return make_struct(children, target, array.is_valid(), len(array))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values, lengths = list_parts(array)
        return make_list(shown_array(values, target.value_type), lengths, target)
    if pa.types.is_map(kind):
        keys, values, lengths = map_parts(array)
        keys, values = shown_array(keys, target.key_type), shown_array(values, target.item_type)
        return make_map(keys, values, lengths, target)
    return array.cast(target)


def stored_array(array: pa.Array, kind: IcebergType) -> pa.Array:
    """What `shown_array` made of nanoseconds, at any depth, as these; other values as they are.

    Raises:
        pyarrow.ArrowInvalid: a text that is no time, or of an instant without an offset.
    """
    if isinstance(kind, NANOSECONDS):
        zone = "UTC" if isinstance(kind, TimestamptzNanoType) else None
        return array.cast(pa.timestamp("ns", zone)) if _is_text(array.type) else array
    if isinstance(kind, StructType) and pa.types.is_struct(array.type):
        types = {field.name: field.field_type for field in kind.fields}
        children = [
            stored_array(array.field(position), types.get(field.name, StringType()))
            for position, field in enumerate(array.type)
        ]
        fields = [
            field.with_type(child.type) for field, child in zip(array.type, children, strict=True)
        ]
        return make_struct(children, pa.struct(fields), array.is_valid(), len(array))
    if isinstance(kind, ListType) and (
        pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    ):
        values, lengths = list_parts(array)
        values = stored_array(values, kind.element_type)
        return make_list(values, lengths, pa.list_(array.type.value_field.with_type(values.type)))
    if isinstance(kind, MapType) and pa.types.is_map(array.type):
        keys, values, lengths = map_parts(array)
        keys, values = stored_array(keys, kind.key_type), stored_array(values, kind.value_type)
        inside = array.type.key_field.with_type(keys.type), array.type.item_field
        target = pa.map_(inside[0], inside[1].with_type(values.type))
        return make_map(keys, values, lengths, target)
    return array


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
