"""How long `lakehouse undo` takes on a table with many files.

python -m benchmarks.undo [--files 100000] [--runs 100]. Files are entries of manifests that nobody
opens. A run appends rows to the table and to a small one; it is planned and undone in one
transaction, the catalog opened anew, then by rows, where others have appended to the table since.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import lakehouse as lh
from benchmarks.delta_log import COLUMNS, data_file, timed
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.lineage.undo import execute, plan
from lakehouse.spec.metadata.snapshot import RUN_ID

NAMES = ("bench.many", "bench.small")


RESULTS = Path(__file__).parent / "results" / "undo.json"


def undone(lake: Lakehouse, run: str, *, by_rows: bool) -> None:
    execute(lake, plan(lake, run, NAMES, by_rows=by_rows))


def measured(where: dict[str, str], runs: int, *, by_rows: bool) -> dict[str, float]:
    """Seconds that undoing a run takes, of the clock and of the processor."""
    columns = [f"c{number}" for number in range(1, COLUMNS + 1)]
    lake, seconds, processor = lh.load_catalog(**where), [], []
    for number in range(runs):
        run = f"run-{number}{by_rows}"
        rows = pa.table({column: [-1 - number] * 3 for column in columns})
        for name in NAMES:
            lake.load_table(name).append(rows, summary={RUN_ID: run})
        if by_rows:
            others = pa.table({column: [-1_000_000 - number] for column in columns})
            lake.load_table(NAMES[0]).append(others)
        started = time.process_time()
        seconds.append(timed(partial(undone, lh.load_catalog(**where), run, by_rows=by_rows)))
        processor.append(time.process_time() - started)
    return {
        f"{name}{of}": sorted(samples)[runs * part // 100]
        for of, samples in (("", seconds), (", processor", processor))
        for name, part in (("median", 50), ("p99", 99))
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.undo")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args()
    fields = [
        NestedField(number, f"c{number}", LongType(), required=False)
        for number in range(1, COLUMNS + 1)
    ]
    with tempfile.TemporaryDirectory() as folder:
        where = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/lake"}
        for name, files in zip(NAMES, (options.files, 1), strict=True):
            table = lh.load_catalog(**where).create_table(name, Schema(*fields), format_version=3)
            table.transaction().append([data_file(table, n) for n in range(files)]).commit()
        seconds = {
            "undo": measured(where, options.runs, by_rows=False),
            "by rows": measured(where, options.runs, by_rows=True),
        }
    results = {"files": options.files, "runs": options.runs, "seconds": seconds}
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
