"""Scans that a server plans (REST catalog: planTableScan, fetchPlanningResult, fetchScanTasks)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from lakehouse.environment import Environment
from lakehouse.errors import StorageError
from lakehouse.rest.refusals import TABLE
from lakehouse.rest.rest_session import RestSession
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.json_fields import optional_list, require_str

MODE = "scan-planning-mode"
ENDPOINT = "POST /namespaces/{namespace}/tables/{table}/plan"
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
            document: what is asked for (PlanTableScanRequest).

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
            one = f"{self._path}/plan/{quote(require_str(answer, 'plan-id', 'plan'), safe='')}"
            until_ms = self._environment.now_ms() + _WAIT_MS
            while status == "submitted":
                if self._environment.now_ms() > until_ms:
                    self._session.send("DELETE", one)
                    raise StorageError(f"{self._name}: the server plans for too long.")
                self._environment.sleep(seconds)
                seconds = min(seconds * 2, _SECONDS_MAX)
                answer = self._session.answer("GET", one, self._name, TABLE)
                status = answer.get("status")
        if status != "completed":
            error = answer.get("error")
            told = error.get("message") if isinstance(error, Mapping) else None
            raise StorageError(f"{self._name}: the scan was not planned: {told or status}")
        return answer

    def _post(self, what: str, document: Mapping[str, Any]) -> dict[str, Any]:
        path = f"{self._path}/{what}"
        return self._session.answer("POST", path, self._name, TABLE, document, keyed=True)
