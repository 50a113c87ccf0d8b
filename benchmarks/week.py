"""A simulated week of one table, with the maintenance that sensors launch, and without.

`python -m benchmarks.week [--every 1] [--days 7] [--part PART]`. The clock is simulated, everything
else is real: an increment a minute into the partitions of the day, every ten minutes with late
events of up to three days ago; a merge-on-read delete every six hours; columns added, renamed and
dropped; another partition spec from the fourth day on; what is older than three days is deleted at
midnight, so that both worlds hold as much at the end as after a day. With maintenance, every minute
the code of Dagster's sensors (`maintenance_sensors`) is asked what is due and that of its jobs
(`maintenance_jobs`) does it. Sizes are scaled down: 60 rows an increment, data files aim at 64 KiB.

Both worlds see the same events. Every three hours both answer the same queries, at the end all rows
are added up, and the answers must be the same. The maintained one computes each answer again
while its snapshot is kept: three hours later, and at the end by a tag a day. Every hour (without
maintenance every eight): files, partitions, manifests, metadata size, and the processor time in
which a new process opens the table and plans two queries (nothing cached).

Then the same week for the advisor, with increments every ten minutes: one compaction of one
partition every twenty minutes, chosen by it, by chance, or in turn; files removed per GB rewritten.

The warehouse is in memory (/dev/shm) where there is such a place: without maintenance a week is
10,080 manifest lists, the last of which have thousands of rows, and how fast a disk takes them is
not what is compared. Each part may run alone and is kept; `report` puts together what is kept and
draws docs/images/week.png. Results are kept at full length only.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import hashlib
import json
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

import lakehouse as lh
from benchmarks.week_report import WORLDS, draw, report
from benchmarks.week_table import HOUR, NAME, Week
from lakehouse.maintenance.advice.advice import Choice
from lakehouse.maintenance.advice.due_actions import ActionKind
from lakehouse.maintenance.advice.table_survey import advise_table
from lakehouse.maintenance.compaction.compaction import CompactionResult
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from lakehouse.orchestration.automation.maintenance_jobs import (
    PROJECT_POLICY,
    MaintenanceRequest,
    cluster,
    compact,
    expire,
)
from lakehouse.orchestration.automation.maintenance_sensors import actions_due, expiry_due
from lakehouse.scan.planner import plan_scan
from lakehouse.table import Table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "week.json"
PICTURE = ROOT / "docs" / "images" / "week.png"
SAMPLE_MINUTE, ASK_MINUTES, ADVISOR_EVERY = 37, 180, 10


@dataclasses.dataclass(frozen=True)
class Question:
    """What was asked at a moment, so that it can be asked again.

    Attributes:
        price: name of the price column then.
        since: of the events that are counted by region, and of those of one user.
    """

    price: str
    since: str

    def answer(self, table: Table, snapshot_id: int | None = None) -> list[Any]:
        """Events, users and prices by region since a moment; every event of one user since then."""
        select = ["event_ts", "region", "user_id", self.price]
        recent = table.scan(
            f"event_ts >= '{self.since}'", select=select, snapshot_id=snapshot_id
        ).to_arrow()
        wanted = [("user_id", "count"), ("user_id", "sum"), (self.price, "sum")]
        totals = recent.group_by("region").aggregate(wanted).sort_by("region")
        user = table.scan(
            f"user_id = 42 and event_ts >= '{self.since}'", select=select, snapshot_id=snapshot_id
        ).to_arrow()
        rows = user.sort_by([("event_ts", "ascending"), (self.price, "ascending")])
        return [
            *(column.to_pylist() for column in totals.columns),
            str(rows["event_ts"].to_pylist()),
            rows[self.price].to_pylist(),
        ]


class Analyst:
    """Queries every three hours, before and after maintenance, at kept snapshots; a daily tag."""

    def __init__(self) -> None:
        self.answers = hashlib.sha256()
        self.asked = self.asked_again = 0
        self._kept: dict[int, tuple[Question, list[Any]]] = {}
        self._now: tuple[Question, list[Any]] | None = None

    def before(self, week: Week, minute: int) -> None:
        """Ask, when it is time to."""
        self._now = None
        if minute % ASK_MINUTES != ASK_MINUTES - 1:
            return
        question = Question(week.price, week.ago(HOUR))
        self._now = (question, question.answer(week.table.refresh()))
        self.answers.update(json.dumps(self._now[1]).encode())
        self.asked += 1
        snapshot_id = week.table.metadata.current_snapshot_id
        assert snapshot_id is not None
        self._kept[snapshot_id] = self._now
        if minute % 1440 == 1439:
            week.table.create_tag(f"day-{minute // 1440}", snapshot_id)

    def after(self, week: Week, minute: int) -> None:
        """Ask again: now, three hours ago, and as long ago as a snapshot is kept."""
        if self._now is None:
            return
        table = week.table.refresh()
        assert self._now[0].answer(table) == self._now[1], (
            f"maintenance changed an answer in minute {minute}"
        )
        self._kept = {
            snapshot_id: answer
            for snapshot_id, answer in self._kept.items()
            if table.metadata.snapshot_or_none(snapshot_id) is not None
        }
        for snapshot_id in {*list(self._kept)[:1], *list(self._kept)[-2:-1]}:
            self.again(table, snapshot_id)
        self.asked_again += 1

    def again(self, table: Table, snapshot_id: int) -> None:
        """What was asked at a snapshot must be answered alike."""
        question, answer = self._kept[snapshot_id]
        assert question.answer(table, snapshot_id) == answer, (
            f"another answer at snapshot {snapshot_id}"
        )
        self.asked_again += 1

    def at_tags(self, week: Week) -> None:
        """Ask again at every tag."""
        table = week.table.refresh()
        for name, ref in table.refs().items():
            if name != "main":
                self.again(table, ref.snapshot_id)


class Sensors:
    """What the sensors would launch, done at once."""

    def __init__(self) -> None:
        self.runs: dict[str, int] = {}
        self.rewritten = 0

    def __call__(self, week: Week, _minute: int) -> None:
        for action in actions_due(
            week.table.refresh(), ActionKind.COMPACT, ActionKind.REWRITE_MANIFESTS
        ):
            if action.kind is ActionKind.COMPACT:
                report = compact(
                    week.table, MaintenanceRequest(partitions=frozenset(action.partitions) or None)
                )
                self.rewritten += (
                    report.rewritten_bytes if isinstance(report, CompactionResult) else 0
                )
            else:
                cluster(week.table.refresh(), MaintenanceRequest())
            self._ran(action.kind)
        for _ in expiry_due(week.table.refresh()):
            expire(week.table, MaintenanceRequest())
            self._ran("expire")
        week.table.refresh()

    def _ran(self, job: str) -> None:
        self.runs[job] = self.runs.get(job, 0) + 1


class Chooser:
    """Compacts a partition every twenty minutes, manifests and snapshots every six hours.

    The rest is left alone.
    """

    def __init__(self, choose: Callable[[Sequence[Choice], int, random.Random], Choice]) -> None:
        self._choose, self._chance, self._turn = choose, random.Random(11), 0
        self.removed = self.rewritten = self.compactions = 0

    def __call__(self, week: Week, minute: int) -> None:
        if minute % (2 * ADVISOR_EVERY) != 2 * ADVISOR_EVERY - 1:
            return
        table = week.table.refresh()
        if minute % 360 == 359:
            cluster(table, MaintenanceRequest())
            expire(table.refresh(), MaintenanceRequest())
            table.refresh()
        advice = advise_table(
            table.catalog, table.identifier, environment=week.environment, project=PROJECT_POLICY
        )
        choices = [choice for choice in advice.choices if choice.kind is ActionKind.COMPACT]
        if not choices:
            return
        chosen = self._choose(choices, self._turn, self._chance)
        self._turn += 1
        report = compact(
            table.refresh(), MaintenanceRequest(partitions=frozenset({chosen.partition}))
        )
        if isinstance(report, CompactionResult):
            self.removed += (
                report.rewritten_files + report.removed_delete_files - report.added_files
            )
            self.rewritten += report.rewritten_bytes
            self.compactions += 1


def advised(choices: Sequence[Choice], _turn: int, _chance: random.Random) -> Choice:
    return choices[0]


def by_chance(choices: Sequence[Choice], _turn: int, chance: random.Random) -> Choice:
    return chance.choice(sorted(choices, key=lambda choice: choice.partition))


def in_turn(choices: Sequence[Choice], turn: int, _chance: random.Random) -> Choice:
    ordered = sorted(choices, key=lambda choice: choice.partition)
    return ordered[turn % len(ordered)]


CHOICES = {"advised": advised, "by_chance": by_chance, "in_turn": in_turn}


class Observer:
    """A sample every few hours.

    Args:
        hours: between samples.
    """

    def __init__(self, hours: int) -> None:
        self.samples: list[dict[str, Any]] = []
        self._hours = hours

    def __call__(self, week: Week, minute: int) -> None:
        hour = (minute + 1) // 60
        if minute % 1440 == 1439:
            print(f"day {hour // 24}: {self.samples[-1]}", file=sys.stderr, flush=True)
        if minute % 60 != SAMPLE_MINUTE or hour % self._hours:
            return
        table = week.table.refresh()
        health = table.health()
        snapshot = table.current_snapshot()
        assert snapshot is not None
        listed = table.storage.size(snapshot.manifest_list)
        sample = {
            "hour": round((minute + 1) / 60, 2),
            "partitions": len(health.partitions),
            "data_files": health.data_files,
            "delete_files": health.delete_files,
            "manifests": health.manifests,
            "snapshots": health.snapshots,
            "metadata_bytes": health.metadata_bytes + listed + health.manifest_bytes,
        }
        sample["planning_ms"] = round(1000 * planning(week), 2)
        self.samples.append(sample)


def fingerprint(week: Week) -> dict[str, list[int]]:
    """Rows, sum of users and of prices by region and day."""
    rows = (
        week.table.refresh().scan(select=["event_ts", "region", "user_id", week.price]).to_arrow()
    )
    keyed = rows.append_column("day", pc.strftime(rows["event_ts"], "%Y-%m-%d"))
    sums = keyed.group_by(["day", "region"]).aggregate(
        [("user_id", "count"), ("user_id", "sum"), (week.price, "sum")]
    )
    names = ["user_id_count", "user_id_sum", f"{week.price}_sum"]
    return {
        f"{row['day']} {row['region']}": [row[name] for name in names] for row in sums.to_pylist()
    }


def planning(week: Week) -> float:
    """Processor seconds to open the table and plan the queries, uncached; best of two if quick."""
    best = float("inf")
    for _ in range(2):
        DEFAULT_CACHE.clear()
        start = time.process_time()
        table = lh.load_catalog(week.folder.as_uri()).load_table(NAME)
        for where in week.queries():
            assert len(plan_scan(table.scan(where).request, table.storage, cache=None).files) >= 0
        best = min(best, time.process_time() - start)
        if best > 1:
            break
    return best


def world(name: str, every: int, days: float) -> dict[str, Any]:
    """A week with maintenance or without."""
    maintained = name == "maintained"
    sensors, analyst, observer = Sensors(), Analyst(), Observer(1 if maintained else 8)
    with temporary() as folder:
        started = time.perf_counter()
        week = Week(folder, every, days)
        then = (sensors, analyst.after) if maintained else ()
        week.run(analyst.before, *then, observer)
        analyst.at_tags(week)
        rows = fingerprint(week)
        return {
            "samples": observer.samples,
            "runs": sensors.runs,
            "rewritten_bytes": sensors.rewritten,
            "disk_bytes": sum(file.size for file in week.table.storage.list(week.table.location)),
            "rows": sum(row[0] for row in rows.values()),
            "rows_sha256": hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest(),
            "answers": analyst.asked,
            "answers_sha256": analyst.answers.hexdigest(),
            "asked_again": analyst.asked_again,
            "seconds": round(time.perf_counter() - started, 1),
        }


def chosen(name: str, every: int, days: float) -> dict[str, Any]:
    """A week in which one partition an hour is compacted."""
    chooser = Chooser(CHOICES[name])
    with temporary() as folder:
        week = Week(folder, max(every, ADVISOR_EVERY), days)
        week.run(chooser)
        return {
            "compactions": chooser.compactions,
            "files_removed": chooser.removed,
            "bytes_rewritten": chooser.rewritten,
            "files_removed_per_gb": round(chooser.removed / max(1, chooser.rewritten) * 1e9),
            "files_left": week.table.refresh().health().data_files,
        }


@contextmanager
def temporary() -> Iterator[Path]:
    memory = Path("/dev/shm")  # noqa: S108 - a place in memory, and a folder of a random name in it
    path = Path(
        tempfile.mkdtemp(
            prefix="lakehouse-week-", dir=memory if os.access(memory, os.W_OK) else None
        )
    )
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="minutes between increments")
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--part", choices=("all", *WORLDS, *CHOICES, "report"), default="all")
    arguments = parser.parse_args()
    parts = (
        [*WORLDS, *CHOICES]
        if arguments.part == "all"
        else []
        if arguments.part == "report"
        else [arguments.part]
    )
    measured: dict[str, Any] = {}
    for name in parts:
        if name in WORLDS:
            measured[name] = world(name, arguments.every, arguments.days)
            print(
                name,
                measured[name]["rows"],
                "rows,",
                measured[name]["samples"][-1:],
                measured[name]["seconds"],
                "s",
                flush=True,
            )
        else:
            measured[name] = chosen(name, arguments.every, arguments.days)
            print(name, measured[name], flush=True)
    earlier = (
        json.loads(RESULTS.read_text())
        if arguments.part != "all" and arguments.days >= 7 and RESULTS.exists()
        else {}
    )
    result: dict[str, Any] = earlier if earlier.get("every_minutes") == arguments.every else {}
    result |= {
        "benchmark": "week",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpus": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
        },
        "versions": {name: version(name) for name in ("pyarrow", "numpy")},
        "every_minutes": arguments.every,
        "days": arguments.days,
        **{name: result for name, result in measured.items() if name in WORLDS},
        "advisor": {
            **result.get("advisor", {}),
            **{name: result for name, result in measured.items() if name in CHOICES},
        },
    }
    report(result)
    if arguments.days >= 7:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
        if all(name in result for name in WORLDS):
            draw(result, PICTURE)


if __name__ == "__main__":
    main()
