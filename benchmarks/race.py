"""Racing appends beside pyiceberg: several processes, one table, defaults on both sides.

An append writes one row.

python -m benchmarks.race [--writers 2,8] [--appends 50] [--catalogs sqlite,postgres]. Both sides
write a Parquet file and commit it through the same kind of SQL catalog on the same disk; an append
that raises is not tried again and counts as failed.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import platform
import shutil
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog as PyIcebergSqlCatalog

import lakehouse as lh
from tests.servers import postgres

RESULTS = Path(__file__).parent / "results" / "race.json"
NAME = "bench.events"
SCHEMA = pa.schema({"id": pa.int64()})
Appender = Callable[[pa.Table], object]


def ours(uri: str, warehouse: str) -> tuple[Appender, Callable[[], int]]:
    """(append, count rows)."""
    table = lh.load_catalog(uri, warehouse=warehouse, name="ours").load_table(NAME)
    return table.append, lambda: table.refresh().scan().count()


def theirs(uri: str, warehouse: str) -> tuple[Appender, Callable[[], int]]:
    """(append, count rows); a fresh look at the table before each append, as its users write it."""
    catalog = PyIcebergSqlCatalog("theirs", uri=uri, warehouse=warehouse)
    return lambda rows: catalog.load_table(NAME).append(rows), lambda: int(
        catalog.load_table(NAME).scan().count()
    )


SIDES = {"lakehouse": ours, "pyiceberg": theirs}


def create(side: str, uri: str, warehouse: str) -> None:
    if side == "lakehouse":
        lh.load_catalog(uri, warehouse=warehouse, name="ours").create_table(NAME, SCHEMA)
    else:
        catalog = PyIcebergSqlCatalog("theirs", uri=uri, warehouse=warehouse)
        catalog.create_namespace("bench")
        catalog.create_table(NAME, SCHEMA)


def worker(
    side: str, uri: str, warehouse: str, number: int, appends: int, barrier: Any
) -> dict[str, Any]:
    """One writer: how many appends were acknowledged or failed, and when it began and ended."""
    logging.disable(logging.CRITICAL)
    append, _ = SIDES[side](uri, warehouse)
    done, failed = 0, Counter[str]()
    barrier.wait()
    started = time.monotonic()
    for step in range(appends):
        try:
            append(pa.table({"id": [number * appends + step]}, schema=SCHEMA))
            done += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, the append failed
            failed[type(error).__name__] += 1
    return {"done": done, "failed": failed, "started": started, "stopped": time.monotonic()}


def race(side: str, uri: str, warehouse: str, writers: int, appends: int) -> dict[str, Any]:
    create(side, uri, warehouse)
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(writers, mp_context=context) as pool:
        barrier = manager.Barrier(writers)
        futures = [
            pool.submit(worker, side, uri, warehouse, number, appends, barrier)
            for number in range(writers)
        ]
        results = [future.result() for future in futures]
    seconds = max(result["stopped"] for result in results) - min(
        result["started"] for result in results
    )
    done = sum(result["done"] for result in results)
    failed = sum((result["failed"] for result in results), Counter[str]())
    rows = SIDES[side](uri, warehouse)[1]()
    return {
        "acknowledged": done,
        "failed": sum(failed.values()),
        "failed_percent": round(100 * sum(failed.values()) / (writers * appends), 1),
        "errors": dict(failed),
        "lost": done - rows,
        "appends_per_s": round(done / seconds, 1),
        "fewest_of_a_writer": min(result["done"] for result in results),
    }


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    """URL of an empty database."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/catalog.db"
        return
    with postgres() as uri:
        yield uri


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race")
    parser.add_argument("--writers", default="2,8")
    parser.add_argument("--appends", type=int, default=50)
    parser.add_argument("--catalogs", default="sqlite,postgres")
    options = parser.parse_args()
    rows = []
    for kind in options.catalogs.split(","):
        for writers in map(int, options.writers.split(",")):
            row: dict[str, Any] = {"catalog": kind, "writers": writers, "appends": options.appends}
            for side in SIDES:
                folder = Path(tempfile.mkdtemp(prefix="race-", dir=Path.cwd()))
                try:
                    with database(kind, folder) as uri:
                        row[side] = race(
                            side, uri, f"{folder}/{uuid.uuid4().hex}", writers, options.appends
                        )
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
            row["ratio"] = round(
                row["lakehouse"]["appends_per_s"] / max(row["pyiceberg"]["appends_per_s"], 0.1), 1
            )
            rows.append(row)
            print(json.dumps(row), flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    result = {
        "what": (
            "processes appending to one table, each append one row, a Parquet file and a commit; "
            "defaults on both sides"
        ),
        "versions": {name: version_of(name) for name in ("pyiceberg", "pyarrow", "sqlalchemy")}
        | {"python": platform.python_version()},
        "machine": f"{platform.machine()}, {platform.system()} {platform.release()}",
        "rows": rows,
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
