"""The types of a table's fields, worked out once for all scans of the same schemas."""

from __future__ import annotations

from lakehouse.kept_by_bytes import MadeOnce
from lakehouse.spec.metadata.all_field_types import types_of
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.field_types import FieldTypes

_FIELD_BYTES = 2048
"""What a field takes, its schema included."""
TYPES_BYTES_MAX = 32 * 1024 * 1024
TYPES: MadeOnce[FieldTypes] = MadeOnce(TYPES_BYTES_MAX)


def known_types(metadata: TableMetadata) -> FieldTypes:
    """`types_of`, the same object as long as it is kept: not to be changed."""
    return TYPES.of(
        (metadata.schemas,),
        metadata.current_schema_id,
        lambda: types_of(metadata),
        lambda found: _FIELD_BYTES * (1 + len(found)) * len(metadata.schemas),
    )
