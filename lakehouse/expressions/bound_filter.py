"""A filter bound to a schema: columns against literals, and what only rows can decide.

Fields are known by their ids, literals are Iceberg's internal values, NOT is pushed into leaves.
"""

from __future__ import annotations

import enum
import operator
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType

from lakehouse.spec.types.arrow_types import physical_type, to_physical


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the schema that no list or map holds, or a metadata column.

    Attributes:
        field_id: in the schema.
        path: names from the root of the schema to the field.
        type: of the field.
    """

    field_id: int
    path: tuple[str, ...]
    type: IcebergType


@dataclass(frozen=True, slots=True)
class Value:
    """A constant in a filter.

    Attributes:
        value: None is null. With a type an Iceberg internal value, for `in` a tuple of them.
        type: None for a literal as it was written (`literals.Literal`): a number or a text takes
            the type of what it meets.
    """

    value: Any
    type: IcebergType | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A function (`functions.FUNCTIONS`) of terms.

    Attributes:
        name: of the function or operator.
        args: what it is applied to.
        type: of the result.
    """

    name: str
    args: tuple[Term, ...]
    type: IcebergType


Term = Column | Value | Call


def columns_of(term: Term) -> Iterator[Column]:
    """Every column in a term, left to right."""
    if isinstance(term, Column):
        yield term
    elif isinstance(term, Call):
        for arg in term.args:
            yield from columns_of(arg)


T = TypeVar("T")


class Op(enum.Enum):
    """What a leaf asks of its field. NaN equals itself and is above every other number."""

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

    __hash__ = object.__hash__
    """There is one of each; Python's own hashes the name each time."""


_PAIRS = (
    (Op.IS_NULL, Op.NOT_NULL),
    (Op.IS_NAN, Op.NOT_NAN),
    (Op.LT, Op.GTE),
    (Op.GT, Op.LTE),
    (Op.EQ, Op.NOT_EQ),
    (Op.IN, Op.NOT_IN),
    (Op.STARTS_WITH, Op.NOT_STARTS_WITH),
)
OPPOSITES = {op: other for pair in _PAIRS for op, other in (pair, pair[::-1])}
"""What is true of a value other than null where the operator is not."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One field against literals: what bounds and partitions can decide.

    Attributes:
        op: the comparison.
        field_id: field id of the primitive field.
        path: names from the root of the schema to the field.
        type: type of the field; not primitive only with IS_NULL and NOT_NULL.
        value: internal value, a tuple of them for IN and NOT_IN, None for the unary ones.
    """

    op: Op
    field_id: int
    path: tuple[str, ...]
    type: IcebergType = field(hash=False)
    value: Any = None

    def asking(self, op: Op, value: Any = None) -> Leaf:
        """The same field, compared otherwise."""
        return Leaf(op, self.field_id, self.path, self.type, value)

    def opposite(self) -> Leaf:
        """What is true of the values other than null of which this is false."""
        return self.asking(OPPOSITES[self.op], self.value)


@dataclass(frozen=True, slots=True)
class Computed:
    """A condition that only rows can decide.

    Attributes:
        condition: boolean; a row passes where it is true, not where it is false or null.
        implied: true of every row that passes, made of leaves alone: what bounds and partitions
            can use of it.
    """

    condition: Call
    implied: Bound


@dataclass(frozen=True, slots=True)
class Constant:
    """A filter that is the same for every row; `x = null`, which is never true, counts as false."""

    value: bool


