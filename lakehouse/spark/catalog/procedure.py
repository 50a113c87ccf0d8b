"""What a procedure is: parameters and columns as Spark types them, and what it does."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.schema import Schema
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from lakehouse.errors import InvalidInputError, UnsupportedFeatureError, UnsupportedTypeError
from lakehouse.lake import Lakehouse
from lakehouse.spark.jvm.java_objects import java_object
from lakehouse.spark.reading.catalyst_filters import files_condition
from lakehouse.spark.spark_types import shown_schema
from lakehouse.table.table import Table

Rows = Iterable[Sequence[Any]]
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Call:
    """One call of a procedure.

    Attributes:
        lake: the lakehouse.
        spark: the session that calls.
        catalog: the lakehouse's name there.
        arguments: by name; what the call leaves out is not among them.
    """

    lake: Lakehouse
    spark: SparkSession
    catalog: str
    arguments: Mapping[str, Any]

    def table(self, argument: str = "table") -> Table:
        """The table that an argument names: `raw.events`, or `lake.raw.events`.

        Raises NoSuchTableError.
        """
        return self.lake.load_table(self.name(argument))

    def name(self, argument: str = "table") -> str:
        """The name of a table of this lakehouse."""
        given: str = self.arguments[argument].replace("`", "")
        within = given.removeprefix(f"{self.catalog}.")
        return within if within != given and "." in within else given

    def get(self, name: str, default: Any = None) -> Any:
        """An argument that may be left out."""
        return self.arguments.get(name, default)

    def time(self, name: str) -> dt.datetime | None:
        """A point in time; None where it is left out. Raises InvalidInputError."""
        micros = self.arguments.get(name)
        try:
            return None if micros is None else _EPOCH + dt.timedelta(microseconds=micros)
        except OverflowError as error:
            raise InvalidInputError(
                f"{name} is {micros} microseconds since 1970: times are of the years 1 to 9999"
            ) from error

    def where(self) -> BooleanExpression | None:
        """The argument `where`, which Spark reads as it reads the `WHERE` of a query.

        Raises InvalidInputError.
        """
        given: str | None = self.arguments.get("where")
        return None if given is None else stated_condition(self.spark, self.table(), given)

    def options(self) -> dict[str, str]:
        """The argument `options` as a dictionary."""
        return dict(self.arguments.get("options") or {})


def number_of(option: str, text: str, kind: Callable[[str], Any] = int) -> Any:
    """The number that an option is. Raises InvalidInputError for another text."""
    try:
        return kind(text)
    except ValueError as error:
        raise InvalidInputError(f"option {option} is a number, not {text!r}") from error


@dataclass(frozen=True)
class Procedure:
    """One procedure that `CALL` runs.

    Attributes:
        name: in the namespace `system`.
        required: names and Spark types of arguments that every call gives.
        optional: of those that it may leave out.
        returns: names and Spark types of the columns of what it returns.
        run: gives the rows.
        refused: Spark type of arguments that Iceberg's procedure has and this one does not honour,
            and why.
    """

    name: str
    required: Mapping[str, str]
    optional: Mapping[str, str]
    returns: Mapping[str, str]
    run: Callable[[Call], Rows]
    refused: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """The first line of what `run` says of itself."""
        return (self.run.__doc__ or "").strip().splitlines()[0]

    def facts(self) -> dict[str, Any]:
        """For `LakeProcedure.java`."""
        refused = {name: kind for name, (kind, _) in self.refused.items()}
        parameters = [
            {"name": name, "type": kind, "required": given is self.required}
            for given in (self.required, self.optional, refused)
            for name, kind in given.items()
        ]
        return {
            "name": self.name,
            "description": self.description,
            "parameters": parameters,
            "returns": ", ".join(f"`{name}` {kind}" for name, kind in self.returns.items()),
        }

    def rows(self, call: Call) -> list[list[Any]]:
        """Do it.

        Raises InvalidInputError for null as a required argument, or in an array or a map, and
        UnsupportedFeatureError for an argument that is refused, unless it is null or false.
        """
        for name, (_, why) in self.refused.items():
            if call.get(name) not in (None, False):
                raise UnsupportedFeatureError(f"CALL system.{self.name}: no {name} here: {why}")
        missing = [argument for argument in self.required if call.arguments.get(argument) is None]
        if missing:
            raise InvalidInputError(f"CALL system.{self.name}: {missing[0]} must not be null")
        for name, given in call.arguments.items():
            values = given.values() if isinstance(given, Mapping) else given
            if not isinstance(given, str) and isinstance(values, Iterable) and None in values:
                raise InvalidInputError(f"CALL system.{self.name}: {name} must not hold null")
        return [list(row) for row in self.run(call)]


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
    for column in schema.fields:
        try:
            shown_schema(Schema(column))
        except UnsupportedTypeError:
            continue
        fields.append(column)
    return Schema(*fields, schema_id=schema.schema_id)


def _reason(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        return f"{error.java_exception.getMessage()}; {_POSSIBLE}"
    text = str(error).partition("\n\nJVM stacktrace")[0]
    return text if isinstance(error, AnalysisException) else f"{text}; {_POSSIBLE}"
