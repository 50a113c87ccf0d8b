"""Spark Declarative Pipelines over `lakehouse spark-connect`, by Spark's own command line."""

from __future__ import annotations

import json
import subprocess
import sys

import dagster as dg
import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.orchestration.components import SparkPipelineComponent
from lakehouse.orchestration.resources import LakehouseResource
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
    client(url, "TRUNCATE TABLE lake.raw.sums")
    assert view()[1] == {"k": [], "s": [], "n": []}
    client(url, "INSERT INTO lake.raw.sums VALUES (9, 9, 9)")
    assert view()[1] == {"k": [9], "s": [9], "n": [9]}
    assert run("bucket(4, k), truncate(10, k)", more).returncode == 0
    assert view()[1] == rows


CLIENT = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).create()
print(json.dumps([row.asDict() for row in spark.sql(sys.argv[2]).collect()]))
"""


STREAM = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).create()
rows = spark.readStream.schema("id long, name string").json(sys.argv[2])
writer = rows.writeStream.option("checkpointLocation", sys.argv[3]).trigger(availableNow=True)
query = writer.toTable("lake.raw.streamed")
query.awaitTermination()
print(spark.read.table("lake.raw.streamed").count())
"""


def test_a_stream_over_connect_is_in_the_table_once(served, tmp_path):
    """`writeStream` of a client without a JVM: files that land between runs, and none twice."""
    folder, url = served
    lake = lh.load_catalog(f"file://{folder}/warehouse")
    schema = pa.schema({"id": pa.int64(), "name": pa.string()})
    lake.create_table("raw.streamed", schema, partition_by=["bucket(2, id)"])
    landing = tmp_path / "landing"
    landing.mkdir()
    command = [sys.executable, "-c", STREAM, url, str(landing), str(tmp_path / "checkpoint")]
    for run, landed in enumerate(([1, 2, 3], [4], [])):
        if landed:
            lines = (json.dumps({"id": number, "name": f"n{number}"}) for number in landed)
            (landing / f"{run}.json").write_text("\n".join(lines))
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        assert int(done.stdout) == (3, 4, 4)[run]
    table = lake.load_table("raw.streamed")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
    assert [snapshot.operation for snapshot in table.metadata.snapshots] == ["append", "append"]


def client(url, statement):
    """Rows of a statement, in a process of its own: a remote session makes PySpark a client."""
    command = [sys.executable, "-c", CLIENT, url, statement]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


STREAMS = """
import os

def landed_files(*_):
    return spark.readStream.schema("id long, seq long, v string").json("FOLDER/landed")

@dp.temporary_view
def landed():
    return landed_files()

@dp.table(table_properties={"lakehouse.partition-by": "bucket(4, id)"})
def arrivals():
    planted = F.raise_error(F.lit("planted")).cast("string")
    return landed_files().withColumn("v", planted if "FAIL" in os.environ else F.col("v"))

dp.create_streaming_table("both")
for added in (0, 100):
    @dp.append_flow(target="both", name=f"flow{added}")
    def flow(added=added):
        return landed_files().select((F.col("id") + added).alias("id"))

dp.create_streaming_table("latest")
dp.create_auto_cdc_flow(target="latest", source="landed", keys=["id"], sequence_by="seq")

dp.create_sink("out", "json", {"path": "FOLDER/out"})
@dp.append_flow(target="out")
def outward():
    return landed_files()

@dp.materialized_view
def counts():
    return spark.read.table("lake.raw.arrivals").groupBy("v").count()
"""


