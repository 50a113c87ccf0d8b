"""Whether a schema, a partition spec and a sort order fit each other and the format version."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.types import NestedField, UnknownType

from lakehouse.errors import InvalidPartitionSpecError, InvalidSchemaError
from lakehouse.spec.partitioning.sort_order import SortField, SortOrder
from lakehouse.spec.schema.iceberg_types import child_fields, fields_of, is_partitionable


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
    for field in fields_of(schema).values():
        needed = field.field_type.minimum_format_version()
        if needed > format_version and isinstance(field.field_type, UnknownType):
            raise InvalidSchemaError(
                f"Column {field.name!r} has no type: all its values are null. Give it one (in "
                "Arrow by a schema, in pandas and Polars by a dtype), or make the table of format "
                f"version 3, which has the type unknown; the table is v{format_version}."
            )
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
    """Raise InvalidPartitionSpecError unless all source columns exist and names tell fields apart.

    Void fields and fields with unknown transforms may have lost their column.
    """
    parents = parents_by_id(schema)
    by_id = fields_of(schema)
    names: set[str] = set()
    for field in spec.fields:
        if not field.name:
            raise InvalidPartitionSpecError("A partition field has an empty name.")
        if field.name in names:
            raise InvalidPartitionSpecError(
                f"Two partition fields are named {field.name!r}: rename one."
            )
        names.add(field.name)
        if isinstance(field.transform, (VoidTransform, UnknownTransform)):
            continue
        _check_term(f"Partition field {field.name!r}", field, by_id, parents)


def name_clashes(specs: Iterable[PartitionSpec], schema: Schema) -> list[tuple[str, int]]:
    """Partition fields with the name of a column that is not their source: name and spec id.

    Iceberg's Java opens no table that has one, in whatever spec.
    """
    names = set(schema.column_names)
    return [
        (field.name, spec.spec_id)
        for spec in specs
        for field in spec.fields
        if field.name in names and schema.find_field(field.name).field_id != field.source_id
    ]


def check_names_apart(
    specs: Iterable[PartitionSpec], schema: Schema, known: Collection[tuple[str, int]] = ()
) -> None:
    """Raise InvalidSchemaError for names that clash, except for those `known` to do so before."""
    for name, spec_id in name_clashes(specs, schema):
        if (name, spec_id) not in known:
            raise InvalidSchemaError(
                f"A column cannot be named {name!r}: so is a partition field of another column, in "
                f"partition spec {spec_id}. Engines built on Iceberg's Java, Spark and Trino among "
                "them, would not open the table. Choose another name.",
                column=name,
            )


def check_sort_order(order: SortOrder, schema: Schema) -> None:
    """Raise InvalidPartitionSpecError unless every field of the order fits the schema."""
    parents = parents_by_id(schema)
    by_id = fields_of(schema)
    for field in order.fields:
        if isinstance(field.transform, UnknownTransform):
            continue
        _check_term(f"Sort order {order.order_id}", field, by_id, parents)


def check_sources(order: SortOrder, schema: Schema) -> None:
    """Raise InvalidPartitionSpecError unless the columns of a new order exist.

    What an unknown transform makes of them is for others to know.
    """
    columns = fields_of(schema)
    for field in order.fields:
        if field.source_id not in columns:
            raise InvalidPartitionSpecError(
                f"Sort order: no column has its source id {field.source_id}."
            )


def _check_term(
    what: str,
    term: PartitionField | SortField,
    by_id: Mapping[int, NestedField],
    parents: Mapping[int, NestedField],
) -> None:
    source = by_id.get(term.source_id)
    if source is None:
        raise InvalidPartitionSpecError(f"{what}: no column has its source id {term.source_id}.")
    parent = parents.get(source.field_id)
    while parent is not None:
        if not parent.field_type.is_struct:
            raise InvalidPartitionSpecError(
                f"{what}: {source.name!r} is inside a list or map ({parent.name!r})."
            )
        parent = parents.get(parent.field_id)
    kind = source.field_type
    if not is_partitionable(kind) or not term.transform.can_transform(kind):
        raise InvalidPartitionSpecError(
            f"{what}: {term.transform} does not apply to {source.name!r} ({kind})."
        )
