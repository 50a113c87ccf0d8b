"""A filter as an Arrow expression that is right about null and NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FixedType, FloatType, IcebergType, UUIDType

from lakehouse.expressions.bind import bind
from lakehouse.expressions.bound import And, Bound, Constant, Leaf, Op, Or, fold
from lakehouse.expressions.values import arrow_array
from lakehouse.spec.physical import to_physical


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
    bound = (
        where
        if isinstance(where, Leaf | Constant | And | Or)
        else bind(where, schema, case_sensitive=case_sensitive)
    )

    def leaf_expression(leaf: Leaf) -> pc.Expression:
        path = leaf.path if names is None else names.get(leaf.field_id, leaf.path)
        if path is None:
            return pc.scalar(leaf.op is Op.IS_NULL)
        return _leaf(leaf, pc.field(*path) if len(path) > 1 else pc.field(path[0]))

    return fold(
        bound,
        leaf_expression,
        pc.scalar,
        lambda left, right: left & right,
        lambda left, right: left | right,
    )


def matches(rows: pa.RecordBatch | pa.Table, where: pc.Expression) -> pa.BooleanArray:
    """Whether the expression is true, by row, never null.

    `rows.filter(where)` makes every column, and fails for UUIDs in structs when it keeps nothing.
    """
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    true = pc.coalesce(where, pc.scalar(False))
    plan = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", acero.ProjectNodeOptions([true], ["matches"])),
    ]
    found = acero.Declaration.from_sequence(plan).to_table(use_threads=False)["matches"]
    # pyarrow 25 crashes in `indices_nonzero` of no chunks
    return found.combine_chunks()


def _leaf(leaf: Leaf, field: pc.Expression) -> pc.Expression:
    op, kind = leaf.op, leaf.type
    if op is Op.IS_NULL:
        return field.is_null(nan_is_null=False)
    if op is Op.NOT_NULL:
        return field.is_valid()
    if op is Op.IS_NAN:
        return pc.is_nan(field)
    if op is Op.NOT_NAN:
        return ~pc.is_nan(field)
    if isinstance(kind, UUIDType | FixedType):
        field = field.cast(pa.binary())
    if op is Op.IN:
        return field.isin(_values(leaf.value, kind))
    if op is Op.NOT_IN:
        return field.is_valid() & ~field.isin(_values(leaf.value, kind))
    if op is Op.STARTS_WITH:
        return pc.starts_with(field, leaf.value)
    if op is Op.NOT_STARTS_WITH:
        return ~pc.starts_with(field, leaf.value)
    found = _COMPARISONS[op](field, pc.scalar(_values((leaf.value,), kind)[0]))
    nan_matches = isinstance(kind, FloatType | DoubleType) and op in (Op.GT, Op.GTE)
    return found | pc.is_nan(field) if nan_matches else found


_COMPARISONS: dict[Op, Callable[[Any, Any], pc.Expression]] = {
    Op.LT: lambda field, value: field < value,
    Op.LTE: lambda field, value: field <= value,
    Op.GT: lambda field, value: field > value,
    Op.GTE: lambda field, value: field >= value,
    Op.EQ: lambda field, value: field == value,
    Op.NOT_EQ: lambda field, value: field != value,
}


def _values(values: tuple[Any, ...], kind: IcebergType) -> pa.Array:
    if isinstance(kind, UUIDType | FixedType):
        return pa.array([to_physical(value) for value in values], pa.binary())
    if isinstance(kind, FloatType | DoubleType) and 0.0 in values and len(values) > 1:
        values = (*values, 0.0, -0.0)
    return arrow_array(list(values), kind)
