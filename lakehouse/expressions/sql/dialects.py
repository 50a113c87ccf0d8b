"""SELECT statements in the dialects of several engines, translated by sqlglot."""

from __future__ import annotations

import sqlglot
from sqlglot import exp

from lakehouse.errors import InvalidViewError


def translated(sql: str, read: str, write: str) -> str:
    """The statement in another dialect.

    >>> translated("SELECT `a b` FROM t", "spark", "duckdb")
    'SELECT "a b" FROM t'

    Raises InvalidViewError where sqlglot does not know a dialect or cannot express the statement.
    """
    try:
        found = sqlglot.transpile(
            sql, read=read, write=write, unsupported_level=sqlglot.ErrorLevel.RAISE
        )
    except (sqlglot.errors.SqlglotError, ValueError) as error:
        raise InvalidViewError(
            f"SQL of {read} cannot be translated to {write}: {str(error).splitlines()[0]}"
        ) from error
    if len(found) != 1:
        raise InvalidViewError(f"SQL of {read} is {len(found)} statements, not one.")
    return found[0]


def output_names(sql: str, dialect: str) -> list[str] | None:
    """Names of the columns that a SELECT gives; None where they cannot be told from its text.

    >>> output_names("SELECT a, b + 1 AS c FROM t", "spark")
    ['a', 'c']
    """
    try:
        tree = sqlglot.parse_one(sql, read=dialect)
    except (sqlglot.errors.SqlglotError, ValueError):
        return None
    names = tree.named_selects if isinstance(tree, exp.Query) else []
    return None if not names or "" in names or "*" in names else list(names)
