"""Data files that any reader of Parquet reads as we do: an engine may be given their paths."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakehouse.data.reading.parquet_reader import (
    PARQUET_OPTIONS,
    as_metadata_file,
    load_footer,
    readable,
)
from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.schema.iceberg_types import once
from lakehouse.spec.types.arrow_types import field_id_of, schema_to_arrow
from lakehouse.storage.storage_protocol import Storage, path_on_disk

# Readers of Parquet agree on these; what others call a UUID, a time, a map or nanoseconds differs.
_ALIKE = (
    BooleanType, IntegerType, LongType, FloatType, DoubleType, DecimalType, DateType,
    TimestampType, TimestamptzType, StringType, BinaryType,
)  # fmt: skip
# Timestamps that have a converted type alone: DuckDB and Polars read them without their zone.
_OLDER = '"is_from_converted_type": true'
_KEPT_BYTES = 4_194_304
_KNOWN: KeptByBytes[tuple[str, int, str], bool] = KeptByBytes(_KEPT_BYTES)
"""Whether files of a path and size are as a schema says: no file that is referred to changes."""


def read_alike(schema: Schema) -> bool:
    """Whether all readers of Parquet make the same of columns of these names and types."""
    folded = {field.name.lower() for field in schema.fields}
    return len(folded) == len(schema.fields) and all(_alike(f.field_type) for f in schema.fields)


def plain_paths(
    tasks: Sequence[FileScanTask], schema: Schema, storage: Storage
) -> list[str | None]:
    """For each task the path on this machine's disk of a file that needs no reader of ours.

    It is Parquet and has exactly the columns of the schema: names, field ids, types and order, and
    as many rows as the manifest says; nothing is renamed, promoted or filled in. Filter and deletes
    of the task are not looked at.

    Args:
        tasks: whole files.
        schema: of the table, which is `read_alike`.
        storage: where the files are.

    Returns:
        None where the file is elsewhere, or is not like that.

    Raises:
        NoSuchFileError, StorageError, CorruptMetadataError, UnsupportedFeatureError: a footer
            cannot be read.
    """
    key = once(schema, "_lazy_plain_key", lambda: _digest(schema))
    path_of = partial(_path, schema=schema, key=key, storage=storage)
    if len(tasks) < 2:
        return [path_of(task) for task in tasks]
    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        return list(pool.map(path_of, tasks))


def _digest(schema: Schema) -> str:
    return hashlib.sha256(schema_to_arrow(schema).serialize()).hexdigest()


def _alike(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return all(_alike(field.field_type) for field in kind.fields)
    return _alike(kind.element_type) if isinstance(kind, ListType) else isinstance(kind, _ALIKE)


def _path(task: FileScanTask, schema: Schema, key: str, storage: Storage) -> str | None:
    file = task.data_file
    if file.file_format.lower() != "parquet":
        return None
    path = path_on_disk(storage, file.file_path)
    if path is None:
        return None
    known = (file.file_path, file.file_size_in_bytes, key)
    plain = _KNOWN.get(known)
    if plain is None:
        plain = _is_plain(task, schema, storage)
        _KNOWN.put(known, plain, len(file.file_path) + len(key) + 200)
    return path if plain else None


def _is_plain(task: FileScanTask, schema: Schema, storage: Storage) -> bool:
    footer = load_footer(storage, task.data_file)
    with readable(task.data_file.file_path):
        reader = pq.core.ParquetReader()
        reader.open(
            pa.BufferReader(as_metadata_file(footer.data)),
            metadata=footer.parsed,
            **PARQUET_OPTIONS,
        )
        columns = reader.schema_arrow
    if footer.parsed.num_rows != task.data_file.record_count:
        return False
    schema_of_file = footer.parsed.schema
    leaves = [schema_of_file.column(at) for at in range(len(schema_of_file))]
    if any(
        leaf.physical_type == "INT96" or _OLDER in leaf.logical_type.to_json() for leaf in leaves
    ):
        return False
    wanted = schema_to_arrow(schema)
    return len(columns) == len(wanted) and all(
        _same(there, here) for there, here in zip(columns, wanted, strict=True)
    )


def _same(there: pa.Field, here: pa.Field) -> bool:
    if there.name != here.name or field_id_of(there) != field_id_of(here):
        return False
    return _same_type(there.type, here.type)


def _same_type(there: pa.DataType, here: pa.DataType) -> bool:
    if pa.types.is_struct(here) and pa.types.is_struct(there):
        return there.num_fields == here.num_fields and all(
            _same(there.field(at), here.field(at)) for at in range(here.num_fields)
        )
    if pa.types.is_list(here) and pa.types.is_list(there):
        element = there.value_field
        return field_id_of(element) == field_id_of(here.value_field) and _same_type(
            element.type, here.value_type
        )
    return bool(there == here)
