"""Conflicts that only rows tell: files are read.

Rows that an operation decided on must still be there, also where compaction has moved them to; and
others must not have added rows that it would have decided on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from lakehouse.data.reading.scan_reader import METADATA_COLUMNS, ReadRequest, read_table
from lakehouse.errors import NoSuchFileError, UnsupportedFeatureError
from lakehouse.scan.pruning.entry_pruning import must_match
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.iceberg_types import LAST_UPDATED, ROW_ID
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.conflicts.conflict_rules import (
    Mask,
    Scope,
    no_added_data,
    no_row_deleted,
    still_live,
)
from lakehouse.transaction.decided_rows import DecidedRows, KeyTest, RowIds, follow
from lakehouse.transaction.deletion_vectors import deleted_since
from lakehouse.transaction.table_change import ConcurrentChange, Staged, Subject

_LINEAGE_SINCE = 3
_COLUMNS = Schema(*(METADATA_COLUMNS[name] for name in ("_pos", ROW_ID, LAST_UPDATED)))


def rows_still_there(
    staged: Staged,
    subject: Subject,
    rows: Sequence[DecidedRows],
    changes: Sequence[ConcurrentChange],
    *,
    serializable: bool,
) -> tuple[DecidedRows, ...]:
    """The rows of an operation where they are now.

    Args:
        staged: has the base, and the version decided on.
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
    found = _where_they_are(staged, rows, changes, with_seen=serializable)
    still_live(subject, [one.path for one in found], changes)
    since = {change.snapshot.snapshot_id for change in changes}
    deleted = deleted_since(staged.producer, staged.metadata, staged.head(), found, since)
    no_row_deleted(subject, found, deleted, changes)
    return found


def _where_they_are(
    staged: Staged,
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
    wanted = [one for one in wanted if len(one.gone) or len(one.seen)]
    moves = [one for one in changes if one.snapshot.operation == OPERATION_REPLACE]
    left = _paths(moves)
    moved = [one for one in wanted if one.path in left]
    if not moved or staged.started.metadata.format_version < _LINEAGE_SINCE:
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
        found = follow(
            [(one, _row_ids(staged, one.data_file)) for one in moved],
            [_row_ids(staged, file) for file in to],
        )
    except NoSuchFileError:
        return tuple(wanted)
    return tuple(wanted) if found is None else (*(o for o in wanted if o.path not in left), *found)


def _paths(changes: Sequence[ConcurrentChange]) -> set[str]:
    """The data files that changes removed."""
    parts = (entries for change in changes for entries in change.removed_data)
    return {path for entries in parts for path in entries.table["file_path"].to_pylist()}


def _row_ids(staged: Staged, file: DataFile) -> RowIds:
    """The rows of a file as they were decided on, deleted ones too; read once a transaction.

    A row that was changed since keeps its id: the file of a compaction may hold its new version.
    """
    decided = staged.started.metadata.last_sequence_number
    read = partial(_read, file, decided, staged.base.metadata, staged.producer.storage)
    return staged.producer.once(("row ids", file.file_path), read)


def _read(file: DataFile, decided: int, metadata: TableMetadata, storage: Storage) -> RowIds:
    task = FileScanTask.whole(file)
    rows = read_table([task], ReadRequest.of(metadata, _COLUMNS), storage)
    # no ids before the table had row lineage; a null comparison leaves a row out
    known = pc.and_(rows[ROW_ID].is_valid(), pc.less_equal(rows[LAST_UPDATED], decided))
    rows = rows.filter(known)
    positions, ids = (np.asarray(rows[name]) for name in ("_pos", ROW_ID))
    return RowIds(file, positions.astype(np.int64), ids.astype(np.int64))


def no_phantoms(
    staged: Staged,
    subject: Subject,
    scope: Scope,
    changes: Sequence[ConcurrentChange],
    keys: KeyTest | None = None,
) -> None:
    """Refuse when rows were added that the operation would have decided on.

    Partition and bounds rule files out; of the others the columns are read that decide, once a
    transaction. Rows that were deleted again by now count, too.

    Args:
        staged: has the base, and the version decided on.
        subject: who complains.
        scope: partitions, or the filter of the operation. Files of partitions are not read.
        changes: of other writers.
        keys: of the rows that pass the filter, those with these keys; None is all of them.

    Raises:
        ValidationConflictError: as above.
        InvalidExpressionError: the filter cannot be computed for a row that was added.
        StorageError | CorruptMetadataError: a file could not be read.
    """
    no_added_data(subject, scope, changes, partial(_holding, staged, scope, keys))


def _holding(staged: Staged, scope: Scope, keys: KeyTest | None, entries: Entries) -> Mask:
    """Which of the entries that may hold rows in scope do hold some."""
    found = np.ones(len(entries), bool)
    started, base = staged.started.metadata, staged.base.metadata
    # what was bound to other columns than those of today's files is not computed on these
    same_schema = started.current_schema_id == base.current_schema_id
    if scope.where is None or not same_schema:
        return found
    if keys is not None:
        found = keys.may_hold(entries)
    unknown = found.copy() if keys else found & ~must_match(entries, scope.where, scope.types)
    files = entries.to_data_files()
    for row in np.flatnonzero(unknown):
        read = partial(_holds, files[row], scope, keys, staged.metadata, staged.producer.storage)
        found[row] = staged.producer.once(("phantoms", staged.number, files[row].file_path), read)
    return found


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
