"""Arrow record batches to Parquet data files, partitioned, sorted and measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from lakehouse.data.reading.uuid_statistics import misread_columns
from lakehouse.data.writing.column_metrics import MetricsMode, metrics_modes, stored_schema
from lakehouse.data.writing.input_columns import ArrowData, Coercer, coerce
from lakehouse.data.writing.parquet_writer import ParquetFileWriter, ParquetOptions
from lakehouse.data.writing.partition_splitter import Partition, PartitionSplitter
from lakehouse.data.writing.row_sorter import RowSorter
from lakehouse.spec.manifests.data_file import DataFile, partition_key
from lakehouse.spec.partitioning.partition_terms import partition_path
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import Storage


@dataclass(frozen=True, kw_only=True)
class WriteRequest:
    """What a writer has to know about the table; picklable, to be sent to Spark workers.

    Attributes:
        schema: the table's schema; batches are coerced to it by column name.
        spec: partition spec that the new files belong to.
        sort_order: rows of each file are sorted by it; unsorted by default.
        location: data location (`<table location>/data` or `write.data.path`), in the table's own
            spelling.
        properties: table properties (`write.target-file-size-bytes`, `write.parquet.*`,
            `write.metadata.metrics.*`, `lakehouse.write.buffer-bytes`: memory for rows that wait to
            be written, 256 MiB).
        format_version: table format version, 1 to 3.
        write_id: unique per write, part of every file name, so that two writes never collide.
        table: name of the table, for messages.
    """

    schema: Schema
    spec: PartitionSpec
    location: str
    write_id: str
    sort_order: SortOrder = UNSORTED_SORT_ORDER
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    format_version: int = 2
    table: str = ""


def write_data_files(
    data: ArrowData,
    request: WriteRequest,
    storage: Storage,
    *,
    task: str = "0",
) -> Iterator[DataFile]:
    """Write rows as data files `<location>/<partition path>/00000-<task>-<write id>-<n>.parquet`.

    Each file is durable when its DataFile is yielded, and nothing of it is visible before. Rows are
    coerced to the schema (see `coerce`), split by partition and sorted by the sort order; a file is
    finished when it reaches the target size. Memory is bounded: when the waiting rows of all
    partitions exceed the buffer, the largest partition is written.

    Args:
        data: rows; columns are matched by name.
        request: table facts.
        storage: where the files go.
        task: distinguishes parallel writers of the same write (Spark partition and attempt, say).

    Yields:
        One DataFile per finished file, with metrics of the modes that the properties ask for.

    Raises:
        InvalidSchemaError: the data does not fit the schema.
        InvalidPropertyError: a table property that cannot be used.
        StorageError: a file could not be written. Whatever the error, unfinished files leave
            nothing; files that were yielded stay.
    """
    writer = DataFileWriter(request, storage, task=task)
    try:
        for batch in coerce(data, request.schema, table=request.table):
            yield from writer.write_coerced(batch)
        yield from writer.finish()
    finally:
        writer.abort()


class DataFileWriter:
    """Writes rows as they come; arguments, files and errors are those of `write_data_files`."""

    def __init__(self, request: WriteRequest, storage: Storage, *, task: str = "0") -> None:
        target = _file_target(request, storage, task)
        buffer = TableProperties(request.properties).write_buffer_bytes
        self._coercer = Coercer(request.schema, request.table)
        self._splitter = PartitionSplitter(request.spec, request.schema)
        self._fan_out = FanOut(target, RowSorter(request.sort_order, request.schema), buffer)
        names = {one.name for one in target.schema.fields}
        stored = [at for at, one in enumerate(request.schema.fields) if one.name in names]
        self._stored = stored if len(stored) != len(request.schema.fields) else None

    def write(self, batch: pa.RecordBatch) -> Iterator[DataFile]:
        """Take rows; files that became full come out."""
        yield from self.write_coerced(self._coercer.batch(batch))

    def write_coerced(self, batch: pa.RecordBatch) -> Iterator[DataFile]:
        """Take rows that have the table's Arrow schema."""
        for partition, part in self._splitter.split(batch):
            rows = part if self._stored is None else part.select(self._stored)
            yield from self._fan_out.add(partition, rows)

    def finish(self) -> Iterator[DataFile]:
        """Finish every file. Nothing comes out of it a second time."""
        yield from self._fan_out.finish()

    def abort(self) -> None:
        """Forget every unfinished file; harmless when all are finished."""
        self._fan_out.abort()


