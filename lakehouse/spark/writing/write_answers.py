"""A write of rows to a table: how tasks write, and the commit (`LakehouseWrite.java`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from lakehouse.data.writing.data_file_writer import PartitionSplitter, WriteRequest
from lakehouse.errors import InvalidInputError, ValidationConflictError
from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.row_changes.row_change import RowChange, RowWriter, positions_of
from lakehouse.row_changes.row_verbs import delete_rows
from lakehouse.row_changes.target_rows import TargetRows
from lakehouse.spark.jvm.answers import Answers, Arguments
from lakehouse.spark.writing.merged_columns import GivenColumns
from lakehouse.spark.writing.task_files import TaskFiles, row_order
from lakehouse.spark.writing.write_options import NO_OPTIONS, WriteOptions
from lakehouse.spark.writing.write_target import WriteTarget
from lakehouse.spec.manifests.data_file import DataFile, partition_key
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.partitioning.coarser_partitions import coarser
from lakehouse.table.table import Table

Commit = Callable[[Sequence[DataFile]], None]


class WriteAnswers(Answers):
    """Answers for one write.

    Args:
        name: for the log.
        spark: the session.
        request: how files are written.
        commit: makes new files rows of the table.
        table: whose storage keeps them.
        columns: those of the rows, where they are not the table's.
    """

    def __init__(
        self,
        name: str,
        spark: Callable[[], SparkSession],
        request: WriteRequest,
        commit: Commit,
        table: Table,
        columns: GivenColumns | None = None,
    ) -> None:
        super().__init__(
            name,
            {
                "plan": self.plan,
                "commit": self.commit,
                "discard": self.discard,
                "by_workers": self.by_workers,
            },
        )
        self._request = request
        self._commit = commit
        self._columns = columns
        self._files = TaskFiles(spark, request, table.storage)

    def plan(self, _args: Arguments, _java: object) -> dict[str, Any]:
        """How rows come to tasks, and what tasks do with them."""
        if self._columns is None:
            return self._files.plan(row_order(self._request))
        return self._files.plan(self._columns.plan(self._request))

    def commit(self, args: Arguments, _java: object) -> None:
        """Publish `files` of all tasks."""
        self._commit(self._files.data_files(args["files"]))

    def discard(self, args: Arguments, _java: object) -> None:
        """Delete `files` of tasks of a job that failed."""
        self._files.discard(args["files"])

    def by_workers(self, _args: Arguments, rows: Any) -> Any:
        """The frame of files that Python workers make of a frame of rows."""
        return self._files.by_workers(rows)


def table_commit(
    table: Table,
    target: WriteTarget,
    mode: str,
    condition: Bound,
    columns: GivenColumns | None = None,
    options: WriteOptions = NO_OPTIONS,
) -> Commit:
    """The commit of a write: `append`, `overwrite` by condition, or `dynamic` (partitions)."""
    if mode == "overwrite" and condition == TRUE and options.dynamic:
        mode = "dynamic"
    columns_change = None if columns is None else columns.metadata_change()

    def append(files: Sequence[DataFile]) -> None:
        with target.row_write(table) as write:
            write.files += files
            transaction = table.transaction(branch=target.branch)
            if columns_change is not None:
                transaction.update(columns_change.updates, columns_change.requirements)
            write.commit(transaction.append(files))

    def overwrite(files: Sequence[DataFile]) -> None:
        def decide(rows: TargetRows, writer: RowWriter) -> RowChange:
            check_unchanged_since(rows, target.branch, options, condition)
            writer.take(files)
            return as_asked(delete_rows(rows, condition, writer))

        with target.row_write(table) as write:
            write.files += files
            write.change_rows(decide, "overwrite", always=True)

    def dynamic(files: Sequence[DataFile]) -> None:
        def decide(rows: TargetRows, writer: RowWriter) -> RowChange:
            partitions = {file.partition_key for file in files}
            check_unchanged_since(rows, target.branch, options, TRUE, partitions)
            writer.take(files)
            replace_partitions(rows, partitions, writer)
            return as_asked(writer.change(None, deleted=None))

        with target.with_summary({"replace-partitions": "true"}).row_write(table) as write:
            write.files += files
            write.change_rows(decide, "overwrite", always=True)

    def as_asked(change: RowChange) -> RowChange:
        return replace(
            change,
            isolation=options.isolation or change.isolation,
            before=() if columns_change is None else (columns_change,),
        )

    return {"append": append, "overwrite": overwrite, "dynamic": dynamic}[mode]


def check_unchanged_since(
    rows: TargetRows,
    branch: str,
    options: WriteOptions,
    condition: Bound,
    partitions: Collection[object] | None = None,
) -> None:
    """Look for changes of others since the snapshot that `validate-from-snapshot-id` names.

    Files that were added count under `serializable` isolation alone; files that are gone, and rows
    deleted of those that stay, count always.

    Raises:
        ValidationConflictError: somebody changed rows of the condition, or of the partitions.
        InvalidInputError: the snapshot is not among the branch's ancestors.
    """
    since, head = options.validate_from, rows.snapshot_id
    if since is None or since == head:
        return
    if head is None or all(
        ancestor.snapshot_id != since for ancestor in rows.metadata.ancestors(head)
    ):
        raise InvalidInputError(
            f"{rows.table}: validate-from-snapshot-id={since} is no ancestor of {branch}",
            table=rows.table,
        )

    def files(snapshot_id: int) -> dict[str, frozenset[str]]:
        then = TargetRows(rows.metadata, snapshot_id, rows.storage, rows.table)
        return {
            task.data_file.file_path: frozenset(
                f"{delete.file_path} {delete.content_offset}" for delete in task.deletes
            )
            for task in then.tasks(condition)
            if partitions is None
            or task.data_file.partition_key in partitions
            or task.data_file.spec_id != rows.metadata.default_spec_id
        }

    before, now = files(since), files(head)
    gone = [path for path, deletes in before.items() if now.get(path) != deletes]
    added = now.keys() - before.keys() if options.isolation == "serializable" else set()
    changed = sorted({*gone, *added})
    if changed:
        raise ValidationConflictError(
            f"{rows.table}: others changed {len(changed)} files of the rows to replace since "
            f"snapshot {since}, among them {changed[0]}: read again and decide again",
            table=rows.table,
        )


def replace_partitions(
    rows: TargetRows, partitions: Collection[tuple[Any, ...]], writer: RowWriter
) -> None:
    """Remove the rows of partitions of the table's spec.

    Files of another spec that hold some of them beside others, such as a month's, are written
    again without them.

    Args:
        rows: of the version decided on.
        partitions: `partition_key` of each.
        writer: takes what goes.
    """
    metadata = rows.metadata
    spec = metadata.spec()
    columns = rows.columns(field.source_id for field in spec.fields)
    splitter = PartitionSplitter(spec, columns)
    places: dict[int, Callable[[DataFile], bool]] = {}
    for number, task in enumerate(rows.tasks(TRUE)):
        file = task.data_file
        if file.spec_id == spec.spec_id:
            if file.partition_key in partitions:
                writer.drop(task)
            continue
        if file.spec_id not in places:
            places[file.spec_id] = _may_hold(metadata, file.spec_id, partitions)
        if not places[file.spec_id](file):
            continue
        gone = [
            positions_of(part)
            for batch in rows.batches(task, columns)
            for values, part in splitter.split(batch)
            if partition_key(spec.spec_id, values) in partitions
        ]
        if gone:
            writer.rewrite(task, np.concatenate(gone), number)


def _may_hold(
    metadata: TableMetadata, spec_id: int, partitions: Collection[tuple[Any, ...]]
) -> Callable[[DataFile], bool]:
    """Which files of another spec may hold rows of partitions of the table's spec."""
    there = metadata.spec(spec_id)
    into = coarser(metadata.spec(), there)
    if into is None:
        return lambda _file: True
    homes = {partition_key(spec_id, into(values)) for _, *values in partitions}
    # times before 1970 of old writers, which rounded towards zero, may be one too high
    return lambda file: (
        file.partition_key in homes
        or any(isinstance(value, int) and value < 1 for value in file.partition)
    )


def head_of_branch(table: Table, branch: str) -> int | None:
    """The snapshot a write is based on: the branch's, or main's for a new branch."""
    ref = table.metadata.refs.get(branch)
    return table.metadata.current_snapshot_id if ref is None else ref.snapshot_id
