"""Merge on read: rows are deleted by position, and data files stay.

Positions go to position delete files (v2) or deletion vectors (v3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakehouse.data.reading.scan_reader import METADATA_COLUMNS, ReadRequest, RowReader
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.data.writing.delete_writer import FileDeletes, write_deletes
from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.scan.planner import plan_scan
from lakehouse.scan.scan_request import ScanRequest
from lakehouse.scan.scan_tasks import FileScanTask, total_rows
from lakehouse.spec.manifests.data_file import CONTENT_POSITION_DELETES, DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.decided_rows import DecidedRows, Positions
from lakehouse.transaction.deletes_of_files import VECTORS_SINCE
from lakehouse.transaction.transaction import Transaction

POSITION = NestedField(
    METADATA_COLUMNS["_pos"].field_id, "_pos of the file", LongType(), required=True
)
"""Of rows in their file, beside columns of the table, which may have any name."""


@dataclass(frozen=True, slots=True)
class RowDeletes:
    """What removing rows by merge on read does to the files.

    Attributes:
        removed: data files of which every row matches: they go whole.
        delete_files: new position delete files (v2); the commit writes deletion vectors (v3).
        rows: the rows that go and those that were only seen, by data file.
        deleted_rows: rows that matched; None when a file that goes whole has deletes, which were
            not read.
    """

    removed: tuple[DataFile, ...]
    delete_files: tuple[DataFile, ...]
    rows: tuple[DecidedRows, ...]
    deleted_rows: int | None

    @property
    def written(self) -> tuple[DataFile, ...]:
        """Files that exist now and that only a commit makes reachable."""
        return self.delete_files

    def __bool__(self) -> bool:
        return bool(self.removed or any(len(one.gone) for one in self.rows))

    def stage(self, transaction: Transaction, where: Bound) -> None:
        """Add the removal to a transaction.

        One snapshot removes whole files, another one rows of other files; both become visible
        together.
        """
        if self.removed:
            transaction.delete_files(self.removed, conflict_filter=where)
        if self.rows:
            transaction.row_delta(
                delete_files=self.delete_files, rows=self.rows, conflict_filter=where
            )


def delete_matching_rows(
    metadata: TableMetadata,
    snapshot_id: int | None,
    where: Bound,
    request: WriteRequest,
    storage: Storage,
) -> RowDeletes:
    """Write delete files for the rows that match.

    Arguments and errors are those of `remove_matching_rows`.
    """
    if snapshot_id is None:
        return RowDeletes((), (), (), 0)
    scan = ScanRequest(
        metadata=metadata,
        snapshot_id=snapshot_id,
        current_schema=True,
        where=where,
        include_metrics=True,
    )
    whole: list[DataFile] = []
    whole_rows: list[int | None] = []
    matching = matching_reader(where, metadata, storage)

    def matches() -> Iterator[DecidedRows]:
        for task in plan_scan(scan, storage).tasks:
            if task.residual == TRUE:
                whole.append(task.data_file)
                whole_rows.append(task.live_rows)
            else:
                positions = matching_positions(task, matching)
                if len(positions):
                    yield decided_rows(task, positions)

    deletes = delete_positions(matches(), metadata, request, storage)
    return replace(
        deletes, removed=tuple(whole), deleted_rows=total_rows([deletes.deleted_rows, *whole_rows])
    )


def delete_positions(
    rows: Iterable[DecidedRows],
    metadata: TableMetadata,
    request: WriteRequest,
    storage: Storage,
) -> RowDeletes:
    """Write position delete files for rows (v2), or leave that to the commit (v3).

    Args:
        rows: those that go, each item of another file.
        metadata: the table version decided on.
        request: how new files are written.
        storage: where the files are.
    """
    decided = tuple(rows)
    deletes: dict[int, list[FileDeletes]] = defaultdict(list)
    if metadata.format_version < VECTORS_SINCE:
        for one in decided:
            deletes[one.data_file.spec_id].append(FileDeletes(one.data_file, one.gone))
    written: list[DataFile] = []
    for spec_id, files in deletes.items():
        written += write_deletes(
            files, replace(request, spec=metadata.spec(spec_id)), storage, task=f"deletes{spec_id}"
        )
    return RowDeletes((), tuple(written), decided, sum(len(one.gone) for one in decided))


def decided_rows(task: FileScanTask, gone: Positions, seen: Positions | None = None) -> DecidedRows:
    """Rows of a planned file, as a commit is judged by them.

    Args:
        task: the file with its deletes.
        gone: positions of live rows that go.
        seen: positions of live rows that stay, on which other decisions hang.
    """
    by_position = tuple(one for one in task.deletes if one.content == CONTENT_POSITION_DELETES)
    nothing = np.empty(0, np.int64)
    return DecidedRows(task.data_file, gone, nothing if seen is None else seen, by_position)


def matching_reader(where: Bound, metadata: TableMetadata, storage: Storage) -> RowReader:
    """Reads the positions of the rows that match."""
    return RowReader(ReadRequest.of(metadata, Schema(POSITION), where=where), storage)


def matching_positions(task: FileScanTask, matching: RowReader) -> Positions:
    """Positions of the live rows of a file that match, by a `matching_reader`."""
    return positions_of(matching.table([replace(task, residual=TRUE)]))


def positions_of(rows: pa.Table | pa.RecordBatch) -> Positions:
    """Positions of rows in their file, from the column `POSITION`."""
    return np.asarray(rows[POSITION.name]).astype(np.int64)
