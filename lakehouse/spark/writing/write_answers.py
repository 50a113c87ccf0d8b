"""A write of rows to a table: how tasks write, and the commit (`LakehouseWrite.java`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from pyspark.sql import SparkSession

from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.dml.copy_on_write import remove_matching_rows
from lakehouse.errors import (
    InvalidInputError,
    UnsupportedFeatureError,
    ValidationConflictError,
)
from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.scan.planner import plan_scan
from lakehouse.scan.scan_request import ScanRequest
from lakehouse.spark.jvm.answers import Answers, Arguments
from lakehouse.spark.writing.merged_columns import GivenColumns
from lakehouse.spark.writing.row_order import row_order
from lakehouse.spark.writing.task_files import TaskFiles
from lakehouse.spark.writing.write_options import NO_OPTIONS, WriteOptions
from lakehouse.spark.writing.write_target import WriteTarget
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.table.decisions.row_write import Decision
from lakehouse.table.table import Table
from lakehouse.transaction.transaction import Transaction

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

    def plan(self, _told: Arguments, _thing: object) -> dict[str, Any]:
        """How rows come to tasks, and what tasks do with them."""
        if self._columns is None:
            return self._files.plan(row_order(self._request))
        return self._files.plan(self._columns.plan(self._request))

    def commit(self, told: Arguments, _thing: object) -> None:
        """Publish `files` of all tasks."""
        self._commit(self._files.data_files(told["files"]))

    def discard(self, told: Arguments, _thing: object) -> None:
        """Delete `files` of tasks of a job that failed."""
        self._files.discard(told["files"])

    def by_workers(self, _told: Arguments, rows: Any) -> Any:
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
    branch = target.branch
    if mode == "overwrite" and condition == TRUE and options.dynamic:
        mode = "dynamic"

    def transaction() -> Transaction:
        return table.transaction(branch=branch) if columns is None else columns.transaction(branch)

    def append(files: Sequence[DataFile]) -> None:
        with target.row_write(table) as write:
            write.files += files
            write.commit(transaction().append(files))

    def overwrite(files: Sequence[DataFile]) -> None:
        with target.row_write(table) as write:
            write.files += files

            def decide() -> Decision:
                check_unchanged_since(table, branch, options, condition)
                gone = remove_matching_rows(
                    table.metadata,
                    head_of_branch(table, branch),
                    condition,
                    table.write_request(),
                    table.storage,
                )
                replacement = transaction().overwrite(
                    [*files, *gone.added],
                    gone.removed,
                    conflict_filter=condition,
                    isolation=options.isolation,
                )
                return Decision(replacement, gone.added)

            write.commit_decision(decide)

    def dynamic(files: Sequence[DataFile]) -> None:
        with target.with_summary({"replace-partitions": "true"}).row_write(table) as write:
            write.files += files

            def decide() -> Decision:
                partitions = {file.partition_key for file in files}
                check_unchanged_since(table, branch, options, TRUE, partitions)
                removed = replaced_files(table, branch, files)
                replacement = transaction().overwrite(files, removed, isolation=options.isolation)
                return Decision(replacement, ())

            write.commit_decision(decide)

    return {"append": append, "overwrite": overwrite, "dynamic": dynamic}[mode]


def check_unchanged_since(
    table: Table,
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
    since, head = options.validate_from, head_of_branch(table, branch)
    if since is None or since == head:
        return
    if head is None or all(one.snapshot_id != since for one in table.metadata.ancestors(head)):
        raise InvalidInputError(
            f"{table.name}: validate-from-snapshot-id={since} is no ancestor of {branch}",
            table=table.name,
        )

    def files(snapshot_id: int) -> dict[str, frozenset[str]]:
        request = ScanRequest(
            metadata=table.metadata, snapshot_id=snapshot_id, current_schema=True, where=condition
        )
        return {
            task.data_file.file_path: frozenset(
                f"{delete.file_path} {delete.content_offset}" for delete in task.deletes
            )
            for task in plan_scan(request, table.storage).tasks
            if partitions is None or task.data_file.partition_key in partitions
        }

    before, now = files(since), files(head)
    gone = [path for path, deletes in before.items() if now.get(path) != deletes]
    added = now.keys() - before.keys() if options.isolation == "serializable" else set()
    found = sorted({*gone, *added})
    if found:
        raise ValidationConflictError(
            f"{table.name}: others changed {len(found)} files of the rows to replace since "
            f"snapshot {since}, among them {found[0]}: read again and decide again",
            table=table.name,
        )


def replaced_files(table: Table, branch: str, files: Sequence[DataFile]) -> list[DataFile]:
    """The live files of the partitions of new ones.

    Raises:
        UnsupportedFeatureError: files of an older partition spec, which do not say whether they
            hold such rows.
    """
    partitions = {one.partition_key for one in files}
    live = table.scan(ref=branch if branch in table.refs() else "main").plan().files
    spec_id = table.metadata.default_spec_id
    if any(one.spec_id != spec_id for one in live):
        raise UnsupportedFeatureError(
            f"{table.name} has files of an older partition spec, of which nobody knows whether "
            "they hold rows of the partitions that this statement replaces: rewrite them first "
            "(CALL system.rewrite_data_files), or name the rows to replace (INSERT INTO ... "
            "REPLACE WHERE)",
            table=table.name,
        )
    return [one for one in live if one.partition_key in partitions]


def head_of_branch(table: Table, branch: str) -> int | None:
    """The snapshot a write is based on: the branch's, or main's for a new branch."""
    ref = table.metadata.refs.get(branch)
    return table.metadata.current_snapshot_id if ref is None else ref.snapshot_id
