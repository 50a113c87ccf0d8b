"""A filter as an Arrow expression that is right about null and NaN."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from lakehouse.expressions.bound import Bound


def to_arrow_filter(
    where: str | BooleanExpression | Bound | None,
    schema: Schema,
    *,
    names: Mapping[int, tuple[str, ...] | None] | None = None,
    case_sensitive: bool = True,
) -> pc.Expression:
    """An expression that is true for exactly the rows that match; null or false for the others.

    Args:
        where: the filter.
        schema: what names in `where` mean.
        names: field id -> path of the column in the data when it differs from the schema's names; None where the data lack
            the column, which then reads as null.
        case_sensitive: for binding.

    NaN is equal to itself and greater than every other value, as in Spark, PostgreSQL and DuckDB; -0.0 equals 0.0.

    Raises:
        InvalidExpressionError: the filter does not bind.
    """
    raise AssertionError(where, schema, names, case_sensitive)
