"""Derived tables brought up to date by what changed, beside the same computed again.

    python -m benchmarks.incremental [--rows 10000000] [--keys 1000000] [--engine duckdb]
        [--parts 0.01 0.0001] [--repeat 3] [--queries rows joined ...]

Events lie in files by day; a part of them comes new on the last day, or is updated there (merge on
read). Each query is followed, and computed in full, from the same state of its inputs; both write
and publish. What counts is the processor time of a process that refreshes alone, the best of the
repeats, and the most memory that it ever had. Results go to benchmarks/results/incremental.json,
beside those of other queries over as many rows.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lakehouse as lh
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.orchestration import SqlModel
from lakehouse.orchestration.assets.derived_table import Computation
from lakehouse.orchestration.assets.frames import open_engine
from lakehouse.orchestration.assets.incremental import DeltaWrite, ResultDelta

RESULTS = Path(__file__).parent / "results" / "incremental.json"
QUERIES = {
    "rows": "SELECT at, user, amount * 2 AS twice FROM raw.events WHERE amount >= 10",
    "joined": "SELECT e.at, e.user, e.amount, u.country FROM raw.events AS e "
    "JOIN raw.users AS u ON e.user = u.user",
    "days": "SELECT to_date(at) AS day, amount, count(*) AS events, count(DISTINCT user) AS users "
    "FROM raw.events GROUP BY to_date(at), amount",
    "users": "SELECT user, count(*) AS events, sum(amount) AS amount, max(at) AS last_at "
    "FROM raw.events GROUP BY user",
    "best": "SELECT user, at, amount FROM (SELECT user, at, amount, row_number() OVER (PARTITION "
    "BY user ORDER BY amount DESC, at) AS place FROM raw.events) WHERE place <= 3",
}
DAYS = 50
DAY = 86_400_000_000
MERGE_ON_READ = {
    "format-version": "3",
    **{f"write.{command}.mode": "merge-on-read" for command in ("delete", "update", "merge")},
}


def events(rng: np.random.Generator, count: int, users: int, first: int, last: int) -> pa.Table:
    """Events of some days."""
    days = np.sort(rng.integers(first, last, count)) * DAY
    return pa.table(
        {
            "at": pa.array(days + rng.integers(0, DAY, count), pa.timestamp("us")),
            "user": pa.array(rng.integers(0, users, count), pa.int64()),
            "amount": pa.array(rng.integers(0, 1000, count), pa.int32()),
        }
    )


def made(folder: Path, rows: int, users: int) -> None:
    """The inputs."""
    lake, rng = lh.load_catalog(str(folder)), np.random.default_rng(0)
    schema = events(rng, 0, users, 0, 1).schema
    raw = lake.create_table(
        "raw.events", schema, partition_by=("day(at)",), properties=MERGE_ON_READ
    )
    for part in range(10):
        part_rows = events(rng, rows // 10, users, part * DAYS // 10, (part + 1) * DAYS // 10)
        raw.append(part_rows)
    countries = pa.table(
        {"user": range(users), "country": [f"c{user % 200}" for user in range(users)]}
    )
    lake.create_table("raw.users", countries.schema, properties=MERGE_ON_READ).append(countries)


def refreshed(folder: Path, query: str, engine: str, *, full: bool) -> dict[str, Any]:
    """Bring it up to date; what that took."""
    lake = lh.load_catalog(str(folder))
    table = SqlModel(
        name=f"marts.{query}",
        sql=QUERIES[query],
        engine=engine,  # type: ignore[arg-type]
        refresh="incremental",
        table_properties=MERGE_ON_READ,
    ).table()
    runs, start = open_engine(engine, _no_session), time.process_time()
    staleness = table.staleness(lake)
    work = Computation(table, lake, runs, staleness, None)
    delta = work.delta(full=full)
    stamp = RunStamp(f"run-{time.time_ns()}", f"marts/{query}")
    write = work.write(stamp, delta, lambda _: None)
    if isinstance(write, DeltaWrite):
        write.published()
    else:
        write.staged().publish(lambda _: [])
    seconds = time.process_time() - start
    refresh = delta.refresh if isinstance(delta, ResultDelta) else delta
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**refresh.to_dict(), "seconds": seconds, "mib": mib}


def _no_session() -> Any:
    raise AssertionError("no Spark here")


def changed(folder: Path, part: float, how: str, rows: int, users: int, seed: int) -> None:
    """A part of the events comes, or gets another amount."""
    raw = lh.load_catalog(str(folder)).load_table("raw.events")
    rng, count = np.random.default_rng(seed), round(rows * part)
    if how == "appended":
        raw.append(events(rng, count, users, DAYS - 1, DAYS))
        return
    share = min(1.0, count / raw.scan(_LAST).count())
    raw.update({"amount": "amount + 1"}, where=f"{_LAST} AND user < {users * share:.0f}")


_LAST = f"at >= TIMESTAMP '1970-02-{DAYS - 31:02d} 00:00:00'"


def alone() -> ProcessPoolExecutor:
    """A process that refreshes and does nothing else."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def measured(folder: Path, query: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Refresh one table in turns with changes."""
    results, seed = [], 0
    with alone() as whole:
        full = whole.submit(refreshed, folder, query, given.engine, full=True).result()
        for how in ("appended", "updated"):
            for part in given.parts:
                with alone() as follows:
                    tries = []
                    for _ in range(given.repeat):
                        seed += 1
                        changed(folder, part, how, given.rows, given.keys, seed)
                        done = follows.submit(refreshed, folder, query, given.engine, full=False)
                        tries.append(done.result())
                best = min(tries, key=lambda attempt: attempt["seconds"])
                best["mib"] = max(attempt["mib"] for attempt in tries)
                load = os.getloadavg()[0]
                tried = {"query": query, "how": how, "part": part, "load": load}
                results.append({**tried, "incremental": best})
            again = whole.submit(refreshed, folder, query, given.engine, full=True).result()
            full = min(full, again, key=lambda attempt: attempt["seconds"])
    for result in results:
        best = result["incremental"]
        result |= {"full": full, "ratio": full["seconds"] / best["seconds"]}
        sys.stdout.write(
            f"{query}, {result['part']:.2%} {result['how']}: {best['seconds']:.3f} s, in full "
            f"{full['seconds']:.2f} s, {result['ratio']:.1f} x; {best['mib']:.0f} MiB, in full "
            f"{full['mib']:.0f}; {best['mode']}, {best['reason']}\n"
        )
        sys.stdout.flush()
    return results


def main() -> None:
    """Make the tables, change and refresh them in turns, print and keep what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--engine", default="duckdb")
    parser.add_argument("--parts", type=float, nargs="*", default=[0.01, 0.0001])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--queries", nargs="*", default=list(QUERIES), choices=QUERIES)
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made(folder, arguments.rows, arguments.keys)
        for query in arguments.queries:
            results += measured(folder, query, arguments)
    of = {"rows": arguments.rows, "keys": arguments.keys, "engine": arguments.engine}
    earlier = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    same = all(earlier.get(name) == value for name, value in of.items())
    results += [
        result
        for result in (earlier["results"] if same else [])
        if result.get("query") not in arguments.queries
    ]
    RESULTS.write_text(json.dumps({**of, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
