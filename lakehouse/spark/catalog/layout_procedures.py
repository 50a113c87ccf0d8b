"""Procedures that change partition fields, the order of rows and identifier fields.

They are for the statements that Iceberg's extension of Spark's grammar has (`ALTER TABLE ... ADD
PARTITION FIELD`, `WRITE ORDERED BY`, `SET IDENTIFIER FIELDS`). Spark's transforms are plural:
`days(ts)` is Iceberg's `day(ts)`.
"""

from __future__ import annotations

import re

from lakehouse.errors import InvalidInputError
from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.evolution.update_sort_order import UpdateSortOrder
from lakehouse.spark.catalog.procedure import Call, Procedure, Rows
from lakehouse.spec.metadata.table_updates import Changes
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table.table import Table

_UNITS = re.compile(r"^(year|month|day|hour)s(?=\()", re.IGNORECASE)
_TURNED = re.compile(r"^(bucket|truncate)\(\s*([^\d\s][^,]*?)\s*,\s*(\d+)\s*\)", re.IGNORECASE)


def iceberg_term(text: str) -> str:
    """The term in Iceberg's words; `truncate(name, 3)` is `truncate(3, name)`."""
    return _TURNED.sub(r"\1(\3, \2)", _UNITS.sub(r"\1", text))


_BETWEEN_TERMS = re.compile(r",(?![^(]*\))")


def _add_partition_field(call: Call) -> Rows:
    """Partition new rows by one more term: ALTER TABLE ... ADD PARTITION FIELD."""
    table = call.table()
    update = UpdatePartitionSpec(table.metadata)
    update.add(iceberg_term(call.arguments["field"]), call.get("name"))
    return _partitioned(table, update)


def _drop_partition_field(call: Call) -> Rows:
    """Partition new rows by one term less: ALTER TABLE ... DROP PARTITION FIELD."""
    table = call.table()
    update = UpdatePartitionSpec(table.metadata)
    update.remove(iceberg_term(call.arguments["field"]))
    return _partitioned(table, update)


def _replace_partition_field(call: Call) -> Rows:
    """Partition new rows by another term: ALTER TABLE ... REPLACE PARTITION FIELD ... WITH."""
    table = call.table()
    update = UpdatePartitionSpec(table.metadata)
    old, new = (iceberg_term(call.arguments[argument]) for argument in ("field", "by"))
    update.replace(old, new, call.get("name"))
    return _partitioned(table, update)


def _partitioned(table: Table, update: UpdatePartitionSpec) -> Rows:
    _commit(table, update.changes())
    schema = table.schema()
    return [
        (field.name, str(field.transform), schema.find_column_name(field.source_id))
        for field in table.spec().fields
    ]


def _write_ordered_by(call: Call) -> Rows:
    """Order rows over all tasks: ALTER TABLE ... WRITE ORDERED BY."""
    return _ordered(call, "range")


def _write_locally_ordered_by(call: Call) -> Rows:
    """Order rows within each task: ALTER TABLE ... WRITE LOCALLY ORDERED BY."""
    return _ordered(call, "none")


def _write_distributed_by_partition(call: Call) -> Rows:
    """Bring rows of a partition together: ALTER TABLE ... WRITE DISTRIBUTED BY PARTITION."""
    return _ordered(call, "hash")


def _write_unordered(call: Call) -> Rows:
    """Leave rows as they come: ALTER TABLE ... WRITE UNORDERED."""
    return _ordered(call, "none")


def _ordered(call: Call, mode: str) -> Rows:
    table, order = call.table(), call.get("sort_order") or ""
    terms = [iceberg_term(term.strip()) for term in _BETWEEN_TERMS.split(order) if term.strip()]
    changes = UpdateSortOrder(table.metadata).set(*terms).changes()
    _commit(table, changes, {TableProperties.distribution_mode.name: mode})
    schema = table.schema()
    return [
        (
            str(field.transform),
            schema.find_column_name(field.source_id),
            field.direction.value,
            field.null_order.value,
        )
        for field in table.metadata.sort_order().fields
    ]


def _set_identifier_fields(call: Call) -> Rows:
    """Say which columns identify a row: ALTER TABLE ... SET IDENTIFIER FIELDS."""
    return _identified(call.table(), call.arguments["fields"])


def _drop_identifier_fields(call: Call) -> Rows:
    """Columns identify no row any more: ALTER TABLE ... DROP IDENTIFIER FIELDS."""
    table, dropped = call.table(), call.arguments["fields"]
    known = table.schema().identifier_field_names()
    unknown = [column for column in dropped if column not in known]
    if unknown:
        raise InvalidInputError(
            f"{table.name}: {unknown[0]} is no identifier field; these are "
            f"{', '.join(sorted(known)) or 'none'}",
            table=table.name,
        )
    return _identified(table, sorted(known.difference(dropped)))


def _identified(table: Table, names: list[str]) -> Rows:
    _commit(table, UpdateSchema(table.metadata).set_identifier_fields(*names).changes())
    return [(name,) for name in sorted(table.schema().identifier_field_names())]


def _commit(table: Table, changes: Changes, properties: dict[str, str] | None = None) -> None:
    transaction = table.transaction()
    if changes.updates:
        transaction.update(changes.updates, changes.requirements)
    if properties:
        transaction.set_properties(properties)
    if transaction.operations:
        table.move_to(transaction.commit().version)


_TABLE = {"table": "STRING"}
_FIELD = {**_TABLE, "field": "STRING"}
_FIELDS = {**_TABLE, "fields": "ARRAY<STRING>"}
_SPEC = {"name": "STRING", "transform": "STRING", "column": "STRING"}
_ORDER = {
    "transform": "STRING",
    "column": "STRING",
    "direction": "STRING",
    "null_order": "STRING",
}
_SORTED = {"sort_order": "STRING"}
_IDENTIFIERS = {"field": "STRING"}
PROCEDURES = (
    Procedure("add_partition_field", _FIELD, {"name": "STRING"}, _SPEC, _add_partition_field),
    Procedure("drop_partition_field", _FIELD, {}, _SPEC, _drop_partition_field),
    Procedure(
        "replace_partition_field",
        {**_FIELD, "by": "STRING"},
        {"name": "STRING"},
        _SPEC,
        _replace_partition_field,
    ),
    Procedure("write_ordered_by", {**_TABLE, **_SORTED}, {}, _ORDER, _write_ordered_by),
    Procedure(
        "write_locally_ordered_by", {**_TABLE, **_SORTED}, {}, _ORDER, _write_locally_ordered_by
    ),
    Procedure(
        "write_distributed_by_partition", _TABLE, _SORTED, _ORDER, _write_distributed_by_partition
    ),
    Procedure("write_unordered", _TABLE, {}, _ORDER, _write_unordered),
    Procedure("set_identifier_fields", _FIELDS, {}, _IDENTIFIERS, _set_identifier_fields),
    Procedure("drop_identifier_fields", _FIELDS, {}, _IDENTIFIERS, _drop_identifier_fields),
)
