"""The pipeline in Dagster: materializations, checks before publication, retries, lineage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import orjson
import pyarrow.parquet as pq
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from lakehouse.errors import CommitConflictError, InvalidInputError, NotFoundError
from lakehouse.ingestion.audit import MAIN
from lakehouse.ingestion.source import Source
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.automation.run_requests import (
    EXPIRE_JOB,
    RANGE_END,
    RANGE_START,
    RETAIN_LAST_TAG,
    TABLES_TAG,
    ingest_config,
    ingest_job_name,
    ingest_tags,
)
from lakehouse.orchestration.checks.expectations import Suite, expect
from lakehouse.orchestration.code_location import build_definitions
from lakehouse.orchestration.lineage import trace as lineages
from lakehouse.orchestration.lineage.materialization import INPUTS, SNAPSHOT_ID
from lakehouse.orchestration.lineage.replay import replayed
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.orchestration.source_assets import IngestMode
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.location import local_path
from tests.orchestration.conftest import EVENTS, Pipe, event, june
from tests.table_census import take_census

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _clean(inputs):
    return inputs["raw.events"].select("event_ts", "id", "user", "amount")


def _users(inputs):
    return (
        inputs["clean.events"]
        .groupBy("user")
        .agg(F.count("*").alias("events"), F.sum("amount").alias("amount"))
    )


CLEAN = DerivedTable(
    name="clean.events",
    inputs=("raw.events",),
    transform=_clean,
    day_column="event_ts",
    partition_by=("day(event_ts)",),
    columns={"amount": [("raw.events", "amount")]},
    suites=(
        Suite("positive", (expect("column_values_to_be_between", column="amount", min_value=0),)),
        Suite(
            "small",
            (expect("column_values_to_be_between", column="amount", max_value=50),),
            blocking=False,
        ),
    ),
)
USERS = DerivedTable(name="marts.users", inputs=("clean.events",), transform=_users)


@dataclass
class Deployment:
    pipe: Pipe
    pipeline: Pipeline
    definitions: dg.Definitions
    instance: dg.DagsterInstance

    def run(
        self, job: str, *, check: bool = True, **arguments: object
    ) -> dg.ExecuteInProcessResult:
        config = {
            **arguments.pop("run_config", {}),
            "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
        }
        definition = self.definitions.resolve_job_def(job)
        result = definition.execute_in_process(
            instance=self.instance, raise_on_error=False, run_config=config, **arguments
        )
        assert result.success == check, [e.message for e in result.all_events if e.is_step_failure]
        return result

    def ingest(
        self, first: int, last: int, mode: IngestMode = IngestMode.REPLACE, *, check: bool = True
    ) -> dg.ExecuteInProcessResult:
        tags = ingest_tags(june(first)[0], june(last)[0])
        return self.run(
            ingest_job_name("events"),
            check=check,
            tags=tags,
            run_config=ingest_config("events", mode),
        )

    def metadata(self, asset: str) -> dict[str, object]:
        found = self.instance.get_latest_materialization_event(lineages.parse_asset_key(asset))
        assert found is not None
        return {key: value.value for key, value in found.asset_materialization.metadata.items()}

    def asked(self) -> list[dg.RunRequest]:
        """What the landing sensor asks for now."""
        sensor = self.definitions.resolve_sensor_def("landed_events")
        resource = LakehouseResource(catalog=self.pipe.warehouse, landing=self.pipe.landing)
        with dg.build_sensor_context(
            resources={"lakehouse": resource}, instance=self.instance
        ) as context:
            return list(sensor(context).run_requests)

    def checks(self, result: dg.ExecuteInProcessResult) -> dict[str, bool]:
        return {e.check_name: e.passed for e in result.get_asset_check_evaluations()}

    @property
    def lake(self) -> Lakehouse:
        return self.pipe.lake


def deploy(
    pipe: Pipe, source: Source, tables: tuple[DerivedTable, ...], instance: dg.DagsterInstance
) -> Deployment:
    pipeline = Pipeline((source,), tables, pipe.landing)
    resource = LakehouseResource(catalog=pipe.warehouse, landing=pipe.landing)
    return Deployment(
        pipe, pipeline, build_definitions(pipeline, resource, LakehouseSpark()), instance
    )


@pytest.fixture
def deployment(pipe: Pipe) -> Iterator[Deployment]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield deploy(pipe, EVENTS, (CLEAN, USERS), instance)


@pytest.mark.parametrize(("engine", "spark"), [("spark", "of this run alone"), ("python", None)])
def test_a_raw_table_and_its_ledger_say_which_spark_made_them(
    pipe: Pipe, engine: str, spark: str | None
) -> None:
    pipe.land("1.jsonl.gz", [event(n, 1) for n in range(5)])
    with dg.DagsterInstance.ephemeral() as instance:
        deployment = deploy(pipe, replace(EVENTS, engine=engine), (), instance)
        deployment.ingest(1, 1)
        for asset in ("raw/events_landing", "raw/events"):
            said = deployment.metadata(asset)
            assert (said["lakehouse/engine"], said.get("lakehouse/spark")) == (engine, spark)


def test_a_run_over_days_records_snapshots_inputs_counts_schema_and_checks(
    deployment: Deployment,
) -> None:
    pipe = deployment.pipe
    pipe.land(
        "1.jsonl.gz", [event(n, 1 + n % 3) for n in range(60)] + [b"broken", event(90, 2, id=None)]
    )
    (pipe.folder / "2.jsonl.gz").write_bytes(b"")
    result = deployment.ingest(1, 4)
    assert deployment.checks(result) == {
        "files_whole": False, "raw_contract": True, "few_quarantined": False, "positive": True,
        "small": False,
        "inputs_whole": True, "statements_hold": True,
    }  # fmt: skip
    heads = {
        name: deployment.lake.load_table(name).current_snapshot()
        for name in deployment.pipeline.table_names()
    }
    raw, clean, users = (
        deployment.metadata(asset) for asset in ("raw/events", "clean/events", "marts/users")
    )
    assert raw[SNAPSHOT_ID] == str(heads["raw.events"].snapshot_id)
    assert isinstance(raw[SNAPSHOT_ID], str)
    assert list(raw[INPUTS]) == ["raw.events_landing"]
    assert clean[INPUTS] == {"raw.events": raw[SNAPSHOT_ID]}
    assert users[INPUTS] == {"clean.events": clean[SNAPSHOT_ID]}
    assert (
        raw["dagster/row_count"],
        raw["lakehouse/run_quarantined"],
        raw["dagster/table_name"],
    ) == (60, 1, "raw.events")
    assert raw["lakehouse/files"] == len(deployment.lake.load_table("raw.events").inspect.files())
    assert [c.name for c in raw["dagster/column_schema"].columns] == [
        "event_ts",
        "id",
        "ts",
        "user",
        "amount",
        "landing_file",
        "landing_line",
    ]
    assert clean["dagster/column_lineage"].deps_by_column["amount"][0].asset_key == dg.AssetKey(
        ["raw", "events"]
    )

    snapshot = heads["raw.events"]
    assert snapshot.summary["dagster.run-id"] == result.run_id
    assert (snapshot.summary["dagster.asset-key"], snapshot.summary["dagster.partition"]) == (
        "raw/events",
        "2026-06-01...2026-06-04",
    )
    assert len(deployment.lake.load_table("raw.events").snapshots()) == 1
    assert list(deployment.lake.load_table("raw.events").refs()) == [MAIN]
    by_day = {
        e.partition: e.step_materialization_data.materialization.metadata[
            "dagster/partition_row_count"
        ].value
        for e in result.get_asset_materialization_events()
        if e.asset_key == dg.AssetKey(["raw", "events"])
    }
    assert by_day == {"2026-06-01": 20, "2026-06-02": 20, "2026-06-03": 20, "2026-06-04": 0}
    record = deployment.instance.get_latest_materialization_event(dg.AssetKey(["marts", "users"]))
    assert record.asset_materialization.tags["dagster/data_version"] == users[SNAPSHOT_ID]


def test_only_days_whose_files_changed_are_out_of_sync(deployment: Deployment) -> None:
    """Dagster's own judgement of each partition."""
    pipe, graph = deployment.pipe, deployment.definitions.resolve_asset_graph()

    def behind(asset: str) -> dict[int, str]:
        resolver = CachingStaleStatusResolver(
            deployment.instance, graph, LoadingContextForTest(deployment.instance)
        )
        found = {
            n: resolver.get_status(dg.AssetKey.from_user_string(asset), f"2026-06-{n:02}")
            for n in range(1, 6)
        }
        return {n: status.value for n, status in found.items() if status.value != "FRESH"}

    index = "index_events"
    pipe.land("1.jsonl.gz", [event(n, 1 + n % 3) for n in range(6)])
    deployment.ingest(1, 3)
    missing = {4: "MISSING", 5: "MISSING"}
    assert behind("raw/events") == behind("clean/events") == missing
    pipe.land("2.jsonl.gz", [event(10, 2), event(11, 4)])
    deployment.run(index)
    assert behind("raw/events") == missing | {2: "STALE"}
    deployment.ingest(4, 4, IngestMode.INCREMENT)
    assert behind("raw/events") == {2: "STALE", 5: "MISSING"}
    deployment.ingest(2, 2, IngestMode.INCREMENT)
    assert behind("raw/events") == behind("clean/events") == {5: "MISSING"}
    deployment.run(index)
    assert behind("raw/events") == {5: "MISSING"}, "nothing has landed"
    pipe.land("1.jsonl.gz", [event(n, 1 + n % 3) for n in range(6)] + [event(20, 3)])
    deployment.run(index)
    assert behind("raw/events") == {1: "STALE", 2: "STALE", 3: "STALE", 5: "MISSING"}, (
        "another version of the file that carries them"
    )


