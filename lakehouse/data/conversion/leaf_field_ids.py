"""Field ids of the leaf columns of a Parquet file."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

FIELD_ID = b"PARQUET:field_id"


def field_id_of(field: pa.Field) -> int | None:
    """The field id in an Arrow field's metadata, as the Parquet reader puts it there."""
    text = (field.metadata or {}).get(FIELD_ID)
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
