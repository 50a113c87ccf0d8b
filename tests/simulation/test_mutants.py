"""The simulation must find each planted bug within a few seeds, or it proves nothing."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS

pytestmark = pytest.mark.slow
SEEDS_MAX = 150


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name, caplog):
    caplog.set_level("ERROR")
    planted = MUTANTS[name]
    seeds = range(planted.since, planted.since + SEEDS_MAX)
    assert planted.first_seed(seeds, planted.plan) is not None
