"""Spark DataFrames over one snapshot of a table; the scan's filter is a condition of Spark SQL."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakehouse.errors import UnsupportedFeatureError
from lakehouse.expressions.bound_filter import TRUE, Bound, Computed, Leaf, Op, columns, fold
from lakehouse.expressions.filter_binding import bind, refuse_metadata_columns
from lakehouse.expressions.filter_text import describe
from lakehouse.scan.planner import ScanRequest, project_schema
from lakehouse.scan.reports.listeners import Listeners
from lakehouse.spark.connect.path_reader import is_remote
from lakehouse.spark.connect.remote_frame import read_remotely
from lakehouse.spark.hadoop_locations import hadoop_reads
from lakehouse.spark.jvm.java_objects import java_object
from lakehouse.spark.reading.table_answers import TableAnswers
from lakehouse.spark.spark_types import quoted, shown_schema, sql_literal
from lakehouse.storage.storage_protocol import Storage


def read(
    spark: SparkSession,
    name: str,
    request: ScanRequest,
    storage: Storage,
    listeners: Listeners | None = None,
) -> DataFrame:
    """A scan's rows; each query over the frame is planned again, with its own filters.

    The version and snapshot are those of the request, whatever is committed later; `listeners` get
    a report of every plan.

    Raises:
        NoSuchSnapshotError: the snapshot does not exist.
        InvalidExpressionError: the scan's filter does not bind.
        InvalidSchemaError: `select` names no column.
        UnsupportedTypeError: a column is of a type that Spark cannot read.
        UnsupportedFeatureError: a location that Spark cannot reach, or what a
            Spark Connect session cannot read (see `connect.remote_frame`).
    """
    listeners = listeners or Listeners()
    schema = request.schema
    where = bind(request.where, schema, case_sensitive=request.case_sensitive)
    refuse_metadata_columns(where, "a frame of Spark")
    needed = needed_columns(schema, request, where)
    if is_remote(spark):
        frame = read_remotely(spark, name, request, needed, storage, listeners)
    else:
        shown_schema(needed)  # what cannot be read is refused before a query asks for it
        answers = TableAnswers(
            lambda: spark,
            name,
            request,
            storage,
            listeners,
            by_workers=not hadoop_reads(spark, request.metadata.location, storage),
            schema=needed,
        )
        java = java_object(spark, "PythonSide")
        frame = DataFrame(java.frame(spark._jsparkSession, answers), spark)
    if where != TRUE:
        frame = frame.where(to_condition(where))
    if request.select is None:
        return frame
    projected = project_schema(schema, request.select, case_sensitive=request.case_sensitive)
    return frame.select(*projected_columns(schema, projected))


def needed_columns(schema: Schema, request: ScanRequest, where: Bound) -> Schema:
    """The top-level columns of projection and filter: others may be unreadable to Spark."""
    if request.select is None:
        return schema
    projected = project_schema(schema, request.select, case_sensitive=request.case_sensitive)
    named = {field.name for field in projected.fields}
    named |= {column.path[0] for column in columns(where)}
    return Schema(
        *(field for field in schema.fields if field.name in named), schema_id=schema.schema_id
    )


def projected_columns(schema: Schema, projected: Schema) -> list[Column]:
    """The projection's columns; structs of which only some fields were selected are rebuilt."""
    whole = {field.field_id: field.field_type for field in schema.fields}
    columns = []
    for field in projected.fields:
        column = F.col(quoted(field.name))
        columns.append(
            column
            if field.field_type == whole[field.field_id]
            else _narrowed(column, field.field_type).alias(field.name)
        )
    return columns


def _narrowed(column: Column, kind: IcebergType) -> Column:
    if isinstance(kind, StructType):
        fields = [
            _narrowed(column.getField(field.name), field.field_type).alias(field.name)
            for field in kind.fields
        ]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(kind, ListType):
        element = kind.element_type
        return F.transform(column, lambda item: _narrowed(item, element))
    if isinstance(kind, MapType):
        value = kind.value_type
        return F.transform_values(column, lambda _, item: _narrowed(item, value))
    return column


_BINARY = {Op.LT: "<", Op.LTE: "<=", Op.GT: ">", Op.GTE: ">=", Op.EQ: "=", Op.NOT_EQ: "!="}


def to_condition(bound: Bound) -> Column:
    """A SQL condition true of the same rows, with nulls and NaN as Spark treats them.

    Raises:
        UnsupportedTypeError: a literal that Spark SQL cannot write.
        UnsupportedFeatureError: a function, which Spark may compute otherwise.
    """
    return F.expr(condition_text(bound))


def condition_text(bound: Bound) -> str:
    """The condition as Spark SQL text."""
    return fold(
        bound,
        _leaf,
        lambda value: "true" if value else "false",
        lambda parts: f"({' AND '.join(parts)})",
        lambda parts: f"({' OR '.join(parts)})",
        _computed,
    )


def _computed(part: Computed) -> str:
    raise UnsupportedFeatureError(
        f"Spark computes functions in filters itself: scan without {describe(part)}, "
        "and give it to where() of the frame"
    )


def _leaf(leaf: Leaf) -> str:
    column = quoted(*leaf.path)
    if leaf.op in (Op.IS_NULL, Op.NOT_NULL):
        return f"({column} IS {'NOT ' if leaf.op is Op.NOT_NULL else ''}NULL)"
    if leaf.op in (Op.IS_NAN, Op.NOT_NAN):
        return (
            f"({'NOT ' if leaf.op is Op.NOT_NAN else ''}isnan({column}) AND {column} IS NOT NULL)"
        )
    if leaf.op in (Op.IN, Op.NOT_IN):
        values = ", ".join(_literal(leaf, value) for value in leaf.value)
        return f"({column} {'NOT ' if leaf.op is Op.NOT_IN else ''}IN ({values}))"
    if leaf.op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH):
        return (
            f"({'NOT ' if leaf.op is Op.NOT_STARTS_WITH else ''}startswith({column}, "
            f"{_literal(leaf, leaf.value)}))"
        )
    return f"({column} {_BINARY[leaf.op]} {_literal(leaf, leaf.value)})"


def _literal(leaf: Leaf, value: object) -> str:
    return sql_literal(leaf.type, value)
