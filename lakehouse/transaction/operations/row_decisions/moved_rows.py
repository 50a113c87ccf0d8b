"""Rows that an operation decided on: still there, also where compaction has moved them to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from lakehouse.data.reading.scan_reader import METADATA_COLUMNS, ReadRequest, read_table
from lakehouse.errors import NoSuchFileError
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.metadata_columns import LAST_UPDATED, ROW_ID
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.attempt.pending_operation import Attempt
from lakehouse.transaction.conflicts.concurrent_changes import ConcurrentChange
from lakehouse.transaction.conflicts.conflict_rules import Subject, no_row_deleted, still_live
from lakehouse.transaction.conflicts.decided_rows import DecidedRows, RowIds, follow
from lakehouse.transaction.operations.row_decisions.row_positions import deleted_since

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
        attempt: has the base, and the version decided on.
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
    found = _where_they_are(attempt, rows, changes, with_seen=serializable)
    still_live(subject, [one.path for one in found], changes)
    since = {one.snapshot.snapshot_id for one in changes}
    deleted = deleted_since(attempt.workspace, attempt.metadata, attempt.head(), found, since)
    no_row_deleted(subject, found, deleted, changes)
    return found


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
    wanted = rows if with_seen else [replace(one, seen=one.seen[:0]) for one in rows]
    wanted = [one for one in wanted if len(one.gone) or len(one.seen)]
    moves = [one for one in changes if one.snapshot.operation == OPERATION_REPLACE]
    left = _paths(moves)
    moved = [one for one in wanted if one.path in left]
    if not moved or attempt.started.metadata.format_version < _LINEAGE_SINCE:
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
            [(one, _row_ids(attempt, one.data_file)) for one in moved],
            [_row_ids(attempt, file) for file in to],
        )
    except NoSuchFileError:
        return tuple(wanted)
    return tuple(wanted) if found is None else (*(o for o in wanted if o.path not in left), *found)


def _paths(changes: Sequence[ConcurrentChange]) -> set[str]:
    """The data files that changes removed."""
    parts = (entries for change in changes for entries in change.removed_data)
    return {path for entries in parts for path in entries.table["file_path"].to_pylist()}


def _row_ids(attempt: Attempt, file: DataFile) -> RowIds:
    """The rows of a file as they were decided on, deleted ones too; read once a transaction.

    A row that was changed since keeps its id: the file of a compaction may hold its new version.
    """
    decided = attempt.started.metadata.last_sequence_number
    read = partial(_read, file, decided, attempt.base.metadata, attempt.workspace.storage)
    return attempt.workspace.once(("row ids", file.file_path), read)


def _read(file: DataFile, decided: int, metadata: TableMetadata, storage: Storage) -> RowIds:
    task = FileScanTask(data_file=file, length=file.file_size_in_bytes)
    rows = read_table([task], ReadRequest.of(metadata, _COLUMNS), storage)
    # no ids before the table had row lineage; a null comparison leaves a row out
    known = pc.and_(rows[ROW_ID].is_valid(), pc.less_equal(rows[LAST_UPDATED], decided))
    rows = rows.filter(known)
    positions, ids = (np.asarray(rows[name]) for name in ("_pos", ROW_ID))
    return RowIds(file, positions.astype(np.int64), ids.astype(np.int64))
