"""Rows as users give them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakehouse.data.writing.input_columns import ArrowData
from lakehouse.errors import InvalidInputError
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.table.scan import TableScan

_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Rows that are in data files of the table already.

    `Table.write_files` wrote them, or another process with the table's `write_request`.

    >>> files = events.write_files(more)
    >>> events.append(lh.WrittenFiles(tuple(files))).rows_inserted
    1

    Methods that take rows accept this, and commit the files unchanged.
    """

    files: tuple[DataFile, ...]


def arrow_rows(data: object, table: str, columns: Collection[str] = ()) -> ArrowData:
    """Anything that speaks Arrow's C interfaces, or yields what does.

    The unnamed index that pandas gives a frame is no column, unless the table has it.

    Args:
        data: pyarrow's and Polars' tables and batches, a frame of pandas (NaN becomes null), a
            relation of DuckDB, a scan, or several of these.
        table: the name of the table that takes the rows, for messages.
        columns: names of the table's columns.

    Raises:
        InvalidInputError: these are no rows.
    """
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return _without_index(data, columns)
    if isinstance(data, TableScan):
        return data.to_batches()  # through C its errors would lose their types
    if not (hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")):
        if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
            return _batches(data, table, columns)
        raise _wrong(type(data).__name__, table)
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return _without_index(pa.RecordBatchReader.from_stream(data), columns)
        return pa.record_batch(data)
    except (TypeError, ValueError) as error:  # pandas: two columns of one name
        raise _wrong(f"{type(data).__name__} ({error})", table) from error


class RowsAgain:
    """Rows that are asked for as often as a merge is planned or executed.

    Args:
        data: see `arrow_rows`, which raises for what are no rows.
        table: the name of the table that takes them, for messages.
    """

    def __init__(self, data: object, table: str) -> None:
        self._data, self._table = data, table
        self._first: ArrowData | None = arrow_rows(data, table)

    def rows(self) -> ArrowData:
        """All of them. Raises InvalidInputError for a stream that has been read."""
        first, self._first = self._first, None
        if first is not None:
            return first
        parts = self._data if isinstance(self._data, list | tuple) else [self._data]
        if any(isinstance(part, Iterator) for part in parts):
            raise InvalidInputError(
                f"{self._table}: the source is a stream, and its rows have been read: give a table "
                "or a frame, which can be read again",
                table=self._table,
            )
        return arrow_rows(self._data, self._table)


def _without_index(
    data: pa.Table | pa.RecordBatch | pa.RecordBatchReader, columns: Collection[str]
) -> pa.Table | pa.RecordBatch | pa.RecordBatchReader:
    if b"pandas" not in (data.schema.metadata or {}):
        return data
    kept = [
        name for name in data.schema.names if name in columns or not _UNNAMED_INDEX.fullmatch(name)
    ]
    if len(kept) == len(data.schema):
        return data
    if not isinstance(data, pa.RecordBatchReader):
        return data.select(kept)
    schema = pa.schema([data.schema.field(one) for one in kept])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(kept) for batch in data))


def _batches(
    items: Iterable[object], table: str, columns: Collection[str]
) -> Iterator[pa.RecordBatch]:
    for item in items:
        if not (hasattr(item, "__arrow_c_stream__") or hasattr(item, "__arrow_c_array__")):
            raise _wrong(f"{type(item).__name__} by {type(item).__name__}", table)
        rows = arrow_rows(item, table, columns)
        if isinstance(rows, pa.RecordBatch):
            yield rows
        else:
            yield from rows.to_batches() if isinstance(rows, pa.Table) else rows


def _wrong(given: str, table: str) -> InvalidInputError:
    return InvalidInputError(
        f"{table}: rows come as a table, batch or stream of Arrow (pyarrow, Polars, pandas, "
        f"DuckDB, a scan), several of these, or a Spark DataFrame, not {given}; a list of "
        "dictionaries becomes a table with pyarrow.Table.from_pylist(rows), a LazyFrame a frame "
        "with collect()",
        table=table,
    )
