"""Compaction of 10,000 files of 100 kB beside pyarrow's bare reading and writing of them.

`python -m benchmarks.compaction [--scale 1.0] [--rounds 3]`. Each contender runs in a process of
its own, in turn, on the same files: the table is rolled back after each compaction. Ours plans,
rewrites, fsyncs and commits; the raw ones only read and write (`stream`: one writer a partition,
two at a time, as we do; `dataset`: `write_dataset`). Iceberg's Spark procedure `rewrite_data_files`
runs beside ours alone when its runtime is given, and a Python that has the PySpark it was built for
(`--iceberg-runtime iceberg-spark-runtime-4.1_2.13-1.11.0.jar --iceberg-python .../bin/python`): the
time of the call alone, in a session that has read from the table before. Last, ours runs beside a
writer that appends throughout: how long appends take, alone and beside the compaction, what memory
is used until it is done, and that every row is there once.

`--part` runs one of these (with `--folder`, on the files of an earlier run), `all` those that need
no runtime of Iceberg; each part is added to what is kept, with its own time of ours where it has
one. Results are kept at full scale only.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import lakehouse as lh
from lakehouse.data.writing.data_file_writer import write_data_files
from lakehouse.maintenance.compaction.compaction import execute_compaction
from lakehouse.maintenance.compaction.compaction_plan import plan_compaction
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.table import Table

RESULTS = Path(__file__).parent / "results" / "compaction.json"
NAME = "bench.small"
FILES, FILE_BYTES = 10_000, 100_000
PARTITIONS = 8
TARGET_BYTES = 128 << 20
ROW_GROUP_ROWS = 1 << 20
TARGET_RATIO = 0.7
ICEBERG, WRITER, BESIDE, PEER = (
    "iceberg_spark",
    "beside_a_writer",
    "ours_beside_a_writer",
    Path(__file__).parent / "peers" / "iceberg_compaction.py",
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.int32()),
        ("at", pa.timestamp("us")),
        ("kind", pa.string()),
        ("amount", pa.float64()),
    ]
)
KINDS = pa.array([f"kind-{number}" for number in range(50)])


def batch(start: int, rows: int, part: int) -> pa.Table:
    """Rows that compress about as events do."""
    chance = np.random.default_rng(start)
    ids = np.arange(start, start + rows)
    columns = [
        pa.array(ids),
        pa.array(np.full(rows, part, np.int32)),
        pa.array(1_767_225_600_000_000 + ids * 1000 + chance.integers(0, 1000, rows)).cast(
            pa.timestamp("us")
        ),
        KINDS.take(pa.array(chance.integers(0, 50, rows))),
        pa.array(chance.integers(0, 10**7, rows) / 100),
    ]
    return pa.table(columns, schema=SCHEMA)


def build(folder: Path, files: int) -> Table:
    """The table: `files` data files of about FILE_BYTES over PARTITIONS partitions."""
    properties = {"write.target-file-size-bytes": str(TARGET_BYTES)}
    table = lh.load_catalog(folder.as_uri()).create_table(
        NAME, SCHEMA, partition_by=["part"], properties=properties
    )
    probe = pa.BufferOutputStream()
    pq.write_table(batch(0, 10_000, 0), probe, compression="zstd")
    rows = FILE_BYTES * 10_000 // probe.tell()

    def write(number: int) -> list[Any]:
        data = batch(number * rows, rows, number % PARTITIONS)
        return list(write_data_files(data, table.write_request(), table.storage, task=str(number)))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        written = [file for of_one in pool.map(write, range(files)) for file in of_one]
    table.transaction().append(written).commit()
    return table.refresh()


def open_table(folder: Path) -> Table:
    return lh.load_catalog(folder.as_uri()).load_table(NAME)


def ours(folder: Path) -> dict[str, Any]:
    table = open_table(folder)
    start = time.perf_counter()
    plan = plan_compaction(table.catalog, table.identifier)
    planned = time.perf_counter() - start
    result = execute_compaction(table.catalog, plan)
    seconds = time.perf_counter() - start
    assert result.stopped is None, result.stopped
    return {
        "seconds": seconds,
        "planning_seconds": planned,
        "files": result.added_files,
        "bytes": result.added_bytes,
    }


def ours_beside_a_writer(folder: Path) -> dict[str, Any]:
    """The same beside a writer that appends throughout, with one group a commit.

    Measures how long its appends take, and checks that none is lost.
    """
    table = open_table(folder)
    rows = table.scan().count()
    quiet = [_append(open_table(folder), -1 - number) for number in range(40)]
    done = threading.Event()
    waits: list[float] = []

    def write() -> None:
        writer = open_table(folder)
        while not done.is_set():
            waits.append(_append(writer, -100 - len(waits)))

    thread = threading.Thread(target=write)
    plan = plan_compaction(table.catalog, table.identifier, CompactionOptions(groups_per_commit=1))
    thread.start()
    start = time.perf_counter()
    result = execute_compaction(table.catalog, plan)
    seconds = time.perf_counter() - start
    done.set()
    thread.join()
    # before all rows are read, below
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert result.stopped is None, result.stopped
    ids = np.sort(table.refresh().scan(select=["id"]).to_arrow()["id"].to_numpy())
    assert len(ids) == rows + len(quiet) + len(waits)
    assert (ids[1:] > ids[:-1]).all(), "a row came twice"
    return {
        "seconds": seconds,
        "commits": len(result.snapshot_ids),
        "appends": len(waits),
        "append_ms_median": round(1000 * statistics.median(waits)),
        "append_ms_95_percent": round(1000 * float(np.quantile(waits, 0.95))),
        "append_ms_most": round(1000 * max(waits)),
        "append_ms_median_when_quiet": round(1000 * statistics.median(quiet)),
        "append_ms_most_when_quiet": round(1000 * max(quiet)),
        "peak_memory_bytes": memory,
    }


def _append(table: Table, number: int) -> float:
    data = pa.table([[number], [0], [0], ["late"], [0.0]], schema=SCHEMA)
    start = time.perf_counter()
    table.append(data)
    return time.perf_counter() - start


def stream(folder: Path) -> dict[str, Any]:
    """Bare pyarrow: read every file of a partition and write one, two partitions at a time.

    Row groups are like ours.
    """
    parts, target = inputs(folder), Path(tempfile.mkdtemp(dir=folder))

    def rewrite(part: int) -> int:
        path = target / f"{part}.parquet"
        with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
            waiting: list[pa.Table] = []
            for file in parts[part]:
                waiting.append(pq.read_table(file, schema=SCHEMA, use_threads=False))
                if sum(table.num_rows for table in waiting) >= ROW_GROUP_ROWS:
                    writer.write_table(pa.concat_tables(waiting), row_group_size=ROW_GROUP_ROWS)
                    waiting = []
            if waiting:
                writer.write_table(pa.concat_tables(waiting), row_group_size=ROW_GROUP_ROWS)
        return path.stat().st_size

    start = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sizes = list(pool.map(rewrite, parts))
    seconds = time.perf_counter() - start
    shutil.rmtree(target)
    return {"seconds": seconds, "files": len(sizes), "bytes": sum(sizes)}


def dataset(folder: Path) -> dict[str, Any]:
    """Raw pyarrow: `write_dataset`, partitioned, as short as it can be said."""
    files, target = (
        [file for files in inputs(folder).values() for file in files],
        Path(tempfile.mkdtemp(dir=folder)),
    )
    options = ds.ParquetFileFormat().make_write_options(compression="zstd")
    start = time.perf_counter()
    ds.write_dataset(
        ds.dataset(files, schema=SCHEMA),
        target,
        format="parquet",
        file_options=options,
        partitioning=ds.partitioning(pa.schema([("part", pa.int32())])),
        min_rows_per_group=ROW_GROUP_ROWS // 8,
        max_rows_per_group=ROW_GROUP_ROWS,
    )
    seconds = time.perf_counter() - start
    written = [path.stat().st_size for path in target.rglob("*.parquet")]
    shutil.rmtree(target)
    return {"seconds": seconds, "files": len(written), "bytes": sum(written)}


def inputs(folder: Path) -> dict[int, list[str]]:
    by_partition: dict[int, list[str]] = {}
    for file in open_table(folder).scan().plan().files:
        by_partition.setdefault(file.partition[0], []).append(
            file.file_path.removeprefix("file://")
        )
    return by_partition


CONTENDERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "ours": ours,
    "pyarrow_stream": stream,
    "pyarrow_dataset": dataset,
    BESIDE: ours_beside_a_writer,
}


PARTS = {
    "pyarrow": ["ours", "pyarrow_stream", "pyarrow_dataset"],
    ICEBERG: ["ours", ICEBERG],
    WRITER: [BESIDE],
}


def in_child(name: str, folder: Path, peer: tuple[str, str] | None = None) -> dict[str, Any]:
    """Run a contender in a process of its own, then put the table back."""
    before = open_table(folder).metadata.current_snapshot_id
    command = [
        sys.executable,
        "-m",
        "benchmarks.compaction",
        "--child",
        name,
        "--folder",
        str(folder),
    ]
    if name == ICEBERG and peer is not None:
        python, jar = peer
        command = [
            python,
            str(PEER),
            "--runtime",
            jar,
            "--warehouse",
            folder.as_uri(),
            "--table",
            NAME,
        ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise SystemExit(f"{name} failed:\n{answer.stderr[-3000:]}")
    table = open_table(folder)
    if table.metadata.current_snapshot_id != before:
        table.rollback_to(before)
        table.expire_snapshots(older_than=dt.datetime.now(dt.UTC), retain_last=1_000_000)
    result: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return result


def run(
    folder: Path, scale: float, rounds: int, part: str, peer: tuple[str, str] | None
) -> dict[str, Any]:
    built = folder.exists() and any(folder.iterdir())
    table = open_table(folder) if built else build(folder, max(PARTITIONS, round(FILES * scale)))
    sizes = [file.file_size_in_bytes for file in table.scan().plan().files]
    names = PARTS[part]
    times: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for file in table.scan().plan().files:  # into the page cache, for all alike
        table.storage.read(file.file_path)
    facts = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpus": os.cpu_count(),
            "load": round(os.getloadavg()[0], 2),
            "python": platform.python_version(),
        },
        "versions": {name: version(name) for name in ("pyarrow", "numpy")},
    }
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            times[name].append(in_child(name, folder, peer))
            print(f"{name}: {times[name][-1]}", file=sys.stderr, flush=True)
    if part == WRITER:
        return {WRITER: {**facts, **min(times[BESIDE], key=lambda run_: run_["append_ms_median"])}}
    best = {name: min(runs, key=lambda times_: times_["seconds"]) for name, runs in times.items()}
    return {
        "benchmark": "compaction",
        **facts,
        "input": {
            "files": len(sizes),
            "bytes": sum(sizes),
            "mean_file_bytes": round(statistics.mean(sizes)),
            "rounds": rounds,
        },
        "contenders": best,
        "speed_of_ours": {
            name: round(best[name]["seconds"] / best["ours"]["seconds"], 2)
            for name in names
            if name != "ours"
        },
    }


def with_other_parts(part: str, result: dict[str, Any]) -> dict[str, Any]:
    """The results to keep: each part is added to the others.

    A run beside Iceberg has its own time of ours.
    """
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    before.pop("notes", None)
    if part == WRITER:
        return {**before, **result}
    speeds = {**before.get("speed_of_ours", {}), **result["speed_of_ours"]}
    if part == ICEBERG:
        return {**before, "iceberg": result, "speed_of_ours": speeds}
    return {
        **result,
        **{name: before[name] for name in ("iceberg", WRITER) if name in before},
        "speed_of_ours": speeds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", choices=["all", *PARTS], default="all")
    parser.add_argument("--iceberg-runtime", help="jar of iceberg-spark-runtime")
    parser.add_argument(
        "--iceberg-python",
        default=sys.executable,
        help="Python whose PySpark the jar was built for",
    )
    parser.add_argument("--child", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    parser.add_argument(
        "--folder",
        type=Path,
        help="where the table goes, or is from an earlier run; a temporary one by default",
    )
    arguments = parser.parse_args()
    if arguments.child:
        started = time.process_time()
        measured = CONTENDERS[arguments.child](arguments.folder)
        facts = {
            "seconds": round(measured["seconds"], 3),
            "processor_seconds": round(time.process_time() - started, 3),
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        print(json.dumps({**facts, **measured, "seconds": facts["seconds"]}))
        return
    peer = (
        (arguments.iceberg_python, arguments.iceberg_runtime) if arguments.iceberg_runtime else None
    )
    if arguments.part == ICEBERG and peer is None:
        parser.error("beside Iceberg: give its --iceberg-runtime")
    parts = (
        [part for part in PARTS if part != ICEBERG or peer]
        if arguments.part == "all"
        else [arguments.part]
    )
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="lakehouse-compaction-"))
    try:
        for part in parts:
            result = run(folder, arguments.scale, arguments.rounds, part, peer)
            show(result)
            if arguments.scale >= 1:
                RESULTS.write_text(json.dumps(with_other_parts(part, result), indent=1) + "\n")
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def show(result: dict[str, Any]) -> None:
    if WRITER in result:
        print("beside a writer:", json.dumps(result[WRITER]))
        return
    files = result["input"]
    print(
        f"{files['files']:,} files of {files['mean_file_bytes']:,} bytes, load "
        f"{result['machine']['load']:.1f}"
    )
    for name, contender in result["contenders"].items():
        seconds, memory = contender["seconds"], contender["peak_memory_bytes"] >> 20
        speed = files["bytes"] / seconds / 1e6
        used = f"{seconds:7.2f} s {contender['processor_seconds']:7.2f} s of CPU {memory:6} MiB"
        print(f"{name:18} {used} {speed:7.1f} MB/s {contender['files']} files")
    for name, ratio in result["speed_of_ours"].items():
        goal = f" (target {TARGET_RATIO})" if name.startswith("pyarrow") else " (target > 1)"
        print(f"ours is {ratio} x as fast as {name}{goal}")


if __name__ == "__main__":
    main()
