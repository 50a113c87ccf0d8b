"""Ordering rows by an Iceberg sort order (spec: Sorting)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder

from lakehouse.data.conversion.columns_by_id import column_at, find_path
from lakehouse.expressions.transforms.partition_transforms import transform_array


class RowSorter:
    """Sorts tables that have the Arrow schema of `schema`.

    Raises:
        InvalidPartitionSpecError: a sort field whose source is not in the schema.
    """

    def __init__(self, order: SortOrder, schema: Schema) -> None:
        self._keys = [(one, *find_path(schema, one.source_id)) for one in order.fields]

    @property
    def sorts(self) -> bool:
        """False for the unsorted order."""
        return bool(self._keys)

    def indices(self, data: pa.Table) -> pa.Array:
        """Row numbers in sorted order; equal rows keep theirs."""
        names, columns, sort_keys = [], [], []
        for number, (one, path, source) in enumerate(self._keys):
            values = transform_array(one.transform, column_at(data, path), source.field_type)
            if values.null_count:
                # nulls first: not-null = false sorts before true
                first = one.null_order == NullOrder.NULLS_FIRST
                columns.append(pc.cast(pc.is_valid(values), pa.uint8()))
                names.append(f"n{number}")
                sort_keys.append((f"n{number}", "ascending" if first else "descending"))
            columns.append(_comparable(values))
            names.append(f"v{number}")
            sort_keys.append(
                (f"v{number}", "ascending" if one.direction == SortDirection.ASC else "descending")
            )
        return pc.sort_indices(pa.table(columns, names=names), sort_keys=sort_keys)

    def sort(self, data: pa.Table) -> pa.Table:
        """The rows, sorted."""
        indices = self.indices(data)
        if _is_identity(indices):
            return data
        return data.take(indices)

    def follows(self, last: pa.Table, following: pa.Table) -> bool:
        """Whether the first row of `following` may come after the last one of `last`, sorted."""
        pair = pa.concat_tables([last.slice(last.num_rows - 1), following.slice(0, 1)])
        return bool(self.indices(pair)[0].as_py() == 0)


def _is_identity(indices: pa.Array) -> bool:
    numbers = indices.to_numpy()
    return bool(np.array_equal(numbers, np.arange(len(numbers), dtype=numbers.dtype)))


def _comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats as integers in the order -Infinity < -value < -0 < 0 < value < Infinity < NaN."""
    if not pa.types.is_floating(values.type):
        return values
    chunks = []
    for chunk in values.chunks:
        numbers = pc.fill_null(chunk, 0).to_numpy(zero_copy_only=False).astype(np.float64)
        numbers = np.where(np.isnan(numbers), np.nan, numbers)
        bits = numbers.view(np.int64)
        ordered = bits ^ ((bits >> np.int64(63)) & np.int64(0x7FFF_FFFF_FFFF_FFFF))
        chunks.append(
            pa.array(
                ordered,
                mask=chunk.is_null().to_numpy(zero_copy_only=False) if chunk.null_count else None,
            )
        )
    return pa.chunked_array(chunks, pa.int64())
