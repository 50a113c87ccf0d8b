"""Tables of strangers: the right answer of legal ones, that or a typed error of bent ones."""

from __future__ import annotations

import os

import pytest

from tests.hostile.foreign_bends import BENDS
from tests.hostile.foreign_mutants import MUTANTS, Mutant
from tests.hostile.foreign_rounds import Found, Strangers
from tests.seeds import seeds

BATCH = 10
BATCHES = int(os.environ.get("LAKEHOUSE_FOREIGN_ROUNDS", "40")) // BATCH
MOST_ROUNDS = 400


@pytest.mark.parametrize("batch", seeds(1, of=BATCHES))
def test_legal_tables_give_the_right_answer(tmp_path, batch):
    strangers, found = Strangers(tmp_path / "strangers", bent=0), Found()
    for seed in range(BATCH * batch, BATCH * (batch + 1)):
        strangers.round(seed, found)
    assert found.faults == []
    assert found.outcomes == {("legal", "right"): BATCH}


@pytest.mark.parametrize("batch", seeds(2, of=2 * BATCHES))
def test_files_that_are_taken_in_are_read_right(tmp_path, batch):
    strangers, found = Strangers(tmp_path / "strangers", taken=1), Found()
    for seed in range(BATCH * batch, BATCH * (batch + 1)):
        strangers.round(seed, found)
    assert found.faults == []


@pytest.mark.parametrize("name", [bend.name for bend in BENDS])
def test_bent_tables_are_refused_or_answered_right(tmp_path, name):
    strangers = Strangers(tmp_path / "strangers", bent=1, bends=[name], only_bent=True)
    found, tried = Found(), iter(range(MOST_ROUNDS))
    while not found.outcomes:
        strangers.round(next(tried), found)
    assert found.faults == []


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault)
def test_a_fault_that_we_had_is_found(tmp_path, mutant: Mutant):
    strangers = Strangers.of(tmp_path / "strangers", mutant)
    found = Found()
    with mutant.planted_in():
        for seed in range(mutant.seed, mutant.seed + MOST_ROUNDS):
            strangers.round(seed, found)
            if found.faults:
                return
    pytest.fail(f"{mutant.fault}: not found in {MOST_ROUNDS} tables")
