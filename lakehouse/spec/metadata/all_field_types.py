"""The types of all fields a table ever had, worked out once for the versions of a table."""

from __future__ import annotations

from lakehouse.kept_by_bytes import MadeOnce
from lakehouse.spec.metadata.table_metadata import TableMetadata, definitions_bytes
from lakehouse.spec.schema.field_types import FieldTypes, field_types

_FIELD_BYTES = 256
_TYPES: MadeOnce[FieldTypes] = MadeOnce()


def types_of(metadata: TableMetadata) -> FieldTypes:
    """`field_types` over all schemas of a table, the current one last, whose types win.

    The same object as long as it is kept: not to be changed.
    """
    return _TYPES.of(
        (metadata.schemas,),
        metadata.current_schema_id,
        lambda: _found(metadata),
        lambda found: _FIELD_BYTES * len(found) + definitions_bytes(metadata.schemas),
    )


def _found(metadata: TableMetadata) -> FieldTypes:
    older = sorted(
        (one for one in metadata.schemas if one.schema_id != metadata.current_schema_id),
        key=lambda one: one.schema_id,
    )
    return field_types(metadata.schema(), *older)
