"""A derived table brought up to date: by what changed, and computed again, in turns.

    python -m benchmarks.incremental [--rows 10000000] [--keys 1000000] [--engine duckdb]
        [--parts 0.01 0.0001] [--repeat 3]

The query counts and adds up events by user. Events lie in files by day; a part of them comes new,
or is updated (merge on read) on the last day. Both ways start from the same state of the table and
publish to it, in one process, whose peak of memory is shown; the best of the repeats counts.
Results go to benchmarks/results/incremental.json, with the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import lakehouse as lh
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.orchestration import SqlModel
from lakehouse.orchestration.assets.frames import open_engine
from lakehouse.orchestration.assets.incremental import ResultDelta

RESULTS = Path(__file__).parent / "results" / "incremental.json"
SQL = (
    "SELECT user, count(*) AS events, sum(amount) AS amount, max(at) AS last_at FROM raw.events "
    "GROUP BY user"
)
DAYS = 50
MERGE_ON_READ = {f"write.{one}.mode": "merge-on-read" for one in ("delete", "update", "merge")}


def events(rng: np.random.Generator, count: int, users: int, first: int, last: int) -> pa.Table:
    """Events of some days."""
    days = np.sort(rng.integers(first, last, count)) * 86_400_000_000
    return pa.table(
        {
            "at": pa.array(days + rng.integers(0, 86_400_000_000, count), pa.timestamp("us")),
            "user": pa.array(rng.integers(0, users, count), pa.int64()),
            "amount": pa.array(rng.integers(0, 1000, count), pa.int32()),
        }
    )


def made(folder: Path, rows: int, users: int) -> None:
    """The tables, and the derived one up to date."""
    lake, rng = lh.load_catalog(str(folder)), np.random.default_rng(0)
    schema = events(rng, 0, users, 0, 1).schema
    raw = lake.create_table(
        "raw.events", schema, partition_by=("day(at)",), properties=MERGE_ON_READ
    )
    for part in range(10):
        some = events(rng, rows // 10, users, part * DAYS // 10, (part + 1) * DAYS // 10)
        raw.append(some)
    refreshed(folder, "duckdb", full=True)


def refreshed(folder: Path, engine: str, *, full: bool) -> dict[str, Any]:
    """Bring it up to date."""
    lake = lh.load_catalog(str(folder))
    table = SqlModel(
        name="marts.users",
        sql=SQL,
        engine=engine,  # type: ignore[arg-type]
        refresh="incremental",
        table_properties=MERGE_ON_READ,
    ).table()
    start = time.perf_counter()
    found, runs = table.staleness(lake), open_engine(engine, _no_session)
    inputs = table.inputs_at(lake, found.inputs, None)
    delta = table.delta(lake, runs, inputs, found, None, full=full)
    stamp = RunStamp(f"run-{time.time_ns()}", "marts/users")
    write = table.write(lake, runs, found, inputs, None, stamp, delta, lambda _: None)
    write.staged().publish(lambda _: [])
    seconds = time.perf_counter() - start
    refresh = delta.refresh if isinstance(delta, ResultDelta) else delta
    return {**refresh.to_dict(), "seconds": seconds}


def _no_session() -> Any:
    raise AssertionError("no Spark here")


def changed(folder: Path, part: float, how: str, rows: int, users: int, seed: int) -> None:
    """A part of the events comes, or gets another amount."""
    raw = lh.load_catalog(str(folder)).load_table("raw.events")
    rng, count = np.random.default_rng(seed), round(rows * part)
    if how == "appended":
        raw.append(events(rng, count, users, DAYS - 1, DAYS))
        return
    last = raw.scan(f"at >= TIMESTAMP '1970-02-{DAYS - 31:02d} 00:00:00'")
    share = min(1.0, count / max(1, last.count()))
    raw.update(
        {"amount": "amount + 1"},
        where=f"at >= TIMESTAMP '1970-02-{DAYS - 31:02d} 00:00:00' AND user < {users * share:.0f}",
    )


def main() -> None:
    """Make the tables, change and refresh them in turns, print and keep what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--engine", default="duckdb")
    parser.add_argument("--parts", type=float, nargs="*", default=[0.01, 0.0001])
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    results = []
    pl.DataFrame({"loaded": [1]})
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        made(place, given.rows, given.keys)
        for how in ("appended", "updated"):
            for part in given.parts:
                best: dict[bool, dict[str, Any]] = {}
                for turn in range(given.repeat):
                    for full in (False, True):
                        seed = 2 * turn + full
                        changed(place, part, how, given.rows, given.keys, seed)
                        took = refreshed(place, given.engine, full=full)
                        if full not in best or took["seconds"] < best[full]["seconds"]:
                            best[full] = took
                ratio = best[True]["seconds"] / best[False]["seconds"]
                results.append(
                    {"how": how, "part": part, "ratio": ratio, "full": best[True],
                     "incremental": best[False]}
                )  # fmt: skip
                sys.stdout.write(
                    f"{part:.2%} {how}: {best[False]['seconds']:.2f} s, in full "
                    f"{best[True]['seconds']:.2f} s, {ratio:.1f} x; {best[False]['reason']}\n"
                )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(f"peak {peak:.0f} MiB, load {os.getloadavg()[0]:.0f}\n")
    kept = {"rows": given.rows, "keys": given.keys, "engine": given.engine, "peak_mib": peak}
    RESULTS.write_text(
        json.dumps({**kept, "load": os.getloadavg()[0], "results": results}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
