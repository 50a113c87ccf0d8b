"""Reading data files of formats other than Parquet, which are read whole: Avro and ORC.

Others wrote them; compaction turns them into Parquet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from lakehouse.data.reading.avro.avro_reader import AvroFile
from lakehouse.data.reading.column_projection import Projection, file_columns
from lakehouse.data.reading.orc_file import OrcFile
from lakehouse.data.reading.scan_columns import RowGroup, TaskReader, WantedRows
from lakehouse.errors import CorruptMetadataError
from lakehouse.storage.storage_protocol import Storage


class WholeFile(Protocol):
    """A file in memory, with the columns, and the field ids, that it has."""

    schema: pa.Schema

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The rows, at most `rows` at a time."""


WHOLE_FORMATS: Mapping[str, Callable[[str, bytes], WholeFile]] = {"avro": AvroFile, "orc": OrcFile}
"""What opens a file of its location and bytes, by the format that manifests say."""


class WholeFileReader(TaskReader):
    """Reads one scan task over a file of `WHOLE_FORMATS`.

    The file counts as one row group, whichever byte range the task names.

    Args:
        rows: what is wanted of the file.
        storage: where the file is.

    Raises:
        NoSuchFileError, StorageError: it cannot be read.
        CorruptMetadataError: it is not valid, or inflates to far more than its size.
        UnsupportedFeatureError: a type that no Iceberg type stands for, or that is not read.
        InvalidSchemaError: a column cannot be resolved.
    """

    def __init__(self, rows: WantedRows, storage: Storage) -> None:
        super().__init__(rows)
        self._file: WholeFile | None = None
        self.row_groups: list[RowGroup] = []
        if rows.task.start > 0:
            return
        scan, file = rows.scan, rows.task.data_file
        opened = WHOLE_FORMATS[file.file_format.lower()]
        self._file = opened(self.path, storage.read_range(self.path, 0, storage.size(self.path)))
        known = file_columns(self._file.schema, rows.name_mapping, self.path)
        constants = scan.constants(file)
        self._projection = Projection(
            known, scan.read_fields, scan.read_arrow, constants, self.path, pruned=False
        )
        self.row_groups = [RowGroup(0, 0, file.record_count)]

    def close(self) -> None:
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
