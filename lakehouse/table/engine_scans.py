"""A scan handed to an engine: paths of the files that it reads itself, a dataset for the rest."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lakehouse.data.reading.plain_files import plain_paths
from lakehouse.expressions.bound_filter import TRUE
from lakehouse.table.scan_dataset import Scan, ScanDataset, narrowed

# what a path with one of these means to DuckDB is more than one file
_PATTERN = frozenset("*?[]{}\\")


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The files of a scan, parted by who reads them.

    Attributes:
        paths: on disk, of files whose rows are all rows of the scan.
        rest: a scan of the other files; None where there are none.
    """

    paths: tuple[str, ...]
    rest: Scan | None


def handed_over(
    scan: Scan, *, filtered: bool = False, usable: Callable[[str], bool] = lambda _: True
) -> HandedOver:
    """Part the files of a scan. Raises as `TableScan.plan` and `plain_paths`.

    Args:
        scan: of the rows.
        filtered: whether the engine applies the scan's filter itself.
        usable: whether the engine can be given a path.
    """
    request, tasks = scan.request, scan.plan().tasks
    if scan.limit is not None or scan.only is not None:
        return HandedOver((), scan)
    if not set(scan.plan().schema.fields) <= set(request.schema.fields):
        return HandedOver((), scan)  # columns that files do not have, or parts of such
    whole = [task for task in tasks if filtered or task.residual == TRUE]
    paths = {
        task.data_file.file_path: path
        for task, path in zip(whole, plain_paths(whole, request.schema, scan.storage), strict=True)
        if path is not None and usable(path)
    }
    own = [paths[task.data_file.file_path] for task in whole if task.data_file.file_path in paths]
    others = [task.data_file.file_path for task in tasks if task.data_file.file_path not in paths]
    if not own:
        return HandedOver((), scan)
    return HandedOver(tuple(own), narrowed(scan, only=frozenset(others)) if others else None)


def duckdb_relation(scan: Scan, connection: Any) -> Any:
    """See `TableScan.to_duckdb`."""
    duckdb = importlib.import_module("duckdb") if connection is None else connection
    parts = handed_over(scan, usable=lambda path: not _PATTERN & set(path))
    rest = None if parts.rest is None else duckdb.from_arrow(ScanDataset(parts.rest))
    if not parts.paths:
        return rest
    names = (field.name.replace('"', '""') for field in scan.plan().schema.fields)
    relation = duckdb.read_parquet(list(parts.paths), hive_partitioning=False).project(
        ", ".join(f'"{name}"' for name in names)
    )
    return relation if rest is None else relation.union(rest)


def lazyframe(scan: Scan) -> Any:
    """See `TableScan.to_lazyframe`."""
    polars = importlib.import_module("polars")
    parts = handed_over(scan)
    rest = None if parts.rest is None else polars.scan_pyarrow_dataset(ScanDataset(parts.rest))
    if not parts.paths:
        return rest
    names = [field.name for field in scan.plan().schema.fields]
    frame = polars.scan_parquet(list(parts.paths), glob=False, hive_partitioning=False).select(
        names
    )
    return frame if rest is None else polars.concat([frame, rest])
