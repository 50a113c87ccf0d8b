"""The kinds of frames that assets take and give, told by their classes' names.

No library is imported for it: who annotates with a class has imported it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import NoneType
from typing import Any, get_args

import pyarrow as pa

from lakehouse.data.writing.input_columns import ArrowData
from lakehouse.engines import engine_for
from lakehouse.errors import InvalidInputError
from lakehouse.table import Table, TableScan
from lakehouse.table.rows import arrow_rows

Loader = Callable[[TableScan], Any]


def _duckdb_relation(scan: TableScan) -> Any:
    return importlib.import_module("duckdb").connect().from_arrow(scan.to_arrow())


_LOADERS: dict[tuple[str, str], Loader] = {
    ("pyarrow", "Table"): TableScan.to_arrow,
    ("pyarrow", "RecordBatchReader"): TableScan.to_batches,
    ("polars", "DataFrame"): TableScan.to_polars,
    ("polars", "LazyFrame"): lambda scan: scan.to_polars().lazy(),
    ("pandas", "DataFrame"): TableScan.to_pandas,
    ("duckdb", "DuckDBPyRelation"): _duckdb_relation,
    ("lakehouse", "TableScan"): lambda scan: scan,
}
_SPARK = ("pyspark", "DataFrame")
_SUPPORTED = (
    "pyarrow.Table, pyarrow.RecordBatchReader, polars.DataFrame, polars.LazyFrame, "
    "pandas.DataFrame, pyspark.sql.DataFrame, duckdb.DuckDBPyRelation, lakehouse.TableScan, "
    "lakehouse.Table"
)


def loader_for(annotation: Any, session: Callable[[], Any], what: str) -> Loader | None:
    """What turns a scan into an annotated type; None for `lakehouse.Table`, which is no rows.

    Args:
        annotation: of the input.
        session: gives the Spark session, asked for Spark frames alone.
        what: names the input in messages.

    Raises:
        InvalidInputError: no annotation, or none that is supported.
    """
    present = [kind for kind in get_args(annotation) if kind is not NoneType]
    if len(present) == 1 and len(get_args(annotation)) == 2:
        annotation = present[0]  # of an asset that reads itself: None on its first run
    if annotation is Table:
        return None
    kind = _kind(annotation) if isinstance(annotation, type) else None
    if kind == _SPARK:
        return lambda scan: scan.to_spark(session())
    found = None if kind is None else _LOADERS.get(kind)
    if found is None:
        given = "no annotation" if annotation is Any else f"the annotation {annotation!r}"
        raise InvalidInputError(f"{what} has {given}: annotate it with one of {_SUPPORTED}")
    return found


def rows_of_frame(frame: Any, table: str) -> tuple[Any, object]:
    """What an asset gave, as the verbs of a table take it, and its schema.

    Returns:
        A Spark frame with its Spark schema, or Arrow rows with an Arrow schema.

    Raises:
        InvalidInputError: these are no rows.
    """
    if engine_for(frame) is not None and hasattr(frame, "schema"):
        return frame, frame.schema
    if frame is None or isinstance(frame, list | tuple | dict | str | Table):
        raise InvalidInputError(
            f"{table}: the asset gave {type(frame).__name__}, which is no table of rows: return "
            f"one of {_SUPPORTED}; an asset that stores nothing is annotated `-> None`",
            table=table,
        )
    if _kind(type(frame)) == ("polars", "LazyFrame"):
        frame = frame.collect()
    rows: ArrowData = arrow_rows(frame, table)
    if not isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        raise InvalidInputError(
            f"{table}: the asset gave {type(frame).__name__}: return one table or stream",
            table=table,
        )
    return rows, rows.schema


def _kind(of: type) -> tuple[str, str]:
    return of.__module__.partition(".")[0].removeprefix("_"), of.__name__
