"""Conditions that a procedure is given as text, which choose files."""

from __future__ import annotations

import json

from py4j.protocol import Py4JJavaError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.schema import Schema
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from lakehouse.errors import InvalidInputError, UnsupportedTypeError
from lakehouse.spark.jvm.java_objects import java_object
from lakehouse.spark.reading.catalyst_filters import files_condition
from lakehouse.spark.spark_types import shown_schema
from lakehouse.table.table import Table

_POSSIBLE = (
    "possible are comparisons of a column with a constant, IN, BETWEEN, IS NULL, IS NOT NULL and "
    "LIKE 'start%', of a timestamp also as a date or by date_trunc, and AND, OR and NOT of them"
)


def stated_condition(spark: SparkSession, table: Table, text: str) -> BooleanExpression:
    """What Spark makes of a condition in SQL about the rows of a table.

    Spark's parser and analyser read it, by the session's settings: names, literals, casts and time
    zone mean what they mean in `SELECT ... WHERE`.

    Returns:
        An unbound expression over the names of the table's columns, true of every row that the
        condition is true of; it may be true of more (a session's time zone moves a day).

    Raises:
        InvalidInputError: Spark cannot read it, or a part of it cannot choose files; the message
            names the table, the part and what is possible.
    """
    schema = _of_spark(table.schema())
    where = f"where => {text!r} of {table.name}"
    try:
        parts = java_object(spark, "PythonSide").condition(
            spark._jsparkSession, shown_schema(schema).json(), table.identifier.name, text
        )
    except (PySparkException, Py4JJavaError) as error:
        raise InvalidInputError(f"{where}: {_reason(error)}", table=table.name) from error
    result: BooleanExpression = AlwaysTrue()
    for part in json.loads(parts):
        condition = files_condition(part["filters"], schema)
        if condition is None:
            raise InvalidInputError(
                f"{where}: files cannot be chosen by {part['sql']}; {_POSSIBLE}", table=table.name
            )
        result = And(result, condition)
    return result


def _of_spark(schema: Schema) -> Schema:
    """The columns of types that Spark has."""
    fields = []
    for field in schema.fields:
        try:
            shown_schema(Schema(field))
        except UnsupportedTypeError:
            continue
        fields.append(field)
    return Schema(*fields, schema_id=schema.schema_id)


def _reason(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        return f"{error.java_exception.getMessage()}; {_POSSIBLE}"
    text = str(error).partition("\n\nJVM stacktrace")[0]
    return text if isinstance(error, AnalysisException) else f"{text}; {_POSSIBLE}"
