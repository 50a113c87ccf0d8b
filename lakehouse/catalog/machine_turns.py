"""Taking turns: writers of one table on one machine queue instead of wasting attempts.

Correctness never depends on it.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakValueDictionary

log = logging.getLogger(__name__)

WAIT_SECONDS_MAX = 10.0
_POLL_SECONDS = 0.002
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


_thread_turns: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
_thread_turns_lock = threading.Lock()


@contextmanager
def machine_turn(key: str, *, wait_seconds_max: float = WAIT_SECONDS_MAX) -> Iterator[None]:
    """Hold this machine's turn for `key`.

    After `wait_seconds_max`, or where locks do not work, it goes on without. Threads of this
    process queue among themselves first: one of them looks at the file again and again, not all.
    """
    until = time.monotonic() + wait_seconds_max
    with thread_turn(key, wait_seconds_max):
        path = _path(key)
        handle = None if path is None else _take(path, until)
        try:
            yield
        finally:
            if path is not None and handle is not None:
                with suppress(OSError):
                    path.unlink()  # whoever waits for it looks for the name again
                os.close(handle)


@contextmanager
def thread_turn(key: str, wait_seconds_max: float = WAIT_SECONDS_MAX) -> Iterator[None]:
    """Hold this process's turn for `key`; after `wait_seconds_max` it goes on without."""
    with _thread_turns_lock:
        turn = _thread_turns.setdefault(key, threading.Lock())
    held = turn.acquire(timeout=wait_seconds_max)
    try:
        yield
    finally:
        if held:
            turn.release()


def _path(key: str) -> Path | None:
    try:
        folder = Path(tempfile.gettempdir()) / f"lakehouse-turns-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return None
    except OSError as error:
        log.debug("No turn-taking: %s", error)
        return None
    return folder / hashlib.sha256(key.encode()).hexdigest()[:32]


def _take(path: Path, until: float) -> int | None:
    """The file of a turn, locked; None: it cannot be, or others have it until then."""
    try:
        while True:
            handle = os.open(path, _FLAGS, 0o600)
            is_taken = False
            try:
                # one that was removed meanwhile is nobody's turn
                is_taken = _lock(handle, until) and os.fstat(handle).st_nlink > 0
            finally:
                if not is_taken:
                    os.close(handle)
            if is_taken:
                return handle
            if time.monotonic() > until:
                return None
    except OSError as error:
        log.debug("No turn-taking: %s", error)
        return None


def _lock(handle: int, until: float) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_SECONDS)
        else:
            return True
