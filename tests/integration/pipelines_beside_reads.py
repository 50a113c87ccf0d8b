"""Refreshes of a project of Spark Declarative Pipelines, with every kind of flow, beside reads.

Half of the refreshes fail: the query of a view does, after most of its rows are written, and its
columns change with the others. Each read of the view has to find all rows of one refresh that
succeeded, under the columns of that refresh. A file of changes lands before each refresh: of the
streaming table that it is appended to, of the one that it is applied to by key, and of the view
that counts the first one's rows each read has to find whole files, and never fewer than before.

    python -m tests.integration.pipelines_beside_reads --refreshes 100 --reads 100000
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import lakehouse as lh
from tests.cluster.ports import free_port
from tests.waiting import reaped

LAKEHOUSE = [sys.executable, "-c", "from lakehouse.cli import app; app()"]
ROWS = 200
KEYS = 5
SPEC = """
name: tests
storage: file://{folder}/storage
catalog: lake
database: raw
libraries:
  - glob:
      include: transformations/**
"""
VIEW = """
import os
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F

spark, number = SparkSession.active(), int(os.environ["REFRESH"])

@dp.materialized_view(table_properties={"lakehouse.partition-by": "bucket(4, id)"})
def view():
    rows = spark.read.table("lake.raw.seed").withColumn("refresh", F.lit(number))
    last = F.when(F.col("id") == 199, F.raise_error(F.lit("planted")).cast("int"))
    return rows.withColumn(f"c{number // 2 % 2}", last if number % 2 else F.lit(0))
"""
FLOWS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

def landed():
    return SparkSession.active().readStream.schema("k long, file long").json("FOLDER/landed")

@dp.temporary_view
def changes():
    return landed()

dp.create_streaming_table(
    "collected", table_properties={"lakehouse.partition-by": "bucket(4, k)"}
)

@dp.append_flow(target="collected")
def collecting():
    return landed()

dp.create_streaming_table("newest")
dp.create_auto_cdc_flow(target="newest", source="changes", keys=["k"], sequence_by="file")

dp.create_sink("out", "json", {"path": "FOLDER/out"})

@dp.append_flow(target="out")
def outward():
    return landed()

@dp.materialized_view
def counted():
    return SparkSession.active().read.table("lake.raw.collected").groupBy("k").count()
"""
REFRESHES = """
import json, os, sys
from pathlib import Path
from pyspark.pipelines.cli import run

for number in range(int(sys.argv[1])):
    os.environ["REFRESH"] = str(number)
    rows = [json.dumps({"k": k, "file": number}) for k in range(int(sys.argv[2]))]
    Path("waiting").write_text("\\n".join(rows))
    Path("waiting").rename(f"landed/{number}.json")
    try:
        run(Path("spark-pipeline.yml"), [], False, [], False)
        print("told", number, "", flush=True)
    except Exception as error:
        print("told", number, "planted" if "planted" in str(error) else error, flush=True)
"""
"""What `spark-pipelines run` does, many times in one process."""


@contextmanager
def pipeline_server(folder: Path) -> Iterator[str]:
    """`lakehouse spark-connect` over the warehouse in a folder; gives its URL."""
    port = free_port()
    command = [*LAKEHOUSE, "spark-connect", "--catalog", f"file://{folder}/warehouse", "--json"]
    small = ["--spark-config", "spark.driver.memory=1g"]
    few = ["--spark-config", "spark.sql.shuffle.partitions=2"]
    with reaped(
        subprocess.Popen(
            [*command, "--port", str(port), "--master", "local[2]", *small, *few],
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
    ) as server:
        while not (line := server.stdout.readline()).endswith("}\n"):
            assert line, "the server ended"
        yield f"sc://127.0.0.1:{port}"


def run_pipeline(
    url: str, project: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`spark-pipelines` on a project."""
    return subprocess.run(
        [sys.executable, "-m", "pyspark.pipelines.cli", *(arguments or ("run",))],
        env={**os.environ, "SPARK_REMOTE": url, **(variables or {})},
        capture_output=True,
        text=True,
        cwd=project,
        timeout=600,
        check=False,
    )


def write_project(folder: Path, **files: str) -> Path:
    """A project whose transformations are these texts."""
    project = folder / "project"
    (project / "transformations").mkdir(parents=True, exist_ok=True)
    (project / "spark-pipeline.yml").write_text(SPEC.format(folder=folder))
    for name, text in files.items():
        (project / "transformations" / f"{name}.py").write_text(text)
    return project


OF_FILES: Mapping[str, Callable[[pa.Table], list[int]]] = {
    "collected": lambda rows: pc.value_counts(rows["k"]).field("counts").to_pylist(),
    "newest": lambda rows: rows["file"].to_pylist(),
    "counted": lambda rows: rows["count"].to_pylist(),
}
"""Tables that files come to -> a number for each key, which rises with the files."""


@dataclass
class Reader(threading.Thread):
    """Reads the tables in turns until it is told to stop.

    Attributes:
        reads: how many reads there were.
        faults: what was wrong with some.
    """

    lake: lh.Lakehouse
    enough: threading.Event
    least: int
    reads: int = 0
    newest: int = 0
    files: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        for name in itertools.cycle(["view", *OF_FILES]):
            rows = self.lake.load_table(f"raw.{name}").scan().to_arrow()
            if name == "view":
                self._look(rows)
            else:
                self._look_for_files(name, rows)
            self.reads += 1
            if self.reads >= self.least and self.enough.is_set():
                return

    def _look_for_files(self, name: str, rows: pa.Table) -> None:
        """Each key has as many rows, or as great a number."""
        found = OF_FILES[name](rows)
        whole = len(found) == KEYS and len(set(found)) == 1
        if not whole or found[0] < self.files.get(name, 0):
            self.faults.append(f"{name}: {found} after {self.files.get(name)}")
        else:
            self.files[name] = found[0]

    def _look(self, rows: pa.Table) -> None:
        found = pc.unique(rows["refresh"]).to_pylist() if len(rows) else []
        if len(rows) != ROWS or len(found) != 1:
            self.faults.append(f"{len(rows)} rows of refreshes {found}")
            return
        [number] = found
        wanted = ["id", "refresh", f"c{number // 2 % 2}"]
        if number % 2 or number < self.newest or rows.column_names != wanted:
            self.faults.append(f"refresh {number} after {self.newest}: {rows.column_names}")
        self.newest = number


def refresh_beside_reads(folder: Path, url: str, refreshes: int, reads: int) -> list[Reader]:
    """Refresh the project, the first time before anybody reads. Raises AssertionError.

    Args:
        refreshes: how often beside the reads; every other fails.
        reads: how many reads there are at least.
    """
    project = write_project(folder, view=VIEW, flows=FLOWS.replace("FOLDER", f"{folder}/project"))
    (project / "landed").mkdir()
    lake = lh.load_catalog(f"file://{folder}/warehouse")
    lake.create_table("raw.seed", pa.schema({"id": pa.int64()})).append(
        pa.table({"id": range(ROWS)})
    )
    with reaped(
        subprocess.Popen(
            [sys.executable, "-c", REFRESHES, str(1 + refreshes), str(KEYS)],
            env={**os.environ, "SPARK_REMOTE": url},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=project,
        )
    ) as client:
        told = (line.split(maxsplit=2) for line in client.stdout if line.startswith("told"))
        assert next(told) == ["told", "0"]
        enough = threading.Event()
        readers = [Reader(lake, enough, reads // 2) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            for number, answer in enumerate(told, start=1):
                failed = ["planted\n"] * (number % 2)
                assert answer == ["told", str(number), *failed]
        finally:
            enough.set()
            for reader in readers:
                reader.join()
    assert number == refreshes
    table = lake.load_table("raw.view")
    assert [snapshot.operation for snapshot in table.metadata.snapshots] == ["overwrite"] * (
        1 + refreshes // 2
    )
    landed = 1 + refreshes  # a run whose view failed may have left the file to the next one
    collected = lake.load_table("raw.collected").scan().to_arrow()["file"].to_pylist()
    assert sorted(collected) == sorted(list(range(landed)) * KEYS)
    return readers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--refreshes", type=int, default=100)
    parser.add_argument("--reads", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, pipeline_server(Path(name)) as url:
        readers = refresh_beside_reads(Path(name), url, given.refreshes, given.reads)
    faults = [fault for reader in readers for fault in reader.faults]
    reads = sum(reader.reads for reader in readers)
    failed = given.refreshes - given.refreshes // 2
    told = f"{given.refreshes} refreshes, {failed} of which failed, beside {reads} reads"
    sys.stdout.write("\n".join([*faults[:20], f"{told}: {len(faults)} empty or torn", ""]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
