"""What JVM tasks need to write files (`WriteOrder.java`), and what the JVM cannot write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyiceberg import transforms as t
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyspark.sql import SparkSession

from lakehouse.data.statistics.column_metrics import MetricsMode, metrics_modes
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.data.writing.parquet_writer import ParquetOptions
from lakehouse.errors import InvalidSchemaError
from lakehouse.expressions.filter_binding import field_path
from lakehouse.spark.hadoop_locations import hadoop_reads, spark_location
from lakehouse.spark.jvm.failures import marked
from lakehouse.spark.spark_types import is_foreign, shown_schema, to_spark_schema
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.local import LocalStorage
from lakehouse.storage.location import local_path, parse
from lakehouse.storage.object_store import ObjectStorage
from lakehouse.storage.storage_protocol import Storage

_MOST_OPEN_FILES = 64
_CODECS = {
    "zstd": "ZSTD",
    "snappy": "SNAPPY",
    "gzip": "GZIP",
    "lz4": "LZ4_RAW",
    "none": "UNCOMPRESSED",
}
_FLOATING = (ice.FloatType, ice.DoubleType)
_TYPES: Mapping[type[ice.IcebergType], str] = {
    ice.BooleanType: "boolean",
    ice.IntegerType: "int",
    ice.LongType: "long",
    ice.FloatType: "float",
    ice.DoubleType: "double",
    ice.DateType: "date",
    ice.TimeType: "time",
    ice.TimestampType: "timestamp",
    ice.TimestamptzType: "timestamp",
    ice.StringType: "string",
    ice.DecimalType: "decimal",
    ice.BinaryType: "binary",
    ice.FixedType: "fixed",
    ice.UUIDType: "uuid",
}
_UNITS: Mapping[type[t.Transform[Any, Any]], str] = {
    t.YearTransform: "year",
    t.MonthTransform: "month",
    t.DayTransform: "day",
    t.HourTransform: "hour",
}


def obstacle(spark: SparkSession, request: WriteRequest, storage: Storage) -> str | None:
    """What keeps the JVM from writing a table's files, in words; None when nothing does."""
    if not _jvm_reaches(spark, request.location, storage):
        return "the session's JVM has no file system for the location"
    if TableProperties(request.properties).object_storage:
        return "files lie in folders named by a hash"
    options = ParquetOptions.from_properties(request.properties)
    if options.codec not in _CODECS or (options.level is not None and options.codec != "zstd"):
        return f"Spark's Parquet has no {options.codec} codec with such a level"
    foreign = [field.name for field in request.schema.fields if is_foreign(field.field_type)]
    return f"Spark's Parquet cannot write {', '.join(foreign)}" if foreign else None


def _jvm_reaches(spark: SparkSession, location: str, storage: Storage) -> bool:
    if isinstance(storage, LocalStorage):
        return storage.on_this_disk
    return isinstance(storage, ObjectStorage) and hadoop_reads(spark, location, storage)


def folder_of(location: str) -> str:
    """A table's folder for the JVM: a path of a local disk, else Hadoop's location."""
    local = parse(location).is_local
    return (local_path(location) if local else spark_location(location)).rstrip("/")


def write_order(
    request: WriteRequest, *, nullable: Sequence[bool] | None = None, grouped: bool = False
) -> dict[str, Any]:
    """Facts for `WriteOrder.java`.

    Args:
        request: a table without an `obstacle`; its schema is that of the rows, column for column.
        nullable: of the rows' columns, where they are known to be null or not; None where Spark has
            looked after it.
        grouped: whether rows come partition by partition, in an order that must be kept.
    """
    schema, properties = request.schema, TableProperties(request.properties)
    options = ParquetOptions.from_properties(request.properties)
    settings: dict[str, object] = {
        "parquet.block.size": options.row_group_bytes,
        "parquet.page.size": options.page_bytes,
        "parquet.dictionary.page.size": options.dictionary_bytes,
        "parquet.block.row.count.limit": options.row_group_rows,
        "parquet.page.row.count.limit": options.page_rows,
        "parquet.writer.version": f"PARQUET_{options.page_version}_0",
        "parquet.bloom.filter.max.bytes": options.bloom_bytes,
        **{f"parquet.enable.dictionary#{column}": "false" for column in options.plain},
        **{f"parquet.column.statistics.enabled#{column}": "false" for column in options.unmeasured},
    }
    for name, (false_positives, distinct) in options.bloom_filters.items():
        settings[f"parquet.bloom.filter.enabled#{name}"] = "true"
        settings[f"parquet.bloom.filter.fpp#{name}"] = false_positives
        if distinct is not None:
            settings[f"parquet.bloom.filter.expected.ndv#{name}"] = distinct
    if options.level is not None:
        settings["parquet.compression.codec.zstd.level"] = options.level
    required = [
        (position, field)
        for position, field in enumerate(schema.fields)
        if nullable is not None and field.required and nullable[position]
    ]
    flat, nested = floating_fields(request)
    return {
        "folder": folder_of(request.location),
        "name": request.write_id,
        "schemaJson": to_spark_schema(schema).json(),
        "shownJson": shown_schema(schema).json(),
        "codec": _CODECS[options.codec],
        "targetBytes": properties.target_file_size_bytes,
        "bufferBytes": properties.write_buffer_bytes,
        "maxOpenFiles": _MOST_OPEN_FILES,
        "grouped": grouped,
        "ids": dict(_inner_ids(schema.as_struct(), ())),
        "fixed": dict(_fixed(schema.as_struct(), ())),
        "settings": {name: str(value) for name, value in settings.items()},
        "fields": [_key(field, schema) for field in request.spec.fields],
        "required": [position for position, _ in required],
        "requiredFailures": [marked(_null_in(field, request.table)) for _, field in required],
        "floating": [position for position, _ in flat],
        "doubles": [isinstance(field.field_type, ice.DoubleType) for _, field in flat],
        "nestedFloating": ["\0".join(path) for path, _ in nested],
        "uuids": [
            position
            for position, field in enumerate(schema.fields)
            if isinstance(field.field_type, ice.UUIDType)
        ],
    }


