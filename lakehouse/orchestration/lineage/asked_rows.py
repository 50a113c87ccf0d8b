"""A condition on rows that somebody asks about: the values that it names, and its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, IcebergType, TimestampType, TimestamptzType
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from lakehouse.errors import InvalidInputError
from lakehouse.expressions.bound_filter import And, Bound, Leaf, Op
from lakehouse.expressions.filter_binding import bind
from lakehouse.spec.types.internal_values import typed_array

TIMES = (DateType, TimestampType, TimestamptzType)


def asked_values(schema: Schema, where: str) -> tuple[dict[str, pa.ChunkedArray], list[exp.Expr]]:
    """Values that a condition says, for pruning, and its parts, over columns of no table.

    Raises InvalidInputError: the condition cannot be read.
    """
    try:
        parsed = parse_one(where)
    except SqlglotError as error:
        raise InvalidInputError(f"--where {where}: {str(error).splitlines()[0]}") from error
    types = {field.name: field.field_type for field in schema.fields}
    conditions = [_typed(with_names(conjunct, {}), types) for conjunct in conjuncts(parsed)]
    values = {
        leaf.path[0]: pa.chunked_array(
            [typed_array(leaf.value if leaf.op is Op.IN else (leaf.value,), leaf.type)]
        )
        for leaf in _leaves(bind(where, schema))
    }
    return values, conditions


def _typed(condition: exp.Expr, types: Mapping[str, IcebergType]) -> exp.Expr:
    """Text that is compared with days and times as such."""
    for literal in list(condition.find_all(exp.Literal)):
        column = literal.parent.find(exp.Column) if literal.parent is not None else None
        kind = None if column is None else types.get(column.name)
        if (
            literal.is_string
            and isinstance(kind, TIMES)
            and not isinstance(literal.parent, exp.Cast)
        ):
            name = "date" if isinstance(kind, DateType) else "timestamp"
            literal.replace(exp.cast(literal.copy(), name))
    return condition


def _leaves(condition: Bound) -> Iterator[Leaf]:
    """Columns that have one of some values, by a condition."""
    if isinstance(condition, And):
        for part in condition.parts:
            yield from _leaves(part)
    elif isinstance(condition, Leaf) and condition.op in (Op.EQ, Op.IN):
        yield from [condition] if len(condition.path) == 1 else []


def conjuncts(part: exp.Expr | None) -> list[exp.Expr]:
    """What AND joins in a condition, a WHERE or a HAVING; of none nothing."""
    if part is None:
        return []
    inner = part.this if isinstance(part, (exp.Where, exp.Having)) else part
    inner = inner.unnest()
    return (
        [conjunct for side in (inner.left, inner.right) for conjunct in conjuncts(side)]
        if isinstance(inner, exp.And)
        else [inner]
    )


def with_names(condition: exp.Expr, names: Mapping[str, str]) -> exp.Expr:
    """A condition on columns of other names, of no table."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column):
            return exp.column(names.get(node.name, node.name), quoted=True)
        return node

    return condition.copy().transform(replaced)
