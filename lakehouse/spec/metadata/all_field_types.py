"""The types of all fields a table ever had."""

from __future__ import annotations

from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.field_types import FieldTypes, field_types


def types_of(metadata: TableMetadata) -> FieldTypes:
    """`field_types` over all schemas of a table, the current one last, whose types win."""
    older = sorted(
        (one for one in metadata.schemas if one.schema_id != metadata.current_schema_id),
        key=lambda one: one.schema_id,
    )
    return field_types(metadata.schema(), *older)