def test_a_day_that_a_run_leaves_alone_keeps_its_data_version(deployment: Deployment) -> None:
    """Dagster records one version for all partitions of a run."""
    pipe = deployment.pipe
    assets = ("raw/events", "raw/events_quarantine", "clean/events")

    def recorded() -> dict[str, dict[str, tuple[str, object]]]:
        found: dict[str, dict[str, tuple[str, object]]] = {}
        for name in assets:
            key = dg.AssetKey.from_user_string(name)
            events = deployment.instance.fetch_materializations(key, 1000, ascending=True).records
            found[name] = {
                one.partition_key: (
                    one.asset_materialization.tags["dagster/data_version"],
                    one.asset_materialization.metadata[SNAPSHOT_ID].value,
                )
                for one in events
            }
        return found

    pipe.land("1.jsonl.gz", [event(n, 1 + n % 3) for n in range(6)] + [event(90, 3, id=None)])
    deployment.ingest(1, 4)
    before = recorded()
    pipe.land("2.jsonl.gz", [event(10, 2), event(91, 2, id=None)])
    deployment.run("index_events")
    (request,) = [one for one in deployment.asked() if one.job_name == "ingest_events"]
    whole = {RANGE_START: "2026-06-01", RANGE_END: "2026-06-04"}
    deployment.run(request.job_name, run_config=request.run_config, tags={**request.tags, **whole})
    after = recorded()
    for name in assets:
        head = deployment.lake.load_table(name.replace("/", ".")).current_snapshot()
        assert after[name]["2026-06-02"] == (str(head.snapshot_id),) * 2, name
        for day in ("2026-06-01", "2026-06-03", "2026-06-04"):
            assert after[name][day] == before[name][day], (name, day)