def write_all(
    data: ArrowData, request: WriteRequest, storage: Storage, *, task: str = "0"
) -> list[DataFile]:
    """All files of `write_data_files`; if anything fails, finished files are deleted as well.

    Raises:
        what `write_data_files` raises.
    """
    files: list[DataFile] = []
    try:
        files.extend(write_data_files(data, request, storage, task=task))
    except BaseException:
        storage.delete([one.file_path for one in files])
        raise
    return files


def _file_target(request: WriteRequest, storage: Storage, task: str) -> FileTarget:
    schema = stored_schema(request.schema)
    return FileTarget(
        storage=storage,
        location=request.location.rstrip("/"),
        name=f"00000-{task}-{request.write_id}",
        schema=schema,
        arrow_schema=Coercer(schema).arrow_schema,
        table_schema=request.schema,
        spec=request.spec,
        sort_order_id=request.sort_order.order_id,
        modes=metrics_modes(schema, request.properties, request.sort_order),
        options=ParquetOptions.from_properties(request.properties),
        target_bytes=TableProperties(request.properties).target_file_size_bytes,
    )


_MOST_OPEN_FILES = 64
# What a buffered slice costs beside its values: arrays, buffers, Python objects.
_SLICE_OVERHEAD = 1_024


# Rows of many partitions to files, with bounded memory and a bounded number of open files.


@dataclass(frozen=True, kw_only=True)
class FileTarget:
    """Where files go and what they look like.

    Attributes:
        storage: where.
        location: data location without a trailing slash.
        name: file name up to the file's number.
        schema: columns of the files.
        arrow_schema: the same for Arrow, with field ids.
        table_schema: the table's schema, for partition paths.
        spec: partition spec.
        sort_order_id: recorded in each file; 0 is unsorted.
        modes: metrics by field id.
        options: Parquet encoding.
        target_bytes: size at which a file is finished.
    """

    storage: Storage
    location: str
    name: str
    schema: Schema
    arrow_schema: pa.Schema
    table_schema: Schema
    spec: PartitionSpec
    sort_order_id: int
    modes: Mapping[int, MetricsMode]
    options: ParquetOptions
    target_bytes: int


@dataclass(slots=True)
class _Lane:
    """One partition: rows that wait, and the file that grows.

    Attributes:
        partition: its partition tuple.
        waiting: buffered batches, their size in `waiting_bytes` and `waiting_rows`.
        writer: the open file, if any.
        written_bytes: in-memory bytes that went into the open file, to learn its compression.
        last: the last row of the open file, when files are sorted.
        used: when the lane last wrote.
    """

    partition: Partition
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    waiting_rows: int = 0
    writer: ParquetFileWriter | None = None
    written_bytes: int = 0
    last: pa.Table | None = None
    used: int = 0


