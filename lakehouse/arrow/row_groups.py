"""Which row groups of a Parquet file a filter can skip, by the footer's statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.types import PrimitiveType

from lakehouse.arrow.bounds import decode_statistic
from lakehouse.arrow.metrics import row_group_start
from lakehouse.expressions.bound import Bound, leaves
from lakehouse.expressions.prune import may_match
from lakehouse.spec.entries import Entries
from lakehouse.spec.physical import physical_type, to_physical


def in_range(footer: pq.FileMetaData, start: int, length: int) -> list[int]:
    """Row groups that start in the byte range; all of them when `length` is 0."""
    groups = range(footer.num_row_groups)
    if length <= 0:
        return list(groups)
    return [group for group in groups if start <= row_group_start(footer.row_group(group)) < start + length]


def prune(
    footer: pq.FileMetaData, groups: Sequence[int], where: Bound, columns: Mapping[int, int], types: Mapping[int, PrimitiveType]
) -> list[int]:
    """The row groups that may hold a matching row.

    Args:
        footer: of the file.
        groups: candidates.
        where: the filter.
        columns: field id -> Parquet leaf column, for unrepeated primitive fields that are in the file.
        types: field id -> type in the table's schema.
    """
    wanted = sorted({leaf.field_id for leaf in leaves(where)} & columns.keys())
    if not wanted or not groups:
        return list(groups)
    table: dict[str, pa.Array] = {
        "record_count": pa.array([footer.row_group(group).num_rows for group in groups], pa.int64()),
    }
    for field_id in wanted:
        table.update(_statistics(footer, groups, field_id, columns[field_id], types[field_id]))
    mask = may_match(Entries(pa.table(table), UNPARTITIONED_PARTITION_SPEC), where, types)
    return [group for group, keep in zip(groups, np.asarray(mask).tolist(), strict=True) if keep]


def _statistics(
    footer: pq.FileMetaData, groups: Sequence[int], field_id: int, index: int, kind: PrimitiveType
) -> dict[str, pa.Array]:
    column = footer.schema.column(index)
    lows: list[Any] = []
    highs: list[Any] = []
    nulls: list[int | None] = []
    values: list[int] = []
    for group in groups:
        chunk = footer.row_group(group).column(index)
        one = chunk.statistics
        values.append(chunk.num_values)
        nulls.append(one.null_count if one is not None and one.has_null_count else None)
        bounded = one is not None and one.has_min_max
        lows.append(_usable(decode_statistic(one.min_raw, column, kind)) if bounded else None)
        highs.append(_usable(decode_statistic(one.max_raw, column, kind)) if bounded else None)
    target = physical_type(kind)
    return {
        f"lower.{field_id}": _array(lows, target),
        f"upper.{field_id}": _array(highs, target),
        f"null_count.{field_id}": pa.array(nulls, pa.int64()),
        f"value_count.{field_id}": pa.array(values, pa.int64()),
    }


def _usable(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _array(values: Sequence[Any], target: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(target):
        words = b"".join((0 if value is None else value).to_bytes(16, "little", signed=True) for value in values)
        plain = pa.Array.from_buffers(target, len(values), [None, pa.py_buffer(words)])
        present = pa.array([value is not None for value in values])
        return pa.array([one if ok else None for one, ok in zip(plain.to_pylist(), present.to_pylist(), strict=True)], target)
    return pa.array([to_physical(value) for value in values], target)
