"""How long `lakehouse undo` takes on a table with many files.

python -m benchmarks.undo [--files 100000] [--runs 100]. Files are entries of manifests that nobody
opens. A run appends rows to the table and to a small one; it is planned and undone in one
transaction, the catalog opened anew. `--by-rows`: others have appended to the table since.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import lakehouse as lh
from benchmarks.delta_log import COLUMNS, data_file, timed
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.lineage.undo import execute, plan
from lakehouse.spec.metadata.snapshot import RUN_ID

NAMES = ("bench.many", "bench.small")


def undone(lake: Lakehouse, run: str, *, by_rows: bool) -> None:
    execute(lake, plan(lake, run, NAMES, by_rows=by_rows))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.undo")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--by-rows", action="store_true")
    options = parser.parse_args()
    columns = [f"c{number}" for number in range(1, COLUMNS + 1)]
    fields = [NestedField(n, name, LongType(), required=False) for n, name in enumerate(columns, 1)]
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        where = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/lake"}
        lake = lh.load_catalog(**where)
        for name in NAMES:
            table = lake.create_table(name, Schema(*fields), format_version=3)
            files = options.files if name == NAMES[0] else 1
            table.transaction().append([data_file(table, n) for n in range(files)]).commit()
        for run in range(options.runs):
            for name in NAMES:
                rows = pa.table({column: [-1 - run] * 3 for column in columns})
                lake.load_table(name).append(rows, summary={RUN_ID: f"run-{run}"})
            if options.by_rows:
                lake.load_table(NAMES[0]).append(
                    pa.table({column: [-1_000_000 - run] for column in columns})
                )
            opened = lh.load_catalog(**where)
            seconds.append(timed(partial(undone, opened, f"run-{run}", by_rows=options.by_rows)))
    seconds.sort()
    at = {"median": 0.5, "p99": 0.99, "most": 1.0}
    told = {name: round(seconds[min(int(part * len(seconds)), len(seconds) - 1)], 3)
            for name, part in at.items()}  # fmt: skip
    print(json.dumps({"files": options.files, "runs": options.runs, "seconds": told}))


if __name__ == "__main__":
    main()
