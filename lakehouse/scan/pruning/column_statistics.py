"""What is known about the values of one column in many files: bounds, nulls, NaN.

Unknown is always an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import DoubleType, FloatType, IcebergType, UUIDType

from lakehouse.expressions.physical_comparison import Column, Mask
from lakehouse.spec.manifests.bounds_columns import decode_bounds
from lakehouse.spec.manifests.manifest_list import FieldSummary
from lakehouse.spec.types.arrow_types import physical_type
from lakehouse.spec.types.uuid_order import order_free


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

    lower: Column | None
    upper: Column | None
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
    lower = decode_bounds(pa.array([one.lower_bound for one in summaries], pa.binary()), kind)
    upper = decode_bounds(pa.array([one.upper_bound for one in summaries], pa.binary()), kind)
    if isinstance(kind, UUIDType):
        lower, upper = order_free(lower, upper, np.ones(len(summaries), bool))
    lower, upper = _in_order(lower, upper)
    floating = isinstance(kind, (FloatType, DoubleType))
    no_bounds = np.array(
        [one.lower_bound is None and one.upper_bound is None for one in summaries], bool
    )
    contains_null = np.array([one.contains_null is not False for one in summaries], bool)
    contains_nan = np.array([floating and one.contains_nan is not False for one in summaries], bool)
    return Statistics(
        lower=lower,
        upper=upper,
        may_null=contains_null,
        all_null=no_bounds & contains_null & ~contains_nan,
        may_nan=contains_nan,
        all_nan=np.zeros(len(summaries), bool),
        no_values=no_bounds & (contains_null | contains_nan),
    )


def _in_order(lower: Column | None, upper: Column | None) -> tuple[Column | None, Column | None]:
    """The bounds, null where the lower one is above the upper one: these contradict each other."""
    if lower is None or upper is None:
        return lower, upper
    inverted = pc.fill_null(pc.greater(lower, upper), False)
    if not pc.any(inverted).as_py():
        return lower, upper
    nothing = pa.scalar(None, lower.type)
    return pc.if_else(inverted, nothing, lower), pc.if_else(inverted, nothing, upper)


def _column(table: pa.Table, name: str) -> Column | None:
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
