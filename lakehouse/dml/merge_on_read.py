"""Merge on read: rows are deleted by position, and data files stay.

Positions go to position delete files (v2) or deletion vectors (v3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from pyiceberg.schema import Schema

from lakehouse.data.reading.scan_reader import METADATA_COLUMNS, ReadRequest, read_table
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.data.writing.delete_writer import FileDeletes, write_deletes
from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.scan.planner import plan_scan
from lakehouse.scan.scan_request import ScanRequest
from lakehouse.scan.scan_tasks import FileScanTask, total_rows
from lakehouse.spec.manifests.data_file import CONTENT_POSITION_DELETES, DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.transaction import Transaction

_POSITION = METADATA_COLUMNS["_pos"]
_DELETED = METADATA_COLUMNS["_deleted"]


@dataclass(frozen=True, slots=True)
class RowDeletes:
    """What removing rows by merge on read does to the files.

    Attributes:
        removed: data files of which every row matches: they go whole.
        delete_files: new delete files.
        superseded: deletion vectors that the new ones contain (v3 allows one a data file).
        referenced: locations of the data files that the delete files are about.
        deleted_rows: rows that matched; None when a file that goes whole has deletes, which were
            not read.
    """

    removed: tuple[DataFile, ...]
    delete_files: tuple[DataFile, ...]
    superseded: tuple[DataFile, ...]
    referenced: tuple[str, ...]
    deleted_rows: int | None

    @property
    def written(self) -> tuple[DataFile, ...]:
        """Files that exist now and that only a commit makes reachable."""
        return self.delete_files

    def __bool__(self) -> bool:
        return bool(self.removed or self.delete_files)

    def stage(self, transaction: Transaction, where: Bound) -> None:
        """Add the removal to a transaction.

        One snapshot removes whole files, another one rows of other files; both become visible
        together.
        """
        if self.removed:
            transaction.delete_files(self.removed, conflict_filter=where)
        if self.delete_files:
            transaction.row_delta(
                delete_files=self.delete_files,
                removed_delete_files=self.superseded,
                referenced_files=self.referenced,
                conflict_filter=where,
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
        return RowDeletes((), (), (), (), 0)
    scan = ScanRequest(
        metadata=metadata,
        snapshot_id=snapshot_id,
        current_schema=True,
        where=where,
        include_metrics=True,
    )
    whole: list[DataFile] = []
    whole_rows: list[int | None] = []

    def matches() -> Iterator[tuple[FileScanTask, npt.NDArray[np.int64]]]:
        for task in plan_scan(scan, storage).tasks:
            if task.residual == TRUE:
                whole.append(task.data_file)
                whole_rows.append(task.live_rows)
            else:
                yield task, _positions(task, where, metadata, storage)

    deletes = delete_positions(matches(), metadata, request, storage)
    return replace(
        deletes, removed=tuple(whole), deleted_rows=total_rows([deletes.deleted_rows, *whole_rows])
    )


def delete_positions(
    matched: Iterable[tuple[FileScanTask, npt.NDArray[np.int64]]],
    metadata: TableMetadata,
    request: WriteRequest,
    storage: Storage,
) -> RowDeletes:
    """Write delete files for rows by their positions.

    Args:
        matched: files as they were planned, each once, with the positions of live rows that go.
        metadata: the table version decided on.
        request: how new files are written.
        storage: where the files are.
    """
    superseded: list[DataFile] = []
    deletes: dict[int, list[FileDeletes]] = defaultdict(list)
    deleted_rows = 0
    for task, positions in matched:
        if not len(positions):
            continue
        file, deleted = task.data_file, positions
        deleted_rows += len(positions)
        if metadata.format_version >= 3:
            deleted = np.union1d(positions, _already_deleted(task, metadata, storage))
            superseded += [one for one in task.deletes if _only_for(one, file)]
        deletes[file.spec_id].append(FileDeletes(file, deleted))
    written: list[DataFile] = []
    for spec_id, files in deletes.items():
        written += write_deletes(
            files, replace(request, spec=metadata.spec(spec_id)), storage, task=f"deletes{spec_id}"
        )
    referenced = tuple(one.data_file.file_path for files in deletes.values() for one in files)
    return RowDeletes((), tuple(written), tuple(superseded), referenced, deleted_rows)


def _positions(
    task: FileScanTask, where: Bound, metadata: TableMetadata, storage: Storage
) -> npt.NDArray[np.int64]:
    """Positions of live rows that match."""
    read = ReadRequest.of(metadata, Schema(_POSITION), where=where)
    return _column(read_table([replace(task, residual=TRUE)], read, storage)["_pos"])


def _already_deleted(
    task: FileScanTask, metadata: TableMetadata, storage: Storage
) -> npt.NDArray[np.int64]:
    """Positions that are deleted already; a new deletion vector has to hold them as well."""
    by_position = tuple(one for one in task.deletes if one.content == CONTENT_POSITION_DELETES)
    if not by_position:
        return np.empty(0, np.int64)
    read = ReadRequest.of(metadata, Schema(_POSITION, _DELETED))
    rows = read_table([replace(task, residual=TRUE, deletes=by_position)], read, storage)
    return _column(rows.filter(rows["_deleted"])["_pos"])


def _only_for(delete: DataFile, file: DataFile) -> bool:
    return delete.named_file == file.file_path


def _column(positions: object) -> npt.NDArray[np.int64]:
    return np.asarray(positions, np.int64)
