"""Operations on files: append, overwrite, delete, row delta, rewrite.

Each says which files go, which ones come, and what others must not have done meanwhile. Conflicts
that only rows tell have files read: rows that an operation decided on must still be there, also
where compaction has moved them to, and others must not have added rows that it would have decided
on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from lakehouse.data.reading.scan_reader import ReadRequest, read_table
from lakehouse.errors import (
    InvalidInputError,
    NoSuchFileError,
    UnsupportedFeatureError,
    ValidationConflictError,
)
from lakehouse.expressions.bound_filter import Bound
from lakehouse.expressions.filter_binding import widen
from lakehouse.manifests.manifest_writer import checked, file_key
from lakehouse.scan.pruning.entry_pruning import must_match
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import CONTENT_DATA, CONTENT_POSITION_DELETES, DataFile
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.metadata.snapshot import (
    OPERATION_APPEND,
    OPERATION_DELETE,
    OPERATION_OVERWRITE,
    OPERATION_REPLACE,
)
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.schema.iceberg_types import LAST_UPDATED, METADATA_COLUMNS, ROW_ID
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.concurrent_change import ConcurrentChange
from lakehouse.transaction.conflict_rules import (
    Mask,
    Scope,
    Subject,
    Targets,
    no_added_data,
    no_equality_deletes,
    no_new_deletes,
    no_new_vectors,
    no_row_deleted,
    none_added_twice,
    none_removed_below,
    reaches_moved_rows_alike,
    still_live,
)
from lakehouse.transaction.decided_rows import DecidedRows, KeyTest, RowIds, follow
from lakehouse.transaction.deletion_vectors import VECTORS_SINCE, deleted_since
from lakehouse.transaction.table_change import Attempt, FilesPlan, Isolation, Operation, Step


@dataclass(frozen=True, eq=False)
class Append(Operation):
    """Add data files; see Transaction.append."""

    holds_on_every_base: ClassVar[bool] = True

    files: tuple[DataFile, ...]
    must_be_new: bool = False

    def __post_init__(self) -> None:
        checked(self.files, "The files to append")
        wrong = next((file for file in self.files if file.content != CONTENT_DATA), None)
        if wrong is not None:
            raise InvalidInputError(
                f"{wrong.file_path} holds deletes, not data: use row_delta.", file=wrong.file_path
            )

    @property
    def plan(self) -> FilesPlan:
        return FilesPlan(operation=OPERATION_APPEND, added=self.files)

    def step(self, attempt: Attempt) -> Step:
        """One snapshot with the new manifests before the old.

        Raises:
            ValidationConflictError: a file that must be new is in the table by now.
        """
        if self.must_be_new:
            none_added_twice(attempt.subject("append"), self.files, attempt.concurrent_changes())
        return Step(snapshot=self.plan)


@dataclass(frozen=True, eq=False)
class Overwrite(Operation):
    """Replace `removed` by `added` in one snapshot; see Transaction.overwrite."""

    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    conflict_filter: Bound | None = None
    isolation: Isolation | None = None
    keys: KeyTest | None = None
    rows: tuple[DecidedRows, ...] = ()

    def __post_init__(self) -> None:
        checked(self.added, "The files to add")
        checked(self.removed, "The files to remove")

    @property
    def plan(self) -> FilesPlan:
        only_removes = self.removed and not self.added
        operation = OPERATION_DELETE if only_removes else OPERATION_OVERWRITE
        return FilesPlan(operation=operation, added=self.added, removed=self.removed)

    def step(self, attempt: Attempt) -> Step:
        subject, changes = attempt.subject("overwrite"), attempt.concurrent_changes()
        if _is_serializable(attempt, self.isolation, lambda table: table.update_isolation):
            scope = scope_of(attempt, self.conflict_filter, (*self.removed, *self.added))
            no_phantoms(attempt, subject, scope, changes, self.keys)
            rows_still_there(attempt, subject, self.rows, changes, serializable=True)
        no_new_deletes(subject, Targets.of(self.removed), changes)
        check_added_deletes(attempt, self.plan)
        return Step(snapshot=self.plan, subject=subject, changes=changes)


@dataclass(frozen=True, eq=False)
class DeleteFiles(Operation):
    """Remove data files; see Transaction.delete_files.

    Deletes added meanwhile only remove rows that go anyway.
    """

    removed: tuple[DataFile, ...]
    conflict_filter: Bound | None = None
    isolation: Isolation | None = None

    def __post_init__(self) -> None:
        checked(self.removed, "The files to delete")

    @property
    def plan(self) -> FilesPlan:
        return FilesPlan(operation=OPERATION_DELETE, removed=self.removed)

    def step(self, attempt: Attempt) -> Step:
        subject, changes = attempt.subject("delete"), attempt.concurrent_changes()
        if _is_serializable(attempt, self.isolation, lambda table: table.delete_isolation):
            scope = scope_of(attempt, self.conflict_filter, self.removed)
            no_phantoms(attempt, subject, scope, changes)
        return Step(snapshot=self.plan, subject=subject, changes=changes)


@dataclass(frozen=True, eq=False)
class RewriteFiles(Operation):
    """Replace files by others with the same rows (compaction); see Transaction.rewrite_files."""

    removed: tuple[DataFile, ...]
    added: tuple[DataFile, ...]
    data_sequence_number: int

    def __post_init__(self) -> None:
        checked(self.removed, "The files to rewrite")
        checked(self.added, "The rewritten files")
        if not self.removed:
            raise InvalidInputError("A rewrite needs files to replace; use append to add rows.")
        data_in = sum(file.record_count for file in _data_files(self.removed))
        data_out = sum(file.record_count for file in _data_files(self.added))
        if data_out > data_in:
            raise InvalidInputError(
                f"A rewrite cannot add rows: {data_in} went in, {data_out} came out."
            )

    @property
    def plan(self) -> FilesPlan:
        return FilesPlan(
            operation=OPERATION_REPLACE,
            added=self.added,
            removed=self.removed,
            data_sequence_number=self.data_sequence_number,
        )

    def step(self, attempt: Attempt) -> Step:
        latest = attempt.metadata.next_sequence_number()
        if self.data_sequence_number > latest:
            raise InvalidInputError(
                f"Table {attempt.table}: rewritten files cannot have sequence number "
                f"{self.data_sequence_number}, above {latest}, the commit's: later deletes would "
                "not reach them.",
                table=attempt.table,
            )
        subject, changes = attempt.subject("rewrite"), attempt.concurrent_changes()
        data, added = _data_files(self.removed), _data_files(self.added)
        alike = reaches_moved_rows_alike(data, added, self.data_sequence_number)
        no_new_deletes(subject, Targets.of(data), changes, still_reached=alike)
        check_added_deletes(attempt, self.plan)
        return Step(snapshot=self.plan, subject=subject, changes=changes)


@dataclass(frozen=True, eq=False)
class RowDelta(Operation):
    """Add data files and delete files (merge on read); see Transaction.row_delta."""

    data_files: tuple[DataFile, ...]
    delete_files: tuple[DataFile, ...]
    removed_delete_files: tuple[DataFile, ...]
    conflict_filter: Bound | None = None
    isolation: Isolation | None = None
    referenced_files: frozenset[str] = frozenset()
    rows: tuple[DecidedRows, ...] = ()
    keys: KeyTest | None = None

    def __post_init__(self) -> None:
        checked((*self.data_files, *self.delete_files), "The files to add")
        checked(self.removed_delete_files, "The delete files to remove")
        for file in (*self.delete_files, *self.removed_delete_files):
            if file.content == CONTENT_DATA:
                raise InvalidInputError(
                    f"{file.file_path} holds data, not deletes.", file=file.file_path
                )
        checked((decided.data_file for decided in self.rows), "The rows to delete")

    @property
    def plan(self) -> FilesPlan:
        """The snapshot, if the rows are where they were decided on."""
        return self._with_rows(self.rows)

    def step(self, attempt: Attempt) -> Step:
        subject, changes = attempt.subject("row delta"), attempt.concurrent_changes()
        serializable = _is_serializable(
            attempt, self.isolation, lambda table: table.delete_isolation
        )
        rows = rows_still_there(attempt, subject, self.rows, changes, serializable=serializable)
        if self.rows:
            self._check_replaced(attempt, subject, changes, rows)
        else:
            self._check_data_files(attempt, subject, changes)
        decided = self.conflict_filter is not None or bool(self.delete_files or self.rows)
        if decided and serializable:
            targets = (decided.data_file for decided in self.rows)
            files = (*self.delete_files, *self.data_files, *targets)
            scope = scope_of(attempt, self.conflict_filter, files)
            no_phantoms(attempt, subject, scope, changes, self.keys)
        plan = self._with_rows(rows)
        check_added_deletes(attempt, plan)
        return Step(snapshot=plan, subject=subject, changes=changes)

    def _with_rows(self, rows: tuple[DecidedRows, ...]) -> FilesPlan:
        """The snapshot: the commit deletes the rows by vectors where no files do."""
        going = () if self.delete_files else tuple(row for row in rows if len(row.gone))
        if not (going or self.delete_files or self.removed_delete_files):
            operation = OPERATION_APPEND
        else:
            operation = OPERATION_OVERWRITE if self.data_files else OPERATION_DELETE
        return FilesPlan(
            operation=operation,
            added=(*self.data_files, *self.delete_files),
            removed=self.removed_delete_files,
            rows=going,
        )

    def _check_replaced(
        self,
        attempt: Attempt,
        subject: Subject,
        changes: list[ConcurrentChange],
        moved: tuple[DecidedRows, ...],
    ) -> None:
        """What must not happen to the files of rows that go, beside what happens to the rows."""
        going = [decided for decided in self.rows if len(decided.gone)]
        self._check_not_removed(attempt, frozenset(decided.path for decided in going))
        if self.data_files:
            # compaction may have moved them to another partition spec, where deletes reach them
            partitions = frozenset(
                decided.data_file.partition_key for decided in (*going, *moved) if len(decided.gone)
            )
            no_equality_deletes(subject, partitions, changes)

    def _check_data_files(
        self, attempt: Attempt, subject: Subject, changes: list[ConcurrentChange]
    ) -> None:
        """The data files that the deletes are about must be there, with the deletes they had."""
        by_position = [
            file for file in self.delete_files if file.content == CONTENT_POSITION_DELETES
        ]
        named = {file.named_file for file in by_position if file.named_file is not None}
        referenced = frozenset((*named, *self.referenced_files))
        unnamed = [
            file for file in by_position if file.named_file is None and not self.referenced_files
        ]
        self._check_not_removed(attempt, referenced)
        still_live(subject, referenced, changes)
        none_removed_below(subject, unnamed, changes)
        # may hold rows deleted here: were they deleted meanwhile, they would come back
        if self.data_files:
            partitions = frozenset(file.partition_key for file in by_position)
            no_new_deletes(subject, Targets(referenced, partitions, bool(unnamed)), changes)
        else:
            no_new_vectors(subject, referenced, changes)

    @staticmethod
    def _check_not_removed(attempt: Attempt, paths: frozenset[str]) -> None:
        removed = sorted(paths & attempt.removed)
        if removed:
            raise InvalidInputError(
                f"Table {attempt.table}: this transaction removes {removed[0]}, of which it "
                "deletes rows as well.",
                table=attempt.table,
                file=removed[0],
            )


def check_added_deletes(attempt: Attempt, plan: FilesPlan) -> None:
    """Refuse deletes that the table's version does not allow, and second deletion vectors.

    Args:
        attempt: the table, and what the transaction has done so far.
        plan: adds and removes deletes.

    Raises:
        InvalidInputError: as above.
        ValidationConflictError: the table was raised to v3 after the position deletes were written.
    """
    by_position = [file for file in plan.added if file.content == CONTENT_POSITION_DELETES]
    version = attempt.metadata.format_version
    for file in by_position:
        if file.is_deletion_vector != (version >= VECTORS_SINCE):
            raise _wrong_form(attempt, file)
    vectors = [file for file in by_position if file.is_deletion_vector]
    nameless = next((vector for vector in vectors if not vector.referenced_data_file), None)
    if nameless is not None:
        raise InvalidInputError(
            f"Deletion vector {nameless.file_path} needs a referenced_data_file.",
            file=nameless.file_path,
        )
    if not vectors:
        return
    going = {file_key(file) for file in plan.removed}
    producer = attempt.producer
    there = producer.deletes_naming(attempt.metadata, producer.manifests(attempt.head()), vectors)
    shadowed = {delete.named_file for delete in there if delete.is_deletion_vector}
    seen = {
        delete.named_file: delete
        for delete in there
        if file_key(delete) not in going
        and (delete.is_deletion_vector or delete.named_file not in shadowed)
    }
    for vector in vectors:
        other = seen.setdefault(vector.named_file, vector)
        if other is not vector:
            raise InvalidInputError(
                f"Table {attempt.table}: {vector.named_file} has deletes already "
                f"({other.file_path}), and a deletion vector stands for all of them. Write one "
                "vector with the positions of both, and give the other as one of "
                "`removed_delete_files`.",
                table=attempt.table,
                file=vector.named_file,
            )


def _wrong_form(attempt: Attempt, file: DataFile) -> InvalidInputError | ValidationConflictError:
    version, began = attempt.metadata.format_version, attempt.decided_on.metadata.format_version
    if file.is_deletion_vector:
        return InvalidInputError(
            f"Table {attempt.table} has format version {version}: deletion vectors need version 3. "
            f"Write position deletes instead of {file.file_path}.",
            table=attempt.table,
            file=file.file_path,
        )
    what = (
        f"Table {attempt.table} has format version {version}, in which rows are deleted by "
        f"deletion vectors: no position deletes can be added to it, such as {file.file_path}."
    )
    if began < VECTORS_SINCE:
        return ValidationConflictError(
            f"{what} It had version {began} when they were written: load the table again and "
            "repeat the change.",
            table=attempt.table,
            files=[file.file_path],
        )
    return InvalidInputError(what, table=attempt.table, file=file.file_path)


def _data_files(files: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
    return tuple(file for file in files if file.content == CONTENT_DATA)


def scope_of(attempt: Attempt, where: Bound | None, files: tuple[DataFile, ...]) -> Scope:
    """The rows an operation decided on: a filter, or else the partitions of its files."""
    types = types_of(attempt.metadata)
    return Scope(
        None if where is None else widen(where, types),
        types,
        frozenset(file.partition_key for file in files),
    )


def _is_serializable(
    attempt: Attempt, given: Isolation | None, read: Callable[[TableProperties], str]
) -> bool:
    """Whether the isolation level of the operation, else the table's, is `serializable`."""
    level = given if given is not None else read(TableProperties(attempt.metadata.properties))
    return level != "snapshot"


