"""DELETE, UPDATE or MERGE of a table: its files, how tasks write, and the commit."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from lakehouse.expressions.bound_filter import FALSE, TRUE, Bound, disjunction
from lakehouse.row_changes.row_change import Command, change_mode
from lakehouse.scan.scan_tasks import FileScanTask, SplitOptions, combine
from lakehouse.spark.jvm.answers import Answers, Arguments, Raw
from lakehouse.spark.reading.file_answer import file_answer, parquet_only
from lakehouse.spark.reading.table_answers import TableAnswers
from lakehouse.spark.reading.table_facts import FILE_HASH
from lakehouse.spark.session_settings import properties_of_session
from lakehouse.spark.writing.task_files import AS_THEY_COME, TaskFiles, row_order
from lakehouse.spark.writing.write_target import WriteTarget
from lakehouse.spec.schema.iceberg_types import LAST_UPDATED, ROW_ID, with_lineage
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table.table import Table

MERGE_ON_READ = "merge-on-read"


class OperationAnswers(Answers):
    """Answers for one operation.

    The files that Spark reads for it are planned here and remembered; they are those that the
    commit replaces, or deletes rows of. It is based on the version that the statement was analyzed
    with: whatever was committed since is looked at when it commits.

    Args:
        spark: the session.
        reading: answers for the table's rows.
        table: the table, at the version of `reading`.
        target: where the rows go.
        command: DELETE, UPDATE or MERGE.
    """

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        reading: TableAnswers,
        table: Table,
        target: WriteTarget,
        command: str,
    ) -> None:
        super().__init__(
            f"{command} {table.name}",
            {
                "facts": self.facts,
                "plan": self.plan,
                "rows": self.rows,
                "write_plan": self.write_plan,
                "commit": self.commit,
                "discard": self.discard,
                "by_workers": self.by_workers,
            },
        )
        self._reading = reading
        self._table = table
        self._target = target
        self._command = cast("Command", command.lower())
        self._tasks: dict[str, FileScanTask] = {}
        self._where: Bound = FALSE
        self._mode = change_mode(table.metadata, self._command)
        properties = TableProperties(table.properties)
        of_session = properties_of_session(spark())
        self._distribution: str | None = of_session.get(
            "write.distribution-mode", getattr(properties, f"{self._command}_distribution")
        )
        self._lineage = table.metadata.format_version >= 3
        request = table.write_request()
        self._request = replace(request, properties={**request.properties, **of_session})
        lineage = with_lineage(request.schema, table.metadata.format_version)
        self._files = TaskFiles(spark, replace(self._request, schema=lineage), table.storage)
        self._splits: SplitOptions

    def facts(self, _args: Arguments, _java: object) -> dict[str, Any]:
        """The way rows are changed, and the metadata columns that go with it."""
        lineage = [ROW_ID, LAST_UPDATED] if self._lineage else []
        return {
            "merge_on_read": self._mode == MERGE_ON_READ,
            "metadata": lineage if self._mode == MERGE_ON_READ else [FILE_HASH, *lineage],
        }

    def plan(self, args: Arguments, _java: object) -> Raw:
        """The files in which rows may change."""
        plan = self._reading.plan(args["filters"])
        if not self._reading.by_workers:
            parquet_only(self._table.name, plan)
        self._where = disjunction((self._where, self._reading.condition(args["filters"])))
        self._tasks |= {task.data_file.file_path: task for task in plan.tasks}
        self._splits = plan.split_options
        return Raw(file_answer(plan, args["columns"], self._table.metadata))

    def rows(self, args: Arguments, _java: object) -> Any:
        """A frame of these `columns` of planned `files`, read by Python workers.

        All their rows: those that a filter leaves out are written again with the others.
        """
        tasks = (replace(self._tasks[file], residual=TRUE) for file in args["files"])
        return self._reading.frame(list(combine(tasks, self._splits)), args["columns"])._jdf

    def write_plan(self, _args: Arguments, _java: object) -> dict[str, Any]:
        """How rows come to tasks, and what tasks do with them."""
        mode = self._distribution
        if mode is None and self._command != "merge" and self._mode != MERGE_ON_READ:
            # the rows of a file are together already
            mode = "none"
        if self._command == "delete" and self._mode == MERGE_ON_READ:
            order = AS_THEY_COME
        else:
            order = row_order(self._request, mode)
        return self._files.plan(order, lineage=self._lineage)

    def by_workers(self, _args: Arguments, rows: Any) -> Any:
        """The frame of files that Python workers make of a frame of rows."""
        return self._files.by_workers(rows)

    def commit(self, args: Arguments, _java: object) -> None:
        """Publish `files` in place of the `removed` ones, or beside `deletes` by position."""
        added = self._files.data_files(args["files"])
        with self._target.row_write(self._table) as write:
            write.files += added
            with write.writer(self._command) as writer:
                writer.take(added)
                if self._mode == MERGE_ON_READ:
                    for number, (path, positions) in enumerate(args["deletes"].items()):
                        writer.remove(self._tasks[path], _positions(positions), number)
                else:
                    for path in args["removed"]:
                        writer.drop(self._tasks[path])
                change = writer.change(self._where, deleted=None)
            if change:
                write.commit_change(change)

    def discard(self, args: Arguments, _java: object) -> None:
        """Delete `files` of tasks of a job that failed."""
        self._files.discard(args["files"])


def _positions(bitmaps: Sequence[str]) -> npt.NDArray[np.int64]:
    """Deleted positions of a file, as each task tells them: a 64-bit Roaring bitmap in base64."""
    bitmap = BitMap64()
    for bitmap_text in bitmaps:
        bitmap |= BitMap64.deserialize(base64.b64decode(bitmap_text))
    return np.frombuffer(bitmap.to_array(), dtype=np.uint64).astype(np.int64)
