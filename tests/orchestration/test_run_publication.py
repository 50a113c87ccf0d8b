"""Transactional runs: before a run has ended nobody else sees what it wrote, then all of it."""

from __future__ import annotations

import json
import os
from copy import copy
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from typer.testing import CliRunner

import lakehouse as lh
from lakehouse.catalog.open_branches import PUBLICATIONS, OpenBranches
from lakehouse.cli import app
from lakehouse.lake import Lakehouse
from lakehouse.orchestration import LakehouseIOManager, LakehouseResource, publishing
from lakehouse.orchestration.lineage.materialization import PUBLICATION, SNAPSHOT_ID, UNDO_WITH
from lakehouse.orchestration.lineage.undo import execute, plan
from lakehouse.orchestration.run_publication import PUBLISH_TAG, VERSION_TAG
from lakehouse.spark.data_source import open_table
from lakehouse.spec.metadata.snapshot import RUN_ID
from lakehouse.table import Table
from tests.orchestration import killed_publications
from tests.orchestration.conftest import Pipe, event, june
from tests.orchestration.light_dagster import light_instance

IN_RUN = {PUBLISH_TAG: "run"}


@pytest.fixture(params=["files", "sqlite"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lakehouse:
    where = str(tmp_path / "wh")
    if request.param == "sqlite":
        where = f"sqlite:///{tmp_path}/c.db"
    lake = lh.load_catalog(where, warehouse=str(tmp_path / "wh"))
    lake.create_namespace("t")
    return lake


class World:
    """Assets that read each other, and what others see of them at each step."""

    def __init__(self, lake: Lakehouse) -> None:
        self.lake, self.n, self.seen, self.fails = lake, 0, [], set()

    def resources(self, publish: str = "run") -> dict[str, object]:
        lakehouse = LakehouseResource(
            catalog=self.lake.catalog.uri, warehouse=self.lake.warehouse, publish=publish
        )
        return {"lakehouse": lakehouse, "io_manager": LakehouseIOManager(lakehouse=lakehouse)}

    def rows(self) -> dict[str, list[int]]:
        return {
            name: sorted(self.lake.load_table(name).scan().to_arrow()["n"].to_pylist())
            for name in self.lake.list_tables("t")
            if self.lake.load_table(name).current_snapshot()
        }

    def assets(self) -> list[dg.AssetsDefinition]:
        def step(name: str) -> None:
            self.seen.append(self.rows())
            if name in self.fails:
                raise dg.Failure(f"{name} has to fail", allow_retries=False)

        @dg.asset(key_prefix="t")
        def a() -> pa.Table:
            step("a")
            return pa.table({"n": [self.n]})

        @dg.asset(key_prefix="t")
        def b(a: pa.Table) -> pa.Table:
            step("b")
            return pa.table({"n": [n + 100 for n in a["n"].to_pylist()]})

        @dg.asset(key_prefix="t")
        def c(a: pa.Table, b: pa.Table) -> pa.Table:
            step("c")
            return pa.table({"n": [a["n"][0].as_py() + b["n"][0].as_py()]})

        return [a, b, c]

    def run(self, instance: dg.DagsterInstance, **more) -> dg.ExecuteInProcessResult:
        self.n, self.seen = self.n + 1, []
        more = {"resources": self.resources(), **more}
        return dg.materialize(self.assets(), instance=instance, raise_on_error=False, **more)


@pytest.fixture
def world(lake: Lakehouse) -> World:
    return World(lake)


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def test_all_at_the_end(world: World, instance: dg.DagsterInstance) -> None:
    assert world.run(instance).success
    first = {"t.a": [1], "t.b": [101], "t.c": [102]}
    assert world.seen == [{}, {}, {}]
    assert world.rows() == first
    result = world.run(instance)
    assert world.seen == [first, first, first]
    assert world.rows() == {"t.a": [2], "t.b": [102], "t.c": [104]}
    assert instance.get_run_by_id(result.run_id).tags[VERSION_TAG] == "2"
    assert OpenBranches(world.lake.catalog, world.lake.environment).all() == {}
    told = world.lake.load_table(PUBLICATIONS).scan(where="version = 2").to_arrow()
    assert set(told["run_id"].to_pylist()) == {result.run_id}
    assert told["table"].to_pylist() == ["t.a", "t.b", "t.c"]
    execute(world.lake, plan(world.lake, result.run_id, ["t.a", "t.b", "t.c"]))
    assert world.rows() == first


def test_each_asset_says_with_which_others_it_was_published(
    world: World, instance: dg.DagsterInstance
) -> None:
    world.fails = {"c"}
    failed = world.run(instance)
    assert not failed.success
    made = instance.fetch_materializations(dg.AssetKey(["t", "a"]), limit=1).records[0]
    metadata = made.asset_materialization.metadata
    assert "once its last step has succeeded" in metadata[PUBLICATION].value
    assert f"`lakehouse undo {failed.run_id}`" in metadata[UNDO_WITH].value
    world.fails = set()
    again = world.run(
        instance,
        selection="key:t/c",
        tags={"dagster/is_resume_retry": "true", "dagster/parent_run_id": failed.run_id},
    )
    assert again.success
    for name in "abc":
        (seen,) = instance.fetch_observations(dg.AssetKey(["t", name]), limit=9).records
        assert seen.run_id == again.run_id
        told = seen.asset_observation.metadata
        assert told["lakehouse/published_together"].value == ["t.a", "t.b", "t.c"]
        assert told[PUBLICATION].value.startswith("together as version 1 of the lake, 20")
        assert f"`lakehouse undo {again.run_id}`" in told[UNDO_WITH].value
        head = world.lake.load_table(f"t.{name}").current_snapshot()
        assert told[SNAPSHOT_ID].value == str(head.snapshot_id)
    alone = world.run(instance, resources=world.resources("step"))
    made = instance.fetch_materializations(dg.AssetKey(["t", "a"]), limit=1).records[0]
    assert made.run_id == alone.run_id
    assert made.asset_materialization.metadata[PUBLICATION].value.startswith("by itself, 20")


def test_nothing_of_a_run_that_fails_and_all_of_its_retry(
    world: World, instance: dg.DagsterInstance
) -> None:
    world.fails = {"c"}
    failed = world.run(instance)
    assert not failed.success
    assert world.rows() == {}
    world.fails = set()
    world.n = 40  # what succeeded is not run again
    again = world.run(
        instance,
        selection="key:t/c",
        tags={"dagster/is_resume_retry": "true", "dagster/parent_run_id": failed.run_id},
    )
    assert again.success
    assert world.rows() == {"t.a": [1], "t.b": [101], "t.c": [102]}


@pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")
def test_a_backfill_of_many_partitions_is_one_publication(
    world: World, instance: dg.DagsterInstance
) -> None:
    days = dg.DailyPartitionsDefinition("2026-06-01", end_date="2026-06-06")
    several = {
        "dagster/asset_partition_range_start": "2026-06-02",
        "dagster/asset_partition_range_end": "2026-06-04",
    }
    seen: list[dict[str, list[int]]] = []

    def asset(name: str, deps: list[str]) -> dg.AssetsDefinition:
        @dg.asset(
            key=["t", name],
            deps=[["t", one] for one in deps],
            partitions_def=days,
            metadata={"partition_expr": "day"},
            backfill_policy=dg.BackfillPolicy.single_run(),
        )
        def made(context) -> pa.Table:
            seen.append(world.rows())
            keys = context.partition_keys
            rows = {"n": [int(key[-2:]) for key in keys], "day": keys}
            table = pa.table(rows)
            return table.set_column(1, "day", table["day"].cast(pa.date32()))

        return made

    def run(**how: object) -> dg.ExecuteInProcessResult:
        assets = [asset("a", []), asset("b", ["a"])]
        return dg.materialize(assets, instance=instance, resources=world.resources(), **how)

    assert run(partition_key="2026-06-01").success
    assert run(tags=several).success
    assert seen[2:] == [{"t.a": [1], "t.b": [1]}] * 2
    assert world.rows() == {"t.a": [1, 2, 3, 4], "t.b": [1, 2, 3, 4]}
    told = world.lake.load_table(PUBLICATIONS).scan().to_arrow().sort_by("version")
    assert told["version"].to_pylist() == [1, 1, 2, 2]


def test_the_branch_of_a_run_that_failed_expires(
    world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakehouse.orchestration.resources.KEEP_MS", 1)
    assert world.run(instance).success
    world.fails = {"c"}
    failed = world.run(instance)
    table = world.lake.load_table("t.a")
    assert f"run-{failed.run_id}" in table.refs()
    written = table.metadata.snapshot(table.refs()[f"run-{failed.run_id}"].snapshot_id)
    while table.environment.now_ms() <= written.timestamp_ms + 1:
        pass
    table.expire_snapshots()
    assert list(world.lake.load_table("t.a").refs()) == ["main"]
    assert world.rows() == {"t.a": [1], "t.b": [101], "t.c": [102]}


def test_the_tag_decides_for_one_run(world: World, instance: dg.DagsterInstance) -> None:
    by_step = world.resources("step")
    assert world.run(instance, resources=by_step).success
    assert world.seen == [{}, {"t.a": [1]}, {"t.a": [1], "t.b": [101]}]
    assert world.run(instance, resources=by_step, tags=IN_RUN).success
    assert len(world.seen) == 3
    assert all(seen["t.a"] == [1] for seen in world.seen)
    assert world.run(instance, tags={PUBLISH_TAG: "step"}).success
    assert world.seen[-1]["t.a"] == [3]
    assert not world.run(instance, tags={PUBLISH_TAG: "week"}).success


def test_what_is_on_a_branch_is_shown_with_columns_and_checks(
    lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table("t.a", pa.schema({"n": pa.int32()})).append(pa.table({"n": [0]}))

    @dg.asset(key_prefix="t")
    def a() -> pa.Table:
        return pa.table({"n": pa.array([1, 2], pa.int64()), "more": ["x", "y"]})

    @dg.asset_check(asset=a)
    def told() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset_check(asset=a)
    def large() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    (tmp_path / "dagster").mkdir()
    where = {"catalog": lake.catalog.uri, "warehouse": lake.warehouse}
    lakehouse = LakehouseResource(**where, branch="dev", publish="run")
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        resources = {"io_manager": LakehouseIOManager(lakehouse=lakehouse)}
        assert dg.materialize([a, told, large], resources=resources, instance=instance).success

    def shown(*options: str) -> str:
        options = tuple(f"--{key}={value}" for key, value in where.items()) + options
        result = CliRunner().invoke(app, ["branch", "diff", "dev", *options])
        assert result.exit_code == 0, result.output
        return result.output

    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    assert json.loads(shown("--json")) == [
        {
            "table": "t.a",
            "rows_added": 2,
            "rows_removed": 1,
            "columns": ["n int -> long", "+more string"],
            "checks": {"told": True, "large": False},
            "commits_on_main_since": 0,
        }
    ]
    assert "1 passed; failed: large" in " ".join(shown().split())
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "nowhere"))
    assert json.loads(shown("--json"))[0]["checks"] is None


def test_who_was_first_fails_the_run(world: World, instance: dg.DagsterInstance) -> None:
    assert world.run(instance).success
    before = world.rows()
    other = pa.table({"n": [7]})
    fails = world.fails

    class Writes(set):
        def __contains__(self, name: object) -> bool:
            if name == "c":
                world.lake.load_table("t.b").append(other, summary={RUN_ID: "run-of-others"})
            return False

    world.fails = Writes(fails)
    result = world.run(instance)
    assert not result.success
    assert world.rows() == {**before, "t.b": [7, 101]}
    said = [
        event.message + str(event.event_specific_data)
        for event in (one.dagster_event for one in instance.all_logs(result.run_id))
        if event is not None and event.is_failure
    ]
    assert any(
        "not published" in one and "t.b" in one and "run run-of-others: INSERT n=7" in one
        for one in said
    )


def test_blocking_checks_stand_before_all_tables(
    world: World, instance: dg.DagsterInstance
) -> None:
    assets = world.assets()

    @dg.asset_check(asset=dg.AssetKey(["t", "b"]), blocking=True)
    def small(lakehouse: LakehouseResource) -> dg.AssetCheckResult:
        found = lakehouse.lake().load_table("t.b").scan().to_arrow()["n"].to_pylist()
        return dg.AssetCheckResult(passed=max(found) < 102)

    world.n = 1
    for n, success in ((1, True), (2, False)):
        world.n = n
        result = dg.materialize(
            [*assets, small], resources=world.resources(), instance=instance, raise_on_error=False
        )
        assert result.success is success
        assert world.rows() == {"t.a": [1], "t.b": [101], "t.c": [102]}


def in_processes() -> dg.JobDefinition:
    """A job whose steps have processes of their own; the last of them knows no lakehouse."""
    root = Path(os.environ["LAKEHOUSE_TEST_ROOT"])
    lake = lh.load_catalog(f"sqlite:///{root}/c.db", warehouse=str(root / "wh"))

    @dg.asset(key_prefix="t")
    def left() -> pa.Table:
        return pa.table({"n": [1]})

    @dg.asset(key_prefix="t")
    def right(left: pa.Table) -> pa.Table:
        return pa.table({"n": [left["n"][0].as_py() + 1]})

    @dg.asset(deps=[right, left], io_manager_key="none")
    def last() -> None:
        seen = [lake.load_table(f"t.{name}").scan().count() for name in ("left", "right")]
        assert seen == [0, 0], seen
        assert not (root / "fail").exists(), "it has to fail"

    lakehouse = LakehouseResource(catalog=lake.catalog.uri, warehouse=lake.warehouse, publish="run")
    resources = {"io_manager": LakehouseIOManager(lakehouse=lakehouse), "none": dg.fs_io_manager}
    return dg.Definitions(
        assets=[left, right, last],
        resources=resources,
        executor=publishing(dg.multiprocess_executor),
        jobs=[dg.define_asset_job("job", "*")],
    ).resolve_job_def("job")


@pytest.mark.slow
def test_steps_in_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last step is none of ours; the failed run goes on where it failed."""
    monkeypatch.setenv("LAKEHOUSE_TEST_ROOT", str(tmp_path))
    (tmp_path / "fail").touch()
    job, where = dg.reconstructable(in_processes), f"sqlite:///{tmp_path}/c.db"
    lake = lh.load_catalog(where, warehouse=str(tmp_path / "wh"))
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        failed = dg.execute_job(job, instance)
        assert not failed.success
        assert lake.load_table("t.right").scan().count() == 0
        (tmp_path / "fail").unlink()
        options = dg.ReexecutionOptions.from_failure(failed.run_id, instance)
        again = dg.execute_job(job, instance, reexecution_options=options)
        assert again.success
        assert {one.step_key for one in again.all_events if one.is_step_success} == {"last"}
    for name, rows in (("left", [1]), ("right", [2])):
        assert lake.load_table(f"t.{name}").scan().to_arrow()["n"].to_pylist() == rows


def test_a_run_of_all_steps_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the failed run has appended to its branch is not published beside it."""
    monkeypatch.setenv("LAKEHOUSE_TEST_ROOT", str(tmp_path))
    (tmp_path / "uri").write_text(f"sqlite:///{tmp_path}/c.db")
    killed_publications.create_five()
    tags = {killed_publications.TASK: json.dumps({"n": 1, "p": 0, "verb": "append"})}
    job = dg.reconstructable(killed_publications.definitions)
    append = Table.append
    failing = iter([True])

    def fails_once(table: Table, *given, **more):
        if table.name == "t.d" and next(failing, False):
            raise RuntimeError
        return append(table, *given, **more)

    monkeypatch.setattr(Table, "append", fails_once)
    (tmp_path / "dagster").mkdir()
    with light_instance(tmp_path / "dagster") as instance:
        failed = dg.execute_job(job, instance, tags=tags)
        assert not failed.success
        options = dg.ReexecutionOptions(failed.run_id)
        again = dg.execute_job(job, instance, tags=tags, reexecution_options=options)
        assert again.success
        assert dg.execute_job(job, instance, tags=tags).success
    lake = lh.load_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    assert {name: lake.load_table(name).scan().count() for name in lake.list_tables("t")} == (
        dict.fromkeys(killed_publications.FIVE, 2)
    )


@pytest.mark.parametrize("goes_on", [False, True])
def test_who_was_killed_before_publishing_is_published_by_the_next(
    world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """A run of all steps, and one that went on where another had failed."""
    killed = world.resources()
    with monkeypatch.context() as patch:
        patch.setattr(LakehouseResource, "publish_run", lambda *_: None)
        if goes_on:
            world.fails = {"c"}
            failed = world.run(instance, resources=killed)
            world.fails = set()
            tags = {
                "dagster/is_resume_retry": "true",
                "dagster/parent_run_id": failed.run_id,
                "dagster/root_run_id": failed.run_id,
            }
            again = world.run(instance, resources=killed, selection="key:t/c", tags=tags)
        else:
            again = world.run(instance, resources=killed)
    assert again.success
    assert world.rows() == {}
    assert world.run(instance).success
    assert world.seen[0] == {"t.a": [1], "t.b": [101], "t.c": [102]}
    assert instance.get_run_by_id(again.run_id).tags[VERSION_TAG] == "1"


@pytest.mark.spark
def test_what_spark_writes_is_the_runs_too(
    world: World, instance: dg.DagsterInstance, spark
) -> None:
    """A frame that the I/O manager writes, and statements over the run's catalog."""
    world.lake.create_table("t.sql", pa.schema({"n": pa.int64()}))

    @dg.asset(key_prefix="t")
    def frame() -> DataFrame:
        return spark.range(3).withColumnRenamed("id", "n")

    @dg.asset(key_prefix="t", deps=[frame], io_manager_key="none")
    def sql(lakehouse: LakehouseResource) -> None:
        lh.spark.attach(spark, lakehouse.lake(), name="of_run")
        spark.sql("INSERT INTO of_run.t.sql SELECT n FROM of_run.t.frame")
        lh.spark.attach(spark, world.lake, name="of_others")
        assert spark.sql("SELECT * FROM of_others.t.sql").count() == 0
        assert spark.sql("SELECT * FROM of_run.t.sql").count() == 3
        assert world.rows() == {}

    resources = {**world.resources(), "none": dg.mem_io_manager}
    done = dg.materialize([frame, sql], instance=instance, resources=resources)
    assert done.success
    assert world.rows() == {"t.frame": [0, 1, 2], "t.sql": [0, 1, 2]}
    then = world.lake.at(version=1)
    world.lake.load_table("t.sql").delete("n = 1")
    lh.spark.attach(spark, then, name="lake_1")
    assert spark.sql("SELECT * FROM lake_1.t.sql").count() == 3
    assert spark.sql("SELECT * FROM of_others.t.sql").count() == 2
    options = {"catalog": world.lake.catalog.uri, "warehouse": world.lake.warehouse}
    options |= {"path": "t.sql", "catalog.at": "1"}
    assert open_table(options).scan().count() == 3


@pytest.mark.spark
@pytest.mark.parametrize("database", [False, True], ids=["files", "sqlite"])
def test_rows_quarantine_and_ledger_of_an_ingestion_are_published_at_once(
    pipe: Pipe, database: bool
) -> None:
    pipe = pipe.with_source()
    if database:
        uri = f"sqlite:///{pipe.root}/catalog.db"
        pipe.lake = lh.load_catalog(uri, warehouse=pipe.warehouse)
    names = [pipe.source.table, pipe.source.ledger_table, pipe.source.quarantine_table]

    def rows() -> dict[str, int]:
        tables = [pipe.lake.load_table(name) for name in names if pipe.lake.table_exists(name)]
        return {table.name: table.scan().count() for table in tables if table.scan().count()}

    landed = 0
    for file in range(2):
        pipe.land(
            f"{file}.jsonl.gz",
            [event(landed, 3), event(landed + 1, 4, amount="much"), event(landed, 3)],
        )
        landed += 3
        before = rows()
        run = copy(pipe)
        run.lake = pipe.lake.on_branch(f"run-{file}")
        run.index()
        run.ingest(june(1, 20))
        run.assert_conserved(landed)
        assert rows() == before
        done = pipe.lake.branch(f"run-{file}").publish()
        assert done is not None
        assert sorted(table.name for table in done.tables) == sorted(names)
        pipe.assert_conserved(landed)
        assert rows().keys() == set(names)
        assert pipe.lake.at(version=done.version).load_table(names[0]).scan().count() == file + 1