_LINEAGE_SINCE = 3
_COLUMNS = Schema(*(METADATA_COLUMNS[name] for name in ("_pos", ROW_ID, LAST_UPDATED)))


def rows_still_there(
    attempt: Attempt,
    subject: Subject,
    rows: Sequence[DecidedRows],
    changes: Sequence[ConcurrentChange],
    *,
    serializable: bool,
) -> tuple[DecidedRows, ...]:
    """The rows of an operation where they are now.

    Args:
        attempt: has the newest version, and the one decided on.
        subject: who complains.
        rows: of the operation; those that it only saw matter to serializable ones.
        changes: of other writers.
        serializable: the isolation.

    Raises:
        ValidationConflictError: one of them is gone.
        StorageError | CorruptMetadataError: a file could not be read.
    """
    if not changes:
        return tuple(rows)
    moved = _where_they_are(attempt, rows, changes, with_seen=serializable)
    still_live(subject, [decided.path for decided in moved], changes)
    since = {change.snapshot.snapshot_id for change in changes}
    deleted = deleted_since(attempt.producer, attempt.metadata, attempt.head(), moved, since)
    no_row_deleted(subject, moved, deleted, changes)
    return moved


def _where_they_are(
    attempt: Attempt,
    rows: Sequence[DecidedRows],
    changes: Sequence[ConcurrentChange],
    *,
    with_seen: bool,
) -> tuple[DecidedRows, ...]:
    """The rows of an operation where `replace` snapshots (compaction) have moved them to.

    Rows stay where they were decided on when there is no telling: in tables without row lineage,
    when one of them was not moved as it was, and when a file of before is gone from storage.
    """
    wanted = rows if with_seen else [replace(row, seen=row.seen[:0]) for row in rows]
    wanted = [row for row in wanted if len(row.gone) or len(row.seen)]
    moves = [change for change in changes if change.snapshot.operation == OPERATION_REPLACE]
    left = _paths(moves)
    moved = [row for row in wanted if row.path in left]
    if not moved or attempt.decided_on.metadata.format_version < _LINEAGE_SINCE:
        return tuple(wanted)
    gone = _paths(changes)
    to = [
        file
        for change in moves
        for entries in change.added_data
        for file in entries.to_data_files()
        if file.file_path not in gone
    ]
    try:
        now = follow(
            [(row, _row_ids(attempt, row.data_file)) for row in moved],
            [_row_ids(attempt, file) for file in to],
        )
    except NoSuchFileError:
        return tuple(wanted)
    return tuple(wanted) if now is None else (*(o for o in wanted if o.path not in left), *now)


