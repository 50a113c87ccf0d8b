"""Binding a filter to a schema."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Reference,
    SetPredicate,
    StartsWith,
    UnaryPredicate,
    UnboundPredicate,
)
from pyiceberg.expressions import And as UnboundAnd
from pyiceberg.expressions import Or as UnboundOr
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
)

from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.bound import (
    FALSE,
    TRUE,
    Bound,
    Leaf,
    Op,
    conjunction,
    disjunction,
    map_leaves,
)
from lakehouse.expressions.literals import Position, cast_literal
from lakehouse.expressions.parse import parse_where
from lakehouse.spec.field_types import FieldTypes

_OPS: dict[type[UnboundPredicate], Op] = {
    IsNull: Op.IS_NULL,
    NotNull: Op.NOT_NULL,
    IsNaN: Op.IS_NAN,
    NotNaN: Op.NOT_NAN,
    LessThan: Op.LT,
    LessThanOrEqual: Op.LTE,
    GreaterThan: Op.GT,
    GreaterThanOrEqual: Op.GTE,
    EqualTo: Op.EQ,
    NotEqualTo: Op.NOT_EQ,
    In: Op.IN,
    NotIn: Op.NOT_IN,
    StartsWith: Op.STARTS_WITH,
    NotStartsWith: Op.NOT_STARTS_WITH,
}

_BESIDE_NAN = {
    Op.EQ: Op.IS_NAN,
    Op.GTE: Op.IS_NAN,
    Op.NOT_EQ: Op.NOT_NAN,
    Op.LT: Op.NOT_NAN,
    Op.LTE: Op.NOT_NULL,
}


def bind(
    where: str | BooleanExpression | None, schema: Schema, *, case_sensitive: bool = True
) -> Bound:
    """Resolve names to field ids and cast literals to the fields' types.

    Literals: ISO text for dates, times and timestamps, numbers for numbers, `datetime` values. A timestamp without zone compares
    with a `timestamptz` column as UTC; one with a zone is refused for a `timestamp` column. A number beyond the range of the
    column, or between two of its values, compares as the number it is (`int_column < 3000000000` holds for every row that is not
    null, `int_column = 1.5` for none). A number compared with a `float` column is rounded to it first.

    Raises:
        InvalidExpressionError: unknown column, a struct, list or map compared, or a literal that cannot be cast.
    """
    return _Binder(schema, case_sensitive).visit(parse_where(where), negated=False)


def widen(where: Bound, types: FieldTypes) -> Bound:
    """The filter with its fields in the types of `types`, where a column was promoted after the schema it was bound to.

    Only promotions under which every value stays the same value: int to long, float to double, decimals of one scale.
    """

    def one(leaf: Leaf) -> Bound:
        now = types.get(leaf.field_id)
        return (
            dataclasses.replace(leaf, type=now)
            if now is not None and _promotes(leaf.type, now)
            else leaf
        )

    return map_leaves(where, one)


def _promotes(old: IcebergType, new: IcebergType) -> bool:
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision < new.precision
    numbers = ((IntegerType, LongType), (FloatType, DoubleType))
    return any(isinstance(old, narrow) and isinstance(new, wide) for narrow, wide in numbers)


class _Binder:
    def __init__(self, schema: Schema, case_sensitive: bool) -> None:
        self._schema = schema
        self._case_sensitive = case_sensitive

    def visit(self, node: BooleanExpression, *, negated: bool) -> Bound:
        if isinstance(node, AlwaysTrue):
            return FALSE if negated else TRUE
        if isinstance(node, AlwaysFalse):
            return TRUE if negated else FALSE
        if isinstance(node, Not):
            return self.visit(node.child, negated=not negated)
        if isinstance(node, (UnboundAnd, UnboundOr)):
            left = self.visit(node.left, negated=negated)
            right = self.visit(node.right, negated=negated)
            return (
                conjunction(left, right)
                if isinstance(node, UnboundAnd) != negated
                else disjunction(left, right)
            )
        if not isinstance(node, UnboundPredicate):
            raise InvalidExpressionError(
                f"a filter must be made of unbound predicates, not {type(node).__name__}: {node}"
            )
        return self._predicate(~node if negated else node)  # type: ignore[arg-type]

    def _predicate(self, node: UnboundPredicate) -> Bound:
        op = _OPS.get(type(node))
        term = node.term
        if op is None or not isinstance(term, Reference):
            raise InvalidExpressionError(f"unsupported predicate {node}")
        field, path = self._resolve(term.name)
        if not self._case_sensitive:
            node = _renamed(node, self._schema.find_column_name(field.field_id) or term.name)
        if op in (Op.IS_NULL, Op.NOT_NULL):
            return Leaf(op, field.field_id, path, field.field_type, None, node)
        kind = field.field_type
        if not isinstance(kind, PrimitiveType):
            raise InvalidExpressionError(
                f"column {term.name} is a {kind}: only its primitive fields can be compared"
            )
        base = Leaf(op, field.field_id, path, kind, None, node)
        if isinstance(node, UnaryPredicate):
            return _nan_test(base)
        if isinstance(node, SetPredicate):
            positions = [cast_literal(literal, kind, term.name) for literal in node.literals]
            return _membership(base, positions)
        if isinstance(node, LiteralPredicate):
            if op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH) and not isinstance(kind, StringType):
                raise InvalidExpressionError(
                    f"column {term.name} is a {kind}: only strings start with something"
                )
            return _comparison(base, cast_literal(node.literal, kind, term.name))
        raise InvalidExpressionError(f"unsupported predicate {node}")

    def _resolve(self, name: str) -> tuple[NestedField, tuple[str, ...]]:
        try:
            field = self._schema.find_field(name, case_sensitive=self._case_sensitive)
        except ValueError as error:
            known = ", ".join(sorted(self._schema.column_names))
            raise InvalidExpressionError(
                f"no column {name} in the schema; it has {known}", column=name
            ) from error
        path = field_path(self._schema.as_struct(), field.field_id)
        if path is None:
            raise InvalidExpressionError(
                f"column {name} is inside a list or map, which a filter cannot reach", column=name
            )
        return field, path


def _renamed(node: UnboundPredicate, name: str) -> UnboundPredicate:
    """The same predicate with the column spelled as the schema spells it."""
    if isinstance(node, SetPredicate):
        return type(node)(Reference(name), node.literals)
    if isinstance(node, LiteralPredicate):
        return type(node)(Reference(name), node.literal)
    return type(node)(term=Reference(name))


def field_path(struct: StructType, field_id: int) -> tuple[str, ...] | None:
    """Names from the root to a field; None when it is absent or inside a list or map."""
    for field in struct.fields:
        if field.field_id == field_id:
            return (field.name,)
        if (
            isinstance(field.field_type, StructType)
            and (rest := field_path(field.field_type, field_id)) is not None
        ):
            return (field.name, *rest)
    return None


def _with(base: Leaf, op: Op, value: Any = None) -> Leaf:
    return Leaf(op, base.field_id, base.path, base.type, value, _source(base, op))


def _source(base: Leaf, op: Op) -> BooleanExpression:
    """A rewritten leaf still says what the user wrote, except where no literal is left of it."""
    if op in _WITHOUT_LITERAL:
        return _WITHOUT_LITERAL[op](term=base.source.term)  # type: ignore[attr-defined]
    return base.source


_WITHOUT_LITERAL: dict[Op, Callable[..., BooleanExpression]] = {
    Op.NOT_NULL: NotNull,
    Op.IS_NAN: IsNaN,
    Op.NOT_NAN: NotNaN,
}


def _nan_test(base: Leaf) -> Bound:
    if isinstance(base.type, (FloatType, DoubleType)):
        return base
    return FALSE if base.op is Op.IS_NAN else _with(base, Op.NOT_NULL)


def _membership(base: Leaf, positions: list[Position]) -> Bound:
    exact = [position.value for position in positions if position.exact]
    values = sorted({value for value in exact if not _is_nan(value)})
    listed: Bound = FALSE if base.op is Op.IN else _with(base, Op.NOT_NULL)
    if values:
        listed = _with(base, base.op, tuple(values))
    if not any(_is_nan(value) for value in exact):
        return listed
    join = disjunction if base.op is Op.IN else conjunction
    return join(listed, _beside_nan(base, Op.EQ if base.op is Op.IN else Op.NOT_EQ))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _beside_nan(base: Leaf, op: Op) -> Bound:
    """The column compared with NaN, which equals itself and is above everything else."""
    if op is Op.GT:
        return FALSE
    return _with(base, _BESIDE_NAN[op])


def _comparison(base: Leaf, position: Position) -> Bound:
    op = base.op
    if _is_nan(position.value):
        return _beside_nan(base, op)
    if position.exact:
        return _with(base, op, position.value)
    if op is Op.EQ:
        return FALSE
    if op is Op.NOT_EQ:
        return _with(base, Op.NOT_NULL)
    below_literal = op in (Op.LT, Op.LTE)
    if position.beyond:
        return (
            _with(base, Op.NOT_NULL)
            if (position.beyond > 0) == below_literal and not _nan_above(base)
            else _beyond(base, position)
        )
    return _with(base, Op.LTE if below_literal else Op.GT, position.value)


def _nan_above(base: Leaf) -> bool:
    """For floats, NaN is above a literal that is above every number."""
    return isinstance(base.type, (FloatType, DoubleType))


def _beyond(base: Leaf, position: Position) -> Bound:
    below_literal = base.op in (Op.LT, Op.LTE)
    if not _nan_above(base):
        return FALSE
    limit = float("inf") if position.beyond > 0 else float("-inf")
    if position.beyond > 0:
        return _with(base, Op.LT if below_literal else Op.GTE, limit)
    return _with(base, Op.LTE if below_literal else Op.GT, limit)
