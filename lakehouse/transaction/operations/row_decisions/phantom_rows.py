"""Rows that others added, and that an operation would have decided on: their files are read."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np
from pyiceberg.schema import Schema

from lakehouse.data.reading.scan_reader import METADATA_COLUMNS, ReadRequest, read_table
from lakehouse.errors import NoSuchFileError, UnsupportedFeatureError
from lakehouse.scan.pruning.entry_pruning import must_match
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.attempt.pending_operation import Attempt
from lakehouse.transaction.conflicts.concurrent_changes import ConcurrentChange
from lakehouse.transaction.conflicts.conflict_rules import Mask, Scope, Subject, no_added_data
from lakehouse.transaction.conflicts.key_test import KeyTest


def no_phantoms(
    attempt: Attempt,
    subject: Subject,
    scope: Scope,
    changes: Sequence[ConcurrentChange],
    operation: Hashable,
    keys: KeyTest | None = None,
) -> None:
    """Refuse when rows were added that the operation would have decided on.

    Partition and bounds rule files out; of the others the columns are read that decide, once a
    transaction. Rows that were deleted again by now count, too.

    Args:
        attempt: has the base, and the version decided on.
        subject: who complains.
        scope: partitions, or the filter of the operation. Files of partitions are not read.
        changes: of other writers.
        operation: names it over all attempts.
        keys: of the rows that pass the filter, those with these keys; None is all of them.

    Raises:
        ValidationConflictError: as above.
        InvalidExpressionError: the filter cannot be computed for a row that was added.
        StorageError | CorruptMetadataError: a file could not be read.
    """
    no_added_data(subject, scope, changes, partial(_holding, attempt, scope, keys, operation))


def _holding(
    attempt: Attempt, scope: Scope, keys: KeyTest | None, operation: Hashable, entries: Entries
) -> Mask:
    """Which of the entries that may hold rows in scope do hold some."""
    found = np.ones(len(entries), bool)
    started, base = attempt.started.metadata, attempt.base.metadata
    # what was bound to other columns than those of today's files is not computed on these
    same_schema = started.current_schema_id == base.current_schema_id
    if scope.where is None or not same_schema:
        return found
    if keys is not None:
        found = keys.may_hold(entries)
    unknown = found.copy() if keys else found & ~must_match(entries, scope.where, scope.types)
    files = entries.to_data_files()
    for row in np.flatnonzero(unknown):
        read = partial(_holds, files[row], scope, keys, attempt.metadata, attempt.workspace.storage)
        found[row] = attempt.workspace.once(("phantoms", operation, files[row].file_path), read)
    return found


def _holds(
    file: DataFile, scope: Scope, keys: KeyTest | None, metadata: TableMetadata, storage: Storage
) -> bool:
    if scope.where is None:
        raise AssertionError("files of partitions are not read")
    columns = Schema(METADATA_COLUMNS["_pos"]) if keys is None else keys.columns
    request = ReadRequest.of(metadata, columns, where=scope.where)
    task = FileScanTask(data_file=file, length=file.file_size_in_bytes)
    try:
        rows = read_table([task], request, storage)
    except (NoSuchFileError, UnsupportedFeatureError):
        return True  # removed and expired since, or of another engine: nobody can tell
    return rows.num_rows > 0 if keys is None else keys.count(rows) > 0
