"""Splitting batches by partition values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema


def split_by_partition(data: pa.RecordBatch, spec: PartitionSpec, schema: Schema) -> list[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Rows grouped by partition tuple, in order of first appearance; the order of rows within a partition is kept.

    Partition tuples hold Iceberg's internal values (day and date: int days, timestamps: int, decimal: Decimal, uuid: UUID, None).
    """
    raise AssertionError(data, spec, schema)