def test_a_materialization_of_a_day_says_what_became_of_its_lines(deployment: Deployment) -> None:
    """In a run of many days, and in one that fails for others; the judge is what landed."""
    pipe = deployment.pipe
    first = [event(1, 1), event(1, 1), event(2, 1, amount="much"), event(3, 2)]
    pipe.land("1.jsonl.gz", [*first, event(4, 2, id=None), event(5, 2, amount=0.5), b"no json"])
    deployment.ingest(1, 2)

    def told(name: str) -> dict[str, dict[str, object]]:
        records = deployment.instance.fetch_materializations(dg.AssetKey(["raw", name]), 50).records
        return {
            str(one.partition_key): {
                key.partition("/")[2]: value.value
                for key, value in one.asset_materialization.metadata.items()
            }
            for one in reversed(records)
        }

    wanted = {"2026-06-01": (3, 1, 1, 1), "2026-06-02": (3, 1, 2, 0)}
    names = ("lines", "rows", "quarantined", "duplicates", "partition_row_count")
    for asset, shown in (("events", 1), ("events_quarantine", 2)):
        found = told(asset)
        assert {day: tuple(found[day][name] for name in names) for day in wanted} == {
            day: (*counts, counts[shown]) for day, counts in wanted.items()
        }
        reasons = found["2026-06-02"]["quarantined_because"]
        assert "| 1 | null key&#58; id |" in reasons
        assert "| 1 | type conflict&#58; amount |" in reasons
    ledger = deployment.metadata("raw/events_landing")
    assert "| 1 | malformed JSON |" in ledger["lakehouse/quarantined_because"]
    # another file of the second day goes: the first is written, and told as before
    gone = pipe.land("2.jsonl.gz", [event(6, 2)])
    deployment.ingest(2, 2)
    gone.unlink()
    pipe.land("3.jsonl.gz", [event(7, 1)])
    deployment.ingest(1, 2, check=False)
    assert tuple(told("events")["2026-06-01"][name] for name in names) == (4, 2, 1, 1, 2)


