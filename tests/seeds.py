"""Seeds of tests that draw what they do: a few for every run, more for the slow ones."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(fast: int, of: int) -> list[Any]:
    """Parameters of a test: the first seeds, and the others marked `slow`."""
    slow = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(fast, of)]
    return [*range(min(fast, of)), *slow]