def test_streaming_tables(served, tmp_path):
    folder, url = served
    lake = lh.load_catalog(f"file://{folder}/warehouse")
    lake.create_namespace("raw", exist_ok=True)
    before = set(lake.list_tables("raw"))
    (tmp_path / "landed").mkdir()
    project = write_project(tmp_path, streams=HEAD + STREAMS.replace("FOLDER", str(tmp_path)))

    def land(number, *rows):
        lines = [json.dumps(dict(zip(("id", "seq", "v"), row, strict=True))) for row in rows]
        (tmp_path / "landed" / f"{number}.json").write_text("\n".join(lines))

    def rows(name, *columns):
        found = lake.load_table(f"raw.{name}").scan(select=columns).to_arrow().to_pylist()
        return sorted(tuple(row.values()) for row in found)

    first = [(1, 1, "a"), (2, 2, "b"), (3, 3, "c")]
    late = [(2, 0, "older"), (3, 9, "newer"), (7, 1, "x")]
    land(1, *first)
    failed = run_pipeline(url, project, variables={"FAIL": "yes"})
    assert "planted" in failed.stderr
    assert not {"raw.arrivals", "raw.counts"} & set(lake.list_tables("raw"))

    for options in ((), (), ("--full-refresh-all",)):
        done = run_pipeline(url, project, "run", *options)
        assert done.returncode == 0, done.stderr[-4000:]
        landed = first + late * (tmp_path / "landed" / "2.json").exists()
        assert rows("arrivals", "id", "seq", "v") == sorted(landed)
        assert rows("both", "id") == sorted((key + add,) for key, *_ in landed for add in (0, 100))
        newest = {row[0]: row for row in sorted(landed, key=lambda row: row[1])}
        assert rows("latest", "id", "seq", "v") == sorted(newest.values())
        assert rows("counts", "count", "v") == sorted((1, v) for *_, v in landed)
        land(2, *late)
    [spec] = lake.load_table("raw.arrivals").metadata.partition_specs
    assert [str(one.transform) for one in spec.fields] == ["bucket[4]"]

    shown = {row["tableName"] for row in client(url, "SHOW TABLES IN lake.raw")}
    assert {"arrivals", "both", "latest"} <= shown
    made = {name.removeprefix("raw.") for name in set(lake.list_tables("raw")) - before}
    assert made - shown == {"__spark_autocdc_aux_state_latest"}


SALES = """
@dp.materialized_view(comment="what each brings")
def revenue():
    return spark.sql("WITH s AS (SELECT * FROM paid) SELECT k, sum(v) AS v FROM s GROUP BY k")

@dp.temporary_view
def paid():
    return spark.read.table("raw.orders").where("v > 0")

@dp.materialized_view
def leader():
    top = spark.read.table("revenue").orderBy(F.desc("v")).limit(1)
    return top.withColumn("v", F.raise_error(F.lit("planted")).cast("long")) if FAILS else top
"""


def test_a_pipeline_as_assets(served, tmp_path):
    folder, url = served
    lake = lh.load_catalog(f"file://{folder}/warehouse")
    orders = lake.create_table("raw.orders", pa.schema({"k": pa.int64(), "v": pa.int64()}))
    orders.append(pa.table({"k": [1, 2, 1], "v": [1, 2, 3]}))
    project = write_project(tmp_path, sales=HEAD + SALES.replace("FAILS", "True"))
    component = SparkPipelineComponent(str(project / "spark-pipeline.yml"), remote=url)
    component.write_state_to_path(tmp_path / "state")
    definitions = component.build_defs_from_state(None, tmp_path / "state")
    [assets] = definitions.assets
    keys = {name: dg.AssetKey(["raw", name]) for name in ("orders", "revenue", "leader")}
    assert assets.asset_deps == {
        keys["revenue"]: {keys["orders"]},
        keys["leader"]: {keys["revenue"]},
    }

    def run(fails):
        write_project(tmp_path, sales=HEAD + SALES.replace("FAILS", str(fails)))
        resources = {"lakehouse": LakehouseResource(catalog=f"file://{folder}/warehouse")}
        done = dg.materialize([assets], resources=resources, raise_on_error=False)
        return done.success, {
            one.asset_key: {
                name: value.value
                for name, value in one.step_materialization_data.materialization.metadata.items()
            }
            for one in done.get_asset_materialization_events()
        }

    success, found = run(fails=True)
    assert not success
    assert list(found) == [keys["revenue"]]  # the other has not changed, and is not said to have
    success, found = run(fails=False)
    assert success
    snapshots = {
        name: str(lake.load_table(f"raw.{name}").metadata.current_snapshot_id) for name in keys
    }
    for name, source in (("revenue", "orders"), ("leader", "revenue")):
        assert found[keys[name]]["lakehouse/snapshot_id"] == snapshots[name]
        inputs = found[keys[name]]["lakehouse/input_snapshot_ids"]
        assert inputs == {f"raw.{source}": snapshots[source]}
