"""Frames of a Spark Connect session over one snapshot of a table: planned once, read by paths.

Spark cannot ask back, so files are chosen once, when the frame is made, by the scan's own filter;
filters of later queries prune row groups only. Give the filter to the scan:
`table.scan(where=...).to_spark(spark)`.
"""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, UUIDType
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField
from pyspark.sql.types import StructType as SparkStruct

from lakehouse.data.deletes.delete_loader import POSITION_DELETE_SCHEMA
from lakehouse.errors import UnsupportedTypeError
from lakehouse.scan.planner import plan_scan, snapshot_of
from lakehouse.scan.reports.listeners import ENGINE_SPARK, Listeners
from lakehouse.scan.scan_request import ScanRequest
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
from lakehouse.spark.reading.misleading_names import misleading_columns
from lakehouse.spark.spark_types import quoted, to_spark_schema
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
    unsafe = misleading_columns(schema, request.metadata)
    aliases = {one.field_id: _alias(one) for one in schema.fields if one.name in unsafe}
    physical = _physical_schema(schema, aliases)
    plan = plan_scan(request, storage)
    parquet_only(name, plan)
    listeners.planned(name, plan.report, engine=ENGINE_SPARK)
    deletes = deletes_of(snapshot_of(request), request.metadata, storage)
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
    if not aliases and not any(_holds_uuid(field.field_type) for field in schema.fields):
        return physical
    columns: list[Column] = []
    for field in schema.fields:
        column = F.col(quoted(aliases.get(field.field_id, field.name)))
        if isinstance(field.field_type, UUIDType):
            column = _uuid_text(column)
        elif _holds_uuid(field.field_type):
            raise UnsupportedTypeError(
                f"column {field.name!r} holds a uuid inside a struct, list or map, which Spark "
                "cannot show: select other columns",
                column=field.name,
            )
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


def _holds_uuid(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_uuid(field.field_type) for field in kind.fields)
    if isinstance(kind, ListType):
        return _holds_uuid(kind.element_type)
    if isinstance(kind, MapType):
        return _holds_uuid(kind.key_type) or _holds_uuid(kind.value_type)
    return isinstance(kind, UUIDType)
