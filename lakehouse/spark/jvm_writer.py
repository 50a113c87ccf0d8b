"""Spark DataFrames to data files without leaving the JVM: Spark's own Parquet writer in the tasks that make the rows.

It writes what Spark holds exactly as Iceberg wants it, which is most tables: then nothing has to be converted, and no row crosses
to a Python worker. `obstacle` says what a table or frame has that it cannot write; the Python workers of
`lakehouse.spark.writer` write everything. Both make the same files, up to encoding.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

import pyarrow.parquet as pq
from pyiceberg import transforms as t
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp

from lakehouse.arrow.bounds import lower_bound
from lakehouse.arrow.footer import as_metadata_file
from lakehouse.arrow.leaves import leaf_field_ids
from lakehouse.arrow.metrics import FileMetrics, MetricsMode, footer_metrics, metrics_modes
from lakehouse.arrow.parquet_file import ParquetOptions, number
from lakehouse.arrow.writer import WriteRequest
from lakehouse.errors import InvalidSchemaError, UnsupportedTypeError
from lakehouse.expressions.bind import field_path
from lakehouse.spark.distribution import distribute, sort_columns, transform_column
from lakehouse.spark.failures import marked
from lakehouse.spark.jvm import shipped_object
from lakehouse.spark.predicates import quoted
from lakehouse.spark.types import sql_literal, to_spark_schema
from lakehouse.spec.data_file import DataFile
from lakehouse.spec.properties import TableProperties
from lakehouse.storage.local import LocalStorage
from lakehouse.storage.location import local_path
from lakehouse.storage.protocol import Storage

_CLASSES = ("DataFileWriter", "NewDataFile")
_MOST_OPEN_FILES = 64
_VOID = "void"
_CODECS = {
    "zstd": "ZSTD",
    "snappy": "SNAPPY",
    "gzip": "GZIP",
    "lz4": "LZ4_RAW",
    "none": "UNCOMPRESSED",
}
_EXACT = (
    ice.BooleanType,
    ice.IntegerType,
    ice.LongType,
    ice.FloatType,
    ice.DoubleType,
    ice.DecimalType,
    ice.DateType,
    ice.TimestampType,
    ice.TimestamptzType,
    ice.StringType,
    ice.BinaryType,
)
_FLOATING = (ice.FloatType, ice.DoubleType)
_WIDENED: Mapping[type[sp.DataType], tuple[type[sp.DataType], ...]] = {
    sp.IntegerType: (sp.ByteType, sp.ShortType),
    sp.LongType: (sp.ByteType, sp.ShortType, sp.IntegerType),
    sp.DoubleType: (sp.FloatType,),
}
_BUCKETED = (ice.IntegerType, ice.LongType, ice.DateType, ice.TimestamptzType)
_CALENDAR = (ice.DateType, ice.TimestampType, ice.TimestamptzType)
_UNITS: Mapping[type[Any], tuple[str, Callable[[Column], Column]]] = {
    t.YearTransform: ("year", lambda year: year - F.lit(1970)),
    # the key counts months from the year 0 and from one
    t.MonthTransform: ("month", lambda month: month - F.lit(1970 * 12 + 1)),
    t.DayTransform: ("day", lambda day: day),
    t.HourTransform: ("hour", lambda hour: hour),
}


def obstacle(frame: DataFrame, request: WriteRequest, storage: Storage) -> str | None:
    """What keeps this writer from writing the frame, in words; None when nothing does."""
    if getattr(frame.sparkSession, "_jvm", None) is None:
        return "the session is a remote one"
    if not (isinstance(storage, LocalStorage) and storage.on_this_disk):
        return "the files are not on a local disk"
    options = ParquetOptions.from_properties(request.properties)
    if options.codec not in _CODECS or (options.level is not None and options.codec != "zstd"):
        return f"Spark's Parquet has no {options.codec} codec with such a level"
    try:
        shown = to_spark_schema(request.schema)
    except UnsupportedTypeError as error:
        return error.message
    modes = metrics_modes(request.schema, request.properties, request.sort_order)
    for field, target in zip(request.schema.fields, shown.fields, strict=True):
        problem = _field_obstacle(field, target, frame.schema, modes)
        if problem is not None:
            return f"column {field.name!r} {problem}"
    for partition in request.spec.fields:
        if _key(partition, request) is None:
            return f"partition field {partition.name!r} is not computed by Spark's own expressions"
    for order in request.sort_order.fields:
        kind = request.schema.find_type(order.source_id)
        if not _native(order.transform, kind):
            return (
                f"sort term {order.transform} of {kind} is not computed by Spark's own expressions"
            )
    return None


def write_in_jvm(frame: DataFrame, request: WriteRequest) -> list[DataFile]:
    """Write a frame that has no `obstacle`.

    Raises:
        Py4JJavaError | PySparkException: what a task raised; `lakehouse.spark.failures.failure_of` finds typed errors in it.
    """
    helper = shipped_object(frame.sparkSession, *_CLASSES)
    keys = [
        found for found in (_key(one, request) for one in request.spec.fields) if found is not None
    ]
    kinds = [kind for _, kind in keys]
    columns = [column for column, kind in keys if kind != _VOID]
    rows = frame.select(*_columns(frame, request))
    mode = TableProperties(request.properties).distribution_mode
    if mode == "hash" and columns:
        rows = DataFrame(
            helper.rebalance(rows._jdf, rows.select(*columns)._jdf), frame.sparkSession
        )
    elif mode == "range":
        rows = distribute(rows, request)
    if request.sort_order.fields:
        rows = rows.sortWithinPartitions(
            *columns, *sort_columns(request.sort_order, request.schema)
        )
    floating = _floating(request)
    order = _order(frame, request, kinds, floating)
    selected = rows.select(*columns)._jdf if columns else None
    written = helper.write(rows._jdf, selected, json.dumps(order))
    describe = _Describe(request, kinds, floating)
    return [describe(json.loads(one)) for one in written]


def _field_obstacle(
    field: ice.NestedField,
    target: sp.StructField,
    given: sp.StructType,
    modes: Mapping[int, MetricsMode],
) -> str | None:
    if not _exact(field.field_type):
        return f"is of type {field.field_type}"
    if not field.field_type.is_primitive and _counts_floats(field.field_type, modes):
        return "has floating point inside, whose NaN values are counted"
    if field.name not in given.names:
        return (
            "has a write default inside"
            if not field.field_type.is_primitive and field.write_default is not None
            else None
        )
    found = given[field.name].dataType
    if _same(found, target.dataType) or _widens(found, target.dataType):
        return None
    return (
        f"is {found.simpleString()} in the frame and {target.dataType.simpleString()} in the table"
    )


def _exact(kind: ice.IcebergType) -> bool:
    if isinstance(kind, ice.StructType):
        return all(_exact(child.field_type) for child in kind.fields)
    if isinstance(kind, ice.ListType):
        return _exact(kind.element_type)
    if isinstance(kind, ice.MapType):
        return _exact(kind.key_type) and _exact(kind.value_type)
    return isinstance(kind, _EXACT)


def _counts_floats(kind: ice.IcebergType, modes: Mapping[int, MetricsMode]) -> bool:
    if isinstance(kind, ice.StructType):
        inside = kind.fields
    elif isinstance(kind, ice.ListType):
        inside = (kind.element_field,)
    elif isinstance(kind, ice.MapType):
        inside = (kind.key_field, kind.value_field)
    else:
        return False
    return any(
        _counts_floats(one.field_type, modes)
        or (isinstance(one.field_type, _FLOATING) and modes[one.field_id].counts)
        for one in inside
    )


def _same(found: sp.DataType, target: sp.DataType) -> bool:
    """Equal types, where the target may allow more nulls than there are."""
    if isinstance(found, sp.StructType) and isinstance(target, sp.StructType):
        return found.names == target.names and all(
            _same(one.dataType, other.dataType) and (other.nullable or not one.nullable)
            for one, other in zip(found.fields, target.fields, strict=True)
        )
    if isinstance(found, sp.ArrayType) and isinstance(target, sp.ArrayType):
        return _same(found.elementType, target.elementType) and (
            target.containsNull or not found.containsNull
        )
    if isinstance(found, sp.MapType) and isinstance(target, sp.MapType):
        return (
            _same(found.keyType, target.keyType)
            and _same(found.valueType, target.valueType)
            and (target.valueContainsNull or not found.valueContainsNull)
        )
    return found == target


def _widens(found: sp.DataType, target: sp.DataType) -> bool:
    if isinstance(found, sp.DecimalType) and isinstance(target, sp.DecimalType):
        return found.scale == target.scale and found.precision <= target.precision
    return type(found) in _WIDENED.get(type(target), ())


def _native(transform: t.Transform[Any, Any], kind: ice.IcebergType) -> bool:
    """Whether Spark's expression of the transform has exactly its value (and, for sorting, its order)."""
    if isinstance(transform, t.IdentityTransform):
        return isinstance(
            kind,
            ice.BooleanType
            | ice.IntegerType
            | ice.LongType
            | ice.DateType
            | ice.StringType
            | _Instant,
        )
    if isinstance(transform, t.BucketTransform):
        return isinstance(kind, _BUCKETED)
    if isinstance(transform, t.TruncateTransform):
        return isinstance(kind, ice.StringType)
    return type(transform) in _UNITS and isinstance(kind, _CALENDAR)


