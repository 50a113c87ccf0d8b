"""Random evolutions and drifts: what became untrue is never verified, and evidence finds it."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from lakehouse.curation.checkup import check, check_statements
from lakehouse.curation.statement_store import StatementStore
from lakehouse.curation.survey import survey
from lakehouse.semantics.states import State
from tests.property.statement_worlds import World

EVOLUTIONS = int(os.environ.get("LAKEHOUSE_EVOLUTIONS", "120"))
STEPS = 20


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_what_became_untrue_is_found(tmp_path):
    counts: Counter[str] = Counter()
    for seed in range(max(1, EVOLUTIONS // STEPS)):
        world = World(seed, tmp_path)
        checked = _by_id(check_statements(world.lake))
        for number in range(STEPS):
            before = world.truth()
            change, rows_changed = world.step()
            truth = world.truth()
            where = f"seed {seed}, step {number}: {change}"
            seen = survey(world.lake)
            by_metadata = {
                statement.statement_id: seen.standing(statement).state
                for statement in seen.statements
            }
            _judge_metadata(by_metadata, before, truth, where, counts)
            if not rows_changed:
                _judge_same_rows(by_metadata, checked, truth, where, change)
            results, kept = check(seen)
            StatementStore(world.lake).record(kept)
            checked = _by_id(results)
            _judge_evidence(checked, truth, where, counts)
            counts["evolutions"] += 1
    assert counts["made untrue"] > counts["evolutions"] / 10
    assert counts["false alarms"] == 0
    told = ", ".join(f"{name}: {count:,}" for name, count in sorted(counts.items()))
    print(f"\n{told}")  # noqa: T201


def _by_id(results):
    return {result.statement.statement_id: result for result in results}


def _judge_same_rows(states, checked, truth, where, change):
    """Changes of the schema and compactions alone take nothing from a statement that stays true.

    A compaction may show that rows went which delete files had hidden; that costs trust in what has
    no evidence.
    """
    for name, holds in truth.items():
        before, evidence = checked[name].standing.state, checked[name].statement.evidence
        if holds and before is State.VERIFIED and (evidence or change != "compact"):
            assert states[name] is before, f"{where}: {name} was {before} and is {states[name]}"


def _judge_metadata(states, before, truth, where, counts):
    """From metadata alone: nothing untrue is called verified, nothing true is contradicted."""
    for name, holds in truth.items():
        state = states[name]
        if not holds:
            assert state is not State.VERIFIED, f"{where}: {name} is untrue and called verified"
            counts["made untrue"] += before[name]
            counts["made untrue, found by metadata alone"] += (
                before[name] and state is State.CONTRADICTED
            )
            continue
        counts["true"] += 1
        stale = state is State.CONTRADICTED and not before[name]  # waits for its evidence to run
        assert state is not State.CONTRADICTED or stale, f"{where}: {name} is true, contradicted"
        counts["true, verified by metadata alone"] += state is State.VERIFIED


def _judge_evidence(checked, truth, where, counts):
    for name, holds in truth.items():
        found = checked[name].standing
        if holds:
            counts["false alarms"] += found.state is State.CONTRADICTED
            assert found.state is not State.CONTRADICTED, f"{where}: {name}: {found.reason}"
            if checked[name].statement.evidence is not None:
                assert found.state is State.VERIFIED, f"{where}: {name} is {found.state}"
        else:
            assert found.state is State.CONTRADICTED, f"{where}: {name} is untrue and {found.state}"
