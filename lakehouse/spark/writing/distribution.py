"""How rows are shuffled before writing, for few partitions a task (`write.distribution-mode`).

`none` leaves rows where they are. `hash`, the default, brings the rows of a partition together;
`range` orders them by partition and sort order over the whole table. An unpartitioned table is not
shuffled by `hash`.

The keys only bring rows together; the writer computes the partition values that are stored. So a
key may be anything that is equal whenever the partition is, and it is computed by Spark's own
expressions where these can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
from pyiceberg import transforms as t
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DataType, StructType, TimestampType

from lakehouse.data.conversion.safe_casts import cast_primitive
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.expressions.filter_binding import field_path
from lakehouse.expressions.transforms.partition_transforms import transform_array
from lakehouse.spark.shown_values import stored_array
from lakehouse.spark.spark_types import quoted
from lakehouse.spec.partitioning.sort_order import NullOrder, SortDirection, SortField, SortOrder
from lakehouse.spec.table_properties import TableProperties

# Spark's `hash` starts from 42 and chains: hash(c, x) continues from hash(c). This is the int whose
# hash from 42 is 0, the seed that Iceberg's bucket hash starts from.
SEED_ZERO = -1693959553

_KEY = "_lakehouse_key_"
# decimals of which Spark can take differences without rounding
_WIDEST = 28


def distribute(frame: DataFrame, request: WriteRequest) -> DataFrame:
    """The frame shuffled as the table's `write.distribution-mode` asks.

    Raises:
        InvalidPropertyError: an unknown mode.
    """
    mode = TableProperties(request.properties).distribution_mode
    # a column that the frame leaves out has one value in every row, which orders and separates
    # nothing
    fields = usable_fields(request.spec.fields, request.schema, frame.schema)
    order_fields = [
        field for field in request.sort_order.fields if _usable(field, request.schema, frame.schema)
    ]
    if mode == "none" or (mode == "hash" and not fields):
        return frame
    keys = [transform_column(field.transform, request.schema, field.source_id) for field in fields]
    if mode == "range":
        order = keys + sort_columns(
            replace(request.sort_order, fields=tuple(order_fields)), request.schema
        )
        return frame.repartitionByRange(*order) if order else frame
    names = [f"{_KEY}{position}" for position in range(len(keys))]
    keyed = frame.withColumns(dict(zip(names, keys, strict=True)))
    return keyed.hint("rebalance", *[F.col(name) for name in names]).drop(*names)


def usable_fields(
    fields: Iterable[PartitionField], schema: Schema, given: StructType
) -> list[PartitionField]:
    """The partition fields that separate rows of the given columns."""
    return [field for field in fields if _usable(field, schema, given)]


def _usable(field: PartitionField | SortField, schema: Schema, given: StructType) -> bool:
    path = field_path(schema, field.source_id)
    if path is None or isinstance(field.transform, t.VoidTransform):
        return False
    kind: DataType = given
    for name in path:
        if not isinstance(kind, StructType) or name not in kind.names:
            return False
        kind = kind[name].dataType
    return True


def sort_columns(order: SortOrder, schema: Schema) -> list[Column]:
    """The terms of a sort order as Spark columns."""
    return [
        _directed(
            transform_column(field.transform, schema, field.source_id),
            field.direction,
            field.null_order,
        )
        for field in order.fields
    ]


def transform_column(transform: t.Transform[Any, Any], schema: Schema, source_id: int) -> Column:
    """A column that is equal for rows of equal transform value, and ordered as these are."""
    column = F.col(_path(schema, source_id))
    kind = schema.find_type(source_id)
    if isinstance(transform, t.IdentityTransform):
        return column
    native = _NATIVE.get(type(transform))
    computed = native(transform, column, kind) if native is not None else None
    return computed if computed is not None else _arrow_transform(transform, kind)(column)


def bucket_hash(column: Column, kind: ice.IcebergType) -> Column | None:
    """Iceberg's 32-bit hash by Spark's `hash`; None for types that Spark hashes otherwise."""
    if isinstance(kind, ice.IntegerType | ice.LongType):
        value = column.cast("bigint")
    elif isinstance(kind, ice.DateType):
        value = F.unix_date(column).cast("bigint")
    elif isinstance(kind, ice.TimestamptzType):
        value = F.unix_micros(column)
    else:
        return None
    # a null leaves the seed as it is
    return F.when(column.isNotNull(), F.hash(F.lit(SEED_ZERO), value))


def _bucket(transform: Any, column: Column, kind: ice.IcebergType) -> Column | None:
    hashed = bucket_hash(column, kind)
    return (
        None
        if hashed is None
        else hashed.bitwiseAND(F.lit(0x7FFFFFFF)) % F.lit(transform.num_buckets)
    )


def _truncate(transform: Any, column: Column, kind: ice.IcebergType) -> Column | None:
    if isinstance(kind, ice.StringType):
        return F.substring(column, 1, transform.width)
    if isinstance(kind, ice.IntegerType | ice.LongType):
        return F.floor(column.cast("decimal(20,0)") / F.lit(transform.width))
    if isinstance(kind, ice.DecimalType) and kind.precision <= _WIDEST:
        width = F.lit(Decimal(transform.width).scaleb(-kind.scale)).cast(
            f"decimal({max(kind.precision, 10)},{kind.scale})"
        )
        return column - F.pmod(column, width) if transform.width < 10**kind.precision else None
    return None


def _unit(
    days: Callable[[Column], Column],
) -> Callable[[Any, Column, ice.IcebergType], Column | None]:
    def key(_: Any, column: Column, kind: ice.IcebergType) -> Column | None:
        if isinstance(kind, ice.DateType | ice.TimestampType):
            return days(F.to_date(column))
        return days(utc_day(column)) if isinstance(kind, ice.TimestamptzType) else None

    return key


def _hour(_: Any, column: Column, kind: ice.IcebergType) -> Column | None:
    if isinstance(kind, ice.TimestamptzType):
        return F.floor(F.unix_seconds(column) / F.lit(3600))
    if isinstance(kind, ice.TimestampType):
        return F.unix_date(F.to_date(column)) * F.lit(24) + F.hour(column)
    return None


def utc_day(column: Column) -> Column:
    """The UTC day of an instant, whatever the session's zone."""
    return F.date_from_unix_date(F.floor(F.unix_seconds(column) / F.lit(86_400)).cast("int"))