_Instant = ice.TimestampType | ice.TimestamptzType


def _key(field: PartitionField, request: WriteRequest) -> tuple[Column, str] | None:
    """The partition value of a row as a column, and how it is shown; None when Spark does not compute it itself."""
    if isinstance(field.transform, t.VoidTransform):
        return F.lit(None), _VOID
    if field_path(request.schema.as_struct(), field.source_id) is None:
        return None
    kind = request.schema.find_type(field.source_id)
    if not _native(field.transform, kind) or (
        isinstance(field.transform, t.IdentityTransform) and isinstance(kind, _Instant)
    ):
        return None
    column = transform_column(field.transform, request.schema, field.source_id)
    if type(field.transform) in _UNITS:
        shown, from_key = _UNITS[type(field.transform)]
        return from_key(column), shown
    if isinstance(field.transform, t.IdentityTransform) and isinstance(kind, ice.DateType):
        return F.unix_date(column), "day"
    if isinstance(kind, ice.BooleanType):
        return column, "truth"
    is_text = isinstance(kind, ice.StringType) and not isinstance(
        field.transform, t.BucketTransform
    )
    return column, "text" if is_text else "number"


def _columns(frame: DataFrame, request: WriteRequest) -> list[Column]:
    """The table's columns out of the frame, in the table's order."""
    found = []
    shown = to_spark_schema(request.schema)
    for field, target in zip(request.schema.fields, shown.fields, strict=True):
        if field.name not in frame.schema.names:
            value = (
                F.lit(None)
                if field.write_default is None
                else F.expr(sql_literal(field.field_type, field.write_default))
            )
            column = value.cast(target.dataType)
        else:
            column = F.col(quoted(field.name))
            if not _same(frame.schema[field.name].dataType, target.dataType):
                column = column.cast(target.dataType)
        found.append(column.alias(field.name))
    return found


