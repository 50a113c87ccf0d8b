"""Copy on write: files that match whole are dropped by metadata, the others rewritten."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyiceberg.schema import Schema

from lakehouse.data.conversion.columns_by_id import FieldReader
from lakehouse.data.reading.scan_reader import ReadRequest, read_table
from lakehouse.data.writing.data_file_writer import WriteRequest, write_data_files
from lakehouse.expressions.bound_filter import TRUE, Bound, columns
from lakehouse.expressions.row_evaluation import passing
from lakehouse.scan.planner import plan_scan
from lakehouse.scan.scan_request import ScanRequest
from lakehouse.scan.scan_tasks import FileScanTask, total_rows
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.metadata_columns import METADATA_COLUMNS, with_lineage
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import Storage
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
    null `x`). A file without a matching row is left alone. One file is held in memory at a time.

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
    whole: list[DataFile] = []
    replaced: list[DataFile] = []
    added: list[DataFile] = []
    deleted_rows = 0
    whole_rows: list[int | None] = []
    for index, task in enumerate(plan_scan(scan, storage).tasks):
        if task.residual == TRUE:
            whole.append(task.data_file)
            whole_rows.append(task.live_rows)
            continue
        kept, gone = _split_rows(task, where, metadata, storage)
        if gone == 0:
            continue
        deleted_rows += gone
        replaced.append(task.data_file)
        if kept.num_rows:
            added += write_data_files(kept, keeping, storage, task=f"keep{index}")
    return RowRewrite(
        (*whole, *replaced), tuple(added), len(replaced), total_rows([deleted_rows, *whole_rows])
    )


def _split_rows(
    task: FileScanTask, where: Bound, metadata: TableMetadata, storage: Storage
) -> tuple[pa.Table, int]:
    """The live rows of a file that stay, and how many go."""
    kept = with_lineage(metadata.schema(), metadata.format_version)
    asked = {one.field_id for one in columns(where)}
    ids = {one.field_id for one in kept.fields}
    beside = [one for one in METADATA_COLUMNS.values() if one.field_id in asked - ids]
    whole = Schema(*kept.fields, *beside)
    read = ReadRequest.of(metadata, whole)
    rows = read_table([replace(task, residual=TRUE)], read, storage)
    gone = passing(where, partial(FieldReader(whole, asked).read, rows), rows.num_rows)
    stay = rows.select(range(len(kept.fields))).filter(pa.array(~gone))
    return stay, int(gone.sum())
