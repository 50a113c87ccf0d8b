"""Each hunt finds nothing, and each fault that we had when it is planted again."""

from __future__ import annotations

import os

import pytest

from tests.hostile.foreign_mutants import MUTANTS, OF_HISTORIES, OF_KILLED_RUNS
from tests.hostile.hunts import HUNTS, Hunt
from tests.hostile.landing_mutants import LANDING_MUTANTS

ROUNDS = float(os.environ.get("LAKEHOUSE_HUNT_ROUNDS", "0.05"))
"""Of the rounds of each hunt."""

NUMBERS = {*map(str, range(15)), "13a", "13b", "13c", "13d"}
"""Of the faults that strangers' files, clocks and clients found, worst first."""


def session(request: pytest.FixtureRequest):
    return lambda: request.getfixturevalue("spark")


def marked(hunt: Hunt) -> list[pytest.MarkDecorator]:
    return [pytest.mark.spark] if hunt.spark else []


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marked(hunt)) for name, hunt in HUNTS.items()]
)
def test_nothing_is_found(request, name):
    hunt = HUNTS[name]
    faults = [hunt.fault(seed, session(request)) for seed in range(round(ROUNDS * hunt.rounds))]
    assert [fault for fault in faults if fault] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(name, number, id=mutant.fault, marks=marked(hunt))
        for name, hunt in HUNTS.items()
        for number, mutant in enumerate(hunt.mutants)
    ],
)
def test_a_fault_that_we_had_is_found(request, name, number):
    hunt, mutant = HUNTS[name], HUNTS[name].mutants[number]
    with mutant.planted_in():
        for seed in range(mutant.seed, hunt.rounds):
            if hunt.fault(seed, session(request)):
                return
    pytest.fail(f"{mutant.fault}: not found in {hunt.rounds} rounds")


def test_each_number_is_planted():
    """And each mutant still has its place."""
    known = [*MUTANTS, *LANDING_MUTANTS, *OF_HISTORIES, *OF_KILLED_RUNS]
    known += [mutant for hunt in HUNTS.values() for mutant in hunt.mutants]
    assert {mutant.fault.partition(":")[0] for mutant in known} >= NUMBERS
    for mutant in known:
        with mutant.planted_in():
            pass
