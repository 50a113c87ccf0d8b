"""Spark Declarative Pipelines over `lakehouse spark-connect`, by Spark's own command line."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import lakehouse as lh
from tests.integration.pipelines_beside_reads import (
    pipeline_server,
    refresh_beside_reads,
    run_pipeline,
    write_project,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HEAD = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.active()
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    pytest.importorskip("grpc", reason="Spark Connect needs grpc: pip install 'pylakehouse[spark]'")
    folder = tmp_path_factory.mktemp("pipelines")
    with pipeline_server(folder) as url:
        yield folder, url


def test_nobody_reads_a_view_that_is_empty_or_of_two_refreshes(served):
    folder, url = served
    for reader in refresh_beside_reads(folder, url, refreshes=3, reads=2):
        assert reader.faults == []


def inputs(table):
    summary = table.metadata.current_snapshot().summary
    return json.loads(summary["lakehouse.refresh-state"])["inputs"]


def test_views_that_change(served, tmp_path):
    folder, url = served
    lake = lh.load_catalog(f"file://{folder}/warehouse")
    source = lake.create_table("raw.sales", pa.schema({"k": pa.int64(), "v": pa.int64()}))
    source.append(pa.table({"k": [1, 2, 3, 1], "v": [1, 2, 3, 4]}))
    text = HEAD + (
        '@dp.materialized_view(table_properties={"lakehouse.partition-by": "TERMS"})\n'
        'def sums():\n    return spark.read.table("lake.raw.sales").groupBy("k").agg(SUM)\n'
        '@dp.materialized_view(partition_cols=["k"])\n'
        'def best():\n    return spark.read.table("lake.raw.sums").where("s > 2")\n'
    )

    def run(terms, aggregate, *arguments):
        project = tmp_path / "project"
        write_project(tmp_path, views=text.replace("TERMS", terms).replace("SUM", aggregate))
        return run_pipeline(url, project, *arguments)

    def view(name="sums"):
        table = lake.load_table(f"raw.{name}")
        return table, table.scan().to_arrow().sort_by("k").to_pydict()

    failing = 'F.sum(F.raise_error(F.lit("planted")).cast("long")).alias("s")'
    good = 'F.sum("v").alias("s")'
    assert run("bucket(4, k)", good, "dry-run").returncode == 0
    assert "planted" in run("bucket(4, k)", failing).stderr
    assert lake.list_tables("raw").count("raw.sums") == 0  # a first refresh that fails

    assert run("bucket(4, k)", good).returncode == 0
    table, rows = view()
    assert rows == {"k": [1, 2, 3], "s": [5, 2, 3]}
    assert [str(one.transform) for one in table.metadata.spec().fields] == ["bucket[4]"]
    best, rows = view("best")
    assert rows == {"k": [1, 3], "s": [5, 3]}
    assert [inputs(one) for one in (table, best)] == [
        {"raw.sales": str(source.metadata.current_snapshot_id)},
        {"raw.sums": str(table.metadata.current_snapshot_id)},
    ]

    more = 'F.sum("v").alias("s"), F.count("v").alias("n")'
    failed = run("bucket(4, k), truncate(10, k)", f"{more}, {failing}.alias('f')")
    assert "planted" in failed.stderr
    again = lake.load_table("raw.sums")
    assert again.metadata == table.metadata

    assert run("bucket(4, k), truncate(10, k)", more, "run", "--full-refresh-all").returncode == 0
    table, rows = view()
    assert rows == {"k": [1, 2, 3], "s": [5, 2, 3], "n": [2, 1, 1]}
    assert len(table.metadata.snapshots) == 2
    assert len(table.metadata.spec().fields) == 2

    # what users say to a view is done, and the next refresh replaces it
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(url).create()
    spark.sql("TRUNCATE TABLE lake.raw.sums")
    assert view()[1] == {"k": [], "s": [], "n": []}
    spark.sql("INSERT INTO lake.raw.sums VALUES (9, 9, 9)")
    spark.stop()
    assert view()[1] == {"k": [9], "s": [9], "n": [9]}
    assert run("bucket(4, k), truncate(10, k)", more).returncode == 0
    assert view()[1] == rows
