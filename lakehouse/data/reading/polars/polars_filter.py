"""The part of a filter that Polars evaluates while decoding: fewer rows are decoded in full."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import polars as pl
import pyarrow as pa
from pyiceberg.types import StringType

from lakehouse.expressions.bound_filter import Bound, Leaf, Op, fold
from lakehouse.expressions.transforms.transformed_values import arrow_array

_COMPARISONS: dict[Op, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    Op.LT: lambda column, value: column < value,
    Op.LTE: lambda column, value: column <= value,
    Op.GT: lambda column, value: column > value,
    Op.GTE: lambda column, value: column >= value,
    Op.EQ: lambda column, value: column == value,
}


def to_polars_filter(
    where: Bound, columns: Mapping[int, tuple[str, pa.DataType]]
) -> pl.Expr | None:
    """An expression for rows that may pass the filter; None when it would keep all of them.

    The filter itself is applied to what this lets through, so what Polars sees differently
    (or not at all) is left out.

    Args:
        where: the filter.
        columns: field id -> name and Arrow type of a column of the file, which must be those of the
            table's type.
    """
    return fold(
        where,
        lambda leaf: _leaf(leaf, columns),
        lambda value: None if value else pl.lit(value=False),
        _every,
        _some,
    )


def _every(parts: Sequence[pl.Expr | None]) -> pl.Expr | None:
    known = [part for part in parts if part is not None]
    return reduce(operator.and_, known) if known else None


def _some(parts: Sequence[pl.Expr | None]) -> pl.Expr | None:
    known = [part for part in parts if part is not None]
    return reduce(operator.or_, known) if len(known) == len(parts) else None


def _leaf(leaf: Leaf, columns: Mapping[int, tuple[str, pa.DataType]]) -> pl.Expr | None:
    if leaf.field_id not in columns:
        return None
    name, kind = columns[leaf.field_id]
    column = pl.col(name)
    if leaf.op is Op.IS_NULL:
        return column.is_null()
    if leaf.op is Op.NOT_NULL:
        return column.is_not_null()
    if leaf.op is Op.STARTS_WITH and isinstance(leaf.type, StringType):
        return column.str.starts_with(leaf.value)
    if leaf.op is Op.IN:
        values = _series(leaf.value, leaf, kind)
        return None if values is None else column.is_in(values.implode())
    if leaf.op in _COMPARISONS:
        values = _series((leaf.value,), leaf, kind)
        return None if values is None else _COMPARISONS[leaf.op](column, _literal(values))
    return None


def _literal(values: pl.Series) -> pl.Expr:
    """The only value; by its physical form, since Python has no nanoseconds."""
    physical = values.to_physical()
    return pl.lit(physical.item(), dtype=physical.dtype).cast(values.dtype)


def _series(values: tuple[Any, ...], leaf: Leaf, kind: pa.DataType) -> pl.Series | None:
    array = arrow_array(list(values), leaf.type)
    found = pl.from_arrow(array)
    return found if array.type == kind and isinstance(found, pl.Series) else None
