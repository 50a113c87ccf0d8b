"""Whether a schema, a partition spec and a sort order fit each other and the format version."""

from __future__ import annotations

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.types import NestedField, UnknownType

from lakehouse.errors import InvalidPartitionSpecError, InvalidSchemaError
from lakehouse.spec.schema.iceberg_types import child_fields, fields_by_id, is_partitionable


def parents_by_id(schema: Schema) -> dict[int, NestedField]:
    """The enclosing field of every nested field, by id; top-level columns have none."""
    parents: dict[int, NestedField] = {}
    pending = list(schema.fields)
    while pending:
        parent = pending.pop()
        for child in child_fields(parent.field_type):
            parents[child.field_id] = parent
            pending.append(child)
    return parents


def check_schema_for_version(schema: Schema, format_version: int) -> None:
    """Raise InvalidSchemaError for types and defaults that the format version does not have."""
    for field in fields_by_id(schema.as_struct()).values():
        needed = field.field_type.minimum_format_version()
        if needed > format_version:
            raise InvalidSchemaError(
                f"Column {field.name!r} of type {field.field_type} needs format version {needed}; "
                f"the table is v{format_version}."
            )
        if format_version < 3 and field.initial_default is not None:
            raise InvalidSchemaError(
                f"Column {field.name!r} has an initial default, which needs format version 3; the "
                f"table is v{format_version}."
            )
        if isinstance(field.field_type, UnknownType) and field.required:
            raise InvalidSchemaError(f"Column {field.name!r} of type unknown must be optional.")


def check_spec(spec: PartitionSpec, schema: Schema) -> None:
    """Raise InvalidPartitionSpecError unless all source columns exist and names are unique.

    Void fields and fields with unknown transforms may have lost their column.
    """
    parents = parents_by_id(schema)
    by_id = fields_by_id(schema.as_struct())
    names: set[str] = set()
    for field in spec.fields:
        if field.name in names:
            raise InvalidPartitionSpecError(
                f"Two partition fields are named {field.name!r}: rename one."
            )
        names.add(field.name)
        if isinstance(field.transform, (VoidTransform, UnknownTransform)):
            continue
        source = by_id.get(field.source_id)
        if source is None:
            raise InvalidPartitionSpecError(
                f"Partition field {field.name!r}: no column has its source id {field.source_id}."
            )
        _check_source(f"Partition field {field.name!r}", source, parents)
        if not is_partitionable(source.field_type) or not field.transform.can_transform(
            source.field_type
        ):
            raise InvalidPartitionSpecError(
                f"Partition field {field.name!r}: {field.transform} does not apply to "
                f"{source.name!r} ({source.field_type})."
            )


def check_sort_order(order: SortOrder, schema: Schema) -> None:
    """Raise InvalidPartitionSpecError unless every field of the order fits the schema."""
    parents = parents_by_id(schema)
    by_id = fields_by_id(schema.as_struct())
    for field in order.fields:
        if isinstance(field.transform, UnknownTransform):
            continue
        source = by_id.get(field.source_id)
        if source is None:
            raise InvalidPartitionSpecError(
                f"Sort order {order.order_id}: there is no source column {field.source_id}."
            )
        _check_source(f"Sort order {order.order_id}", source, parents)
        if not is_partitionable(source.field_type) or not field.transform.can_transform(
            source.field_type
        ):
            raise InvalidPartitionSpecError(
                f"Sort order {order.order_id}: {field.transform} does not apply to {source.name!r} "
                f"of type {source.field_type}."
            )


def _check_source(what: str, source: NestedField, parents: dict[int, NestedField]) -> None:
    parent = parents.get(source.field_id)
    while parent is not None:
        if not parent.field_type.is_struct:
            raise InvalidPartitionSpecError(
                f"{what}: {source.name!r} is inside a list or map ({parent.name!r})."
            )
        parent = parents.get(parent.field_id)
