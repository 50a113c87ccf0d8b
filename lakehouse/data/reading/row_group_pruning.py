"""Which row groups of a Parquet file a filter can skip, by the footer's statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.types import PrimitiveType

from lakehouse.data.conversion.parquet_bounds import decode_statistic
from lakehouse.data.reading.parquet_footer import ColumnChunk, plain_value
from lakehouse.expressions.bound_filter import Bound, leaves
from lakehouse.scan.pruning.entry_pruning import may_match
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.types.arrow_types import physical_type, to_physical


def in_range(chunks: Sequence[Sequence[ColumnChunk]], start: int, length: int) -> list[int]:
    """Row groups whose first byte lies in the byte range."""
    return [
        group
        for group, columns in enumerate(chunks)
        if columns and start <= columns[0].start < start + length
    ]


def prune(
    footer: pq.FileMetaData,
    chunks: Sequence[Sequence[ColumnChunk]],
    groups: Sequence[int],
    where: Bound,
    columns: Mapping[int, int],
    types: Mapping[int, PrimitiveType],
) -> list[int]:
    """The row groups that may hold a matching row.

    Args:
        footer: of the file.
        chunks: its column chunks by row group.
        groups: candidates.
        where: the filter.
        columns: field id -> Parquet leaf column, for unrepeated primitive fields that are in the
            file.
        types: field id -> type in the table's schema.
    """
    wanted = sorted({leaf.field_id for leaf in leaves(where)} & columns.keys())
    if not wanted or not groups:
        return list(groups)
    table: dict[str, pa.Array] = {
        "record_count": pa.array(
            [footer.row_group(group).num_rows for group in groups], pa.int64()
        ),
        "split_offsets": pa.array([[chunks[group][0].start] for group in groups]),
    }
    for field_id in wanted:
        index = columns[field_id]
        column = [chunks[group][index] for group in groups]
        table.update(_statistics(column, footer.schema.column(index), field_id, types[field_id]))
    mask = may_match(Entries(pa.table(table), UNPARTITIONED_PARTITION_SPEC), where, types)
    return [group for group, keep in zip(groups, np.asarray(mask).tolist(), strict=True) if keep]


def _statistics(
    chunks: Sequence[ColumnChunk], column: Any, field_id: int, kind: PrimitiveType
) -> dict[str, pa.Array]:
    def bound(raw: bytes | None) -> Any:
        return _usable(decode_statistic(plain_value(raw, column.physical_type), column, kind))

    target = physical_type(kind)
    return {
        f"lower.{field_id}": _array([bound(one.minimum) for one in chunks], target),
        f"upper.{field_id}": _array([bound(one.maximum) for one in chunks], target),
        f"null_count.{field_id}": pa.array([one.null_count for one in chunks], pa.int64()),
        f"value_count.{field_id}": pa.array([one.values for one in chunks], pa.int64()),
    }


def _usable(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _array(values: Sequence[Any], target: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(target):
        values = [None if value is None else _decimal(value, target.scale) for value in values]
    return pa.array([to_physical(value) for value in values], target)


def _decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(int(digit) for digit in str(abs(unscaled))), -scale))
