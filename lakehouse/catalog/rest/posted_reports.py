"""Metrics that a server is told, behind the back of who scans and commits."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Mapping
from typing import Any

from lakehouse.errors import LakehouseError
from lakehouse.rest.rest_session import RestSession
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import Snapshot

log = logging.getLogger(__name__)

ENABLED = "rest-metrics-reporting-enabled"
_ENDPOINT = "POST /namespaces/{namespace}/tables/{table}/metrics"
_WAITING_MAX = 100
_COUNTED = {
    "added-data-files": "added-data-files",
    "deleted-data-files": "removed-data-files",
    "total-data-files": "total-data-files",
    "added-delete-files": "added-delete-files",
    "removed-delete-files": "removed-delete-files",
    "total-delete-files": "total-delete-files",
    "added-dvs": "added-dvs",
    "removed-dvs": "removed-dvs",
    "added-records": "added-records",
    "deleted-records": "removed-records",
    "total-records": "total-records",
    "added-position-deletes": "added-positional-deletes",
    "added-equality-deletes": "added-equality-deletes",
}
"""What a snapshot's summary counts, as reports call it (REST catalog: CommitReport)."""
_SIZES = {
    "added-files-size": "added-files-size-bytes",
    "removed-files-size": "removed-files-size-bytes",
    "total-files-size": "total-files-size-bytes",
}


class PostedReports:
    """Posts reports, one after the other; those that nobody can take in time are left out.

    Args:
        session: asks the server.
        name: of the catalog, for reports.
    """

    def __init__(self, session: RestSession, name: str) -> None:
        self._session, self._name = session, name
        enabled = session.config.properties.get(ENABLED, "true").lower() == "true"
        self.are_wanted = enabled and session.offers(_ENDPOINT)
        self._waiting: queue.Queue[tuple[Identifier, str | None, Mapping[str, Any]]]
        self._waiting = queue.Queue(_WAITING_MAX)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def post(self, identifier: Identifier, report: Mapping[str, Any], token: str | None) -> None:
        """Have a report posted (REST catalog: ReportMetricsRequest); returns at once."""
        if not self.are_wanted:
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="lakehouse-metrics", daemon=True
                )
                self._thread.start()
        named = {**report, "table-name": f"{self._name}.{identifier}"}
        try:
            self._waiting.put_nowait((identifier, token, named))
        except queue.Full:
            log.debug("%s: a report is left out", identifier)

    def _run(self) -> None:
        while True:
            identifier, token, report = self._waiting.get()
            path = self._session.path(identifier.namespace, "tables", identifier.name)
            try:
                answer = self._session.send("POST", f"{path}/metrics", report, token=token)
                if answer.status_code >= 300:
                    log.debug("%s: the server takes no report: %s", identifier, answer.status_code)
            except LakehouseError as error:  # a report is worth no error
                log.debug("%s: a report was lost: %s", identifier, error.message)


def commit_report(snapshot: Snapshot, duration_ms: int) -> dict[str, Any]:
    """What a commit did, by its snapshot's summary (REST catalog: CommitReport)."""
    summary = snapshot.summary
    counted: dict[str, Any] = {
        "total-duration": {
            "count": 1,
            "time-unit": "nanoseconds",
            "total-duration": duration_ms * 1_000_000,
        },
        "attempts": {"unit": "count", "value": 1},
    }
    for names, unit in ((_COUNTED, "count"), (_SIZES, "bytes")):
        for key, name in names.items():
            if summary.get(key, "").isdecimal():
                counted[name] = {"unit": unit, "value": int(summary[key])}
    return {
        "report-type": "commit-report",
        "snapshot-id": snapshot.snapshot_id,
        "sequence-number": snapshot.sequence_number,
        "operation": snapshot.operation or "",
        "metrics": counted,
    }
