"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(is_so: Callable[[], object], seconds: float = 30) -> None:
    """Returns as soon as something is so. Raises AssertionError where it never is."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, f"not so after {seconds} seconds"
        time.sleep(0.05)