def day_of(frame: DataFrame, name: str) -> Column:
    """The day of a column of dates or times."""
    column = F.col(quoted(name))
    is_instant = isinstance(frame.schema[name].dataType, TimestampType)
    return utc_day(column) if is_instant else F.to_date(column)


_NATIVE: dict[type[Any], Callable[[Any, Column, ice.IcebergType], Column | None]] = {
    t.BucketTransform: _bucket,
    t.TruncateTransform: _truncate,
    t.YearTransform: _unit(F.year),
    t.MonthTransform: _unit(lambda day: F.year(day) * F.lit(12) + F.month(day)),
    t.DayTransform: _unit(F.unix_date),
    t.HourTransform: _hour,
}


def _arrow_transform(
    transform: t.Transform[Any, Any], kind: ice.IcebergType
) -> Callable[[Column], Column]:
    result = "int" if isinstance(transform, t.BucketTransform) else "binary"

    def compute(values: pa.Array) -> pa.Array:
        if isinstance(kind, ice.UUIDType) and pa.types.is_string(values.type):
            values = cast_primitive(values, kind, pa.binary(16))
        transformed = transform_array(transform, stored_array(values, kind), kind)
        if result == "int" or pa.types.is_binary(transformed.type):
            return transformed
        return transformed.cast(pa.string()).cast(pa.binary())

    compute.__annotations__ = {"values": pa.Array, "return": pa.Array}
    column: Callable[[Column], Column] = cast("Any", arrow_udf)(compute, result)
    return column


def _directed(column: Column, direction: SortDirection, nulls: NullOrder) -> Column:
    first = nulls == NullOrder.NULLS_FIRST
    if direction == SortDirection.ASC:
        return column.asc_nulls_first() if first else column.asc_nulls_last()
    return column.desc_nulls_first() if first else column.desc_nulls_last()


def _path(schema: Schema, field_id: int) -> str:
    parts: list[str] = []
    fields = schema.fields
    while True:
        for field in fields:
            if field.field_id == field_id:
                return quoted(*parts, field.name)
            if isinstance(field.field_type, ice.StructType) and field_id in _ids(field.field_type):
                parts.append(field.name)
                fields = field.field_type.fields
                break
        else:
            return quoted(schema.find_field(field_id).name)


def _ids(struct: ice.StructType) -> set[int]:
    nested = (_ids(f.field_type) for f in struct.fields if isinstance(f.field_type, ice.StructType))
    return {field.field_id for field in struct.fields}.union(*nested)
