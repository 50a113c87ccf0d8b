"""`dagster dev` without a screen, asked by GraphQL like its own pages."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from tests.cluster.ports import free_port

_Found = TypeVar("_Found")
RUNS = """{ runsOrError { ... on Runs { results {
    runId jobName status tags { key value } startTime endTime creationTime } } } }"""
EVENTS = """query ($run: ID!) { logsForRun(runId: $run) { ... on EventConnection {
    events { ... on MessageEvent { message stepKey eventType timestamp } } } } }"""
SENSORS = """query ($location: String!) { sensorsOrError(repositorySelector: {
    repositoryLocationName: $location, repositoryName: "__repository__"}) { ... on Sensors {
    results { name sensorState { status } } } } }"""
START = """mutation ($name: String!, $location: String!) { startSensor(sensorSelector: {
    repositoryLocationName: $location, repositoryName: "__repository__", sensorName: $name})
    { __typename ... on PythonError { message } } }"""


def wait(what: str, seconds: float, look: Callable[[], _Found | None], pause: float = 1) -> _Found:
    """Look until something is found. Raises TimeoutError."""
    until = time.monotonic() + seconds
    while (found := look()) is None:
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(pause)
    return found


class DevServer:
    """A `dagster dev` with all its children, none of which is left when the block is.

    Args:
        command: that starts it, without its port.
        folder: where.
        environment: its variables; its log is `dev.log` in `DAGSTER_HOME`.
        location: the name of its code location.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        location: str = "definitions",
    ) -> None:
        self._location = location
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._command = [*command, "-h", "127.0.0.1", "-p", str(port)]
        self._folder, self._environment = folder, dict(environment)
        self.log = Path(environment["DAGSTER_HOME"]) / "dev.log"

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait("Dagster's webserver", 180, self._is_ready)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def _is_ready(self) -> bool | None:
        if self._process.poll() is not None:
            raise RuntimeError(f"dagster dev ended: {self.log.read_text()[-3000:]}")
        with contextlib.suppress(httpx.HTTPError, KeyError):
            return bool(self.sensors()) or None
        return None

    def ask(self, query: str, **variables: Any) -> Any:
        """The data that GraphQL answers. Raises RuntimeError for an answer with errors."""
        reply = httpx.post(
            f"{self.url}/graphql",
            json={"query": query, "variables": variables},
            timeout=60,
        ).json()
        if reply.get("errors"):
            raise RuntimeError(str(reply["errors"])[:2000])
        return reply["data"]

    def sensors(self) -> dict[str, str]:
        """Status by name."""
        found = self.ask(SENSORS, location=self._location)["sensorsOrError"]["results"]
        return {one["name"]: one["sensorState"]["status"] for one in found}

    def switch_on(self, sensor: str) -> None:
        """As its switch in the page does."""
        answer = self.ask(START, name=sensor, location=self._location)["startSensor"]
        if answer["__typename"] != "Sensor":
            raise RuntimeError(str(answer))

    def runs(self) -> list[dict[str, Any]]:
        """All runs, newest first."""
        found: list[dict[str, Any]] = self.ask(RUNS)["runsOrError"]["results"]
        return found

    def events(self, run: str) -> list[dict[str, Any]]:
        """What a run has told so far."""
        found: list[dict[str, Any]] = self.ask(EVENTS, run=run)["logsForRun"]["events"]
        return found

    def process_of(self, run: str) -> int:
        """The process that a run says it is."""
        for one in self.events(run):
            if told := re.search(r"\(pid: (\d+)\)", one.get("message") or ""):
                return int(told[1])
        raise LookupError(f"run {run} names no process")
