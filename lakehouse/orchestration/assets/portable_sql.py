"""A SELECT of Spark SQL for other engines, where it is known to mean the same there.

Engines of SQL agree on less than their grammars do: on the type of a sum, on which half a number is
rounded to, on what a trim removes. What is translated here is a list of constructs whose results
are compared with Spark's by tests; the rest is refused by name, and never gives other rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyiceberg.schema import Schema
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from lakehouse.errors import InvalidInputError
from lakehouse.spark.spark_types import to_spark_schema

_SPARK = "spark, normalization_strategy=case_sensitive"
_WRITTEN = {"duckdb": "duckdb", "datafusion": "postgres", "polars": "postgres"}
"""What sqlglot writes that the engine reads."""
_UNIT_MICROSECONDS = {
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
}
_SHOWN = 60
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?")
_DECIMAL_DIGITS = 38
_INTEGERS = {exp.DataType.Type[one] for one in ("TINYINT", "SMALLINT", "INT", "BIGINT")}
_CAST_LAST = _INTEGERS | {exp.DataType.Type.DOUBLE, exp.DataType.Type.DECIMAL}

_CLAUSES = (
    exp.Select, exp.Subquery, exp.CTE, exp.With, exp.From, exp.Join, exp.Table, exp.TableAlias,
    exp.Where, exp.Group, exp.Having, exp.Alias, exp.Distinct, exp.Union, exp.Ordered, exp.Order,
    exp.WithinGroup, exp.Window, exp.RowNumber,
)  # fmt: skip
_TERMS = (
    exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Star, exp.Var,
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.In,
    exp.Between, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Add, exp.Sub, exp.Mul, exp.Neg,
    exp.Abs, exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Trim, exp.Cast,
    exp.DataType, exp.DataTypeParam, exp.TsOrDsToDate, exp.TimestampAdd, exp.GroupConcat, exp.DPipe,
)  # fmt: skip
_ORDERED = exp.Window, exp.WithinGroup, exp.GroupConcat


def translated(query: exp.Query, inputs: Mapping[str, Schema], engine: str, what: str) -> str:
    """The query as an engine runs it, with Spark's types of its columns.

    Args:
        query: parsed as Spark SQL.
        inputs: schemas of the tables, by their names in the query.
        engine: `duckdb`, `datafusion` or `polars`.
        what: names the query in messages.

    Returns:
        Its text in the engine's dialect.

    Raises:
        InvalidInputError: a column is not there, or a part of the query is not known to mean the
            same in the engine.
    """
    check_portable(query, engine, what)
    columns: dict[str, object] = {
        name: {one.name: one.dataType.simpleString() for one in to_spark_schema(schema).fields}
        for name, schema in inputs.items()
    }
    try:
        tree = qualify(query.copy(), schema=columns, dialect=_SPARK)
        tree = annotate_types(tree, schema=columns, dialect=_SPARK)
    except SqlglotError as error:
        raise InvalidInputError(f"the SQL of {what}: {str(error).splitlines()[0]}") from error
    for node in tree.walk():
        problem = _typed_problem(node, engine)
        if problem:
            raise _refused(node, engine, what, problem)
    for node in list(tree.find_all(*_REWRITES)):
        _rewrite(node, engine)
    for select in _outermost(tree):
        select.set("expressions", [_as_in_spark(one) for one in select.expressions])
    return tree.sql(dialect=_WRITTEN[engine])


def check_portable(query: exp.Query, engine: str, what: str) -> None:
    """Raise InvalidInputError for a construct not known to mean the same in an engine as in Spark.

    >>> from sqlglot import parse_one
    >>> query = parse_one("SELECT round(x, 2) FROM t", read="spark")
    >>> try:
    ...     check_portable(query, "duckdb", "marts.x")
    ... except InvalidInputError as error:
    ...     print(error.message.partition(":")[2].partition(":")[0])
     ROUND(x, 2) of Spark is not known to mean the same in duckdb
    """
    for node in query.walk():
        if not isinstance(node, _CLAUSES + _TERMS):
            raise _refused(node, engine, what)
        if isinstance(node, exp.Order) and not isinstance(node.parent, _ORDERED):
            raise _refused(node, engine, what, "rows of a table have no order")
        if isinstance(node, exp.Window) and (
            engine == "polars" or not isinstance(node.this, exp.RowNumber)
        ):
            raise _refused(node, engine, what)
        if isinstance(node, exp.Trim) and (node.expression or node.args.get("position")):
            raise _refused(node, engine, what)
        if isinstance(node, exp.TimestampAdd) and node.text("unit").upper() not in (
            _UNIT_MICROSECONDS
        ):
            raise _refused(node, engine, what, "months differ in length")


def _refused(node: exp.Expr, engine: str, what: str, why: str = "") -> InvalidInputError:
    return InvalidInputError(
        f"the SQL of {what}: {node.sql('spark')[:_SHOWN]} of Spark is not known to mean the same "
        f"in {engine}{f' ({why})' if why else ''}: say it otherwise, run it on spark, or write the "
        f"query in {engine}'s own SQL, with dialect={engine!r}"
    )


def _typed_problem(node: exp.Expr, engine: str) -> str:
    """Why a node means something else for the types that it has; empty when it does not."""
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Avg, exp.Neg)) and any(
        _is_decimal(one) for one in node.iter_expressions()
    ):
        return "digits of decimals differ"
    if isinstance(node, (exp.Case, exp.Coalesce, exp.Nullif, exp.Union)):
        kinds = {
            one.type.sql()
            for one in _results(node)
            if one.type is not None and not one.is_type(exp.DataType.Type.NULL)
        }
        if len(kinds) > 1 and any("DECIMAL" in kind for kind in kinds):
            return "digits of decimals differ"
    if isinstance(node, exp.TsOrDsToDate) and not node.this.is_type(*exp.DataType.TEMPORAL_TYPES):
        return "text is read differently"
    if isinstance(node, exp.Cast):
        return _cast_problem(node, engine)
    return ""


def _cast_problem(node: exp.Cast, engine: str) -> str:
    to, given = node.to, node.this
    if engine == "polars" and to.is_type("timestamp", "timestamptz", "timestampltz"):
        return "it has no such type in SQL"
    if not _is_moment(node):
        if to.is_type(*_INTEGERS) and not given.is_type(*_INTEGERS):
            return "fractions and spaces are treated differently"
        if to.is_type("decimal") and not (given.is_type(*_INTEGERS) or _is_decimal(given)):
            return "fractions are rounded differently"
        if to.is_type("decimal") and _is_decimal(given) and _digits(to)[1] < _digits(given.type)[1]:
            return "fractions are rounded differently"
        if to.is_type(*exp.DataType.TEXT_TYPES) and not (
            given.is_type(*_INTEGERS) or given.is_type(*exp.DataType.TEXT_TYPES)
        ):
            return "values are written differently"
        if to.is_type(*exp.DataType.TEMPORAL_TYPES) and not given.is_type(
            *exp.DataType.TEMPORAL_TYPES
        ):
            return "text is read differently"
    return ""


def _results(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Case):
        branches = [one.args["true"] for one in node.args.get("ifs", [])]
        return [*branches, *filter(None, [node.args.get("default")])]
    if isinstance(node, exp.Union):
        return []
    return [one for one in node.iter_expressions() if isinstance(one, exp.Expr)]


def _is_moment(node: exp.Cast) -> bool:
    """Whether it is a date or a time written out, as all read it."""
    given = node.this
    return (
        bool(node.to.is_type(*exp.DataType.TEMPORAL_TYPES))
        and isinstance(given, exp.Literal)
        and bool(given.is_string)
        and _MOMENT.fullmatch(given.name) is not None
    )


def _is_decimal(node: object) -> bool:
    return isinstance(node, exp.Expr) and bool(node.is_type("decimal"))


def _digits(kind: exp.DataType | None) -> tuple[int, int]:
    """Precision and scale of a decimal."""
    given = [] if kind is None else [int(one.name) for one in kind.expressions]
    return (given[0] if given else 10), (given[1] if len(given) > 1 else 0)


_REWRITES = exp.CountIf, exp.Sum, exp.Trim, exp.RowNumber, exp.TimestampAdd


def _rewrite(node: exp.Expr, engine: str) -> None:
    """Replace a node by what means the same to the engine, with Spark's type."""
    if isinstance(node, exp.CountIf):
        one = exp.Case().when(node.this.copy(), exp.Literal.number(1))
        _replace(node, exp.Count(this=one), "BIGINT")
    elif isinstance(node, exp.Sum):
        if _is_decimal(node.this):
            precision, scale = _digits(node.this.type)
            _replace(node, node.copy(), f"DECIMAL({min(precision + 10, _DECIMAL_DIGITS)}, {scale})")
        elif node.is_type(*_INTEGERS):
            # Polars adds up 32 bits in 32 bits
            _replace(node, exp.Sum(this=exp.cast(node.this.copy(), "BIGINT")), "BIGINT")
    elif isinstance(node, exp.Trim):
        # Polars removes all white space unless told what
        node.set("expression", exp.Literal.string(" "))
        node.set("position", "BOTH")
    elif isinstance(node, exp.RowNumber):
        window = node.find_ancestor(exp.Window)
        if window is not None:
            _replace(window, window.copy(), "INT")
    elif engine == "datafusion":
        count = exp.cast(node.expression.copy(), "BIGINT")
        length = exp.Literal.number(_UNIT_MICROSECONDS[node.text("unit").upper()])
        added = exp.Anonymous(
            this="arrow_cast",
            expressions=[
                exp.Mul(this=count, expression=length),
                exp.Literal.string("Duration(Microsecond)"),
            ],
        )
        kind = node.this.type
        node.replace(exp.Paren(this=exp.Add(this=node.this.copy(), expression=added), _type=kind))


def _replace(node: exp.Expr, by: exp.Expr, kind: str) -> None:
    made = exp.cast(by, kind, dialect="spark")
    made.type = exp.DataType.build(kind, dialect="spark")
    node.replace(made)


def _outermost(tree: exp.Expr) -> list[exp.Select]:
    """The SELECTs whose columns are those of the result."""
    if isinstance(tree, exp.Union):
        return [*_outermost(tree.left), *_outermost(tree.right)]
    inner = tree.unnest()
    return [inner] if isinstance(inner, exp.Select) else []


def _as_in_spark(column: exp.Expr) -> exp.Expr:
    """A column of the result with the type that Spark gives it, where engines differ."""
    value = column.unalias()
    kind = value.type
    if kind is None or isinstance(value, exp.Cast) or kind.this not in _CAST_LAST:
        return column
    if kind.this == exp.DataType.Type.DECIMAL and not kind.expressions:
        return column
    return exp.alias_(exp.cast(value.copy(), kind.copy()), column.alias_or_name, quoted=True)
