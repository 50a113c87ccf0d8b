"""A table that Spark writes to, at the head of a branch."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakehouse.errors import InvalidInputError, LakehouseError
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.expressions.bound_filter import TRUE
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.spark.jvm.answers import Answers, Arguments, Verb
from lakehouse.spark.reading.exact_conditions import exact_condition
from lakehouse.spark.reading.row_streams import RowStreamAnswers
from lakehouse.spark.reading.table_answers import TableAnswers
from lakehouse.spark.spark_types import to_iceberg_type
from lakehouse.spark.writing.merged_columns import GivenColumns, accepts_any, given_columns
from lakehouse.spark.writing.operation_answers import OperationAnswers
from lakehouse.spark.writing.stream_batches import StreamTail, stream_write
from lakehouse.spark.writing.write_answers import WriteAnswers, head_of_branch, table_commit
from lakehouse.spark.writing.write_options import write_options
from lakehouse.spark.writing.write_target import WriteTarget, write_target
from lakehouse.table.table import Table

logger = logging.getLogger(__name__)

_POINTS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "snapshot-id": ("snapshot_id", int),
    "as-of-timestamp": ("as_of", int),
    "branch": ("ref", str),
    "tag": ("ref", str),
}
"""Options of Iceberg's readers, and what of a scan they are."""


class WritableTableAnswers(TableAnswers):
    """Answers for a table whose rows can change, always based on the loaded version.

    Args:
        spark: the session.
        name: of the table, in the statement.
        table: the table.
        branch: the branch written.
        ref: the branch read, another one where `branch` is not there yet.
        inserts: whether the statement adds rows and changes none, as far as is known.
        made_for_it: whether Spark has just created the table for the stream that asks.
        by_workers: whether Python workers read the files, because Spark cannot.
    """

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        name: str,
        table: Table,
        branch: str,
        *,
        by_workers: bool,
        ref: str | None = None,
        inserts: bool = False,
        made_for_it: bool = False,
    ) -> None:
        request = table.scan(ref=ref or branch).request
        super().__init__(
            spark, name, request, table.storage, table.listeners, by_workers=by_workers
        )
        self._table = table
        self._branch = branch
        self._ref = ref or branch
        self._made_for_it = made_for_it
        self._tail = StreamTail(branch)
        self._accepts_any = inserts and accepts_any(table)

    def _verbs_of_table(self) -> Mapping[str, Verb]:
        return {
            **super()._verbs_of_table(),
            "write": self.write,
            "drops_whole_files": self.drops_whole_files,
            "delete_where": self.delete_where,
            "operation": self.operation,
            "can_change": self.can_change,
            "at": self.at,
            "stream": self.stream,
        }

    def facts(self, args: Arguments, java: object) -> dict[str, Any]:
        facts = super().facts(args, java)
        return {**facts, "writable": True, "streams": True, "accepts_any": self._accepts_any}

    def at(self, args: Arguments, java: object) -> Answers:
        """The same columns at the snapshot, time (milliseconds), branch or tag of an option."""
        if self._ref != "main":
            return super().at(args, java)
        if len(args) > 1 or not args.keys() <= _POINTS.keys():
            raise InvalidInputError(
                f"{self.name}: a read takes one option of {', '.join(_POINTS)}; rows that came and "
                "went between snapshots are in the view of CALL system.create_changelog_view",
                table=self.name,
            )
        [(option, value)] = args.items()
        argument, parse = _POINTS[option]
        try:
            point = {argument: parse(value)}
        except ValueError as error:
            raise InvalidInputError(
                f"{self.name}: the option {option} is a whole number, not {value!r}",
                table=self.name,
            ) from error
        return TableAnswers(
            self._spark,
            self.name,
            replace(self._table.scan(**point).request, current_schema=True),
            self.storage,
            self.listeners,
            by_workers=self.by_workers,
            schema=self.schema,
        )

    def stream(self, args: Arguments, _java: object) -> RowStreamAnswers:
        """A stream of the rows that come, with the options of the read."""
        facts = (self._spark, self.name, self._table, self._ref, self.schema, args)
        return RowStreamAnswers(*facts, changes=False)

    def write(self, args: Arguments, _java: object) -> WriteAnswers:
        """A write in a `mode`, of rows that replace those of `filters`; of batches of `stream`."""
        if "stream" in args:
            try:
                return stream_write(self._spark(), self._table, self._branch, self._tail, args)
            except LakehouseError:
                if self._made_for_it:
                    self._unmake()
                raise
        condition = exact_condition(args["filters"], self.schema)
        if condition is None:
            raise InvalidInputError(
                f"{self.name}: rows are replaced by conditions that compare columns with literals "
                "of their types; for anything else DELETE and INSERT, or MERGE",
                table=self.name,
            )
        table, columns = self._table, self._columns(args)
        target = write_target(
            self._spark(), table, self._branch, args["options"], takes_branch=True
        )
        options = write_options(self._spark(), table, args["mode"], args["options"])
        commit = table_commit(table, target, args["mode"], condition, columns, options)
        request = options.request(table.write_request() if columns is None else columns.request())
        return WriteAnswers(f"write to {self.name}", self._spark, request, commit, table, columns)

    def drops_whole_files(self, args: Arguments, _java: object) -> bool:
        """Whether the condition of `filters` is true of all rows of each file that has one."""
        condition = exact_condition(args["filters"], self.schema)
        if condition is None:
            return False
        head = head_of_branch(self._table, self._branch)
        if head is None or condition == TRUE:
            return True
        request = ScanRequest(
            metadata=self._table.metadata,
            snapshot_id=head,
            current_schema=True,
            where=condition,
        )
        return all(task.residual == TRUE for task in plan_scan(request, self.storage).tasks)

    def delete_where(self, args: Arguments, _java: object) -> None:
        """Remove the rows of a condition, which are whole files."""
        condition = exact_condition(args["filters"], self.schema)
        if condition is None:
            raise InvalidInputError(f"{self.name}: the condition is none of Iceberg's")
        target = self._target()
        if target.unpublished:
            table_commit(self._table, target, "overwrite", condition)([])
        else:
            self._table.delete(condition, branch=target.branch, summary=target.summary)

    def operation(self, args: Arguments, _java: object) -> OperationAnswers:
        """DELETE, UPDATE or MERGE by rows."""
        return OperationAnswers(self._spark, self, self._table, self._target(), args["command"])

    def can_change(self, args: Arguments, _java: object) -> bool:
        """Whether a column may be added, or get another type, for rows that come."""
        update = UpdateSchema(self._table.metadata)
        try:
            for change in args["changes"]:
                kind = to_iceberg_type(change["type"])
                if change["change"] == "UpdateColumnType":
                    update.update_column(list(change["column"]), kind)
        except InvalidInputError as refused:
            logger.debug("%s: %s", self.name, refused)
            return False
        return True

    def _unmake(self) -> None:
        """Drop the table, unless somebody has changed it since it was created; files stay."""
        catalog, version = self._table.catalog, self._table.version
        if catalog.refresh(version).metadata_location == version.metadata_location:
            catalog.drop(version.identifier)

    def _columns(self, args: Arguments) -> GivenColumns | None:
        if not self._accepts_any:
            return None
        schema = StructType.fromJson(json.loads(args["columns"]))
        return given_columns(self._table, schema, args["options"], self._spark())

    def _target(self, options: Mapping[str, str] = MappingProxyType({})) -> WriteTarget:
        return write_target(self._spark(), self._table, self._branch, options)
