"""Tables of Spark Declarative Pipelines: each refresh of a materialized view is one commit.

A pipeline truncates a view, alters it, and only then runs the query that fills it, as it does with
every format. Here the first two wait for the rows: the query's commit replaces all rows, columns
and properties at once, and a query that fails changes nothing. A new table, be it a view or what a
stream writes to, is there with its first commit. `PipelineCaller.java` says who asks, so a TRUNCATE
of anybody else is one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.expressions.bound_filter import TRUE
from lakehouse.row_changes.row_change import RowChange, RowWriter
from lakehouse.row_changes.row_verbs import delete_rows
from lakehouse.row_changes.target_rows import TargetRows
from lakehouse.spark.catalog.alter_table import altered
from lakehouse.spark.jvm.answers import Arguments
from lakehouse.spark.writing.writable_table import WritableTableAnswers
from lakehouse.spark.writing.write_answers import WriteAnswers
from lakehouse.spark.writing.write_options import write_options
from lakehouse.spec.identifier import Identifier, holds_state
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.snapshot import REFRESH_STATE
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table.table import Table
from lakehouse.transaction.operations.metadata_changes import MetadataChange

VIEW = "lakehouse.pipelines.view"
_MANAGER = "DatasetManager"  # makes, truncates and alters tables before any query runs
_VIEW_WRITE = "BatchTableWrite"  # writes the rows of a materialized view, and nothing else
_STREAM_WRITES = ("StreamingTableWrite", "Scd1MergeStreamingWrite", "Scd2MergeStreamingWrite")

Changes = Sequence[Mapping[str, Any]]


@dataclass
class _Waiting:
    """What a pipeline has asked of a table, and no query has committed.

    Attributes:
        new: the table, where there was none.
        seen: whether the pipeline has loaded the new table. It looks once, after it made it; when
            it looks again it is another run, and that of before has failed.
        truncated: whether its rows are to go.
        changes: of columns and properties (`TableChanges.java`).
    """

    new: Table | None = None
    seen: bool = False
    truncated: bool = False
    changes: Changes = ()


class PipelineTables:
    """What waits for the rows of each table.

    It is lost with the process; nothing has changed then, and the next run asks for it again.
    """

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        self._spark = spark
        self._waiting: dict[Identifier, _Waiting] = {}

    def makes(self, args: Arguments) -> bool:
        """Whether a table that is created waits for its first rows."""
        return args.get("pipeline") == _MANAGER and not holds_state(args["name"])

    def made(self, table: Table) -> None:
        """A table that waits."""
        self._waiting[table.identifier] = _Waiting(new=table)

    def has_new_table(self, args: Arguments) -> bool:
        """Whether a query of a pipeline writes to a table that nobody else sees yet."""
        waiting = self._waiting.get(Identifier(tuple(args["namespace"]), args["name"]))
        caller = args.get("pipeline")
        return caller not in (None, _MANAGER) and waiting is not None and waiting.new is not None

    def new_table(self, args: Arguments) -> Table | None:
        """The table that a pipeline asks for and that nobody else sees, if there is one."""
        identifier = Identifier(tuple(args["namespace"]), args["name"])
        caller, waiting = args.get("pipeline"), self._waiting.get(identifier)
        if caller is None or waiting is None or waiting.new is None:
            return None
        if caller == _MANAGER:
            if waiting.seen:
                del self._waiting[identifier]
                return None
            waiting.seen = True
        new = waiting.new
        return Table(new.catalog, new.version, new.environment, new.listeners)

    def answers(
        self, args: Arguments, table: Table, branch: str, *, by_workers: bool
    ) -> WritableTableAnswers | None:
        """What a pipeline is answered about the rows of a table; None: what everybody is."""
        caller = args.get("pipeline")
        if caller == _MANAGER:
            return _ManagedTableAnswers(self, self._spark, table, branch, by_workers=by_workers)
        if caller == _VIEW_WRITE and args.get("inserts"):
            waiting = self._waiting.get(table.identifier, _Waiting())
            return _ViewAnswers(
                self, self._spark, table, branch, waiting.changes, by_workers=by_workers
            )
        if caller in _STREAM_WRITES and VIEW in table.properties:
            self._stream_into(table)
        return None

    def truncate(self, table: Table) -> bool:
        """Whether the rows of a table wait for those that replace them: only a view's do.

        A streaming table begins again with an empty checkpoint, so its rows have to go at once.
        """
        if VIEW not in table.properties:
            return False
        self._waiting[table.identifier] = _Waiting(truncated=True)
        return True

    def alter(self, args: Arguments, table: Table) -> bool:
        """Whether changes of a table wait for its rows. Raises what applying them would."""
        waiting = self._waiting.get(table.identifier)
        if args.get("pipeline") != _MANAGER or waiting is None or not waiting.truncated:
            return False
        altered(table, args["changes"], self._spark())
        waiting.changes = args["changes"]
        return True

    def committed(self, identifier: Identifier) -> None:
        """The rows are there, and all that waited for them."""
        self._waiting.pop(identifier, None)

    def _stream_into(self, table: Table) -> None:
        """A view has become a streaming table: what waited happens now."""
        waiting = self._waiting.pop(table.identifier, _Waiting())
        transaction = altered(table, waiting.changes, self._spark())
        transaction.remove_properties([VIEW])
        if waiting.truncated:
            transaction.delete_files(table.scan().plan().files)
        table.move_to(transaction.commit().version)


class _ManagedTableAnswers(WritableTableAnswers):
    """Answers for a pipeline that prepares its tables."""

    def __init__(
        self,
        pipelines: PipelineTables,
        spark: Callable[[], SparkSession],
        table: Table,
        branch: str,
        *,
        by_workers: bool,
    ) -> None:
        super().__init__(spark, table.name, table, branch, by_workers=by_workers)
        self._pipelines = pipelines

    def facts(self, args: Arguments, java: object) -> dict[str, Any]:
        """A pipeline compares the partitioning with the columns it declares, and no terms."""
        facts = super().facts(args, java)
        hidden = TableProperties(self._table.properties).partition_by
        return {**facts, "partitioning": []} if hidden else facts

    def delete_where(self, args: Arguments, java: object) -> None:
        """TRUNCATE."""
        if not self._pipelines.truncate(self._table):
            super().delete_where(args, java)


class _ViewAnswers(WritableTableAnswers):
    """Answers for the query of a materialized view: its rows become all the view's rows.

    Args:
        changes: of the view's columns and properties, for the same commit.
    """

    def __init__(
        self,
        pipelines: PipelineTables,
        spark: Callable[[], SparkSession],
        table: Table,
        branch: str,
        changes: Changes,
        *,
        by_workers: bool,
    ) -> None:
        transaction = altered(table, changes, spark())
        if VIEW not in table.properties:
            transaction.set_properties({VIEW: "true"})
        version = TableVersion(table.identifier, transaction.metadata, table.metadata_location)
        shown = Table(table.catalog, version, table.environment, table.listeners)
        super().__init__(spark, table.name, shown, branch, by_workers=by_workers)
        self._pipelines = pipelines
        self._before = table
        self._changes = tuple(
            operation
            for operation in transaction.operations
            if isinstance(operation, MetadataChange)
        )

    def write(self, args: Arguments, _java: object) -> WriteAnswers:
        """The rows of the query."""
        target = self._target(args["options"])
        options = write_options(self._spark(), self._table, "overwrite", args["options"])
        request = options.request(self._table.write_request())

        def replace_all(files: Sequence[DataFile], inputs: Mapping[str, str | None]) -> None:
            def decide(rows: TargetRows, writer: RowWriter) -> RowChange:
                writer.take(files)
                return replace(delete_rows(rows, TRUE, writer), before=self._changes)

            state = json.dumps({"inputs": inputs, "behind": []})
            with target.with_summary({REFRESH_STATE: state}).row_write(self._before) as write:
                write.files += files
                write.change_rows(decide, "overwrite", always=True)
            self._pipelines.committed(self._before.identifier)

        return _RefreshAnswers(
            f"refresh of {self.name}", self._spark, request, replace_all, self._before
        )


class _RefreshAnswers(WriteAnswers):
    """Answers for the write of a view's rows.

    Args:
        request: how files are written.
        replace_all: makes files all rows of the view; it takes what the query read, too.
        table: whose storage keeps them.
    """

    def __init__(
        self,
        name: str,
        spark: Callable[[], SparkSession],
        request: WriteRequest,
        replace_all: Callable[[Sequence[DataFile], Mapping[str, str | None]], None],
        table: Table,
    ) -> None:
        super().__init__(name, spark, request, lambda _files: None, table)
        self._replace_all = replace_all

    def commit(self, args: Arguments, _java: object) -> None:
        self._replace_all(self._files.data_files(args["files"]), args["inputs"])
