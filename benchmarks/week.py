"""A simulated week of one table, with the maintenance that the sensors would launch and without any.

`python -m benchmarks.week [--every 15] [--days 7] [--part PART]`. The clock is simulated, everything else is real: an increment
every few minutes into several partitions, some of it late by up to three days, a merge-on-read delete every six hours, columns
added, renamed and dropped, a partition spec that changes on the sixth day, queries. With maintenance, every half hour
`sensors.maintenance` is asked what is due and `jobs.maintenance` does it: the code that runs in Dagster, without its daemon.
Sizes are scaled down by a thousand: data files aim at 64 KiB.

Both weeks see the same events and must end with the same rows. Every six hours: files, manifests, metadata size, and the time
in which a new process opens the table and plans two queries (nothing cached). Then the same week for the advisor: one
compaction of one partition an hour, chosen by it, by chance, or in turn; files removed per GB rewritten.

Each part may run alone and is kept; `report` puts together what is kept and draws docs/images/week.png. Results are kept at
full length only.
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
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakehouse as lh
from jobs.maintenance import PROJECT_POLICY, Request, cluster, compact, expire
from lakehouse.environment import Environment
from lakehouse.maintenance.advisor import Choice
from lakehouse.maintenance.compaction import CompactionResult
from lakehouse.maintenance.decision import ActionKind
from lakehouse.maintenance.survey import advise_table
from lakehouse.scan.planner import plan_scan
from sensors.maintenance import actions_due, expiry_due

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "week.json"
PICTURE = ROOT / "docs" / "images" / "week.png"
NAME = "shop.events"
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
START = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
ROWS, LATE = 300, 0.04
REGIONS = ["north", "south", "east", "islands"]
WEIGHTS = np.array([0.6, 0.3, 0.09, 0.01])
TICK_MINUTES, SAMPLE_MINUTES = 30, 360
PROPERTIES = {
    "write.target-file-size-bytes": str(64 << 10),
    "write.delete.mode": "merge-on-read",
    # streaming writers append a manifest each; metadata files are no part of the comparison, so both weeks drop old ones
    "commit.manifest-merge.enabled": "false",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "history.expire.max-snapshot-age-ms": str(DAY),
    "lakehouse.maintenance.min-expirable-snapshots": "30",
    "lakehouse.maintenance.min-removable-files": "24",
    "lakehouse.maintenance.max-manifests": "60",
}
SCHEMA = pa.schema(
    [("event_ts", pa.timestamp("us", tz="UTC")), ("region", pa.string()), ("user_id", pa.int64()), ("cents", pa.int64())]
)


class Week:
    """A table on a clock of its own.

    Args:
        folder: where the warehouse goes.
        every: minutes between increments.
        days: length.
    """

    def __init__(self, folder: Path, every: int, days: float) -> None:
        self.folder, self.every, self.minutes = folder, every, round(days * 1440)
        self.now = round(START.timestamp() * 1000)
        chance = random.Random(7)
        self.environment = dataclasses.replace(
            Environment.system(), now_ms=lambda: self.now, random=chance.random, sleep=lambda _seconds: None
        )
        lake = lh.load_catalog(folder.as_uri(), environment=self.environment)
        self.table = lake.create_table(NAME, SCHEMA, partition_by=["day(event_ts)", "region"], properties=PROPERTIES)
        self.price, self.device = "cents", False

    def run(self, maintain: Callable[[Week, int], None], observe: Callable[[Week, int], None]) -> None:
        """Live through it; `maintain` and `observe` are told of every minute."""
        for minute in range(self.minutes):
            self.now += MINUTE
            self._evolve(minute)
            if minute % self.every == 0:
                self.table.refresh().append(self._increment(minute))
            if minute % 360 == 359:
                victim = int(np.random.default_rng([3, minute]).integers(0, 500))
                self.table.delete(f"user_id = {victim} and event_ts >= '{self._ago(2 * DAY)}'")
            maintain(self, minute)
            observe(self, minute)

    def queries(self) -> tuple[str, ...]:
        """What is asked: recent events, and one user."""
        return (
            f"event_ts >= '{self._ago(HOUR)}'",
            f"user_id = 42 and {self.price} > 4900",
        )

    def fingerprint(self) -> dict[str, list[int]]:
        """Rows, sum of users and of prices by region and day."""
        rows = self.table.refresh().scan(select=["event_ts", "region", "user_id", self.price]).to_arrow()
        keyed = rows.append_column("day", pc.strftime(rows["event_ts"], "%Y-%m-%d"))
        found = keyed.group_by(["day", "region"]).aggregate([("user_id", "count"), ("user_id", "sum"), (self.price, "sum")])
        names = ["user_id_count", "user_id_sum", f"{self.price}_sum"]
        return {f"{one['day']} {one['region']}": [one[name] for name in names] for one in found.to_pylist()}

    def _increment(self, minute: int) -> pa.Table:
        chance = np.random.default_rng([1, minute])
        late = np.where(
            chance.random(ROWS) < LATE, chance.integers(0, 3 * DAY, ROWS), chance.integers(0, self.every * MINUTE, ROWS)
        )
        stamps = np.maximum(self.now - late, round(START.timestamp() * 1000) - 3 * DAY)
        columns = {
            "event_ts": pa.array(stamps * 1000).cast(pa.timestamp("us", tz="UTC")),
            "region": pa.array([REGIONS[one] for one in chance.choice(len(REGIONS), ROWS, p=WEIGHTS)]),
            "user_id": pa.array(chance.integers(0, 500, ROWS)),
            self.price: pa.array(chance.integers(0, 5000, ROWS)),
        }
        if self.device:
            columns["device"] = pa.array([f"device {one}" for one in chance.integers(0, 9, ROWS)])
        return pa.table(columns)

    def _evolve(self, minute: int) -> None:
        day = minute / self.minutes * 7
        before = (minute - 1) / self.minutes * 7
        if before < 1 <= day:
            with self.table.refresh().update_schema() as update:
                update.add_column("device", "string")
            self.device = True
        elif before < 2 <= day:
            with self.table.refresh().update_schema() as update:
                update.rename_column("cents", "price")
            self.price = "price"
        elif before < 4 <= day:
            with self.table.refresh().update_schema() as update:
                update.drop_column("device")
            self.device = False
        elif before < 5 <= day:
            with self.table.refresh().update_partition_spec() as spec:
                spec.replace("region", "bucket(4, user_id)")

    def _ago(self, milliseconds: int) -> str:
        return dt.datetime.fromtimestamp((self.now - milliseconds) / 1000, dt.UTC).isoformat(timespec="microseconds")


class Sensors:
    """What the sensors would launch, done at once."""

    def __init__(self) -> None:
        self.runs: dict[str, int] = {}
        self.rewritten = 0

    def __call__(self, week: Week, minute: int) -> None:  # noqa: D102 - see the class
        if minute % TICK_MINUTES:
            return
        for action in actions_due(week.table.refresh(), ActionKind.COMPACT, ActionKind.REWRITE_MANIFESTS):
            if action.kind is ActionKind.COMPACT:
                report = compact(week.table, Request(partitions=frozenset(action.partitions) or None))
                self.rewritten += report.rewritten_bytes if isinstance(report, CompactionResult) else 0
            else:
                cluster(week.table.refresh(), Request())
            self._ran(action.kind)
        for _ in expiry_due(week.table.refresh()):
            expire(week.table, Request())
            self._ran("expire")
        week.table.refresh()

    def _ran(self, job: str) -> None:
        self.runs[job] = self.runs.get(job, 0) + 1


class Chooser:
    """One compaction of one partition an hour, and an expiry every six, the rest left alone."""

    def __init__(self, choose: Callable[[Sequence[Choice], int, random.Random], Choice]) -> None:
        self._choose, self._chance, self._turn = choose, random.Random(11), 0
        self.removed = self.rewritten = self.compactions = 0

    def __call__(self, week: Week, minute: int) -> None:  # noqa: D102 - see the class
        if minute % 60 != 59:
            return
        table = week.table.refresh()
        if minute % 360 == 359:
            expire(table, Request())
        advice = advise_table(table.catalog, table.identifier, environment=week.environment, project=PROJECT_POLICY)
        choices = [one for one in advice.choices if one.kind is ActionKind.COMPACT]
        if not choices:
            return
        chosen = self._choose(choices, self._turn, self._chance)
        self._turn += 1
        report = compact(table.refresh(), Request(partitions=frozenset({chosen.partition})))
        if isinstance(report, CompactionResult):
            self.removed += report.rewritten_files + report.removed_delete_files - report.added_files
            self.rewritten += report.rewritten_bytes
            self.compactions += 1


def advised(choices: Sequence[Choice], _turn: int, _chance: random.Random) -> Choice:
    return choices[0]


def by_chance(choices: Sequence[Choice], _turn: int, chance: random.Random) -> Choice:
    return chance.choice(sorted(choices, key=lambda one: one.partition))


def in_turn(choices: Sequence[Choice], turn: int, _chance: random.Random) -> Choice:
    ordered = sorted(choices, key=lambda one: one.partition)
    return ordered[turn % len(ordered)]


CHOICES = {"advised": advised, "by_chance": by_chance, "in_turn": in_turn}
WORLDS = ("maintained", "unmaintained")


class Observer:
    """A sample every six hours."""

    def __init__(self) -> None:
        self.samples: list[dict[str, Any]] = []

    def __call__(self, week: Week, minute: int) -> None:  # noqa: D102 - see the class
        if minute % SAMPLE_MINUTES != SAMPLE_MINUTES - 1:
            return
        table = week.table.refresh()
        found = table.health()
        snapshot = table.current_snapshot()
        assert snapshot is not None
        listed = table.storage.size(snapshot.manifest_list)
        self.samples.append(
            {
                "hour": (minute + 1) // 60,
                "data_files": found.data_files,
                "delete_files": found.delete_files,
                "manifests": found.manifests,
                "snapshots": found.snapshots,
                "metadata_bytes": found.metadata_bytes + listed + found.manifest_bytes,
                "planning_ms": round(1000 * planning(week), 2),
            }
        )


def planning(week: Week) -> float:
    """Processor seconds to open the table and plan the queries with nothing cached; the better of two."""
    best = float("inf")
    for _ in range(2):
        start = time.process_time()
        table = lh.load_catalog(week.folder.as_uri()).load_table(NAME)
        for where in week.queries():
            assert len(plan_scan(table.scan(where).request, table.storage, cache=None).files) >= 0
        best = min(best, time.process_time() - start)
    return best


def nothing(_week: Week, _minute: int) -> None:
    """No maintenance."""


def world(name: str, every: int, days: float) -> dict[str, Any]:
    """A week with maintenance or without."""
    sensors, observer = Sensors(), Observer()
    with temporary() as folder:
        started = time.perf_counter()
        week = Week(folder, every, days)
        week.run(sensors if name == "maintained" else nothing, observer)
        rows = week.fingerprint()
        return {
            "samples": observer.samples,
            "runs": sensors.runs,
            "rewritten_bytes": sensors.rewritten,
            "disk_bytes": sum(one.size for one in week.table.storage.list(week.table.location)),
            "rows": sum(one[0] for one in rows.values()),
            "rows_sha256": hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest(),
            "seconds": round(time.perf_counter() - started, 1),
        }


def chosen(name: str, every: int, days: float) -> dict[str, Any]:
    """A week in which one partition an hour is compacted."""
    chooser = Chooser(CHOICES[name])
    with temporary() as folder:
        week = Week(folder, every, days)
        week.run(chooser, nothing)
        return {
            "compactions": chooser.compactions,
            "files_removed": chooser.removed,
            "bytes_rewritten": chooser.rewritten,
            "files_removed_per_gb": round(chooser.removed / max(1, chooser.rewritten) * 1e9),
            "files_left": week.table.refresh().health().data_files,
        }


@contextmanager
def temporary() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="lakehouse-week-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def draw(result: dict[str, Any], picture: Path) -> None:
    """Both weeks beside each other."""
    from matplotlib import pyplot  # noqa: ICN001, PLC0415 - needed here alone, and slow to import

    panels = (
        ("data_files", "data files", 1),
        ("manifests", "manifests", 1),
        ("metadata_bytes", "metadata of the current version, MB", 1e6),
        ("planning_ms", "planning two queries, ms of processor time", 1),
    )
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 6.5), layout="constrained")
    for axis, (key, title, unit) in zip(axes.flat, panels, strict=True):
        for name, colour in (("unmaintained", "#c2410c"), ("maintained", "#1d4ed8")):
            samples = result[name]["samples"]
            axis.plot(
                [one["hour"] / 24 for one in samples], [one[key] / unit for one in samples], color=colour, label=name, lw=1.4
            )
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("day", fontsize=8)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.25)
    axes.flat[0].legend(fontsize=9, frameon=False)
    figure.suptitle(f"One table, one week: an increment every {result['every_minutes']} minutes", fontsize=11)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110)


def flatness(samples: Sequence[dict[str, Any]], key: str) -> float:
    """Mean of the last day against that of the second."""

    def mean(part: Sequence[dict[str, Any]]) -> float:
        return sum(one[key] for one in part) / max(1, len(part))

    day = max(1, len(samples) // 7)
    return round(mean(samples[-day:]) / max(1e-9, mean(samples[day : 2 * day])), 2)


def report(result: dict[str, Any]) -> None:
    """Put the parts together; fails when the two weeks differ in a row."""
    keys = ("data_files", "manifests", "metadata_bytes", "planning_ms")
    if all(name in result for name in WORLDS):
        assert result["maintained"]["rows_sha256"] == result["unmaintained"]["rows_sha256"], "maintenance changed rows"
        result["last_day_against_second"] = {
            name: {key: flatness(result[name]["samples"], key) for key in keys} for name in WORLDS
        }
        last = {name: result[name]["samples"][-1] for name in WORLDS}
        result["times_better_at_the_end"] = {key: round(last["unmaintained"][key] / last["maintained"][key], 1) for key in keys}
    advisor = result.get("advisor", {})
    if all(name in advisor for name in CHOICES):
        first = advisor["advised"]["files_removed_per_gb"]
        result["advisor_times_better"] = {
            name: round(first / max(1, advisor[name]["files_removed_per_gb"]), 2) for name in ("by_chance", "in_turn")
        }
    for key in ("last_day_against_second", "times_better_at_the_end", "advisor_times_better"):
        print(key, json.dumps(result.get(key)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=15, help="minutes between increments")
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--part", choices=("all", *WORLDS, *CHOICES, "report"), default="all")
    arguments = parser.parse_args()
    parts = [*WORLDS, *CHOICES] if arguments.part == "all" else [] if arguments.part == "report" else [arguments.part]
    result = json.loads(RESULTS.read_text()) if arguments.part != "all" and RESULTS.exists() else {}
    result |= {
        "benchmark": "week",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version()},
        "versions": {name: version(name) for name in ("pyarrow", "numpy")},
        "every_minutes": arguments.every,
        "days": arguments.days,
    }
    for name in parts:
        if name in WORLDS:
            result[name] = world(name, arguments.every, arguments.days)
            print(name, result[name]["rows"], "rows,", result[name]["samples"][-1:], result[name]["seconds"], "s", flush=True)
        else:
            result.setdefault("advisor", {})[name] = chosen(name, arguments.every, arguments.days)
            print(name, result["advisor"][name], flush=True)
    report(result)
    if arguments.days >= 7:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
        if all(name in result for name in WORLDS):
            draw(result, PICTURE)


if __name__ == "__main__":
    main()
