"""The data files that the tasks of one write make: in their JVMs, or by Python workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from pyspark.sql import DataFrame, SparkSession

from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.spark.spark_types import shown_schema
from lakehouse.spark.writing.described_files import DescribedFiles
from lakehouse.spark.writing.frame_files import file_records
from lakehouse.spark.writing.row_order import is_sorted
from lakehouse.spark.writing.write_order import obstacle, write_order
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.storage.storage_protocol import Storage


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
