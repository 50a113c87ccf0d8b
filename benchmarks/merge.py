"""Upsert: keys into a table ten files long, half of them there, beside its peers in one run.

    python -m benchmarks.merge [--rows 5000000] [--keys 20000] [--repeat 3] [--only lakehouse]
    python -m benchmarks.merge --merges 2000 [--rows 200000] [--keys 200]
    python -m benchmarks.merge --filters 500 [--rows 5000000] [--keys 20]

Contenders take turns, each time in a process and a folder of their own, on tables of equal rows:
ours (format version 3, merge on read; and copy on write), pyiceberg's `upsert`, delta-rs' `merge`
where the package `deltalake` is installed, and the floor: key columns read by Polars, a semi-join,
a bitmap a file and one new file, without any commit. Seconds are those of the call alone, after one
on a small table; the best of the repeats counts. Memory is what the peak of the process grew by in
the call; the tables are made in another one. Results go to benchmarks/results/merge.json, unless
--only leaves contenders out.

With --merges that many upserts follow each other on one table (merge on read, format version 3),
of random keys; after every ten of them it is done what the table's policy asks for then, as a
sensor would, with no quiet time (`skip-recent-ms` 0) and snapshots kept for ten seconds. Printed:
seconds of each hundred, those of its maintenance, and memory of the process; then the last hundred
to the first.

With --filters the table has that many files, and keys that lie anywhere in them. Few keys, half of
them there, are upserted with key filters and without, in turns, into the same version of the table.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyroaring import BitMap

import lakehouse as lh
from lakehouse.maintenance.advice.due_actions import ActionKind, decide, due
from lakehouse.maintenance.maintenance_policy import policy_of

RESULTS = Path(__file__).parent / "results" / "merge.json"
FILES = 10
POLICY = {
    "lakehouse.maintenance.skip-recent-ms": "0",
    "history.expire.max-snapshot-age-ms": "10000",
}
DO: dict[ActionKind, Callable[[lh.Table], object]] = {
    ActionKind.COMPACT: lh.Table.compact,
    ActionKind.REWRITE_MANIFESTS: lh.Table.rewrite_manifests,
    ActionKind.EXPIRE: lh.Table.expire_snapshots,
    ActionKind.REMOVE_ORPHANS: lh.Table.remove_orphan_files,
}
KEYS = ["id"]


def rows(ids: np.ndarray, value: int) -> pa.Table:
    """Five columns; the same for the same ids."""
    rng = np.random.default_rng(int(ids[0]) if len(ids) else 0)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "ts": pa.array(1_700_000_000_000_000 + ids * 1000, pa.timestamp("us")),
            "a": rng.random(len(ids)),
            "b": np.full(len(ids), value),
            "s": np.char.add("user-", (ids % 100_000).astype(str)),
        }
    )


def parts(count: int) -> Iterator[pa.Table]:
    """The table's rows, a file each."""
    edges = [count * number // FILES for number in range(FILES + 1)]
    return (rows(np.arange(a, b), 0) for a, b in itertools.pairwise(edges))


def source(count: int, keys: int) -> pa.Table:
    """Half of the keys are there, anywhere in the table."""
    present = np.random.default_rng(7).choice(count, keys // 2, replace=False)
    return rows(np.concatenate([present, np.arange(count, count + keys - keys // 2)]), 1)


def prepare_ours(folder: str, count: int, mode: str) -> None:
    table = lh.load_catalog(f"file://{folder}/warehouse").create_table(
        "bench.t",
        rows(np.arange(1), 0).schema,
        format_version=3,
        properties={"write.merge.mode": mode},
    )
    for part in parts(count):
        table.append(part)


def ours(folder: str, data: pa.Table) -> None:
    lh.load_catalog(f"file://{folder}/warehouse").load_table("bench.t").upsert(data, keys=KEYS)


def _pyiceberg(folder: str) -> SqlCatalog:
    return SqlCatalog("bench", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")


def prepare_pyiceberg(folder: str, count: int, _: str) -> None:
    catalog = _pyiceberg(folder)
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.t", rows(np.arange(1), 0).schema)
    for part in parts(count):
        table.append(part)


def pyiceberg(folder: str, data: pa.Table) -> None:
    _pyiceberg(folder).load_table("bench.t").upsert(data, join_cols=KEYS)


def prepare_delta(folder: str, count: int, _: str) -> None:
    import deltalake  # noqa: PLC0415 - an optional peer

    for part in parts(count):
        deltalake.write_deltalake(f"{folder}/delta", part, mode="append")


def delta(folder: str, data: pa.Table) -> None:
    import deltalake  # noqa: PLC0415 - an optional peer

    table = deltalake.DeltaTable(f"{folder}/delta")
    merge = table.merge(data, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def prepare_floor(folder: str, count: int, _: str) -> None:
    for number, part in enumerate(parts(count)):
        pq.write_table(part, f"{folder}/{number}.parquet", compression="zstd")


def floor(folder: str, data: pa.Table) -> None:
    keys = pl.DataFrame(pl.from_arrow(data.select(KEYS)))
    for number in range(FILES):
        ids = pl.read_parquet(f"{folder}/{number}.parquet", columns=KEYS)
        matched = ids.with_row_index("pos").join(keys, on=KEYS, how="semi")
        bitmap = BitMap(matched["pos"].to_numpy())
        Path(f"{folder}/{number}.bitmap").write_bytes(bitmap.serialize())
    pq.write_table(data, f"{folder}/new.parquet", compression="zstd")


Prepare = Callable[[str, int, str], None]
Upsert = Callable[[str, pa.Table], None]
CONTENDERS: dict[str, tuple[Prepare, Upsert, str]] = {
    "lakehouse": (prepare_ours, ours, "merge-on-read"),
    "lakehouse, copy on write": (prepare_ours, ours, "copy-on-write"),
    "pyiceberg": (prepare_pyiceberg, pyiceberg, ""),
    "delta-rs": (prepare_delta, delta, ""),
    "floor": (prepare_floor, floor, ""),
}


def prepare(name: str, folder: str, count: int) -> None:
    """A small table for warming up, and the large one."""
    make, _, mode = CONTENDERS[name]
    for inside, size in (("small", 1000), ("large", count)):
        (Path(folder) / inside).mkdir()
        make(f"{folder}/{inside}", size, mode)


def measure(name: str, folder: str, count: int, keys: int) -> dict[str, float]:
    """One upsert of one contender, in this process."""
    _, upsert, _ = CONTENDERS[name]
    upsert(f"{folder}/small", source(1000, 100))  # libraries are loaded, threads are there
    data, large = source(count, keys), f"{folder}/large"
    before, held = _bytes(large), _peak_mb()
    start, busy = time.perf_counter(), time.process_time()
    upsert(large, data)
    return {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - busy,
        "written_mb": (_bytes(large) - before) / 1e6,
        "more_memory_mb": _peak_mb() - held,
    }


def series(folder: str, count: int, keys: int, merges: int) -> list[dict[str, float]]:
    """Seconds and memory of each hundred of many upserts in a row."""
    prepare_ours(folder, count, "merge-on-read")
    table = lh.load_catalog(f"file://{folder}/warehouse").load_table("bench.t")
    table.set_properties(POLICY)
    rng = np.random.default_rng(3)
    measured = []
    for _ in range(merges // 100):
        seconds = upkeep = 0.0
        for number in range(100):
            present = rng.choice(count, keys - keys // 2, replace=False)
            fresh = np.arange(count, count + keys // 2)
            count += len(fresh)
            data = rows(np.concatenate([present, fresh]), 1)
            start = time.perf_counter()
            table.upsert(data, keys=KEYS)
            seconds += time.perf_counter() - start
            if number % 10 == 9:
                start = time.perf_counter()
                maintain(table)
                upkeep += time.perf_counter() - start
        held, peak = _resident_mb(), _peak_mb()
        measured.append({"seconds": seconds, "upkeep": upkeep, "memory_mb": held, "peak_mb": peak})
        print(
            json.dumps({name: round(value, 1) for name, value in measured[-1].items()}), flush=True
        )
    if table.scan().count() != count:
        raise AssertionError("rows are lost or doubled")
    return measured


def maintain(table: lh.Table) -> None:
    """What the table's policy asks for now."""
    now_ms = table.environment.now_ms()
    for action in due(decide(table.health(), policy_of(table.properties), now_ms), now_ms):
        DO[action.kind](table)


def with_filters(folder: str, count: int, keys: int, files: int, repeat: int) -> None:
    """Print what upserts of few keys take with key filters and without, in turns."""
    anywhere = np.random.default_rng(1).permutation(count)
    tables = {}
    for name in ("without", "with"):
        tables[name] = lh.load_catalog(f"file://{folder}/warehouse").create_table(
            f"bench.{name}",
            rows(np.arange(1), 0).schema,
            format_version=3,
            properties={"write.merge.mode": "merge-on-read"},
        )
        for part in np.array_split(anywhere, files):
            tables[name].append(rows(part, 0))
    start = time.perf_counter()
    made = tables["with"].compute_key_filters(KEYS)
    seconds = time.perf_counter() - start
    print(f"filters of {count:,} keys in {files} files: {made.bytes / 1e6:.1f} MB, {seconds:.1f} s")
    seconds_by_table: dict[str, list[float]] = {name: [] for name in tables}
    opened: dict[str, list[int]] = {name: [] for name in tables}
    for number in range(repeat):
        present = np.random.default_rng(number).choice(count, keys // 2, replace=False)
        fresh = np.arange(count, count + keys - keys // 2) + number * keys
        data = rows(np.concatenate([present, fresh]), 1)
        for name, table in tables.items():
            opened[name].append(table.plan_upsert(data, keys=KEYS).files_opened)
            start = time.perf_counter()
            table.upsert(data, keys=KEYS)
            seconds_by_table[name].append(time.perf_counter() - start)
    for name, times in seconds_by_table.items():
        print(f"{name:8s} filters: {min(times):.3f} s at best, files opened: {opened[name]}")
    ratio = min(seconds_by_table["without"]) / min(seconds_by_table["with"])
    print(f"without takes {ratio:.1f} x as long")


def in_a_process(*arguments: str) -> str:
    """What this module prints for the arguments in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.merge", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _bytes(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=CONTENDERS, help="one contender, nothing is kept")
    parser.add_argument("--merges", type=int, help="so many upserts in a row, ours alone")
    parser.add_argument("--filters", type=int, help="so many files, with key filters and without")
    parser.add_argument("--prepare", choices=CONTENDERS, help="the tables, in --folder")
    parser.add_argument("--measure", choices=CONTENDERS, help="one upsert, in --folder")
    parser.add_argument("--folder", default="")
    options = parser.parse_args()
    if options.prepare:
        prepare(options.prepare, options.folder, options.rows)
        return
    if options.measure:
        print(json.dumps(measure(options.measure, options.folder, options.rows, options.keys)))
        return
    if options.merges:
        with tempfile.TemporaryDirectory() as folder:
            outcome = series(folder, options.rows, options.keys, options.merges)
        for what in ("seconds", "memory_mb"):
            first, last = outcome[0][what], outcome[-1][what]
            print(f"{what} of a hundred: {first:.1f} first, {last:.1f} last, x {last / first:.2f}")
        return
    if options.filters:
        with tempfile.TemporaryDirectory() as folder:
            sizes = (options.rows, min(options.keys, 1000), options.filters, options.repeat)
            with_filters(folder, *sizes)
        return
    contenders = [
        contender
        for contender in CONTENDERS
        if contender != "delta-rs" or importlib.util.find_spec("deltalake")
    ]
    contenders = [options.only] if options.only else contenders
    best: dict[str, dict[str, float]] = {}
    for _ in range(options.repeat):
        for name in contenders:
            sizes = ["--rows", str(options.rows), "--keys", str(options.keys)]
            with tempfile.TemporaryDirectory() as folder:
                in_a_process("--prepare", name, "--folder", folder, *sizes)
                output = in_a_process("--measure", name, "--folder", folder, *sizes)
            outcome = json.loads(output.splitlines()[-1])
            if name not in best or outcome["seconds"] < best[name]["seconds"]:
                best[name] = outcome
    ours_seconds = best.get("lakehouse", best[contenders[0]])["seconds"]
    print(f"{options.keys:,} keys into {options.rows:,} rows in {FILES} files")
    print(
        f"{'':26s}{'seconds':>9s}{'CPU s':>8s}{'written MB':>12s}{'memory MB':>11s}{'to ours':>9s}"
    )
    for name, times in best.items():
        print(
            f"{name:26s}{times['seconds']:9.2f}{times['processor']:8.2f}{times['written_mb']:12.2f}"
            f"{times['more_memory_mb']:11.0f}{times['seconds'] / ours_seconds:9.2f}"
        )
    if options.only:
        return
    versions = ["pyiceberg", "polars", *(["deltalake"] if "delta-rs" in contenders else [])]
    report = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {package: version(package) for package in versions},
        "rows": options.rows,
        "keys": options.keys,
        "contenders": best,
        "times_ours": {name: times["seconds"] / ours_seconds for name, times in best.items()},
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
