"""Which entries and manifests may, and which must, hold matching rows: whole arrays at once.

What is known of a column in many files are bounds, nulls and NaN; unknown is always an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import (
    DoubleType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    UUIDType,
)

from lakehouse.expressions.bound_filter import (
    Bound,
    Call,
    Computed,
    Constant,
    Leaf,
    Mask,
    Op,
    Values,
    any_within,
    columns,
    comparable_types,
    compare,
    every_mask,
    fold,
    is_one_of,
    leaves,
    matches,
    some_mask,
    starts_with,
)
from lakehouse.expressions.transforms.partition_projection import (
    LeafProjections,
    is_of,
    project_leaf,
)
from lakehouse.scan.pruning.inner_bounds import box_may_meet, variant_bounds, variant_comparison
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import FieldSummary
from lakehouse.spec.schema.iceberg_types import FieldTypes, VariantType
from lakehouse.spec.types.arrow_types import physical_type
from lakehouse.spec.types.internal_values import decode_bounds, order_free


@dataclass(frozen=True, slots=True)
class Statistics:
    """One row a file (or manifest).

    Attributes:
        lower: lower bounds, null where unknown; None when unknown for all.
        upper: upper bounds.
        may_null: there may be nulls.
        all_null: certainly nothing but nulls.
        may_nan: there may be NaN.
        all_nan: certainly nothing but NaN.
        no_values: certainly nothing but nulls and NaN.
    """

    lower: Values | None
    upper: Values | None
    may_null: Mask
    all_null: Mask
    may_nan: Mask
    all_nan: Mask
    no_values: Mask


def statistics_of_files(table: pa.Table, field_id: int, kind: IcebergType) -> Statistics:
    """From the metric columns of entries; columns that the table lacks are unknown."""
    rows = table.num_rows
    values, nulls, nans = (
        _counts(table, f"{prefix}.{field_id}")
        for prefix in ("value_count", "null_count", "nan_count")
    )
    floating = isinstance(kind, (FloatType, DoubleType))
    if (rows_of := _column(table, "record_count")) is not None:
        # one value a row, null or not: counts that say otherwise say nothing
        senseless = (values >= 0) & (values != np.asarray(rows_of))
        senseless |= (values >= 0) & (np.maximum(nulls, 0) + np.maximum(nans, 0) > values)
        values, nulls, nans = (np.where(senseless, -1, counts) for counts in (values, nulls, nans))
    known = values >= 0
    lower, upper = _column(table, f"lower.{field_id}"), _column(table, f"upper.{field_id}")
    if isinstance(kind, UUIDType) and not (lower is None and upper is None):
        unknown = pa.nulls(rows, physical_type(kind))
        lower, upper = order_free(
            unknown if lower is None else lower,
            unknown if upper is None else upper,
            _row_groups(table) == 1,
        )
    lower, upper = _in_order(lower, upper)
    return Statistics(
        lower=lower,
        upper=upper,
        may_null=nulls != 0,
        all_null=known & (nulls == values),
        may_nan=(nans != 0) if floating else np.zeros(rows, bool),
        all_nan=known & (nans == values) & floating,
        no_values=known & (nulls >= 0) & (nulls + np.maximum(nans, 0) == values),
    )


def statistics_of_summaries(summaries: Sequence[FieldSummary], kind: IcebergType) -> Statistics:
    """From manifests' partition summaries (spec: field_summary), which hold partition values."""
    lower = decode_bounds(
        pa.array([summary.lower_bound for summary in summaries], pa.binary()), kind
    )
    upper = decode_bounds(
        pa.array([summary.upper_bound for summary in summaries], pa.binary()), kind
    )
    if isinstance(kind, UUIDType):
        lower, upper = order_free(lower, upper, np.ones(len(summaries), bool))
    lower, upper = _in_order(lower, upper)
    floating = isinstance(kind, (FloatType, DoubleType))
    no_bounds = np.array(
        [summary.lower_bound is None and summary.upper_bound is None for summary in summaries], bool
    )
    contains_null = np.array([summary.contains_null is not False for summary in summaries], bool)
    contains_nan = np.array(
        [floating and summary.contains_nan is not False for summary in summaries], bool
    )
    return Statistics(
        lower=lower,
        upper=upper,
        may_null=contains_null,
        all_null=no_bounds & contains_null & ~contains_nan,
        may_nan=contains_nan,
        all_nan=np.zeros(len(summaries), bool),
        no_values=no_bounds & (contains_null | contains_nan),
    )


