"""What a Delta log costs a commit: tables with many files, with and without it, in turn.

python -m benchmarks.delta_log [--files 100000] [--commits 20]. Files are entries of manifests with
bounds of ten columns; no step opens them. A round appends a file to both tables and deletes a row
of an old file by a deletion vector. The first log and checkpoints, the first and the next, which
cost what the table has, are shown beside.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import lakehouse as lh
from lakehouse.delta_log.delta_log import DeltaLog
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.table import Table
from lakehouse.transaction.decided_rows import DecidedRows

RESULTS = Path(__file__).parent / "results" / "delta_log.json"
COLUMNS = 10
ROWS = 1000


def data_file(table: Table, number: int) -> DataFile:
    bounds = [struct.pack("<q", number * ROWS), struct.pack("<q", number * ROWS + ROWS - 1)]
    columns = range(1, COLUMNS + 1)
    return DataFile(
        file_path=f"{table.location}/data/{number:08}-{uuid.uuid4()}.parquet",
        record_count=ROWS,
        file_size_in_bytes=1_000_000,
        value_counts=dict.fromkeys(columns, ROWS),
        null_value_counts=dict.fromkeys(columns, 0),
        lower_bounds=dict.fromkeys(columns, bounds[0]),
        upper_bounds=dict.fromkeys(columns, bounds[1]),
    )


def timed(action: Callable[[], object]) -> dict[str, float]:
    started, used = time.perf_counter(), time.process_time()
    action()
    return {
        "clock": 1000 * (time.perf_counter() - started),
        "processor": 1000 * (time.process_time() - used),
    }


def medians(measured: list[dict[str, float]]) -> dict[str, float]:
    return {by: statistics.median(one[by] for one in measured) for by in ("clock", "processor")}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.delta_log")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--commits", type=int, default=20)
    options = parser.parse_args()
    schema = Schema(
        *(
            NestedField(number, f"c{number}", LongType(), required=False)
            for number in range(1, COLUMNS + 1)
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        lake = lh.load_catalog(f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/lake")
        tables = [
            lake.create_table(f"bench.{name}", schema, format_version=3)
            for name in ("without", "with_log")
        ]
        old = []
        for table in tables:
            files = [data_file(table, number) for number in range(options.files)]
            table.transaction().append(files).commit()
            old.append(files)
        first = timed(lambda: tables[1].set_properties({"write.delta-log": "true"}))
        commits: dict[str, list[list[dict[str, float]]]] = {
            "append": [[], []],
            "delete": [[], []],
        }
        for number in range(options.commits):
            for which, table in enumerate(tables):
                current = table.refresh()
                file = data_file(current, options.files + number)
                append = current.transaction().append([file])
                commits["append"][which].append(timed(append.commit))
                victim = old[which][number * (options.files // options.commits)]
                rows = [DecidedRows(victim, np.array([number]))]
                delete = current.refresh().transaction().row_delta(rows=rows)
                commits["delete"][which].append(timed(delete.commit))
        log = DeltaLog(tables[1].storage, tables[1].location)
        checkpoints = [timed(log.checkpoint)]
        tables[1].refresh().transaction().append([data_file(tables[1], 0)]).commit()
        checkpoints.append(timed(log.checkpoint))
    results = {
        "files": options.files,
        "commits": options.commits,
        "load": os.getloadavg(),
        "first_log_ms": first,
        "checkpoints_ms": checkpoints,
        "median_ms": {
            kind: {"without": medians(without), "with_log": medians(with_log)}
            for kind, (without, with_log) in commits.items()
        },
    }
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
