"""Reading one Avro data file.

Row-oriented files are for landing: they are read whole; compaction turns them into Parquet.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa

from lakehouse.data.reading.avro.avro_record_columns import avro_columns, without_logical_types
from lakehouse.data.reading.column_projection import Projection
from lakehouse.data.reading.file_columns import file_columns
from lakehouse.data.reading.task_reader import RowGroup, TaskReader, WantedRows
from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.manifests.avro_container import DECODING_ERRORS, inflated_blocks, read_header
from lakehouse.storage.storage_protocol import Storage

AVRO = "avro"
_DAMAGE = (*DECODING_ERRORS, pa.ArrowException)


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

    Args:
        rows: what is wanted of the file.
        storage: where the file is.

    Raises:
        NoSuchFileError, StorageError: it cannot be read.
        CorruptMetadataError: it is not valid Avro, or inflates to far more than its size.
        UnsupportedFeatureError: an Avro type that no Iceberg type stands for.
        InvalidSchemaError: a column cannot be resolved.
    """

    def __init__(self, rows: WantedRows, storage: Storage) -> None:
        super().__init__(rows)
        self._file: AvroFile | None = None
        self.row_groups: list[RowGroup] = []
        if rows.task.start > 0:
            return
        self._file = AvroFile(self.path, storage.read_range(self.path, 0, storage.size(self.path)))
        scan, file = rows.scan, rows.task.data_file
        known = file_columns(self._file.schema, rows.name_mapping, self.path)
        constants = scan.constants(file)
        self._projection = Projection(
            known, scan.read_fields, scan.read_arrow, constants, self.path, pruned=False
        )
        self.row_groups = [RowGroup(0, 0, file.record_count)]

    def close(self) -> None:
        """Release the file."""
        self._file = None

    def batches(self, group: RowGroup) -> Iterator[pa.RecordBatch]:
        """Wanted rows and columns of the file."""
        position = group.first_row
        for batch in self._file.batches(self._rows.batch_rows) if self._file else ():
            wanted = self.wanted(batch, batch.num_rows, position)
            position += batch.num_rows
            if wanted is not None and wanted.num_rows:
                yield wanted
        if position != group.rows:
            raise CorruptMetadataError(
                f"{self.path} holds {position} rows, its manifest says {group.rows}",
                file=self.path,
            )
