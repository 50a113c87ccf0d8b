"""Landing files in the manner of the public: value by value, and counted to the line."""

from __future__ import annotations

import os

import pytest

from tests.hostile.foreign_mutants import Mutant
from tests.hostile.landing_mutants import LANDING_MUTANTS
from tests.hostile.landing_rounds import Tally, round_of

ROUNDS = int(os.environ.get("LAKEHOUSE_LANDING_ROUNDS", "150"))
MOST_ROUNDS = 1_000


def test_a_file_becomes_what_it_says():
    tally = Tally()
    for seed in range(ROUNDS):
        round_of(seed, tally)
    assert tally.faults == []


@pytest.mark.slow
@pytest.mark.parametrize("mutant", LANDING_MUTANTS, ids=lambda mutant: mutant.fault)
def test_a_fault_that_we_had_is_found(mutant: Mutant):
    tally = Tally()
    with mutant.planted_in():
        for seed in range(mutant.seed, mutant.seed + MOST_ROUNDS):
            round_of(seed, tally)
            if tally.faults:
                return
    pytest.fail(f"{mutant.fault}: not found in {MOST_ROUNDS} files")
