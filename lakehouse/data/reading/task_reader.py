"""Reading one scan task: wanted rows and columns of a data file, whatever its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakehouse.data.deletes.delete_loader import EqualityKeys, alive
from lakehouse.data.deletes.deletion_vector import Positions
from lakehouse.data.reading.column_projection import Projection
from lakehouse.data.reading.scan_columns import ScanColumns
from lakehouse.scan.scan_tasks import FileScanTask


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A unit of reading: one row group of an open file."""

    index: int
    first_row: int
    rows: int


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Which rows and columns a scan wants of the file of one task.

    Attributes:
        task: the task.
        scan: columns and filter of the scan, for this task's residual and deletes.
        deleted: positions deleted.
        keys: equality deletes.
        name_mapping: of the table.
        batch_rows: most rows of a batch.
    """

    task: FileScanTask
    scan: ScanColumns
    deleted: Positions | None = None
    keys: Sequence[EqualityKeys] = ()
    name_mapping: str | None = None
    batch_rows: int = 32_768


class TaskReader(ABC):
    """One opened scan task: the row groups to read, and how wanted batches are made of them.

    Args:
        rows: what is wanted of the file.

    Attributes:
        path: location of the file.
        row_groups: those that are read.
    """

    row_groups: list[RowGroup]
    _projection: Projection

    def __init__(self, rows: WantedRows) -> None:
        self._rows = rows
        self._task, self._scan = rows.task, rows.scan
        self.path = rows.task.data_file.file_path

    def ready(self) -> list[pa.RecordBatch] | None:
        """All wanted batches of a small file; None for those that are read by row group."""
        return None

    @abstractmethod
    def batches(self, group: RowGroup) -> Iterator[pa.RecordBatch]:
        """Wanted rows and columns of a row group."""

    @abstractmethod
    def close(self) -> None:
        """Release the file."""

    def wanted(
        self, batch: pa.RecordBatch | None, rows: int, position: int
    ) -> pa.RecordBatch | None:
        """Filter, delete and project one decoded batch; None when no row is left.

        `position` is that of its first row in the file.
        """
        scan, deletes = self._scan, self._rows.deleted
        columns = self._projection.columns(batch, rows)
        mask = alive(deletes, position, rows) if deletes is not None else None
        if mask is not None and not mask.any() and not scan.shows_deleted:
            return None
        for keys in self._rows.keys:
            hit = keys.matches(
                {field_id: scan.by_id(columns, field_id) for field_id in keys.field_ids}
            )
            if hit.any():
                mask = ~hit if mask is None else mask & ~hit
        positions = pa.array(np.arange(position, position + rows)) if scan.needs_positions else None
        if scan.shows_deleted:
            deleted = pa.array(np.zeros(rows, bool) if mask is None else ~mask)
            working = scan.assemble(columns, rows, positions=positions, deleted=deleted)
        else:
            working = scan.assemble(columns, rows, positions=positions)
            working = working if mask is None else working.filter(pa.array(mask))
        filtered = scan.keep_matching(working, self._task)
        return None if filtered is None else scan.output(filtered, self._task)
