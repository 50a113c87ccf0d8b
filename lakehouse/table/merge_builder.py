"""A MERGE in the making: clauses are added one by one, then it is planned or executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from lakehouse.dml.merge.merge_statement import MergeClause, MergeStatement, read_clause
from lakehouse.table.merge_result import MergePlan, MergeResult


class MergeBuilder:
    """A MERGE to which clauses are added; each call returns a new one.

    Of the clauses about a row the first whose condition is true acts. Values are SQL by column.
    """

    def __init__(
        self,
        statement: MergeStatement,
        execute: Callable[[MergeStatement], MergeResult],
        plan: Callable[[MergeStatement], MergePlan],
    ) -> None:
        self._statement = statement
        self._execute = execute
        self._plan = plan

    def when(self, clause: str) -> MergeBuilder:
        """A clause in SQL, as it stands behind WHEN in MERGE.

        >>> merge = events.merge(more, on=["user_id"])
        >>> merge = merge.when("MATCHED AND s.amount = 0 THEN DELETE")
        >>> merge.when("NOT MATCHED THEN INSERT *").execute().rows_inserted
        1

        Raises:
            InvalidExpressionError: it is no clause; shows where.
        """
        return self._with(read_clause(clause))

    def when_matched_update(
        self, assignments: Mapping[str, str], condition: str | None = None
    ) -> MergeBuilder:
        """Rows that match have new values, which may name both sides."""
        return self._with(MergeClause("matched", "update", condition, assignments))

    def when_matched_update_all(self, condition: str | None = None) -> MergeBuilder:
        """Rows that match take every column of the source."""
        return self._with(MergeClause("matched", "update", condition))

    def when_matched_delete(self, condition: str | None = None) -> MergeBuilder:
        """Delete target rows that match."""
        return self._with(MergeClause("matched", "delete", condition))

    def when_not_matched_insert(
        self, assignments: Mapping[str, str], condition: str | None = None
    ) -> MergeBuilder:
        """Source rows that match nothing become rows."""
        return self._with(MergeClause("not matched", "insert", condition, assignments))

    def when_not_matched_insert_all(self, condition: str | None = None) -> MergeBuilder:
        """Source rows that match nothing become rows, every column by its name."""
        return self._with(MergeClause("not matched", "insert", condition))

    def when_not_matched_by_source_update(
        self, assignments: Mapping[str, str], condition: str | None = None
    ) -> MergeBuilder:
        """Rows that no source row matches have new values. Reads the whole table."""
        return self._with(MergeClause("not matched by source", "update", condition, assignments))

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> MergeBuilder:
        """Rows that no source row matches go. Reads the whole table."""
        return self._with(MergeClause("not matched by source", "delete", condition))

    def execute(self) -> MergeResult:
        """Merge, and commit.

        Raises:
            InvalidInputError: several source rows would change one row of the table.
            InvalidExpressionError | InvalidSchemaError: SQL that means nothing, or values that do
                not fit.
            CommitError: see `lakehouse.errors`.
        """
        return self._execute(self._statement)

    def plan(self) -> MergePlan:
        """Which files the merge would open, and how many rows it would change; writes nothing.

        >>> events.merge(more, on=["user_id"]).when_matched_delete().plan().rows_deleted
        0

        Raises:
            InvalidInputError | InvalidExpressionError | InvalidSchemaError: as `execute`.
        """
        return self._plan(self._statement)

    def _with(self, clause: MergeClause) -> MergeBuilder:
        statement = replace(self._statement, clauses=(*self._statement.clauses, clause))
        return MergeBuilder(statement, self._execute, self._plan)
