"""Filters as users write them: text or pyiceberg expressions."""

from __future__ import annotations

from functools import lru_cache

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyparsing import ParseBaseException

from lakehouse.errors import InvalidExpressionError


def parse_where(where: str | BooleanExpression | None) -> BooleanExpression:
    """An unbound expression; None and blank text are AlwaysTrue.

    Raises:
        InvalidExpressionError: the text does not parse; the message shows the text and where it broke.
    """
    if where is None:
        return AlwaysTrue()
    if isinstance(where, BooleanExpression):
        return where
    if not isinstance(where, str):
        raise InvalidExpressionError(
            f"a filter is text or a pyiceberg expression, not {type(where).__name__}"
        )
    return _parsed(where) if where.strip() else AlwaysTrue()


@lru_cache(maxsize=512)
def _parsed(where: str) -> BooleanExpression:
    """Expressions are immutable, and one text is parsed several times a query: when it is planned, bound and read."""
    try:
        return parse(where)
    except ParseBaseException as error:
        raise InvalidExpressionError(
            f"cannot parse filter {where!r} at column {error.column}: {error.msg}", where=where
        ) from error
    except (ValueError, TypeError, RecursionError, ArithmeticError) as error:
        raise InvalidExpressionError(
            f"cannot parse filter {where!r}: {error}", where=where
        ) from error
