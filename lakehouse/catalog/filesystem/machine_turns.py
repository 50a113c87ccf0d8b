"""Taking turns: writers of one table on one machine queue instead of wasting attempts.

Correctness never depends on it.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

WAIT_SECONDS_MAX = 10.0
_POLL_SECONDS = 0.002


@contextmanager
def machine_turn(key: str, *, wait_seconds_max: float = WAIT_SECONDS_MAX) -> Iterator[None]:
    """Hold this machine's turn for `key`.

    After `wait_seconds_max`, or where locks do not work, it goes on without.
    """
    handle = _open(key)
    if handle is None:
        yield
        return
    try:
        _wait(handle, wait_seconds_max)
        yield
    finally:
        os.close(handle)


def _open(key: str) -> int | None:
    try:
        folder = Path(tempfile.gettempdir()) / f"lakehouse-turns-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return None
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        return os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        log.debug("No turn-taking: %s", error)
        return None


def _wait(handle: int, wait_seconds_max: float) -> None:
    until = time.monotonic() + wait_seconds_max
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return
            time.sleep(_POLL_SECONDS)
        except OSError as error:
            log.debug("No turn-taking: %s", error)
            return
        else:
            return
