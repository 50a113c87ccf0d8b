"""Spark DataFrames to data files: each task writes Parquet in place and reports what it wrote; the caller commits."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping

import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from lakehouse import errors
from lakehouse.arrow.coerce import coerce
from lakehouse.arrow.writer import WriteRequest, write_all
from lakehouse.errors import LakehouseError, StorageError
from lakehouse.spark.distribution import distribute
from lakehouse.spec.data_file import DataFile
from lakehouse.storage.load import storage_for
from lakehouse.storage.protocol import Storage

_RECORD = pa.schema([pa.field("record", pa.binary())])
_FAILURE = re.compile(r"lakehouse-failure:([A-Za-z0-9+/=]+):")


def write_data_files(frame: DataFrame, request: WriteRequest, storage: Storage) -> list[DataFile]:
    """Write a frame as data files on Spark's workers.

    Rows are shuffled by `write.distribution-mode`; then each task splits, sorts and writes its own (see `lakehouse.arrow.writer`)
    with a storage rebuilt from `storage.properties`. Nothing is renamed or listed. A task that fails deletes what it wrote;
    files of other tasks of a failed job stay, unreferenced, for orphan removal.

    Raises:
        InvalidSchemaError: the frame does not fit the table; known before the job starts where only the schema matters.
        InvalidPropertyError: a table property that cannot be used.
        StorageError: a file could not be written.
    """
    empty = to_arrow_schema(frame.schema, timezone="UTC").empty_table()
    list(coerce(empty, request.schema, table=request.table))
    try:
        return written_files(distribute(frame, request), request, storage)
    except PySparkException as error:
        failure = failure_of(str(error))
        if failure is None:
            raise
        raise failure from error


def written_files(frame: DataFrame, request: WriteRequest, storage: Storage) -> list[DataFile]:
    """Write the rows where they are, each task its own files.

    Raises:
        PySparkException: what workers raised, to be found by `failure_of`.
    """
    written = frame.mapInArrow(_writer(request, storage.properties), "record binary").toArrow()
    return [DataFile.from_record(orjson.loads(record)) for record in written.column("record").to_pylist()]


def _writer(
    request: WriteRequest, properties: Mapping[str, str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = "0" if context is None else f"{context.partitionId()}-{context.taskAttemptId()}"
        try:
            files = write_all(batches, request, storage_for(request.location, properties), task=task)
        except LakehouseError as error:
            raise RuntimeError(marked(error)) from error
        records = [orjson.dumps(one.to_record()) for one in files]
        yield pa.RecordBatch.from_arrays([pa.array(records, pa.binary())], schema=_RECORD)

    return write


def marked(error: LakehouseError) -> str:
    """Text by which `failure_of` finds the error again in the driver: Spark carries the worker's exception as text alone."""
    facts = {"type": type(error).__name__, "message": error.message, "retryable": error.retryable}
    return f"lakehouse-failure:{base64.b64encode(json.dumps(facts).encode()).decode()}: {error.message}"


def failure_of(text: str) -> LakehouseError | None:
    """The error that `marked` put into a text; None when it holds none."""
    found = _FAILURE.search(text)
    if found is None:
        return None
    facts = json.loads(base64.b64decode(found.group(1)))
    kind = getattr(errors, facts["type"], LakehouseError)
    if issubclass(kind, StorageError):
        return kind(facts["message"], retryable=facts["retryable"])
    return kind(facts["message"]) if issubclass(kind, LakehouseError) else None
