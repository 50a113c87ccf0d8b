"""What a server does in our place: it plans scans, commits appends, and takes reports.

REST catalog: planTableScan, fetchPlanningResult, fetchScanTasks, reportMetrics. Appends that our
server commits together with those of others are an extension (see PostedAppend).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from requests import Response

from lakehouse.catalog.catalog_protocol import ServerAppender, TableVersion
from lakehouse.catalog.commit_outcome import before_the_swap, is_certain
from lakehouse.catalog.posted_append import ENDPOINT, PostedAppend
from lakehouse.catalog.rest.loaded_tables import LoadedTables
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidPropertyError,
    LakehouseError,
    StorageError,
    ValidationConflictError,
)
from lakehouse.rest.refusals import TABLE, error_of, refusal
from lakehouse.rest.rest_session import RestSession, body_of
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.json_fields import optional_list, require_str
from lakehouse.spec.manifests.content_file_json import types_of_partitions
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import types_of

PLANNING_MODE = "scan-planning-mode"
PLAN_ENDPOINT = "POST /namespaces/{namespace}/tables/{table}/plan"
_FIRST_SECONDS, _SECONDS_MAX = 0.05, 2.0
_WAIT_MS = 600_000


class RestPlanner:
    """Has the scans of one table planned.

    Args:
        session: asks the server.
        identifier: of the table.
        environment: clock and sleep.
    """

    def __init__(
        self, session: RestSession, identifier: Identifier, environment: Environment
    ) -> None:
        self._session, self._name, self._environment = session, str(identifier), environment
        self._path = session.path(identifier.namespace, "tables", identifier.name)

    def plan(self, document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """The tasks of a scan, page by page (REST catalog: ScanTasks).

        Args:
            document: the request (PlanTableScanRequest).

        Raises StorageError: the server gave up, or is not done after ten minutes; what
        `RestSession.answer` raises.
        """
        page = self._completed(self._post("plan", document))
        yield page
        waiting = optional_list(page, "plan-tasks", "plan")
        while waiting:
            page = self._post("tasks", {"plan-task": waiting.pop(0)})
            waiting += optional_list(page, "plan-tasks", "plan")
            yield page

    def _completed(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        status, seconds = answer.get("status"), _FIRST_SECONDS
        if status == "submitted":
            plan_path = (
                f"{self._path}/plan/{quote(require_str(answer, 'plan-id', 'plan'), safe='')}"
            )
            until_ms = self._environment.now_ms() + _WAIT_MS
            while status == "submitted":
                if self._environment.now_ms() > until_ms:
                    self._session.send("DELETE", plan_path)
                    raise StorageError(f"{self._name}: the server plans for too long.")
                self._environment.sleep(seconds)
                seconds = min(seconds * 2, _SECONDS_MAX)
                answer = self._session.answer("GET", plan_path, self._name, TABLE)
                status = answer.get("status")
        if status != "completed":
            error = answer.get("error")
            message = error.get("message") if isinstance(error, Mapping) else None
            raise StorageError(f"{self._name}: the scan was not planned: {message or status}")
        return answer

    def _post(self, what: str, document: Mapping[str, Any]) -> dict[str, Any]:
        path = f"{self._path}/{what}"
        return self._session.answer("POST", path, self._name, TABLE, document, keyed=True)


APPEND_ENDPOINT = f"POST {ENDPOINT}"
APPEND_MODE = "append-mode"
"""Catalog property: `own-snapshot` (default), `shared-snapshot`, or `commit`: as other clients."""
_MODES = ("own-snapshot", "shared-snapshot", "commit")


def append_mode(text: str | None) -> str:
    """How appends are made. Raises InvalidPropertyError."""
    mode = (text or _MODES[0]).lower()
    if mode not in _MODES:
        raise InvalidPropertyError(f"{APPEND_MODE} is one of {', '.join(_MODES)}, not {text!r}.")
    return mode


class RestAppender(ServerAppender):
    """Has appends to one table committed by the server.

    Args:
        session: asks the server.
        tables: as the server said them last.
        identifier: of the table.
        shares: whether others may be appended in the same snapshot.
    """

    def __init__(
        self, session: RestSession, tables: LoadedTables, identifier: Identifier, *, shares: bool
    ) -> None:
        self._session, self._tables, self._identifier = session, tables, identifier
        self._shares = shares

    @property
    def shares(self) -> bool:
        return self._shares

    def append(self, base: TableVersion, asked: PostedAppend) -> tuple[TableVersion, Snapshot]:
        name, metadata = str(self._identifier), base.metadata
        path = self._session.path(self._identifier.namespace, "tables", self._identifier.name)
        kinds = types_of_partitions(metadata.specs(), types_of(metadata)) if asked.files else None
        try:
            answer = self._session.send(
                "POST",
                f"{path}/appends",
                asked.to_json(kinds),
                token=self._tables.token(self._identifier),
                keyed=True,
            )
        except StorageError as error:
            if is_certain(error):
                raise
            raise _unknown(name, error.message, asked) from error
        if answer.status_code >= 500 or 300 <= answer.status_code < 400:
            reason = f"HTTP {answer.status_code}: {error_of(answer)[1]}"
            raise _unknown(name, reason, asked)
        if answer.status_code >= 400:
            with before_the_swap():
                raise self._refused(answer, asked)
        try:
            return self._tables.keep_appended(base, body_of(answer, name))
        except LakehouseError as error:
            raise _unknown(name, error.message, asked) from error

    def _refused(self, answer: Response, asked: PostedAppend) -> LakehouseError:
        name, reason = str(self._identifier), error_of(answer)[1]
        if answer.status_code != 409:
            return refusal(answer, name, TABLE)
        table_uuid = self._tables.load(self._identifier).metadata.table_uuid
        kind = CommitConflictError if table_uuid == asked.table_uuid else ValidationConflictError
        return kind(f"Table {name}: {reason}", table=name, table_uuid=table_uuid)


def _unknown(name: str, reason: str, asked: PostedAppend) -> CommitStateUnknownError:
    return CommitStateUnknownError(
        f"Table {name}: the server did not tell whether the append happened ({reason}). Nothing "
        "was deleted. Refresh the table and look for the snapshot id.",
        table=name,
        snapshot_ids=[asked.append_id],
    )


log = logging.getLogger(__name__)

ENABLED = "rest-metrics-reporting-enabled"
_METRICS_ENDPOINT = "POST /namespaces/{namespace}/tables/{table}/metrics"
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
        self.are_wanted = enabled and session.offers(_METRICS_ENDPOINT)
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
