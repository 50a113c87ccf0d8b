"""Iceberg filters as Spark SQL conditions, for scans that carry a filter of their own."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from lakehouse.errors import UnsupportedFeatureError
from lakehouse.expressions.bound_filter import Bound, Computed, Leaf, Op, fold
from lakehouse.expressions.filter_text import describe
from lakehouse.spark.spark_types import quoted, sql_literal

_BINARY = {Op.LT: "<", Op.LTE: "<=", Op.GT: ">", Op.GTE: ">=", Op.EQ: "=", Op.NOT_EQ: "!="}


def to_condition(bound: Bound) -> Column:
    """A SQL condition true of the same rows, with nulls and NaN as Spark treats them.

    Raises:
        UnsupportedTypeError: a literal that Spark SQL cannot write.
        UnsupportedFeatureError: a function, which Spark may compute otherwise.
    """
    return F.expr(condition_text(bound))


def condition_text(bound: Bound) -> str:
    """The condition as Spark SQL text."""
    return fold(
        bound,
        _leaf,
        lambda value: "true" if value else "false",
        lambda parts: f"({' AND '.join(parts)})",
        lambda parts: f"({' OR '.join(parts)})",
        _computed,
    )


def _computed(part: Computed) -> str:
    raise UnsupportedFeatureError(
        f"Spark computes functions in filters itself: scan without {describe(part)}, "
        "and give it to where() of the frame"
    )


def _leaf(leaf: Leaf) -> str:
    column = quoted(*leaf.path)
    if leaf.op in (Op.IS_NULL, Op.NOT_NULL):
        return f"({column} IS {'NOT ' if leaf.op is Op.NOT_NULL else ''}NULL)"
    if leaf.op in (Op.IS_NAN, Op.NOT_NAN):
        return (
            f"({'NOT ' if leaf.op is Op.NOT_NAN else ''}isnan({column}) AND {column} IS NOT NULL)"
        )
    if leaf.op in (Op.IN, Op.NOT_IN):
        values = ", ".join(_literal(leaf, value) for value in leaf.value)
        return f"({column} {'NOT ' if leaf.op is Op.NOT_IN else ''}IN ({values}))"
    if leaf.op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH):
        return (
            f"({'NOT ' if leaf.op is Op.NOT_STARTS_WITH else ''}startswith({column}, "
            f"{_literal(leaf, leaf.value)}))"
        )
    return f"({column} {_BINARY[leaf.op]} {_literal(leaf, leaf.value)})"


def _literal(leaf: Leaf, value: object) -> str:
    return sql_literal(leaf.type, value)
