"""Spark as an engine of `lakehouse.engines`: frames in, data files out; scans in, frames out."""

from __future__ import annotations

from typing import cast

from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.errors import InvalidInputError
from lakehouse.scan.planner import ScanRequest
from lakehouse.scan.reports.listeners import Listeners
from lakehouse.spark.reading import scan_frame
from lakehouse.spark.spark_types import to_iceberg_schema
from lakehouse.spark.writing import frame_files
from lakehouse.spark.writing.compaction_tasks import SparkExecutor
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.storage.storage_protocol import Storage


def to_schema(schema: object) -> Schema:
    """The Iceberg schema of a Spark schema (or of a frame), ids assigned.

    Raises UnsupportedTypeError, InvalidInputError.
    """
    if isinstance(schema, DataFrame):
        return to_iceberg_schema(schema.schema)
    if not isinstance(schema, StructType):
        raise InvalidInputError(f"a Spark schema is a StructType, not {type(schema).__name__}")
    return to_iceberg_schema(schema)


def write_data_files(data: object, request: WriteRequest, storage: Storage) -> list[DataFile]:
    """Write a frame as data files on Spark's workers (see `frame_files.write_data_files`)."""
    if not isinstance(data, DataFrame):
        raise InvalidInputError(f"Spark writes a DataFrame, not {type(data).__name__}")
    return frame_files.write_data_files(data, request, storage)


def group_executor(session: object) -> SparkExecutor:
    """Compaction by tasks of a session (see `compaction.SparkExecutor`)."""
    return SparkExecutor(cast("SparkSession", session))


def read(
    name: str,
    request: ScanRequest,
    storage: Storage,
    session: object,
    listeners: Listeners | None = None,
    *,
    limit: int | None = None,
) -> DataFrame:
    """A frame over one snapshot (see `scan_frame.read`)."""
    # a Spark Connect session is no subclass; the package that defines it takes extra dependencies
    # to import
    if not isinstance(session, SparkSession) and type(session).__name__ != SparkSession.__name__:
        raise InvalidInputError(f"Spark reads with a SparkSession, not {type(session).__name__}")
    frame = scan_frame.read(cast("SparkSession", session), name, request, storage, listeners)
    return frame if limit is None else frame.limit(limit)
