"""The rest of a filter for one partition's files (spec: Scan Planning, strict projection)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import DateType, IntegerType, LongType, TimestampType, TimestamptzType

from lakehouse.expressions.bound_filter import (
    FALSE,
    TRUE,
    Bound,
    Computed,
    Leaf,
    Op,
    fold,
    map_leaves,
)
from lakehouse.expressions.physical_comparison import matches
from lakehouse.expressions.transforms.partition_projection import LeafProjections
from lakehouse.spec.schema.iceberg_types import FieldTypes
from lakehouse.spec.types.arrow_types import partition_types, physical_type, to_physical

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
        def one(leaf: Leaf) -> bool:
            kind = self._kinds[leaf.field_id]
            value = to_physical(partition[self._positions[leaf.field_id]])
            compared = _WHOLE_NUMBERS.get(leaf.op)
            if compared is not None and type(value) is int and isinstance(kind, _EXACT):
                return compared(value, leaf.value)
            return bool(matches(pa.array([value], physical_type(kind)), leaf)[0])

        return fold(projected, one, bool, all, any)
