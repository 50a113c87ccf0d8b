"""Row-level deletes by position: position delete files for v2, deletion vectors for v3."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import pyarrow as pa

from lakehouse.data.deletes.delete_loader import POSITION_DELETE_SCHEMA, POSITION_PATH, POSITION_ROW
from lakehouse.data.deletes.deletion_vector import BLOB_TYPE, Positions, encode_vector
from lakehouse.data.statistics.column_metrics import FULL
from lakehouse.data.statistics.puffin import PuffinWriter
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.data.writing.parquet_writer import ParquetFileWriter, ParquetOptions
from lakehouse.errors import InvalidInputError, UnsupportedFeatureError
from lakehouse.spec.manifests.data_file import CONTENT_DATA, CONTENT_POSITION_DELETES, DataFile
from lakehouse.spec.partitioning.partition_terms import partition_path
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.spec.types.sorted_numbers import distinct
from lakehouse.storage.storage_protocol import Storage

_CREATED_BY = "lakehouse"
# Rows of a position delete file's row group; readers look for one path at a time.
_ROW_GROUP_ROWS = 1_048_576


@dataclass(frozen=True, slots=True)
class FileDeletes:
    """Rows to delete from one data file.

    Attributes:
        data_file: the file.
        positions: all of its deleted rows, those of deletes that this replaces too. Any order,
            duplicates allowed.
    """

    data_file: DataFile
    positions: Positions


def write_deletes(
    deletes: Iterable[FileDeletes], request: WriteRequest, storage: Storage, *, task: str = "0"
) -> list[DataFile]:
    """Write deletes as the format version asks: position delete files (v2), deletion vectors (v3).

    Args:
        deletes: one item a data file.
        request: table facts; its spec must be that of every data file (one call a spec).
        storage: where the files go.
        task: distinguishes parallel writers of the same write.

    Returns:
        Delete files to commit, durable. v3: one for each data file, all in one Puffin file. v2: one
        for each data file, or for each partition when `write.delete.granularity` is `partition`
        (fewer files, which some readers refuse).

    Raises:
        UnsupportedFeatureError: format version 1 has no row-level deletes.
        InvalidInputError: a position outside its file, a file of another spec, or one that is no
            data file.
        StorageError: a file could not be written; nothing of the others is left.
    """
    items = [_checked(delete, request) for delete in deletes]
    items = [item for item in items if len(item.positions)]
    if request.format_version < 2:
        raise UnsupportedFeatureError(
            f"table {request.table} has format version 1, which has no row-level deletes; upgrade "
            "it to 2"
        )
    if not items:
        return []
    if request.format_version >= 3:
        return _write_vectors(items, request, storage, task)
    return _write_position_files(items, request, storage, task)


def _checked(deletes: FileDeletes, request: WriteRequest) -> FileDeletes:
    path = deletes.data_file.file_path
    if deletes.data_file.spec_id != request.spec.spec_id:
        raise InvalidInputError(
            f"{path} belongs to partition spec {deletes.data_file.spec_id}, the request to "
            f"{request.spec.spec_id}",
            file=path,
        )
    return _in_its_file(deletes)


def _in_its_file(deletes: FileDeletes) -> FileDeletes:
    path = deletes.data_file.file_path
    if deletes.data_file.content != CONTENT_DATA:
        raise InvalidInputError(
            f"{path} is a delete file: only rows of data files are deleted", file=path
        )
    positions = distinct(np.asarray(deletes.positions, dtype=np.int64))
    if len(positions) and (positions[0] < 0 or positions[-1] >= deletes.data_file.record_count):
        raise InvalidInputError(
            f"a deleted position lies outside {path}, which has "
            f"{deletes.data_file.record_count} rows",
            file=path,
        )
    return FileDeletes(deletes.data_file, positions)


def _write_vectors(
    items: Sequence[FileDeletes], request: WriteRequest, storage: Storage, task: str
) -> list[DataFile]:
    location = (
        f"{request.location.rstrip('/')}/00000-{task}-{request.write_id}-00001-deletes.puffin"
    )
    data, written = encode_vectors(items, location)
    with storage.open_output(location) as stream:
        stream.write(data)
    return written


def encode_vectors(deletes: Iterable[FileDeletes], location: str) -> tuple[bytes, list[DataFile]]:
    """The Puffin file with a deletion vector for each item, and these as files to commit.

    Args:
        deletes: one item a data file, of any partition spec.
        location: where the file will lie.

    Raises:
        InvalidInputError: a position outside its file, or a file that is no data file.
    """
    items = [_in_its_file(delete) for delete in deletes]
    puffin = PuffinWriter(_CREATED_BY)
    blobs = []
    for item in items:
        properties = {
            "referenced-data-file": item.data_file.file_path,
            "cardinality": str(len(item.positions)),
        }
        blobs.append(
            puffin.add(
                encode_vector(item.positions), BLOB_TYPE, [POSITION_ROW.field_id], properties
            )
        )
    data = puffin.finish()
    return data, [
        DataFile(
            content=CONTENT_POSITION_DELETES,
            file_path=location,
            file_format="puffin",
            partition=deletes.data_file.partition,
            spec_id=deletes.data_file.spec_id,
            record_count=len(deletes.positions),
            file_size_in_bytes=len(data),
            referenced_data_file=deletes.data_file.file_path,
            content_offset=blob.offset,
            content_size_in_bytes=blob.length,
        )
        for deletes, blob in zip(items, blobs, strict=True)
    ]


def _write_position_files(
    items: Sequence[FileDeletes], request: WriteRequest, storage: Storage, task: str
) -> list[DataFile]:
    by_file = TableProperties(request.properties).delete_granularity == "file"
    groups: dict[tuple[object, ...], list[FileDeletes]] = {}
    for item in items:
        key = (item.data_file.file_path,) if by_file else item.data_file.partition
        groups.setdefault(key, []).append(item)
    written: list[DataFile] = []
    try:
        for number, group in zip(count(1), groups.values()):
            folder = partition_path(request.spec, request.schema, group[0].data_file.partition)
            name = f"00000-{task}-{request.write_id}-{number:05d}-deletes.parquet"
            location = "/".join(
                part for part in (request.location.rstrip("/"), folder, name) if part
            )
            written.append(_write_position_file(group, request, storage, location))
    except BaseException:
        storage.delete([file.file_path for file in written])
        raise
    return written


def _write_position_file(
    items: Sequence[FileDeletes], request: WriteRequest, storage: Storage, location: str
) -> DataFile:
    schema = schema_to_arrow(POSITION_DELETE_SCHEMA)
    modes = {POSITION_PATH.field_id: FULL, POSITION_ROW.field_id: FULL}
    options = ParquetOptions.from_properties(request.properties)
    writer = ParquetFileWriter(storage, location, schema, POSITION_DELETE_SCHEMA, modes, options)
    try:
        for table in _rows(
            sorted(items, key=lambda delete: delete.data_file.file_path.encode("utf-8")), schema
        ):
            writer.write(table)
        metrics, size = writer.close()
    finally:
        writer.abort()
    first = items[0].data_file
    return metrics.data_file(
        content=CONTENT_POSITION_DELETES,
        file_path=location,
        partition=first.partition,
        spec_id=first.spec_id,
        file_size_in_bytes=size,
        referenced_data_file=first.file_path if len(items) == 1 else None,
    )


def _rows(items: Sequence[FileDeletes], schema: pa.Schema) -> Iterable[pa.Table]:
    """Tables of at most a row group, ordered by path, then position, as the spec asks."""
    waiting: list[pa.Table] = []
    rows = 0
    for item in items:
        for start in range(0, len(item.positions), _ROW_GROUP_ROWS):
            part = item.positions[start : start + _ROW_GROUP_ROWS]
            paths = pa.repeat(pa.scalar(item.data_file.file_path), len(part))
            waiting.append(pa.table([paths, pa.array(part)], schema=schema))
            rows += len(part)
            if rows >= _ROW_GROUP_ROWS:
                yield pa.concat_tables(waiting)
                waiting, rows = [], 0
    if waiting:
        yield pa.concat_tables(waiting)
