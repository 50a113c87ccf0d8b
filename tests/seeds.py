"""Seeds of tests that draw what they do: a few for every run, more for the slow ones."""

from __future__ import annotations

import os
from typing import Any

import pytest


def seeds(fast: int, of: int) -> list[Any]:
    """Parameters of a test: the first seeds, and the others marked `slow`.

    There are as many as `LAKEHOUSE_SEEDS` says, if that is more.
    """
    of = max(of, int(os.environ.get("LAKEHOUSE_SEEDS", "0")))
    slow = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(fast, of)]
    return [*range(min(fast, of)), *slow]
