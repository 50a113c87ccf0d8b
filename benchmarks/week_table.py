"""The table of the week: what is written into it, minute by minute."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakehouse as lh
from lakehouse.environment import Environment

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
ROWS, LATE_ROWS, LATE_EVERY, KEEP_DAYS = 60, 24, 10, 3
NAME = "shop.events"
START = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
REGIONS = ["north", "south", "east", "islands"]
WEIGHTS = np.array([0.6, 0.3, 0.09, 0.01])
START_MS = round(START.timestamp() * 1000)
PROPERTIES = {
    "write.target-file-size-bytes": str(64 << 10),
    "write.delete.mode": "merge-on-read",
    # streaming writers append a manifest each; metadata files are no part of the comparison, so
    # both weeks drop old ones
    "commit.manifest-merge.enabled": "false",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "history.expire.max-snapshot-age-ms": str(DAY // 4),
    "lakehouse.maintenance.min-expirable-snapshots": "30",
    "lakehouse.maintenance.min-removable-files": "24",
    "lakehouse.maintenance.max-manifests": "60",
}
SCHEMA = pa.schema(
    [
        ("event_ts", pa.timestamp("us", tz="UTC")),
        ("region", pa.string()),
        ("user_id", pa.int64()),
        ("cents", pa.int64()),
    ]
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
        self.now = START_MS
        chance = random.Random(7)
        self.environment = dataclasses.replace(
            Environment.system(),
            now_ms=lambda: self.now,
            random=chance.random,
            sleep=lambda _seconds: None,
        )
        lake = lh.load_catalog(folder.as_uri(), environment=self.environment)
        self.table = lake.create_table(
            NAME, SCHEMA, partition_by=["day(event_ts)", "region"], properties=PROPERTIES
        )
        self.price, self.device = "cents", False

    def run(self, *then: Callable[[Week, int], None]) -> None:
        """Live through it, calling `then` in order every minute after its writers."""
        for minute in range(self.minutes):
            self.now += MINUTE
            self._evolve(minute)
            if minute % self.every == 0:
                self.table.refresh().append(self._increment(minute))
            if minute % 360 == 359:
                victim = int(np.random.default_rng([3, minute]).integers(0, 500))
                self.table.refresh().delete(
                    f"user_id = {victim} and event_ts >= '{self.ago(3 * HOUR)}'"
                )
            if minute and minute % 1440 == 0:
                self.table.refresh().delete(
                    f"event_ts < '{moment(START_MS + minute * MINUTE - KEEP_DAYS * DAY)}'"
                )
            for step in then:
                step(self, minute)

    def queries(self) -> tuple[str, ...]:
        """What is planned: recent events, and one user."""
        return (f"event_ts >= '{self.ago(HOUR)}'", f"user_id = 42 and {self.price} > 4900")

    def ago(self, milliseconds: int) -> str:
        """That long before now."""
        return moment(self.now - milliseconds)

    def _increment(self, minute: int) -> pa.Table:
        chance = np.random.default_rng([1, minute])
        late = LATE_ROWS if minute // self.every % LATE_EVERY == 0 else 0
        ages = np.concatenate(
            [
                chance.integers(0, self.every * MINUTE, ROWS),
                chance.integers(0, KEEP_DAYS * DAY, late),
            ]
        )
        rows = len(ages)
        stamps = np.maximum(self.now - ages, START_MS - KEEP_DAYS * DAY)
        columns = {
            "event_ts": pa.array(stamps * 1000).cast(pa.timestamp("us", tz="UTC")),
            "region": pa.array(
                [REGIONS[number] for number in chance.choice(len(REGIONS), rows, p=WEIGHTS)]
            ),
            "user_id": pa.array(chance.integers(0, 500, rows)),
            self.price: pa.array(chance.integers(0, 5000, rows)),
        }
        if self.device:
            columns["device"] = pa.array(
                [f"device {number}" for number in chance.integers(0, 9, rows)]
            )
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
        elif before < 3 <= day:
            with self.table.refresh().update_partition_spec() as spec:
                spec.replace("region", "bucket(4, user_id)")
        elif before < 4 <= day:
            with self.table.refresh().update_schema() as update:
                update.drop_column("device")
            self.device = False


def moment(milliseconds: int) -> str:
    """As filters spell it."""
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).isoformat(timespec="microseconds")
