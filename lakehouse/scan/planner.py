"""Scan planning: from a filter to the files that may hold matching rows (spec: Scan Planning)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema

from lakehouse.scan.report import PlanReport
from lakehouse.scan.request import ScanRequest
from lakehouse.scan.tasks import FileScanTask, TaskGroup
from lakehouse.spec.data_file import DataFile
from lakehouse.storage.protocol import Storage


@dataclass(frozen=True)
class ScanPlan:
    """The files to read and how they were found.

    Attributes:
        snapshot_id: snapshot planned; None for an empty table.
        schema: projected schema, in the order of `select`... the table's order when everything is selected.
        report: what was read and skipped.
        files: data files that may match, lazily made.
        tasks: one a data file, with deletes and residual, lazily made.
    """

    snapshot_id: int | None
    schema: Schema
    report: PlanReport
    files: Sequence[DataFile]
    tasks: Sequence[FileScanTask]

    def splits(self) -> Iterator[TaskGroup]:
        """Tasks cut at split offsets and packed to `read.split.target-size` (properties `read.split.*`)."""
        raise AssertionError(self)


def plan_scan(request: ScanRequest, storage: Storage) -> ScanPlan:
    """Plan a scan.

    Keeps every file that may hold a row for which `where` is true; unknown metrics keep the file.

    Raises:
        InvalidExpressionError: the filter does not parse or bind.
        InvalidSchemaError: `select` names no column.
        NoSuchSnapshotError: the snapshot does not exist.
        CorruptMetadataError: a manifest or manifest list is damaged.
    """
    raise AssertionError(request, storage)
