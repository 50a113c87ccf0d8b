"""Verbs that change rows in place: update, upsert and merge."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lakehouse.dml.merge.changed_files import Mode, write_changes
from lakehouse.dml.merge.merge_binding import bind_merge, bind_update
from lakehouse.dml.merge.merge_rows import merge_rows
from lakehouse.dml.merge.merge_statement import MergeClause, MergeStatement
from lakehouse.dml.merge.source_rows import DEFAULT_MEMORY_BYTES, SourceRows, held_rows
from lakehouse.dml.merge.target_rows import RowChanges, TargetRows, update_rows
from lakehouse.engines import engine_for
from lakehouse.errors import InvalidInputError
from lakehouse.expressions.filter_binding import Where, bind
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table.decisions.row_write import Decision, RowWrite, layout
from lakehouse.table.merge_builder import MergeBuilder
from lakehouse.table.merge_result import MergePlan, MergeResult
from lakehouse.table.rows import RowsAgain
from lakehouse.table.verbs.write_verbs import WriteVerbs
from lakehouse.table.write_result import WriteResult
from lakehouse.transaction.operations.branches_and_tags import SetRef
from lakehouse.transaction.operations.metadata_changes import MetadataChange
from lakehouse.transaction.table_change import Isolation
from lakehouse.transaction.transaction import Transaction


@dataclass(frozen=True, slots=True)
class _Into:
    """Where a change goes: a commit of its own, or a transaction."""

    branch: str = "main"
    summary: Mapping[str, str] | None = None
    commit_id: str | None = None
    transaction: Transaction | None = None


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
        """Give rows new values.

        >>> events.update({"amount": "amount * 2"}, where="user_id = 1").rows_updated
        2

        Args:
            assignments: SQL by column; names are those of the row before the update.
            where: which rows; all by default.
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

        def change(target: TargetRows) -> RowChanges:
            condition = bind(where, target.schema)
            return update_rows(target, condition, bind_update(assignments, target.schema))

        into = _Into(branch, summary, commit_id, transaction)
        return self._change(change, "update", into)

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

        Columns that `data` lacks keep their values in rows that are there, and have their default
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
        into = _Into(branch, summary, commit_id, transaction)
        return self._upserting(data, keys, memory_bytes, into).execute()

    def plan_upsert(
        self,
        data: object,
        keys: Sequence[str],
        *,
        branch: str = "main",
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> MergePlan:
        """What `upsert` would do: the files that it would open, and how many rows it would change.

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
        return self._upserting(data, keys, memory_bytes, _Into(branch)).plan()

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
        """Begin a MERGE: add clauses to what comes back, then `execute()` it.

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
        into = _Into(branch, summary, commit_id, transaction)
        return self._builder(statement, source, memory_bytes, into)

    def _upserting(
        self, data: object, keys: Sequence[str], memory_bytes: int, into: _Into
    ) -> MergeBuilder:
        if isinstance(keys, str) or not keys:
            raise InvalidInputError(f"keys is a list of columns, not {keys!r}", table=self.name)
        clauses = (MergeClause("matched", "update"), MergeClause("not matched", "insert"))
        statement = MergeStatement(tuple(keys), clauses, unique_source=True)
        return self._builder(statement, data, memory_bytes, into)

    def _builder(
        self, statement: MergeStatement, source: object, memory_bytes: int, into: _Into
    ) -> MergeBuilder:
        if engine_for(source) is not None:
            raise InvalidInputError(
                f"{self.name}: the rows of a Spark DataFrame are merged by Spark: "
                "frame.createOrReplaceTempView('s'), then spark.sql('MERGE INTO "
                f"lake.{self.name} t USING s ON ... WHEN ...') in a session that has the catalog; "
                "or give frame.toArrow() where its rows fit in memory here",
                table=self.name,
            )
        again = RowsAgain(source, self.name)
        schema = self.metadata.schema()

        def change(statement: MergeStatement, held: SourceRows, target: TargetRows) -> RowChanges:
            return merge_rows(target, bind_merge(statement, target.schema, held.schema), held)

        def execute(statement: MergeStatement) -> MergeResult:
            with held_rows(again.rows(), self.name, memory_bytes, schema) as held:
                return self._change(partial(change, statement, held), "merge", into)

        def plan(statement: MergeStatement) -> MergePlan:
            with held_rows(again.rows(), self.name, memory_bytes, schema) as held:

                def read() -> RowChanges:
                    found = change(statement, held, self._target(into.branch))
                    deque(found.rows, maxlen=0)
                    return found

                return self._planned(self._of_newest(read, into.branch), into.branch)

        return MergeBuilder(statement, execute, plan)

    def _target(self, branch: str) -> TargetRows:
        return TargetRows(self.metadata, self._head(branch), self.storage, self.name)

    def _planned(self, changes: RowChanges, branch: str) -> MergePlan:
        head = self._head(branch)
        snapshot = None if head is None else self.metadata.snapshot(head)
        counted = None if snapshot is None else snapshot.summary.get("total-data-files")
        return MergePlan(
            table=self.name,
            snapshot_id=head,
            mode=TableProperties(self.properties).merge_mode,
            files=0 if snapshot is None else None if counted is None else int(counted),
            files_opened=len(changes.opened),
            bytes_opened=sum(one.file_size_in_bytes for one in changes.opened),
            files_changed=len(changes.gone),
            rows_inserted=changes.inserted,
            rows_updated=changes.updated,
            rows_deleted=changes.deleted,
        )

    def _change(
        self, change: Callable[[TargetRows], RowChanges], command: str, into: _Into
    ) -> MergeResult:
        counted = RowChanges()

        def stage(transaction: Transaction) -> Sequence[DataFile]:
            """Decides, writes files, and adds them; the files, none if there is nothing to do."""
            nonlocal counted
            properties = TableProperties(self.properties)
            mode: Mode = getattr(properties, f"{command}_mode")
            isolation: Isolation = getattr(properties, f"{command}_isolation")
            request, target = self.write_request(), self._target(transaction.branch)
            counted = change(target)
            files = write_changes(counted, self.metadata, request, self.storage, mode)
            if not counted:
                return ()
            files.stage(transaction, isolation)
            return files.written

        if into.transaction is not None:
            self._check_transaction(into)
            with self._reading(into.transaction.branch):
                stage(into.transaction)
            return MergeResult(None, counted.inserted, counted.updated, counted.deleted)

        def decide() -> Decision | None:
            transaction = self.transaction(branch=into.branch)
            written = stage(transaction)
            if not counted:
                return None
            return Decision(transaction, written, source_rows=counted.source_rows)

        with RowWrite(self, into.branch, into.summary, into.commit_id) as write:
            done = write.replayed()
            if done is not None:
                return MergeResult(done.snapshot, replayed=True)
            found = write.commit_decision(decide, whatever_came=True)
        return _result(found, counted)

    def _check_transaction(self, into: _Into) -> None:
        """Refuse what would be decided on other rows, or columns, than those that it meets."""
        transaction = into.transaction
        if transaction is None or into != _Into(transaction=transaction):
            raise InvalidInputError(
                f"{self.name}: branch, summary and commit_id are the transaction's: give them to "
                "table.transaction(branch=...) and to its commit(...)",
                table=self.name,
            )
        if transaction.base.metadata_location != self.version.metadata_location:
            raise InvalidInputError(
                f"{self.name}: the transaction is based on another version of the table, or on "
                "another table: begin one with table.transaction()",
                table=self.name,
            )
        if any(not isinstance(one, SetRef | MetadataChange) for one in transaction.operations):
            raise InvalidInputError(
                f"{self.name}: the transaction has changed rows or refs already, which this change "
                "would not see: make it the first that changes rows, or commit before it",
                table=self.name,
            )
        if layout(transaction.metadata) != layout(self.metadata):
            raise InvalidInputError(
                f"{self.name}: the transaction changes columns, partitions, the sort order or the "
                "format version: commit that before rows are changed",
                table=self.name,
            )


def _result(found: WriteResult | None, counted: RowChanges) -> MergeResult:
    if found is None:
        return MergeResult(None)
    if found.replayed:
        return MergeResult(found.snapshot, replayed=True)
    return MergeResult(
        found.snapshot,
        counted.inserted,
        counted.updated,
        counted.deleted,
        found.retries,
        decided_again=found.decided_again,
        rows_decided_again=found.rows_decided_again,
    )
