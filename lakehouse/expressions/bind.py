"""Binding a filter to a schema."""

from __future__ import annotations

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from lakehouse.expressions.bound import Bound


def bind(where: str | BooleanExpression | None, schema: Schema, *, case_sensitive: bool = True) -> Bound:
    """Resolve names to field ids and cast literals to the fields' types.

    Literals: ISO text for dates, times and timestamps, numbers for numbers, `datetime` values. A timestamp without zone compares
    with a `timestamptz` column as UTC; one with a zone is refused for a `timestamp` column. A number beyond the range of the column, or
    between two of its values, compares as the number it is (`int_column < 3000000000` is true, `int_column = 1.5` is false).

    Raises:
        InvalidExpressionError: unknown column, a struct, list or map compared, or a literal that cannot be cast.
    """
    raise AssertionError(where, schema, case_sensitive)
