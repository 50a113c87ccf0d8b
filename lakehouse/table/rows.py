"""Rows as users give them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakehouse.arrow.coerce import ArrowData
from lakehouse.errors import InvalidInputError
from lakehouse.spec.data_file import DataFile


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Rows that lie in data files of the table already, written by `Table.write_files` or with its `write_request` elsewhere.

    Verbs that take rows take them, and commit the files as they are.
    """

    files: tuple[DataFile, ...]


def arrow_rows(data: object, table: str) -> ArrowData:
    """Anything that speaks Arrow's C interfaces (PyArrow, Polars, DuckDB) or yields batches. Raises InvalidInputError."""
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return pa.record_batch(data)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return _batches(data, table)
    raise _wrong(type(data).__name__, table)


def _batches(items: Iterable[object], table: str) -> Iterator[pa.RecordBatch]:
    for item in items:
        if isinstance(item, pa.RecordBatch):
            yield item
        elif isinstance(item, pa.Table):
            yield from item.to_batches()
        else:
            raise _wrong(f"{type(item).__name__} by {type(item).__name__}", table)


def _wrong(given: str, table: str) -> InvalidInputError:
    return InvalidInputError(
        f"{table}: rows come as a pyarrow Table, RecordBatch, RecordBatchReader, several batches or tables, or a Spark "
        f"DataFrame, not {given}; a list of dictionaries becomes a table with pyarrow.Table.from_pylist(rows)",
        table=table,
    )
