"""A simulated month of a feed that grows ten-fold: tuned unattended, untuned, laid out by hand.

`python -m benchmarks.month [--days 30] [--rows 4000] [--world WORLD]`. The clock is simulated, the
rest is real: twelve appends a day, three queries, recorded thirty times each, and at night what
Dagster's sensors would launch, by the code of its jobs: compaction in each world, tuning in one
(`tune = auto`, a budget a night). Six more appends come while the night works.
All worlds have the same events and must give the same answers. Sizes are scaled down: files aim at
256 KiB, the budget of a night is 512 KiB.

Each world may run alone and is kept; `--world report` puts together what is kept. Results are kept
at full length only.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import hashlib
import json
import os
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import lakehouse as lh
from benchmarks.month_report import TUNED, report
from benchmarks.week import temporary
from benchmarks.week_table import DAY, HOUR, START_MS, moment
from lakehouse.environment import Environment
from lakehouse.maintenance.advice.due_actions import ActionKind
from lakehouse.maintenance.compaction.compaction import CompactionResult
from lakehouse.orchestration.automation.maintenance_jobs import (
    MaintenanceRequest,
    cluster,
    compact,
    tuning,
)
from lakehouse.orchestration.automation.maintenance_sensors import actions_due, tuning_due
from lakehouse.scan.reports.listeners import silenced
from lakehouse.table.scan_reports import SCAN_REPORT_SCHEMA, TableListener
from lakehouse.tuning.adoption import HISTORY, SCANS, Adoption

RESULTS = Path(__file__).resolve().parent / "results" / "month.json"
APPENDS, NIGHT_APPENDS, GROWTH, BUDGET = 12, 6, 10, 512 << 10
PACE_SECONDS, ASKED = 0.3, 30
SCHEMA = pa.schema(
    [
        ("event_ts", pa.timestamp("us", tz="UTC")),
        ("user_id", pa.int64()),
        ("kind", pa.string()),
        ("url", pa.string()),
        ("cents", pa.int64()),
    ]
)
PROPERTIES = {
    "write.target-file-size-bytes": str(256 << 10),
    "lakehouse.maintenance.min-removable-files": "8",
}
WORLDS: dict[str, dict[str, Any]] = {
    TUNED: {"properties": {**PROPERTIES, "lakehouse.maintenance.tune": "auto"}},
    "untuned": {"properties": PROPERTIES},
    "by_hand": {
        "properties": {**PROPERTIES, "write.parquet.compression-level": "9"},
        "sort_by": ["user_id", "event_ts"],
    },
}


class Month:
    """A table on a clock of its own.

    Args:
        folder: where the warehouse goes.
        world: of WORLDS.
        rows: of the first day; the last has GROWTH times as many.
        days: length.
    """

    def __init__(self, folder: Path, world: str, rows: int, days: int) -> None:
        self.now, self.rows, self.days = START_MS, rows, days
        environment = dataclasses.replace(Environment.system(), now_ms=lambda: self.now)
        self.lake = lh.load_catalog(folder.as_uri(), environment=environment)
        self.scans = TableListener(self.lake.create_table(SCANS, SCAN_REPORT_SCHEMA))
        self.lake.add_listener(self.scans)
        self.table = self.lake.create_table("shop.events", SCHEMA, **WORLDS[world])

    def live(self, day: int) -> dict[str, Any]:
        """A day of appends, its queries, and its night beside more appends."""
        growth = GROWTH ** (day / max(1, self.days - 1))
        rows = round(self.rows * growth / (APPENDS + NIGHT_APPENDS))
        first = day * (APPENDS + NIGHT_APPENDS)
        appends = []
        for number in range(first, first + APPENDS):
            self.now += DAY // APPENDS
            appends.append(self._append(self.table, number, rows))
        asked = self._ask()
        self.scans.flush()
        night = self._night(range(first + APPENDS, first + APPENDS + NIGHT_APPENDS), rows)
        return {
            "day": day + 1,
            "rows": rows * (APPENDS + NIGHT_APPENDS),
            "append_s": [median(appends), max(appends)],
            **asked,
            **night,
        }

    def _append(self, table: lh.Table, number: int, rows: int) -> float:
        """The seconds that it took by the clock."""
        events = self._events(number, rows)
        start = time.perf_counter()
        table.refresh().append(events)
        return round(time.perf_counter() - start, 4)

    def _events(self, number: int, rows: int) -> pa.Table:
        """Of the last two hours: few users make most of them."""
        chance = np.random.default_rng([1, number])
        users = chance.zipf(1.3, rows) % 2000
        stamps = np.sort(self.now - chance.integers(0, DAY // APPENDS, rows)) * 1000
        return pa.table(
            {
                "event_ts": pa.array(stamps).cast(SCHEMA.field("event_ts").type),
                "user_id": users,
                "kind": np.array(["view", "click", "buy"])[chance.integers(0, 3, rows)],
                "url": [f"/product/{user * 7 % 400}/{user % 40}" for user in users],
                "cents": chance.integers(0, 5000, rows),
            },
            schema=SCHEMA,
        )

    def _ask(self) -> dict[str, Any]:
        """Each query is planned and recorded ASKED times; its least processor time of three."""
        answers, seconds = hashlib.sha256(), []
        for where in (
            "user_id = 42",
            f"user_id = 7 and event_ts >= '{moment(self.now - 7 * DAY)}'",
            f"event_ts >= '{moment(self.now - 6 * HOUR)}'",
        ):
            rows = self.table.refresh().scan(where).to_arrow()
            for _ in range(ASKED - 1):
                self.table.scan(where).plan()
            ordered = rows.sort_by([(name, "ascending") for name in rows.column_names])
            answers.update(json.dumps(ordered.to_pylist(), default=str).encode())
            times = []
            with silenced():
                for _ in range(3):
                    start = time.process_time()
                    self.table.scan(where).to_arrow()
                    times.append(time.process_time() - start)
            seconds.append(round(min(times), 5))
        with silenced():
            files = self.table.scan().plan().files
        return {
            "bytes": sum(file.file_size_in_bytes for file in files),
            "files": len(files),
            "query_s": seconds,
            "answers_sha256": answers.hexdigest(),
        }

    def _night(self, numbers: range, rows: int) -> dict[str, Any]:
        """What the sensors would launch, beside a writer."""
        over = threading.Event()
        appends: list[float] = []
        failures: list[Exception] = []

        def write() -> None:
            writer = self.lake.load_table(self.table.name)
            try:
                for number in numbers:
                    appends.append(self._append(writer, number, rows))
                    over.wait(PACE_SECONDS)
            except Exception as error:  # noqa: BLE001 - raised again by the thread that waits
                failures.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            worked = self._work()
        finally:
            over.set()
            thread.join()
        if failures:
            raise failures[0]
        return {**worked, "night_append_s": [median(appends), max(appends)]}

    def _work(self) -> dict[str, Any]:
        start, compacted, tuned, action = time.thread_time(), 0, 0, None
        for found in actions_due(
            self.table.refresh(), ActionKind.COMPACT, ActionKind.REWRITE_MANIFESTS
        ):
            if found.kind is ActionKind.REWRITE_MANIFESTS:
                cluster(self.table.refresh(), MaintenanceRequest())
                continue
            done = compact(self.table.refresh(), MaintenanceRequest())
            compacted += done.rewritten_bytes if isinstance(done, CompactionResult) else 0
        for _ in tuning_due(self.table.refresh()):
            found = tuning(self.table, MaintenanceRequest())
            action = found.to_dict().get("action", "tried")
            if isinstance(found, Adoption) and found.rewritten is not None:
                tuned += found.rewritten.rewritten_bytes
        return {
            "compacted_bytes": compacted,
            "tuned_bytes": tuned,
            "tuning": action,
            "night_s": round(time.thread_time() - start, 3),
        }


def world(name: str, rows: int, days: int) -> dict[str, Any]:
    """A month of one world, day by day, and the steps of its tuning."""
    with temporary() as folder:
        month = Month(folder, name, rows, days)
        measured = []
        try:
            for day in range(days):
                measured.append(month.live(day))
                print(name, json.dumps(measured[-1]), flush=True)
        finally:
            month.scans.close()
        steps = []
        if month.lake.table_exists(HISTORY):
            history = month.lake.load_table(HISTORY).scan().to_arrow().sort_by("at")
            steps = history.select(["at", "action", "why", "layout"]).to_pylist()
        return {"days": measured, "steps": [{**step, "at": str(step["at"])} for step in steps]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--rows", type=int, default=4000, help="of the first day")
    parser.add_argument("--world", choices=("all", *WORLDS, "report"), default="all")
    arguments = parser.parse_args()
    os.environ["LAKEHOUSE_REWRITE_BUDGET"] = str(BUDGET)
    scale = {"days": arguments.days, "rows_first_day": arguments.rows, "budget": BUDGET}
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    same = arguments.world != "all" and scale.items() <= kept.items()
    result: dict[str, Any] = kept if same else {"benchmark": "month", **scale}
    for name in WORLDS if arguments.world == "all" else {arguments.world} & WORLDS.keys():
        result[name] = {
            "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "load": os.getloadavg()[0],
            **world(name, arguments.rows, arguments.days),
        }
    report(result)
    if arguments.days >= 30:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
