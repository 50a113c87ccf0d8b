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
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from lakehouse.errors import InvalidInputError
from lakehouse.spark.spark_types import to_spark_schema

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
_INTEGERS = {exp.DataType.Type[kind] for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT")}
_CAST_LAST = _INTEGERS | {exp.DataType.Type.DOUBLE, exp.DataType.Type.DECIMAL}

_CLAUSES = (
    exp.Select, exp.Subquery, exp.CTE, exp.With, exp.From, exp.Join, exp.Table, exp.TableAlias,
    exp.Where, exp.Group, exp.Having, exp.Alias, exp.Distinct, exp.Union, exp.Ordered, exp.Order,
    exp.WithinGroup, exp.Window,
)  # fmt: skip
_TEXT_FUNCTIONS = (
    exp.Like, exp.Length, exp.Concat, exp.Substring, exp.Left, exp.Right, exp.Replace,
    exp.StartsWith, exp.EndsWith, exp.Upper, exp.Lower, exp.Contains, exp.StrPosition,
)  # fmt: skip
_PARTS_OF_TIMES: Mapping[type[exp.Expr], str] = {
    exp.Year: "YEAR", exp.Quarter: "QUARTER", exp.Month: "MONTH", exp.Day: "DAY",
    exp.DayOfMonth: "DAY", exp.Hour: "HOUR", exp.Minute: "MINUTE",
}  # fmt: skip
_TRUNCATED_TO = ("YEAR", "MONTH", "WEEK", "DAY", "HOUR")
_OVER_PARTITIONS = exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max
_OVER_ORDERED = exp.RowNumber, exp.Rank, exp.DenseRank, exp.Lag, exp.Lead, exp.FirstValue
_ELSEWHERE: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.Upper: ("datafusion", "polars"),
    exp.Lower: ("datafusion", "polars"),
    **dict.fromkeys(
        (
            exp.Contains, exp.StrPosition, exp.TimestampTrunc, exp.DateDiff, exp.LastDay,
            exp.LogicalAnd, exp.LogicalOr, *_OVER_ORDERED,
        ),
        ("duckdb", "datafusion"),
    ),
}  # fmt: skip
"""What was tried, and gave Spark's rows and types on some engines alone."""
_TERMS = (
    exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Star, exp.Var,
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.In,
    exp.Between, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Add, exp.Sub, exp.Mul, exp.Neg,
    exp.Abs, exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Trim, exp.Cast,
    exp.DataType, exp.DataTypeParam, exp.TsOrDsToDate, exp.TimestampAdd, exp.GroupConcat, exp.DPipe,
    exp.Floor, exp.Ceil, exp.Greatest, exp.Least, exp.Extract, exp.Interval, exp.NullSafeEQ,
    exp.NullSafeNEQ, exp.Nvl2, exp.BitwiseAnd, *_PARTS_OF_TIMES,
    *(function for function in _TEXT_FUNCTIONS if function not in _ELSEWHERE),
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
    tree = typed(query, inputs, what)
    for node in tree.walk():
        problem = _typed_problem(node, engine)
        if problem:
            raise _refused(node, engine, what, problem)
    for node in list(tree.find_all(*_REWRITES)):
        _rewrite(node, engine)
    for select in _outermost(tree):
        select.set("expressions", [_as_in_spark(expression) for expression in select.expressions])
    # what it warns of was tried: engines here have UTC as their zone
    return tree.sql(dialect=_WRITTEN[engine], unsupported_level=ErrorLevel.IGNORE)


def typed(
    query: exp.Query, inputs: Mapping[str, Schema], what: str, grammar: str = "spark"
) -> exp.Query:
    """The query with the table of each column, and with types.

    Args:
        query: parsed.
        inputs: schemas of the tables, by their names in the query.
        what: names the query in messages.
        grammar: sqlglot's name of the dialect.

    Raises:
        InvalidInputError: a column is not there.
    """
    dialect = f"{grammar}, normalization_strategy=case_sensitive"
    columns: dict[str, object] = {
        name: {
            field.name: exp.DataType.build(field.dataType.simpleString(), dialect="spark")
            for field in to_spark_schema(schema).fields
        }
        for name, schema in inputs.items()
    }
    try:
        tree = qualify(query.copy(), schema=columns, dialect=dialect)
        return annotate_types(tree, schema=columns, dialect=dialect)
    except SqlglotError as error:
        raise InvalidInputError(f"the SQL of {what}: {str(error).splitlines()[0]}") from error


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
        if not isinstance(node, _CLAUSES + _TERMS) and engine not in _ELSEWHERE.get(type(node), ()):
            raise _refused(node, engine, what)
        if isinstance(node, exp.Order) and not isinstance(node.parent, _ORDERED):
            raise _refused(node, engine, what, "rows of a table have no order")
        problem = _argument_problem(node, engine)
        if problem is not None:
            raise _refused(node, engine, what, problem)


def _argument_problem(node: exp.Expr, engine: str) -> str | None:
    """What of a node was not tried, whatever the types; None where all was."""
    unit = node.text("unit").upper()
    if isinstance(node, exp.Window):
        tried = _OVER_PARTITIONS if engine == "polars" else _OVER_PARTITIONS + _OVER_ORDERED
        ordered = engine == "polars" and node.args.get("order")
        return "" if ordered or not isinstance(node.this, tried) else None
    if isinstance(node, exp.Trim):
        return "" if node.expression or node.args.get("position") else None
    if isinstance(node, (exp.TimestampAdd, exp.Interval)):
        length = _is_number(node.this, 0) or isinstance(node, exp.TimestampAdd)
        return None if length and unit in _UNIT_MICROSECONDS else "months differ in length"
    if isinstance(node, exp.Like):
        pattern = node.expression
        plain = isinstance(pattern, exp.Literal) and pattern.is_string and "\\" not in pattern.name
        return None if plain else "patterns are written out, without a backslash"
    if isinstance(node, exp.Replace):
        searched = node.expression
        return None if isinstance(searched, exp.Literal) and searched.name else "of no text"
    if isinstance(node, exp.Substring):
        start, most = node.args.get("start"), node.args.get("length")
        tried_here = _is_number(start, 1) and (most is None or _is_number(most, 0))
        return None if tried_here else "places are numbers from 1"
    if isinstance(node, (exp.Left, exp.Right)):
        return None if _is_number(node.expression, 0) else "lengths are numbers"
    if isinstance(node, exp.StrPosition):
        return "" if node.args.get("position") or node.args.get("occurrence") else None
    if isinstance(node, exp.TimestampTrunc):
        return None if unit in _TRUNCATED_TO else ""
    if isinstance(node, exp.DateDiff):
        return None if unit in ("", "DAY") else ""
    if isinstance(node, exp.Extract):
        return None if node.name.upper() in _PARTS_OF_TIMES.values() else ""
    return None


def _is_number(node: object, least: int) -> bool:
    return isinstance(node, exp.Literal) and node.name.isdecimal() and int(node.name) >= least


def _refused(node: exp.Expr, engine: str, what: str, why: str = "") -> InvalidInputError:
    return InvalidInputError(
        f"the SQL of {what}: {node.sql('spark')[:_SHOWN]} of Spark is not known to mean the same "
        f"in {engine}{f' ({why})' if why else ''}: say it otherwise, run it on spark, or write the "
        f"query in {engine}'s own SQL, with dialect={engine!r}"
    )


def _typed_problem(node: exp.Expr, engine: str) -> str:
    """Why a node means something else for the types that it has; empty when it does not."""
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Avg, exp.Neg)) and any(
        _is_decimal(expression) for expression in node.iter_expressions()
    ):
        return "digits of decimals differ"
    if isinstance(node, (exp.Case, exp.Coalesce, exp.Nullif, exp.Union)):
        kinds = {
            result.type.sql()
            for result in _results(node)
            if result.type is not None and not result.is_type(exp.DataType.Type.NULL)
        }
        if len(kinds) > 1 and any("DECIMAL" in kind for kind in kinds):
            return "digits of decimals differ"
    if isinstance(node, (exp.Floor, exp.Ceil)) and (
        node.args.get("decimals") or _is_decimal(node.this)
    ):
        return "digits of decimals differ"
    if isinstance(node, (exp.Greatest, exp.Least)) and any(
        isinstance(expression, exp.Expr)
        and (_is_decimal(expression) or expression.is_type(*exp.DataType.FLOAT_TYPES))
        for expression in node.iter_expressions()
    ):
        return "NaN and digits differ"
    if isinstance(node, _TEXT_FUNCTIONS) and not all(
        expression.is_type(*exp.DataType.TEXT_TYPES)
        for expression in (node.expressions if isinstance(node, exp.Concat) else [node.this])
    ):
        return "of what is no text"
    if isinstance(node, exp.TimestampTrunc) and not node.this.is_type(
        "timestamptz", "timestampltz"
    ):
        return "only times with a zone are the same"
    if isinstance(node, exp.Interval) and (
        not isinstance(node.parent, (exp.Add, exp.Sub)) or node.parent.this.is_type("date")
    ):
        return "a date becomes a time"
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
        if to.is_type(*_INTEGERS) and not given.is_type(*_INTEGERS, "boolean"):
            return "fractions and spaces are treated differently"
        if to.is_type("decimal") and not (given.is_type(*_INTEGERS) or _is_decimal(given)):
            return "fractions are rounded differently"
        if to.is_type("decimal") and _is_decimal(given) and _digits(to)[1] < _digits(given.type)[1]:
            return "fractions are rounded differently"
        if to.is_type(*exp.DataType.TEXT_TYPES) and not given.is_type(
            *_INTEGERS, *exp.DataType.TEXT_TYPES, "boolean"
        ):
            return "values are written differently"
        if to.is_type(*exp.DataType.TEMPORAL_TYPES) and not given.is_type(
            *exp.DataType.TEMPORAL_TYPES
        ):
            return "text is read differently"
    return ""


