"""One key of one day out of 10,000 files and 3 million rows: `python -m benchmarks.lookup`.

By day and bucket of the key, 300 rows a file, everything warm: each contender looks up keys that it
has not looked up before, one after the other, its table or its list of files open. Ours,
pyiceberg and DuckDB get key and time alone; DuckDB and Polars once more with the folder of the
day, which a user would have to know. Milliseconds of one lookup; the same lookups from eight
threads; and the requests that an object store would serve for one (no data file is kept).
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import random
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import duckdb  # noqa: E402
import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
import pyarrow as pa  # noqa: E402
from pyiceberg.table import StaticTable  # noqa: E402

from benchmarks.scale import Counting  # noqa: E402
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog  # noqa: E402
from lakehouse.lake import Lakehouse, load_catalog  # noqa: E402
from lakehouse.storage.storage_by_scheme import storage_for  # noqa: E402

FIRST_DAY = dt.date(2025, 1, 1)
BUCKETS, KEYS, DAY_US = 32, 1_000_000, 86_400_000_000
ROWS_A_DAY = 300 * BUCKETS
TABLE = "bench.events"
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("key", pa.int64()),
        ("amount", pa.float64()),
        ("text", pa.string()),
    ]
)
TARGET_MS = {"p50": 10.0, "p99": 25.0}
Asked = tuple[dt.date, int]
Lookup = Callable[[dt.date, int], int]


def build(folder: Path, days: int) -> list[Asked]:
    """Write the table; a day and a key of some of its rows."""
    shutil.rmtree(folder, ignore_errors=True)
    lake = load_catalog(str(folder))
    lake.create_namespace("bench")
    partitions = ["day(ts)", f"bucket({BUCKETS}, key)"]
    table = lake.create_table(TABLE, SCHEMA, partition_by=partitions)
    rng = np.random.default_rng(1)
    first, keys = (FIRST_DAY - dt.date(1970, 1, 1)).days, []
    for start in range(0, days, 16):
        count = min(16, days - start)
        key = rng.integers(0, KEYS, count * ROWS_A_DAY)
        day = first + start + np.repeat(np.arange(count), ROWS_A_DAY)
        at = pa.array(day * DAY_US + rng.integers(0, DAY_US, len(day))).cast(SCHEMA.field(0).type)
        columns = {"ts": at, "key": key, "amount": rng.random(len(day)), "text": key.astype(str)}
        table.append(pa.table(columns, schema=SCHEMA))
        keys += [
            (dt.date(1970, 1, 1) + dt.timedelta(int(day[row])), int(key[row]))
            for row in rng.integers(0, len(day), 64)
        ]
    random.Random(1).shuffle(keys)
    return keys


def where(day: dt.date, key: int) -> str:
    after = day + dt.timedelta(1)
    return f"key = {key} and ts >= '{day}T00:00:00+00:00' and ts < '{after}T00:00:00+00:00'"


def contenders(folder: Path) -> dict[str, Lookup]:
    """How each of them looks up; returns how many rows it found."""
    table = load_catalog(str(folder)).load_table(TABLE)
    theirs = StaticTable.from_metadata(table.metadata_location)
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    data = f"{table.location}/data"

    def by_duckdb(day: dt.date, key: int) -> int:
        files = f"{data}/ts_day={day}/*/*.parquet"
        query = f"select * from read_parquet('{files}') where key = {key}"
        return connection.execute(query).to_arrow_table().num_rows

    def by_duckdb_alone(day: dt.date, key: int) -> int:
        query = f"select * from read_parquet('{data}/*/*/*.parquet') where {where(day, key)}"
        return connection.execute(query).to_arrow_table().num_rows

    def by_polars(day: dt.date, key: int) -> int:
        frame = pl.scan_parquet(f"{data}/ts_day={day}/*/*.parquet", hive_partitioning=False)
        return frame.filter(pl.col("key") == key).collect().height

    return {
        "lakehouse": lambda day, key: table.scan(where=where(day, key)).to_arrow().num_rows,
        "pyiceberg": lambda day, key: theirs.scan(row_filter=where(day, key)).to_arrow().num_rows,
        "DuckDB": by_duckdb_alone,
        "DuckDB, the day's folder": by_duckdb,
        "Polars, the day's folder": by_polars,
    }


def measured(lookup: Lookup, keys: list[Asked]) -> dict[str, float]:
    """Milliseconds of one lookup after another."""
    for key in keys[:20]:
        lookup(*key)
    spent = []
    for day, key in keys[20:]:
        begin = time.perf_counter()
        row = lookup(day, key)
        spent.append((time.perf_counter() - begin) * 1_000)
        assert row, "a row that is there was not found"
    spent.sort()
    return {
        "lookups": len(spent),
        "p50_ms": round(spent[len(spent) // 2], 2),
        "p99_ms": round(spent[int(len(spent) * 0.99)], 2),
    }


def from_threads(lookup: Lookup, keys: list[Asked], threads: int) -> float:
    """Lookups a second of so many threads."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda key: lookup(*key), keys))
    return round(len(keys) / (time.perf_counter() - begin), 1)


def requests(folder: Path, keys: list[Asked]) -> dict[str, float]:
    """What one lookup asks of an object store, after the first."""
    counting = Counting(storage_for(str(folder)))
    catalog = FilesystemCatalog(str(folder), storage_factory=lambda _where, _properties: counting)
    table = Lakehouse(catalog).load_table(TABLE)
    table.scan(where=where(*keys[0])).to_arrow()
    counting.requests.clear()
    seen = []
    for key in keys[1:50]:
        counting.requests.clear()
        table.scan(where=where(*key)).to_arrow()
        seen.append(counting.requests.total())
    return {"most": max(seen), "mean": round(sum(seen) / len(seen), 2)}


def run(folder: Path, days: int) -> dict[str, Any]:
    keys = build(folder, days)
    ways = contenders(folder)
    times_by_engine = {}
    for name, lookup in ways.items():
        mine = keys if name == "lakehouse" else keys[:120]
        times_by_engine[name] = measured(lookup, mine)
        print(f"{name:26} {times_by_engine[name]}", flush=True)
    ours = times_by_engine["lakehouse"]
    return {
        "benchmark": "lookup",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "system": platform.platform()},
        "versions": {name: version(name) for name in ("pyiceberg", "duckdb", "polars", "pyarrow")},
        "load": round(os.getloadavg()[0], 2),
        "files": days * BUCKETS,
        "rows": days * ROWS_A_DAY,
        "contenders": times_by_engine,
        "times_faster": {
            name: round(times["p50_ms"] / ours["p50_ms"], 1)
            for name, times in times_by_engine.items()
            if name != "lakehouse"
        },
        "lookups_a_second_by_threads": {
            threads: from_threads(ways["lakehouse"], keys[:400], threads) for threads in (1, 2, 8)
        },
        "requests_a_lookup": requests(folder, keys),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=313)
    parser.add_argument("--folder", type=Path, default=ROOT / ".lakehouse" / "benchmarks")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results" / "lookup.json"
    )
    arguments = parser.parse_args()
    result = run(arguments.folder / "lookup", arguments.days)
    print(json.dumps({key: result[key] for key in list(result)[7:]}, indent=1))
    ours = result["contenders"]["lakehouse"]
    for name, most in TARGET_MS.items():
        print(f"{name}: {ours[name + '_ms']} ms, target {most}")
    if arguments.days >= 313:
        arguments.results.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
