"""Compares a filter's leaves with columns of internal values, as Iceberg orders them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.expressions.bound_filter import Leaf, Op
from lakehouse.spec.types.arrow_types import physical_type, to_physical

Mask = npt.NDArray[np.bool_]
Column: TypeAlias = pa.Array | pa.ChunkedArray

_COMPARISONS = {
    Op.LT: pc.less,
    Op.LTE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GTE: pc.greater_equal,
    Op.EQ: pc.equal,
    Op.NOT_EQ: pc.not_equal,
}
_OF_NUMBERS: dict[Op, Callable[[Any, Any], Mask]] = {
    Op.LT: np.less,
    Op.LTE: np.less_equal,
    Op.GT: np.greater,
    Op.GTE: np.greater_equal,
    Op.EQ: np.equal,
    Op.NOT_EQ: np.not_equal,
}
_WHOLE_NUMBERS = frozenset({pa.int32().id, pa.int64().id})
_FEW_VALUES = 8


def compare(column: Column, op: Op, value: Any, *, null: bool) -> Mask:
    """`column op value` by row, `null` where the column is null.

    NaN in the column is no value here: it compares as false.
    """
    numbers = _numbers(column)
    if numbers is not None and type(value) is int:
        return _OF_NUMBERS[op](numbers, np.int64(value))
    comparable = column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column
    if pa.types.is_boolean(column.type):
        comparable, value = column.cast(pa.int8()), int(value)
    return to_mask(_COMPARISONS[op](comparable, _scalar(value, comparable.type)), null=null)


def starts_with(column: Column, prefix: str, *, null: bool) -> Mask:
    """Whether text starts with a prefix, `null` where the column is null."""
    return to_mask(pc.starts_with(column, prefix), null=null)


def is_one_of(column: Column, values: tuple[Any, ...], *, null: bool) -> Mask:
    """Whether the column is one of the values, `null` where it is null."""
    numbers = _numbers(column) if 0 < len(values) <= _FEW_VALUES else None
    if numbers is not None and all(type(value) is int for value in values):
        return some_mask([np.equal(numbers, np.int64(value)) for value in values])
    comparable = column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column
    physical: Sequence[Any] = values
    if pa.types.is_binary(comparable.type):
        physical = [to_physical(value) for value in values]
    elif pa.types.is_floating(comparable.type) and 0.0 in values:
        physical = [*values, 0.0, -0.0]
    found = to_mask(pc.is_in(comparable, pa.array(physical, comparable.type)), null=False)
    return np.where(to_mask(comparable.is_null(), null=False), null, found)


def matches(column: Column, leaf: Leaf) -> Mask:
    """Which values the leaf accepts; null is accepted by `is null` alone.

    NaN is above every other value.
    """
    op = leaf.op
    if op is Op.IS_NULL:
        return to_mask(column.is_null(), null=True)
    if op is Op.NOT_NULL:
        return to_mask(column.is_valid(), null=False)
    nan = to_mask(pc.is_nan(column), null=False) if pa.types.is_floating(column.type) else None
    if op in (Op.IS_NAN, Op.NOT_NAN):
        valid = to_mask(column.is_valid(), null=False)
        if nan is None:
            return np.zeros(len(column), bool) if op is Op.IS_NAN else valid
        return nan if op is Op.IS_NAN else valid & ~nan
    if op is Op.IN:
        return is_one_of(column, leaf.value, null=False)
    if op is Op.NOT_IN:
        return ~is_one_of(column, leaf.value, null=True)
    if op is Op.STARTS_WITH:
        return starts_with(column, leaf.value, null=False)
    if op is Op.NOT_STARTS_WITH:
        return ~starts_with(column, leaf.value, null=True)
    found = compare(column, op, leaf.value, null=False)
    return found | nan if nan is not None and op in (Op.GT, Op.GTE, Op.NOT_EQ) else found


def comparable_types(column: Column, leaf: Leaf) -> bool:
    """Whether the column and the leaf's literal are of one kind, so that they can be compared."""
    there, here = column.type, physical_type(leaf.type)
    families = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return there == here or any(family(there) and family(here) for family in families)


def every_mask(masks: Sequence[Mask]) -> Mask:
    """Where all of them are true."""
    return reduce(operator.and_, masks)


def some_mask(masks: Sequence[Mask]) -> Mask:
    """Where any of them is true."""
    return reduce(operator.or_, masks)


def to_mask(column: Any, *, null: bool) -> Mask:
    """A boolean Arrow column as numpy, nulls replaced."""
    whole = pc.fill_null(column, null) if column.null_count else column
    return np.asarray(whole).astype(bool, copy=False)


def _numbers(column: Column) -> npt.NDArray[Any] | None:
    """The values of whole numbers without nulls, None of other columns.

    Numpy compares a short array for a tenth of what a call of Arrow costs, and without passing the
    interpreter's lock to another thread and waiting for it.
    """
    if column.type.id not in _WHOLE_NUMBERS or column.null_count:
        return None
    return np.asarray(column)


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    physical = to_physical(value)
    if pa.types.is_integer(kind):
        return pa.scalar(physical, pa.int64())
    if pa.types.is_decimal(kind):
        return pa.scalar(physical)
    if pa.types.is_floating(kind):
        return pa.scalar(physical, pa.float64())
    return pa.scalar(physical, kind)
