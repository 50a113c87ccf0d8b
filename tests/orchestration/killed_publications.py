"""`python -m tests.orchestration.killed_publications --rounds N`: kills, beside readers of five.

Each round publishes four runs over five tables, on files and on SQLite, each killed at a random
file that it creates; at every file before that the five tables are joined.
"""

from __future__ import annotations

import argparse
import tempfile

import pytest

import lakehouse as lh
from tests.unit.table import test_publication as publication


def main() -> None:
    """Print how many publications were tried; a torn join or a half-published run raises."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rounds", type=int, default=100)
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    for seed in range(given.seed, given.seed + given.rounds):
        for kind in ("files", "sqlite"):
            with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
                where = folder if kind == "files" else f"sqlite:///{folder}/c.db"
                lake = lh.load_catalog(where, warehouse=folder)
                publication.test_readers_beside_publications_that_are_killed(lake, seed, patch)
    runs = 8 * given.rounds
    print(f"{runs} publications of five tables: 0 torn joins, 0 half published")  # noqa: T201


if __name__ == "__main__":
    main()
