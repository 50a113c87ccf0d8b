"""SELECT statements in the dialects of several engines, translated by sqlglot."""

from __future__ import annotations

import sqlglot

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
