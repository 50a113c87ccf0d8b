"""What the landing sensor asks for, over many ticks of a model.

Everything is ingested or named, one run at a time, in few runs.
"""

from __future__ import annotations

import os
import random

import pytest

from lakehouse.orchestration.automation.attempts import (
    GIVE_UP_AFTER,
    Attempts,
    Ended,
    Request,
    Work,
    decide,
)
from lakehouse.orchestration.automation.landing_state import LEFT_UNREAD
from tests.orchestration.landing_world import MINUTE_MS, TICK_MS, World, day

SEEDS = int(os.environ.get("LAKEHOUSE_LANDING_SEEDS", "12"))
HOUR = 120  # ticks


def run_ticks(world: World, ticks: int) -> None:
    for _ in range(ticks):
        world.tick()


def quiet_hours(world: World, hours: int) -> None:
    """Hours in which nothing happens; the daemon looks every ten minutes."""
    for _ in range(6 * hours):
        world.tick(10 * MINUTE_MS)


def idle(world: World) -> bool:
    settled = not world.unfinished() and not world.stale()
    return world.decision is not None and world.decision.request is None and settled


def until_idle(world: World, most_ticks: int) -> int:
    for number in range(most_ticks):
        if idle(world) and (not world.runs or world.runs[-1].status != "STARTED"):
            return number
        world.tick()
    raise AssertionError((world.unfinished(), world.decision))


def test_little_that_landed_is_indexed_and_ingested_by_one_run() -> None:
    world = World(random.Random(1), peeks=True)
    for number in range(3):
        world.land(f"a{number}", {day(3 * number), day(3 * number + 1)})
        run_ticks(world, 20)
    assert [run.request.job_name for run in world.runs] == ["ingest_events"] * 3
    assert not world.unfinished()


def test_days_that_are_not_adjacent_make_two_runs() -> None:
    """One that reads what landed, one that ingests; ten such days made 27."""
    world = World(random.Random(1))
    world.land("a", {day(3 * n) for n in range(10)})
    run_ticks(world, 40)
    assert [run.request.job_name for run in world.runs] == ["index_events", "ingest_events"]
    assert not world.unfinished()


def test_a_failed_run_and_a_killed_run_are_asked_for_again() -> None:
    world = World(random.Random(2))
    world.land("a", {day(1)})
    world.outage_until_ms = world.now_ms + 10 * MINUTE_MS
    until_idle(world, HOUR)
    assert [run.status for run in world.runs].count("FAILURE") >= 2
    assert world.skipped_keys == 0


