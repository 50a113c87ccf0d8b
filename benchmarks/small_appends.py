"""Commits of 10 rows x 23 columns, then 9 aggregations: ours, DuckLake, pyiceberg, in one run.

python -m benchmarks.small_appends [--commits 1000] [--peer-commits 100] [--writers 64]
[--seconds 8]. One client appends to each; `joined` has `lakehouse.write.join-files=16`. pyiceberg
commits `--peer-commits` times. Processor time stands beside each time, and the load of the
machine beside all. DuckDB aggregates everywhere, over ours and pyiceberg's as Arrow. Then
`--writers` threads append to one table: ours through our server, DuckLake's each with a connection
of its own to the same database, where a conflict is tried again. DuckLake is not a dependency:
`pip install --target FOLDER duckdb-extension-ducklake==1.5.5`, then `--ducklake FOLDER`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog as PyIcebergSqlCatalog

import lakehouse as lh
from benchmarks.group_commit import serve
from tests.cluster.ports import free_port

RESULTS = Path(__file__).parent / "results" / "small_appends.json"
ROWS = 10
JOINED = 16
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("ts", pa.timestamp("us")),
        *(pa.field(f"i{n}", pa.int64()) for n in range(7)),
        *(pa.field(f"d{n}", pa.float64()) for n in range(7)),
        *(pa.field(f"s{n}", pa.string()) for n in range(6)),
        pa.field("flag", pa.bool_()),
    ]
)
AGGREGATIONS = (
    (("id",), "SELECT count(*), min(id), max(id) FROM t"),
    (("i0",), "SELECT sum(i0) FROM t"),
    (("d0",), "SELECT round(avg(d0), 9) FROM t"),
    (("s0",), "SELECT s0, count(*) FROM t GROUP BY 1 ORDER BY 1"),
    (("s1", "i1"), "SELECT s1, sum(i1) FROM t GROUP BY 1 ORDER BY 1"),
    (("ts",), "SELECT min(ts), max(ts) FROM t"),
    (("flag", "d1"), "SELECT flag, round(max(d1), 9) FROM t GROUP BY 1 ORDER BY 1"),
    (("i2", "d2"), "SELECT i2 % 10, sum(d2 > 0.5) FROM t GROUP BY 1 ORDER BY 1"),
    (("s2",), "SELECT count(DISTINCT s2) FROM t"),
)


def rows(number: int) -> pa.Table:
    made = np.random.default_rng(number)
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    columns = [pa.array(ids), pa.array(ids * 1_000_000, pa.timestamp("us"))]
    columns += [pa.array(made.integers(0, 1000, ROWS)) for _ in range(7)]
    columns += [pa.array(made.random(ROWS)) for _ in range(7)]
    columns += [pa.array([f"value {n}" for n in made.integers(0, 50, ROWS)]) for _ in range(6)]
    columns.append(pa.array(made.random(ROWS) > 0.5))
    return pa.table(columns, schema=SCHEMA)


@contextmanager
def measured(row: dict[str, Any], name: str) -> Iterator[None]:
    wall, cpu = time.perf_counter(), _cpu()
    yield
    row[f"{name}_s"] = round(time.perf_counter() - wall, 3)
    row[f"{name}_cpu_s"] = round(_cpu() - cpu, 3)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def aggregated(read: Callable[[tuple[str, ...]], Any]) -> list[Any]:
    """The answers of DuckDB over what `read` gives of the columns."""
    answers = []
    for columns, query in AGGREGATIONS:
        with duckdb.connect() as connection:
            connection.register("t", read(columns))
            answers.append(connection.execute(query).fetchall())
    return answers


def ours(folder: Path, commits: int, join: int, row: dict[str, Any]) -> list[Any]:
    lake = lh.load_catalog(f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/warehouse")
    properties = {"lakehouse.write.join-files": str(join)} if join else {}
    table = lake.create_table("bench.events", SCHEMA, properties=properties)
    batches = [rows(number) for number in range(commits)]
    with measured(row, "insert"):
        for batch in batches:
            table.append(batch)

    def read(columns: tuple[str, ...]) -> pa.Table:
        return table.scan(select=list(columns)).to_arrow()

    row["files"] = len(table.scan().plan().tasks)
    with measured(row, "aggregations"):
        answers = aggregated(read)
    table.compact(lh.CompactionOptions(min_input_files=2))
    with measured(row, "compacted_aggregations"):
        assert aggregated(read) == answers
    lake.catalog.close()
    return answers


def ducklake(folder: Path, commits: int, inlined: bool, row: dict[str, Any]) -> list[Any]:
    connection = attach(folder, inlined)
    batches = [rows(number) for number in range(commits)]
    connection.register("batch", batches[0])
    connection.execute("CREATE TABLE lake.events AS SELECT * FROM batch LIMIT 0")
    with measured(row, "insert"):
        for batch in batches:
            connection.register("batch", batch)
            connection.execute("INSERT INTO lake.events SELECT * FROM batch")
    row["files"] = sum(1 for path in (folder / "data").rglob("*") if path.is_file())
    with measured(row, "aggregations"):
        answers = [
            connection.execute(query.replace("FROM t", "FROM lake.events")).fetchall()
            for _, query in AGGREGATIONS
        ]
    connection.close()
    return answers


def attach(folder: Path, inlined: bool) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{EXTENSION[0]}'")
    limit = ROWS if inlined else 0
    connection.execute(
        f"ATTACH 'ducklake:{folder}/catalog.ducklake' AS lake "
        f"(DATA_PATH '{folder}/data', DATA_INLINING_ROW_LIMIT {limit})"
    )
    return connection


EXTENSION: list[Path] = []


def pyiceberg(folder: Path, commits: int, row: dict[str, Any]) -> list[Any]:
    catalog = PyIcebergSqlCatalog(
        "bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/warehouse"
    )
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.events", SCHEMA)
    batches = [rows(number) for number in range(commits)]
    with measured(row, "insert"):
        for batch in batches:
            table.append(batch)
    row["files"] = commits
    with measured(row, "aggregations"):
        return aggregated(lambda columns: table.scan(selected_fields=columns).to_arrow())


def many(append: Callable[[int], Callable[[pa.Table], None]], writers: int, seconds: float) -> int:
    """Acknowledged appends of threads, each with a thing of its own to append to."""
    counts = [0] * writers
    things = [append(number) for number in range(writers)]
    until = time.monotonic() + seconds

    def work(writer: int) -> None:
        number = writer * 1_000_000
        while time.monotonic() < until:
            things[writer](rows(number))
            counts[writer] += 1
            number += 1

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def served(folder: Path, options: argparse.Namespace, row: dict[str, Any]) -> None:
    port = free_port()
    server = serve("sqlite", folder, port)
    url = f"http://127.0.0.1:{port}"
    try:
        properties = {"lakehouse.write.join-files": str(JOINED)}
        lh.load_catalog(url).create_table("bench.events", SCHEMA, properties=properties)

        def append(_: int) -> Callable[[pa.Table], None]:
            shared: dict[str, Any] = {
                "append-mode": "shared-snapshot",
                "snapshot-loading-mode": "refs",
            }
            table = lh.load_catalog(url, **shared).load_table("bench.events")

            def append_one(batch: pa.Table) -> None:
                table.append(batch)

            return append_one

        with measured(row, "insert"):
            done = many(append, options.writers, options.seconds)
        row["per_s"] = round(done / row["insert_s"], 1)
        table = lh.load_catalog(url).load_table("bench.events")
        assert table.scan().count() == ROWS * done
        row["acknowledged"], row["files"] = done, len(table.scan().plan().tasks)
    finally:
        server.terminate()
        server.wait(30)


def ducklake_many(folder: Path, options: argparse.Namespace, row: dict[str, Any]) -> None:
    main = attach(folder, inlined=True)
    main.register("batch", rows(0))
    main.execute("CREATE TABLE lake.events AS SELECT * FROM batch LIMIT 0")
    conflicts = [0] * options.writers

    def append(writer: int) -> Callable[[pa.Table], None]:
        cursor = main.cursor()

        def insert(batch: pa.Table) -> None:
            cursor.register("batch", batch)
            while True:
                try:
                    cursor.execute("INSERT INTO lake.events SELECT * FROM batch")
                except duckdb.Error:
                    conflicts[writer] += 1
                else:
                    return

        return insert

    with measured(row, "insert"):
        done = many(append, options.writers, options.seconds)
    row["per_s"] = round(done / row["insert_s"], 1)
    assert main.execute("SELECT count(*) FROM lake.events").fetchall() == [(ROWS * done,)]
    row["acknowledged"], row["conflicts"] = done, sum(conflicts)
    main.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_appends")
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--peer-commits", type=int, default=100)
    parser.add_argument("--writers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--ducklake", type=Path)
    options = parser.parse_args()
    commits, fewer = options.commits, min(options.commits, options.peer_commits)
    cases: dict[str, Callable[[Path, dict[str, Any]], Any]] = {
        "lakehouse": lambda folder, row: ours(folder, commits, 0, row),
        "lakehouse, joined": lambda folder, row: ours(folder, commits, JOINED, row),
    }
    if options.ducklake:
        EXTENSION[:] = options.ducklake.rglob("ducklake.duckdb_extension")
        cases["DuckLake, inlined"] = lambda folder, row: ducklake(folder, commits, True, row)
        cases["DuckLake"] = lambda folder, row: ducklake(folder, commits, False, row)
    cases["pyiceberg"] = lambda folder, row: pyiceberg(folder, fewer, row)
    if options.writers:
        cases["lakehouse, server"] = lambda folder, row: served(folder, options, row)
        if options.ducklake:
            cases["DuckLake, threads"] = lambda folder, row: ducklake_many(folder, options, row)
    measured_rows, answers = [], {}
    for name, run in cases.items():
        folder = Path(tempfile.mkdtemp(prefix="small-", dir=Path.cwd()))
        row: dict[str, Any] = {"who": name, "commits": fewer if name == "pyiceberg" else commits}
        try:
            answers[name] = run(folder, row)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        row["load"] = round(os.getloadavg()[0], 1)
        measured_rows.append(row)
        print(json.dumps(row), flush=True)
    first = answers["lakehouse"]
    for name, other in answers.items():
        if other is not None and name != "pyiceberg":
            different = [both for both in zip(first, other, strict=True) if both[0] != both[1]]
            assert not different, f"{name} aggregates differently: {different}"
    result = {
        "what": f"commits of {ROWS} rows x {len(SCHEMA)} columns, then {len(AGGREGATIONS)} queries",
        "machine": f"{platform.machine()}, {platform.system()} {platform.release()}",
        "versions": {name: version_of(name) for name in ("duckdb", "pyiceberg", "pyarrow")},
        "rows": measured_rows,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
