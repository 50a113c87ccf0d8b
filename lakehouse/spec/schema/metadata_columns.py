"""Columns that every table has beside its own (spec: Reserved Field IDs, Row Lineage)."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, IntegerType, LongType, NestedField, StringType

ROW_ID = "_row_id"
LAST_UPDATED = "_last_updated_sequence_number"

METADATA_COLUMNS: Mapping[str, NestedField] = {
    one.name: one
    for one in (
        NestedField(2147483646, "_file", StringType(), required=True),
        NestedField(2147483645, "_pos", LongType(), required=True),
        NestedField(2147483644, "_deleted", BooleanType(), required=True),
        NestedField(2147483643, "_spec_id", IntegerType(), required=True),
        NestedField(2147483540, ROW_ID, LongType(), required=False),
        NestedField(2147483539, LAST_UPDATED, LongType(), required=False),
    )
}


def with_lineage(schema: Schema, format_version: int) -> Schema:
    """From v3 on the schema with the row lineage columns (spec: Row Lineage).

    A row that moves into another file keeps their values. They are known by their ids: where the
    table has a column of such a name, theirs ends in the id.
    """
    if format_version < 3:
        return schema
    taken = {field.name for field in schema.fields}
    lineage = [
        NestedField(
            one.field_id,
            f"{one.name}_{one.field_id}" if one.name in taken else one.name,
            one.field_type,
            required=False,
        )
        for one in (METADATA_COLUMNS[ROW_ID], METADATA_COLUMNS[LAST_UPDATED])
    ]
    return Schema(
        *schema.fields,
        *lineage,
        schema_id=schema.schema_id,
        identifier_field_ids=schema.identifier_field_ids,
    )
