"""Terms and filters on rows: SQL's three-valued logic, on Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.bound_filter import (
    And,
    Bound,
    Column,
    Computed,
    Constant,
    Leaf,
    Mask,
    Term,
    Value,
    matches,
    to_mask,
)
from lakehouse.expressions.filter_text import describe_term
from lakehouse.expressions.functions.sql_functions import FUNCTIONS
from lakehouse.expressions.transforms.partition_transforms import Datum, arrow_array

Read = Callable[[int], pa.Array]
"""The values of a field, by its id."""


def passing(where: Bound, read: Read, rows: int) -> Mask:
    """Which rows the filter is true for.

    Args:
        where: the filter.
        read: gives the columns of these rows.
        rows: how many they are.

    Raises:
        InvalidExpressionError: a function cannot be computed for a row (overflow, text that is
            no number).
    """
    if isinstance(where, Constant):
        return np.full(rows, where.value)
    if isinstance(where, Leaf):
        return matches(plain(read(where.field_id)), where)
    if isinstance(where, Computed):
        return _condition(where, read, rows)
    every = isinstance(where, And)
    mask = passing(where.parts[0], read, rows)
    for part in where.parts[1:]:
        if not mask.any() if every else mask.all():
            break
        passes = passing(part, read, rows)
        mask = mask & passes if every else mask | passes
    return mask


def _condition(where: Computed, read: Read, rows: int) -> Mask:
    try:
        result = evaluate(where.condition, read)
    except (pa.ArrowException, ArithmeticError) as error:
        raise InvalidExpressionError(
            f"cannot compute {describe_term(where.condition)}: {error}"
        ) from error
    return to_mask(result if isinstance(result, pa.Array) else pa.repeat(result, rows), null=False)


def evaluate(term: Term, read: Read) -> Datum:
    """The values of a term, an Arrow scalar where they are constant.

    Raises:
        ArrowException | TypeError: see `functions.Function`.
    """
    if isinstance(term, Column):
        return plain(read(term.field_id))
    if isinstance(term, Value):
        return constant(term)
    return FUNCTIONS[term.name].compute(*(evaluate(arg, read) for arg in term.args))


def constant(value: Value) -> Datum:
    """A typed constant; an array of them for a tuple."""
    if value.type is None:
        return pa.scalar(value.value)
    if not isinstance(value.value, tuple):
        return arrow_array([value.value], value.type)[0]
    values = value.value
    if 0.0 in values and isinstance(values[0], float):
        values = (*values, 0.0, -0.0)
    array = arrow_array(list(values), value.type)
    return array.cast(pa.binary()) if pa.types.is_fixed_size_binary(array.type) else array


def plain(array: pa.Array) -> pa.Array:
    """Without extension type, in one piece."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array.storage if isinstance(array, pa.ExtensionArray) else array
