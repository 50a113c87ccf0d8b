"""Frames of a Spark Connect session over one snapshot of a table: planned once, read by paths.

Spark cannot ask back, so files are chosen once, when the frame is made, by the scan's own filter;
filters of later queries prune row groups only. Give the filter to the scan:
`table.scan(where=...).to_spark(spark)`.
"""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, UUIDType
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField
from pyspark.sql.types import StructType as SparkStruct

from lakehouse.data.deletes.delete_loader import POSITION_DELETE_SCHEMA
from lakehouse.errors import UnsupportedTypeError
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.scan.reports.listeners import ENGINE_SPARK, Listeners
from lakehouse.spark.connect.deleted_positions import (
    deleted_positions,
    deletes_of,
    files_with_positions,
    has_equality_deletes,
    untouched_files,
    without_deleted,
)
from lakehouse.spark.connect.path_reader import read_paths, refuse_equality_deletes
from lakehouse.spark.reading.file_answer import parquet_only, sized
from lakehouse.spark.reading.table_facts import misleading_columns
from lakehouse.spark.spark_types import for_workers, quoted, to_spark_schema
from lakehouse.storage.storage_protocol import Storage


def read_remotely(
    spark: SparkSession,
    name: str,
    request: ScanRequest,
    schema: Schema,
    storage: Storage,
    listeners: Listeners,
) -> DataFrame:
    """Every row of the files that the scan's filter leaves, with the columns of `schema`.

    Raises:
        UnsupportedFeatureError: equality deletes, a file that is not Parquet, a location that Spark
            cannot reach.
        UnsupportedTypeError: a column that Spark cannot show.
    """
    beyond = for_workers(schema)
    if beyond:
        raise UnsupportedTypeError(
            f"column {beyond[0]!r} of {name} holds what Spark's own Parquet reader does not give: "
            "nanoseconds, a uuid inside a column, or a default of rows that are older. Select "
            "other columns, or read the table in a session that has its catalog",
            column=beyond[0],
        )
    unsafe = misleading_columns(schema, request.metadata)
    aliases = {field.field_id: _alias(field) for field in schema.fields if field.name in unsafe}
    physical = _physical_schema(schema, aliases)
    plan = plan_scan(request, storage)
    parquet_only(name, plan)
    listeners.planned(name, plan.report, engine=ENGINE_SPARK)
    deletes = deletes_of(request.snapshot, request.metadata, storage)
    frame = read_paths(
        spark, name, untouched_files(plan) if deletes else plan.locations(), physical
    )
    if deletes.positions or deletes.vectors:
        position_schema = to_spark_schema(POSITION_DELETE_SCHEMA)
        positions = deleted_positions(
            spark,
            deletes,
            storage,
            lambda files: read_paths(spark, name, sized(files), position_schema),
        )
        touched = read_paths(spark, name, files_with_positions(plan), physical)
        frame = frame.union(without_deleted(touched, positions))
    refuse_equality_deletes(name, [task for task in plan.tasks if has_equality_deletes(task)])
    return _shown(frame, schema, aliases)


def _alias(field: NestedField) -> str:
    return f"_lakehouse_column_{field.field_id}"


def _physical_schema(schema: Schema, aliases: dict[int, str]) -> SparkStruct:
    spark_schema = to_spark_schema(schema)
    return SparkStruct(
        [
            StructField(
                aliases.get(field.field_id, field.name),
                shown.dataType,
                shown.nullable,
                shown.metadata,
            )
            for field, shown in zip(schema.fields, spark_schema.fields, strict=True)
        ]
    )


def _shown(physical: DataFrame, schema: Schema, aliases: dict[int, str]) -> DataFrame:
    """The columns under the names and types that users know."""
    if not aliases and not any(isinstance(field.field_type, UUIDType) for field in schema.fields):
        return physical
    columns: list[Column] = []
    for field in schema.fields:
        column = F.col(quoted(aliases.get(field.field_id, field.name)))
        if isinstance(field.field_type, UUIDType):
            column = _uuid_text(column)
        columns.append(column.alias(field.name))
    return physical.select(*columns)


def _uuid_text(column: Column) -> Column:
    digits = F.lower(F.hex(column))
    parts = [
        F.substring(digits, start, length)
        for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    ]
    dash = F.lit("-")
    return F.concat(parts[0], dash, parts[1], dash, parts[2], dash, parts[3], dash, parts[4])
