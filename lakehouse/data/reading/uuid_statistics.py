"""UUID columns of Parquet files, whose statistics some readers misread.

Parquet orders UUIDs by their bytes; Java's reader compares what it finds in the order of signed
halves and skips row groups that hold matching rows. So a column has statistics only in files all
of whose row groups both orders agree on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa

from lakehouse.data.conversion.leaf_field_ids import field_id_of
from lakehouse.spec.types.uuid_order import is_ordered_alike


def misread_columns(rows: pa.Table) -> set[str]:
    """Paths of the UUID columns on whose order readers of a row group of these rows disagree.

    Lists and maps are left out: nobody filters row groups by what is inside.
    """
    return {path for path, _, column in _uuids_of(rows) if not is_ordered_alike(column.storage)}


def uuid_nulls(rows: pa.Table, paths: Collection[str]) -> dict[int, int]:
    """Nulls by field id of the UUID columns named, which footers do not count."""
    return {
        field_id: column.null_count
        for path, field_id, column in _uuids_of(rows)
        if path in paths and field_id is not None
    }


def statistics_columns(schema: pa.Schema, left_out: Collection[str]) -> bool | list[str]:
    """What pyarrow takes as `write_statistics`: paths of the leaf columns that have statistics."""
    if not left_out:
        return True
    return [path for field in schema for path in _leaves(field.name, field) if path not in left_out]


def _uuids_of(rows: pa.Table) -> Iterator[tuple[str, int | None, pa.ExtensionArray]]:
    """Path, field id and values of each UUID column."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if isinstance(field.type, pa.UuidType) or pa.types.is_struct(field.type):
            yield from _uuids(field.name, field, column.combine_chunks())


def _uuids(
    path: str, field: pa.Field, column: pa.Array
) -> Iterator[tuple[str, int | None, pa.ExtensionArray]]:
    if isinstance(field.type, pa.UuidType):
        yield path, field_id_of(field), column
    elif pa.types.is_struct(field.type):
        for child, values in zip(field.type, column.flatten(), strict=True):
            yield from _uuids(f"{path}.{child.name}", child, values)


def _leaves(path: str, field: pa.Field) -> Iterator[str]:
    kind = field.type
    if pa.types.is_struct(kind):
        for child in kind:
            yield from _leaves(f"{path}.{child.name}", child)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_field)
        yield from _leaves(f"{path}.key_value.value", kind.item_field)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_field)
    else:
        yield path
