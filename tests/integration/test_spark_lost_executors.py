"""Executors that die in the middle of a write, and tasks that run twice: every row once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cluster.loopback import loopback_spark
from tests.integration.spark_support import lake

__all__ = ["lake"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# A worker of Python is a child of a daemon, whose parent is the executor.
PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
from lakehouse.lake import load_catalog
from lakehouse.spark import build_session
from lakehouse.spark.writing.native_files import frame_obstacle

warehouse, marks, how, master = sys.argv[1:5]
marks = Path(marks)
spark = build_session("lost", master=master, config={
    "spark.speculation": str(how == "slow").lower(), "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.4", "spark.speculation.multiplier": "1.1",
    "spark.executor.memory": "1g",
})

def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def troubled(batches):
    for number, batch in enumerate(batches):
        yield batch
        if 400 in batch.column(0).to_pylist():
            try:
                (marks / "first").touch(exist_ok=False)
            except FileExistsError:
                (marks / "second").touch()
                continue
            if how == "killed":
                os.kill(parent(os.getppid()), signal.SIGKILL)
            time.sleep(400)

lake = load_catalog(warehouse)
table = lake.load_table("j.lost")
frame = spark.range(0, 6000, 1, 6).mapInArrow(troubled, "id long").selectExpr("id", "id % 3 AS key")
assert frame_obstacle(frame, table.write_request(), table.storage) is None
started = time.monotonic()
table.append(frame)
print(json.dumps({"seconds": time.monotonic() - started}), flush=True)
os._exit(0)  # the straggler is not waited for
"""


@pytest.fixture
def master(tmp_path: Path):
    """A cluster of two workers that are two hosts: Spark repeats no slow task on its own host."""
    with loopback_spark(tmp_path / "cluster") as url:
        yield url


@pytest.mark.parametrize("how", ["killed", "slow"])
def test_every_row_is_there_once(lake, tmp_path: Path, how: str, master: str) -> None:
    table = lake.create_table(
        "j.lost",
        pa.schema([("id", pa.int64()), ("key", pa.int64())]),
        partition_by=["key"],
        properties={"write.distribution-mode": "none"},
    )
    marks = tmp_path / "marks"
    marks.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"file://{tmp_path}/warehouse", str(marks), how, master],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert {one.name for one in marks.iterdir()} == {"first", "second"}  # it was tried twice
    if how == "slow":
        assert json.loads(done.stdout.splitlines()[-1])["seconds"] < 400
    table.refresh()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(6000))
    assert len(table.snapshots()) == 1