def _floating(request: WriteRequest) -> list[tuple[int, ice.NestedField]]:
    """Position and field of the columns of which the footer does not tell enough."""
    modes = metrics_modes(request.schema, request.properties, request.sort_order)
    return [
        (position, field)
        for position, field in enumerate(request.schema.fields)
        if isinstance(field.field_type, _FLOATING) and modes[field.field_id].counts
    ]


def _order(
    frame: DataFrame,
    request: WriteRequest,
    kinds: Sequence[str],
    floating: Sequence[tuple[int, ice.NestedField]],
) -> dict[str, Any]:
    """What the Java half is told (see `DataFileWriter.Order`)."""
    options = ParquetOptions.from_properties(request.properties)
    settings = {
        "parquet.block.size": options.row_group_bytes,
        "parquet.page.size": options.page_bytes,
        "parquet.dictionary.page.size": options.dictionary_bytes,
        "parquet.block.row.count.limit": options.row_group_rows,
    }
    if options.level is not None:
        settings["parquet.compression.codec.zstd.level"] = options.level
    required = [
        (position, field)
        for position, field in enumerate(request.schema.fields)
        if field.required and frame.schema[field.name].nullable
    ]
    return {
        "folder": local_path(request.location).rstrip("/"),
        "name": request.write_id,
        "schemaJson": to_spark_schema(request.schema).json(),
        "codec": _CODECS[options.codec],
        "targetBytes": TableProperties(request.properties).target_file_size_bytes,
        "bufferBytes": number(request.properties, "lakehouse.write.buffer-bytes", 268_435_456),
        "maxOpenFiles": _MOST_OPEN_FILES,
        "grouped": bool(request.sort_order.fields),
        "ids": dict(_inner_ids(request.schema.as_struct(), ())),
        "settings": {name: str(value) for name, value in settings.items()},
        "fieldNames": [one.name for one in request.spec.fields],
        "fieldKinds": list(kinds),
        "required": [position for position, _ in required],
        "requiredFailures": [marked(_null_in(field, request.table)) for _, field in required],
        "floating": [position for position, _ in floating],
        "doubles": [isinstance(field.field_type, ice.DoubleType) for _, field in floating],
    }


