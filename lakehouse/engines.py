"""The one door to an engine that is not always installed: Spark.

A table takes a Spark DataFrame where it takes Arrow data, and a Spark schema where it takes an
Arrow schema. Spark is optional, so the module that speaks to it is imported when the first object
of its kind arrives, here and nowhere else.
"""

from __future__ import annotations

import importlib
from typing import Protocol, cast

import pyarrow as pa
from pyiceberg.schema import Schema

from lakehouse.data.group_rewriting import GroupExecutor
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.errors import InvalidInputError, InvalidSchemaError
from lakehouse.scan.planner import ScanRequest
from lakehouse.scan.reports.listeners import Listeners
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.types.arrow_types import schema_from_arrow
from lakehouse.storage.storage_protocol import Storage


class Engine(Protocol):
    """What an engine module offers."""

    def to_schema(self, schema: object) -> Schema:
        """The Iceberg schema of an engine schema, ids assigned. Raises UnsupportedTypeError."""

    def write_data_files(
        self, data: object, request: WriteRequest, storage: Storage
    ) -> list[DataFile]:
        """Write a frame as data files, in place, on the engine's workers."""

    def group_executor(self, session: object) -> GroupExecutor:
        """Compaction on the engine's workers."""

    def read(
        self,
        name: str,
        request: ScanRequest,
        storage: Storage,
        session: object,
        listeners: Listeners | None = None,
        *,
        limit: int | None = None,
    ) -> object:
        """A frame over one snapshot, pruned again by each query that uses it.

        `listeners` get a report of every plan; `limit` is the most rows that the frame has.
        """


_ENGINES = {"pyspark": "lakehouse.spark.spark_engine"}


def executor_for(session: object | None) -> GroupExecutor | None:
    """Compaction on the workers of a session; None without one: threads of this process do it.

    Raises:
        InvalidInputError: no session of an engine.
    """
    if session is None:
        return None
    engine = engine_for(session)
    if engine is None:
        raise InvalidInputError(
            f"Compaction runs on a SparkSession, not on {type(session).__name__}"
        )
    return engine.group_executor(session)


def engine_for(value: object) -> Engine | None:
    """The engine that `value` (a frame, schema or session) belongs to; None if to none.

    Raises:
        ImportError: the engine's packages are not installed; the message names the extra to
            install.
    """
    package = type(value).__module__.partition(".")[0]
    if package not in _ENGINES:
        return None
    return cast("Engine", importlib.import_module(_ENGINES[package]))


def to_schema(schema: object) -> Schema:
    """An Iceberg schema from a pyarrow, pyiceberg or Spark schema.

    Raises InvalidSchemaError, UnsupportedTypeError.
    """
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, pa.Schema):
        return schema_from_arrow(schema)
    engine = engine_for(schema)
    if engine is None:
        raise InvalidSchemaError(
            "a schema must be a pyarrow, pyiceberg or Spark schema, not "
            f"{type(schema).__module__}.{type(schema).__name__}"
        )
    return engine.to_schema(schema)