def test_a_feed_that_lands_a_file_every_few_seconds_is_ingested() -> None:
    world = World(random.Random(3))
    for number in range(HOUR):
        for part in range(6):
            world.land(f"{number:04}-{part}", {day(number // 50)})
        world.tick()
        fresh = {path for path, _ in world.unfinished()}
        # nothing waits longer than two runs of five minutes and the ticks between them
        assert len(fresh) <= 6 * 26
    until_idle(world, HOUR)


@pytest.mark.parametrize("how", ["poisoned", "lethal"])
def test_one_bad_day_of_many_does_not_keep_the_others_back(how: str) -> None:
    world = World(random.Random(4))
    world.land("a", {day(n) for n in range(200)})
    getattr(world, how).add(day(77))
    quiet_hours(world, 6)
    assert world.unfinished() == {("a", day(77))}
    assert world.given_up() == {Work("raw.events", str(day(77)))}
    # index, the first of all, twice the halves, and what is tried alone with a doubled wait
    assert len(world.runs) <= 2 + 2 * 8 + GIVE_UP_AFTER + 2
    before = len(world.runs)
    quiet_hours(world, 24)
    assert len(world.runs) - before <= 4, "less and less often"
    getattr(world, how).clear()
    world.land("a2", {day(77)})
    quiet_hours(world, 26)
    assert not world.unfinished()
    assert not world.given_up()


def test_a_corrected_file_is_tried_within_minutes_after_its_day_was_given_up() -> None:
    world = World(random.Random(5))
    world.land("a", {day(1)})
    world.poisoned.add(day(1))
    quiet_hours(world, 10)
    assert world.given_up()
    world.poisoned.clear()
    world.land("a", {day(1)})
    run_ticks(world, 40)
    assert not world.unfinished()


def test_a_deleted_file_blocks_no_day() -> None:
    world = World(random.Random(6))
    world.land("a", {day(1)})
    run_ticks(world, 1)
    while world.runs[-1].status == "STARTED":
        world.now_ms += TICK_MS
        world.carry_out(world.runs[-1])
    world.land("b", {day(1)})
    world.delete("a")
    until_idle(world, HOUR)
    assert not world.given_up()


def test_a_file_that_cannot_be_opened_is_named_and_keeps_no_other_back() -> None:
    world = World(random.Random(7))
    world.unreadable.add("bad")
    world.land("bad", {day(1)})
    for number in range(5 * HOUR):
        if number % 10 == 0:
            world.land(f"{number}", {day(1)})
        world.tick()
    run_ticks(world, HOUR)
    assert {path for path, _ in world.unfinished()} == {"bad"}
    assert world.given_up() == {Work("raw.events_landing", LEFT_UNREAD)}
    world.unreadable.clear()
    quiet_hours(world, 24)
    assert not world.unfinished()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_everything_is_ingested_or_named(seed: int) -> None:
    rng = random.Random(seed)
    world = World(rng, kills=rng.choice([0, 0.1, 0.5]), peeks=rng.random() < 0.5)
    days, landed, trickle = rng.choice([2, 30, 400]), 0, rng.random() < 0.3
    for _ in range(rng.choice([1, 2]) * HOUR):
        if trickle or rng.random() < 0.05:
            landed += 1
            late = rng.random() < 0.3
            some = rng.sample(range(days), min(days, rng.choice([1, 1, 2, 40])))
            world.land(
                f"f{landed if rng.random() < 0.8 else rng.randrange(landed + 1)}",
                {day(n) for n in some},
                modified_ms=world.now_ms - 86_400_000 if late else None,
            )
        for name, chance in (("poisoned", 0.01), ("lethal", 0.005), ("rejected", 0.01)):
            if rng.random() < chance:
                getattr(world, name).add(day(rng.randrange(days)))
            if rng.random() < chance:
                getattr(world, name).clear()
        if rng.random() < 0.005:
            world.outage_until_ms = world.now_ms + rng.choice([5, 60]) * MINUTE_MS
        if world.landed and rng.random() < 0.02:
            world.delete(rng.choice(sorted(world.landed)))
        if world.landed and rng.random() < 0.01:
            world.unreadable ^= {rng.choice(sorted(world.landed))}
        world.tick()
        unfinished = [run for run in world.runs if run.status == "STARTED"]
        assert len(unfinished) <= 1
    world.kills, busy = 0, len(world.runs)
    quiet_hours(world, 60)
    bad = {str(one) for one in world.poisoned | world.lethal}
    assert world.skipped_keys == 0
    for path, which in world.unfinished():
        part = LEFT_UNREAD if which is None else str(which)
        named = {work.part for work in world.given_up()}
        assert part in named, (path, part)
        blocked = {str(d) for known, d in world.pending if known in world.unreadable}
        assert part in bad | blocked or path in world.unreadable
    for which in world.stale():
        assert which in world.rejected | world.poisoned | world.lethal
        assert str(which) in {work.part for work in world.given_up()}
    # in two and a half quiet days: bisection, then each bad day alone at doubled waits
    stuck = {which for _, which in world.unfinished()} | set(world.stale())
    assert len(world.runs) - busy <= 40 + 20 * max(1, len(stuck)) * 2, len(stuck)


def test_a_run_that_failed_after_raw_leaves_no_day_stale() -> None:
    world = World(random.Random(8))
    world.land("a", {day(n) for n in range(20)})
    world.rejected |= {day(n) for n in range(20)}
    run_ticks(world, 30)
    assert not world.unfinished()
    assert len(world.stale()) == 20
    world.rejected = {day(4)}
    world.land("b", {day(4)})
    quiet_hours(world, 10)
    assert set(world.stale()) == {day(4)}
    assert world.given_up() == {Work("clean.events", str(day(4)))}
    world.rejected.clear()
    quiet_hours(world, 26)
    assert not world.stale()
    derived = [run for run in world.runs if run.request.asset_selection is not None]
    assert derived, "derived tables are asked for alone when nothing of the raw table waits"


def test_a_request_survives_its_text() -> None:
    request = Request(
        works={Work("raw.events", "2026-01-01"): "abc", Work("raw.events_landing"): "d"},
        attempts={Work("raw.events", "2026-01-02"): Attempts(2, 1, 5, "e")},
        failures=3,
        seen_ms=17,
    )
    assert Request.from_json(request.to_json()) == request


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"works": 1}', "null"])
def test_a_text_that_is_no_request_is_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Request.from_json(text)


def test_the_key_changes_with_each_run_and_only_then() -> None:
    waits = {Work("raw.events", "2026-01-01"): "a"}
    first = decide(waits, None, 0)
    assert decide(waits, None, 10).run_key == first.run_key
    keys = {first.run_key}
    for number in range(5):
        last = Ended(str(number), first.request, False, 0, number * 10**8)
        keys.add(decide(waits, last, (number + 1) * 10**8).run_key)
    assert len(keys) == 6
