"""Reading a table as Arrow: this library, pyiceberg and DuckDB over the same files, in one run.

    python benchmarks/arrow_read.py [--rows 6000000] [--repeat 3] [--stream-mb 256]

Each engine opens the table from its metadata file and returns an Arrow table; the best of the
repeats counts. Beside them stands what lies below ours and pyiceberg's alike: pyarrow's
`read_table` of the same files, paths given, where nothing is filtered. Behind the seconds stand, in
brackets, processor seconds and their ratio, which a busy machine disturbs less. The last part
streams a table ten times as large as a memory limit and prints the peak. Results go to
benchmarks/results/arrow_read.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import duckdb
import duckdb_extensions
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable

import lakehouse as lh

RESULTS = Path(__file__).parent / "results" / "arrow_read.json"
PEERS = ("pyarrow", "pyiceberg", "duckdb")
DAY_MICROS = 86_400_000_000


@dataclass(frozen=True)
class Case:
    """One question asked of every engine; `where` is SQL that all of them understand."""

    name: str
    table: str
    select: tuple[str, ...] | None = None
    where: str | None = None


CASES = (
    Case("all columns", "bench.wide"),
    Case("two columns", "bench.wide", select=("user_id", "amount")),
    Case(
        "filter, one file in thirty",
        "bench.daily",
        where="event_ts >= '2026-06-10T00:00:00' and event_ts < '2026-06-11T00:00:00'",
    ),
    Case("filter, one row in a thousand", "bench.wide", where="user_id = 42"),
    Case("300 small files", "bench.small"),
)


def rows(count: int, seed: int, start_day: int = 0, days: int = 30) -> pa.Table:
    rng = np.random.default_rng(seed)
    first = (np.datetime64("2026-06-01", "D").astype(np.int64) + start_day) * DAY_MICROS
    return pa.table(
        {
            "event_ts": pa.array(
                first + np.sort(rng.integers(0, days * DAY_MICROS, count)), pa.int64()
            ).view(pa.timestamp("us")),
            "user_id": rng.integers(0, 1000, count),
            "amount": rng.random(count).round(2),
            "quantity": pa.array(rng.integers(0, 100, count), pa.int32()),
            "country": np.array(["DE", "FR", "US", "JP", "BR"])[rng.integers(0, 5, count)],
            "session": [f"{a:x}-{b:x}" for a, b in rng.integers(0, 2**40, (count, 2)).tolist()],
            "score": rng.random(count),
            "flag": rng.integers(0, 2, count).astype(bool),
        }
    )


def build(catalog: lh.Lakehouse, count: int) -> None:
    chunk = rows(min(count, 1_000_000), 1)
    wide = catalog.create_table("bench.wide", chunk.schema)
    for number in range(max(1, count // 1_000_000)):
        wide.append(chunk if number == 0 else rows(1_000_000, number + 1))
    daily = catalog.create_table("bench.daily", chunk.schema, partition_by=["day(event_ts)"])
    daily.append(chunk)
    small = catalog.create_table("bench.small", chunk.schema)
    for number in range(300):
        small.append(chunk.slice(number * 1000, 1000))


def engines(catalog: lh.Lakehouse, case: Case) -> dict[str, Callable[[], pa.Table]]:
    table = catalog.load_table(case.table)
    location = table.metadata_location.removeprefix("file://")
    connection = duckdb.connect()
    for extension in ("avro", "iceberg"):
        duckdb_extensions.import_extension(extension, con=connection)
    columns = ", ".join(case.select) if case.select else "*"
    sql = f"select {columns} from iceberg_scan('{location}')" + (
        f" where {case.where}" if case.where else ""
    )

    def ours() -> pa.Table:
        return (
            catalog.load_table(case.table)
            .scan(where=case.where, select=list(case.select) if case.select else None)
            .to_arrow()
        )

    def pyiceberg() -> pa.Table:
        scan = StaticTable.from_metadata(location).scan(
            row_filter=case.where or "true", selected_fields=case.select or ("*",)
        )
        return scan.to_arrow()

    def duck() -> pa.Table:
        return connection.execute(sql).to_arrow_table()

    def decoding() -> pa.Table:
        return pa.concat_tables(
            [pq.read_table(path, columns=columns_read, partitioning=None) for path in paths]
        )

    columns_read = list(case.select) if case.select else None
    paths = [file.file_path.removeprefix("file://") for file in table.scan().plan().files]
    floor = {} if case.where else {"read_table": decoding}
    return {"lakehouse": ours, "pyiceberg": pyiceberg, "duckdb": duck, **floor}


def measure(catalog: lh.Lakehouse, case: Case, repeat: int) -> dict[str, float]:
    times: dict[str, float] = {}
    counts: dict[str, int] = {}
    calls = engines(catalog, case)
    for _ in range(repeat):
        for name, call in calls.items():
            gc.collect()
            started, worked = time.perf_counter(), time.process_time()
            result = call()
            took, work = time.perf_counter() - started, time.process_time() - worked
            times[name] = min(times.get(name, took), took)
            times[f"{name} processor"] = min(times.get(f"{name} processor", work), work)
            counts[name] = result.num_rows
            del result
    if len(set(counts.values())) != 1:
        raise SystemExit(f"the engines disagree on {case.name}: {counts}")
    return times | {"rows": counts["lakehouse"]}


def stream(warehouse: str, limit_mb: int) -> None:
    """In its own process: stream the table; print rows, bytes of data and growth of memory."""
    table = lh.load_catalog(warehouse).load_table("bench.large")
    # What libraries take when they are loaded and first used is no part of the data.
    list(table.scan(where="user_id = -1").to_batches())
    before = high_water_kb()
    count = size = 0
    for batch in table.scan().to_batches():
        count += batch.num_rows
        size += batch.nbytes
    peak = high_water_kb() - before
    print(
        json.dumps(
            {"rows": count, "data_mb": size >> 20, "limit_mb": limit_mb, "peak_mb": peak >> 10}
        )
    )


def high_water_kb() -> int:
    """Peak resident memory of this process; getrusage would show its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def large(catalog: lh.Lakehouse, limit_mb: int) -> None:
    chunk = rows(1_000_000, 99)
    table = catalog.create_table("bench.large", chunk.schema)
    needed = limit_mb * 10 * 1024 * 1024

    def batches() -> Iterator[pa.RecordBatch]:
        sent = 0
        while sent < needed:
            for batch in chunk.to_batches(max_chunksize=100_000):
                sent += batch.nbytes
                yield batch

    table.append(pa.RecordBatchReader.from_batches(chunk.schema, batches()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--stream-mb", type=int, default=256)
    parser.add_argument("--stream-from", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stream_from:
        stream(options.stream_from, options.stream_mb)
        return
    report: dict[str, object] = {
        "versions": {name: version(name) for name in PEERS} | {"python": platform.python_version()},
        "cores": os.cpu_count(),
        "cases": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        warehouse = f"file://{folder}"
        catalog = lh.load_catalog(warehouse)
        build(catalog, options.rows)
        print(
            f"{'seconds (processor seconds)':32s} {'rows':>9s} {'ours':>14s} {'pyiceberg':>14s} "
            f"{'duckdb':>14s} {'read_table':>14s} {'x pyiceberg':>14s} {'x duckdb':>14s}"
        )
        cases: dict[str, object] = {}
        for case in CASES:
            times = measure(catalog, case, options.repeat)
            names = ("lakehouse", "pyiceberg", "duckdb", "read_table")
            shown = [
                f"{times[name]:.3f} ({times[f'{name} processor']:.3f})" if name in times else ""
                for name in names
            ]
            shown += [
                (
                    f"{times[name] / times['lakehouse']:.2f} "
                    f"({times[f'{name} processor'] / times['lakehouse processor']:.2f})"
                )
                for name in ("pyiceberg", "duckdb")
            ]
            print(
                f"{case.name:32s} {int(times['rows']):9d} "
                + " ".join(f"{text:>14s}" for text in shown)
            )
            cases[case.name] = times
        report["cases"] = cases
        large(catalog, options.stream_mb)
        command = [
            sys.executable,
            __file__,
            "--stream-from",
            warehouse,
            "--stream-mb",
            str(options.stream_mb),
        ]
        streamed = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
        print(
            f"to_batches: {streamed['data_mb']} MB of data, limit {streamed['limit_mb']} MB, peak "
            f"{streamed['peak_mb']} MB"
        )
        report["stream"] = streamed
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
