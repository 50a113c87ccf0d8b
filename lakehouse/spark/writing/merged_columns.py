"""Columns that a table gets with the first rows that have them (`mergeSchema`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as sp

from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.spark.session_settings import MERGE_SCHEMA
from lakehouse.spark.spark_types import quoted, shown_schema, to_iceberg_schema
from lakehouse.spark.writing.task_files import AS_THEY_COME, row_order
from lakehouse.spec.metadata.table_updates import Changes
from lakehouse.table.table import Table
from lakehouse.transaction.operations.metadata_changes import MetadataChange

ACCEPTS_ANY = "write.spark.accept-any-schema"
_OPTIONS = ("merge-schema", "mergeschema")


def accepts_any(table: Table) -> bool:
    """Whether Spark is to leave the columns of written rows to the table."""
    return table.properties.get(ACCEPTS_ANY, "").lower() == "true"


@dataclass(frozen=True)
class GivenColumns:
    """The columns of the rows of a write to a table that accepts any.

    Attributes:
        table: the table.
        given: Spark's schema of the rows.
        changes: what the table's columns become with them, if the write asks for that.
    """

    table: Table
    given: sp.StructType
    changes: Changes

    def metadata_change(self) -> MetadataChange | None:
        """What the commit of the rows changes before; None where the table has their columns."""
        if not self.changes.updates:
            return None
        return MetadataChange(self.changes.updates, self.changes.requirements)

    def request(self) -> WriteRequest:
        """How files are written: with the new columns."""
        table, change = self.table, self.metadata_change()
        metadata = table.metadata if change is None else change.applied_to(table.metadata)
        return table.write_request(replace(table.version, metadata=metadata))

    def plan(self, request: WriteRequest) -> dict[str, Any]:
        """How rows come to tasks: as they are, where the columns that say how are not theirs."""
        order = row_order(request)
        wanted = shown_schema(request.schema)
        terms = [*order["clustering"], *(key["term"] for key in order["ordering"])]
        terms += [key["term"] for key in order["ordered_distribution"]]
        if not all(self._has(term["column"], wanted) for term in terms):
            order = {**AS_THEY_COME}
        return {**order, "wanted": wanted.json()}

    def _has(self, column: str, wanted: sp.StructType) -> bool:
        """Whether a quoted column path is given, of the type that the table has."""
        return (given := _leaf(self.given, column)) is not None and given == _leaf(wanted, column)


def _leaf(fields: sp.DataType, column: str) -> sp.DataType | None:
    """The type of a quoted path through structs."""
    for field in fields.fields if isinstance(fields, sp.StructType) else ():
        name = quoted(field.name)
        if column == name:
            return field.dataType
        if column.startswith(f"{name}."):
            return _leaf(field.dataType, column.removeprefix(f"{name}."))
    return None


def given_columns(
    table: Table, given: sp.StructType, options: Mapping[str, str], spark: SparkSession
) -> GivenColumns:
    """The columns of a write with these options.

    The option `mergeSchema` (`merge-schema`), or the session's `spark.sql.iceberg.merge-schema`,
    adds the columns that the table lacks and promotes types, also inside structs, lists and maps.

    Raises:
        InvalidSchemaError: a change of columns that the format does not have.
        UnsupportedTypeError: a new column of a type that Iceberg lacks.
    """
    by_key = {key.lower(): value for key, value in options.items()}
    wanted = next((by_key[key] for key in _OPTIONS if key in by_key), None)
    if (wanted or spark.conf.get(MERGE_SCHEMA, None) or "").lower() != "true":
        return GivenColumns(table, given, Changes())
    update = UpdateSchema(table.metadata)
    folds = spark.conf.get("spark.sql.caseSensitive") != "true"
    _Merge(update, folds=folds).fields([], shown_schema(table.schema()), given)
    return GivenColumns(table, given, update.changes())


@dataclass(frozen=True)
class _Merge:
    update: UpdateSchema
    folds: bool

    def fields(self, path: list[str], there: sp.StructType, given: sp.StructType) -> None:
        known = {self._name(field.name): field for field in there.fields}
        for field in given.fields:
            present = known.get(self._name(field.name))
            if present is None:
                column = to_iceberg_schema(sp.StructType([_optional(field)])).fields[0]
                self.update.add_column([*path, field.name], column.field_type, doc=column.doc)
            else:
                self.types([*path, present.name], present.dataType, field.dataType)

    def types(self, path: list[str], there: sp.DataType, given: sp.DataType) -> None:
        if isinstance(there, sp.StructType) and isinstance(given, sp.StructType):
            self.fields(path, there, given)
        elif isinstance(there, sp.ArrayType) and isinstance(given, sp.ArrayType):
            self.types([*path, "element"], there.elementType, given.elementType)
        elif isinstance(there, sp.MapType) and isinstance(given, sp.MapType):
            self.types([*path, "value"], there.valueType, given.valueType)
        elif _is_wider(there, given):
            wider = to_iceberg_schema(sp.StructType([sp.StructField("column", given)]))
            self.update.update_column(path, wider.fields[0].field_type)

    def _name(self, name: str) -> str:
        return name.lower() if self.folds else name


def _optional(field: sp.StructField) -> sp.StructField:
    """The column as one that may be null, as it is in the rows that are there."""
    return sp.StructField(field.name, field.dataType, True, field.metadata)


def _is_wider(there: sp.DataType, given: sp.DataType) -> bool:
    if isinstance(there, sp.DecimalType) and isinstance(given, sp.DecimalType):
        return there.scale == given.scale and there.precision < given.precision
    pair = (type(there), type(given))
    return pair in {(sp.IntegerType, sp.LongType), (sp.FloatType, sp.DoubleType)}
