"""Parquet pages decoded by Polars, in half the time that Arrow's own reader takes (ADR 7).

It evaluates a part of the filter while it decodes, so that fewer rows are decoded in full.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import polars as pl
import pyarrow as pa
from pyiceberg.types import StringType

from lakehouse.data.reading.polars.polars_columns import VIEWS, DecodedColumns
from lakehouse.expressions.bound_filter import Bound, Leaf, Op, fold
from lakehouse.expressions.transforms.partition_transforms import arrow_array

# Arrow's builders copy what they have each time that they grow: text is better converted in pieces.
_TEXT_ROWS = 131_072
_PLAIN_ROWS = 1_048_576


class NotDecodedError(Exception):
    """Polars gave something else than what the file says; Arrow's reader decides what is wrong."""


def decode(
    sources: list[bytes] | list[str],
    columns: DecodedColumns,
    lengths: Sequence[int],
    *,
    first_row: int | None = None,
    where: Bound | None = None,
    filterable: Mapping[int, tuple[str, pa.DataType]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The columns of files as batches, in the order of the files and of their rows.

    Args:
        sources: the bytes of each file, or its local path.
        columns: to decode.
        lengths: rows of the row groups to read, of all files.
        first_row: where they begin in a single file of which only a part is wanted; None to read
            the files whole.
        where: rows for which this is not true may be left out of files that are read whole.
        filterable: what `to_polars_filter` may look at.

    Raises:
        NotDecodedError: Polars cannot read a file, or reads it as something else.
    """
    predicate = None if where is None else to_polars_filter(where, filterable or {})
    try:
        scan = pl.scan_parquet(
            sources, glob=False, hive_partitioning=False, use_statistics=False, cache=False
        )
        if first_row is not None:
            scan = scan.slice(first_row, sum(lengths))
        if predicate is not None:
            scan = scan.filter(predicate)
        frame = scan.select(columns.names).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise NotDecodedError(str(error)) from error
    if predicate is not None:
        lengths = [frame.height]
    elif frame.height != sum(lengths):
        raise NotDecodedError(f"{frame.height} rows came where the footers say {sum(lengths)}")
    most = _TEXT_ROWS if any(kind in VIEWS for kind in columns.types) else _PLAIN_ROWS
    for start, rows in _pieces(lengths, most):
        yield _batch(frame.slice(start, rows), columns)


def _pieces(lengths: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Where batches of so many rows at most start, and their rows.

    Polars keeps a chunk for each row group: what lies within one is handed over without a copy, and
    copied where they are short.
    """
    start = rows = 0
    for length in lengths:
        if rows + length > most and rows:
            yield start, rows
            start, rows = start + rows, 0
        rows += length
        while rows > most:
            yield start, most
            start, rows = start + most, rows - most
    if rows:
        yield start, rows


def _batch(frame: pl.DataFrame, columns: DecodedColumns) -> pa.RecordBatch:
    table = pa.table(frame)
    if tuple(table.schema.types) != columns.types:
        raise NotDecodedError(
            f"columns {', '.join(columns.names)} came as {table.schema.types}, not {columns.types}"
        )
    return table.combine_chunks().to_batches()[0]


_COMPARISONS: dict[Op, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    Op.LT: lambda column, value: column < value,
    Op.LTE: lambda column, value: column <= value,
    Op.GT: lambda column, value: column > value,
    Op.GTE: lambda column, value: column >= value,
    Op.EQ: lambda column, value: column == value,
}


def to_polars_filter(
    where: Bound, columns: Mapping[int, tuple[str, pa.DataType]]
) -> pl.Expr | None:
    """An expression for rows that may pass the filter; None when it would keep all of them.

    The filter itself is applied to what this lets through, so what Polars sees differently
    (or not at all) is left out.

    Args:
        where: the filter.
        columns: field id -> name and Arrow type of a column of the file, which must be those of the
            table's type.
    """
    return fold(
        where,
        lambda leaf: _leaf(leaf, columns),
        lambda value: None if value else pl.lit(value=False),
        _every,
        _some,
    )


def _every(parts: Sequence[pl.Expr | None]) -> pl.Expr | None:
    known = [part for part in parts if part is not None]
    return reduce(operator.and_, known) if known else None


def _some(parts: Sequence[pl.Expr | None]) -> pl.Expr | None:
    known = [part for part in parts if part is not None]
    return reduce(operator.or_, known) if len(known) == len(parts) else None


def _leaf(leaf: Leaf, columns: Mapping[int, tuple[str, pa.DataType]]) -> pl.Expr | None:
    if leaf.field_id not in columns:
        return None
    name, kind = columns[leaf.field_id]
    column = pl.col(name)
    if leaf.op is Op.IS_NULL:
        return column.is_null()
    if leaf.op is Op.NOT_NULL:
        return column.is_not_null()
    if leaf.op is Op.STARTS_WITH and isinstance(leaf.type, StringType):
        return column.str.starts_with(leaf.value)
    if leaf.op is Op.IN:
        values = _series(leaf.value, leaf, kind)
        return None if values is None else column.is_in(values.implode())
    if leaf.op in _COMPARISONS:
        values = _series((leaf.value,), leaf, kind)
        return None if values is None else _COMPARISONS[leaf.op](column, _literal(values))
    return None


def _literal(values: pl.Series) -> pl.Expr:
    """The only value; by its physical form, since Python has no nanoseconds."""
    physical = values.to_physical()
    return pl.lit(physical.item(), dtype=physical.dtype).cast(values.dtype)


def _series(values: tuple[Any, ...], leaf: Leaf, kind: pa.DataType) -> pl.Series | None:
    array = arrow_array(list(values), leaf.type)
    found = pl.from_arrow(array)
    return found if array.type == kind and isinstance(found, pl.Series) else None
