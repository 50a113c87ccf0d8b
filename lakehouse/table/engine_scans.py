"""A scan handed to an engine: paths of the files that it reads itself, a dataset for the rest."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.types import DoubleType, FloatType, NestedField, StructType

from lakehouse.data.deletes.deletion_vector import Positions
from lakehouse.data.reading.plain_files import plain_paths, read_alike
from lakehouse.data.reading.scan_reader import deleted_positions
from lakehouse.expressions.bound_filter import TRUE
from lakehouse.scan.planner import bound_request
from lakehouse.scan.reports.listeners import ENGINE_ARROW, Listeners, silenced
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import CONTENT_POSITION_DELETES
from lakehouse.storage.storage_protocol import path_on_disk
from lakehouse.table.scan_dataset import Scan, ScanDataset, narrowed

# what a path with one of these means to DuckDB and DataFusion is more than one file
PATTERN = frozenset("*?[]{}\\")
# columns of these names hide those by which DuckDB numbers files and rows
_NUMBERS = frozenset({"file_index", "file_row_number"})


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The files of a scan, parted by who reads them.

    Attributes:
        paths: on disk, of files whose rows are all rows of the scan.
        deleted: paths of files whose rows are so, but for those at these ascending positions.
        rest: a scan of the other files; None where there are none.
    """

    paths: tuple[str, ...]
    deleted: Mapping[str, Positions]
    rest: Scan | None


def handed_over(
    scan: Scan,
    *,
    filtered: bool = False,
    positions: bool = False,
    usable: Callable[[str], bool] = lambda _: True,
) -> HandedOver:
    """Part the files of a scan.

    Raises as `TableScan.plan`, `plain_paths` and `deleted_positions`.

    Args:
        scan: of the rows.
        filtered: whether the engine applies the scan's filter itself.
        positions: whether the engine leaves out rows by their positions; else files with deletes
            are of the rest.
        usable: whether the engine can be given a path.
    """
    if scan.limit is not None or scan.only is not None:
        return HandedOver((), {}, scan)
    request = scan.request
    on_disk = path_on_disk(scan.storage, request.metadata.location) is not None
    if not on_disk or not read_alike(request.schema):
        return HandedOver((), {}, scan)
    projected, _, _ = bound_request(request)
    if not set(projected.fields) <= set(request.schema.fields):
        return HandedOver((), {}, scan)  # columns that files do not have, or parts of such
    floating = list(_floating(projected.fields))
    counting = replace(request, include_metrics=request.include_metrics or bool(floating))
    with silenced():  # listeners get one report of a query, whoever reads
        plan = narrowed(scan, request=counting).plan()
    tasks = plan.tasks
    listed = Counter(task.data_file.file_path for task in tasks)
    whole = [
        task
        for task in tasks
        if (filtered or task.residual == TRUE)
        # each time that a file is in the table it has deletes of its own
        and listed[task.data_file.file_path] == 1
        # engines skip row groups by bounds, which leave NaN out, though it is above every number
        and all(task.data_file.nan_value_counts.get(column) == 0 for column in floating)
        and (not task.deletes or (positions and _by_position(task)))
    ]
    paths = plain_paths(whole, request.schema, scan.storage)
    plain = {
        task.data_file.file_path: path
        for task, path in zip(whole, paths, strict=True)
        if path is not None and usable(path)
    }
    if not plain:
        return HandedOver((), {}, scan)
    scan.listeners.planned(scan.name, plan.report, engine=ENGINE_ARROW)
    own = [task for task in whole if task.data_file.file_path in plain]
    others = {task.data_file.file_path for task in tasks} - plain.keys()
    changed = [(task.data_file, task.deletes) for task in own if task.deletes]
    gone = deleted_positions(changed, request.metadata, scan.storage)
    return HandedOver(
        tuple(plain[task.data_file.file_path] for task in own if not task.deletes),
        {plain[file.file_path]: rows for (file, _), rows in zip(changed, gone, strict=True)},
        narrowed(scan, only=frozenset(others), listeners=Listeners()) if others else None,
    )


def _floating(fields: Iterable[NestedField]) -> Iterator[int]:
    """Columns that can hold NaN and have bounds: not within lists."""
    for field in fields:
        if isinstance(field.field_type, FloatType | DoubleType):
            yield field.field_id
        elif isinstance(field.field_type, StructType):
            yield from _floating(field.field_type.fields)


def _by_position(task: FileScanTask) -> bool:
    return all(delete.content == CONTENT_POSITION_DELETES for delete in task.deletes)


def duckdb_relation(scan: Scan, connection: Any) -> Any:
    """See `TableScan.to_duckdb`."""
    duckdb = importlib.import_module("duckdb") if connection is None else connection
    hidden = _NUMBERS & {field.name.lower() for field in scan.request.schema.fields}
    parts = handed_over(scan, positions=not hidden, usable=lambda path: not PATTERN & set(path))
    fields = bound_request(scan.request)[0].fields
    names = (field.name.replace('"', '""') for field in fields)
    columns = ", ".join(f'"{name}"' for name in names)
    relations = []
    if parts.paths:
        files = duckdb.read_parquet(list(parts.paths), hive_partitioning=False)
        relations.append(files.project(columns))
    if parts.deleted:
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in parts.deleted)
        numbered = duckdb.sql(
            f"select {columns}, file_index, file_row_number "
            f"from read_parquet([{listed}], hive_partitioning = false)"
        ).set_alias("live")
        gone = duckdb.from_arrow(_gone(parts.deleted.values())).set_alias("gone")
        here = "live.file_index = gone.file and live.file_row_number = gone.row"
        relations.append(numbered.join(gone, here, how="anti").project(columns))
    if parts.rest is not None:
        relations.append(duckdb.from_arrow(ScanDataset(parts.rest)))
    return reduce(lambda relation, other: relation.union(other), relations)


def _gone(positions: Iterable[Positions]) -> pa.Table:
    """Rows that are deleted, by the number of the file and their own in it."""
    rows = list(positions)
    lengths = [len(deleted) for deleted in rows]
    return pa.table(
        {
            "file": np.repeat(np.arange(len(rows), dtype=np.uint64), lengths),
            "row": np.concatenate(rows).astype(np.int64),
        }
    )


def lazyframe(scan: Scan) -> Any:
    """See `TableScan.to_lazyframe`."""
    polars = importlib.import_module("polars")
    parts = handed_over(scan)
    rest = None if parts.rest is None else _io_source(polars, ScanDataset(parts.rest))
    if not parts.paths:
        return rest
    names = [field.name for field in bound_request(scan.request)[0].fields]
    frame = polars.scan_parquet(list(parts.paths), glob=False, hive_partitioning=False).select(
        names
    )
    return frame if rest is None else polars.concat([frame, rest])


def _io_source(polars: Any, dataset: ScanDataset) -> Any:
    """A LazyFrame over a dataset; Polars' own has no rows in a query that needs no columns."""
    from_dataset = polars.scan_pyarrow_dataset(dataset)

    def rows(
        columns: list[str] | None, predicate: Any, most: int | None, _batch_rows: int | None
    ) -> Iterator[Any]:
        frame = from_dataset if most is None else from_dataset.head(most)
        if predicate is not None:
            frame = frame.filter(predicate)
        if columns == []:
            height = frame.select(dataset.schema.names[:1]).collect().height
            yield polars.DataFrame(height=height)
        else:
            yield frame.select(columns or polars.all()).collect()

    plugins = importlib.import_module("polars.io.plugins")
    return plugins.register_io_source(rows, schema=from_dataset.collect_schema())
