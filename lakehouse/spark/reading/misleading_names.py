"""Columns whose names mislead Spark's Parquet reader in some file of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, NestedField, StructType

from lakehouse.spec.metadata.table_metadata import TableMetadata


def misleading_columns(schema: Schema, metadata: TableMetadata) -> set[str]:
    """Top-level columns that need another name in the reader, and take no pushed filters.

    The reader finds columns by id, but it checks their types and skips row groups by name, and by
    the file's own statistics and dictionaries. It would fail or lose rows

    - in a file where the name belongs to another column. A name is safe when no other schema of the
      table gives it, or one below it, to another id; when schemas were removed from the metadata
      nobody can know, and no name is;
    - of floating point columns: to Spark NaN is above every number and -0.0 equals 0.0, to the
      file's statistics and dictionaries they are not.

    Planning has skipped whole files already.
    """
    known = {schema.schema_id for schema in metadata.schemas}
    if known != set(range(max(known) + 1)):
        return {field.name for field in schema.fields}
    owners: dict[str, set[int]] = {}
    for known_schema in metadata.schemas:
        for path, nested in _paths(known_schema.fields, ""):
            owners.setdefault(path, set()).add(nested.field_id)
    return {
        field.name
        for field in schema.fields
        if any(
            owners.get(path, {nested.field_id}) != {nested.field_id}
            or isinstance(nested.field_type, FloatType | DoubleType)
            for path, nested in _paths([field], "")
        )
    }


def _paths(fields: Iterable[NestedField], prefix: str) -> Iterator[tuple[str, NestedField]]:
    for field in fields:
        # Spark compares names without regard to case
        path = f"{prefix}{field.name.lower()}"
        yield path, field
        if isinstance(field.field_type, StructType):
            yield from _paths(field.field_type.fields, f"{path}\0")
