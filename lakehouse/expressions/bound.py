"""A filter bound to a schema: fields by id, literals in Iceberg's internal representation, NOT pushed into the leaves."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.expressions import And as UnboundAnd
from pyiceberg.expressions import Or as UnboundOr
from pyiceberg.types import IcebergType

T = TypeVar("T")


class Op(enum.Enum):
    """What a leaf asks of its field. The order of floats puts NaN above everything else and equal to itself."""

    IS_NULL = "is null"
    NOT_NULL = "is not null"
    IS_NAN = "is nan"
    NOT_NAN = "is not nan"
    LT = "<"
    LTE = "<="
    GT = ">"
    GTE = ">="
    EQ = "="
    NOT_EQ = "!="
    IN = "in"
    NOT_IN = "not in"
    STARTS_WITH = "starts with"
    NOT_STARTS_WITH = "not starts with"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One comparison.

    Attributes:
        op: the comparison.
        field_id: field id of the primitive field.
        path: names from the root of the schema to the field.
        type: type of the field; not primitive only with IS_NULL and NOT_NULL.
        value: internal value, a tuple of them for IN and NOT_IN, None for the unary ones.
        source: the same as an unbound pyiceberg expression.
    """

    op: Op
    field_id: int
    path: tuple[str, ...]
    type: IcebergType
    value: Any
    source: BooleanExpression = field(compare=False)


@dataclass(frozen=True, slots=True)
class Constant:
    """True or false for every row. A filter that is never true (`x = null`) is false here: filters keep only true."""

    value: bool


@dataclass(frozen=True, slots=True)
class And:
    """Both."""

    left: Bound
    right: Bound


@dataclass(frozen=True, slots=True)
class Or:
    """Either."""

    left: Bound
    right: Bound


Bound = Leaf | Constant | And | Or

TRUE = Constant(value=True)
FALSE = Constant(value=False)


def conjunction(left: Bound, right: Bound) -> Bound:
    """`left and right`, simplified."""
    if left == FALSE or right == FALSE:
        return FALSE
    if left == TRUE:
        return right
    return left if right == TRUE else And(left, right)


def disjunction(left: Bound, right: Bound) -> Bound:
    """`left or right`, simplified."""
    if left == TRUE or right == TRUE:
        return TRUE
    if left == FALSE:
        return right
    return left if right == FALSE else Or(left, right)


def fold(
    bound: Bound,
    leaf: Callable[[Leaf], T],
    constant: Callable[[bool], T],
    both: Callable[[T, T], T],
    either: Callable[[T, T], T],
) -> T:
    """Evaluate the tree bottom up."""
    if isinstance(bound, Leaf):
        return leaf(bound)
    if isinstance(bound, Constant):
        return constant(bound.value)
    left = fold(bound.left, leaf, constant, both, either)
    right = fold(bound.right, leaf, constant, both, either)
    return both(left, right) if isinstance(bound, And) else either(left, right)


def map_leaves(bound: Bound, change: Callable[[Leaf], Bound]) -> Bound:
    """The tree with every leaf replaced, simplified."""
    return fold(bound, change, lambda value: TRUE if value else FALSE, conjunction, disjunction)


def leaves(bound: Bound) -> Iterator[Leaf]:
    """Every leaf, left to right."""
    if isinstance(bound, Leaf):
        yield bound
    elif not isinstance(bound, Constant):
        yield from leaves(bound.left)
        yield from leaves(bound.right)


def to_unbound(bound: Bound) -> BooleanExpression:
    """The tree as an unbound pyiceberg expression by column name."""
    return fold(
        bound,
        lambda leaf: leaf.source,
        lambda value: AlwaysTrue() if value else AlwaysFalse(),
        UnboundAnd,
        UnboundOr,
    )
