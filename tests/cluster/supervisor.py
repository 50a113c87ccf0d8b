"""Processes that are started in order, watched, killed on purpose and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster.compose_services import Service

_READY_SECONDS = 180
_LOOK_SECONDS = 0.5
_CHECK_SECONDS = 60


class Supervisor:
    """The processes of some services. When the block is left, none of them is there any more.

    Args:
        environment: variables of every process.
        logs: folder of one log a service.
        say: told what happens.
        commands: of services whose command is another one on this machine.
        users: of services that run as another user.
        ready: of services whose readiness another test tells.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        logs: Path,
        say: Callable[[str], None],
        *,
        commands: Mapping[str, Sequence[str]],
        users: Mapping[str, str | None],
        ready: Mapping[str, Callable[[], bool]],
    ) -> None:
        self._environment, self._logs, self._say = dict(environment), logs, say
        self._commands, self._users, self._ready = commands, users, ready
        self._running: dict[str, tuple[Service, subprocess.Popen[bytes]]] = {}
        self._down_until: dict[str, float] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._keep_alive, daemon=True)
        self.restarts: list[str] = []
        """Services that were started again, in order."""

    def start(self, service: Service) -> None:
        """Start a service and wait until it is ready, or done. Raises RuntimeError."""
        began = time.monotonic()
        process = self._spawn(service)
        if service.is_one_shot:
            if process.wait(_READY_SECONDS) != 0:
                raise RuntimeError(f"{service.name} failed: see {self._log(service)}")
        else:
            with self._lock:
                self._running[service.name] = (service, process)
            self.wait_until_ready(service)
        state = "done" if service.is_one_shot else "ready"
        self._say(f"{service.name} is {state} after {time.monotonic() - began:.0f} s")

    def wait_until_ready(self, service: Service) -> None:
        """Wait for the service's health check. Raises RuntimeError."""
        until = time.monotonic() + _READY_SECONDS
        while not self._is_ready(service):
            if time.monotonic() > until:
                raise RuntimeError(f"{service.name} is not ready: see {self._log(service)}")
            time.sleep(_LOOK_SECONDS)

    def kill(self, name: str, *, down_seconds: float) -> Service:
        """Kill a service with all its children, and keep it down for some time."""
        with self._lock:
            service, process = self._running[name]
            self._down_until[name] = time.monotonic() + down_seconds
        _end(process)
        return service

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._watch.join()
        for _, process in reversed(self._running.values()):
            _end(process)

    def _keep_alive(self) -> None:
        """What `restart: unless-stopped` does."""
        while not self._ended.wait(_LOOK_SECONDS):
            with self._lock:
                for name, (service, process) in self._running.items():
                    is_due = time.monotonic() >= self._down_until.get(name, 0)
                    if process.poll() is not None and is_due:
                        self._running[name] = (service, self._spawn(service))
                        self.restarts.append(name)
                        self._say(f"{name} ended with {process.returncode}: started again")

    def _spawn(self, service: Service) -> subprocess.Popen[bytes]:
        command = self._commands.get(service.name, service.command)
        with self._log(service).open("ab") as log:
            return subprocess.Popen(
                command,
                env={**self._environment, **service.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=self._users.get(service.name),
            )

    def _is_ready(self, service: Service) -> bool:
        if service.name in self._ready:
            return self._ready[service.name]()
        try:
            check = subprocess.run(
                service.health,
                env={**self._environment, **service.environment},
                capture_output=True,
                timeout=_CHECK_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False  # as in compose: a check that takes too long is one that fails
        return check.returncode == 0

    def _log(self, service: Service) -> Path:
        return self._logs / f"{service.name}.log"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children, which are in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
