"""Spark DataFrames to data files inside the JVM, by Spark's own Parquet writer.

It writes what Spark holds exactly as Iceberg wants it, which is most tables: then nothing has to be
converted, and no row crosses to a Python worker. `frame_obstacle` says what a table or frame has
that it cannot write; Python workers write everything. Both make the same files, up to encoding.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
from pyiceberg import transforms as t
from pyiceberg import types as ice
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp

from lakehouse.data.reading.parquet_reader import as_metadata_file
from lakehouse.data.statistics.column_metrics import (
    FileMetrics,
    footer_metrics,
    lower_bound,
    metrics_modes,
)
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.spark.jvm.java_objects import java_object
from lakehouse.spark.spark_types import default_literal, quoted, shown_schema
from lakehouse.spark.writing.distribution import (
    distribute,
    sort_columns,
    transform_column,
    usable_fields,
)
from lakehouse.spark.writing.write_order import floating_fields, folder_of, obstacle, write_order
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.types.arrow_types import leaf_field_ids
from lakehouse.storage.storage_protocol import Storage

_WIDENED: Mapping[type[sp.DataType], tuple[type[sp.DataType], ...]] = {
    sp.IntegerType: (sp.ByteType, sp.ShortType),
    sp.LongType: (sp.ByteType, sp.ShortType, sp.IntegerType),
    sp.DoubleType: (sp.FloatType,),
}
_SORTED = (
    ice.BooleanType,
    ice.IntegerType,
    ice.LongType,
    ice.DateType,
    ice.StringType,
    ice.TimestampType,
    ice.TimestamptzType,
)


def frame_obstacle(frame: DataFrame, request: WriteRequest, storage: Storage) -> str | None:
    """What keeps this writer from writing the frame, in words; None when nothing does."""
    if getattr(frame.sparkSession, "_jvm", None) is None:
        return "the session is a remote one"
    problem = obstacle(frame.sparkSession, request, storage)
    if problem is not None:
        return problem
    shown = shown_schema(request.schema)
    for field, target in zip(request.schema.fields, shown.fields, strict=True):
        problem = _field_obstacle(field, target, frame.schema)
        if problem is not None:
            return f"column {field.name!r} {problem}"
    for order in request.sort_order.fields:
        kind = request.schema.find_type(order.source_id)
        if not isinstance(order.transform, t.IdentityTransform) or not isinstance(kind, _SORTED):
            return (
                f"sort term {order.transform} of {kind} is not computed by Spark's own expressions"
            )
    return None


def write_in_jvm(frame: DataFrame, request: WriteRequest) -> list[DataFile]:
    """Write a frame that has no `frame_obstacle`.

    Raises:
        Py4JJavaError | PySparkException: what a task raised; `failures.failure_of` finds typed
            errors in it.
    """
    java = java_object(frame.sparkSession, "FrameWriter")
    rows = frame.select(*_columns(frame, request))
    fields = usable_fields(request.spec.fields, request.schema, rows.schema)
    columns = [
        transform_column(field.transform, request.schema, field.source_id) for field in fields
    ]
    mode = TableProperties(request.properties).distribution_mode
    if mode == "hash" and columns:
        keys = rows.select(*columns)._jdf
        rows = DataFrame(java.rebalance(rows._jdf, keys), frame.sparkSession)
    elif mode == "range":
        rows = distribute(rows, request)
    if request.sort_order.fields:
        rows = rows.sortWithinPartitions(
            *columns, *sort_columns(request.sort_order, request.schema)
        )
    nullable = [
        field.name not in frame.schema.names or frame.schema[field.name].nullable
        for field in request.schema.fields
    ]
    order = write_order(request, nullable=nullable, grouped=bool(request.sort_order.fields))
    written = java.write(rows._jdf, json.dumps(order))
    files = DescribedFiles(request)
    return [files.data_file(file) for file in written]


def _field_obstacle(
    field: ice.NestedField, target: sp.StructField, given: sp.StructType
) -> str | None:
    if field.name not in given.names:
        return (
            "has a write default inside"
            if not field.field_type.is_primitive and field.write_default is not None
            else None
        )
    source = given[field.name].dataType
    if _same(source, target.dataType) or _widens(source, target.dataType):
        return None
    return (
        f"is {source.simpleString()} in the frame and {target.dataType.simpleString()} in the table"
    )


def _same(source: sp.DataType, target: sp.DataType) -> bool:
    """Equal types, where the target may allow more nulls than there are."""
    if isinstance(source, sp.StructType) and isinstance(target, sp.StructType):
        return source.names == target.names and all(
            _same(field.dataType, other.dataType) and (other.nullable or not field.nullable)
            for field, other in zip(source.fields, target.fields, strict=True)
        )
    if isinstance(source, sp.ArrayType) and isinstance(target, sp.ArrayType):
        return _same(source.elementType, target.elementType) and (
            target.containsNull or not source.containsNull
        )
    if isinstance(source, sp.MapType) and isinstance(target, sp.MapType):
        return (
            _same(source.keyType, target.keyType)
            and _same(source.valueType, target.valueType)
            and (target.valueContainsNull or not source.valueContainsNull)
        )
    return source == target


def _widens(source: sp.DataType, target: sp.DataType) -> bool:
    if isinstance(source, sp.DecimalType) and isinstance(target, sp.DecimalType):
        return source.scale == target.scale and source.precision <= target.precision
    return type(source) in _WIDENED.get(type(target), ())


def _columns(frame: DataFrame, request: WriteRequest) -> list[Column]:
    """The table's columns out of the frame, in the table's order."""
    columns = []
    for field, target in zip(
        request.schema.fields, shown_schema(request.schema).fields, strict=True
    ):
        if field.name not in frame.schema.names:
            column = F.expr(default_literal(field)).cast(target.dataType)
        else:
            column = F.col(quoted(field.name))
            if not _same(frame.schema[field.name].dataType, target.dataType):
                column = column.cast(target.dataType)
        columns.append(column.alias(field.name))
    return columns


class DescribedFiles:
    """Data files of one write.

    Args:
        request: what the tasks wrote.
    """

    def __init__(self, request: WriteRequest) -> None:
        self._request = request
        flat, nested = floating_fields(request)
        self._floating = [field for _, field in (*flat, *nested)]
        self._keys = [
            "int"
            if field["transform"] in ("bucket", "year", "month", "day", "hour")
            else field["type"]
            for field in write_order(request)["fields"]
        ]
        self._modes = metrics_modes(request.schema, request.properties, request.sort_order)
        self._root = folder_of(request.location)
        self._location = request.location.rstrip("/")

    def data_file(self, text: str) -> DataFile:
        """The file that the JSON text of a task describes."""
        described = json.loads(text)
        footer = pq.read_metadata(BytesIO(as_metadata_file(base64.b64decode(described["footer"]))))
        measured = list(zip(self._floating, described["floating"], strict=True))
        nans = {field.field_id: counts[0] for field, counts in measured}
        metrics = footer_metrics(
            footer, leaf_field_ids(footer), self._request.schema, self._modes, nans
        )
        for field, counts in measured:
            self._bound(metrics, field, counts)
        return metrics.data_file(
            file_path=self.location(described),
            partition=tuple(
                None if value is None else _value(kind, base64.b64decode(value))
                for kind, value in zip(self._keys, described["keys"], strict=True)
            ),
            spec_id=self._request.spec.spec_id,
            file_size_in_bytes=described["size"],
            sort_order_id=self._request.sort_order.order_id,
        )

    def location(self, described: dict[str, Any]) -> str:
        """Where the file lies, as the table's metadata spells it."""
        path = base64.b64decode(described["path"]).decode()
        return self._location + path.removeprefix(self._root)

    def _bound(self, metrics: FileMetrics, field: ice.NestedField, ends: Sequence[Any]) -> None:
        """Bounds without NaN: Spark's Parquet has none for a row group with a NaN."""
        metrics.lower_bounds.pop(field.field_id, None)
        metrics.upper_bounds.pop(field.field_id, None)
        kind = field.field_type
        known = len(ends) == 3 and isinstance(kind, ice.FloatType | ice.DoubleType)
        if known and isinstance(kind, ice.PrimitiveType) and self._modes[field.field_id].bounds:
            # as in Parquet's statistics, so that a zero of either sign lies within
            metrics.lower_bounds[field.field_id] = lower_bound(float(ends[1]) or -0.0, kind, None)
            metrics.upper_bounds[field.field_id] = lower_bound(float(ends[2]) or 0.0, kind, None)


def _value(kind: str, stored: bytes) -> Any:
    if kind in ("binary", "fixed"):
        return stored
    if kind == "uuid":
        return UUID(bytes=stored)
    text = stored.decode()
    if kind == "string":
        return text
    if kind == "boolean":
        return text == "true"
    if kind == "decimal":
        return Decimal(text)
    return float(text) if kind in ("float", "double") else int(text)