def _inner_ids(kind: ice.IcebergType, path: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Field ids of list elements, map keys and values by their paths in Parquet."""
    inside: list[tuple[tuple[str, ...], int | None, ice.IcebergType]] = []
    if isinstance(kind, ice.StructType):
        inside = [((field.name,), None, field.field_type) for field in kind.fields]
    elif isinstance(kind, ice.ListType):
        inside = [(("list", "element"), kind.element_id, kind.element_type)]
    elif isinstance(kind, ice.MapType):
        inside = [
            (("key_value", "key"), kind.key_id, kind.key_type),
            (("key_value", "value"), kind.value_id, kind.value_type),
        ]
    for names, field_id, inner in inside:
        if field_id is not None:
            yield "\0".join((*path, *names)), field_id
        yield from _inner_ids(inner, (*path, *names))


def _null_in(field: ice.NestedField, table: str) -> InvalidSchemaError:
    return InvalidSchemaError(
        f"column {field.name!r} of table {table} is required but null in a row of the frame",
        table=table,
        column=field.name,
    )


class _Describe:
    """What a task says of a file as a DataFile."""

    def __init__(
        self,
        request: WriteRequest,
        kinds: Sequence[str],
        floating: Sequence[tuple[int, ice.NestedField]],
    ) -> None:
        self._request, self._kinds, self._floating = request, kinds, floating
        self._modes = metrics_modes(request.schema, request.properties, request.sort_order)
        self._root = local_path(request.location).rstrip("/")
        self._location = request.location.rstrip("/")

    def __call__(self, told: Mapping[str, Any]) -> DataFile:
        path = base64.b64decode(told["path"]).decode()
        footer = pq.read_metadata(BytesIO(as_metadata_file(base64.b64decode(told["footer"]))))
        nans = {
            field.field_id: found[0]
            for (_, field), found in zip(self._floating, told["floating"], strict=True)
        }
        metrics = footer_metrics(
            footer, leaf_field_ids(footer), self._request.schema, self._modes, nans
        )
        for (_, field), found in zip(self._floating, told["floating"], strict=True):
            self._bound(metrics, field, found)
        return metrics.data_file(
            file_path=self._location + path.removeprefix(self._root),
            partition=self._partition(told["keys"]),
            spec_id=self._request.spec.spec_id,
            file_size_in_bytes=told["size"],
            sort_order_id=self._request.sort_order.order_id,
        )

    def _bound(self, metrics: FileMetrics, field: ice.NestedField, found: Sequence[Any]) -> None:
        """Spark's Parquet leaves out the bounds of a row group that has a NaN; these are of all other values."""
        metrics.lower_bounds.pop(field.field_id, None)
        metrics.upper_bounds.pop(field.field_id, None)
        kind = field.field_type
        if len(found) == 3 and isinstance(kind, _FLOATING) and self._modes[field.field_id].bounds:
            # as in Parquet's statistics, so that a zero of either sign lies within
            metrics.lower_bounds[field.field_id] = lower_bound(float(found[1]) or -0.0, kind, None)
            metrics.upper_bounds[field.field_id] = lower_bound(float(found[2]) or 0.0, kind, None)

    def _partition(self, keys: Sequence[str | None]) -> tuple[Any, ...]:
        left = iter(keys)
        return tuple(None if kind == _VOID else _value(kind, next(left)) for kind in self._kinds)


def _value(kind: str, encoded: str | None) -> Any:
    if encoded is None:
        return None
    text = base64.b64decode(encoded).decode()
    if kind == "text":
        return text
    return text == "true" if kind == "truth" else int(text)
