"""Runs that die: the branches and files that they leave go, whoever comes next."""

from __future__ import annotations

import random

import pytest

from tests.hostile.foreign_mutants import OF_KILLED_RUNS
from tests.hostile.killed_runs import Mortal, kill, plain_asset

STAGED = 6
"""Before this change of a run, what it staged is on a branch that nobody has published."""


@pytest.fixture
def world(tmp_path):
    return plain_asset(random.Random(1), tmp_path / "world")


@pytest.mark.parametrize("run_again", [True, False], ids=["run again", "looked after"])
def test_what_a_run_that_died_has_staged_goes(world, run_again):
    mortal = Mortal(STAGED)
    kill(world, mortal, run_again=run_again)
    assert mortal.died_in


@pytest.mark.slow
@pytest.mark.parametrize("mutant", OF_KILLED_RUNS, ids=lambda mutant: mutant.fault)
def test_a_fault_that_we_had_is_found(world, mutant):
    with mutant.planted_in(), pytest.raises(AssertionError):
        kill(world, Mortal(mutant.seed), run_again=True)