def _paths(changes: Sequence[ConcurrentChange]) -> set[str]:
    """The data files that changes removed."""
    parts = (entries for change in changes for entries in change.removed_data)
    return {path for entries in parts for path in entries.table["file_path"].to_pylist()}


def _row_ids(attempt: Attempt, file: DataFile) -> RowIds:
    """The rows of a file as they were decided on, deleted ones too; read once a transaction.

    A row that was changed since keeps its id: the file of a compaction may hold its new version.
    """
    decided = attempt.decided_on.metadata.last_sequence_number
    read = partial(_read_row_ids, file, decided, attempt.base.metadata, attempt.producer.storage)
    return attempt.producer.once(("row ids", file.file_path), read)


def _read_row_ids(
    file: DataFile, decided: int, metadata: TableMetadata, storage: Storage
) -> RowIds:
    task = FileScanTask.whole(file)
    rows = read_table([task], ReadRequest.of(metadata, _COLUMNS), storage)
    # no ids before the table had row lineage; a null comparison leaves a row out
    known = pc.and_(rows[ROW_ID].is_valid(), pc.less_equal(rows[LAST_UPDATED], decided))
    rows = rows.filter(known)
    positions, ids = (np.asarray(rows[name]) for name in ("_pos", ROW_ID))
    return RowIds(file, positions.astype(np.int64), ids.astype(np.int64))


