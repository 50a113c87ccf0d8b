"""ALTER TABLE: every change that Spark's grammar has, in one commit; and defaults of columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType
from pyspark.sql import SparkSession

from lakehouse.errors import UnsupportedFeatureError, UnsupportedTypeError
from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.spark.spark_types import to_iceberg_type
from lakehouse.spec.metadata.table_updates import Changes
from lakehouse.spec.schema.schema_json import default_from_json
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table.table import Table
from lakehouse.transaction.transaction import Transaction

_SCHEMA_CHANGES = frozenset(
    {
        "AddColumn",
        "RenameColumn",
        "DeleteColumn",
        "UpdateColumnType",
        "UpdateColumnNullability",
        "UpdateColumnComment",
        "UpdateColumnPosition",
        "UpdateColumnDefaultValue",
    }
)


def alter_table(table: Table, changes: Sequence[Mapping[str, Any]], spark: SparkSession) -> None:
    """Apply changes (`TableChanges.java`) to a table, all or none. Raises as `altered` does."""
    transaction = altered(table, changes, spark)
    if transaction.operations:
        table.move_to(transaction.commit().version)


def altered(table: Table, changes: Sequence[Mapping[str, Any]], spark: SparkSession) -> Transaction:
    """A transaction that applies changes (`TableChanges.java`) to a table.

    Raises:
        InvalidSchemaError: a change of columns that the format does not have.
        UnsupportedFeatureError: a change that this library does not make.
    """
    unknown = [
        change["change"]
        for change in changes
        if change["change"] not in _SCHEMA_CHANGES | {"SetProperty", "RemoveProperty"}
    ]
    if unknown:
        raise UnsupportedFeatureError(
            f"ALTER TABLE {table.name}: Iceberg tables have no {unknown[0]}; their partition "
            "fields and sort order are changed by CALL system.add_partition_field and "
            "system.write_ordered_by"
        )
    transaction = table.transaction()
    properties = {
        change["property"]: change["value"]
        for change in changes
        if change["change"] == "SetProperty"
    }
    changed = changed_columns(table, changes, spark)
    if changed.updates:
        transaction.update(changed.updates, changed.requirements)
    terms = TableProperties(properties).partition_by
    if terms:
        partitioned = UpdatePartitionSpec(transaction.metadata).set(*terms).changes()
        transaction.update(partitioned.updates, () if changed else partitioned.requirements)
    if properties:
        transaction.set_properties(_checked_properties(properties))
    removed = [change["property"] for change in changes if change["change"] == "RemoveProperty"]
    if removed:
        transaction.remove_properties(removed)
    return transaction


def changed_columns(
    table: Table, changes: Sequence[Mapping[str, Any]], spark: SparkSession
) -> Changes:
    """What changes of columns make of the schema. Raises InvalidSchemaError."""
    update = UpdateSchema(table.metadata)
    for change in changes:
        if change["change"] in _SCHEMA_CHANGES:
            _change_column(update, change, spark)
    return update.changes()


def _checked_properties(given: Mapping[str, str]) -> Mapping[str, str]:
    if "location" in given:
        raise UnsupportedFeatureError(
            "a table stays where it is: SET LOCATION would leave its files behind; use CALL "
            "system.register_table"
        )
    return given


def _change_column(update: UpdateSchema, change: Mapping[str, Any], spark: SparkSession) -> None:
    path, kind = list(change["column"]), change["change"]
    if kind == "AddColumn":
        _add(update, path, change)
    elif kind == "RenameColumn":
        update.rename_column(path, change["to"])
    elif kind == "DeleteColumn":
        if not change["if_exists"] or _exists(update, path):
            update.drop_column(path)
    elif kind == "UpdateColumnType":
        _update_type(update, path, to_iceberg_type(change["type"]))
    elif kind == "UpdateColumnNullability":
        update.update_column(path, required=not change["nullable"])
    elif kind == "UpdateColumnComment":
        update.update_column(path, doc=change["comment"] or None)
    elif kind == "UpdateColumnPosition":
        _place(update, path, change)
    else:
        _set_default(update, path, change["default"], spark)


def _update_type(update: UpdateSchema, path: list[str], kind: IcebergType) -> None:
    """Pipelines change a whole column; the format changes the fields in it, one by one."""
    before = update.schema().find_type(".".join(path))
    if isinstance(kind, ListType) and isinstance(before, ListType):
        _update_type(update, [*path, "element"], kind.element_type)
    elif isinstance(kind, MapType) and isinstance(before, MapType):
        _update_type(update, [*path, "value"], kind.value_type)
    elif isinstance(kind, StructType) and isinstance(before, StructType):
        there = {field.name for field in before.fields}
        for field in kind.fields:
            if field.name in there:
                _update_type(update, [*path, field.name], field.field_type)
            else:
                update.add_column([*path, field.name], field.field_type, doc=field.doc)
        for name in sorted(there - {field.name for field in kind.fields}):
            update.drop_column([*path, name])
    else:
        update.update_column(path, kind)


def _add(update: UpdateSchema, path: list[str], change: Mapping[str, Any]) -> None:
    kind = to_iceberg_type(change["type"])
    update.add_column(
        path,
        kind,
        doc=change["comment"],
        required=not change["nullable"],
        default=default_as_json(kind, change["default"]),
    )
    _place(update, path, change)


def _place(update: UpdateSchema, path: list[str], change: Mapping[str, Any]) -> None:
    if change.get("first"):
        update.move_first(path)
    elif change.get("after") is not None:
        update.move_after(path, [*path[:-1], change["after"]])


def _set_default(update: UpdateSchema, path: list[str], text: str, spark: SparkSession) -> None:
    """The default is an expression, which Spark computes."""
    kind = update.schema().find_type(".".join(path))
    if not text:
        update.update_column(path, default=None)
        return
    value = spark.sql(f"SELECT {text}").first()
    if value is None or value[0] is None:
        update.update_column(path, default=None)
        return
    update.update_column(path, default=default_from_json(kind, _as_json(value[0])))


def _as_json(value: Any) -> Any:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _exists(update: UpdateSchema, path: list[str]) -> bool:
    return ".".join(path) in update.schema().column_names


_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - wall-clock time


def with_defaults(schema: Schema, defaults: Mapping[str, Mapping[str, Any]]) -> Schema:
    """A new table's schema; top-level defaults become initial and write defaults."""
    if not defaults:
        return schema
    fields = []
    for field in schema.fields:
        if field.name not in defaults:
            fields.append(field)
            continue
        value = default_from_json(
            field.field_type, default_as_json(field.field_type, defaults[field.name])
        )
        fields.append(field.model_copy(update={"initial_default": value, "write_default": value}))
    return Schema(*fields, schema_id=schema.schema_id)


