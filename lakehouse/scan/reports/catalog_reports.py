"""Scan reports for a catalog's server (REST catalog: ScanReport)."""

from __future__ import annotations

from typing import Any

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.scan.reports.listeners import ENGINE_REST, ScanReport
from lakehouse.scan.reports.plan_report import PlanReport
from lakehouse.spec.identifier import Identifier


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
            self._catalog.report(Identifier.parse(report.table), scan_report(report.plan))


def scan_report(plan: PlanReport) -> dict[str, Any]:
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
