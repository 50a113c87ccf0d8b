"""The verb that applies changes of rows, as another database tells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakehouse.data.writing.untyped_columns import without_untyped
from lakehouse.engines import engine_for
from lakehouse.errors import InvalidInputError
from lakehouse.row_changes.change_data.change_batch import ChangeBatch, last_changes
from lakehouse.row_changes.change_data.change_merge import merge_changes, room_for
from lakehouse.row_changes.merge.source_rows import whole_source
from lakehouse.row_changes.row_change import RowChange, RowWriter
from lakehouse.row_changes.target_rows import TargetRows
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import SetProperties
from lakehouse.table.row_write import RowWrite, arrow_rows
from lakehouse.table.verbs.merge_verbs import MergeVerbs
from lakehouse.table.verbs.remembered_deletes import RememberedDeletes
from lakehouse.table.write_result import ApplyResult
from lakehouse.transaction.operations.metadata_changes import MetadataChange


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

        def decide(target: TargetRows, writer: RowWriter) -> RowChange:
            older = deletes.older()
            before = _metadata_change(batch, deletes, target.metadata)
            target = target.at(before.applied_to(target.metadata))
            writer.with_columns(target.metadata)
            change = merge_changes(target, batch.only(~older), writer)
            change = replace(
                change,
                passed_over=change.passed_over + int(older.sum()),
                isolation="serializable",
                before=(before,) if before.updates else (),
                check=lambda: deletes.check(older),
            )
            if change or always or deletes.asked_for:
                deletes.remember()
            return change

        done = write.change_rows(
            decide, "merge", always=always or deletes.asked_for, decides_again=True
        )
        change, commit = done.change, done.result
        if commit is not None and commit.replayed:
            return ApplyResult(commit.snapshot, replayed=True)
        result = ApplyResult(
            None,
            changes=batch.rows.num_rows + batch.superseded,
            superseded=batch.superseded,
            ignored=change.passed_over,
        )
        if commit is None:
            return result
        return replace(
            result,
            snapshot=commit.snapshot,
            rows_inserted=change.inserted,
            rows_updated=change.updated,
            rows_deleted=change.deleted or 0,
            retries=commit.retries,
            decided_again=commit.decided_again,
            rows_decided_again=commit.rows_decided_again,
            columns_changed=_changed_columns(change),
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


def _metadata_change(
    batch: ChangeBatch, deletes: RememberedDeletes, metadata: TableMetadata
) -> MetadataChange:
    """What the commit of a batch changes beside rows: columns, and where deletes are remembered."""
    columns = room_for(batch, metadata)
    properties = deletes.property_of(metadata)
    updates = (*columns.updates, *((SetProperties(properties),) if properties else ()))
    return MetadataChange(updates, tuple(columns.requirements))


def _changed_columns(change: RowChange) -> tuple[str, ...]:
    """Names of the columns that were added or have another type."""
    old = {field.field_id: field.field_type for field in change.decided_on.schema().fields}
    after = change.decided_on
    for earlier in change.before:
        after = earlier.applied_to(after)
    fields = after.schema().fields
    return tuple(field.name for field in fields if old.get(field.field_id) != field.field_type)
