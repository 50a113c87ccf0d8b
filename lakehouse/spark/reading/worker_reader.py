"""Reading on Spark's workers through our own Arrow reader.

For what Spark's Parquet reader cannot do: equality deletes, and storages that Hadoop has no file
system for. Files are chosen when the frame is made, by the scan's own filter; filters of later
queries do not reach here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakehouse.data.reading.scan_columns import make_batch
from lakehouse.data.reading.scan_reader import ReadRequest, read_tasks
from lakehouse.scan.planner import ScanRequest
from lakehouse.scan.scan_tasks import TaskGroup
from lakehouse.spark.shown_values import shown_array
from lakehouse.spark.spark_types import arrow_schema, shown_schema
from lakehouse.spark.worker_tasks import Batches, map_batches
from lakehouse.spec.types.arrow_types import schema_from_arrow
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage
from lakehouse.table.scan import read_request

Group = TypeVar("Group")


def read_on_workers(
    spark: SparkSession,
    groups: Sequence[TaskGroup],
    request: ScanRequest,
    storage: Storage,
    schema: Schema,
    shown: StructType,
) -> DataFrame:
    """A frame of the groups' rows, one Spark task a group.

    Args:
        spark: the session.
        groups: what to read.
        request: the scan they belong to.
        storage: where the files are; workers rebuild it from its properties.
        schema: Iceberg columns to read.
        shown: the Spark schema to show them in, column for column.
    """
    read = replace(read_request(request, schema), threads=1)
    return read_groups(spark, groups, read, request.metadata.location, storage.properties, shown)


def read_groups(
    spark: SparkSession,
    groups: Sequence[Group],
    read: ReadRequest,
    location: str,
    properties: Mapping[str, str],
    shown: StructType,
    rows_of: Callable[[Group, ReadRequest, Storage], Iterable[pa.RecordBatch]] | None = None,
) -> DataFrame:
    """A frame of the groups' rows, one Spark task each.

    Workers open the storage of `location` from its properties. `rows_of` reads a group there; None:
    groups are `TaskGroup`s.
    """
    target, rows = arrow_schema(shown), rows_of or _rows_of_tasks

    def work(numbers: Batches) -> Batches:
        storage = storage_for(location, properties)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for part in rows(groups[number], read, storage):
                    yield shown_batch(part, target)

    return map_batches(spark.range(0, len(groups), 1, max(len(groups), 1)), work, shown)


def _rows_of_tasks(group: Any, read: ReadRequest, storage: Storage) -> Iterable[pa.RecordBatch]:
    return read_tasks(group.tasks, read, storage)


def shown_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows in memory in the types in which a table with such columns is shown.

    PySpark by itself would take times without a zone for those of the session's.
    """
    shown = shown_schema(schema_from_arrow(rows.schema))
    target = arrow_schema(shown)
    # PySpark takes an empty first chunk for the end
    batches = [shown_batch(batch, target) for batch in rows.to_batches() if batch.num_rows]
    typed: Any = pa.Table.from_batches(batches, target) if batches else []
    return spark.createDataFrame(typed, shown)


def shown_batch(rows: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """A batch of the reader in the types of the relation's schema."""
    columns = [
        shown_array(column, field.type) for column, field in zip(rows.columns, target, strict=True)
    ]
    return make_batch(columns, target, rows.num_rows)
