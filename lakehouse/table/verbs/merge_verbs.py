"""Verbs that change rows in place: update, upsert, and merge with its clauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from lakehouse.engines import engine_for
from lakehouse.errors import InvalidInputError
from lakehouse.expressions.filter_binding import Where, bind
from lakehouse.row_changes.merge.merge_binding import bind_merge, bind_update
from lakehouse.row_changes.merge.merge_rows import merge_rows
from lakehouse.row_changes.merge.merge_statement import MergeClause, MergeStatement, read_clause
from lakehouse.row_changes.merge.source_rows import DEFAULT_MEMORY_BYTES, SourceRows, held_rows
from lakehouse.row_changes.row_change import Command, RowChange, RowWriter
from lakehouse.row_changes.row_verbs import update_rows
from lakehouse.row_changes.target_rows import TargetRows
from lakehouse.table.loaded_table import LoadedTable, of_newest
from lakehouse.table.row_write import Changed, Decide, RowsAgain, RowWrite, WriteVerbs, layout
from lakehouse.table.write_result import MergePlan, MergeResult
from lakehouse.transaction.operations.branches_and_tags import SetRef
from lakehouse.transaction.operations.metadata_changes import MetadataChange
from lakehouse.transaction.transaction import Transaction


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a table's rows: a commit of its own, or a part of a transaction."""

    table: LoadedTable
    branch: str = "main"
    summary: Mapping[str, str] | None = None
    commit_id: str | None = None
    transaction: Transaction | None = None

    def make(self, decide: Decide, command: Command) -> MergeResult:
        """Decide, and commit that, or add it to the transaction."""
        if self.transaction is not None:
            self._check(self.transaction)
            write = RowWrite(self.table, self.transaction.branch, None, None)
            change = write.decide(decide, command, self.table.version)
            if change:
                change.add_to(self.transaction)
            return _result(Changed(change, None))
        with RowWrite(self.table, self.branch, self.summary, self.commit_id) as write:
            done = write.replayed()
            if done is not None:
                return MergeResult(done.snapshot, replayed=True)
            return _result(write.change_rows(decide, command, decides_again=True))

    def _check(self, transaction: Transaction) -> None:
        """Refuse what would be decided on other rows, or columns, than those that it meets."""
        table = self.table
        if self != _Change(table, transaction=transaction):
            raise InvalidInputError(
                f"{table.name}: branch, summary and commit_id are the transaction's: give them to "
                "table.transaction(branch=...) and to its commit(...)",
                table=table.name,
            )
        if transaction.decided_on.metadata_location != table.version.metadata_location:
            raise InvalidInputError(
                f"{table.name}: the transaction is based on another version of the table, or on "
                "another table: begin one with table.transaction()",
                table=table.name,
            )
        if any(
            not isinstance(operation, SetRef | MetadataChange)
            for operation in transaction.operations
        ):
            raise InvalidInputError(
                f"{table.name}: the transaction has changed rows or refs already, which this "
                "change would not see: make it the first that changes rows, or commit before it",
                table=table.name,
            )
        if layout(transaction.metadata) != layout(table.metadata):
            raise InvalidInputError(
                f"{table.name}: the transaction changes columns, partitions, the sort order or the "
                "format version: commit that before rows are changed",
                table=table.name,
            )


