"""The verb that applies changes of rows, as another database tells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from pyiceberg.schema import Schema

from lakehouse.data.writing.untyped_columns import without_untyped
from lakehouse.dml.changes.change_batch import ChangeBatch, last_changes
from lakehouse.dml.changes.change_columns import room_for
from lakehouse.dml.changes.change_merge import merge_changes
from lakehouse.dml.merge.changed_files import ChangedFiles, Mode, write_changes
from lakehouse.dml.merge.source_rows import whole_source
from lakehouse.dml.merge.target_rows import RowChanges, TargetRows
from lakehouse.engines import engine_for
from lakehouse.errors import InvalidInputError
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table.decisions.row_write import Decision, RowWrite
from lakehouse.table.merge_result import ApplyResult
from lakehouse.table.rows import arrow_rows
from lakehouse.table.verbs.merge_verbs import MergeVerbs
from lakehouse.table.verbs.remembered_deletes import RememberedDeletes
from lakehouse.transaction.transaction import Transaction


class ApplyVerbs(MergeVerbs):
    """Each verb is one commit, and moves the table to the version that it made."""

    def apply_changes(
        self,
        changes: object,
        keys: Sequence[str],
        sequence_by: Sequence[str],
        delete_when: str | None = None,
        *,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> ApplyResult:
        """Bring the table to the state that changes of another database describe.

        A change is a row: the key, its place in the order of changes, and the new values. Of each
        key the last change counts, whatever the order in which they arrive: a change older than the
        row that the table holds is ignored, and so is one older than the delete of its row, for as
        long as deletes are remembered (property `lakehouse.changes.remember-deletes-ms`). Of equal
        sequences the change that comes later in the data, or in a later batch, is the later one.

        >>> users = lake.create_table(
        ...     "raw.users", pa.schema({"id": pa.int64(), "name": pa.string(), "lsn": pa.int64()})
        ... )
        >>> changes = pa.table(
        ...     {
        ...         "id": [1, 2, 1, 2],
        ...         "name": ["Ada", "Bob", "Ada L.", None],
        ...         "lsn": [10, 11, 12, 13],
        ...         "op": ["c", "c", "u", "d"],
        ...     }
        ... )
        >>> done = users.apply_changes(
        ...     changes, keys=["id"], sequence_by=["lsn"], delete_when="op = 'd'", commit_id="b1"
        ... )
        >>> done.applied, done.superseded, done.rows_inserted
        (2, 2, 1)
        >>> users.scan().to_arrow().to_pylist()
        [{'id': 1, 'name': 'Ada L.', 'lsn': 12}]
        >>> late = changes.slice(1, 1)  # Bob's creation comes again, after he was deleted
        >>> users.apply_changes(late, ["id"], ["lsn"], "op = 'd'").ignored
        1

        The table keeps the columns of the sequence. Columns that it lacks are added; a column
        whose new values do not fit is promoted where Iceberg allows it. Columns that `delete_when`
        names are kept only where the table has them; columns of nulls alone are added with their
        first value.

        Args:
            changes: rows as for `append`, held in memory; for events of Debezium see
                `lakehouse.debezium_changes`.
            keys: columns that tell rows apart, the same in the table and in the changes; never
                null, no floats.
            sequence_by: columns that order the changes of a key, the first one first; never null,
                no floats. A row of the table that has null there is older than every change.
            delete_when: SQL over a change, true for one that deletes its row; by default none does.
            branch: where to.
            summary: entries for the snapshot's summary.
            commit_id: a name for this batch, such as the position of its end in the source, see
                `append`. With it also a batch that changes nothing makes a snapshot.

        Raises:
            InvalidInputError: a change without a key or a sequence, or a column that is missing.
            InvalidExpressionError: `delete_when` does not parse, or names no column.
            InvalidSchemaError: values do not fit, and their column cannot be promoted.
            CommitError: see `lakehouse.errors`.
        """
        with RowWrite(self, branch, summary, commit_id) as write:
            if (done := write.replayed()) is not None:
                return ApplyResult(done.snapshot, replayed=True)
            batch = self._batch(changes, keys, sequence_by, delete_when)
            return self._apply(batch, write, branch, always=commit_id is not None)

    def _apply(
        self, batch: ChangeBatch, write: RowWrite, branch: str, *, always: bool
    ) -> ApplyResult:
        """Decide, remember deletes, commit; `always` also when nothing changes."""
        deletes = RememberedDeletes(self, batch, branch)
        counted, ignored = RowChanges(), 0
        columns: tuple[str, ...] = ()

        def decide() -> Decision | None:
            nonlocal counted, ignored, columns
            older = deletes.older()
            transaction = self.transaction(branch=branch)
            room = room_for(batch, self.metadata)
            if room:
                transaction.update(room.updates, room.requirements)
            if deletes.property:
                transaction.set_properties(deletes.property)
            counted = self._changed_rows(batch.only(~older), transaction)
            files = self._write(counted, transaction)
            ignored = int(older.sum()) + counted.passed_over
            columns = _changed_columns(self.schema(), transaction.metadata.schema())
            if not counted and not deletes.asked_for and not always:
                return None
            decision = self._stage(counted, files, transaction)
            deletes.remember()
            transaction.assume(lambda: deletes.check(older))
            return decision

        found = write.commit_decision(decide, whatever_came=True)
        total = batch.rows.num_rows + batch.superseded
        result = ApplyResult(None, changes=total, superseded=batch.superseded, ignored=ignored)
        if found is None:
            return result
        if found.replayed:
            return ApplyResult(found.snapshot, replayed=True)
        return replace(
            result,
            snapshot=found.snapshot,
            rows_inserted=counted.inserted,
            rows_updated=counted.updated,
            rows_deleted=counted.deleted,
            retries=found.retries,
            decided_again=found.decided_again,
            rows_decided_again=found.rows_decided_again,
            columns_changed=columns,
        )

    def _batch(
        self,
        changes: object,
        keys: Sequence[str],
        sequence_by: Sequence[str],
        delete_when: str | None,
    ) -> ChangeBatch:
        if engine_for(changes) is not None:
            raise InvalidInputError(
                f"{self.name}: changes of a Spark DataFrame are applied in batches that fit in "
                "memory: give frame.toArrow()",
                table=self.name,
            )
        schema, rows = whole_source(arrow_rows(changes, self.name), self.name)
        batch = last_changes(rows, schema, keys, sequence_by, delete_when, self.name)
        if self.metadata.format_version >= 3:
            return batch
        kept = {*keys, *sequence_by, *batch.marks}
        typed, dropped = without_untyped(batch.rows, self.schema(), kept)
        if not dropped:
            return batch
        schema, rows = whole_source(typed, self.name)
        return replace(batch, schema=schema, rows=rows)

    def _changed_rows(self, batch: ChangeBatch, transaction: Transaction) -> RowChanges:
        head = self._head(transaction.branch)
        return merge_changes(TargetRows(transaction.metadata, head, self.storage, self.name), batch)

    def _write(self, changes: RowChanges, transaction: Transaction) -> ChangedFiles:
        metadata = transaction.metadata
        request = replace(self.write_request(), schema=metadata.schema())
        mode = cast("Mode", TableProperties(self.properties).merge_mode)
        return write_changes(changes, metadata, request, self.storage, mode)

    def _stage(
        self, changes: RowChanges, files: ChangedFiles, transaction: Transaction
    ) -> Decision:
        """The files of the changes, or an empty snapshot that says that the batch was applied."""
        if not changes:
            transaction.row_delta(
                conflict_filter=changes.conflict_filter,
                isolation="serializable",
                keys=changes.keys,
            )
            return Decision(transaction, (), source_rows=changes.source_rows)
        files.stage(transaction, "serializable")
        return Decision(transaction, files.written, source_rows=changes.source_rows)


def _changed_columns(before: Schema, after: Schema) -> tuple[str, ...]:
    """Names of the columns that were added or have another type."""
    old = {one.field_id: one.field_type for one in before.fields}
    return tuple(one.name for one in after.fields if old.get(one.field_id) != one.field_type)
