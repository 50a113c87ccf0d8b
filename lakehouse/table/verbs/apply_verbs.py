"""The verb that applies changes of rows, as another database tells them; deletes are remembered."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, TimestamptzType

from lakehouse.data.writing.untyped_columns import without_untyped
from lakehouse.engines import engine_for
from lakehouse.errors import InvalidInputError, TableAlreadyExistsError, ValidationConflictError
from lakehouse.row_changes.change_data.change_batch import ChangeBatch, last_changes
from lakehouse.row_changes.change_data.change_merge import merge_changes, older_than, room_for
from lakehouse.row_changes.merge.source_rows import whole_source
from lakehouse.row_changes.row_change import RowChange, RowWriter
from lakehouse.row_changes.target_rows import TargetRows
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_metadata import TableMetadata, new_table_metadata, refuse_v1
from lakehouse.spec.metadata.table_updates import SetProperties
from lakehouse.spec.partitioning.partition_terms import parse_partition_spec, parse_sort_order
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table.loaded_table import LoadedTable
from lakehouse.table.row_write import RowWrite, WriteVerbs, arrow_rows
from lakehouse.table.verbs.change_verbs import ChangeVerbs
from lakehouse.table.verbs.merge_verbs import MergeVerbs
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


REMEMBERED_AT = "remembered_at"
_REMEMBERS = "lakehouse.changes.remembers"  # uuid of the table whose deletes these are
_LOOKS = 50  # for a table that another writer is making
_DAY_MS = 24 * 60 * 60 * 1000


class _Beside(WriteVerbs, ChangeVerbs):
    """The table that remembers."""

    def remembered(self, branch: str) -> TargetRows:
        """Its rows."""
        return TargetRows.of(self.version, branch, self.storage)


class RememberedDeletes:
    """The deletes that are remembered beside a table, as far as a batch of changes is concerned.

    Args:
        table: that the changes are for.
        batch: the changes.
        branch: of the table; each has deletes of its own, in a branch of the same name.
    """

    def __init__(self, table: LoadedTable, batch: ChangeBatch, branch: str) -> None:
        properties = TableProperties(table.properties)
        self._table = table
        self._batch = batch
        self._branch = branch
        self._remember_ms = properties.changes_remember_deletes_ms
        self._written = False
        default = Identifier(table.identifier.namespace, f"{table.identifier.name}_deletes")
        given = properties.changes_deletes_table
        self._identifier = default if given is None else Identifier.parse(given)

    @property
    def asked_for(self) -> bool:
        """Whether the batch has deletes that are to be remembered."""
        return bool(self._remember_ms and self._batch.deletes.any())

    def property_of(self, metadata: TableMetadata) -> dict[str, str]:
        """The property that names the deletes' table, so that a renamed table still has them."""
        name = TableProperties.changes_deletes_table.name
        new = self.asked_for and name not in metadata.properties
        return {name: str(self._identifier)} if new else {}

    def older(self) -> npt.NDArray[np.bool_]:
        """The changes of the batch that are older than a delete that is remembered by now."""
        beside = self._load() if self._remember_ms else None
        if beside is None:
            return np.zeros(self._batch.rows.num_rows, bool)
        return older_than(beside.remembered(self._branch), self._batch)

    def check(self, decided: npt.NDArray[np.bool_]) -> None:
        """Refuse when deletes were remembered since that are about changes not seen as older.

        Raises:
            ValidationConflictError: a change is older than a delete that came meanwhile.
        """
        if (self.older() & ~decided).any():
            raise ValidationConflictError(
                f"Table {self._table.name}: deletes were applied meanwhile that are newer than "
                "changes of this batch. Apply it again.",
                table=self._table.name,
            )

    def remember(self) -> None:
        """Append the deletes of the batch, once, and forget those that are too old.

        Raises:
            InvalidInputError: the table beside is not what it should be.
            CommitError: see `lakehouse.errors`.
        """
        if self._written or not self.asked_for:
            return
        beside = self._load() or self._create()
        batch, now_ms = self._batch, self._table.environment.now_ms()
        names = list(dict.fromkeys((*batch.keys, *batch.sequence_by)))
        rows = batch.rows.select(names).filter(pa.array(batch.deletes))
        now = pa.scalar(now_ms * 1000, pa.timestamp("us", tz="UTC"))
        rows = rows.append_column(REMEMBERED_AT, pa.repeat(now, rows.num_rows))
        with beside.update_schema() as schema:
            schema.union_by_name(self._schema())
        beside.append(rows, branch=self._branch)
        self._written = True
        self._forget(beside, now_ms)

    def _forget(self, beside: _Beside, now_ms: int) -> None:
        """Drop whole days alone: their files go without being read."""
        oldest = (now_ms - self._remember_ms) // _DAY_MS
        if oldest <= 0:
            return
        day = dt.date(1970, 1, 1) + dt.timedelta(days=oldest)
        try:
            beside.delete(f"{REMEMBERED_AT} < '{day}'", branch=self._branch)
        except ValidationConflictError:
            return  # another writer forgets them at this moment

    def _schema(self) -> Schema:
        """Columns of the key and of the sequence, in the types of the table."""
        names = dict.fromkeys((*self._batch.keys, *self._batch.sequence_by))
        if REMEMBERED_AT in names:
            raise self._unusable(f"a key or sequence cannot have the name {REMEMBERED_AT}")
        return Schema(
            *(self._batch.schema.find_field(name) for name in names),
            NestedField(self._batch.schema.highest_field_id + 1, REMEMBERED_AT, TimestamptzType()),
        )

    def _load(self) -> _Beside | None:
        catalog = self._table.catalog
        if not catalog.table_exists(self._identifier):
            return None
        table = _Beside(
            catalog,
            catalog.load(self._identifier),
            self._table.environment,
            self._table.listeners,
        )
        names = sorted({*self._batch.keys, *self._batch.sequence_by, REMEMBERED_AT})
        if table.properties.get(_REMEMBERS) != self._table.metadata.table_uuid:
            raise self._unusable("it is a table of its own")
        if sorted(table.schema().column_names) != names:
            raise self._unusable(
                f"its columns are {', '.join(sorted(table.schema().column_names))}, those of the "
                f"changes' keys and sequence {', '.join(names)}"
            )
        return table

    def _create(self) -> _Beside:
        schema, catalog = self._schema(), self._table.catalog
        refuse_v1(self._table.metadata)
        metadata = new_table_metadata(
            schema=schema,
            spec=parse_partition_spec([f"day({REMEMBERED_AT})"], schema),
            sort_order=parse_sort_order([], schema),
            location=catalog.default_location(self._identifier),
            properties={_REMEMBERS: self._table.metadata.table_uuid},
            format_version=self._table.metadata.format_version,
            table_uuid=str(self._table.environment.new_uuid()),
            now_ms=self._table.environment.now_ms(),
        )
        for _ in range(_LOOKS):
            with suppress(TableAlreadyExistsError):
                catalog.create(self._identifier, metadata)
            table = self._load()
            if table is not None:
                return table
            self._table.environment.sleep(0.1)  # another writer makes it at this moment
        raise self._unusable("another writer began to make it and did not finish")

    def _unusable(self, why: str) -> InvalidInputError:
        return InvalidInputError(
            f"{self._table.name}: deletes cannot be remembered in {self._identifier}: {why}. Drop "
            f"it, or name another with {TableProperties.changes_deletes_table.name}",
            table=self._table.name,
        )
