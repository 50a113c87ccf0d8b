"""A table that Spark makes, or makes anew, comes with its rows, or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from lakehouse.lake import load_catalog
from lakehouse.spark import attach
from tests.integration.staged_worker import STATEMENTS
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
WORKER = "tests.integration.staged_worker"
TASKS = 8
KEPT = pa.table({"id": [1, 2, 3]})
BEFORE = ("remade", "replaced")


def catalogs(tmp_path):
    return {
        "files": (f"file://{tmp_path}/files", f"file://{tmp_path}/files"),
        "sqlite": (f"sqlite:///{tmp_path}/c.db", f"{tmp_path}/sqlite"),
    }


def opened(tmp_path, kind):
    uri, warehouse = catalogs(tmp_path)[kind]
    lake = load_catalog(uri, warehouse=warehouse)
    for name in BEFORE:
        lake.create_table(f"raw.{name}", KEPT.schema).append(KEPT)
    return lake


@pytest.fixture(params=["files", "sqlite"])
def lake(request, tmp_path, spark):
    lake = opened(tmp_path, request.param)
    attach(spark, lake, name="lake")
    return lake


def files(tmp_path):
    """What the catalogs keep in their folders."""
    found = (one for kind in ("files", "sqlite") for one in (tmp_path / kind).rglob("*"))
    return {one for one in found if one.is_file() and one.suffix not in (".crc", ".text")}


def check_kept(lake):
    assert lake.list_namespaces() == ["raw"]
    assert lake.list_tables() == [f"raw.{name}" for name in BEFORE]
    for name in BEFORE:
        table = lake.load_table(f"raw.{name}")
        assert table.scan().to_arrow().equals(KEPT)
        assert len(table.snapshots()) == 1
        assert table.spec().is_unpartitioned()


def test_a_killed_statement_leaves_everything_as_it_was(tmp_path, spark):
    lakes = {kind: opened(tmp_path, kind) for kind in catalogs(tmp_path)}
    marks = tmp_path / "marks"
    marks.mkdir()
    before = files(tmp_path)
    worker = subprocess.Popen(
        [sys.executable, "-m", WORKER, json.dumps(catalogs(tmp_path)), str(marks)],
        cwd=ROOT,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    try:
        all_marks = len(lakes) * len(STATEMENTS)
        eventually(lambda: worker.poll() is not None or len(list(marks.iterdir())) == all_marks)
        assert worker.poll() is None
        # tasks of the partitioned ones wait for each other before they write
        written = all_marks - len(lakes)
        eventually(lambda: len({one.parent for one in files(tmp_path) - before}) >= written)
        for lake in lakes.values():
            check_kept(lake)
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
    for kind, lake in lakes.items():
        check_kept(lake)
        attach(spark, lake, name=kind)
        for name, text in STATEMENTS.items():
            spark.sql(f"{text.format(lake=kind)} SELECT id AS n, 'a' AS word FROM range(5)")
            assert spark.table(f"{kind}.raw.{name}").count() == 5


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_query_that_fails_half_way_leaves_everything_as_it_was(lake, tmp_path, spark, name):
    before = files(tmp_path)
    text = STATEMENTS[name].format(lake="lake")
    chosen = "SELECT if(id >= 70, raise_error('no'), id) AS n, 'a' AS word"
    rows = f"{chosen} FROM range(0, 80, 1, {TASKS})"
    with pytest.raises(PySparkException, match="no"):
        spark.sql(f"{text} {rows}")
    check_kept(lake)
    # of a task that ends while the job fails Spark hears nothing: its file is an orphan. How many
    # do so depends on what else the machine has to do; the one that fails leaves none.
    left = files(tmp_path) - before
    assert {one.suffix for one in left} <= {".parquet"}
    assert len(left) < TASKS
    spark.sql(f"{text} {rows.replace('70', '80')}")
    assert spark.table(f"lake.raw.{name}").count() == 80


def test_a_table_without_rows_is_made_too(lake, spark):
    spark.sql("CREATE TABLE lake.raw.none AS SELECT 1 AS n WHERE false")
    assert spark.table("lake.raw.none").collect() == []
    spark.sql("INSERT INTO lake.raw.none VALUES (1)")
    assert spark.table("lake.raw.none").count() == 1


def test_who_comes_second_is_told(lake, spark, tmp_path):
    """Another process makes the table while the rows of the first are written."""
    lake.create_table("raw.other", KEPT.schema)
    before = files(tmp_path)
    held = tmp_path / "held"

    def meanwhile(number: int) -> int:
        held.touch()
        while not (tmp_path / "go").exists():
            time.sleep(0.05)
        return number

    spark.udf.register("meanwhile", meanwhile, "bigint")
    errors = []

    def run():
        try:
            spark.sql("CREATE TABLE lake.raw.created AS SELECT meanwhile(id) AS n FROM range(3)")
        except PySparkException as error:
            errors.append(str(error))

    statement = Thread(target=run)
    statement.start()
    eventually(held.exists)
    lake.create_table("raw.created", KEPT.schema).append(KEPT)
    theirs = files(tmp_path)
    (tmp_path / "go").touch()
    statement.join()
    assert "raw.created was created by someone else" in str(errors)
    assert lake.load_table("raw.created").scan().to_arrow().equals(KEPT)
    assert files(tmp_path) == theirs > before
