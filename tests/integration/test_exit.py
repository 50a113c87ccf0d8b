"""Programs that leave a stream before its end go as they should: rc 0, no thread left behind.

An engine that has enough rows drops a reader while a thread of its own may be inside it: without
an end at exit about half of these died by PyGILState_Release, and some never ended.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys

import pyarrow as pa
import pytest

import lakehouse as lh

TIMES = 3
READ = "import lakehouse as lh; s = lh.load_catalog({folder!r}).load_table('a.b').scan()\n"
DUCKDB = "import duckdb; r = duckdb.sql('select * from s limit 2')"
STREAM = "import pyarrow as pa; r = pa.RecordBatchReader.from_stream(s)"
PROGRAMS = {
    "duckdb": f"{DUCKDB}.fetchall(); print(len(r))",
    "duckdb, kept": f"{DUCKDB}; print(len(r.fetchall()))",
    "batches, broken off": "for b in s.to_batches():\n    print(2)\n    break",
    "batches, kept": "r = s.to_batches(); r.read_next_batch(); print(2)",
    "stream, kept": f"{STREAM}; r.read_next_batch(); print(2)",
    "polars": "import polars as pl; print(pl.DataFrame(s).head(2).height)",
    "sql": (
        "from lakehouse.cli import app\napp(['-c', {folder!r}, 'sql', 'select * from a.b limit 2'])"
    ),
    "thread": (
        "import threading; r = s.to_batches()\n"
        "t = threading.Thread(target=r.read_next_batch); t.start(); t.join(); print(2)"
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    place = tmp_path_factory.mktemp("exit")
    schema = pa.schema([("d", pa.date32()), ("s", pa.string())])
    table = lh.load_catalog(str(place)).create_table("a.b", schema, partition_by=["day(d)"])
    days = [dt.date(2026, 1, 1) + dt.timedelta(n % 30) for n in range(60_000)]
    table.append(pa.table({"d": days, "s": ["x" * 20 + str(n) for n in range(60_000)]}, schema))
    return str(place)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_stream_that_is_left_early_lets_the_program_end(folder: str, program: str):
    text = READ.format(folder=folder) + PROGRAMS[program].format(folder=folder)
    for _ in range(TIMES):
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=600)
        assert (done.returncode, done.stderr) == (0, b""), program
        assert done.stdout