def test_good_days_are_written_and_reported_when_one_is_bad(deployment: Deployment) -> None:
    pipe = deployment.pipe
    pipe.land("1.jsonl.gz", [event(1, 1), event(2, 2)])
    gone = pipe.land("2.jsonl.gz", [event(3, 2), event(4, 3)])
    deployment.ingest(1, 3)
    gone.unlink()
    pipe.land("3.jsonl.gz", [event(5, 1)])
    result = deployment.ingest(1, 3, check=False)
    assert pipe.rows() == [(1,), (2,), (3,), (4,), (5,)]
    days = {
        e.partition
        for e in result.get_asset_materialization_events()
        if e.asset_key == dg.AssetKey(["raw", "events"])
    }
    assert days == {"2026-06-01"}
    (failure,) = [e for e in result.all_events if e.is_step_failure]
    assert "2.jsonl.gz" in failure.step_failure_data.user_failure_data.description


def test_what_a_run_left_stale_after_raw_is_asked_for_and_computed(deployment: Deployment) -> None:
    pipe = deployment.pipe
    pipe.land("1.jsonl.gz", [event(n, 1 + n % 3) for n in range(6)])
    deployment.ingest(1, 3)
    pipe.land("2.jsonl.gz", [event(10, 2), event(11, 5)])
    pipe.index()
    pipe.ingest(june(1, 5), "increment")  # as a run does that dies after it has written raw rows
    before = deployment.lake.load_table("clean.events").metadata.current_snapshot_id
    (request,) = deployment.asked()
    assert request.asset_selection == [CLEAN.key, USERS.key]
    assert (request.tags[RANGE_START], request.tags[RANGE_END]) == ("2026-06-02", "2026-06-05")
    deployment.run(
        request.job_name,
        run_config=request.run_config,
        tags=request.tags,
        asset_selection=request.asset_selection,
    )
    clean = deployment.lake.load_table("clean.events")
    assert sorted(clean.scan(select=["id"]).to_arrow()["id"].to_pylist()) == [
        0,
        1,
        2,
        3,
        4,
        5,
        10,
        11,
    ]
    assert clean.current_snapshot().parent_snapshot_id == before
    users = deployment.lake.load_table("marts.users").scan().to_arrow()
    assert sum(users["events"].to_pylist()) == 8
    assert deployment.asked() == []


def test_data_that_fails_a_blocking_check_is_never_on_main(deployment: Deployment) -> None:
    pipe = deployment.pipe
    pipe.land("1.jsonl.gz", [event(n, 1) for n in range(5)])
    deployment.ingest(1, 1)
    before = deployment.lake.load_table("clean.events").metadata.current_snapshot_id
    users = deployment.lake.load_table("marts.users").metadata.current_snapshot_id
    pipe.land("2.jsonl.gz", [event(7, 1, amount=-1)])
    result = deployment.ingest(1, 1, check=False)
    assert deployment.checks(result)["positive"] is False
    failure = next(e for e in result.all_events if e.is_step_failure)
    assert failure.step_key == "clean__events"
    assert (
        "expect_column_values_to_be_between"
        in failure.step_failure_data.user_failure_data.description
    )
    clean = deployment.lake.load_table("clean.events")
    assert clean.metadata.current_snapshot_id == before
    assert list(clean.refs()) == [MAIN]
    assert clean.scan().count() == 5
    assert deployment.lake.load_table("marts.users").metadata.current_snapshot_id == users, (
        "what is downstream did not run"
    )
    (staged,) = [s for s in clean.snapshots() if s.summary.get("dagster.run-id") == result.run_id]
    assert clean.scan(snapshot_id=staged.snapshot_id).count() == 6, (
        "the rejected snapshot can be looked at"
    )