class FanOut:
    """Collects rows per partition and writes them as row groups.

    Args:
        target: where files go.
        sorter: order of rows within a file.
        buffer_bytes: most bytes of rows waiting over all partitions.
    """

    def __init__(self, target: FileTarget, sorter: RowSorter, buffer_bytes: int) -> None:
        self._target = target
        self._sorter = sorter
        self._buffer_bytes = buffer_bytes
        # by `partition_key`: NaN is one partition, -0.0 and 0.0 are two
        self._lanes: dict[tuple[object, ...], _Lane] = {}
        self._waiting_bytes = 0
        self._files = 0
        self._steps = 0
        # Encoded bytes per byte in memory, learned from the files written so far.
        self._ratio = 1.0

    def add(self, partition: Partition, rows: pa.RecordBatch) -> Iterator[DataFile]:
        """Take rows of one partition; files that became full meanwhile come out."""
        lane = self._lanes.setdefault(
            partition_key(self._target.spec.spec_id, partition), _Lane(partition)
        )
        step = self._rows_per_row_group(rows)
        for start in range(0, rows.num_rows, step):
            part = rows.slice(start, step)
            size = part.nbytes + _SLICE_OVERHEAD
            lane.waiting.append(part)
            lane.waiting_bytes += size
            lane.waiting_rows += part.num_rows
            self._waiting_bytes += size
            if (
                lane.waiting_bytes >= self._row_group_bytes()
                or lane.waiting_rows >= self._target.options.row_group_rows
            ):
                yield from self._flush(lane)
        while self._waiting_bytes > self._buffer_bytes:
            yield from self._flush(max(self._lanes.values(), key=lambda one: one.waiting_bytes))

    def finish(self) -> Iterator[DataFile]:
        """Write what waits and finish every file."""
        for lane in self._lanes.values():
            if lane.waiting:
                yield from self._flush(lane)
            if lane.writer is not None:
                yield self._close(lane)

    def abort(self) -> None:
        """Forget every unfinished file; harmless when all are finished."""
        for lane in self._lanes.values():
            if lane.writer is not None:
                lane.writer.abort()
                lane.writer = None
        self._lanes.clear()

    def _row_group_bytes(self) -> float:
        """In-memory size of a row group: at most the configured one and what fills one file."""
        options = self._target.options
        limit = min(float(options.row_group_bytes), self._target.target_bytes / self._ratio)
        # A sorted file is sorted in memory, so that the buffer decides how long its runs are.
        return (
            min(max(limit, self._buffer_bytes / 2), float(self._buffer_bytes))
            if self._sorter.sorts
            else limit
        )

    def _rows_per_row_group(self, rows: pa.RecordBatch) -> int:
        per_row = max(rows.nbytes / max(rows.num_rows, 1), 1 / 64)
        return max(
            1, min(int(self._row_group_bytes() / per_row), self._target.options.row_group_rows)
        )

    def _flush(self, lane: _Lane) -> Iterator[DataFile]:
        """Write a partition's waiting rows.

        Its file is finished when it is full, or when the order of rows does not allow more.
        """
        table = pa.Table.from_batches(lane.waiting, schema=self._target.arrow_schema)
        size = lane.waiting_bytes
        self._waiting_bytes -= size
        lane.waiting, lane.waiting_bytes, lane.waiting_rows = [], 0, 0
        if self._sorter.sorts:
            table = self._sorter.sort(table)
        if (
            lane.writer is not None
            and lane.last is not None  # none where files are not sorted
            and not self._sorter.follows(lane.last, table)
        ):
            yield self._close(lane)
        for rows in self._row_groups(table, size):
            if lane.writer is not None and not lane.writer.takes(rows):
                yield self._close(lane)
            if lane.writer is None:
                yield from self._make_room()
                lane.writer = self._open(lane.partition, rows)
            before = lane.writer.size
            lane.writer.write(rows)
            grown = lane.writer.size - before
            lane.written_bytes += int(size * rows.num_rows / max(table.num_rows, 1))
            lane.last = rows.slice(rows.num_rows - 1) if self._sorter.sorts else None
            self._steps += 1
            lane.used = self._steps
            # Full when one more row group like this would lead further from the target size than
            # stopping here.
            if lane.writer.size + grown / 2 >= self._target.target_bytes:
                yield self._close(lane)

    def _row_groups(self, table: pa.Table, size: int) -> Iterator[pa.Table]:
        options = self._target.options
        limit = min(float(options.row_group_bytes), self._target.target_bytes / self._ratio)
        pieces = max(1, round(size / limit))
        step = max(1, min(-(-table.num_rows // pieces), options.row_group_rows))
        for start in range(0, table.num_rows, step):
            yield table.slice(start, step)

    def _make_room(self) -> Iterator[DataFile]:
        """Finish the file that was not written to for the longest time when too many are open."""
        opened = [lane for lane in self._lanes.values() if lane.writer is not None]
        if len(opened) >= _MOST_OPEN_FILES:
            yield self._close(min(opened, key=lambda one: one.used))

    def _open(self, partition: Partition, rows: pa.Table) -> ParquetFileWriter:
        """A file for rows like these."""
        target = self._target
        self._files += 1
        folder = partition_path(target.spec, target.table_schema, partition)
        parts = [target.location, folder, f"{target.name}-{self._files:05d}.parquet"]
        location = "/".join(part for part in parts if part)
        return ParquetFileWriter(
            target.storage,
            location,
            target.arrow_schema,
            target.schema,
            target.modes,
            target.options,
            misread=misread_columns(rows),
        )

    def _close(self, lane: _Lane) -> DataFile:
        writer = lane.writer
        if writer is None:
            raise AssertionError("only an open file is closed")
        metrics, size = writer.close()
        if lane.written_bytes:
            self._ratio = max(size / lane.written_bytes, 1e-3)
        lane.writer, lane.written_bytes, lane.last = None, 0, None
        return metrics.data_file(
            file_path=writer.location,
            partition=lane.partition,
            spec_id=self._target.spec.spec_id,
            file_size_in_bytes=size,
            sort_order_id=self._target.sort_order_id,
        )
