"""SELECT statements in the dialects of several engines, translated by sqlglot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehouse.errors import InvalidViewError

if TYPE_CHECKING:
    from sqlglot import exp

_LIKE_DATAFUSION = "postgres"
"""What sqlglot writes that DataFusion reads."""
_SHOWN = 60


def _sqlglot() -> Any:
    """The library, which takes long to load."""
    import sqlglot  # noqa: PLC0415

    return sqlglot


def translated(sql: str, read: str, write: str) -> str:
    """The statement in another dialect.

    >>> translated("SELECT `a b` FROM t", "spark", "duckdb")
    'SELECT "a b" FROM t'

    Raises InvalidViewError where sqlglot does not know a dialect or cannot express the statement.
    """
    sqlglot = _sqlglot()
    try:
        statements: list[str] = sqlglot.transpile(
            sql, read=read, write=write, unsupported_level=sqlglot.ErrorLevel.RAISE
        )
    except (sqlglot.errors.SqlglotError, ValueError) as error:
        raise InvalidViewError(
            f"SQL of {read} cannot be translated to {write}: {str(error).splitlines()[0]}"
        ) from error
    if len(statements) != 1:
        raise InvalidViewError(f"SQL of {read} is {len(statements)} statements, not one.")
    return statements[0]


def for_datafusion(sql: str, read: str) -> str:
    """The statement as DataFusion reads it.

    >>> for_datafusion("SELECT `a b` FROM t", "spark")
    'SELECT "a b" FROM t'

    Raises InvalidViewError where it cannot be translated, or would mean something else: DataFusion
    formats times in another way, and counts characters otherwise where a substring does not begin
    at a positive number.
    """
    statement = translated(sql, read, _LIKE_DATAFUSION)
    sqlglot = _sqlglot()
    for node in sqlglot.parse_one(sql, read=read).walk():
        if _means_something_else(node, sqlglot.exp):
            raise InvalidViewError(
                f"{node.sql(read)[:_SHOWN]} of {read} would mean something else in DataFusion."
            )
    return statement


def _means_something_else(node: exp.Expr, exp: Any) -> bool:
    if isinstance(node, exp.Substring):
        start = node.args.get("start")
        return not (isinstance(start, exp.Literal) and start.is_int and int(start.name) > 0)
    if isinstance(node, exp.Cast):
        return node.is_type(*exp.DataType.TEXT_TYPES) and not isinstance(node.this, exp.Literal)
    return isinstance(node, exp.TimeToStr | exp.ToChar)


def check_select(sql: str, dialect: str) -> None:
    """Raise InvalidViewError unless the text is one query; nothing is known of other dialects.

    >>> check_select("SELECT `a b` FROM t", "spark")
    >>> check_select("DROP TABLE t", "spark")
    Traceback (most recent call last):
    ...
    lakehouse.errors.InvalidViewError: SQL of spark is no SELECT: DROP TABLE t
    """
    sqlglot = _sqlglot()
    known = {"datafusion": _LIKE_DATAFUSION}.get(dialect.lower(), dialect.lower())
    if known not in sqlglot.Dialects.__members__.values():
        return
    try:
        statements = sqlglot.parse(sql, read=known)
    except sqlglot.errors.SqlglotError as error:
        raise InvalidViewError(
            f"SQL of {dialect} does not parse: {str(error).splitlines()[0]}"
        ) from error
    exp = sqlglot.exp
    if len(statements) != 1 or not isinstance(statements[0], exp.Query | exp.Values):
        raise InvalidViewError(f"SQL of {dialect} is no SELECT: {sql.strip()[:_SHOWN]}")


def output_names(sql: str, dialect: str) -> list[str] | None:
    """Names of the columns that a SELECT gives; None where its text does not say them.

    >>> output_names("SELECT a, b + 1 AS c FROM t", "spark")
    ['a', 'c']
    """
    sqlglot = _sqlglot()
    try:
        tree = sqlglot.parse_one(sql, read=dialect)
    except (sqlglot.errors.SqlglotError, ValueError):
        return None
    names = tree.named_selects if isinstance(tree, sqlglot.exp.Query) else []
    return None if not names or "" in names or "*" in names else list(names)
