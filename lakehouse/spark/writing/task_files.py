"""How rows reach the tasks of one write, and the data files that these make of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.types import TimeType, UUIDType
from pyspark.sql import DataFrame, SparkSession

from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.spark.reading.table_facts import partition_term
from lakehouse.spark.spark_types import NANOSECONDS, shown_schema
from lakehouse.spark.writing.frame_files import file_records
from lakehouse.spark.writing.native_files import DescribedFiles
from lakehouse.spark.writing.write_order import obstacle, write_order
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.partitioning.sort_order import NullOrder, SortDirection, SortField
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import Storage

_MOST_ADVISED = 256 << 20
AS_THEY_COME: Mapping[str, Any] = {
    "clustering": [],
    "ordered_distribution": [],
    "ordering": [],
    "advisory_bytes": 0,
}
"""For positions alone, which have no column to go by."""


def row_order(request: WriteRequest, mode: str | None = None) -> dict[str, Any]:
    """Distribution and ordering for `LakehouseWrite.java`.

    `hash` brings the rows of a partition together, `range` orders them by partition and sort order
    over the whole table, `none` leaves them where they are. In each task rows are sorted by
    partition and sort order, where the table has one.

    Args:
        request: the table.
        mode: instead of the table's `write.distribution-mode`.

    Raises:
        InvalidPropertyError: an unknown mode.
    """
    properties = TableProperties(request.properties)
    chosen = mode or properties.distribution_mode
    partition = [
        term
        for term in (_shuffled(field, request.schema) for field in request.spec.fields)
        if term is not None
    ]
    sort = [
        term
        for term in (_sort_term(field, request.schema) for field in request.sort_order.fields)
        if term is not None
    ]
    by_partition = [_ordered(field) for field in partition]
    return {
        "clustering": partition if chosen == "hash" else [],
        "ordered_distribution": [*by_partition, *sort] if chosen == "range" else [],
        "ordering": [*by_partition, *sort] if sort else [],
        "advisory_bytes": (
            properties.advisory_partition_size_bytes
            or min(properties.target_file_size_bytes, _MOST_ADVISED)
        ),
    }


def _shuffled(field: PartitionField, schema: Schema) -> dict[str, Any] | None:
    """A partition field's term, or any that brings rows of one partition together."""
    term = partition_term(field, schema)
    if term is None or term["transform"] == "identity":
        return term
    kind = schema.find_type(field.source_id)
    # Spark's functions take no times, and uuids and nanoseconds as the text that they are to Spark:
    # the values themselves separate as well
    as_they_are = isinstance(kind, (UUIDType, TimeType, *NANOSECONDS))
    return {**term, "transform": "identity"} if as_they_are else term


def _sort_term(field: SortField, schema: Schema) -> dict[str, Any] | None:
    as_partition = PartitionField(field.source_id, 1000, field.transform, "sorted")
    term = partition_term(as_partition, schema)
    return (
        None
        if term is None
        else _ordered(
            term,
            ascending=field.direction == SortDirection.ASC,
            nulls_first=field.null_order == NullOrder.NULLS_FIRST,
        )
    )


def _ordered(
    term: Mapping[str, Any], *, ascending: bool = True, nulls_first: bool = True
) -> dict[str, Any]:
    return {"term": term, "ascending": ascending, "nulls_first": nulls_first}


def is_sorted(order: Mapping[str, Sequence[Any]]) -> bool:
    """Whether rows come partition by partition."""
    return bool(order["ordering"])


class TaskFiles:
    """Files of one write.

    Args:
        spark: the session.
        request: how they are written; its schema is that of the rows, column for column.
        storage: where they go.
    """

    def __init__(
        self, spark: Callable[[], SparkSession], request: WriteRequest, storage: Storage
    ) -> None:
        self._spark = spark
        self._request = request
        self._storage = storage
        self._native = obstacle(spark(), request, storage) is None

    def plan(self, order: Mapping[str, Any], *, lineage: bool = False) -> dict[str, Any]:
        """What `LakehouseWrite.java` has to know.

        Args:
            order: how rows come to tasks (`row_order`).
            lineage: whether rows end with the row id and when the row changed.
        """
        if self._native:
            written = write_order(self._request, grouped=is_sorted(order))
            return {**order, "order": json.dumps({**written, "lineage": lineage})}
        rows = shown_schema(self._request.schema).json()
        return {**order, "order": None, "rows": rows, "lineage": lineage}

    def by_workers(self, rows: Any) -> Any:
        """The frame of files that Python workers make of a frame of rows (JVM objects, both)."""
        return file_records(DataFrame(rows, self._spark()), self._request, self._storage)._jdf

    def data_files(self, texts: Sequence[str]) -> list[DataFile]:
        """The files that tasks describe."""
        if self._native:
            files = DescribedFiles(self._request)
            return [files.data_file(file) for file in texts]
        return [DataFile.from_record(orjson.loads(record)) for record in texts]

    def discard(self, texts: Sequence[str]) -> None:
        """Delete files of tasks of a job that failed."""
        if self._native:
            files = DescribedFiles(self._request)
            self._storage.delete([files.location(json.loads(file)) for file in texts])
        else:
            self._storage.delete([file.file_path for file in self.data_files(texts)])
