"""Batches of a stream as commits of a table, each once (`StreamedWrite.java`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.errors import InvalidInputError, NoSuchTableError
from lakehouse.expressions.bound_filter import TRUE
from lakehouse.spark.jvm.answers import Arguments
from lakehouse.spark.spark_types import refuse_unwritable
from lakehouse.spark.writing.merged_columns import GivenColumns, given_columns
from lakehouse.spark.writing.write_answers import Commit, WriteAnswers, table_commit
from lakehouse.spark.writing.write_options import write_options
from lakehouse.spark.writing.write_target import write_target
from lakehouse.table.table import Table
from lakehouse.transaction.commit_names import StreamBatch

_OF_SPARK = frozenset({"checkpointlocation", "queryname", "path"})
"""Options that Spark leaves among those of the sink."""


class StreamAnswers(WriteAnswers):
    """Answers for the write of one batch, whose number Spark tells when it is to be committed.

    Args:
        name: for the log.
        spark: the session.
        request: how files are written.
        commit_batch: makes new files rows of the table, as the batch of a number.
        table: whose storage keeps them.
        columns: those of the rows.
    """

    def __init__(
        self,
        name: str,
        spark: Callable[[], SparkSession],
        request: WriteRequest,
        commit_batch: Callable[[int], Commit],
        table: Table,
        columns: GivenColumns,
    ) -> None:
        super().__init__(name, spark, request, lambda _files: None, table, columns)
        self._commit_batch = commit_batch

    def commit(self, told: Arguments, _thing: object) -> None:
        """Publish `files` of all tasks, unless the `batch` is in the table already."""
        self._commit_batch(told["batch"])(self._files.data_files(told["files"]))


def stream_write(spark: SparkSession, loaded: Table, branch: str, told: Arguments) -> StreamAnswers:
    """A write of the next batch of a stream to the newest version of the table that it began with.

    Rows become the table's by name, with the types and defaults that the table has now.

    Raises:
        InvalidInputError: an output mode without a meaning here, or `spark.wap.id`.
        NoSuchTableError: another table has the name.
    """
    table = _newest(loaded)
    refuse_unwritable(table.name, table.schema())
    query_id, output_mode = told["stream"]["query"], told["stream"]["output_mode"]
    given = {key: text for key, text in told["options"].items() if key.lower() not in _OF_SPARK}
    if output_mode == "Update":
        raise InvalidInputError(
            f"{table.name}: a stream in update mode changes rows, and nothing says by which "
            "columns: use the output mode append or complete, or foreachBatch with merge",
            table=table.name,
        )
    target = write_target(spark, table, branch, given)
    if target.staged:
        raise InvalidInputError(
            f"{table.name}: spark.wap.id is set, but the batches of a stream follow one another "
            f"on a branch: RESET spark.wap.id, or write to {table.name}.branch_<name>",
            table=table.name,
        )
    options = write_options(spark, table, told["mode"], given)
    columns = given_columns(table, StructType.fromJson(json.loads(told["columns"])), given, spark)

    def commit_batch(batch: int) -> Commit:
        named = replace(target, commit_id=StreamBatch(query_id, batch))
        commit = table_commit(table, named, told["mode"], TRUE, columns, options)
        # a batch without rows changes nothing, and nothing is lost if it is repeated
        return lambda files: commit(files) if files or told["mode"] != "append" else None

    return StreamAnswers(
        f"stream {query_id} to {table.name}",
        lambda: spark,
        options.request(columns.request()),
        commit_batch,
        table,
        columns,
    )


def _newest(loaded: Table) -> Table:
    version = loaded.catalog.refresh(loaded.version)
    if version.metadata.table_uuid != loaded.metadata.table_uuid:
        raise NoSuchTableError(
            f"{loaded.name}: the table that the stream began to write was dropped, and another one "
            "has its name: start the stream again, with another checkpoint if all its rows are to "
            "come again",
            table=loaded.name,
        )
    return Table(loaded.catalog, version, loaded.environment, loaded.listeners)