def test_a_good_day_does_not_turn_the_check_of_a_bad_one_green(deployment: Deployment) -> None:
    pipe = deployment.pipe
    daily = ("few_quarantined", "positive", "small")

    def said(result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str, str]]:
        return {
            e.check_name: (e.passed, e.severity.value, e.description or "")
            for e in result.get_asset_check_evaluations()
            if e.check_name in daily
        }

    pipe.land("1.jsonl.gz", [event(n, 1 + n % 3) for n in range(6)])
    assert {passed for passed, *_ in said(deployment.ingest(1, 4)).values()} == {True}
    spoilt = [event(7, 2, amount=-1), event(8, 3, amount=99), event(9, 3, id=None)]
    pipe.land("2.jsonl.gz", spoilt)
    bad = said(deployment.ingest(1, 4, check=False))
    assert {name: one[:2] for name, one in bad.items()} == {
        "few_quarantined": (False, "WARN"),
        "positive": (False, "ERROR"),
        "small": (False, "WARN"),
    }
    assert bad["few_quarantined"][2] == "2026-06-03: 1 of 4 lines, 25.0 %"
    assert bad["positive"][2].startswith("2026-06-02: expect_column_values_to_be_between")
    assert bad["small"][2].startswith("2026-06-03: expect_column_values_to_be_between")

    pipe.land("3.jsonl.gz", [event(20, 4)])
    result = deployment.ingest(4, 4)
    later = said(result)
    assert {name: one[:2] for name, one in later.items()} == dict.fromkeys(daily, (False, "WARN"))
    for name, day in zip(daily, ("2026-06-03", "2026-06-02", "2026-06-03"), strict=True):
        assert later[name][2].startswith(f"{day}, from an earlier run: "), later[name]
    written = {e.asset_key.to_user_string() for e in result.get_asset_materialization_events()}
    assert "marts/users" in written, "what is downstream of a good day is computed"

    pipe.land("2.jsonl.gz", [event(7, 2), event(8, 3)])
    deployment.run("index_events")
    half = said(deployment.ingest(2, 2))
    assert {name: one[0] for name, one in half.items()} == {
        "few_quarantined": False,
        "positive": True,
        "small": False,
    }
    mended = said(deployment.ingest(3, 3))
    assert mended == dict.fromkeys(daily, (True, "WARN", ""))


def test_rows_lost_from_an_input_fail_the_check_of_what_derives_from_it(
    deployment: Deployment,
) -> None:
    pipe = deployment.pipe
    pipe.land("1.jsonl.gz", [event(n, 1 + n % 2) for n in range(40)])
    deployment.ingest(1, 2)
    clean = deployment.lake.load_table("clean.events")
    before = clean.metadata.current_snapshot_id
    file = deployment.lake.load_table("raw.events").scan().plan().files[0]
    shortened(local_path(file.file_path))
    job = deployment.definitions.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(
        instance=deployment.instance,
        raise_on_error=False,
        asset_selection=[CLEAN.key],
        tags=ingest_tags(june(1)[0], june(2)[0]),
    )
    assert deployment.checks(result) == {"inputs_whole": False, "positive": True, "small": True}
    (failure,) = [e for e in result.all_events if e.is_step_failure]
    assert "raw.events has 40 rows in snapshot" in failure.step_failure_data.error_display_string
    assert clean.refresh().metadata.current_snapshot_id == before


@pytest.mark.parametrize("stray", ["a day later", "no day"])
def test_rows_of_no_day_that_was_asked_for_are_refused(pipe: Pipe, stray: str) -> None:
    """A second run over the days would have them twice."""

    def shifted(inputs):
        later = F.col("event_ts") + F.expr("interval 1 day")
        at = later if stray == "a day later" else F.lit(None).cast("timestamp")
        late = F.when(F.col("id") == 3, at).otherwise(F.col("event_ts"))
        return inputs["raw.events"].select(late.alias("event_ts"), "id", "user", "amount")

    pipe.land("1.jsonl.gz", [event(n, 1) for n in range(5)])
    with dg.DagsterInstance.ephemeral() as instance:
        tables = (replace(CLEAN, transform=shifted, suites=()),)
        result = deploy(pipe, EVENTS, tables, instance).ingest(1, 1, check=False)
    (failure,) = [e for e in result.all_events if e.is_step_failure]
    assert (
        "1 of 1 rows of a new file do not match" in failure.step_failure_data.error_display_string
    )
    assert not pipe.lake.load_table("clean.events").scan().count()


def shortened(path: str) -> None:
    """A valid Parquet file of the same size with a row less."""
    size, whole = Path(path).stat().st_size, pq.read_table(path)
    bare = whole.slice(1).replace_schema_metadata(None)
    pq.write_table(bare, path, compression="zstd", store_schema=False, write_statistics=False)
    data = Path(path).read_bytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    assert size >= len(data)
    Path(path).write_bytes(data[:-footer] + b"\0" * (size - len(data)) + data[-footer:])


