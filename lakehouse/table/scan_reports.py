"""Where scan reports go: to the catalog's server (ScanReport), and to a table of the lakehouse."""

from __future__ import annotations

import logging
import threading
from collections import deque
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.errors import LakehouseError
from lakehouse.scan.reports.listeners import ENGINE_REST, ScanReport, silenced
from lakehouse.scan.reports.plan_report import PlanReport
from lakehouse.spec.identifier import Identifier
from lakehouse.table.table import Table

_LOG = logging.getLogger(__name__)

SCAN_REPORT_SCHEMA = pa.schema(
    [
        pa.field("planned_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("engine", pa.string(), nullable=False),
        pa.field("snapshot_id", pa.int64()),
        pa.field("schema_id", pa.int32()),
        pa.field("predicate", pa.string()),
        pa.field("projection", pa.list_(pa.string())),
        pa.field("manifests_total", pa.int64()),
        pa.field("manifests_read", pa.int64()),
        pa.field("manifest_bytes_total", pa.int64()),
        pa.field("manifest_bytes_read", pa.int64()),
        pa.field("data_files_total", pa.int64()),
        pa.field("data_files_planned", pa.int64()),
        pa.field("delete_files_total", pa.int64()),
        pa.field("delete_files_planned", pa.int64()),
        pa.field("bytes_planned", pa.int64()),
        pa.field("rows_planned", pa.int64()),
        pa.field("planning_ms", pa.float64()),
    ]
)
"""Schema of a table of scan reports: for `create_table`, partitioned by `day(planned_at)`."""


class TableListener:
    """Appends scan reports to a table, in batches and by a thread: no query waits for a commit.

    Scans of that table are not recorded. What cannot be written is logged and dropped; so is what
    comes while `most_waiting` reports wait. Close it before the process ends: what waits then is
    lost otherwise.

    Args:
        table: with the columns of `SCAN_REPORT_SCHEMA`; the listener keeps the object for itself.
        batch_size: commit when so many wait.
        interval_seconds: commit at least so often while any wait.
        most_waiting: bound of memory.
    """

    def __init__(
        self,
        table: Table,
        *,
        batch_size: int = 1000,
        interval_seconds: float = 60.0,
        most_waiting: int = 100_000,
    ) -> None:
        self._table = table
        self._batch_size = batch_size
        self._interval = interval_seconds
        self._most = most_waiting
        self._waiting: deque[dict[str, Any]] = deque()
        self._dropped = 0
        self._closed = False
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._thread = threading.Thread(
            target=self._run, name="lakehouse-scan-reports", daemon=True
        )
        self._thread.start()

    def scan_planned(self, report: ScanReport) -> None:
        """Take the report of a plan."""
        if report.table == self._table.name:
            return
        row = report.to_dict()
        row["planned_at"] = row.pop("timestamp_ms") * 1000
        with self._changed:
            if self._closed or len(self._waiting) >= self._most:
                self._dropped += 1
                return
            self._waiting.append(row)
            if len(self._waiting) in (1, self._batch_size):
                self._changed.notify_all()

    def flush(self) -> None:
        """Write what waits, now; errors of storage and catalog are logged, not raised."""
        with self._writing:
            while self._waiting or self._dropped:
                with self._changed:
                    rows = [
                        self._waiting.popleft()
                        for _ in range(min(len(self._waiting), self._batch_size))
                    ]
                    dropped, self._dropped = self._dropped, 0
                if dropped:
                    _LOG.warning(
                        "%d scan reports were dropped: %s takes them too slowly or is closed",
                        dropped,
                        self._table.name,
                    )
                if rows:
                    self._write(rows)

    def close(self) -> None:
        """Write what waits and stop; harmless when repeated."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or bool(self._waiting))
                self._changed.wait_for(
                    lambda: self._closed or len(self._waiting) >= self._batch_size, self._interval
                )
                if self._closed:
                    return
            self.flush()

    def _write(self, rows: list[dict[str, Any]]) -> None:
        try:
            with silenced():
                self._table.refresh().append(pa.Table.from_pylist(rows, schema=SCAN_REPORT_SCHEMA))
        except (LakehouseError, OSError, pa.ArrowException):
            _LOG.exception("%d scan reports were not written to %s", len(rows), self._table.name)


class CatalogReports:
    """A listener that tells the catalog.

    Args:
        catalog: takes reports.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def scan_planned(self, report: ScanReport) -> None:
        """Tell of a plan that was made here."""
        if report.engine != ENGINE_REST and report.plan.snapshot_id is not None:
            self._catalog.report(Identifier.parse(report.table), report_to_json(report.plan))


def report_to_json(plan: PlanReport) -> dict[str, Any]:
    """A plan as servers know it.

    Without its filter, whose literals may be nobody's business: it says that all rows were wanted.
    """
    counts = {
        "result-data-files": plan.data_files.planned,
        "result-delete-files": plan.delete_files.planned,
        "total-data-manifests": plan.data_manifests.total,
        "total-delete-manifests": plan.delete_manifests.total,
        "scanned-data-manifests": plan.data_manifests.read,
        "scanned-delete-manifests": plan.delete_manifests.read,
        "skipped-data-manifests": plan.data_manifests.skipped_by_partition,
        "skipped-delete-manifests": plan.delete_manifests.skipped_by_partition,
        "skipped-data-files": plan.data_files.skipped_by_partition
        + plan.data_files.skipped_by_metrics,
    }
    sizes = {
        "total-file-size-in-bytes": plan.data_files.bytes_planned,
        "total-delete-file-size-in-bytes": plan.delete_files.bytes_planned,
    }
    metrics: dict[str, Any] = {
        "total-planning-duration": {
            "count": 1,
            "time-unit": "nanoseconds",
            "total-duration": int(plan.total_ms * 1e6),
        }
    }
    metrics |= {name: {"unit": "count", "value": value} for name, value in counts.items()}
    metrics |= {name: {"unit": "bytes", "value": value} for name, value in sizes.items()}
    return {
        "report-type": "scan-report",
        "snapshot-id": plan.snapshot_id,
        "filter": True,
        "schema-id": plan.schema_id,
        "projected-field-ids": list(plan.projected_ids),
        "projected-field-names": list(plan.projected_columns),
        "metrics": metrics,
    }
