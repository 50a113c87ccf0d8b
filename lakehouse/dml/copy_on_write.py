"""Copy on write: files that match whole are dropped by metadata, the others rewritten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from lakehouse.data.reading.scan_reader import ReadRequest, RowReader
from lakehouse.data.writing.data_file_writer import WriteRequest, write_data_files
from lakehouse.dml.merge_on_read import (
    POSITION,
    matching_positions,
    matching_reader,
    positions_of,
)
from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.scan.planner import plan_scan
from lakehouse.scan.scan_request import ScanRequest
from lakehouse.scan.scan_tasks import FileScanTask, total_rows
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.metadata_columns import with_lineage
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.decided_rows import Positions
from lakehouse.transaction.transaction import Transaction


@dataclass(frozen=True, slots=True)
class RowRewrite:
    """What removing rows by copy on write does to the files.

    Attributes:
        removed: data files that go, dropped or replaced.
        added: new data files with the rows that stay.
        rewritten: how many of `removed` were read, the others were dropped by metadata alone.
        deleted_rows: rows that matched; None when a file that was dropped whole has deletes, which
            were not read.
    """

    removed: tuple[DataFile, ...]
    added: tuple[DataFile, ...]
    rewritten: int
    deleted_rows: int | None

    @property
    def written(self) -> tuple[DataFile, ...]:
        """Files that exist now and that only a commit makes reachable."""
        return self.added

    def __bool__(self) -> bool:
        return bool(self.removed)

    def stage(self, transaction: Transaction, where: Bound) -> None:
        """Add the removal to a transaction: `delete`, or `overwrite` if rows stay in new files."""
        if self.added:
            level = TableProperties(transaction.metadata.properties).delete_isolation
            transaction.overwrite(
                self.added,
                self.removed,
                conflict_filter=where,
                isolation="snapshot" if level == "snapshot" else "serializable",
            )
        else:
            transaction.delete_files(self.removed, conflict_filter=where)


def remove_matching_rows(
    metadata: TableMetadata,
    snapshot_id: int | None,
    where: Bound,
    request: WriteRequest,
    storage: Storage,
) -> RowRewrite:
    """Write the files that replace those holding rows for which `where` is true.

    A row for which `where` is false or unknown stays (three-valued logic: `x = 1` does not remove a
    null `x`). A file without a matching row is left alone. A file is read twice, a batch at a time:
    the columns of the filter to see which rows go, then the rows that stay.

    Args:
        metadata: the table version decided on.
        snapshot_id: the snapshot whose rows are looked at; None means an empty table.
        where: the filter, bound to the table's schema.
        request: how new files are written.
        storage: where the files are.

    Raises:
        InvalidExpressionError: a function of the filter cannot be computed for a row.
        StorageError | CorruptMetadataError: a file could not be read or written.
    """
    if snapshot_id is None:
        return RowRewrite((), (), 0, 0)
    scan = ScanRequest(
        metadata=metadata,
        snapshot_id=snapshot_id,
        current_schema=True,
        where=where,
        include_metrics=True,
    )
    keeping = replace(request, schema=with_lineage(request.schema, request.format_version))
    matching = matching_reader(where, metadata, storage)
    positioned = positioned_reader(keeping.schema, metadata, storage)
    whole: list[DataFile] = []
    replaced: list[DataFile] = []
    added: list[DataFile] = []
    rows: list[int | None] = []
    try:
        for index, task in enumerate(plan_scan(scan, storage).tasks):
            if task.residual == TRUE:
                whole.append(task.data_file)
                rows.append(task.live_rows)
                continue
            gone = matching_positions(task, matching)
            if not len(gone):
                continue
            rows.append(len(gone))
            replaced.append(task.data_file)
            if len(gone) != task.live_rows:
                stay = staying_rows(task, gone, positioned)
                added += write_data_files(stay, keeping, storage, task=f"keep{index}")
    except BaseException:
        storage.delete([file.file_path for file in added])
        raise
    return RowRewrite((*whole, *replaced), tuple(added), len(replaced), total_rows(rows))


def positioned_reader(schema: Schema, metadata: TableMetadata, storage: Storage) -> RowReader:
    """Reads rows in a schema, with their positions."""
    return RowReader(ReadRequest.of(metadata, Schema(*schema.fields, POSITION)), storage)


def staying_rows(
    task: FileScanTask, gone: Positions, positioned: RowReader
) -> Iterator[pa.RecordBatch]:
    """The live rows of a file, without those at some positions, by a `positioned_reader`."""
    ordered = np.sort(gone)
    for batch in positioned.read([replace(task, residual=TRUE)]):
        positions = positions_of(batch)
        if not len(positions):
            continue
        first, end = np.searchsorted(ordered, [positions.min(), positions.max() + 1])
        stay = ~np.isin(positions, ordered[first:end])
        if stay.any():
            yield batch.select(range(batch.num_columns - 1)).filter(pa.array(stay))