@dataclass(frozen=True, slots=True)
class And:
    """All of them: two parts or more, none of which is an `And` or a constant."""

    parts: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of them: two parts or more, none of which is an `Or` or a constant."""

    parts: tuple[Bound, ...]


Bound = Leaf | Computed | Constant | And | Or

TRUE = Constant(value=True)
FALSE = Constant(value=False)


def conjunction(parts: Iterable[Bound]) -> Bound:
    """All of the parts, simplified."""
    return _joined(parts, And, FALSE, TRUE)


def disjunction(parts: Iterable[Bound]) -> Bound:
    """Any of the parts, simplified."""
    return _joined(parts, Or, TRUE, FALSE)


def _joined(
    parts: Iterable[Bound], kind: type[And] | type[Or], decisive: Constant, neutral: Constant
) -> Bound:
    kept: dict[Bound, None] = {}
    for part in parts:
        if part == decisive:
            return decisive
        if isinstance(part, kind):
            kept.update(dict.fromkeys(part.parts))
        elif part != neutral:
            kept[part] = None
    if kind is And:
        compared = {
            part.field_id for part in kept if isinstance(part, Leaf) and part.op not in _NULLNESS
        }
        for leaf in [part for part in kept if isinstance(part, Leaf) and part.op is Op.NOT_NULL]:
            if leaf.field_id in compared:
                del kept[leaf]  # what is compared is not null
    if len(kept) < 2:
        return next(iter(kept), neutral)
    return kind(tuple(kept))


_NULLNESS = (Op.IS_NULL, Op.NOT_NULL)


def fold(
    bound: Bound,
    leaf: Callable[[Leaf], T],
    constant: Callable[[bool], T],
    every: Callable[[Sequence[T]], T],
    some: Callable[[Sequence[T]], T],
    computed: Callable[[Computed], T] | None = None,
) -> T:
    """Evaluate the tree bottom up; without `computed`, `Computed` counts as what it implies."""
    if isinstance(bound, Leaf):
        return leaf(bound)
    if isinstance(bound, Constant):
        return constant(bound.value)
    if isinstance(bound, Computed):
        if computed is not None:
            return computed(bound)
        return fold(bound.implied, leaf, constant, every, some)
    parts = [fold(part, leaf, constant, every, some, computed) for part in bound.parts]
    return every(parts) if isinstance(bound, And) else some(parts)


def map_leaves(
    bound: Bound,
    change: Callable[[Leaf], Bound],
    computed: Callable[[Computed], Bound] | None = None,
) -> Bound:
    """The tree with every leaf replaced, simplified.

    Without `computed`, every `Computed` becomes what it implies.
    """
    return fold(
        bound, change, lambda value: TRUE if value else FALSE, conjunction, disjunction, computed
    )


def leaves(bound: Bound) -> Iterator[Leaf]:
    """Every leaf, left to right; of what is computed those that it implies."""
    if isinstance(bound, Leaf):
        yield bound
    elif isinstance(bound, Computed):
        yield from leaves(bound.implied)
    elif not isinstance(bound, Constant):
        for part in bound.parts:
            yield from leaves(part)


def columns(bound: Bound) -> Iterator[Column]:
    """Every column that the filter reads, left to right."""
    if isinstance(bound, Leaf):
        yield Column(bound.field_id, bound.path, bound.type)
    elif isinstance(bound, Computed):
        yield from columns_of(bound.condition)
    elif not isinstance(bound, Constant):
        for part in bound.parts:
            yield from columns(part)


Mask = npt.NDArray[np.bool_]
Values: TypeAlias = pa.Array | pa.ChunkedArray

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


def compare(column: Values, op: Op, value: Any, *, null: bool) -> Mask:
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


def starts_with(column: Values, prefix: str, *, null: bool) -> Mask:
    """Whether text starts with a prefix, `null` where the column is null."""
    return to_mask(pc.starts_with(column, prefix), null=null)


def is_one_of(column: Values, values: tuple[Any, ...], *, null: bool) -> Mask:
    """Whether the column is one of the values, `null` where it is null."""
    numbers = _numbers(column)
    if numbers is not None and 0 < len(values) <= _FEW_VALUES:
        if all(type(value) is int for value in values):
            return some_mask([np.equal(numbers, np.int64(value)) for value in values])
    elif numbers is not None and (places := listed(values).places) is not None:
        low = listed(values).numbers[0] - 1
        at = np.clip(numbers.astype(np.int64), low, low + len(places) - 1) - low
        passes: Mask = places[at]
        return passes
    comparable = column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column
    equal = to_mask(pc.is_in(comparable, listed(values).array(comparable.type)), null=False)
    return np.where(to_mask(comparable.is_null(), null=False), null, equal)


def any_within(
    values: tuple[Any, ...], lower: Values | None, upper: Values | None, rows: int
) -> Mask | None:
    """Between which bounds one of the values is at least.

    Args:
        values: of one type.
        lower: bounds by row; a null, and None, is below everything.
        upper: bounds by row; a null, and None, is above everything.
        rows: how many.

    Returns:
        None for types whose order this does not know.
    """
    wanted, bounds = listed(values), [side for side in (lower, upper) if side is not None]
    first, last = np.zeros(rows, np.int64), np.full(rows, len(values))
    if all(side.type.id in _WHOLE_NUMBERS for side in bounds) and len(wanted.numbers):
        for side, places, where in ((lower, first, "left"), (upper, last, "right")):
            if side is None:
                continue
            known = np.asarray(side.is_valid())
            numbers = np.asarray(pc.fill_null(side, 0)).astype(np.int64)
            at = np.searchsorted(wanted.numbers, numbers, where)  # type: ignore[call-overload]
            places[known] = at[known]
        return first < last
    texts = wanted.texts
    alike = pa.types.is_binary if texts and type(texts[0]) is bytes else pa.types.is_string
    if not texts or not all(alike(side.type) for side in bounds):
        return None
    lows = [None] * rows if lower is None else lower.to_pylist()
    highs = [None] * rows if upper is None else upper.to_pylist()
    return np.array(
        [
            (0 if low is None else bisect_left(texts, low))
            < (len(texts) if high is None else bisect_right(texts, high))
            for low, high in zip(lows, highs, strict=True)
        ],
        bool,
    )


class Listed:
    """The values of a list in the forms that make it quick to look something up in them.

    Args:
        values: of one type.
    """

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values
        self._arrays: dict[pa.DataType, pa.Array] = {}

    @cached_property
    def numbers(self) -> npt.NDArray[np.int64]:
        """Sorted; none where they are no whole numbers."""
        whole = all(type(value) is int for value in self.values)
        return np.sort(np.array(self.values if whole else (), np.int64))

    @cached_property
    def texts(self) -> Sequence[Any]:
        """Sorted; none where they are neither text nor bytes."""
        kinds = {type(value) for value in self.values}
        return sorted(self.values) if kinds in ({str}, {bytes}) else ()

    @cached_property
    def places(self) -> Mask | None:
        """Which numbers they are, from one below the least to one above the greatest.

        None where they are no whole numbers, or too far from each other.
        """
        if not len(self.numbers):
            return None
        low, high = int(self.numbers[0]), int(self.numbers[-1])
        if high - low > _MOST_PLACES or max(-low, high) >= 1 << 62:
            return None
        places = np.zeros(high - low + 3, bool)
        places[self.numbers - low + 1] = True
        return places

    def array(self, kind: pa.DataType) -> pa.Array:
        """In a type of Arrow; a zero of floating point with both signs."""
        known = self._arrays.get(kind)
        if known is None:
            physical: Sequence[Any] = self.values
            if pa.types.is_binary(kind):
                physical = [to_physical(value) for value in self.values]
            elif pa.types.is_floating(kind) and 0.0 in self.values:
                physical = [*self.values, 0.0, -0.0]
            known = self._arrays[kind] = pa.array(physical, kind)
        return known


_LISTED: dict[int, Listed] = {}
_LISTS = threading.Lock()
_MOST_LISTS = 8
_MOST_PLACES = 1 << 24


def listed(values: tuple[Any, ...]) -> Listed:
    """The values of a list, which a scan looks up in file by file and batch by batch."""
    known = _LISTED.get(id(values))
    if known is None or known.values is not values:
        known = Listed(values)
        with _LISTS:
            while len(_LISTED) >= _MOST_LISTS:
                del _LISTED[next(iter(_LISTED))]
            _LISTED[id(values)] = known
    return known


def matches(column: Values, leaf: Leaf) -> Mask:
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
    mask = compare(column, op, leaf.value, null=False)
    return mask | nan if nan is not None and op in (Op.GT, Op.GTE, Op.NOT_EQ) else mask


def comparable_types(column: Values, leaf: Leaf) -> bool:
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


def _numbers(column: Values) -> npt.NDArray[Any] | None:
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
