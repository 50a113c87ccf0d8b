"""Carrying out Spark SQL statements that change tables of the lakehouse."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from lakehouse.errors import (
    InvalidExpressionError,
    InvalidInputError,
    NoSuchTableError,
    UnsupportedFeatureError,
)
from lakehouse.expressions.bind import bind
from lakehouse.expressions.bound import TRUE, Bound
from lakehouse.expressions.grammar import parsed
from lakehouse.lake import Lakehouse
from lakehouse.spark.change_statement import (
    Change,
    CreateTable,
    Delete,
    DropTable,
    Insert,
    NotHere,
    Update,
)
from lakehouse.spark.predicates import quoted
from lakehouse.spark.types import to_spark_schema
from lakehouse.table.table import Table

Query = Callable[[str, Table | None], DataFrame]
"""Runs a query; the table given is read at the version it has."""


def carry_out(change: Change, spark: SparkSession, lake: Lakehouse, query: Query) -> DataFrame:
    """Change a table, in one commit; an empty frame, as Spark gives for commands.

    Raises:
        UnsupportedFeatureError: SQL does not do this here; the message names what does.
        InvalidInputError: columns that do not fit, or a condition beyond what Iceberg can prune by.
        LakehouseError: what the table's verbs raise.
    """
    if isinstance(change, CreateTable):
        _create(change, lake, query)
    elif isinstance(change, DropTable):
        _drop(change, lake)
    elif isinstance(change, NotHere):
        raise UnsupportedFeatureError(
            f"session.sql does not do this to {_dotted(change.name)}; use {change.instead}"
        )
    else:
        table = lake.load_table(_dotted(change.name))
        if isinstance(change, Insert):
            table.append(_fitted(query(change.query, None), change, table))
        elif isinstance(change, Delete):
            table.delete(_condition(change.where, table))
        else:
            _update(change, table, query)
    return spark.createDataFrame([], StructType([]))


def _create(change: CreateTable, lake: Lakehouse, query: Query) -> None:
    name = _dotted(change.name)
    if change.if_not_exists and lake.table_exists(name):
        return
    frame = None if change.query is None else query(change.query, None)
    schema = StructType.fromDDL(change.columns or "") if frame is None else frame.schema
    table = lake.create_table(
        name,
        schema,
        partition_by=change.partition_by,
        properties=change.properties,
        location=change.location,
    )
    if frame is None:
        return
    try:
        table.append(frame)
    except BaseException:
        lake.drop_table(name, purge=True)
        raise


def _drop(change: DropTable, lake: Lakehouse) -> None:
    try:
        lake.drop_table(_dotted(change.name), purge=change.purge)
    except NoSuchTableError:
        if not change.if_exists:
            raise


def _fitted(frame: DataFrame, change: Insert, table: Table) -> DataFrame:
    """The query's columns under the names and in the types of the table."""
    types = {field.name: field.dataType for field in to_spark_schema(table.schema()).fields}
    names = _targets(frame.columns, change, list(types), table.name)
    if unknown := [name for name in names if name not in types]:
        raise InvalidInputError(
            f"INSERT INTO {table.name}: no column {', '.join(unknown)}; columns are {', '.join(types)}"
        )
    renamed = frame.toDF(*names)
    return renamed.select(*(F.col(quoted(name)).cast(types[name]).alias(name) for name in names))


def _targets(found: Sequence[str], change: Insert, columns: Sequence[str], table: str) -> list[str]:
    """Table column of each column of the query."""
    if change.by_name:
        return list(found)
    targets = list(change.columns or columns)
    if len(set(targets)) != len(targets):
        raise InvalidInputError(f"INSERT INTO {table} names a column twice: {', '.join(targets)}")
    if len(found) != len(targets):
        raise InvalidInputError(
            f"INSERT INTO {table}: the query has {len(found)} columns ({', '.join(found)}), {len(targets)} are to be filled "
            f"({', '.join(targets)}); name them: INSERT INTO {table} (column, ...)"
        )
    return targets


def _update(change: Update, table: Table, query: Query) -> None:
    condition = _condition(change.where, table)
    columns = [field.name for field in table.schema().fields]
    values = dict(change.assignments)
    if unknown := [name for name in values if name not in columns]:
        raise InvalidInputError(
            f"UPDATE {table.name}: no column {', '.join(unknown)}; columns are {', '.join(columns)}"
        )
    items = ", ".join(
        f"{values[name]} AS {quoted(name)}" if name in values else quoted(name) for name in columns
    )
    where = f" WHERE {change.where}" if change.where else ""
    changed = query(f"SELECT {items} FROM {quoted(*change.name)}{where}", table)
    table.overwrite(
        _fitted(changed, Insert(change.name, None, by_name=True, query=""), table), condition
    )


# What Spark and a filter take alike, whatever the zone of the session.
_ALIKE = frozenset(
    ["And", "Or", "Not", "Paren", "EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NullSafeEQ", "Is", "In", "Between", "Like",
     "Escape", "Neg", "Column", "Dot", "Identifier", "Literal", "Boolean", "Null"]
)  # fmt: skip


def _refuse_others(where: str) -> None:
    others = {type(node).__name__ for node in parsed(where).walk()} - _ALIKE
    if others:
        raise InvalidExpressionError(f"{', '.join(sorted(others))} is more than that")


def _condition(where: str | None, table: Table) -> Bound:
    if where is None:
        return TRUE
    try:
        _refuse_others(where)
        return bind(where, table.schema())
    except InvalidExpressionError as error:
        raise InvalidInputError(
            f"{table.name}: rows are changed by conditions that compare columns with literals, such as id = 5 and at >= "
            f"'2026-06-01T00:00:00+00:00'; {error.message}. For anything else read, change and table.overwrite(frame, where=...)",
            table=table.name,
        ) from error


def _dotted(name: tuple[str, ...]) -> str:
    return ".".join(name)
