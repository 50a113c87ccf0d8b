"""A table that Spark writes to, at the head of a branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from lakehouse.errors import InvalidInputError, UnsupportedFeatureError
from lakehouse.expressions.bound_filter import TRUE
from lakehouse.scan.planner import plan_scan
from lakehouse.scan.scan_request import ScanRequest
from lakehouse.spark.jvm.answers import Arguments, Verb
from lakehouse.spark.reading.table_answers import TableAnswers
from lakehouse.spark.rowlevel.operation_answers import OperationAnswers
from lakehouse.spark.writing.exact_conditions import exact_condition
from lakehouse.spark.writing.write_answers import WriteAnswers, head_of_branch, table_commit
from lakehouse.table.table import Table


class WritableTableAnswers(TableAnswers):
    """Answers for a table whose rows can change, always based on the loaded version.

    Args:
        spark: the session.
        name: the table as it was asked for.
        table: the table.
        branch: the branch read and written.
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
    ) -> None:
        request = table.scan(ref=branch).request
        super().__init__(
            spark, name, request, table.storage, table.listeners, by_workers=by_workers
        )
        self._table = table
        self._branch = branch

    def _verbs_of_table(self) -> Mapping[str, Verb]:
        return {
            **super()._verbs_of_table(),
            "write": self.write,
            "drops_whole_files": self.drops_whole_files,
            "delete_where": self.delete_where,
            "operation": self.operation,
        }

    def facts(self, told: Arguments, thing: object) -> dict[str, Any]:
        """What Spark has to know of the table, as JSON."""
        return {**super().facts(told, thing), "writable": True}

    def write(self, told: Arguments, _thing: object) -> WriteAnswers:
        """A write in a `mode`, of rows that replace those of `filters`."""
        self._refuse_staging()
        condition = exact_condition(told["filters"], self.schema)
        if condition is None:
            raise InvalidInputError(
                f"{self.name}: rows are replaced by conditions that compare columns with literals "
                "of their types; for anything else DELETE and INSERT, or MERGE",
                table=self.name,
            )
        commit = table_commit(self._table, self._branch, told["mode"], condition, self._summary())
        return WriteAnswers(
            f"write to {self.name}", self._spark, self._table.write_request(), commit, self._table
        )

    def drops_whole_files(self, told: Arguments, _thing: object) -> bool:
        """Whether the condition of `filters` is true of all rows of each file that has one."""
        condition = exact_condition(told["filters"], self.schema)
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

    def delete_where(self, told: Arguments, _thing: object) -> None:
        """Remove the rows of a condition, which are whole files."""
        self._refuse_staging()
        condition = exact_condition(told["filters"], self.schema)
        if condition is None:
            raise InvalidInputError(f"{self.name}: the condition is none of Iceberg's")
        self._table.delete(condition, branch=self._branch, summary=self._summary())

    def operation(self, told: Arguments, _thing: object) -> OperationAnswers:
        """DELETE, UPDATE or MERGE by rows."""
        self._refuse_staging()
        return OperationAnswers(
            self._spark, self, self._table, self._branch, told["command"], self._summary()
        )

    def _refuse_staging(self) -> None:
        """Refuse what would be published although the session asks to stage it."""
        if self._table.properties.get("write.wap.enabled", "").lower() != "true":
            return
        for setting in ("spark.wap.id", "spark.wap.branch"):
            value = self._spark().conf.get(setting, None)
            if value:
                raise UnsupportedFeatureError(
                    f"{self.name}: write.wap.enabled is true and {setting} is {value}, which this "
                    f"catalog does not follow: write to {self.name}.branch_audit, then CALL "
                    f"system.fast_forward; or RESET {setting}",
                    table=self.name,
                )

    def _summary(self) -> dict[str, str]:
        spark = self._spark()
        return {
            "engine-name": "spark",
            "engine-version": spark.version,
            "spark.app.id": spark.sparkContext.applicationId,
        }
