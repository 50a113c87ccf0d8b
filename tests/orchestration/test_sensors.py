"""Sensors and schedules: metadata only, a run key for each cause, nothing to do told as such.

No Spark here.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.events import DagsterEvent, DagsterEventType
from dagster._core.test_utils import create_run_for_test, instance_for_test
from dagster._daemon.sensor import MIN_INTERVAL_LOOP_TIME as ROUND_SECONDS

from lakehouse.environment import Environment
from lakehouse.ingestion.landing_listing import landing_files, list_landing
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.maintenance.health.table_health import health
from lakehouse.orchestration.asset_results import remove_dead_branches
from lakehouse.orchestration.automation import landing_sensors as looking
from lakehouse.orchestration.automation import maintenance_sensors as maintenance
from lakehouse.orchestration.automation.attempts import Decision, next_attempt
from lakehouse.orchestration.automation.ingestion_jobs import nightly_schedule, source_jobs
from lakehouse.orchestration.automation.landing_sensors import LandingWatch, landing_sensor
from lakehouse.orchestration.automation.maintenance_sensors import (
    expirable_snapshots,
    maintenance_sensors,
)
from lakehouse.orchestration.automation.run_requests import (
    PARTITIONS_TAG,
    RANGE_END,
    RANGE_START,
    REASON_TAG,
    TABLES_TAG,
)
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource
from tests.orchestration.conftest import EVENTS, remember


@pytest.fixture
def resource(tmp_path: Path) -> LakehouseResource:
    return LakehouseResource(
        catalog=(tmp_path / "warehouse").as_uri(), landing=str(tmp_path / "landing")
    )


@pytest.fixture
def pipeline(resource: LakehouseResource) -> Pipeline:
    return Pipeline((EVENTS,), (), resource.landing)


def tick(
    sensor: dg.SensorDefinition,
    resource: LakehouseResource,
    cursor: str | None = None,
    instance: dg.DagsterInstance | None = None,
):
    instance = instance or dg.DagsterInstance.ephemeral()
    with dg.build_sensor_context(
        cursor=cursor, resources={"lakehouse": resource}, instance=instance
    ) as context:
        result = sensor(context)
        if isinstance(result, dg.SensorResult):
            skipped = [result.skip_reason] if result.skip_reason else []
            return result.run_requests, skipped, result.cursor
        found = [result] if isinstance(result, dg.SkipReason) else list(result)
        return (
            [r for r in found if isinstance(r, dg.RunRequest)],
            [r for r in found if isinstance(r, dg.SkipReason)],
            context.cursor,
        )


def sensor_of(pipeline: Pipeline) -> dg.SensorDefinition:
    return landing_sensor(pipeline, EVENTS, source_jobs(pipeline, EVENTS))


def test_landed_files_ask_for_an_index_then_for_the_days(
    resource: LakehouseResource, pipeline: Pipeline
) -> None:
    sensor = sensor_of(pipeline)
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING
    _, (skipped,), _ = tick(sensor, resource)
    assert "does not exist" in skipped.skip_message
    folder = Path(resource.landing) / "events"
    folder.mkdir(parents=True)
    (folder / "1.jsonl.gz").write_bytes(b"x")
    (request,), _, cursor = tick(sensor, resource)
    assert request.job_name == "index_events"
    (again,), _, same = tick(sensor, resource, cursor)
    assert (again.run_key, same) == (request.run_key, cursor), (
        "as long as there was no run it is the same request"
    )

    lake, files = resource.lake(), landing_files(list_landing(resource.landing, EVENTS))
    remember(lake, files, pending=True, days=[1, 2, 5])
    (request,), _, _ = tick(sensor, resource)
    assert (request.job_name, request.tags[RANGE_START], request.tags[RANGE_END]) == (
        "ingest_events",
        "2026-06-01",
        "2026-06-05",
    )
    assert request.run_config["ops"]["raw__events"]["config"] == {"mode": "INCREMENT", "leave": []}
    remember(lake, files, pending=False, days=[1, 2, 5])
    requests, (skipped,), _ = tick(sensor, resource)
    assert requests == []
    assert "everything that landed for events is ingested" in skipped.skip_message


@pytest.mark.parametrize(
    ("job", "assets", "blocks"),
    [
        ("ingest_events", None, True),
        ("ingest_events", {"raw/events"}, True),
        ("__ASSET_JOB", {"raw/events", "raw/events_quarantine"}, True),
        ("__ASSET_JOB", {"raw/events_landing"}, True),
        ("by_hand", {"raw/events_quarantine", "marts/other"}, True),
        ("__ASSET_JOB", {"marts/other"}, False),
        ("lakehouse_state", None, False),
    ],
)
def test_a_run_of_any_job_that_writes_the_source_is_in_flight(
    resource: LakehouseResource,
    pipeline: Pipeline,
    job: str,
    assets: set[str] | None,
    blocks: bool,
) -> None:
    with instance_for_test() as instance:
        selection = assets and {dg.AssetKey(key.split("/")) for key in assets}
        create_run_for_test(
            instance,
            job_name=job,
            status=dg.DagsterRunStatus.STARTED,
            asset_selection=selection and frozenset(selection),
        )
        found = LandingWatch(EVENTS, (), instance, resource).in_flight()
    assert (found is not None) is blocks


def test_a_cause_is_asked_for_until_its_run_succeeds_with_waits_that_double() -> None:
    with instance_for_test() as instance:

        def ran(request: dg.RunRequest, status: DagsterEventType) -> int:
            run = create_run_for_test(instance, tags=request.tags)
            instance.report_dagster_event(
                DagsterEvent(
                    event_type_value=status.value, job_name=run.job_name, message="", step_key=None
                ),
                run.run_id,
            )
            (record,) = instance.get_run_records(dg.RunsFilter(run_ids=[run.run_id]))
            assert record.end_time is not None
            return int(record.end_time * 1000)

        keys = []
        now_ms = 0
        for attempt in range(3):
            request = next_attempt(instance, "cause", now_ms)
            assert isinstance(request, dg.RunRequest)
            assert next_attempt(instance, "cause", now_ms) == request
            keys.append(request.run_key)
            ended_ms = ran(request, DagsterEventType.PIPELINE_FAILURE)
            now_ms = ended_ms + (60_000 << attempt)
            assert isinstance(next_attempt(instance, "cause", now_ms - 1), dg.SkipReason)
        assert len(set(keys)) == 3
        request = next_attempt(instance, "cause", now_ms)
        run = create_run_for_test(instance, tags=request.tags, status=dg.DagsterRunStatus.STARTED)
        waits = next_attempt(instance, "cause", now_ms * 2)
        assert isinstance(waits, dg.SkipReason)
        assert f"{run.run_id} is in flight" in waits.skip_message
        instance.delete_run(run.run_id)
        ran(request, DagsterEventType.PIPELINE_SUCCESS)
        assert isinstance(next_attempt(instance, "cause", now_ms * 2), dg.SkipReason)
        assert isinstance(next_attempt(instance, "another", now_ms), dg.RunRequest)


def test_branches_of_runs_that_ended_are_removed_and_no_others(
    resource: LakehouseResource,
) -> None:
    table = resource.lake().create_table("raw.events", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [0]}))

    def staged(run_id: str, branch: str = "") -> str:
        stamp = RunStamp(run_id, "raw/events")
        branch = branch or stamp.branch()
        table.append(pa.table({"id": [1]}), branch=branch, summary=stamp.summary())
        return branch

    with instance_for_test() as instance:

        def run(status: dg.DagsterRunStatus) -> str:
            return create_run_for_test(instance, status=status).run_id

        dead = [
            staged(run(status))
            for status in (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
        ]
        staged(run(dg.DagsterRunStatus.STARTED))
        staged(run(dg.DagsterRunStatus.CANCELING))
        staged("of-another-instance")
        staged(run(dg.DagsterRunStatus.FAILURE), "audit-of-a-person")
        staged(run(dg.DagsterRunStatus.FAILURE), "mine")
        before = set(table.refs())
        assert sorted(remove_dead_branches(table, instance)) == sorted(dead)
        assert set(table.refresh().refs()) == before - set(dead)
        assert remove_dead_branches(table, instance) == []


def small_table(lake: Lakehouse, commits: int) -> None:
    properties = {"lakehouse.maintenance.skip-recent-ms": "0"}
    table = lake.create_table("raw.events", pa.schema([("id", pa.int64())]), properties=properties)
    for number in range(commits):
        table.append(pa.table({"id": [number]}))


def test_small_files_fire_once_a_state(resource: LakehouseResource, pipeline: Pipeline) -> None:
    lake = resource.lake()
    sensor = next(
        s for s in maintenance_sensors(list(pipeline.table_names())) if s.name == "small_files"
    )
    small_table(lake, 4)
    assert tick(sensor, resource)[0] == []
    for number in range(8):
        lake.load_table("raw.events").append(pa.table({"id": [100 + number]}))
    (request,), _, cursor = tick(sensor, resource)
    assert request.tags[TABLES_TAG] == "raw.events"
    assert tick(sensor, resource, cursor)[0] == []
    lake.load_table("raw.events").append(pa.table({"id": [0]}))
    assert len(tick(sensor, resource, cursor)[0]) == 1
    lake.load_table("raw.events").compact()
    assert tick(sensor, resource, cursor)[0] == []
    assert lake.load_table("raw.events").scan().count() == 13


def test_the_policy_of_a_table_decides_when_it_is_compacted(
    resource: LakehouseResource, pipeline: Pipeline
) -> None:
    lake = resource.lake()
    sensor = next(
        s for s in maintenance_sensors(list(pipeline.table_names())) if s.name == "small_files"
    )
    small_table(lake, 4)
    lake.load_table("raw.events").set_properties({"lakehouse.maintenance.min-removable-files": "3"})
    (request,), _, _ = tick(sensor, resource)
    assert request.tags[REASON_TAG].startswith("3 files fewer in 1 partition")
    hour = dt.datetime.now(dt.UTC).hour
    later = f"{(hour + 2) % 24}-{(hour + 3) % 24}"
    lake.load_table("raw.events").set_properties({"lakehouse.maintenance.window": later})
    assert tick(sensor, resource)[0] == []
    lake.load_table("raw.events").set_properties(
        {"lakehouse.maintenance.window": "", "lakehouse.maintenance.enabled": "false"}
    )
    assert tick(sensor, resource)[0] == []


def test_a_table_that_was_written_just_now_is_left_alone(
    resource: LakehouseResource, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = next(
        s for s in maintenance_sensors(list(pipeline.table_names())) if s.name == "small_files"
    )
    small_table(resource.lake(), 12)
    resource.lake().load_table("raw.events").remove_properties(
        "lakehouse.maintenance.skip-recent-ms"
    )
    assert tick(sensor, resource)[0] == []
    later = Environment.seeded(1, start_ms=Environment.system().now_ms() + 300_000)
    lake = Lakehouse(resource.lake().catalog, later)
    monkeypatch.setattr(LakehouseResource, "lake", lambda _self: lake)
    (request,), _, _ = tick(sensor, resource)
    assert (request.tags[TABLES_TAG], request.tags[PARTITIONS_TAG]) == ("raw.events", '[""]')


def test_sensors_share_what_they_measured(
    resource: LakehouseResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []
    monkeypatch.setattr(
        maintenance,
        "health",
        lambda *given, **more: measured.append(given) or health(*given, **more),
    )
    small_table(resource.lake(), 3)
    for _ in range(2):
        for sensor in maintenance_sensors(["raw.events"]):
            tick(sensor, resource)
    assert len(measured) == 1
    resource.lake().load_table("raw.events").append(pa.table({"id": [9]}))
    for sensor in maintenance_sensors(["raw.events"]):
        tick(sensor, resource)
    assert len(measured) == 2, "another version"


def test_old_snapshots_fire_when_they_are_beyond_retention(
    resource: LakehouseResource, pipeline: Pipeline, tmp_path: Path
) -> None:
    lake = resource.lake()
    sensor = next(
        s for s in maintenance_sensors(list(pipeline.table_names())) if s.name == "old_snapshots"
    )
    small_table(lake, 3)
    assert tick(sensor, resource)[0] == []
    late = Lakehouse(
        load_catalog(resource.catalog).catalog,
        Environment.seeded(1, start_ms=Environment.system().now_ms() + 6 * 86_400_000),
    )
    assert expirable_snapshots(late.load_table("raw.events")) == 2
    lake.load_table("raw.events").set_properties({"history.expire.max-snapshot-age-ms": "1"})
    (request,), _, cursor = tick(sensor, resource)
    assert (request.tags[TABLES_TAG], tick(sensor, resource, cursor)[0]) == ("raw.events", [])
    lake.load_table("raw.events").expire_snapshots()
    assert tick(sensor, resource, cursor)[0] == []


def test_the_nightly_schedule_reads_landing_folders_that_exist(
    resource: LakehouseResource, pipeline: Pipeline
) -> None:
    schedule = nightly_schedule(EVENTS, source_jobs(pipeline, EVENTS)[0])
    with dg.build_schedule_context(
        scheduled_execution_time=dt.datetime(2026, 6, 2, 2, tzinfo=dt.UTC),
        resources={"lakehouse": resource},
    ) as context:
        assert isinstance(schedule(context), dg.SkipReason)
        (Path(resource.landing) / "events").mkdir(parents=True)
        assert schedule(context).run_key == "2026-06-02"


@pytest.mark.parametrize(("spent", "rests"), [(0.4, False), (0.6, True)])
def test_after_a_long_look_nine_times_as_long_is_waited(
    resource: LakehouseResource,
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    spent: float,
    rests: bool,
) -> None:
    clocks = {"thread_time": 0.0, "monotonic": 100.0}
    monkeypatch.setattr(looking.time, "monotonic", lambda: clocks["monotonic"])
    monkeypatch.setattr(looking.time, "thread_time", lambda: clocks["thread_time"])
    looks = []

    def decision(watch: LandingWatch) -> Decision:
        looks.append(watch)
        clocks["thread_time"] += spent
        return Decision(None, "", (), {}, "")

    monkeypatch.setattr(LandingWatch, "decision", decision)
    sensor = sensor_of(pipeline)
    for seconds in (0.0, 9 * spent - 0.1, 0.2):
        clocks["monotonic"] += seconds
        _, skipped, _ = tick(sensor, resource)
        assert ("over half a second" in str(skipped[0])) == (rests and seconds > 1)
    assert len(looks) == (2 if rests else 3)


@pytest.mark.parametrize(
    ("landing", "seconds"), [("/data", 5), ("file:///data", 5), ("s3://landing/data", 10)]
)
def test_folders_of_this_machine_are_looked_at_in_each_round_of_the_daemon(
    pipeline: Pipeline, landing: str, seconds: int
) -> None:
    there = replace(pipeline, landing_root=landing)
    sensor = sensor_of(there)
    assert -(-sensor.minimum_interval_seconds // ROUND_SECONDS) * ROUND_SECONDS == seconds
