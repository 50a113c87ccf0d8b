"""Spark DataFrames to data files: tasks write Parquet and report it, the caller commits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame

from lakehouse.data.writing.data_file_writer import WriteRequest, write_all
from lakehouse.data.writing.input_columns import coerce
from lakehouse.errors import InvalidSchemaError
from lakehouse.spark.jvm.failures import marking, unmarking
from lakehouse.spark.shown_values import stored_array
from lakehouse.spark.spark_types import arrow_schema, is_foreign
from lakehouse.spark.worker_tasks import Batches, map_batches, task_name
from lakehouse.spark.writing.distribution import distribute
from lakehouse.spark.writing.native_files import frame_obstacle, write_in_jvm
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage

logger = logging.getLogger(__name__)

_RECORD = pa.schema([pa.field("record", pa.binary())])


def write_data_files(frame: DataFrame, request: WriteRequest, storage: Storage) -> list[DataFile]:
    """Write a frame as data files on Spark's workers.

    Rows are shuffled by `write.distribution-mode`; then each task splits, sorts and writes its own:
    in its JVM where it can (`native_files`), else in Python
    (`lakehouse.data.writing.data_file_writer`). Nothing is renamed or listed. A task that fails
    deletes what it wrote; files of other tasks of a failed job stay, unreferenced, for orphan
    removal.

    Raises:
        InvalidSchemaError: the frame does not fit the table; known before the job starts where only
            the schema matters.
        InvalidPropertyError: a table property that cannot be used.
        StorageError: a file could not be written.
    """
    empty = pa.RecordBatch.from_pylist([], schema=arrow_schema(frame.schema))
    list(coerce(stored_batches(iter([empty]), request), request.schema, table=request.table))
    problem = frame_obstacle(frame, request, storage)
    with unmarking():
        if problem is None:
            return write_in_jvm(frame, request)
        logger.debug("%s is written by Python workers: %s", request.table, problem)
        return written_files(distribute(frame, request), request, storage)


def written_files(frame: DataFrame, request: WriteRequest, storage: Storage) -> list[DataFile]:
    """Write the rows where they are, each task its own files.

    Raises:
        PySparkException: what workers raised, to be raised by `unmarking`.
    """
    written = file_records(frame, request, storage).toArrow()
    return [
        DataFile.from_record(orjson.loads(record))
        for record in written.column("record").to_pylist()
    ]


def file_records(frame: DataFrame, request: WriteRequest, storage: Storage) -> DataFrame:
    """A frame of one `record`, JSON, for each file that the tasks write when it is computed."""
    return map_batches(frame, _writer(request, storage.properties), "record binary")


def stored_batches(batches: Batches, request: WriteRequest) -> Batches:
    """Rows as Spark holds them, with the times that are text to it (`spark_types`) as times.

    Raises:
        InvalidSchemaError: a text that is none, or one without an offset for an instant.
    """
    fields = {field.name: field for field in request.schema.fields if is_foreign(field.field_type)}
    for batch in batches:
        for position, name in enumerate(batch.schema.names):
            if name in fields:
                try:
                    stored = stored_array(batch.column(position), fields[name].field_type)
                except pa.ArrowInvalid as error:
                    raise InvalidSchemaError(
                        f"column {name!r} of table {request.table}: {error}. Write nanoseconds as "
                        "2026-01-31 12:00:00.123456789, and an instant with Z or +02:00 behind it",
                        table=request.table,
                        column=name,
                    ) from error
                batch = batch.set_column(position, name, stored)
        yield batch


def _writer(request: WriteRequest, properties: Mapping[str, str]) -> Callable[[Batches], Batches]:
    def write(batches: Batches) -> Batches:
        with marking():
            storage = storage_for(request.location, properties)
            rows = stored_batches(batches, request)
            files = write_all(rows, request, storage, task=task_name())
        records = [orjson.dumps(file.to_record()) for file in files]
        yield pa.RecordBatch.from_arrays([pa.array(records, pa.binary())], schema=_RECORD)

    return write
