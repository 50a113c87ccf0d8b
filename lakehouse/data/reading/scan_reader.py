"""Data files to Arrow batches: columns by field id, deletes applied, rows filtered.

Files are Parquet, or Avro and ORC that others wrote. They are decoded on several threads, and
their rows come in order, with bounded memory.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count, islice
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from lakehouse.data.deletes.delete_loader import POSITION_DELETE_SCHEMA, DeleteLoader
from lakehouse.data.deletes.deletion_vector import Positions
from lakehouse.data.reading.column_projection import FileColumn, Projection, file_columns
from lakehouse.data.reading.parquet_reader import (
    ParquetTaskReader,
    load_footer,
    open_parquet,
    readable,
)
from lakehouse.data.reading.scan_columns import ScanColumns, TaskReader, WantedRows
from lakehouse.data.reading.whole_files import WHOLE_FORMATS, WholeFileReader
from lakehouse.errors import (
    CorruptMetadataError,
    InvalidPartitionSpecError,
    InvalidSchemaError,
    UnsupportedFeatureError,
)
from lakehouse.expressions.bound_filter import TRUE, Bound, conjunction
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.iceberg_types import fields_of, find_path
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.types.arrow_types import column_at, schema_to_arrow
from lakehouse.storage.storage_protocol import Storage

__all__ = [
    "ReadRequest",
    "RowReader",
    "deleted_positions",
    "read_table",
    "read_tasks",
]

_POSITION_NAMES = (
    '[{"field-id":2147483546,"names":["file_path"]},{"field-id":2147483545,"names":["pos"]}]'
)
_WHOLE_ROW_GROUPS = 1 << 20
# Nothing waits for memory when everything is kept: fewer, larger chunks, and whole row groups when
# no row is left out.
_FILTERED_BATCH_ROWS = 131_072
_TABLE_BATCH_ROWS = 1_048_576


@dataclass(frozen=True, kw_only=True)
class ReadRequest:
    """What a reader has to know about the scan; picklable.

    Attributes:
        schema: columns to return, in order, as a projection of the table's schema; may hold
            metadata columns (`METADATA_COLUMNS`: `_file`, `_pos`, `_deleted`, `_spec_id`,
            `_row_id`, `_last_updated_sequence_number`).
        table_schema: the whole schema that filters and equality deletes refer to; `schema` when
            None.
        older_schemas: the table's other schemas, for equality deletes that compare a column dropped
            since.
        where: rows for which this is not true are dropped (three-valued logic), on every task,
            together with the residual of the task. Give the scan's own filter, or TRUE when the
            residuals of the tasks are enough.
        specs: partition specs by id, for identity partition values of files that lack the column.
        name_mapping: JSON of `schema.name-mapping.default`, for files without field ids.
        batch_rows: most rows in a returned batch.
        threads: row groups decoded at a time; one per core when None.
        buffer_bytes: bytes of decoded batches that may wait for the consumer of a stream.
    """

    schema: Schema
    table_schema: Schema | None = None
    older_schemas: tuple[Schema, ...] = ()
    where: Bound = TRUE
    specs: Mapping[int, PartitionSpec] = field(default_factory=dict)
    name_mapping: str | None = None
    batch_rows: int = 32_768
    threads: int | None = None
    buffer_bytes: int = 8_388_608

    @classmethod
    def of(
        cls,
        metadata: TableMetadata,
        schema: Schema,
        *,
        table_schema: Schema | None = None,
        where: Bound = TRUE,
        threads: int | None = None,
    ) -> ReadRequest:
        """Rows of a table as the columns of `schema`.

        Args:
            metadata: of the table.
            schema: what to return.
            table_schema: the schema that filters refer to; the current one of the table when None.
            where: see ReadRequest.
            threads: see ReadRequest.
        """
        return cls(
            schema=schema,
            table_schema=table_schema or metadata.schema(),
            older_schemas=metadata.schemas,
            where=where,
            specs=metadata.specs(),
            name_mapping=TableProperties(metadata.properties).name_mapping,
            threads=threads,
        )


def read_tasks(
    tasks: Iterable[FileScanTask], request: ReadRequest, storage: Storage
) -> Generator[pa.RecordBatch, None, None]:
    """Stream the rows of the tasks, in their order, with bounded memory; close it to stop early.

    Every batch has exactly the schema `schema_to_arrow(request.schema)`; empty batches are left
    out. Files are read by several threads; memory holds about `buffer_bytes` and what decoding
    takes, however large files and row groups are.

    Raises:
        NoSuchFileError: a data or delete file is missing.
        CorruptMetadataError: a file is not valid Parquet or Puffin.
        InvalidSchemaError: a file lacks a required column or holds a type that cannot be promoted.
        InvalidExpressionError: a function of the filter cannot be computed for a row.
        UnsupportedFeatureError: a file that is neither Parquet, Avro nor ORC, nor a Puffin file of
            deletion vectors.
    """
    return RowReader(request, storage).read(tasks)


def read_table(tasks: Iterable[FileScanTask], request: ReadRequest, storage: Storage) -> pa.Table:
    """All rows of the tasks as one table (see `read_tasks`): fastest if they fit in memory."""
    whole = replace(request, batch_rows=max(request.batch_rows, _TABLE_BATCH_ROWS))
    return RowReader(whole, storage).table(tasks)


def deleted_positions(
    files: Iterable[tuple[DataFile, Sequence[DataFile]]], metadata: TableMetadata, storage: Storage
) -> list[Positions]:
    """What position deletes and deletion vectors delete from data files; none of these is opened.

    Args:
        files: each data file with its deletes; a deletion vector stands for all of them.
        metadata: of the table.
        storage: where the deletes are.

    Returns:
        For each file ascending distinct positions.

    Raises:
        NoSuchFileError | CorruptMetadataError | UnsupportedFeatureError: as for `read_tasks`.
    """
    reader = RowReader(ReadRequest.of(metadata, Schema()), storage)
    return [reader.deleted(file, deletes) for file, deletes in files]


def named_positions(
    deletes: Iterable[DataFile], metadata: TableMetadata, storage: Storage
) -> list[Mapping[str, Positions]]:
    """What each position delete file or deletion vector deletes, by the data files that it names.

    Args:
        deletes: such files.
        metadata: of the table.
        storage: where they are.

    Returns:
        For each ascending distinct positions by data file.

    Raises:
        NoSuchFileError | CorruptMetadataError | UnsupportedFeatureError: as for `read_tasks`.
    """
    reader = RowReader(ReadRequest.of(metadata, Schema()), storage)
    return [reader.named(delete) for delete in deletes]


class RowReader:
    """Reads rows of one request; columns and delete files, which tasks share, are resolved once.

    Errors are those of `read_tasks`.
    """

    def __init__(self, request: ReadRequest, storage: Storage) -> None:
        self._request = request
        self._storage = storage
        self._table_schema = request.table_schema or request.schema
        self._loader: DeleteLoader | None = None
        self._lock = threading.Lock()
        self._columns: dict[tuple[int, tuple[int, ...]], tuple[Bound, ScanColumns]] = {}

    def read(self, tasks: Iterable[FileScanTask]) -> Generator[pa.RecordBatch, None, None]:
        """Stream the rows of the tasks, see `read_tasks`."""
        return self._stream(tasks, self._request.buffer_bytes)

    def table(self, tasks: Iterable[FileScanTask]) -> pa.Table:
        """All rows of the tasks, see `read_table`."""
        batches = list(self._stream(tasks, None))
        schema = schema_to_arrow(self._request.schema)
        if not len(schema):
            rows = sum(batch.num_rows for batch in batches)
            return pa.Table.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        return pa.Table.from_batches(batches, schema=schema)

    def _stream(
        self, tasks: Iterable[FileScanTask], buffer_bytes: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        openers = (partial(self.open, task) for task in tasks)
        return iter(Pipeline(openers, self._request.threads or pa.cpu_count(), buffer_bytes))

    @property
    def _deletes(self) -> DeleteLoader:
        """Made when deletes are met: with it the session is a circle, which has to be collected."""
        with self._lock:
            if self._loader is None:
                self._loader = DeleteLoader(self._storage, self._read_delete_file)
            return self._loader

    def open(self, task: FileScanTask) -> TaskReader:
        """Footer, deletes and resolved columns of one task."""
        keys = {
            field_id: self._schema_with(field_id, delete.file_path)
            for delete in task.deletes
            if delete.content == CONTENT_EQUALITY_DELETES
            for field_id in delete.equality_ids or ()
        }
        columns = self._scan_columns(task.residual, dict(sorted(keys.items())))
        rows = self._request.batch_rows
        loader = self._deletes if task.deletes else None
        wanted = WantedRows(
            task,
            columns,
            deleted=None if loader is None else loader.positions(task.data_file, task.deletes),
            keys=()
            if loader is None
            else loader.equality(
                task.deletes, lambda field_id: keys[field_id].find_field(field_id)
            ),
            name_mapping=self._request.name_mapping,
            batch_rows=rows if columns.where == TRUE else min(rows, _FILTERED_BATCH_ROWS),
        )
        whole = task.data_file.file_format.lower() in WHOLE_FORMATS
        return (WholeFileReader if whole else ParquetTaskReader)(wanted, self._storage)

    def deleted(self, file: DataFile, deletes: Sequence[DataFile]) -> Positions:
        """Positions deleted from a file."""
        positions = self._deletes.positions(file, deletes)
        return np.empty(0, np.int64) if positions is None else positions

    def named(self, file: DataFile) -> Mapping[str, Positions]:
        """Positions that a delete file deletes, by data file."""
        return self._deletes.named(file)

    def _scan_columns(self, residual: Bound, keys: Mapping[int, Schema]) -> ScanColumns:
        with self._lock:
            # planners give equal residuals as the same object
            key = (id(residual), tuple(keys))
            known = self._columns.get(key)
            if known is None:
                request = self._request
                where = conjunction((request.where, residual))
                columns = ScanColumns.shared(
                    request.schema, self._table_schema, where, keys, request.specs
                )
                known = self._columns[key] = (residual, columns)
            return known[1]

    def _schema_with(self, field_id: int, path: str) -> Schema:
        """The newest schema with a column that an equality delete file compares.

        Raises:
            InvalidSchemaError: no schema has it.
            UnsupportedFeatureError: rows are not compared by it.
        """
        newest_first = sorted(self._request.older_schemas, key=lambda schema: -schema.schema_id)
        for schema in (self._table_schema, *newest_first):
            field = fields_of(schema).get(field_id)
            if field is None:
                continue
            if not isinstance(field.field_type, PrimitiveType):
                raise UnsupportedFeatureError(
                    f"equality delete file {path} compares {field.name!r} (field id {field_id}), "
                    f"a {field.field_type}: rows are compared by primitive columns alone",
                    file=path,
                )
            try:
                find_path(schema, field_id)
            except InvalidPartitionSpecError as error:
                raise UnsupportedFeatureError(
                    f"equality delete file {path} compares field id {field_id}, which is inside a "
                    "list or map: rows are not compared by it",
                    file=path,
                ) from error
            return schema
        raise InvalidSchemaError(
            f"equality delete file {path} compares field id {field_id}, which no schema of the "
            "table has",
            file=path,
        )

    def _read_delete_file(self, file: DataFile, schema: Schema) -> pa.Table:
        """Columns of a delete file, by field id (position delete files also by name)."""
        arrow = schema_to_arrow(schema)
        mapping = (
            _POSITION_NAMES if schema is POSITION_DELETE_SCHEMA else self._request.name_mapping
        )
        if file.file_format.lower() in WHOLE_FORMATS:
            return self._read_whole_deletes(file, schema, arrow, mapping)
        source = open_parquet(self._storage, file, load_footer(self._storage, file))
        with readable(file.file_path):
            columns = file_columns(source.schema_arrow, mapping, file.file_path)
            leaves = _leaves(columns, schema)
            # pyarrow puts dictionaries of several row groups together at the top alone
            decoded = (
                batch
                for group in range(source.metadata.num_row_groups)
                for batch in source.reader.iter_batches(
                    _WHOLE_ROW_GROUPS, [group], column_indices=leaves
                )
            )
            batches = _flat_batches(decoded, columns, schema, file.file_path, leaves)
        return pa.Table.from_batches(batches, schema=arrow)

    def _read_whole_deletes(
        self, file: DataFile, schema: Schema, arrow: pa.Schema, mapping: str | None
    ) -> pa.Table:
        path = file.file_path
        source = WHOLE_FORMATS[file.file_format.lower()](path, self._storage.read(path))
        columns = file_columns(source.schema, mapping, path)
        batches = _flat_batches(source.batches(_WHOLE_ROW_GROUPS), columns, schema, path)
        return pa.Table.from_batches(batches, schema=arrow)


def _leaves(columns: Sequence[FileColumn], schema: Schema) -> list[int]:
    """The Parquet leaf columns of a delete file that hold the fields of a schema."""
    ids = {field.field_id for field in schema.fields}
    held = [column for _, column in _outside_collections(columns) if column.field_id in ids]
    return sorted(leaf for column in held for leaf in column.leaves)


def _flat_batches(
    batches: Iterable[pa.RecordBatch],
    columns: Sequence[FileColumn],
    schema: Schema,
    path: str,
    leaves: Collection[int] | None = None,
) -> list[pa.RecordBatch]:
    """The fields of a schema out of a delete file's batches, wherever in its structs they are.

    Args:
        batches: of the file.
        columns: of the file.
        schema: fields to find.
        path: of the file, for messages.
        leaves: the leaf columns that the batches hold; None: all.

    Raises:
        CorruptMetadataError: the file lacks one.
    """
    places = {
        column.field_id: (place, column)
        for place, column in _outside_collections(columns, leaves)
        if column.field_id is not None
    }
    lacking = [field.field_id for field in schema.fields if field.field_id not in places]
    if lacking:
        raise CorruptMetadataError(
            f"delete file {path} lacks field id {lacking[0]}, by which it deletes", file=path
        )
    chosen = [places[field.field_id] for field in schema.fields]
    arrow = schema_to_arrow(schema)
    projection = Projection(
        [column for _, column in chosen], schema.fields, list(arrow), {}, path, pruned=False
    )
    result = []
    for batch in batches:
        arrays = [column_at(batch, place) for place, _ in chosen]
        fields = [pa.field(str(number), array.type) for number, array in enumerate(arrays)]
        flat = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        result.append(
            pa.RecordBatch.from_arrays(projection.columns(flat, batch.num_rows), schema=arrow)
        )
    return result


def _outside_collections(
    columns: Sequence[FileColumn],
    leaves: Collection[int] | None = None,
    above: tuple[int, ...] = (),
) -> Iterator[tuple[tuple[int, ...], FileColumn]]:
    """Columns of a file with their positions in batches, fields of structs included."""
    read = [
        column for column in columns if leaves is None or not set(leaves).isdisjoint(column.leaves)
    ]
    for position, column in enumerate(read):
        yield (*above, position), column
        if pa.types.is_struct(column.type):
            yield from _outside_collections(column.children, leaves, (*above, position))


Group = TypeVar("Group")


class Opened(Protocol[Group]):
    """A file whose row groups can be decoded independently, from several threads."""

    @property
    def row_groups(self) -> list[Group]:
        """Units of work, in order."""

    def batches(self, group: Group) -> Iterator[pa.RecordBatch]:
        """Decode one unit."""

    def ready(self) -> list[pa.RecordBatch] | None:
        """All batches at once where that is little; None to decode by unit."""

    def close(self) -> None:
        """Release the file."""


@dataclass(slots=True)
class _Failed:
    error: BaseException


_Item: TypeAlias = pa.RecordBatch | _Failed | None


class _Budget:
    """Bytes of decoded batches that wait for the consumer.

    All units share the limit, so that several run ahead together when row groups are small. The
    unit that the consumer reads from gets a quarter of the limit on top, so that it never waits for
    the others.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._waiting: dict[int, int] = {}
        self._head = 0
        self._stopped = False

    @property
    def bounded(self) -> bool:
        """Whether there is a limit."""
        return self._limit is not None

    @property
    def stopped(self) -> bool:
        """Whether the reader wants no more batches."""
        return self._stopped

    def take(self, unit: int, size: int) -> bool:
        """Wait until a batch of a unit may be queued; False when the reader stopped."""
        with self._changed:
            while not self._stopped and not self._fits(unit, size):
                self._changed.wait()
            self._waiting[unit] = self._waiting.get(unit, 0) + size
            return not self._stopped

    def _fits(self, unit: int, size: int) -> bool:
        if self._limit is None or sum(self._waiting.values()) + size <= self._limit:
            return True
        mine = self._waiting.get(unit, 0)
        return unit == self._head and (mine == 0 or mine + size <= self._limit // 4)

    def give(self, unit: int, size: int) -> None:
        """Note that a batch was consumed, so that another one may be decoded."""
        with self._changed:
            self._waiting[unit] -= size
            self._changed.notify_all()

    def next_head(self) -> None:
        """The consumer goes on to the next unit."""
        with self._changed:
            self._waiting.pop(self._head, None)
            self._head += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop the threads: no more batches are wanted."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


class _Unit:
    """Batches of one row group on their way from a worker to the consumer; None ends them."""

    def __init__(
        self,
        number: int,
        produce: Callable[[], Iterator[pa.RecordBatch]],
        done: Callable[[], None],
        budget: _Budget,
    ) -> None:
        self._number, self._produce, self._done, self._budget = number, produce, done, budget
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()

    def run(self) -> None:
        try:
            for batch in [] if self._budget.stopped else self._produce():
                if not self._budget.take(self._number, batch.nbytes):
                    return
                self._queue.put(batch)
            self._queue.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer's thread
            self._queue.put(_Failed(error))
        finally:
            self._done()
            if self._budget.bounded:
                # what this thread freed goes back to the system: allocators keep it for the thread,
                # and there are several
                pa.default_memory_pool().release_unused()

    def fail(self, error: BaseException) -> None:
        """Raise in the consumer, also one that waits for a batch now."""
        self._queue.put(_Failed(error))

    def drain(self) -> Iterator[pa.RecordBatch]:
        while True:
            item = self._queue.get()
            if item is None:
                self._budget.next_head()
                return
            if isinstance(item, _Failed):
                raise item.error
            self._budget.give(self._number, item.nbytes)
            yield item


class _Ready:
    """A small file that was decoded when it was opened."""

    def __init__(self, batches: list[pa.RecordBatch], budget: _Budget) -> None:
        self._batches, self._budget = batches, budget

    def fail(self, error: BaseException) -> None:
        """Nothing waits for it."""

    def drain(self) -> Iterator[pa.RecordBatch]:
        self._budget.next_head()
        yield from self._batches


class _Task(Generic[Group]):
    """An open file that closes itself after its last unit."""

    def __init__(self, opened: Opened[Group]) -> None:
        self.opened = opened
        self._lock = threading.Lock()
        self._left = len(opened.row_groups)

    def done(self) -> None:
        with self._lock:
            self._left -= 1
            last = self._left <= 0
        if last:
            self.opened.close()


class Pipeline(Generic[Group]):
    """Opens files and decodes row groups on several threads; batches come in the files' order.

    A file that is alone is decoded by who asks, where nothing could run beside it.

    Args:
        openers: one call per file; run on the threads, a few files ahead.
        threads: how many row groups are decoded at a time.
        buffer_bytes: most bytes of batches that wait for the consumer; None is without limit.
    """

    def __init__(
        self, openers: Iterable[Callable[[], Opened[Group]]], threads: int, buffer_bytes: int | None
    ) -> None:
        self._openers = iter(openers)
        self._window = threads + 1
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lakehouse-read")
        self._budget = _Budget(buffer_bytes)
        self._numbers = count()
        self._opening: deque[Future[tuple[Opened[Group], list[pa.RecordBatch] | None]]] = deque()
        self._waiting: deque[tuple[_Task[Group], Group]] = deque()
        self._units: deque[_Unit | _Ready] = deque()
        _AT_EXIT.watch(self)

    def __iter__(self) -> Generator[pa.RecordBatch, None, None]:
        batches = self._batches()
        try:
            while True:
                with _AT_EXIT.inside():
                    batch = next(batches, None)
                if batch is None:
                    _AT_EXIT.forget(self)
                    return
                yield batch
        finally:
            batches.close()

    def end(self, error: BaseException) -> None:
        """Stop the threads, and raise in a consumer that waits."""
        self._budget.stop()
        for unit in list(self._units):
            unit.fail(error)

    def _batches(self) -> Generator[pa.RecordBatch, None, None]:
        first = list(islice(self._openers, 2))
        if len(first) > 1:
            self._openers = chain(first, self._openers)
        elif first:
            opened, ready = _open(first[0])
            here = ready is not None or not (self._budget.bounded or len(opened.row_groups) > 1)
            if here:  # nothing runs beside it: a thread would cost more than it does
                yield from _decoded(opened, ready)
                return
            self._opening.append(_result_of(opened, ready))
        try:
            while self._fill():
                yield from self._units[0].drain()
                self._units.popleft()
        finally:
            self._close()

    def _fill(self) -> bool:
        """Keep the threads busy; False at the end."""
        self._open_ahead()
        while len(self._units) < self._window:
            if self._waiting:
                self._submit(*self._waiting.popleft())
            elif not self._opening or (
                self._budget.bounded and self._units and not _succeeded(self._opening[0])
            ):
                # Waiting for a file while units wait for the consumer could wait for ever; without
                # a limit they never do.
                break
            else:
                opened, ready = self._opening.popleft().result()
                task = _Task(opened)
                if ready is not None:
                    next(self._numbers)
                    self._units.append(_Ready(ready, self._budget))
                    opened.close()
                elif task.opened.row_groups:
                    self._waiting.extend((task, group) for group in task.opened.row_groups)
                else:
                    task.done()
                self._open_ahead()
        return bool(self._units)

    def _open_ahead(self) -> None:
        while len(self._opening) < 2 * self._window:
            opener = next(self._openers, None)
            if opener is None:
                return
            self._opening.append(self._pool.submit(_open, opener))

    def _submit(self, task: _Task[Group], group: Group) -> None:
        unit = _Unit(
            next(self._numbers), lambda: task.opened.batches(group), task.done, self._budget
        )
        self._units.append(unit)
        self._pool.submit(unit.run)

    def _close(self) -> None:
        self._budget.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for future in self._opening:
            if _succeeded(future):
                future.result()[0].close()


def _open(opener: Callable[[], Opened[Group]]) -> tuple[Opened[Group], list[pa.RecordBatch] | None]:
    opened = opener()
    try:
        return opened, opened.ready()
    except BaseException:
        opened.close()
        raise


def _decoded(opened: Opened[Group], ready: list[pa.RecordBatch] | None) -> Iterator[pa.RecordBatch]:
    try:
        if ready is not None:
            yield from ready
            return
        for group in opened.row_groups:
            yield from opened.batches(group)
    finally:
        opened.close()


def _result_of(
    opened: Opened[Group], ready: list[pa.RecordBatch] | None
) -> Future[tuple[Opened[Group], list[pa.RecordBatch] | None]]:
    future: Future[tuple[Opened[Group], list[pa.RecordBatch] | None]] = Future()
    future.set_result((opened, ready))
    return future


def _succeeded(future: Future[tuple[Opened[Group], list[pa.RecordBatch] | None]]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


class _AtExit:
    """Ends readers that nobody has read to their end before the interpreter goes.

    An engine with threads of its own (DuckDB, DataFusion) that has enough rows drops a reader while
    one of its threads may still be inside it: that thread would come back to an interpreter that is
    gone, and ours would wait for ever to hand on what they decoded.
    """

    def __init__(self) -> None:
        self._pipelines: weakref.WeakSet[Pipeline[Any]] = weakref.WeakSet()
        self._changed = threading.Condition()
        self._inside = self._entered = self._unread = 0
        # before the pools' own hook, which joins their threads: hooks run last first
        threading._register_atexit(self.end)  # type: ignore[attr-defined]  # noqa: SLF001

    def watch(self, pipeline: Pipeline[Any]) -> None:
        """End this one, too, unless it was read to its end by then."""
        with self._changed:
            self._pipelines.add(pipeline)
            self._unread += 1

    def forget(self, pipeline: Pipeline[Any]) -> None:
        """It was read to its end."""
        with self._changed:
            self._pipelines.discard(pipeline)
            self._unread -= 1

    @contextmanager
    def inside(self) -> Iterator[None]:
        """A thread, whoever's, asks a reader for a batch."""
        with self._changed:
            self._inside += 1
            self._entered += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1

    def end(self) -> None:
        """Stop all that were left early, and wait until nobody has come into one for a while.

        A thread of an engine that comes now gets no more rows, and goes.
        """
        if not self._unread:
            return
        until, quiet, entered = time.monotonic() + _LEAVING_S, 0, -1
        while quiet < _QUIET and time.monotonic() < until:
            with self._changed:
                pipelines, same = list(self._pipelines), entered == self._entered
                quiet = quiet + 1 if same and not self._inside else 0
                entered = self._entered
            for pipeline in pipelines:
                pipeline.end(RuntimeError("the interpreter is ending: no more rows are read"))
            time.sleep(_MOMENT_S)


_LEAVING_S, _MOMENT_S, _QUIET = 10, 0.02, 10
_AT_EXIT = _AtExit()
