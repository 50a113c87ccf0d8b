"""Large writes beside pyiceberg and delta-rs in one run, and writes by the number of columns.

    python -m benchmarks.writes [--rows 6000000] [--repeat 3] [--columns 500,1000,2000,4000]
    python -m benchmarks.writes --part large|wide    # one part, added to what is kept

An append of all rows, a delete of one row in a thousand, which lie anywhere, and an upsert of 1,500
keys, half of them there, the last two copy-on-write: ours, ours with one thread, pyiceberg,
delta-rs where the package `deltalake` is installed. Contenders take turns, each on a table of its
own after one small write; the best of the repeats counts, wall clock and processor apart. Then two
rows are appended, upserted, updated, read and deleted in tables of so many columns, or of one
struct of so many fields: processor seconds, best of the repeats. The load of the machine when the
run began stands in the results, benchmarks/results/writes.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import lakehouse as lh
from benchmarks.merge import rows, source

RESULTS = Path(__file__).parent / "results" / "writes.json"
KEYS = ["id"]
GONE = 1000
UPSERTED = 1500
Times = dict[str, float]
Steps = dict[str, Callable[[], object]]


def ours(folder: str, data: pa.Table, upserted: pa.Table) -> Steps:
    lake = lh.load_catalog(f"file://{folder}/ours")
    table = lake.create_table("bench.t", data.schema)
    return {
        "append": lambda: table.append(data),
        "delete": lambda: table.delete(f"id % {GONE} = 7"),
        "upsert": lambda: table.upsert(upserted, keys=KEYS),
    }


def pyiceberg(folder: str, data: pa.Table, upserted: pa.Table) -> Steps:
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.t", data.schema)
    # it has no remainders in filters: a delete of so many rows is a list of their keys
    return {
        "append": lambda: table.append(data),
        "upsert": lambda: table.upsert(upserted, join_cols=KEYS),
    }


def delta(folder: str, data: pa.Table, upserted: pa.Table) -> Steps:
    import deltalake  # noqa: PLC0415 - an optional peer

    place = f"{folder}/delta"

    def upsert() -> None:
        merge = deltalake.DeltaTable(place).merge(
            upserted, "t.id = s.id", source_alias="s", target_alias="t"
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    return {
        "append": lambda: deltalake.write_deltalake(place, data),
        "delete": lambda: deltalake.DeltaTable(place).delete(f"id % {GONE} = 7"),
        "upsert": upsert,
    }


def contenders() -> dict[str, tuple[Callable[[str, pa.Table, pa.Table], Steps], int]]:
    """Each with the number of threads that Arrow has."""
    cores = pa.cpu_count()
    with_delta = {"delta-rs": (delta, cores)} if importlib.util.find_spec("deltalake") else {}
    return {
        "lakehouse": (ours, cores),
        "lakehouse, one thread": (ours, 1),
        "pyiceberg": (pyiceberg, cores),
        **with_delta,
    }


def timed(work: Callable[[], object]) -> Times:
    start, busy = time.perf_counter(), time.process_time()
    work()
    return {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - busy,
    }


def keep_best(best: dict[str, Times], name: str, times: Times) -> None:
    """The least of each number."""
    known = best.setdefault(name, times)
    best[name] = {what: min(value, known[what]) for what, value in times.items()}


def large_writes(count: int, repeat: int) -> dict[str, dict[str, Times]]:
    """Times by step and contender."""
    data, upserted = rows(np.arange(count), 0), source(count, UPSERTED)
    few, upserted_few = rows(np.arange(1000), 0), source(1000, 100)
    best: dict[str, dict[str, Times]] = {}
    for _ in range(repeat):
        for name, (make, threads) in contenders().items():
            before = pa.cpu_count()
            pa.set_cpu_count(threads)
            try:
                for many, keys, counts in ((few, upserted_few, False), (data, upserted, True)):
                    with tempfile.TemporaryDirectory() as folder:
                        for step, work in make(folder, many, keys).items():
                            times = timed(work)
                            if counts:
                                keep_best(best.setdefault(step, {}), name, times)
            finally:
                pa.set_cpu_count(before)
    return best


def wide(kind: str, columns: int) -> pa.Table:
    """Two rows of so many columns of four types, or of one struct of so many fields."""
    kinds = (pa.int64(), pa.float64(), pa.string(), pa.timestamp("us"))
    values = [
        pa.array([number, number + 1], pa.int64()).cast(kinds[number % len(kinds)])
        for number in range(columns)
    ]
    names = [f"c{number}" for number in range(columns)]
    ids = pa.array([1, 2], pa.int64())
    if kind == "columns":
        return pa.table({"id": ids, **dict(zip(names, values, strict=True))})
    return pa.table({"id": ids, "s": pa.StructArray.from_arrays(values, names=names)})


def wide_writes(kind: str, columns: int) -> dict[str, Times]:
    """Times by step, on a table with one file."""
    data = wide(kind, columns)
    one = "c1" if kind == "columns" else "s.c1"
    value = {"c1": "c1 + 1"} if kind == "columns" else {"id": "id + 100"}
    measured: dict[str, Times] = {}
    with tempfile.TemporaryDirectory() as folder:
        lake = lh.load_catalog(f"file://{folder}/wide")
        table = lake.create_table("bench.wide", data.schema)
        steps: Steps = {
            "append": lambda: table.append(data),
            "plan": lambda: table.scan(where=f"{one} > 5").plan(),
            "to_arrow": lambda: table.scan().to_arrow(),
            "upsert": lambda: table.upsert(data, keys=KEYS),
            "update": lambda: table.update(value, where="id <= 2"),
            "delete": lambda: table.delete(where="id = 2"),
        }
        for step, work in steps.items():
            measured[step] = timed(work)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--columns", default="500,1000,2000,4000")
    parser.add_argument("--part", choices=("large", "wide", "all"), default="all")
    options = parser.parse_args()
    report = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    report["machine"] = f"{platform.machine()}, {os.cpu_count()} cores"
    peers = [*("pyarrow", "pyiceberg"), *(["deltalake"] if "delta-rs" in contenders() else [])]
    report["versions"] = {package: version(package) for package in peers}
    load = os.getloadavg()[0]
    if options.part != "wide":
        steps = large_writes(options.rows, options.repeat)
        for step, times in steps.items():
            print(f"{step}, {options.rows:,} rows: seconds, processor seconds")
            for name, measured in times.items():
                print(f"  {name:24s}{measured['seconds']:8.2f}{measured['processor']:8.2f}")
        report |= {"rows": options.rows, "load": load, "steps": steps}
    if options.part != "large":
        by_columns = {
            kind: grown(kind, [int(count) for count in options.columns.split(",")], options.repeat)
            for kind in ("columns", "fields")
        }
        report |= {"load_of_wide": load, "by_columns": by_columns}
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


def grown(kind: str, counts: list[int], repeat: int) -> dict[str, dict[str, Times]]:
    """Times by the number of columns and step."""
    wide_writes(kind, 8)
    by_count: dict[str, dict[str, Times]] = {}
    for count in counts:
        best: dict[str, Times] = {}
        for _ in range(repeat):
            for step, measured in wide_writes(kind, count).items():
                keep_best(best, step, measured)
        by_count[str(count)] = best
        shown = ", ".join(f"{step} {best[step]['processor']:.2f}" for step in best)
        print(f"{count:,} {kind}: {shown} s of processor", flush=True)
    return by_count


if __name__ == "__main__":
    main()
