"""Arrow record batches to Parquet data files, partitioned, sorted and measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform

from lakehouse.data.statistics.column_metrics import MetricsMode, metrics_modes, stored_schema
from lakehouse.data.writing.input_columns import ArrowData, Coercer, coerce
from lakehouse.data.writing.parquet_writer import (
    ParquetFileWriter,
    ParquetOptions,
    misread_columns,
    plain_columns,
)
from lakehouse.data.writing.shredded_variants import ShreddedVariants
from lakehouse.data.writing.threaded_parquet import is_worth_threads
from lakehouse.expressions.transforms.partition_transforms import transform_array
from lakehouse.spec.manifests.data_file import DataFile, partition_key
from lakehouse.spec.partitioning.partition_terms import partition_path
from lakehouse.spec.partitioning.sort_order import (
    UNSORTED_SORT_ORDER,
    NullOrder,
    SortDirection,
    SortOrder,
)
from lakehouse.spec.schema.iceberg_types import find_path
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.types.arrow_types import column_at
from lakehouse.spec.types.internal_values import internal_values
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
        names = {field.name for field in target.schema.fields}
        stored = [at for at, field in enumerate(request.schema.fields) if field.name in names]
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
        storage.delete([file.file_path for file in files])
        raise
    return files


def _file_target(request: WriteRequest, storage: Storage, task: str) -> FileTarget:
    schema, properties = stored_schema(request.schema), TableProperties(request.properties)
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
        target_bytes=properties.target_file_size_bytes,
        is_hashed=properties.object_storage,
        has_partitions=not properties.object_storage or properties.object_storage_partitions,
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
        is_hashed: whether files lie in folders named by a hash (`write.object-storage.enabled`).
        has_partitions: whether they lie in folders of their partitions.
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
    is_hashed: bool = False
    has_partitions: bool = True

    def place(self, folder: str, name: str) -> str:
        """The location of a file, as Iceberg's providers of locations have it."""
        inner = f"{folder}/{name}" if folder and self.has_partitions else name
        if self.is_hashed:
            joint = "/" if self.has_partitions else "-"
            inner = f"{hashed_folders(inner)}{joint}{inner}"
        return f"{self.location}/{inner}"


