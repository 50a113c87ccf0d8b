"""Streams whose driver is killed, again and again: every row is in the tables once.

A driver streams files into a table, and their counts into another one in update mode, while files
land, snapshots expire and files are compacted beside it. It gets SIGKILL at a random moment, or as
soon as a version of a table appears, before Spark has noted that the batch is done; then another
one begins where it ended.

    python -m tests.streams --kills 200 --catalog sqlite
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pyarrow as pa

import lakehouse as lh
from tests.rest_server import rest
from tests.spark_config import BRIEF
from tests.waiting import eventually, reaped

TABLES = {
    "raw.landed": pa.schema({"id": pa.int64(), "rest": pa.int64()}),
    "raw.counted": pa.schema({"rest": pa.int64(), "count": pa.int64()}),
}
CATALOGS = ("filesystem", "sqlite", "rest")
_MOST_SECONDS, _RESTS, _ROWS = 3.0, 7, 5


@contextmanager
def catalog(folder: Path, kind: str) -> Iterator[str]:
    """Where the tables are: the URI, while that catalog is there."""
    if kind == "rest":
        with rest(folder) as server:
            yield server.url
    else:
        yield f"sqlite:///{folder}/catalog.db" if kind == "sqlite" else f"file://{folder}/warehouse"


def opened(folder: Path, uri: str) -> lh.Lakehouse:
    """The catalog."""
    warehouse = {} if uri.startswith("file:") else {"warehouse": f"{folder}/warehouse"}
    return lh.load_catalog(uri, **warehouse)


def driver(folder: Path, uri: str, *, drains: bool) -> None:
    """Run both streams, until they are killed or, where they drain, until all files are read."""
    from pyspark.sql import functions as F  # noqa: N812 - in the driver alone

    from lakehouse.spark import attach, build_session

    spark = build_session(
        "killed",
        master="local[2]",
        config={**BRIEF, "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"},
    )
    attach(spark, opened(folder, uri), "lake")
    reader = spark.readStream.schema("id long, rest long").option("maxFilesPerTrigger", 1)
    rows = reader.json(str(folder / "landing"))
    counts = rows.groupBy("rest").agg(F.count("*").alias("count"))
    when = {"availableNow": True} if drains else {"processingTime": "0 seconds"}
    queries = []
    for table, frame, mode in (
        ("raw.landed", rows, "append"),
        ("raw.counted", counts, "update"),
    ):
        writer = frame.writeStream.outputMode(mode).trigger(**when).option("tail-files", "2")
        if mode == "update":
            writer = writer.option("merge-keys", "rest")
        writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{table}"))
        queries.append(writer.toTable(f"lake.{table}"))
    sys.stdout.write("streaming\n")
    sys.stdout.flush()
    for query in queries:
        query.awaitTermination()


class Killed:
    """One story.

    Args:
        folder: for everything.
        seed: of its chances.
        uri: of the catalog.

    Attributes:
        kills: so many there were.
    """

    def __init__(self, folder: Path, seed: int, uri: str) -> None:
        self._folder, self._uri, self.kills = folder, uri, 0
        self._chance = random.Random(seed)
        self._landed = Counter[tuple[int, int]]()
        self._catalog = opened(folder, uri)
        (folder / "landing").mkdir()
        for name, schema in TABLES.items():
            self._catalog.create_table(name, schema, partition_by=["bucket(2, rest)"])

    def run(self, kills: int, seconds: float = float("inf")) -> list[str]:
        """What is wrong in the end, nothing if all is well.

        Args:
            kills: so many at most.
            seconds: after as many no other driver is started but the last.
        """
        began = time.monotonic()
        while self.kills < kills and time.monotonic() - began < seconds:
            self.kills += 1
            self._lands()
            with self._driver() as process:
                self._waits_for_the_streams(process)
                self._lands()
                self._maintains()
                self._waits_for_a_moment()
                os.killpg(process.pid, signal.SIGKILL)
        with self._driver("--drains") as process:
            code = process.wait()
        return [f"the last driver ended with {code}"] if code else self._faults()

    def _driver(self, *more: str) -> AbstractContextManager[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "tests.streams", "--driver", str(self._folder), *more]
        command += ["--uri", self._uri]
        return reaped(
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        )

    def _waits_for_the_streams(self, process: subprocess.Popen[str]) -> None:
        if process.stdout is None or process.stdout.readline() != "streaming\n":
            raise AssertionError("the driver ended before its streams began")
        # Spark itself begins no stream again that was killed before it noted its first batch
        first = [self._folder / f"checkpoint-{name}/offsets/0" for name in TABLES]
        eventually(lambda: all(path.exists() for path in first) or process.poll() is not None)

    def _lands(self) -> None:
        """Some files, which appear whole."""
        for _ in range(self._chance.randint(1, 6)):
            number = len(list((self._folder / "landing").iterdir()))
            rows = [(number * _ROWS + row, self._chance.randrange(_RESTS)) for row in range(_ROWS)]
            self._landed.update(rows)
            waiting = self._folder / f"{number}.json"
            waiting.write_text(
                "\n".join(json.dumps({"id": key, "rest": rest}) for key, rest in rows)
            )
            waiting.rename(self._folder / "landing" / waiting.name)

    def _maintains(self) -> None:
        for name in TABLES:
            if self._chance.random() < 0.5:
                table = self._catalog.load_table(name)
                table.compact(lh.CompactionOptions(min_input_files=2))
                table.expire_snapshots(
                    lh.ExpiryOptions(older_than_ms=2**50, retain_last=self._chance.randint(1, 3))
                )

    def _waits_for_a_moment(self) -> None:
        if self._chance.random() < 0.5:
            time.sleep(self._chance.random() * _MOST_SECONDS)
            return
        self._lands()
        table = self._catalog.load_table(self._chance.choice(list(TABLES)))
        before = table.metadata_location
        eventually(lambda: table.refresh().metadata_location != before, pause=0.001)

    def landed(self) -> str:
        """How much there was to write."""
        files = len(list((self._folder / "landing").iterdir()))
        return f"{files} files of {self._landed.total()} rows"

    def _faults(self) -> list[str]:
        landed, counted = (
            Counter(map(tuple, (row.values() for row in rows)))
            for rows in (
                self._catalog.load_table(name).scan().to_arrow().to_pylist() for name in TABLES
            )
        )
        counts = Counter(rest for _, rest in self._landed.elements())
        wanted = (self._landed, Counter(counts.items()))
        return [
            f"{name}: lost {dict(there - found)}, too many {dict(found - there)}"
            for name, there, found in zip(TABLES, wanted, (landed, counted), strict=True)
            if there != found
        ]


def main() -> int:
    """Run a story; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--catalog", choices=CATALOGS, default=CATALOGS[0])
    parser.add_argument("--seconds", type=float, default=float("inf"), help="kill no longer")
    parser.add_argument("--uri", default="", help=argparse.SUPPRESS)
    parser.add_argument("--driver", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--drains", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.driver is not None:
        driver(arguments.driver, arguments.uri, drains=arguments.drains)
        return 0
    with (
        tempfile.TemporaryDirectory() as name,
        catalog(Path(name), arguments.catalog) as uri,
    ):
        story = Killed(Path(name), arguments.seed, uri)
        faults = story.run(arguments.kills, arguments.seconds)
        told = f"{story.kills} kills on {arguments.catalog}, {story.landed()}"
    sys.stdout.write("\n".join([*faults, f"{told}: {len(faults)} faults\n"]))
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
