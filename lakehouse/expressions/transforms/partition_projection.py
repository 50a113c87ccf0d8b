"""Filters on rows as filters on partition values, and what is left of them in one partition.

Spec: Scan Planning, inclusive and strict projection.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    TimestampType,
    TimestamptzType,
)

from lakehouse.errors import InvalidInputError
from lakehouse.expressions.bound_filter import (
    FALSE,
    TRUE,
    Bound,
    Computed,
    Leaf,
    Op,
    conjunction,
    disjunction,
    fold,
    map_leaves,
    matches,
)
from lakehouse.expressions.transforms.partition_transforms import transform_value
from lakehouse.spec.schema.iceberg_types import FieldTypes
from lakehouse.spec.types.arrow_types import partition_types, physical_type, to_physical

_TIME = (YearTransform, MonthTransform, DayTransform, HourTransform)
_MONOTONIC = (TruncateTransform, *_TIME)


def project(where: Bound, spec: PartitionSpec, types: FieldTypes, *, strict: bool = False) -> Bound:
    """A filter on partition values: its leaves carry partition field ids and partition values.

    Inclusive (default): true for every partition that may hold a matching row. Strict: true only
    for partitions in which every row matches, which is never certain of what only rows can tell.

    Transforms that are not understood project to true (inclusive) or false (strict). Values before
    1970 of the time transforms allow for old writers that rounded towards zero.
    """
    return map_leaves(
        where,
        lambda leaf: project_leaf(leaf, spec, types, strict=strict),
        (lambda _: FALSE) if strict else None,
    )


def project_leaf(
    leaf: Leaf, spec: PartitionSpec, types: FieldTypes, *, strict: bool = False
) -> Bound:
    """`project` of one leaf: all fields of the spec that derive from its column, together."""
    neutral = FALSE if strict else TRUE
    result: Bound = neutral
    for field in spec.fields:
        if field.source_id != leaf.field_id or not is_of(types, leaf):
            continue
        projected = _project(leaf, field, leaf.type, strict)
        if result is neutral:
            result = projected
        else:
            both = (result, projected)
            result = disjunction(both) if strict else conjunction(both)
    return result


class LeafProjections:
    """`project_leaf` for the partitions of one spec, once for each leaf and direction.

    Args:
        spec: partition spec.
        types: field types.
    """

    def __init__(self, spec: PartitionSpec, types: FieldTypes) -> None:
        self._spec, self._types = spec, types
        self._known: dict[tuple[int, bool], tuple[Leaf, Bound]] = {}
        self._whole: tuple[Bound, Bound] | None = None

    def of(self, leaf: Leaf, *, strict: bool = False) -> Bound:
        """See `project_leaf`."""
        known = self._known.get((id(leaf), strict))  # a leaf that is kept keeps its id
        if known is None:
            known = leaf, project_leaf(leaf, self._spec, self._types, strict=strict)
            self._known[id(leaf), strict] = known
        return known[1]

    def whole(self, where: Bound) -> Bound:
        """`project` of a filter, inclusive."""
        known = self._whole
        if known is None or known[0] is not where:
            known = self._whole = where, map_leaves(where, self.of)
        return known[1]


def _project(leaf: Leaf, field: PartitionField, kind: IcebergType, strict: bool) -> Bound:
    transform = field.transform
    if not isinstance(transform, (IdentityTransform, BucketTransform, *_MONOTONIC)):
        return FALSE if strict else TRUE
    result = transform.result_type(kind)
    base = Leaf(leaf.op, field.field_id, (field.name,), result, leaf.value)
    if isinstance(transform, IdentityTransform) or leaf.op in (Op.IS_NULL, Op.NOT_NULL):
        return base
    if not strict:
        return _inclusive(base, field, kind) or base.asking(Op.NOT_NULL)
    # every row of a partition matches where it may hold none of which the opposite is true
    opposite = _inclusive(base.opposite(), field, kind)
    return FALSE if opposite is None else opposite.opposite()


def is_of(types: FieldTypes, leaf: Leaf) -> bool:
    """Whether the leaf's field has the leaf's type."""
    kind = types.get(leaf.field_id)
    # mostly there is one object of a type, and types are slow to compare
    return kind is leaf.type or kind == leaf.type


def _values(leaf: Leaf) -> Sequence[Any]:
    return leaf.value if leaf.op in (Op.IN, Op.NOT_IN) else (leaf.value,)


def _inclusive(base: Leaf, field: PartitionField, kind: IcebergType) -> Leaf | None:
    """What partitions are that may hold a matching row; None where nothing can be said of them."""
    try:
        if isinstance(field.transform, BucketTransform):
            return _bucket(base, field, kind)
        if base.op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH):
            return _prefix(base, field)
        return _monotonic(base, field, kind)
    except InvalidInputError:
        return None


def _bucket(base: Leaf, field: PartitionField, kind: IcebergType) -> Leaf | None:
    if base.op not in (Op.EQ, Op.IN):
        return None
    buckets = {transform_value(field.transform, value, kind) for value in _values(base)}
    return base.asking(Op.IN, tuple(sorted(buckets)))


def _prefix(base: Leaf, field: PartitionField) -> Leaf | None:
    width = field.transform.width if isinstance(field.transform, TruncateTransform) else 0
    text: str = base.value
    if len(text) <= width:
        return base
    return base.asking(Op.EQ, text[:width]) if base.op is Op.STARTS_WITH else None


def _neighbour(value: Any, kind: IcebergType, step: int) -> Any:
    """The next value of a discrete type; the value itself for text and bytes."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value + step
    if isinstance(kind, DecimalType) and isinstance(value, Decimal):
        # in integers: sums of decimals are rounded to 28 digits
        sign, digits, _ = value.as_tuple()
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1) + step
        shown = tuple(int(digit) for digit in str(abs(unscaled)))
        return Decimal((unscaled < 0, shown, -kind.scale))
    return value


