"""Runs of a code location share a Spark: its JVM, and nothing else of each other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse as lh
from tests.waiting import eventually, reaped

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("shared_spark.py")
ROOT = SCRIPT.parents[2]


class Location:
    """A process that starts runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started = 0
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"XDG_CACHE_HOME": str(folder), "PYTHONPATH": str(ROOT)},
        )

    def start(self, name, argument=None):
        """The run's process, and the file of its result."""
        self.started += 1
        file = self.folder / f"{name}-{self.started}"
        words = [name, str(file), *([] if argument is None else [argument])]
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline()), file

    def run(self, name, argument=None):
        """The result of a run."""
        process, file = self.start(name, argument)
        return self.result(process, file)

    def result(self, process, file):
        eventually(lambda: file.exists() or not alive(process))
        assert file.exists(), "the run has failed"
        return json.loads(file.read_text())

    def jvm(self) -> int:
        """The process of the JVM; 0 where there is none."""
        try:
            return int((self.shared() / "door").read_text().split()[0])
        except FileNotFoundError:
            return 0

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        with reaped(self.process):
            pass

    def shared(self) -> Path:
        """What the JVM has on the disk."""
        return self.folder / "lakehouse" / "warm-spark" / str(self.process.pid)


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended, and that nobody has asked for, does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.fixture(scope="module")
def location(tmp_path_factory):
    started = Location(tmp_path_factory.mktemp("location"))
    yield started
    jvm = started.jvm()
    started.kill()
    eventually(lambda: not alive(jvm))


def test_nothing_of_a_run_is_seen_in_the_next_one(location):
    left = location.run("leak")
    assert left["kept"] == 1
    assert left["zone"] == "Asia/Tokyo"
    assert left["used"] == f"shared, process {left['process']}"
    eventually(lambda: location.run("look")["kept"] == 0)
    eventually(lambda: not Path(left["files"]).parent.exists())
    assert location.run("look") == {
        "tables": [],
        "global": [],
        "function": False,
        "zone": "UTC",
        "kept": 0,
        "rows": 1000,
        "process": left["process"],
        "used": left["used"],
    }


def test_jobs_of_a_killed_run_end(location):
    process, file = location.start("busy")
    eventually(Path(f"{file}.began").exists)
    eventually(lambda: location.run("jobs")["active"])
    os.kill(process, signal.SIGKILL)
    eventually(lambda: not location.run("jobs")["active"])
    assert location.run("look")["rows"] == 1000


def test_two_runs_at_once_write_to_their_branches(location, tmp_path):
    warehouse = (tmp_path / "warehouse").as_uri()
    lake = lh.load_catalog(warehouse)
    events = lake.create_table("raw.events", pa.schema({"id": pa.int64()}))
    events.append(pa.table({"id": [0]}))
    runs = []
    for branch in ("one", "two"):
        lake.branch(branch).create()
        runs.append(location.start("branches", f"{warehouse} {branch} {len(runs) + 1}"))
    one, two = [location.result(*run) for run in runs]
    assert one["rows"] == [[0, 1], [1, 6]]
    assert two["rows"] == [[0, 1], [2, 6]]
    assert one["process"] == two["process"]
    assert lake.load_table("raw.events").scan().count() == 1


def test_a_killed_jvm_is_said_to_be_and_the_next_attempt_has_another(location):
    done = location.run("bereaved")
    assert (done["type"], done["retryable"]) == ("SparkLostError", True)
    assert f"process {done['before']}" in done["text"]
    assert done["process"] != done["before"]
    assert (done["rows"], done["views"]) == (5, [])
    assert location.run("look")["process"] == done["process"]


def test_a_step_whose_spark_is_killed_is_tried_again_with_another_one(location, tmp_path):
    warehouse = (tmp_path / "warehouse").as_uri()
    lake = lh.load_catalog(warehouse)
    events = lake.create_table("raw.events", pa.schema({"id": pa.int64()}))
    events.append(pa.table({"id": [1, 1, 2]}))
    done = location.run("computed", warehouse)
    assert done["success"]
    (failed,) = done["failed"]
    assert f"SparkLostError: The Spark that runs share (process {done['attempts'][0]})" in failed
    before, after = done["attempts"]
    assert before != after
    assert done["used"] == f"shared, process {after}"
    counts = lake.load_table("marts.counts").scan().to_arrow().to_pylist()
    assert sorted([*row.values()] for row in counts) == [[1, 2], [2, 1]]


def test_other_settings_have_another_jvm_and_the_one_before_ends(location):
    before = location.run("look")["process"]
    other = location.run("other")
    assert other["partitions"] == "3"
    assert other["process"] != before
    eventually(lambda: not alive(before))


def test_runs_that_import_less_of_the_project_have_the_same_jvm(location):
    late = location.run("late")["process"]
    assert [location.run(name)["process"] for name in ("look", "late", "look")] == [late] * 3


def test_nothing_is_left_of_a_killed_code_location(tmp_path):
    location = Location(tmp_path)
    process, file = location.start("busy")
    eventually((location.shared() / "door").exists)
    jvm = location.jvm()
    eventually(Path(f"{file}.began").exists)
    location.kill()
    # a run that goes on has what it needs
    eventually(lambda: not (location.shared() / "door").exists())
    assert alive(jvm)
    os.kill(process, signal.SIGKILL)
    eventually(lambda: not alive(jvm))
    assert not location.shared().exists()
