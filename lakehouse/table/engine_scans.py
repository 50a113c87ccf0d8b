"""A scan handed to an engine: paths of the files that it reads itself, a dataset for the rest."""

from __future__ import annotations

import hashlib
import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import accumulate, count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakehouse.data.deletes.deletion_vector import Positions
from lakehouse.data.reading.parquet_reader import (
    PARQUET_OPTIONS,
    as_metadata_file,
    load_footer,
    readable,
)
from lakehouse.data.reading.scan_reader import deleted_positions
from lakehouse.expressions.bound_filter import TRUE
from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.scan.planner import bound_request
from lakehouse.scan.reports.listeners import ENGINE_ARROW, Listeners, silenced
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import CONTENT_POSITION_DELETES
from lakehouse.spec.schema.iceberg_types import once
from lakehouse.spec.types.arrow_types import field_id_of, schema_to_arrow
from lakehouse.storage.storage_protocol import Storage, path_on_disk
from lakehouse.table.scan_dataset import Scan, ScanDataset, narrowed

# what a path with one of these means to DuckDB and DataFusion is more than one file
PATTERN = frozenset("*?[]{}\\")
# columns of these names hide those by which DuckDB numbers files and rows
_NUMBERS = frozenset({"file_index", "file_row_number"})
_MOST_NUMBERED = 2**32 - 2
"""Rows that Polars can number in a scan."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The files of a scan, parted by who reads them.

    Attributes:
        paths: on disk, of files whose rows are all rows of the scan.
        deleted: paths of files whose rows are so, but for those at these ascending positions.
        rest: a scan of the other files; None where there are none.
        rows: how many each of the files that are handed over has, deleted ones too.
    """

    paths: tuple[str, ...]
    deleted: Mapping[str, Positions]
    rest: Scan | None
    rows: Mapping[str, int] = field(default_factory=dict)


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
        {plain[task.data_file.file_path]: task.data_file.record_count for task in own},
    )


def _floating(fields: Iterable[NestedField]) -> Iterator[int]:
    """Columns that can hold NaN and have bounds: not within lists."""
    for column in fields:
        if isinstance(column.field_type, FloatType | DoubleType):
            yield column.field_id
        elif isinstance(column.field_type, StructType):
            yield from _floating(column.field_type.fields)


def _by_position(task: FileScanTask) -> bool:
    return all(delete.content == CONTENT_POSITION_DELETES for delete in task.deletes)


def duckdb_relation(scan: Scan, connection: Any) -> Any:
    """See `TableScan.to_duckdb`."""
    duckdb = importlib.import_module("duckdb") if connection is None else connection
    hidden = _NUMBERS & {column.name.lower() for column in scan.request.schema.fields}
    parts = handed_over(scan, positions=not hidden, usable=lambda path: not PATTERN & set(path))
    fields = bound_request(scan.request)[0].fields
    names = (column.name.replace('"', '""') for column in fields)
    columns = ", ".join(f'"{name}"' for name in names)
    relations = []
    if parts.paths:
        files = duckdb.read_parquet(list(parts.paths), hive_partitioning=False)
        relations.append(files.project(columns))
    if parts.deleted:
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in parts.deleted)
        live = duckdb.sql(
            f"select {columns}, file_index, file_row_number "
            f"from read_parquet([{listed}], hive_partitioning = false)"
        ).set_alias("live")
        gone = duckdb.from_arrow(numbered(parts.deleted.values())).set_alias("gone")
        here = "live.file_index = gone.file and live.file_row_number = gone.row"
        relations.append(live.join(gone, here, how="anti").project(columns))
    if parts.rest is not None:
        relations.append(duckdb.from_arrow(ScanDataset(parts.rest)))
    return reduce(lambda relation, other: relation.union(other), relations)


def numbered(positions: Iterable[Positions]) -> pa.Table:
    """Rows, by the number of their file and their own in it: columns `file` and `row`."""
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
    parts = handed_over(scan, positions=True)
    if sum(parts.rows.values()) > _MOST_NUMBERED:
        parts = handed_over(narrowed(scan, listeners=Listeners()))
    names = [column.name for column in bound_request(scan.request)[0].fields]
    frames = []
    if parts.paths or parts.deleted:
        number = unused("row", (column.name for column in scan.request.schema.fields))
        frame = polars.scan_parquet(
            [*parts.deleted, *parts.paths],
            glob=False,
            hive_partitioning=False,
            row_index_name=number if parts.deleted else None,
        )
        if parts.deleted:
            frame = frame.filter(_is_left(polars, number, parts))
        frames.append(frame.select(_named(names)))
    if parts.rest is not None:
        dataset = ScanDataset(parts.rest)
        frames.append(polars.scan_pyarrow_dataset(dataset))
    return frames[0] if parts.rest is None else _io_source(polars, frames, names)


def _named(names: Iterable[str]) -> Any:
    """Columns of Polars by their names, of which some would be patterns: `*`, `^a$`."""
    return importlib.import_module("polars.selectors").by_name(*names)


def unused(name: str, columns: Iterable[str]) -> str:
    """A name for a column that is none of these, whatever their case."""
    taken = {column.lower() for column in columns}
    return next(candidate for length in count() if (candidate := name + "_" * length) not in taken)


def _is_left(polars: Any, number: str, parts: HandedOver) -> Any:
    """Whether the row of a number is not deleted, as a filter that a scan of Polars takes in."""
    starts = [0, *accumulate(parts.rows[path] for path in parts.deleted)]
    left = np.ones(starts[-1] + 1, dtype=bool)  # the last one stands for all that follow
    for start, (path, gone) in zip(starts, parts.deleted.items(), strict=False):
        left[start : start + parts.rows[path]][gone[gone < parts.rows[path]]] = False
    return polars.col(number).map_batches(
        lambda rows: polars.Series(left.take(rows.to_numpy(), mode="clip")),
        return_dtype=polars.Boolean,
        is_elementwise=True,
    )