def test_a_retried_step_that_had_committed_commits_once(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.pipe.land("1.jsonl.gz", [event(n, 1) for n in range(5)])
    from lakehouse.orchestration.assets import derived_table as derived

    told, calls = derived.materialization_metadata, []

    def breaks_once(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 1:
            raise CommitConflictError("the reply was lost")
        return told(*arguments)

    monkeypatch.setattr(derived, "materialization_metadata", breaks_once)
    monkeypatch.setattr("time.sleep", lambda _: None)
    result = deployment.ingest(1, 1)
    retries = [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
    assert [e.step_key for e in retries] == ["clean__events"]
    clean = deployment.lake.load_table("clean.events")
    assert len(clean.snapshots()) == 1
    assert clean.scan().count() == 5


def test_a_replay_from_recorded_snapshots_is_equal_until_something_is_not(
    deployment: Deployment,
) -> None:
    pipe = deployment.pipe

    def replay(
        found: lineages.Lineage, pipeline: Pipeline = deployment.pipeline
    ) -> lineages.Replay:
        checkout = SimpleNamespace(pipeline=pipeline, defs=deployment.definitions)
        return replayed(checkout, found, deployment.lake, lambda: pipe.spark)

    pipe.land("1.jsonl.gz", [event(n, 1 + n % 3) for n in range(30)], modified=1_000_000_000)
    deployment.ingest(1, 3)
    pipe.land("2.jsonl.gz", [event(n, 2) for n in range(25, 40)], modified=1_000_000_001)
    deployment.ingest(2, 2, IngestMode.INCREMENT)
    for asset, partition, rows in [
        ("raw/events", "2026-06-02", 23),
        ("raw/events", "2026-06-01", 10),
        ("clean.events", "2026-06-02", 23),
        ("marts/users", None, 5),
    ]:
        found = lineages.read_lineage(deployment.instance, deployment.lake, asset, partition)
        assert found.inputs[0].committed_at is not None
        again = replay(found)
        assert (again.equal, again.rows) == (True, rows), (asset, again.examples)
        assert orjson.loads(orjson.dumps(again.to_dict()))["inputs"][0]["snapshot_id"] == str(
            found.inputs[0].snapshot_id
        )
    other = replace(
        USERS, transform=lambda inputs: _users(inputs).withColumn("amount", F.col("amount") + 1)
    )
    again = replay(
        lineages.read_lineage(deployment.instance, deployment.lake, "marts/users"),
        Pipeline((EVENTS,), (CLEAN, other), pipe.landing),
    )
    assert (again.equal, again.missing, again.unexpected) == (False, 5, 5)
    found = lineages.read_lineage(deployment.instance, deployment.lake, "raw/events_landing")
    with pytest.raises(InvalidInputError, match="cannot be replayed"):
        replay(found)
    with pytest.raises(NotFoundError, match="never materialized"):
        lineages.read_lineage(deployment.instance, deployment.lake, "raw/events", "2026-06-19")


def test_maintenance_jobs_keep_rows_and_expiry_removes_exactly_the_unreachable(
    deployment: Deployment,
) -> None:
    pipe = deployment.pipe
    pipe.land("0.jsonl.gz", [event(n, 1) for n in range(20)])
    pipe.index()
    pipe.ingest(june(1))
    for number in range(1, 5):
        pipe.land(f"{number}.jsonl.gz", [event(20 * number + n, 1) for n in range(20)])
        pipe.index()
        pipe.ingest(june(1), "increment")
    table = deployment.lake.load_table("raw.events")
    before, files = pipe.rows(), len(table.inspect.files())
    result = deployment.run("compact", tags={TABLES_TAG: "raw.events"})
    assert len(table.refresh().inspect.files()) < files
    assert pipe.rows() == before
    observed = [e for e in result.all_events if e.event_type_value == "ASSET_OBSERVATION"]
    assert [e.asset_key.to_user_string() for e in observed] == ["raw/events"]

    catalog, identifier = deployment.lake.catalog, Identifier.parse("raw.events")
    deployment.run(EXPIRE_JOB, tags={TABLES_TAG: "raw.events", RETAIN_LAST_TAG: "1"})
    census = take_census(catalog, identifier)
    assert (census.missing, census.unreachable) == (frozenset(), frozenset())
    assert len(deployment.lake.load_table("raw.events").snapshots()) == 1
    assert pipe.rows() == before
