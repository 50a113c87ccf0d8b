"""Arrow record batches to Parquet data files, partitioned, sorted and measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from lakehouse.data.writing.column_metrics import metrics_modes, stored_schema
from lakehouse.data.writing.fan_out import FanOut, FileTarget
from lakehouse.data.writing.input_columns import ArrowData, Coercer, coerce
from lakehouse.data.writing.parquet_writer import ParquetOptions
from lakehouse.data.writing.partition_splitter import PartitionSplitter
from lakehouse.data.writing.row_sorter import RowSorter
from lakehouse.spec.manifests.data_file import DataFile
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
    target = _file_target(request, storage, task)
    splitter = PartitionSplitter(request.spec, request.schema)
    buffer = TableProperties(request.properties).write_buffer_bytes
    fan_out = FanOut(target, RowSorter(request.sort_order, request.schema), buffer)
    names = {one.name for one in target.schema.fields}
    stored = [at for at, one in enumerate(request.schema.fields) if one.name in names]
    partial = len(stored) != len(request.schema.fields)
    try:
        for batch in coerce(data, request.schema, table=request.table):
            for partition, part in splitter.split(batch):
                yield from fan_out.add(partition, part.select(stored) if partial else part)
        yield from fan_out.finish()
    finally:
        fan_out.abort()


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
