"""Tables that somebody broke: a typed error or an answer, and no file outside them is touched."""

from __future__ import annotations

import os

import pytest

from tests.hostile.world import Tally, World

ROUNDS = int(os.environ.get("LAKEHOUSE_HOSTILE_ROUNDS", "6"))


@pytest.mark.parametrize("format_version", [2, 3])
def test_broken_tables(tmp_path, format_version):
    world, tally = World(tmp_path / "world", format_version), Tally()
    for seed in range(ROUNDS):
        world.round(seed, tally)
    assert tally.faults == []


def test_every_kind_of_file_is_broken(tmp_path):
    kinds = {kind for kind, _, _ in World(tmp_path / "world", 3).targets}
    assert kinds == {
        "data file",
        "deletion vector",
        "manifest",
        "manifest bytes",
        "manifest list",
        "manifest list bytes",
        "metadata",
        "metadata bytes",
        "statistics",
        "columnar",
        "columnar values",
        "version hint",
    }