def _io_source(polars: Any, frames: Sequence[Any], names: Sequence[str]) -> Any:
    """One LazyFrame over several.

    Polars' own concatenation (1.44) counts the rows of `head(3)` as three of each, and its dataset
    has no rows in a query that needs no columns.
    """

    def rows(
        columns: list[str] | None, predicate: Any, most: int | None, _batch_rows: int | None
    ) -> Iterator[Any]:
        shown = names if columns is None else columns
        filtered = [] if predicate is None else predicate.meta.root_names()
        read = list(dict.fromkeys([*shown, *filtered])) or names[:1]
        for frame in frames:
            part = frame.select(_named(read))
            if most is not None:
                first = part.head(most).collect()
                most -= first.height
                part = first.lazy()
            if predicate is not None:
                part = part.filter(predicate)
            for batch in part.collect_batches(maintain_order=False):
                yield (
                    batch.select(_named(shown)) if shown else polars.DataFrame(height=batch.height)
                )

    plugins = importlib.import_module("polars.io.plugins")
    return plugins.register_io_source(rows, schema=polars.concat(frames).collect_schema())


# Readers of Parquet agree on these; what others call a UUID, a time, a map or nanoseconds differs.
_ALIKE = (
    BooleanType, IntegerType, LongType, FloatType, DoubleType, DecimalType, DateType,
    TimestampType, TimestamptzType, StringType, BinaryType,
)  # fmt: skip
# Timestamps that have a converted type alone: DuckDB and Polars read them without their zone.
_OLDER = '"is_from_converted_type": true'
_KEPT_BYTES = 4_194_304
_KNOWN: KeptByBytes[tuple[str, int, str], bool] = KeptByBytes(_KEPT_BYTES)
"""Whether files of a path and size are as a schema says: no file that is referred to changes."""


def read_alike(schema: Schema) -> bool:
    """Whether all readers of Parquet make the same of columns of these names and types."""
    folded = {field.name.lower() for field in schema.fields}
    return len(folded) == len(schema.fields) and all(_alike(f.field_type) for f in schema.fields)


def plain_paths(
    tasks: Sequence[FileScanTask], schema: Schema, storage: Storage
) -> list[str | None]:
    """For each task the path on this machine's disk of a file that needs no reader of ours.

    It is Parquet and has exactly the columns of the schema: names, field ids, types and order, and
    as many rows as the manifest says; nothing is renamed, promoted or filled in. Filter and deletes
    of the task are not looked at.

    Args:
        tasks: whole files.
        schema: of the table, which is `read_alike`.
        storage: where the files are.

    Returns:
        None where the file is elsewhere, or is not like that.

    Raises:
        NoSuchFileError, StorageError, CorruptMetadataError, UnsupportedFeatureError: a footer
            cannot be read.
    """
    key = once(schema, "_lazy_plain_key", lambda: _digest(schema))
    path_of = partial(_path, schema=schema, key=key, storage=storage)
    if len(tasks) < 2:
        return [path_of(task) for task in tasks]
    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        return list(pool.map(path_of, tasks))


def _digest(schema: Schema) -> str:
    return hashlib.sha256(schema_to_arrow(schema).serialize()).hexdigest()


def _alike(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return all(_alike(field.field_type) for field in kind.fields)
    return _alike(kind.element_type) if isinstance(kind, ListType) else isinstance(kind, _ALIKE)


def _path(task: FileScanTask, schema: Schema, key: str, storage: Storage) -> str | None:
    file = task.data_file
    if file.file_format.lower() != "parquet":
        return None
    path = path_on_disk(storage, file.file_path)
    if path is None:
        return None
    known = (file.file_path, file.file_size_in_bytes, key)
    plain = _KNOWN.get(known)
    if plain is None:
        plain = _is_plain(task, schema, storage)
        _KNOWN.put(known, plain, len(file.file_path) + len(key) + 200)
    return path if plain else None


def _is_plain(task: FileScanTask, schema: Schema, storage: Storage) -> bool:
    footer = load_footer(storage, task.data_file)
    with readable(task.data_file.file_path):
        reader = pq.core.ParquetReader()
        reader.open(
            pa.BufferReader(as_metadata_file(footer.data)),
            metadata=footer.parsed,
            **PARQUET_OPTIONS,
        )
        columns = reader.schema_arrow
    if footer.parsed.num_rows != task.data_file.record_count:
        return False
    schema_of_file = footer.parsed.schema
    leaves = [schema_of_file.column(at) for at in range(len(schema_of_file))]
    if any(
        leaf.physical_type == "INT96" or _OLDER in leaf.logical_type.to_json() for leaf in leaves
    ):
        return False
    wanted = schema_to_arrow(schema)
    return len(columns) == len(wanted) and all(
        _same(there, here) for there, here in zip(columns, wanted, strict=True)
    )


def _same(there: pa.Field, here: pa.Field) -> bool:
    if there.name != here.name or field_id_of(there) != field_id_of(here):
        return False
    return _same_type(there.type, here.type)


def _same_type(there: pa.DataType, here: pa.DataType) -> bool:
    if pa.types.is_struct(here) and pa.types.is_struct(there):
        return there.num_fields == here.num_fields and all(
            _same(there.field(at), here.field(at)) for at in range(here.num_fields)
        )
    if pa.types.is_list(here) and pa.types.is_list(there):
        element = there.value_field
        return field_id_of(element) == field_id_of(here.value_field) and _same_type(
            element.type, here.value_type
        )
    return bool(there == here)
