"""Reading data files of formats other than Parquet, which are read whole: Avro and ORC.

Others wrote them; compaction turns them into Parquet. pyarrow decodes ORC, a stripe at a time.
Types that ORC lacks are said by attributes of its types (Iceberg's Appendix A): `iceberg.id`, and
what a number or bytes stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa
from pyarrow import orc

from lakehouse.data.reading.avro_reader import AvroFile
from lakehouse.data.reading.column_projection import Projection, file_columns
from lakehouse.data.reading.scan_columns import RowGroup, TaskReader, WantedRows
from lakehouse.errors import CorruptMetadataError, UnsupportedFeatureError
from lakehouse.spec.types.arrow_types import FIELD_ID_KEY
from lakehouse.storage.storage_protocol import Storage

_ID, _LONG, _BINARY = b"iceberg.id", b"iceberg.long-type", b"iceberg.binary-type"
_LENGTH = b"iceberg.length"
_BEYOND = "out of range for nanosecond resolution"


class OrcFile:
    """An ORC file as record batches with the columns, and the field ids, that it has.

    Args:
        path: for messages.
        data: the whole file.

    Raises:
        CorruptMetadataError: it is not valid ORC.
        UnsupportedFeatureError: pyarrow has no Arrow type for one of ORC's.
    """

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        with self._readable():
            self._file = orc.ORCFile(pa.BufferReader(data))
            self.schema = pa.schema([_field(field) for field in self._file.schema])

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The rows, at most `rows` at a time.

        Raises:
            CorruptMetadataError: a stripe cannot be decoded.
            UnsupportedFeatureError: a time before 1677 or after 2262, which pyarrow, that reads
                nanoseconds, does not hold.
        """
        for stripe in range(self._file.nstripes):
            with self._readable():
                table = pa.Table.from_batches([self._file.read_stripe(stripe)]).cast(self.schema)
            yield from table.to_batches(max_chunksize=rows)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except pa.ArrowNotImplementedError as error:
            raise UnsupportedFeatureError(
                f"file {self._path} has an ORC type that is not read: {error}", file=self._path
            ) from error
        except (pa.ArrowException, OSError, ValueError) as error:
            if _BEYOND in str(error):
                raise UnsupportedFeatureError(
                    f"file {self._path} is ORC and has a time before 1677 or after 2262, which "
                    f"is not read: {error}",
                    file=self._path,
                ) from error
            raise CorruptMetadataError(
                f"file {self._path} is not readable ORC: {error}", file=self._path
            ) from error


def _field(field: pa.Field) -> pa.Field:
    attributes = field.metadata or {}
    metadata = {FIELD_ID_KEY: attributes[_ID]} if _ID in attributes else None
    return pa.field(field.name, _type(field.type, attributes), field.nullable, metadata)


def _type(kind: pa.DataType, attributes: dict[bytes, bytes]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_field(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field))
    if pa.types.is_int64(kind) and attributes.get(_LONG) == b"TIME":
        return pa.time64("us")
    if pa.types.is_binary(kind) and attributes.get(_BINARY) == b"UUID":
        return pa.binary(16)
    if pa.types.is_binary(kind) and attributes.get(_BINARY) == b"FIXED":
        return pa.binary(int(attributes[_LENGTH]))
    return kind


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
