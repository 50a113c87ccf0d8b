"""Parquet data files to Arrow record batches: columns by field id, deletes applied, rows filtered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from lakehouse.scan.tasks import FileScanTask
from lakehouse.storage.protocol import Storage


@dataclass(frozen=True, kw_only=True)
class ReadRequest:
    """What a reader has to know about the scan; picklable.

    Attributes:
        schema: columns to return, in order, as a projection of the table's schema; may hold metadata columns
            (`METADATA_COLUMNS`: `_file`, `_pos`, `_spec_id`, `_row_id`, `_last_updated_sequence_number`).
        table_schema: the whole schema that `where` and equality deletes refer to; `schema` when None.
        where: rows for which this is not true are dropped (three-valued logic), on every task, together with the residual of the
            task. Give the scan's own filter, or AlwaysTrue when the residuals of the tasks are enough.
        specs: partition specs by id, for identity partition values of files that lack the column.
        name_mapping: JSON of `schema.name-mapping.default`, for files without field ids.
        batch_rows: most rows in a returned batch.
        threads: files and row groups decoded at a time; one per core when None.
        ordered: batches in the order of the tasks; otherwise as they are ready.
    """

    schema: Schema
    table_schema: Schema | None = None
    where: BooleanExpression = field(default_factory=AlwaysTrue)
    specs: Mapping[int, PartitionSpec] = field(default_factory=dict)
    name_mapping: str | None = None
    batch_rows: int = 131_072
    threads: int | None = None
    ordered: bool = True


def read_tasks(tasks: Iterable[FileScanTask], request: ReadRequest, storage: Storage) -> Iterator[pa.RecordBatch]:
    """Stream the rows of the tasks with bounded memory.

    Every batch has exactly the schema `schema_to_arrow(request.schema)`; empty batches are left out.

    Raises:
        NoSuchFileError: a data or delete file is missing.
        CorruptMetadataError: a file is not valid Parquet or Puffin.
        InvalidSchemaError: a file lacks a required column or holds a type that cannot be promoted.
        UnsupportedFeatureError: a file format other than Parquet.
    """
    raise AssertionError(tasks, request, storage)


def read_table(tasks: Iterable[FileScanTask], request: ReadRequest, storage: Storage) -> pa.Table:
    """All rows of the tasks as one table (see `read_tasks`); the fastest way when the result fits in memory."""
    raise AssertionError(tasks, request, storage)
