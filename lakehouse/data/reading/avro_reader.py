"""Reading one Avro data file.

Row-oriented files are for landing: they are read whole; compaction turns them into Parquet.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from lakehouse.data.deletes.delete_loader import EqualityKeys
from lakehouse.data.deletes.deletion_vector import Positions
from lakehouse.data.reading.avro_record_columns import avro_columns, without_logical_types
from lakehouse.data.reading.column_projection import Projection
from lakehouse.data.reading.file_columns import file_columns
from lakehouse.data.reading.parquet_reader import RowGroup, TaskReader
from lakehouse.data.reading.scan_columns import ScanColumns
from lakehouse.errors import CorruptMetadataError
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.avro_container import inflated_blocks, read_header
from lakehouse.storage.storage_protocol import Storage

AVRO = "avro"
_DAMAGE = (
    EOFError,
    IndexError,
    KeyError,
    ValueError,
    TypeError,
    OverflowError,
    SchemaParseException,
    UnknownType,
    pa.ArrowException,
)


class AvroFile:
    """An Avro file as record batches with the columns, and the field ids, that it has.

    Args:
        path: for messages.
        data: the whole file.

    Raises:
        CorruptMetadataError: it is not valid Avro, or inflates to far more than its size.
        UnsupportedFeatureError: an Avro type that no Iceberg type stands for.
    """

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        self._data = data
        self._header = read_header(data, path)
        self._columns = avro_columns(self._header.schema, path)
        self.schema = pa.schema([one.arrow() for one in self._columns])

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The records, at most `rows` at a time. Raises CorruptMetadataError."""
        for records in self._records(rows):
            try:
                arrays = [
                    one.array([record[one.name] for record in records]) for one in self._columns
                ]
                batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            except _DAMAGE as error:
                raise self._damaged(error) from error
            yield batch

    def _records(self, rows: int) -> Iterator[list[dict[str, Any]]]:
        try:
            schema = fastavro.parse_schema(without_logical_types(self._header.schema))
        except _DAMAGE as error:
            raise self._damaged(error) from error
        records: list[dict[str, Any]] = []
        for count, block in inflated_blocks(self._data, self._header, self._path):
            source = io.BytesIO(block)
            for _ in range(count):
                try:
                    record = fastavro.schemaless_reader(source, schema, None)
                except _DAMAGE as error:
                    raise self._damaged(error) from error
                records.append(record)  # type: ignore[arg-type]  # the schema is a record
                if len(records) == rows:
                    yield records
                    records = []
        if records:
            yield records

    def _damaged(self, error: Exception) -> CorruptMetadataError:
        return CorruptMetadataError(
            f"file {self._path} is not readable Avro: {error}", file=self._path
        )


class AvroTaskReader(TaskReader):
    """Reads one scan task over an Avro file.

    The file counts as one row group, whichever byte range the task names.

    Raises:
        NoSuchFileError, StorageError: it cannot be read.
        CorruptMetadataError: it is not valid Avro, or inflates to far more than its size.
        UnsupportedFeatureError: an Avro type that no Iceberg type stands for.
        InvalidSchemaError: a column cannot be resolved.
    """

    def __init__(
        self,
        task: FileScanTask,
        scan: ScanColumns,
        storage: Storage,
        *,
        deleted: Positions | None = None,
        keys: Sequence[EqualityKeys] = (),
        name_mapping: str | None = None,
        batch_rows: int = 32_768,
    ) -> None:
        # nothing of a Parquet file: the rows are shaped like those of one
        self._task, self._scan, self._deleted, self._keys, self._batch_rows = (
            task,
            scan,
            deleted,
            keys,
            batch_rows,
        )
        self._path = task.data_file.file_path
        self._file: AvroFile | None = None
        self.row_groups: list[RowGroup] = []
        if task.start > 0:
            return
        self._file = AvroFile(self._path, storage.read(self._path))
        known = file_columns(self._file.schema, name_mapping, self._path)
        constants = scan.constants(task.data_file)
        self._projection = Projection(
            known, scan.read_fields, scan.read_arrow, constants, self._path, pruned=False
        )
        self.row_groups = [RowGroup(0, 0, task.data_file.record_count)]

    @property
    def bulk(self) -> None:
        """None: Polars decodes Parquet only."""

    def ready(self) -> None:
        """Never at once: text takes long to parse."""

    def close(self) -> None:
        """Release the file."""
        self._file = None

    def batches(self, group: RowGroup) -> Iterator[pa.RecordBatch]:
        """Wanted rows and columns of the file."""
        position = group.first_row
        for batch in self._file.batches(self._batch_rows) if self._file else ():
            wanted = self.wanted(batch, batch.num_rows, position)
            position += batch.num_rows
            if wanted is not None and wanted.num_rows:
                yield wanted
        if position != group.rows:
            raise CorruptMetadataError(
                f"{self._path} holds {position} rows, its manifest says {group.rows}",
                file=self._path,
            )
