"""The types of all fields a table ever had, worked out once for the versions of a table."""

from __future__ import annotations

from lakehouse.kept_by_bytes import MadeOnce
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.field_types import FieldTypes, field_types

_FIELD_BYTES = 2048
"""What a field takes, its schema included."""
TYPES_BYTES_MAX = 32 * 1024 * 1024
TYPES: MadeOnce[FieldTypes] = MadeOnce(TYPES_BYTES_MAX)


def types_of(metadata: TableMetadata) -> FieldTypes:
    """`field_types` over all schemas of a table, the current one last, whose types win.

    The same object as long as it is kept: not to be changed.
    """
    return TYPES.of(
        (metadata.schemas,),
        metadata.current_schema_id,
        lambda: _found(metadata),
        lambda found: _FIELD_BYTES * (1 + len(found)) * len(metadata.schemas),
    )


def _found(metadata: TableMetadata) -> FieldTypes:
    older = sorted(
        (one for one in metadata.schemas if one.schema_id != metadata.current_schema_id),
        key=lambda one: one.schema_id,
    )
    return field_types(metadata.schema(), *older)
