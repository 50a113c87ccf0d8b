"""Rows are removed by copy on write a batch at a time, however large a file is."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHANGE = """
import resource, sys
import numpy as np, pyarrow as pa, lakehouse as lh

verb, folder, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
names = [f"c{i}" for i in range(15)]
lake = lh.load_catalog(f"sqlite:///{folder}/c.db", warehouse=folder)
table = lake.create_table(
    "raw.e", pa.schema([("id", pa.int64()), *[(name, pa.float64()) for name in names]])
)

def batches():
    for start in range(0, rows, 100_000):
        ids = np.arange(start, start + 100_000)
        yield pa.record_batch({"id": ids, **{name: ids % 977 / 7 for name in names}})

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

table.append(batches())
assert len(table.scan().plan().files) == 1
before = peak()
if verb == "delete":
    table.delete("id = 7")
elif verb == "delete many":
    table.delete("id % 2 = 0")
elif verb == "update":
    table.update({"c0": "0.5"}, where="id = 7")
else:
    table.overwrite(pa.table({"id": [-1], **{n: [0.0] for n in names}}), where="id = 7")
grown = peak() - before
print(grown, table.scan().count())
"""
ROWS = 3_000_000
DECODED = ROWS * 16 * 8


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is in KiB on Linux")
@pytest.mark.parametrize(
    ("verb", "left"),
    [
        ("delete", ROWS - 1),
        ("delete many", ROWS // 2),
        ("update", ROWS),
        ("overwrite", ROWS),
    ],
)
def test_no_file_is_held_whole(tmp_path, verb, left):
    done = subprocess.run(
        [sys.executable, "-c", CHANGE, verb, str(tmp_path), str(ROWS)],
        check=True,
        capture_output=True,
        text=True,
    )
    grown, count = (int(number) for number in done.stdout.split())
    assert count == left
    assert grown < DECODED, f"{grown >> 20} MiB for a file of {DECODED >> 20} MiB"