def _in_order(lower: Values | None, upper: Values | None) -> tuple[Values | None, Values | None]:
    """The bounds, null where the lower one is above the upper one: these contradict each other."""
    if lower is None or upper is None:
        return lower, upper
    inverted = pc.fill_null(pc.greater(lower, upper), False)
    if not pc.any(inverted).as_py():
        return lower, upper
    nothing = pa.scalar(None, lower.type)
    return pc.if_else(inverted, nothing, lower), pc.if_else(inverted, nothing, upper)


def _column(table: pa.Table, name: str) -> Values | None:
    place = table.schema.get_field_index(name)
    return None if place < 0 else table.column(place)


def _row_groups(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How many row groups each file has, -1 where unknown."""
    column = _column(table, "split_offsets")
    if column is None:
        return np.full(table.num_rows, -1, np.int64)
    return np.asarray(pc.fill_null(pc.list_value_length(column), -1)).astype(np.int64)


def _counts(table: pa.Table, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Counts, -1 where unknown or senseless."""
    column = _column(table, name)
    if column is None:
        return np.full(table.num_rows, -1, np.int64)
    known = pc.fill_null(column, -1) if column.null_count else column
    return np.maximum(np.asarray(known).astype(np.int64, copy=False), -1)


_MANY_VALUES = 200


class EntryPruner:
    """A filter for the entries of one partition spec: partition predicates are made once.

    Args:
        where: the bound filter.
        spec: partition spec of the entries.
        types: field types.
        projections: of the leaves of the filter, where they are known; None makes them.
        checkpoint: called for each leaf; what it raises is raised.
    """

    def __init__(
        self,
        where: Bound,
        spec: PartitionSpec,
        types: FieldTypes,
        projections: LeafProjections | None = None,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> None:
        self._where = where
        self._types = types
        self._checkpoint = checkpoint
        self._leaves = projections or LeafProjections(spec, types)
        self._projected = self._leaves.whole(where)
        projected = [self._leaves.of(leaf) for leaf in leaves(where)]
        self.columns = _columns(where, [self._projected, *projected])
        """The entry columns that pruning looks at; some may be absent in the entries."""

    def may_match_partition(self, entries: Entries) -> Mask:
        """False only for entries in whose partition no row can match."""
        return _partition_mask(entries, self._projected, self._checkpoint)

    def may_match_metrics(self, entries: Entries, among: Mask) -> Mask:
        """False only where bounds, counts and partition together rule out all rows.

        An `or` profits from all of them. Bounds that are slow to decode are left alone where
        `among`, the entries whose partition may match, is false.
        """
        rows = len(entries)

        def leaf_mask(leaf: Leaf) -> Mask:
            self._checkpoint()
            partition = _partition_mask(entries, self._leaves.of(leaf))
            if not is_of(self._types, leaf) or not partition.any():
                return partition
            return partition & leaf_may_match(
                leaf, statistics_of_files(entries.table, leaf.field_id, leaf.type)
            )

        def computed_mask(part: Computed) -> Mask:
            implied = _fold(part.implied, leaf_mask, rows)
            return implied & inside.may_match(part) if implied.any() else implied

        inside = _InnerPruner(entries.table, among)
        return _fold(self._where, leaf_mask, rows, computed_mask)


class _InnerPruner:
    """Which entries may hold what only rows tell, by the bounds of what lies inside their values.

    Bounds are decoded once for all conditions.
    """

    def __init__(self, table: pa.Table, among: Mask) -> None:
        self._table, self._among = table, among
        self._known: dict[Call, Statistics] = {}

    def may_match(self, part: Computed) -> Mask:
        """False only for entries whose bounds rule the condition out."""
        meeting = box_may_meet(part, self._table)
        if meeting is not None:
            return meeting
        compared = variant_comparison(part)
        if compared is None:
            return np.ones(self._table.num_rows, bool)
        call, leaf = compared
        if call not in self._known:
            self._known[call] = self._statistics(call)
        return leaf_may_match(leaf, self._known[call])

    def _statistics(self, call: Call) -> Statistics:
        lower, upper = _in_order(*variant_bounds(self._table, call, self._among))
        rows = self._table.num_rows
        always: Mask = np.ones(rows, bool)
        never: Mask = np.zeros(rows, bool)
        nan = always if isinstance(call.type, DoubleType) else never
        return Statistics(
            lower, upper, may_null=always, all_null=never, may_nan=nan, all_nan=never,
            no_values=never,
        )  # fmt: skip


def _fold(
    where: Bound,
    leaf_mask: Callable[[Leaf], Mask],
    rows: int,
    computed: Callable[[Computed], Mask] | None = None,
) -> Mask:
    return fold(
        where, leaf_mask, lambda value: np.full(rows, value), every_mask, some_mask, computed
    )


def may_match(entries: Entries, where: Bound, types: FieldTypes) -> Mask:
    """False only for entries without a matching row: by partition, bounds, null and NaN counts."""
    pruner = EntryPruner(where, entries.spec, types)
    in_partition = pruner.may_match_partition(entries)
    return in_partition & pruner.may_match_metrics(entries, in_partition)


def must_match(entries: Entries, where: Bound, types: FieldTypes) -> Mask:
    """True only for entries all of whose rows match; what is computed only rows can tell."""
    rows = len(entries)

    def leaf_mask(leaf: Leaf) -> Mask:
        partition = _partition_mask(entries, project_leaf(leaf, entries.spec, types, strict=True))
        if not is_of(types, leaf):
            return partition
        return partition | leaf_must_match(
            leaf, statistics_of_files(entries.table, leaf.field_id, leaf.type)
        )

    return _fold(where, leaf_mask, rows, lambda _: np.zeros(rows, bool))


def _columns(where: Bound, projections: Iterable[Bound]) -> list[str]:
    names = dict.fromkeys(
        f"partition.{leaf.field_id}" for projected in projections for leaf in leaves(projected)
    )
    for leaf in leaves(where):
        names |= dict.fromkeys(_metric_columns(leaf))
    for column in columns(where):
        if isinstance(column.type, VariantType | GeometryType | GeographyType):
            names |= dict.fromkeys((f"lower.{column.field_id}", f"upper.{column.field_id}"))
    return list(names)


def _metric_columns(leaf: Leaf) -> list[str]:
    counts = ["value_count", "null_count"] + (
        ["nan_count"] if isinstance(leaf.type, (FloatType, DoubleType)) else []
    )
    unary = leaf.op in (Op.IS_NULL, Op.NOT_NULL, Op.IS_NAN, Op.NOT_NAN)
    names = [
        f"{prefix}.{leaf.field_id}" for prefix in (counts if unary else [*counts, "lower", "upper"])
    ]
    return [*names, "split_offsets"] if isinstance(leaf.type, UUIDType) and not unary else names


def leaf_may_match(leaf: Leaf, known: Statistics) -> Mask:
    """False only where the statistics rule out every value that the leaf accepts."""
    op = leaf.op
    if op is Op.IS_NULL:
        return known.may_null
    if op is Op.NOT_NULL:
        return ~known.all_null
    if op is Op.IS_NAN:
        return known.may_nan & ~known.all_null
    if op is Op.NOT_NAN:
        return ~known.all_nan
    lower, upper = _usable(known.lower, leaf), _usable(known.upper, leaf)
    everything = np.ones(len(known.all_null), bool)
    if op in (Op.LT, Op.LTE):
        mask = everything if lower is None else compare(lower, op, leaf.value, null=True)
    elif op in (Op.GT, Op.GTE):
        mask = everything if upper is None else compare(upper, op, leaf.value, null=True)
    elif op in (Op.EQ, Op.IN):
        mask = _any_within(leaf, lower, upper, everything)
    elif op is Op.STARTS_WITH:
        mask = _prefix_within(leaf.value, lower, upper, everything)
    else:
        mask = ~_only_excluded(leaf, lower, upper, everything)
    mask &= ~known.no_values
    return (
        mask | (known.may_nan & ~known.all_null)
        if op in (Op.GT, Op.GTE, Op.NOT_EQ, Op.NOT_IN)
        else mask
    )


def leaf_must_match(leaf: Leaf, known: Statistics) -> Mask:
    """True only where every value, nulls and NaN included, is accepted by the leaf."""
    op = leaf.op
    if op is Op.IS_NULL:
        return known.all_null
    if op is Op.NOT_NULL:
        return ~known.may_null
    if op is Op.IS_NAN:
        return known.all_nan & ~known.may_null
    if op is Op.NOT_NAN:
        return ~known.may_nan & ~known.may_null
    nothing = np.zeros(len(known.all_null), bool)
    lower, upper = _usable(known.lower, leaf), _usable(known.upper, leaf)
    if lower is None or upper is None:
        return nothing
    if op in (Op.LT, Op.LTE):
        mask = compare(upper, op, leaf.value, null=False)
    elif op in (Op.GT, Op.GTE):
        mask = compare(lower, op, leaf.value, null=False)
    elif op in (Op.EQ, Op.IN):
        values = leaf.value if op is Op.IN else (leaf.value,)
        mask = is_one_of(lower, values, null=False) & _same(lower, upper)
    elif op is Op.STARTS_WITH:
        mask = starts_with(lower, leaf.value, null=False) & starts_with(
            upper, leaf.value, null=False
        )
    elif op is Op.NOT_STARTS_WITH:
        above = compare(lower, Op.GT, leaf.value, null=False) & ~starts_with(
            lower, leaf.value, null=True
        )
        mask = compare(upper, Op.LT, leaf.value, null=False) | above
    else:
        mask = ~nothing
        for value in leaf.value if op is Op.NOT_IN else (leaf.value,):
            mask &= compare(lower, Op.GT, value, null=False) | compare(
                upper, Op.LT, value, null=False
            )
    if op in (Op.LT, Op.LTE, Op.EQ, Op.IN):
        mask &= ~known.may_nan
    return mask & ~known.may_null


def _partition_mask(
    entries: Entries, projected: Bound, checkpoint: Callable[[], None] = lambda: None
) -> Mask:
    def leaf_mask(leaf: Leaf) -> Mask:
        checkpoint()
        column = entries.table[f"partition.{leaf.field_id}"]
        return (
            matches(column, leaf) if comparable_types(column, leaf) else np.ones(len(entries), bool)
        )

    if isinstance(projected, Constant):
        return np.full(len(entries), projected.value)
    return _fold(projected, leaf_mask, len(entries))


def _usable(bounds: Values | None, leaf: Leaf) -> Values | None:
    return bounds if bounds is not None and comparable_types(bounds, leaf) else None


def _any_within(leaf: Leaf, lower: Values | None, upper: Values | None, everything: Mask) -> Mask:
    values: tuple[Any, ...] = leaf.value if leaf.op is Op.IN else (leaf.value,)
    if len(values) > 1:
        mask = any_within(values, lower, upper, len(everything))
        if mask is not None:
            return mask
    if len(values) > _MANY_VALUES:
        below = everything if lower is None else compare(lower, Op.LTE, max(values), null=True)
        above = everything if upper is None else compare(upper, Op.GTE, min(values), null=True)
        return below & above
    mask = ~everything
    for value in values:
        below = everything if lower is None else compare(lower, Op.LTE, value, null=True)
        above = everything if upper is None else compare(upper, Op.GTE, value, null=True)
        mask = mask | (below & above)
    return mask


def _prefix_within(
    prefix: str, lower: Values | None, upper: Values | None, everything: Mask
) -> Mask:
    reaches = everything if upper is None else compare(upper, Op.GTE, prefix, null=True)
    if lower is None:
        return reaches
    return reaches & (
        compare(lower, Op.LTE, prefix, null=True) | starts_with(lower, prefix, null=True)
    )


def _only_excluded(
    leaf: Leaf, lower: Values | None, upper: Values | None, everything: Mask
) -> Mask:
    """Certainly every value is one that `!=`, `not in` or `not starts with` excludes."""
    if lower is None or upper is None:
        return ~everything
    if leaf.op is Op.NOT_STARTS_WITH:
        return starts_with(lower, leaf.value, null=False) & starts_with(
            upper, leaf.value, null=False
        )
    values = leaf.value if leaf.op is Op.NOT_IN else (leaf.value,)
    return is_one_of(lower, values, null=False) & _same(lower, upper)


def _same(lower: Values, upper: Values) -> Mask:
    comparable = [
        bounds.cast(pa.binary()) if pa.types.is_fixed_size_binary(bounds.type) else bounds
        for bounds in (lower, upper)
    ]
    return np.asarray(pc.fill_null(pc.equal(*comparable), fill_value=False)).astype(bool)
