"""Changes of rows as files: delete files (merge on read), or rewritten files (copy on write)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

import numpy as np

from lakehouse.data.writing.data_file_writer import WriteRequest, write_data_files
from lakehouse.dml.copy_on_write import positioned_reader, staying_rows
from lakehouse.dml.merge.target_rows import RowChanges
from lakehouse.dml.merge_on_read import RowDeletes, decided_rows, delete_positions
from lakehouse.expressions.bound_filter import Bound
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.metadata_columns import with_lineage
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.decided_rows import DecidedRows, KeyTest
from lakehouse.transaction.table_change import Isolation
from lakehouse.transaction.transaction import Transaction

Mode = Literal["copy-on-write", "merge-on-read"]


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """Files that a commit exchanges.

    Attributes:
        added: new data files.
        removed: data files that are rewritten.
        deletes: of rows whose data files stay; None for copy on write.
        conflict_filter: see RowChanges.
        keys: see RowChanges.
        seen: by copy on write, rows of files that stay; see RowChanges.
    """

    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    deletes: RowDeletes | None
    conflict_filter: Bound
    keys: KeyTest | None = None
    seen: tuple[DecidedRows, ...] = ()

    @property
    def written(self) -> tuple[DataFile, ...]:
        """Files that exist now and that only a commit makes reachable."""
        return self.added if self.deletes is None else (*self.added, *self.deletes.delete_files)

    def stage(self, transaction: Transaction, isolation: Isolation) -> None:
        """Add the exchange to a transaction: one snapshot."""
        if self.deletes is None:
            transaction.overwrite(
                self.added,
                self.removed,
                conflict_filter=self.conflict_filter,
                isolation=isolation,
                keys=self.keys,
                rows=self.seen,
            )
            return
        transaction.row_delta(
            self.added,
            self.deletes.delete_files,
            rows=self.deletes.rows,
            conflict_filter=self.conflict_filter,
            isolation=isolation,
            keys=self.keys,
        )


def write_changes(
    changes: RowChanges,
    metadata: TableMetadata,
    request: WriteRequest,
    storage: Storage,
    mode: Mode,
) -> ChangedFiles:
    """Write the files that changes of rows need.

    Args:
        changes: of `metadata`.
        metadata: the table version decided on.
        request: how new files are written.
        storage: where the files are.
        mode: whether files with changed rows stay, with deletes beside them, or are rewritten.

    Raises:
        StorageError: a file could not be written.
    """
    lineage = replace(request, schema=with_lineage(request.schema, request.format_version))
    added: list[DataFile] = []
    try:
        added.extend(_fresh_files(changes, request, lineage, storage))
        if mode == "merge-on-read":
            deletes = delete_positions(_decided(changes), metadata, request, storage)
            return ChangedFiles(tuple(added), (), deletes, changes.conflict_filter, changes.keys)
        positioned = positioned_reader(lineage.schema, metadata, storage)
        for index, (task, positions) in enumerate(changes.gone):
            kept = staying_rows(task, positions, positioned)
            added.extend(write_data_files(kept, lineage, storage, task=f"keep{index}"))
    except BaseException:
        storage.delete([one.file_path for one in added])
        raise
    removed = tuple(task.data_file for task, _ in changes.gone)
    seen = tuple(one for one in _decided(changes) if not len(one.gone))
    return ChangedFiles(tuple(added), removed, None, changes.conflict_filter, changes.keys, seen)


def _fresh_files(
    changes: RowChanges,
    request: WriteRequest,
    lineage: WriteRequest,
    storage: Storage,
) -> Iterator[DataFile]:
    """Files of the new rows and new versions; with row ids where there are versions."""
    first = next(changes.rows, None)
    if first is None:
        return
    rows = chain([first], changes.rows)
    if changes.carries_row_ids:
        yield from write_data_files(rows, lineage, storage, task="changed")
        return
    own = range(len(request.schema.fields))
    fresh = (batch.select(own) for batch in rows)
    yield from write_data_files(fresh, request, storage, task="changed")


def _decided(changes: RowChanges) -> list[DecidedRows]:
    """Rows that go and rows that were only seen, by file."""
    seen = {task.data_file.file_path: (task, positions) for task, positions in changes.seen}
    rows = []
    for task, gone in changes.gone:
        _, also = seen.pop(task.data_file.file_path, (task, None))
        rows.append(decided_rows(task, gone, also))
    nothing = np.empty(0, np.int64)
    return [*rows, *(decided_rows(task, nothing, also) for task, also in seen.values())]
