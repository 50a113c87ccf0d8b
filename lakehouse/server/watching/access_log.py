"""A line for each request: the principal, the request, and its outcome."""

from __future__ import annotations

import datetime as dt
import logging
import os
from logging.handlers import WatchedFileHandler
from pathlib import Path

import orjson

log = logging.getLogger(__name__)
_NAMES_MAX = 100
"""In one line; a transaction may have as many as there is room for in a body."""


def log_request(
    *,
    at_ms: int,
    principal: str | None,
    operation: str,
    names: tuple[str, ...],
    status: int,
    seconds: float,
) -> None:
    """Log a request as one line of JSON. Nothing of its headers or body is in it.

    Args:
        at_ms: when it came, milliseconds since the epoch.
        principal: who sent it; None without authentication.
        operation: of the specification, as `endpoints` names it.
        names: what it is about: tables, namespaces.
        status: of the answer.
        seconds: until it was answered.
    """
    if not log.isEnabledFor(logging.INFO):
        return
    at = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
    line = {
        "at": at.isoformat(timespec="milliseconds"),
        "principal": principal,
        "operation": operation,
        "names": names[:_NAMES_MAX],
        "status": status,
        "ms": round(seconds * 1000, 3),
    }
    if len(names) > _NAMES_MAX:
        line["more_names"] = len(names) - _NAMES_MAX
    log.info("%s", orjson.dumps(line).decode())


class _WholeLines(WatchedFileHandler):
    """Appends a line by one call of the system, however long it is."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.reopenIfNeeded()
            stream = self.stream or self._open()
            os.write(stream.fileno(), f"{self.format(record)}\n".encode())
        # as all handlers do
        except Exception:  # noqa: BLE001
            self.handleError(record)


def open_log(path: str) -> None:
    """Write the lines of this process to a file, or to standard error for `-`.

    A file that was moved away is made again. Several processes may write to one: each line is
    appended whole.
    """
    handler = logging.StreamHandler() if path == "-" else _WholeLines(Path(path))
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