def no_phantoms(
    attempt: Attempt,
    subject: Subject,
    scope: Scope,
    changes: Sequence[ConcurrentChange],
    keys: KeyTest | None = None,
) -> None:
    """Refuse when rows were added that the operation would have decided on.

    Partition and bounds rule files out; of the others the columns are read that decide, once a
    transaction. Rows that were deleted again by now count, too.

    Args:
        attempt: has the newest version, and the one decided on.
        subject: who complains.
        scope: partitions, or the filter of the operation. Files of partitions are not read.
        changes: of other writers.
        keys: of the rows that pass the filter, those with these keys; None is all of them.

    Raises:
        ValidationConflictError: as above.
        InvalidExpressionError: the filter cannot be computed for a row that was added.
        StorageError | CorruptMetadataError: a file could not be read.
    """
    no_added_data(subject, scope, changes, partial(_holding, attempt, scope, keys))


def _holding(attempt: Attempt, scope: Scope, keys: KeyTest | None, entries: Entries) -> Mask:
    """Which of the entries that may hold rows in scope do hold some."""
    holding = np.ones(len(entries), bool)
    decided_on, base = attempt.decided_on.metadata, attempt.base.metadata
    # what was bound to other columns than those of today's files is not computed on these
    same_schema = decided_on.current_schema_id == base.current_schema_id
    if scope.where is None or not same_schema:
        return holding
    if keys is not None:
        holding = keys.may_hold(entries)
    unknown = holding.copy() if keys else holding & ~must_match(entries, scope.where, scope.types)
    files = entries.to_data_files()
    for row in np.flatnonzero(unknown):
        read = partial(_holds, files[row], scope, keys, attempt.metadata, attempt.producer.storage)
        holding[row] = attempt.producer.once(
            ("phantoms", attempt.number, files[row].file_path), read
        )
    return holding


def _holds(
    file: DataFile, scope: Scope, keys: KeyTest | None, metadata: TableMetadata, storage: Storage
) -> bool:
    if scope.where is None:
        raise AssertionError("files of partitions are not read")
    columns = Schema(METADATA_COLUMNS["_pos"]) if keys is None else keys.columns
    request = ReadRequest.of(metadata, columns, where=scope.where)
    task = FileScanTask.whole(file)
    try:
        rows = read_table([task], request, storage)
    except (NoSuchFileError, UnsupportedFeatureError):
        return True  # removed and expired since, or of another engine: nobody can tell
    return rows.num_rows > 0 if keys is None else keys.count(rows) > 0