def floating_fields(
    request: WriteRequest,
) -> tuple[list[tuple[int, ice.NestedField]], list[tuple[tuple[str, ...], ice.NestedField]]]:
    """Columns about which the footer tells too little: by position, or path if nested."""
    modes = metrics_modes(request.schema, request.properties, request.sort_order)
    flat = [
        (position, field)
        for position, field in enumerate(request.schema.fields)
        if isinstance(field.field_type, _FLOATING) and modes[field.field_id].counts
    ]
    nested = [
        (path, field)
        for path, field in _leaves(request.schema.as_struct(), ())
        if len(path) > 1 and isinstance(field.field_type, _FLOATING) and _counted(field, modes)
    ]
    return flat, nested


def _counted(field: ice.NestedField, modes: Mapping[int, MetricsMode]) -> bool:
    return modes[field.field_id].counts


def _key(field: PartitionField, schema: Schema) -> dict[str, Any]:
    """A partition field as `WriteOrder.Field`; without a path it is null in every row."""
    names = field_path(schema, field.source_id)
    if names is None or isinstance(field.transform, t.VoidTransform):
        return {"name": field.name, "path": [], "type": "int", "transform": "void"}
    kind = schema.find_type(field.source_id)
    entry: dict[str, Any] = {
        "name": field.name,
        "path": _ordinals(schema.as_struct(), names),
        "type": _TYPES[type(kind)],
        "transform": _UNITS.get(type(field.transform), "identity"),
    }
    if isinstance(kind, ice.DecimalType):
        entry |= {"precision": kind.precision, "scale": kind.scale}
    if isinstance(field.transform, t.BucketTransform):
        entry |= {"transform": "bucket", "width": field.transform.num_buckets}
    elif isinstance(field.transform, t.TruncateTransform):
        entry |= {"transform": "truncate", "width": field.transform.width}
    return entry


def _ordinals(struct: ice.StructType, names: Sequence[str]) -> list[int]:
    position = [field.name for field in struct.fields].index(names[0])
    kind = struct.fields[position].field_type
    below = _ordinals(kind, names[1:]) if isinstance(kind, ice.StructType) and names[1:] else []
    return [position, *below]


def _children(
    kind: ice.IcebergType,
) -> list[tuple[tuple[str, ...], ice.NestedField]]:
    """Fields directly inside a type, by their paths in Parquet."""
    if isinstance(kind, ice.StructType):
        return [((field.name,), field) for field in kind.fields]
    if isinstance(kind, ice.ListType):
        return [(("list", "element"), kind.element_field)]
    if isinstance(kind, ice.MapType):
        return [(("key_value", "key"), kind.key_field), (("key_value", "value"), kind.value_field)]
    return []


def _leaves(
    kind: ice.IcebergType, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], ice.NestedField]]:
    for names, field in _children(kind):
        if field.field_type.is_primitive:
            yield (*path, *names), field
        else:
            yield from _leaves(field.field_type, (*path, *names))


def _inner_ids(kind: ice.IcebergType, path: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Field ids of list elements, map keys and values, which Spark's schema has no place for."""
    for names, field in _children(kind):
        if not isinstance(kind, ice.StructType):
            yield "\0".join((*path, *names)), field.field_id
        yield from _inner_ids(field.field_type, (*path, *names))


def _fixed(kind: ice.IcebergType, path: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    for names, field in _leaves(kind, path):
        if isinstance(field.field_type, ice.FixedType):
            yield "\0".join(names), len(field.field_type)
        elif isinstance(field.field_type, ice.UUIDType):
            yield "\0".join(names), -16


def _null_in(field: ice.NestedField, table: str) -> InvalidSchemaError:
    return InvalidSchemaError(
        f"column {field.name!r} of table {table} is required but null in a row of the frame",
        table=table,
        column=field.name,
    )