def _results(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Case):
        branches = [branch.args["true"] for branch in node.args.get("ifs", [])]
        return [*branches, *filter(None, [node.args.get("default")])]
    if isinstance(node, exp.Union):
        return []
    return [
        expression for expression in node.iter_expressions() if isinstance(expression, exp.Expr)
    ]


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
    given = [] if kind is None else [int(expression.name) for expression in kind.expressions]
    return (given[0] if given else 10), (given[1] if len(given) > 1 else 0)


_REWRITES: tuple[type[exp.Expr], ...] = (
    exp.CountIf, exp.Sum, exp.Trim, exp.RowNumber, exp.TimestampAdd, exp.NullSafeEQ,
    exp.NullSafeNEQ, *_PARTS_OF_TIMES,
)  # fmt: skip


def _rewrite(node: exp.Expr, engine: str) -> None:
    """Replace a node by what means the same to the engine, with Spark's type."""
    if isinstance(node, exp.CountIf):
        counted = exp.Case().when(node.this.copy(), exp.Literal.number(1))
        _replace(node, exp.Count(this=counted), "BIGINT")
    elif isinstance(node, exp.Sum):
        distinct = isinstance(node.this, exp.Distinct)
        value = node.this.expressions[0] if distinct else node.this
        if _is_decimal(value):
            precision, scale = _digits(value.type)
            _replace(node, node.copy(), f"DECIMAL({min(precision + 10, _DECIMAL_DIGITS)}, {scale})")
        elif node.is_type(*_INTEGERS):
            # Polars adds up 32 bits in 32 bits
            wide = exp.cast(value.copy(), "BIGINT")
            summed = exp.Sum(this=exp.Distinct(expressions=[wide]) if distinct else wide)
            _replace(node, summed, "BIGINT")
    elif isinstance(node, exp.Trim):
        # Polars removes all white space unless the call names the characters
        node.set("expression", exp.Literal.string(" "))
        node.set("position", "BOTH")
    elif isinstance(node, (exp.NullSafeEQ, exp.NullSafeNEQ)):
        # DataFusion reads `a IS NOT DISTINCT FROM b AND c` as a comparison with `b AND c`
        node.replace(exp.Paren(this=node.copy(), _type=node.type))
    elif isinstance(node, exp.RowNumber):
        _replace(node, node.copy(), "INT")
    elif type(node) in _PARTS_OF_TIMES:
        part = exp.Var(this=_PARTS_OF_TIMES[type(node)])
        _replace(node, exp.Extract(this=part, expression=node.this.copy()), "INT")
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
    window = node.parent
    if isinstance(window, exp.Window) and window.this is node:  # what is cast is its result
        whole = window.copy()
        whole.set("this", by)
        node, by = window, whole
    converted = exp.cast(by, kind, dialect="spark")
    converted.type = exp.DataType.build(kind, dialect="spark")
    node.replace(converted)


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
