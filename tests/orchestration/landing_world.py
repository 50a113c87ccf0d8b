"""A model of a source, its runs and Dagster's daemon, to be driven by real decisions.

Files land, change and disappear; runs are delayed, killed, fail; days and files are poisoned for a
while. What the runs do follows `docs/adr/0005-ingestion-by-ledger.md`; what the daemon does follows
Dagster: a request under a key that a run has is skipped, whatever became of that run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta

import dagster as dg

from lakehouse.ingestion.landing_ledger import LandingFile
from lakehouse.ingestion.landing_listing import landed
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.automation.attempts import Decision, Ended, Request, Work, decide
from lakehouse.orchestration.automation.landing_state import waiting
from lakehouse.orchestration.automation.run_requests import (
    RANGE_END,
    RANGE_START,
    REQUEST_TAG,
    landing_request,
    raw_op_name,
)
from tests.orchestration.conftest import EVENTS

TICK_MS = 30_000
MINUTE_MS = 60_000
FIRST_DAY = date(2026, 1, 1)
Version = tuple[str, int, int]
CLEAN = DerivedTable(
    name="clean.events",
    inputs=("raw.events",),
    transform=lambda inputs: inputs["raw.events"],
    day_column="event_ts",
)


@dataclass
class ModelRun:
    """A run as Dagster records it, and what it is going to do."""

    number: int
    request: dg.RunRequest
    created_ms: int
    ends_ms: int
    fate: str
    status: str = "STARTED"


@dataclass
class World:
    """One source over time.

    Attributes:
        rng: all chance.
        kills: share of runs that die somewhere.
        days_of: version of a file -> days that it carries.
        landed: path -> version, as it lies in the folder.
        known: path -> version, as the ledger has it.
        pending: (path, day) that the ledger calls pending.
        raw: (path, day) -> version whose lines are in the raw table.
        poisoned: days that make a run fail before it publishes.
        lethal: days that kill the process of a run.
        unreadable: paths that cannot be opened.
        rejected: days that the derived table refuses.
        clean: day -> files of the raw table that the derived table was computed from.
        outage_until_ms: every run fails before.
    """

    rng: random.Random
    kills: float = 0.0
    now_ms: int = 1_767_225_600_000
    days_of: dict[Version, frozenset[date]] = field(default_factory=dict)
    landed: dict[str, Version] = field(default_factory=dict)
    known: dict[str, Version] = field(default_factory=dict)
    pending: set[tuple[str, date]] = field(default_factory=set)
    raw: dict[tuple[str, date], Version] = field(default_factory=dict)
    poisoned: set[date] = field(default_factory=set)
    lethal: set[date] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)
    rejected: set[date] = field(default_factory=set)
    clean: dict[date, frozenset[Version]] = field(default_factory=dict)
    outage_until_ms: int = 0
    peeks: bool = False
    runs: list[ModelRun] = field(default_factory=list)
    skipped_keys: int = 0
    decision: Decision | None = None
    serial: int = 0

    # What happens to the landing folder

    def land(self, path: str, days: set[date], *, modified_ms: int | None = None) -> None:
        self.serial += 1
        version = (path, self.serial, self.now_ms if modified_ms is None else modified_ms)
        self.days_of[version] = frozenset(days)
        self.landed[path] = version

    def delete(self, path: str) -> None:
        del self.landed[path]

    # What the sensor sees

    def file(self, version: Version) -> LandingFile:
        return LandingFile(*version)

    def state(self, seen_ms: int) -> dict[Work, str]:
        unread = [self.file(v) for path, v in self.landed.items() if self.known.get(path) != v]
        pending = [(self.file(self.known[path]), day) for path, day in self.pending]
        newest_first = sorted(pending, key=lambda one: (one[0].modified_ms, one[0]), reverse=True)
        oldest: dict[date | None, LandingFile] = {day: file for file, day in newest_first}
        stale = {
            Work(CLEAN.name, str(day)): str(hash(files)) for day, files in self.stale().items()
        }
        # of an unreadable file no day is known
        ahead = {
            day
            for file in unread
            if self.peeks and file.path not in self.unreadable
            for day in self.days_of[file.path, file.size_bytes, file.modified_ms]
        }
        return waiting(EVENTS, landed(unread), oldest.items(), seen_ms, ahead) | stale

    def stale(self) -> dict[date, frozenset[Version]]:
        """Derived days that do not follow from the raw table -> what they should follow from."""
        raw: dict[date, set[Version]] = {day: set() for day in self.clean}
        for (_, day), version in self.raw.items():
            raw.setdefault(day, set()).add(version)
        return {
            day: frozenset(files)
            for day, files in raw.items()
            if frozenset(files) != self.clean.get(day, frozenset())
        }

    def last(self) -> Ended | None:
        if not self.runs:
            return None
        run = self.runs[-1]
        request = Request.from_json(run.request.tags[REQUEST_TAG])
        return Ended(str(run.number), request, run.status == "SUCCESS", run.created_ms, run.ends_ms)

    def tick(self, passed_ms: int = TICK_MS) -> None:
        """One tick of the daemon."""
        self.now_ms += passed_ms
        for run in self.runs[-1:]:
            if run.status == "STARTED" and self.now_ms >= run.ends_ms:
                self.carry_out(run)
        if any(run.status == "STARTED" for run in self.runs[-1:]):
            return
        last = self.last()
        self.decision = decide(self.state(0 if last is None else last.seen_ms), last, self.now_ms)
        if self.decision.request is None:
            return
        request = landing_request(EVENTS, [CLEAN], self.decision)
        if any(run.request.run_key == request.run_key for run in self.runs):
            self.skipped_keys += 1
            return
        seconds = self.rng.choice([1, 20, 70, 300])
        fate = "killed" if self.rng.random() < self.kills else "runs"
        self.runs.append(
            ModelRun(len(self.runs), request, self.now_ms, self.now_ms + seconds * 1000, fate)
        )

    # What a run does

    def carry_out(self, run: ModelRun) -> None:
        """All of a run at the moment when it ends; one that is killed stops somewhere."""
        steps = list(self.steps_of(run))
        if run.fate == "killed":
            steps = steps[: self.rng.randrange(len(steps))]
        run.status = "FAILURE" if run.fate == "killed" else "SUCCESS"
        for step in steps:
            if self.now_ms < self.outage_until_ms or not step():
                run.status = "FAILURE"
                return

    def steps_of(self, run: ModelRun) -> Iterator[Callable[[], bool]]:
        request = run.request
        if request.asset_selection is None:
            yield self.index
        if request.job_name == "ingest_events":
            if request.asset_selection is None:
                yield self.settle_deleted
                yield lambda: self.ingest(request)
            yield lambda: self.refresh(request)

    def index(self) -> bool:
        for path, version in self.landed.items():
            if self.known.get(path) == version or path in self.unreadable:
                continue
            earlier = {day for known, day in self.raw if known == path}
            earlier |= {day for known, day in self.pending if known == path}
            self.known[path] = version
            self.pending = {one for one in self.pending if one[0] != path}
            self.pending |= {(path, day) for day in self.days_of[version] | earlier}
        return True

    def settle_deleted(self) -> bool:
        self.pending = {one for one in self.pending if one[0] in self.landed}
        return True

    def ingest(self, request: dg.RunRequest) -> bool:
        days_of_run = self.days_of_run(request, raw_op_name("events"))
        wanted = {(path, day) for path, day in self.pending if day in days_of_run}
        days = {day for _, day in wanted}
        if days & (self.poisoned | self.lethal):
            return False
        changed = {d for p, d in wanted if self.landed.get(p) != self.known[p]}
        for path, day in wanted:
            if day in changed:
                continue  # left as it is: the file changed since it was indexed
            self.pending.discard((path, day))
            if day in self.days_of[self.known[path]]:
                self.raw[path, day] = self.known[path]
            else:
                self.raw.pop((path, day), None)
        return not changed

    def refresh(self, request: dg.RunRequest) -> bool:
        days = self.stale().keys() & self.days_of_run(request, CLEAN.op_name)
        if days & self.rejected:
            return False
        self.clean |= {day: files for day, files in self.stale().items() if day in days}
        return True

    def days_of_run(self, request: dg.RunRequest, op: str) -> set[date]:
        first = date.fromisoformat(request.tags[RANGE_START])
        last = date.fromisoformat(request.tags[RANGE_END])
        leave = request.run_config["ops"][op]["config"]["leave"]
        days = {first + timedelta(days=n) for n in range((last - first).days + 1)}
        return {day for day in days if str(day) not in leave}

    # What must hold

    def unfinished(self) -> set[tuple[str, date | None]]:
        """What landed, still lies there and is not in the raw table."""
        missing: set[tuple[str, date | None]] = set()
        for path, version in self.landed.items():
            if path in self.unreadable and self.known.get(path) != version:
                missing.add((path, None))
                continue
            for day in self.days_of[version]:
                if self.raw.get((path, day)) != version:
                    missing.add((path, day))
        return missing

    def given_up(self) -> set[Work]:
        return set(self.decision.given_up) if self.decision else set()


def day(number: int) -> date:
    """A day by its number."""
    return FIRST_DAY + timedelta(days=number)