class MergeVerbs(WriteVerbs):
    """Each verb is one commit, and moves the table to the version that it made.

    When other writers commit first, the verb decides again on the rows as they are then, at most
    `commit.retry.num-retries` times.
    """

    def update(
        self,
        assignments: Mapping[str, str],
        where: Where = None,
        *,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
        transaction: Transaction | None = None,
    ) -> MergeResult:
        """Change values of rows.

        >>> events.update({"amount": "amount * 2"}, where="user_id = 1").rows_updated
        2

        Args:
            assignments: SQL by column; names are those of the row before the update.
            where: the rows to change; by default all.
            branch: where to.
            summary: entries for the snapshot's summary.
            commit_id: a name for this write, see `append`.
            transaction: adds the change to this transaction of the table instead of committing it;
                branch, summary and commit id are the transaction's. It is decided on the version
                that the transaction is based on, and its commit fails with ValidationConflictError
                when other writers have changed what the decision was about. Files are written now:
                those of a transaction that is never committed are left to orphan removal.

        Raises:
            InvalidExpressionError | InvalidInputError: a value or the filter does not parse or
            bind. InvalidSchemaError: a new value does not fit its column. CommitError: see
            `lakehouse.errors`.
        """

        def decide(target: TargetRows, writer: RowWriter) -> RowChange:
            condition = bind(where, target.schema)
            return update_rows(target, condition, bind_update(assignments, target.schema), writer)

        return _Change(self, branch, summary, commit_id, transaction).make(decide, "update")

    def upsert(
        self,
        data: object,
        keys: Sequence[str],
        *,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
        transaction: Transaction | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> MergeResult:
        """Update the rows whose keys `data` has, and insert the others.

        Columns that `data` lacks keep their values in existing rows and have their write default
        in new ones. A null key matches nothing: such rows are inserted.

        >>> done = events.upsert(more, keys=["user_id"])
        >>> done.rows_updated, done.rows_inserted
        (0, 1)

        Args:
            data: as for `append`.
            keys: columns that tell rows apart, the same in the table and in `data`.
            branch: where to.
            summary: entries for the snapshot's summary.
            commit_id: a name for this write, see `append`.
            transaction: instead of a commit of its own, see `update`.
            memory_bytes: what the merge may take, about. A source of more than an eighth of that
                goes to a temporary folder while it is merged.

        Raises:
            InvalidInputError: `data` has a key twice.
            InvalidSchemaError: the data does not fit the schema.
            CommitError: see `lakehouse.errors`.
        """
        change = _Change(self, branch, summary, commit_id, transaction)
        return self._upserting(data, keys, memory_bytes, change).execute()

    def plan_upsert(
        self,
        data: object,
        keys: Sequence[str],
        *,
        branch: str = "main",
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> MergePlan:
        """Count what `upsert` would do: files that it would open, rows that it would change.

        >>> events.plan_upsert(more, keys=["user_id"]).rows_inserted
        1

        Args:
            data: as for `upsert`.
            keys: as for `upsert`.
            branch: where to.
            memory_bytes: as for `upsert`.

        Raises:
            InvalidInputError | InvalidSchemaError: as `upsert`.
        """
        return self._upserting(data, keys, memory_bytes, _Change(self, branch)).plan()

    def merge(
        self,
        source: object,
        on: str | Sequence[str],
        *,
        source_alias: str = "s",
        target_alias: str = "t",
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
        transaction: Transaction | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> MergeBuilder:
        """Start a MERGE: add clauses to the result, then call `execute()`.

        >>> merge = events.merge(more, on="t.user_id = s.user_id")
        >>> merge = merge.when_matched_delete("s.amount = 0").when_matched_update_all()
        >>> merge.when_not_matched_insert_all().execute().rows_inserted
        1

        Args:
            source: rows, as for `append`; a stream is read by `execute()`, and by `plan()`. A scan
                of this table is read first.
            on: which rows belong together: columns that both have, or SQL, of which at least one
                part joined by AND is an equality of the target with the source. Null equals
                nothing; with `IS NOT DISTINCT FROM` it equals null.
            source_alias: name of the source in SQL.
            target_alias: name of the target in SQL.
            branch: where to.
            summary: entries for the snapshot's summary.
            commit_id: a name for this write, see `append`.
            transaction: instead of a commit of its own, see `update`.
            memory_bytes: what the merge may take, about. A source of more than an eighth of that
                goes to a temporary folder while it is merged.
        """
        columns = on if isinstance(on, str) else tuple(on)
        statement = MergeStatement(columns, (), source_alias, target_alias)
        change = _Change(self, branch, summary, commit_id, transaction)
        return self._builder(statement, source, memory_bytes, change)

    def _upserting(
        self, data: object, keys: Sequence[str], memory_bytes: int, change: _Change
    ) -> MergeBuilder:
        if isinstance(keys, str) or not keys:
            raise InvalidInputError(f"keys is a list of columns, not {keys!r}", table=self.name)
        clauses = (MergeClause("matched", "update"), MergeClause("not matched", "insert"))
        statement = MergeStatement(tuple(keys), clauses, unique_source=True)
        return self._builder(statement, data, memory_bytes, change)

    def _builder(
        self, statement: MergeStatement, source: object, memory_bytes: int, change: _Change
    ) -> MergeBuilder:
        if engine_for(source) is not None:
            raise InvalidInputError(
                f"{self.name}: the rows of a Spark DataFrame are merged by Spark: "
                "frame.createOrReplaceTempView('s'), then spark.sql('MERGE INTO "
                f"lake.{self.name} t USING s ON ... WHEN ...') in a session that has the catalog; "
                "or give frame.toArrow() where its rows fit in memory here",
                table=self.name,
            )
        return MergeBuilder(change, RowsAgain(source, self.name), statement, memory_bytes)


def _planned(target: TargetRows, change: RowChange) -> MergePlan:
    head = target.snapshot_id
    snapshot = None if head is None else target.metadata.snapshot(head)
    counted = None if snapshot is None else snapshot.summary.get("total-data-files")
    return MergePlan(
        table=target.table,
        snapshot_id=head,
        mode=change.mode,
        files=0 if snapshot is None else None if counted is None else int(counted),
        files_opened=len(change.opened),
        bytes_opened=sum(file.file_size_in_bytes for file in change.opened),
        files_changed=change.files_losing_rows,
        rows_inserted=change.inserted,
        rows_updated=change.updated,
        rows_deleted=change.deleted or 0,
    )


def _result(done: Changed) -> MergeResult:
    change, commit = done.change, done.result
    if commit is not None and commit.replayed:
        return MergeResult(commit.snapshot, replayed=True)
    return MergeResult(
        None if commit is None else commit.snapshot,
        change.inserted,
        change.updated,
        change.deleted or 0,
        retries=0 if commit is None else commit.retries,
        decided_again=0 if commit is None else commit.decided_again,
        rows_decided_again=0 if commit is None else commit.rows_decided_again,
    )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class MergeBuilder:
    """A MERGE to which clauses are added; each call returns a new one.

    Of the clauses about a row the first whose condition is true acts. Values are SQL by column.
    """

    _change: _Change
    _source: RowsAgain
    _statement: MergeStatement
    _memory_bytes: int

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
        with self._held() as held:
            return self._change.make(partial(self._decide, held), "merge")

    def plan(self) -> MergePlan:
        """Which files the merge would open, and how many rows it would change; writes nothing.

        >>> events.merge(more, on=["user_id"]).when_matched_delete().plan().rows_deleted
        0

        Raises:
            InvalidInputError | InvalidExpressionError | InvalidSchemaError: as `execute`.
        """
        table, branch = self._change.table, self._change.branch
        with self._held() as held:

            def read() -> MergePlan:
                target = TargetRows.of(table.version, branch, table.storage)
                with RowWriter(table.metadata, None, table.storage, "merge") as writer:
                    return _planned(target, self._decide(held, target, writer))

            return of_newest(table, read, branch)

    def _held(self) -> AbstractContextManager[SourceRows]:
        table = self._change.table
        return held_rows(self._source.rows(), table.name, self._memory_bytes, table.schema())

    def _decide(self, held: SourceRows, target: TargetRows, writer: RowWriter) -> RowChange:
        merge = bind_merge(self._statement, target.schema, held.schema)
        return merge_rows(target, merge, held, writer)

    def _with(self, clause: MergeClause) -> MergeBuilder:
        clauses = (*self._statement.clauses, clause)
        return replace(self, _statement=replace(self._statement, clauses=clauses))
