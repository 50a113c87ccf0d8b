"""What to ask for next, decided from what waits and how the last runs ended.

A source has one run at a time. What a run is to do, and what is known of earlier attempts, is
kept with the run itself (`Request.to_json` is one of its tags): a request and the count of its
attempts are written in one step, and survive a daemon that dies and a cursor that is reset.

- What was never tried is requested at once, all of it in one request.
- A request that fails is made again in halves: one bad day does not keep good ones back.
- What fails alone is requested again after a wait that doubles, from a minute to a day, or after
  five minutes when its cause has changed.
- What was never tried and what failed take turns, so that neither keeps the other waiting.
- After requests that failed one after the other nothing is requested before a pause that doubles
  up to ten minutes.
- What failed alone `GIVE_UP_AFTER` times is named as given up. It is still requested now and then:
  no wait is longer than the trouble has lasted, so what an outage broke comes back after it.

A cause that is not part of a source (a feed, a check of statements) has a run of its own, which is
requested again by the same waits (`next_attempt`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import dagster as dg
import orjson

GIVE_UP_AFTER = 8
MOST_ASKED = 500
_MINUTE_MS = 60_000
_FIRST_WAIT_MS, _LONGEST_WAIT_MS = _MINUTE_MS, 24 * 60 * _MINUTE_MS
_WAIT_AFTER_CHANGE_MS, _LONGEST_PAUSE_MS = 5 * _MINUTE_MS, 10 * _MINUTE_MS


@dataclass(frozen=True, slots=True, order=True)
class Work:
    """One thing that waits for a run.

    Attributes:
        table: that is to be written.
        part: of it, such as a day in ISO 8601; empty: the table as a whole.
    """

    table: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.table} {self.part}".strip()


@dataclass(frozen=True, slots=True)
class Attempts:
    """Failed attempts at one piece of work.

    Attributes:
        alone: runs that were to do it alone and left it waiting.
        together: how many pieces of work the last such run left waiting, this one included.
        last_ms: when that run ended, milliseconds since the epoch.
        cause: why it waited then.
    """

    alone: int
    together: int
    last_ms: int
    cause: str

    def next_ms(self, cause: str) -> int:
        """The time from which it may be requested again."""
        if not self.alone:
            return self.last_ms
        wait = doubled(self.alone, _LONGEST_WAIT_MS)
        return self.last_ms + (wait if cause == self.cause else min(wait, _WAIT_AFTER_CHANGE_MS))


@dataclass(frozen=True, slots=True)
class Request:
    """What a run is to do, and what was known of earlier attempts.

    Attributes:
        works: what it is to do -> why that waited.
        attempts: of everything that waited, but for this one.
        failures: how many requests before it failed one after the other.
        seen_ms: files that landed before were there for an earlier run to read.
    """

    works: Mapping[Work, str]
    attempts: Mapping[Work, Attempts] = field(default_factory=dict)
    failures: int = 0
    seen_ms: int = 0

    def to_json(self) -> str:
        """As text, for `from_json`."""
        return orjson.dumps(
            {
                "works": [
                    (work.table, work.part, cause) for work, cause in sorted(self.works.items())
                ],
                "attempts": [
                    (work.table, work.part, known.alone, known.together, known.last_ms, known.cause)
                    for work, known in sorted(self.attempts.items())
                ],
                "failures": self.failures,
                "seen_ms": self.seen_ms,
            }
        ).decode()

    @classmethod
    def from_json(cls, text: str) -> Request:
        """A request from its text. Raises ValueError, KeyError or TypeError for any other text."""
        document = orjson.loads(text)
        return cls(
            works={Work(table, part): cause for table, part, cause in document["works"]},
            attempts={
                Work(table, part): Attempts(*rest) for table, part, *rest in document["attempts"]
            },
            failures=int(document["failures"]),
            seen_ms=int(document["seen_ms"]),
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """How the last request ended.

    Attributes:
        run_id: of its run.
        request: what it was.
        succeeded: whether the run did.
        created_ms: when the run was created, milliseconds since the epoch.
        ended_ms: when it ended.
    """

    run_id: str
    request: Request
    succeeded: bool
    created_ms: int
    ended_ms: int

    @property
    def seen_ms(self) -> int:
        """Files that landed before were there for a run that succeeded."""
        return self.created_ms if self.succeeded else self.request.seen_ms


@dataclass(frozen=True, slots=True)
class Decision:
    """What a tick asks for, and what it leaves and why.

    Attributes:
        request: what to ask for; None: nothing now.
        run_key: of the request; the same as long as neither what waits nor the last run changes.
        left_out: what waits and is not to be touched by this request.
        given_up: what failed so often that somebody should look at it, with its attempts.
        reason: why nothing is requested, or which attempt this is.
    """

    request: Request | None
    run_key: str
    left_out: tuple[Work, ...]
    given_up: Mapping[Work, Attempts]
    reason: str


def decide(waiting: Mapping[Work, str], last: Ended | None, now_ms: int) -> Decision:
    """Choose the next request of a source of which no run is in flight.

    Args:
        waiting: what waits -> why: a name for the cause, which changes when something new has come
            that may help.
        last: the newest request; None: there never was one.
        now_ms: milliseconds since the epoch.
    """
    attempts, failures = ({}, 0) if last is None else _after(last, waiting)
    given_up = {
        work: attempt for work, attempt in attempts.items() if attempt.alone >= GIVE_UP_AFTER
    }
    pause_ms = 0 if last is None else last.ended_ms + doubled(failures, _LONGEST_PAUSE_MS)
    chosen = [] if now_ms < pause_ms else _chosen(waiting, attempts, last, now_ms)
    if not chosen:
        return Decision(None, "", (), given_up, _why_nothing(waiting, attempts, failures, pause_ms))
    request = Request(
        works={work: waiting[work] for work in chosen},
        attempts=attempts,
        failures=failures,
        seen_ms=0 if last is None else last.seen_ms,
    )
    return Decision(
        request,
        _run_key(request, last),
        tuple(sorted(attempts.keys() - request.works.keys())),
        given_up,
        _described(request, attempts),
    )


def _after(last: Ended, waiting: Mapping[Work, str]) -> tuple[dict[Work, Attempts], int]:
    """Failed attempts at what still waits, and how many requests failed one after the other."""
    works = last.request.works
    attempts = {
        work: attempt
        for work, attempt in last.request.attempts.items()
        if work in waiting and work not in works
    }
    left = [
        work
        for work, cause in works.items()
        if work in waiting and not (last.succeeded and waiting[work] != cause)
    ]
    for work in left:
        before = last.request.attempts.get(work)
        alone = (before.alone if before else 0) + (len(left) == 1)
        attempts[work] = Attempts(alone, len(left), last.ended_ms, works[work])
    done = len(left) < len(works)
    return attempts, 0 if last.succeeded and done else last.request.failures + 1


def _chosen(
    waiting: Mapping[Work, str], attempts: Mapping[Work, Attempts], last: Ended | None, now_ms: int
) -> list[Work]:
    untried = sorted(work for work in waiting if work not in attempts)[:MOST_ASKED]
    again = _again(waiting, attempts, now_ms)
    if not untried or not again or last is None:
        return untried or again
    was_untried = not (last.request.works.keys() & last.request.attempts.keys())
    return again if was_untried else untried


def _again(
    waiting: Mapping[Work, str], attempts: Mapping[Work, Attempts], now_ms: int
) -> list[Work]:
    """What failed before and may be tried again: half of what failed together, or one alone."""
    ready = {
        work: attempt
        for work, attempt in attempts.items()
        if attempt.next_ms(waiting[work]) <= now_ms
    }
    if not ready:
        return []
    first = min(ready, key=lambda work: (ready[work].last_ms, work))
    if ready[first].alone:
        return [first]
    alike = [
        work
        for work, attempt in ready.items()
        if not attempt.alone and attempt.together == ready[first].together
    ]
    return sorted(alike)[: max(1, ready[first].together // 2)]


def _run_key(request: Request, last: Ended | None) -> str:
    """A key that changes with each run: Dagster skips keys that it knows."""
    text = f"{'' if last is None else last.run_id}\n{sorted(map(str, request.works))}"
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _why_nothing(
    waiting: Mapping[Work, str], attempts: Mapping[Work, Attempts], failures: int, pause_ms: int
) -> str:
    if not waiting:
        return ""
    times = [
        attempts[work].next_ms(cause) if work in attempts else pause_ms
        for work, cause in waiting.items()
    ]
    named = ", ".join(map(str, sorted(waiting)[:3])) + (", ..." if len(waiting) > 3 else "")
    return (
        f"{named} failed before ({failures} requests one after the other): "
        f"asked for again at {clock(max(min(times), pause_ms))}"
    )


def _described(request: Request, attempts: Mapping[Work, Attempts]) -> str:
    named = ", ".join(map(str, sorted(request.works)[:3]))
    more = f" and {len(request.works) - 3} more" if len(request.works) > 3 else ""
    tried = max((attempts[work].alone for work in request.works if work in attempts), default=None)
    again = "" if tried is None else f"; tried before, {tried} times alone"
    return f"{named}{more}{again}"


def doubled(times: int, most_ms: int) -> int:
    """Nothing, a minute, two, four ... milliseconds."""
    return 0 if times < 1 else min(_FIRST_WAIT_MS << min(times - 1, 30), most_ms)


def clock(at_ms: int) -> str:
    """A time for people, UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


