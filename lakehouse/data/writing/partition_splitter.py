"""Splitting batches by partition values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform

from lakehouse.data.conversion.columns_by_id import column_at, find_path
from lakehouse.data.conversion.single_values import internal_values
from lakehouse.expressions.transforms.partition_transforms import transform_array

Partition = tuple[Any, ...]

_MOST_CODES = 2**62


class PartitionSplitter:
    """Splits batch after batch by one spec.

    Args:
        spec: partition spec.
        schema: table schema that the spec's source ids refer to.

    Raises:
        InvalidPartitionSpecError: a source column that is not in the schema, or a transform that
            does not apply.
        UnsupportedFeatureError: an unknown transform.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        # void fields are always null, also when their column is gone: tables that were once v1 keep
        # them forever
        self._void = tuple(isinstance(one.transform, VoidTransform) for one in spec.fields)
        self._transforms = []
        for one in spec.fields:
            if isinstance(one.transform, VoidTransform):
                continue
            path, source = find_path(schema, one.source_id)
            result_type = one.transform.result_type(source.field_type)
            self._transforms.append((one.transform, path, source.field_type, result_type))

    def split(self, data: pa.RecordBatch) -> list[tuple[Partition, pa.RecordBatch]]:
        """Rows by partition tuple, in order of first appearance and each in its order.

        Partition tuples hold Iceberg's internal values (day and date: int days, timestamps: int,
        decimal: Decimal, uuid: UUID, None).

        Args:
            data: rows in the Arrow schema of the table.
        """
        if data.num_rows == 0:
            return []
        if not self._transforms:
            return [((None,) * len(self._void), data)]
        columns = [
            _canonical(transform_array(transform, column_at(data, path), source))
            for transform, path, source, _ in self._transforms
        ]
        codes, first_rows = _group(columns)
        firsts = pa.array(first_rows)
        values = [
            internal_values(column.take(firsts), kind)
            for column, (_, _, _, kind) in zip(columns, self._transforms, strict=True)
        ]
        known = iter(values)
        nulls = [None] * len(first_rows)
        partitions = list(
            zip(*(nulls if void else next(known) for void in self._void), strict=True)
        )
        if len(partitions) == 1:
            return [(partitions[0], data)]
        order = pa.array(np.argsort(codes, kind="stable"))
        ends = np.cumsum(np.bincount(codes, minlength=len(partitions))).tolist()
        starts = [0, *ends[:-1]]
        return [
            (partition, data.take(order.slice(start, end - start)))
            for partition, start, end in zip(partitions, starts, ends, strict=True)
        ]


def _canonical(column: pa.Array) -> pa.Array:
    """One NaN: the many bit patterns of NaN are one partition value. -0.0 and 0.0 stay two."""
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    return column


def _group(columns: Sequence[pa.Array]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Group number of each row, numbered by first appearance, and the first row of each group."""
    combined: npt.NDArray[np.int64] | None = None
    size = 1
    for column in columns:
        encoded = _encodable(column).dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy()
        width = len(encoded.dictionary)
        if combined is None:
            combined, size = indices.astype(np.int64), width
            continue
        if size * width > _MOST_CODES:
            combined = _dense(combined)
            size = int(combined.max()) + 1
        combined, size = combined * width + indices, size * width
    if combined is None:
        raise AssertionError("a partition spec without fields has one group")
    codes = _dense(combined)
    groups = int(codes.max()) + 1
    first_rows = np.full(groups, len(codes), dtype=np.int64)
    np.minimum.at(first_rows, codes, np.arange(len(codes)))
    # numpy sorts 16-bit integers stably in linear time
    return codes.astype(np.uint16) if groups <= 2**16 else codes, first_rows


def _dense(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    dense: npt.NDArray[np.int64] = (
        pa.array(codes).dictionary_encode().indices.to_numpy().astype(np.int64)
    )
    return dense


def _encodable(column: pa.Array) -> pa.Array:
    """Floating point by its bits, so that -0.0 and 0.0 are told apart."""
    if pa.types.is_float32(column.type):
        return column.view(pa.int32())
    if pa.types.is_float64(column.type):
        return column.view(pa.int64())
    return column
