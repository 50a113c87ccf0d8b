"""Waiting for what another thread or process does."""

from __future__ import annotations

import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

PATIENCE_SECONDS = 600.0
"""For a machine that has much else to do; a test ends after 900 seconds."""

S = TypeVar("S", bound=socketserver.BaseServer)


def eventually(is_so: Callable[[], object], *, pause: float = 0.05) -> None:
    """Returns as soon as something is so. Raises AssertionError where it never is."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < until, f"not so after {PATIENCE_SECONDS} seconds"
        time.sleep(pause)


@contextmanager
def reaped(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """A process that is killed, if need be, and waited for, however the block is left.

    One that is forgotten fails a later test of this process, with a ResourceWarning.
    """
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def serving(server: S) -> Iterator[S]:
    """A server that answers in a thread, and is closed however the block is left."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
