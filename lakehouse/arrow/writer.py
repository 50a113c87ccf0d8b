"""Arrow record batches to Parquet data files, partitioned, sorted and measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from lakehouse.spec.data_file import DataFile
from lakehouse.storage.protocol import Storage


@dataclass(frozen=True, kw_only=True)
class WriteRequest:
    """What a writer has to know about the table; picklable, so that it can be shipped to Spark workers.

    Attributes:
        schema: the table's schema; batches are coerced to it by column name.
        spec: partition spec that the new files belong to.
        sort_order: rows of each file are sorted by it; unsorted by default.
        location: data location (`<table location>/data` or `write.data.path`), in the table's own spelling.
        properties: table properties (`write.target-file-size-bytes`, `write.parquet.*`, `write.metadata.metrics.*`).
        format_version: table format version, 1 to 3.
        write_id: unique per write, part of every file name, so that two writes never collide.
        table: name of the table, for messages.
    """

    schema: Schema
    spec: PartitionSpec
    location: str
    write_id: str
    sort_order: SortOrder = UNSORTED_SORT_ORDER
    properties: Mapping[str, str] = field(default_factory=dict)
    format_version: int = 2
    table: str = ""


def write_data_files(
    batches: Iterable[pa.RecordBatch] | pa.Table | pa.RecordBatchReader, request: WriteRequest, storage: Storage, *, task: str = "0"
) -> Iterator[DataFile]:
    """Write batches as data files `<location>/<partition path>/00000-<task>-<write id>-<n>.parquet`.

    Each file is durable when its DataFile is yielded. Batches are coerced to the schema (see `coerce`), split by
    partition and sorted by the sort order; a file is finished when it reaches the target size. Memory is bounded:
    when the buffered rows of all open partitions exceed the budget, the largest is written out.

    Args:
        batches: rows; columns are matched by name.
        request: table facts.
        storage: where the files go.
        task: distinguishes parallel writers of the same write (Spark partition and attempt, say).

    Yields:
        One DataFile per finished file, with metrics of the modes that the properties ask for.

    Raises:
        InvalidSchemaError: the data does not fit the schema; files that were not yielded yet are removed.
        StorageError: a file could not be written; files that were not yielded yet are removed.
    """
    raise AssertionError(batches, request, storage, task)