def default_as_json(kind: ice.IcebergType, literal: Mapping[str, Any] | None) -> Any:
    """A literal of Spark (`FilterJson.java`) as Iceberg's JSON single value (spec: Appendix D).

    Raises:
        UnsupportedTypeError: a type without a literal.
    """
    if literal is None or literal["value"] is None:
        return None
    value = literal["value"]
    if isinstance(kind, ice.BooleanType):
        return str(value) == "true"
    if isinstance(kind, ice.IntegerType | ice.LongType):
        return int(value)
    if isinstance(kind, ice.FloatType | ice.DoubleType):
        return float(value)
    if isinstance(kind, ice.DateType):
        return (dt.date(1970, 1, 1) + dt.timedelta(days=int(value))).isoformat()
    if isinstance(kind, ice.TimestampType):
        return (_EPOCH + dt.timedelta(microseconds=int(value))).isoformat()
    if isinstance(kind, ice.TimestamptzType):
        return (_EPOCH + dt.timedelta(microseconds=int(value))).isoformat() + "+00:00"
    if isinstance(kind, ice.TimeType):
        return (_EPOCH + dt.timedelta(microseconds=int(value) // 1000)).time().isoformat()
    if isinstance(
        kind, ice.StringType | ice.DecimalType | ice.BinaryType | ice.FixedType | ice.UUIDType
    ):
        return str(value)
    raise UnsupportedTypeError(f"a column of type {kind} has no default but null")