def hashed_folders(path: str) -> str:
    """Folders named by 20 bits of the hash of a path, as Iceberg's Java makes them.

    >>> hashed_folders("a")
    '0101/0110/1001/10110010'
    """
    bits = f"{mmh3.hash(path, signed=False):032b}"[-20:]
    return f"{bits[:4]}/{bits[4:8]}/{bits[8:12]}/{bits[12:]}"


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
            # not each row group of a sorted file for itself: the next would not follow it
            if lane.waiting_bytes >= self._row_group_bytes() or (
                not self._sorter.sorts and lane.waiting_rows >= self._target.options.row_group_rows
            ):
                yield from self._flush(lane)
        while self._waiting_bytes > self._buffer_bytes:
            yield from self._flush(max(self._lanes.values(), key=lambda lane: lane.waiting_bytes))

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
            yield self._close(min(opened, key=lambda writer: writer.used))

    def _open(self, partition: Partition, rows: pa.Table) -> ParquetFileWriter:
        """A file for rows like these."""
        target, options = self._target, self._target.options
        self._files += 1
        folder = partition_path(target.spec, target.table_schema, partition)
        return ParquetFileWriter(
            target.storage,
            target.place(folder, f"{target.name}-{self._files:05d}.parquet"),
            target.arrow_schema,
            target.schema,
            target.modes,
            options,
            misread=misread_columns(rows),
            plain=plain_columns(rows),
            variants=ShreddedVariants(
                target.schema, target.arrow_schema, target.modes, rows, options.shredding_rows
            ),
            threaded=is_worth_threads(rows),
            first_rows=rows,
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


class RowSorter:
    """Sorts tables that have the Arrow schema of `schema`.

    Raises:
        InvalidPartitionSpecError: a sort field whose source is not in the schema.
    """

    def __init__(self, order: SortOrder, schema: Schema) -> None:
        self._keys = [(key, *find_path(schema, key.source_id)) for key in order.fields]

    @property
    def sorts(self) -> bool:
        """False for the unsorted order."""
        return bool(self._keys)

    def indices(self, data: pa.Table) -> pa.Array:
        """Row numbers in sorted order; equal rows keep theirs."""
        names, columns, sort_keys = [], [], []
        for number, (key, path, source) in enumerate(self._keys):
            values = transform_array(key.transform, column_at(data, path), source.field_type)
            if values.null_count:
                # nulls first: not-null = false sorts before true
                first = key.null_order == NullOrder.NULLS_FIRST
                columns.append(pc.cast(pc.is_valid(values), pa.uint8()))
                names.append(f"n{number}")
                sort_keys.append((f"n{number}", "ascending" if first else "descending"))
            columns.append(_comparable(values))
            names.append(f"v{number}")
            sort_keys.append(
                (f"v{number}", "ascending" if key.direction == SortDirection.ASC else "descending")
            )
        return pc.sort_indices(pa.table(columns, names=names), sort_keys=sort_keys)

    def sort(self, data: pa.Table) -> pa.Table:
        """The rows, sorted."""
        indices = self.indices(data)
        if _is_identity(indices):
            return data
        return data.take(indices)

    def follows(self, last: pa.Table, following: pa.Table) -> bool:
        """Whether the first row of `following` may come after the last one of `last`, sorted."""
        pair = pa.concat_tables([last.slice(last.num_rows - 1), following.slice(0, 1)])
        return bool(self.indices(pair)[0].as_py() == 0)


def _is_identity(indices: pa.Array) -> bool:
    numbers = indices.to_numpy()
    return bool(np.array_equal(numbers, np.arange(len(numbers), dtype=numbers.dtype)))


def _comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats as integers in the order -Infinity < -value < -0 < 0 < value < Infinity < NaN."""
    if not pa.types.is_floating(values.type):
        return values
    chunks = []
    for chunk in values.chunks:
        numbers = pc.fill_null(chunk, 0).to_numpy(zero_copy_only=False).astype(np.float64)
        numbers = np.where(np.isnan(numbers), np.nan, numbers)
        bits = numbers.view(np.int64)
        ordered = bits ^ ((bits >> np.int64(63)) & np.int64(0x7FFF_FFFF_FFFF_FFFF))
        chunks.append(
            pa.array(
                ordered,
                mask=chunk.is_null().to_numpy(zero_copy_only=False) if chunk.null_count else None,
            )
        )
    return pa.chunked_array(chunks, pa.int64())


Partition = tuple[Any, ...]

_MOST_CODES = 2**62


class PartitionSplitter:
    """Splits batch after batch by one spec.

    Args:
        spec: partition spec.
        schema: table schema that the spec's source ids refer to.

    Raises:
        InvalidPartitionSpecError: a source column that is not in the schema, or a transform that
            does not apply.
        UnsupportedFeatureError: an unknown transform.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        # void fields are always null, also when their column is gone: tables that were once v1 keep
        # them forever
        self._void = tuple(isinstance(field.transform, VoidTransform) for field in spec.fields)
        self._transforms = []
        for part in spec.fields:
            if isinstance(part.transform, VoidTransform):
                continue
            path, source = find_path(schema, part.source_id)
            result_type = part.transform.result_type(source.field_type)
            self._transforms.append((part.transform, path, source.field_type, result_type))

    def split(self, data: pa.RecordBatch) -> list[tuple[Partition, pa.RecordBatch]]:
        """Rows by partition tuple, in order of first appearance and each in its order.

        Partition tuples hold Iceberg's internal values (day and date: int days, timestamps: int,
        decimal: Decimal, uuid: UUID, None).

        Args:
            data: rows in the Arrow schema of the table.
        """
        if data.num_rows == 0:
            return []
        if not self._transforms:
            return [((None,) * len(self._void), data)]
        columns = [
            _canonical(transform_array(transform, column_at(data, path), source))
            for transform, path, source, _ in self._transforms
        ]
        codes, first_rows = _group(columns)
        firsts = pa.array(first_rows)
        values = [
            internal_values(column.take(firsts), kind)
            for column, (_, _, _, kind) in zip(columns, self._transforms, strict=True)
        ]
        known = iter(values)
        nulls = [None] * len(first_rows)
        partitions = list(
            zip(*(nulls if void else next(known) for void in self._void), strict=True)
        )
        if len(partitions) == 1:
            return [(partitions[0], data)]
        order = pa.array(np.argsort(codes, kind="stable"))
        ends = np.cumsum(np.bincount(codes, minlength=len(partitions))).tolist()
        starts = [0, *ends[:-1]]
        return [
            (partition, data.take(order.slice(start, end - start)))
            for partition, start, end in zip(partitions, starts, ends, strict=True)
        ]


def _canonical(column: pa.Array) -> pa.Array:
    """One NaN: the many bit patterns of NaN are one partition value. -0.0 and 0.0 stay two."""
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    return column


def _group(columns: Sequence[pa.Array]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Group number of each row, numbered by first appearance, and the first row of each group."""
    combined: npt.NDArray[np.int64] | None = None
    size = 1
    for column in columns:
        encoded = _encodable(column).dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy()
        width = len(encoded.dictionary)
        if combined is None:
            combined, size = indices.astype(np.int64), width
            continue
        if size * width > _MOST_CODES:
            combined = _dense(combined)
            size = int(combined.max()) + 1
        combined, size = combined * width + indices, size * width
    if combined is None:
        raise AssertionError("a partition spec without fields has one group")
    codes = _dense(combined)
    groups = int(codes.max()) + 1
    first_rows = np.full(groups, len(codes), dtype=np.int64)
    np.minimum.at(first_rows, codes, np.arange(len(codes)))
    # numpy sorts 16-bit integers stably in linear time
    return codes.astype(np.uint16) if groups <= 2**16 else codes, first_rows


def _dense(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    dense: npt.NDArray[np.int64] = (
        pa.array(codes).dictionary_encode().indices.to_numpy().astype(np.int64)
    )
    return dense


def _encodable(column: pa.Array) -> pa.Array:
    """Floating point by its bits, so that -0.0 and 0.0 differ."""
    if pa.types.is_float32(column.type):
        return column.view(pa.int32())
    if pa.types.is_float64(column.type):
        return column.view(pa.int64())
    return column