def _edge(base: Leaf, field: PartitionField, kind: IcebergType, step: int) -> Any:
    """The partition of the literal, or of its neighbour when that one exists."""
    if step:
        try:
            return transform_value(field.transform, _neighbour(base.value, kind, step), kind)
        except (InvalidInputError, ArithmeticError, ValueError):
            step = 0
    return transform_value(field.transform, base.value, kind)


def _monotonic(base: Leaf, field: PartitionField, kind: IcebergType) -> Leaf | None:
    widen = isinstance(field.transform, _TIME)
    if base.op in (Op.LT, Op.LTE):
        edge = _edge(base, field, kind, -1 if base.op is Op.LT else 0)
        return base.asking(Op.LTE, edge + 1 if widen and edge < 0 else edge)
    if base.op in (Op.GT, Op.GTE):
        return base.asking(Op.GTE, _edge(base, field, kind, 1 if base.op is Op.GT else 0))
    if base.op in (Op.EQ, Op.IN):
        edges = {transform_value(field.transform, value, kind) for value in _values(base)}
        if widen:
            edges |= {edge + 1 for edge in edges if edge < 0}
        return base.asking(Op.IN, tuple(sorted(edges)))
    return None


_EXACT = (IntegerType, LongType, DateType, TimestampType, TimestamptzType)
_WHOLE_NUMBERS: dict[Op, Callable[[int, Any], bool]] = {
    Op.LT: operator.lt,
    Op.LTE: operator.le,
    Op.GT: operator.gt,
    Op.GTE: operator.ge,
    Op.EQ: operator.eq,
    Op.NOT_EQ: operator.ne,
    Op.IN: lambda value, values: value in values,
    Op.NOT_IN: lambda value, values: value not in values,
}
"""How values of `_EXACT` types compare, as `matches` does it for columns."""


class Residuals:
    """Residual filters by partition tuple of one spec; equal residuals are the same object.

    Args:
        where: the bound filter.
        spec: partition spec of the files.
        types: field types.
        projections: of the leaves of the filter, where they are known; None makes them.
    """

    def __init__(
        self,
        where: Bound,
        spec: PartitionSpec,
        types: FieldTypes,
        projections: LeafProjections | None = None,
    ) -> None:
        self._where = where
        self._projected = projections or LeafProjections(spec, types)
        self._kinds = partition_types(spec, types)
        self._positions = {field.field_id: position for position, field in enumerate(spec.fields)}
        self._known: dict[tuple[Any, ...], Bound] = {}
        self._equal: dict[Bound, Bound] = {}

    def of(self, partition: Sequence[Any]) -> Bound:
        """The part of the filter that the partition leaves open; TRUE when all rows match."""
        if self._where == TRUE:
            return TRUE
        key = tuple(partition)
        known = self._known.get(key)
        if known is None:
            left = map_leaves(
                self._where,
                lambda leaf: self._leaf(leaf, key),
                lambda part: self._computed(part, key),
            )
            known = self._known[key] = self._equal.setdefault(left, left)
        return known

    def _leaf(self, leaf: Leaf, partition: tuple[Any, ...]) -> Bound:
        strict = self._projected.of(leaf, strict=True)
        if strict != FALSE and self._holds(strict, partition):
            return TRUE
        inclusive = self._projected.of(leaf)
        return leaf if inclusive == TRUE or self._holds(inclusive, partition) else FALSE

    def _computed(self, part: Computed, partition: tuple[Any, ...]) -> Bound:
        implied = map_leaves(part.implied, lambda leaf: self._leaf(leaf, partition))
        return FALSE if implied == FALSE else part

    def _holds(self, projected: Bound, partition: tuple[Any, ...]) -> bool:
        def accepts(leaf: Leaf) -> bool:
            kind = self._kinds[leaf.field_id]
            value = to_physical(partition[self._positions[leaf.field_id]])
            compared = _WHOLE_NUMBERS.get(leaf.op)
            if compared is not None and type(value) is int and isinstance(kind, _EXACT):
                return compared(value, leaf.value)
            return bool(matches(pa.array([value], physical_type(kind)), leaf)[0])

        return fold(projected, accepts, bool, all, any)
