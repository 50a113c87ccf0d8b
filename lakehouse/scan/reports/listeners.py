"""Listeners: functions that get a report of each plan.

Both the facade (`TableScan`) and Spark call them once a plan is made. Planning never fails because
of a listener: what it raises is logged. Scans that a listener starts itself are not reported.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

from lakehouse.scan.reports.plan_report import PlanReport

_LOG = logging.getLogger(__name__)
_silent: ContextVar[bool] = ContextVar("lakehouse_scan_reports_silent", default=False)

ENGINE_ARROW = "arrow"
ENGINE_SPARK = "spark"
ENGINE_REST = "rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """One plan, as listeners see it.

    Attributes:
        table: dotted name.
        engine: who asked: `arrow`, `spark`, or `rest` for a client of our server.
        timestamp_ms: when the plan was ready, milliseconds since the epoch.
        plan: counts, bytes and milliseconds, the predicate (`filter`, literals included) and the
            projection.
    """

    table: str
    engine: str
    timestamp_ms: int
    plan: PlanReport

    def to_dict(self) -> dict[str, Any]:
        """Flat and JSON-able: sums over a stage or level (each of them is in `plan.to_dict()`)."""
        plan = self.plan
        files, deletes = plan.data_files, plan.delete_files
        kinds = (plan.data_manifests, plan.delete_manifests)
        return {
            "table": self.table,
            "engine": self.engine,
            "timestamp_ms": self.timestamp_ms,
            "snapshot_id": plan.snapshot_id,
            "schema_id": plan.schema_id,
            "predicate": plan.filter,
            "projection": list(plan.projected_columns),
            "manifests_total": sum(kind.total for kind in kinds),
            "manifests_read": sum(kind.read for kind in kinds),
            "manifest_bytes_total": sum(kind.bytes_total for kind in kinds),
            "manifest_bytes_read": sum(kind.bytes_read for kind in kinds),
            "data_files_total": files.total,
            "data_files_planned": files.planned,
            "delete_files_total": deletes.total,
            "delete_files_planned": deletes.planned,
            "bytes_planned": files.bytes_planned,
            "rows_planned": files.rows_planned,
            "planning_ms": round(plan.total_ms, 3),
        }


class PlanListener(Protocol):
    """Takes scan reports. Called in the thread that planned, so it should return at once."""

    def scan_planned(self, report: ScanReport) -> None:
        """Take the report of a plan that was made."""


class Listeners:
    """The listeners of a lakehouse, shared by its tables; safe to use from any thread.

    Args:
        now_ms: clock of the reports.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._lock = Lock()
        self._listeners: tuple[PlanListener, ...] = ()

    def add(self, listener: PlanListener) -> None:
        """Tell `listener` of every plan from now on; once, however often it is added."""
        with self._lock:
            if not any(known is listener for known in self._listeners):
                self._listeners = (*self._listeners, listener)

    def remove(self, listener: PlanListener) -> None:
        """Stop telling the listener; nothing happens when it is unknown."""
        with self._lock:
            self._listeners = tuple(known for known in self._listeners if known is not listener)

    def planned(self, table: str, plan: PlanReport, *, engine: str) -> None:
        """Tell every listener of a plan; never raises."""
        listeners = self._listeners
        if not listeners or _silent.get():
            return
        report = ScanReport(table=table, engine=engine, timestamp_ms=self._now_ms(), plan=plan)
        with silenced():
            for listener in listeners:
                try:
                    listener.scan_planned(report)
                # A listener is user code: its errors must not fail a query.
                except Exception:  # noqa: BLE001
                    _LOG.exception(
                        "%s: the scan report listener %s failed; the scan goes on",
                        table,
                        type(listener).__name__,
                    )


@contextmanager
def silenced() -> Iterator[None]:
    """Plans made by this thread within the block are not reported."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)
