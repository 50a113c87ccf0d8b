"""Rows as users give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from lakehouse.arrow.coerce import ArrowData
from lakehouse.errors import InvalidInputError


def arrow_rows(data: object, table: str) -> ArrowData:
    """Anything that speaks Arrow's C interfaces (PyArrow, Polars, DuckDB) or yields batches. Raises InvalidInputError."""
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return pa.record_batch(data)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return data
    raise InvalidInputError(
        f"{table}: rows come as a pyarrow Table, RecordBatch, RecordBatchReader, batches or a Spark DataFrame, "
        f"not {type(data).__name__}",
        table=table,
    )