CAUSE_TAG = "lakehouse/cause"
"""Run tag: why the run was asked for, the same in each attempt."""


def next_attempt(
    instance: dg.DagsterInstance, cause: str, now_ms: int | None = None
) -> dg.RunRequest | dg.SkipReason:
    """The next run for a cause, with its run key and tag; none while one is in flight.

    A cause is requested once, and again when its run failed, after a wait that doubles from a
    minute to a day.

    Args:
        instance: where runs are recorded.
        cause: of the run; it changes when there is something else to do.
        now_ms: milliseconds since the epoch; None: now.
    """
    name = hashlib.blake2b(cause.encode(), digest_size=12).hexdigest()
    runs = instance.get_run_records(dg.RunsFilter(tags={CAUSE_TAG: name}))
    if runs:
        newest = runs[0].dagster_run
        if not newest.is_finished:
            return dg.SkipReason(f"run {newest.run_id} is in flight")
        if newest.status == dg.DagsterRunStatus.SUCCESS:
            return dg.SkipReason(f"run {newest.run_id} did what could be done")
        ended_ms = int((runs[0].end_time or runs[0].create_timestamp.timestamp()) * 1000)
        next_ms = Attempts(len(runs), 1, ended_ms, cause).next_ms(cause)
        if (int(time.time() * 1000) if now_ms is None else now_ms) < next_ms:
            return dg.SkipReason(
                f"run {newest.run_id} failed, the {len(runs)}. of its kind: asked for again at "
                f"{clock(next_ms)}"
            )
    return dg.RunRequest(run_key=f"{name}:{len(runs)}", tags={CAUSE_TAG: name})
