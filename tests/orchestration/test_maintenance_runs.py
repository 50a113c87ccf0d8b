"""Maintenance in Dagster: what a tick asks for, what the run does and reports, the state page."""

from __future__ import annotations

import base64
import dataclasses
import html
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import dagster as dg
import pyarrow as pa
import pytest

from lakehouse.environment import Environment
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.orchestration.automation.maintenance_jobs import remove_orphans
from lakehouse.orchestration.automation.maintenance_sensors import maintenance_sensors
from lakehouse.orchestration.automation.run_requests import (
    CLUSTER_JOB,
    COMPACT_JOB,
    DRY_RUN_TAG,
    EXPIRE_JOB,
    IF_DUE_TAG,
    ORPHANS_JOB,
    PARTITIONS_TAG,
    RETAIN_LAST_TAG,
    STATE_JOB,
    TABLES_TAG,
)
from lakehouse.orchestration.code_location import build_definitions
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.orchestration.state.state_asset import STATE_KEY, check_name
from lakehouse.orchestration.state.state_page import line
from lakehouse.table import Table
from tests.orchestration.conftest import EVENTS

TABLE = "raw.events"
SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string())])


@dataclasses.dataclass
class Place:
    resource: LakehouseResource
    definitions: dg.Definitions
    instance: dg.DagsterInstance

    @property
    def lake(self) -> Lakehouse:
        return self.resource.lake()

    @property
    def table(self) -> Table:
        return self.lake.load_table(TABLE)

    def tick(
        self, name: str, cursor: str | None = None
    ) -> tuple[list[dg.RunRequest], list[str], str | None]:
        sensor = next(one for one in maintenance_sensors([TABLE]) if one.name == name)
        with dg.build_sensor_context(
            cursor=cursor, resources={"lakehouse": self.resource}, instance=self.instance
        ) as context:
            found = list(sensor(context))
            skipped = [one.skip_message for one in found if isinstance(one, dg.SkipReason)]
            return [one for one in found if isinstance(one, dg.RunRequest)], skipped, context.cursor

    def run(self, job: str, tags: dict[str, str] | None = None) -> dg.ExecuteInProcessResult:
        config = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        definition = self.definitions.resolve_job_def(job)
        return definition.execute_in_process(
            instance=self.instance, tags=tags or {TABLES_TAG: TABLE}, run_config=config
        )

    def observed(self, result: dg.ExecuteInProcessResult) -> list[dict[str, object]]:
        events = [e for e in result.all_events if e.event_type_value == "ASSET_OBSERVATION"]
        assert all(e.asset_key == dg.AssetKey(TABLE.split(".")) for e in events)
        return [
            {k: v.value for k, v in e.asset_observation_data.asset_observation.metadata.items()}
            for e in events
        ]

    def log(self, result: dg.ExecuteInProcessResult) -> str:
        return "\n".join(one.user_message for one in self.instance.all_logs(result.run_id))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    resource = LakehouseResource(
        catalog=(tmp_path / "warehouse").as_uri(), landing=str(tmp_path / "landing")
    )
    pipeline = Pipeline((EVENTS,), (), resource.landing)
    with dg.DagsterInstance.ephemeral() as instance:
        yield Place(resource, build_definitions(pipeline, resource, LakehouseSpark()), instance)


def small_files(place: Place, commits: int = 6, **properties: str) -> Table:
    given = {"lakehouse.maintenance.skip-recent-ms": "0", **properties}
    table = place.lake.create_table(TABLE, SCHEMA, partition_by=["region"], properties=given)
    for number in range(commits):
        table.append(pa.table([[number, -number], ["eu", f"r{number % 3}"]], schema=SCHEMA))
    return table


def ids(table: Table) -> list[int]:
    return sorted(table.refresh().scan(select=["id"]).to_arrow()["id"].to_pylist())


def test_tuning_is_tried_once_a_day_and_adopted_where_the_policy_says_so(place: Place) -> None:
    table = small_files(place, commits=1)
    assert place.tick("tuning")[0] == []  # off
    table.set_properties({"lakehouse.maintenance.tune": "auto"})
    for number in range(60):
        rows = [list(range(number, number + 600)), ["eu"] * 600]
        table.append(pa.table(rows, schema=SCHEMA))
    (request,), _, _ = place.tick("tuning")
    before = ids(table)
    (event,) = place.observed(place.run("tuning", dict(request.tags)))
    assert event["lakehouse/files"] < event["lakehouse/files_before"]
    assert place.tick("tuning")[0] == []  # one step a day
    assert ids(table) == before
    steps = place.lake.load_table("lakehouse.tuning").scan().to_arrow().sort_by("at")
    assert steps["action"].to_pylist() == ["proposed", "kept"]


def test_a_tick_launches_a_run_for_table_and_partitions_whose_event_has_before_and_after(
    place: Place,
) -> None:
    table = small_files(place)
    (request,), _, _ = place.tick("small_files")
    assert request.job_name in (None, COMPACT_JOB)
    assert set(json.loads(request.tags[PARTITIONS_TAG])) == {
        f"region={name}" for name in ("eu", "r0", "r1", "r2")
    }
    before = ids(table)
    (event,) = place.observed(place.run(COMPACT_JOB, dict(request.tags)))
    assert (event["lakehouse/files_before"], event["lakehouse/files"]) == (12, 4)
    assert event["lakehouse/bytes_before"] > event["lakehouse/bytes"] > 0
    assert (event["lakehouse/snapshots_before"], event["lakehouse/snapshots"]) == (6, 7)
    assert event["lakehouse/snapshot_id"] == str(place.table.metadata.current_snapshot_id)
    assert (event["lakehouse/maintenance"], event["dagster/row_count"]) == ("compact", 12)
    assert ids(table) == before


def test_only_the_partitions_of_the_tag(place: Place) -> None:
    table = small_files(place)
    place.run(COMPACT_JOB, {TABLES_TAG: TABLE, PARTITIONS_TAG: '["region=r1"]'})
    assert sorted((one.partition, one.data_files) for one in table.health().partitions) == [
        ("region=eu", 6), ("region=r0", 2), ("region=r1", 1), ("region=r2", 2),
    ]  # fmt: skip


def test_only_tables_of_the_tag_have_steps_so_that_no_other_table_is_waited_for(
    place: Place,
) -> None:
    small_files(place)
    place.lake.create_table(EVENTS.quarantine_table, SCHEMA)
    chosen = place.run(EXPIRE_JOB, {TABLES_TAG: TABLE})
    started = {e.step_key for e in chosen.all_events if e.event_type_value == "STEP_START"}
    assert started == {"expire__choose_tables", "expire__raw__events"}
    everything = place.run(EXPIRE_JOB, {RETAIN_LAST_TAG: "1"})
    started = {e.step_key for e in everything.all_events if e.event_type_value == "STEP_START"}
    assert started == {
        "expire__choose_tables",
        "expire__raw__events",
        f"expire__{EVENTS.quarantine_table.replace('.', '__')}",
    }, "tables that exist"
    assert re.search(r"not created yet: .*\braw\.events_landing\b", place.log(everything))


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ({TABLES_TAG: "raw.event"}, "'raw.event', which this job does not maintain: name some of"),
        ({TABLES_TAG: f"{TABLE},"}, "'', which this job does not maintain"),
        ({TABLES_TAG: EVENTS.quarantine_table}, "nothing has created yet"),
        ({PARTITIONS_TAG: "region=eu"}, PARTITIONS_TAG),
        ({RETAIN_LAST_TAG: "0"}, "must be at least 1"),
    ],
)
def test_a_tag_that_cannot_be_used_fails_once_and_nothing_is_maintained(
    place: Place, tags: dict[str, str], said: str
) -> None:
    table = small_files(place)
    version = table.metadata_location
    with pytest.raises(dg.Failure) as failed:
        place.run(COMPACT_JOB, tags)
    assert said in str(failed.value.description)
    assert place.table.metadata_location == version


@pytest.mark.parametrize("job", [COMPACT_JOB, CLUSTER_JOB, EXPIRE_JOB, ORPHANS_JOB])
def test_a_dry_run_logs_the_plan_and_changes_nothing(place: Place, job: str) -> None:
    table = small_files(place)
    place.lake.load_table(TABLE).set_properties(
        {"lakehouse.maintenance.orphan-age-ms": str(25 * 3_600_000)}
    )
    table.storage.write(f"{table.location}/data/left.parquet", b"x")
    version, files = (
        place.table.metadata_location,
        sorted(one.location for one in table.storage.list(table.location)),
    )
    result = place.run(job, {TABLES_TAG: TABLE, DRY_RUN_TAG: "true", RETAIN_LAST_TAG: "1"})
    assert "Dry run, nothing was changed" in place.log(result)
    assert place.observed(result) == []
    assert place.table.metadata_location == version
    assert sorted(one.location for one in table.storage.list(table.location)) == files


def test_many_manifests_are_rewritten_when_the_policy_says_so(place: Place) -> None:
    table = small_files(place)
    assert place.tick("many_manifests")[0] == []
    table.set_properties({"lakehouse.maintenance.max-manifests": "5"})
    (request,), _, cursor = place.tick("many_manifests")
    assert PARTITIONS_TAG not in request.tags
    (event,) = place.observed(place.run(CLUSTER_JOB, dict(request.tags)))
    assert (event["lakehouse/manifests_before"], event["lakehouse/manifests"]) == (6, 1)
    assert place.tick("many_manifests", cursor)[0] == []


def test_expiry_is_an_event_too(place: Place) -> None:
    small_files(place)
    (event,) = place.observed(place.run(EXPIRE_JOB, {TABLES_TAG: TABLE, RETAIN_LAST_TAG: "2"}))
    assert (event["lakehouse/snapshots_before"], event["lakehouse/snapshots"]) == (6, 2)
    assert place.observed(place.run(EXPIRE_JOB)) == [], "nothing to do is no event"


def test_a_table_that_is_worked_on_is_not_asked_for_again(place: Place) -> None:
    table = small_files(place, commits=12)
    (request,), _, cursor = place.tick("small_files")
    job = place.definitions.resolve_job_def(COMPACT_JOB)
    run = place.instance.create_run_for_job(
        job, tags=dict(request.tags), status=dg.DagsterRunStatus.STARTED
    )
    table.append(pa.table([[99], ["eu"]], schema=SCHEMA))
    requests, skipped, cursor = place.tick("small_files", cursor)
    assert (requests, skipped) == ([], [f"{TABLE} is being worked on"])
    place.instance.report_run_failed(run)
    assert len(place.tick("small_files", cursor)[0]) == 1


def test_orphans_are_moved_at_night_only_when_the_policy_asks(place: Place) -> None:
    table = small_files(place, commits=1)
    table.storage.write(f"{table.location}/data/left.parquet", b"x" * 1000)
    later = Environment.seeded(1, start_ms=time.time_ns() // 1_000_000 + 4 * 86_400_000)
    late = Lakehouse(load_catalog(place.resource.catalog).catalog, later).load_table(TABLE)
    from lakehouse.orchestration.automation.maintenance_jobs import MaintenanceRequest

    assert remove_orphans(late, MaintenanceRequest(if_due=True)).moved_files == 0
    late.set_properties({"lakehouse.maintenance.max-unreferenced-bytes": "999"})
    assert remove_orphans(late, MaintenanceRequest(if_due=True)).moved_files == 1
    assert remove_orphans(late, MaintenanceRequest(if_due=True)).moved_files == 0
    result = place.run(ORPHANS_JOB, {IF_DUE_TAG: "true"})
    assert place.observed(result) == [], "in the trash, and not there for a week"


def state(place: Place) -> tuple[dict[str, object], dict[str, bool]]:
    result = place.run(STATE_JOB, {})
    event = place.instance.get_latest_materialization_event(STATE_KEY)
    metadata = {key: value.value for key, value in event.asset_materialization.metadata.items()}
    return metadata, {one.check_name: one.passed for one in result.get_asset_check_evaluations()}


def test_the_state_page_shows_every_table_and_alerts_after_the_time_that_the_policy_allows(
    place: Place,
) -> None:
    metadata, checks = state(place)
    assert metadata["lakehouse/tables"] == 0
    assert set(checks.values()) == {True}
    table = small_files(place, commits=12)
    (health,) = place.observed(place.run(STATE_JOB, {}))
    assert (
        health["lakehouse/files"],
        health["lakehouse/small_files"],
        health["lakehouse/files_after_compaction"],
    ) == (24, 24, 4)
    assert 0.9 < health["lakehouse/entropy"] <= 1
    metadata, checks = state(place)
    assert (metadata["lakehouse/files"], metadata["lakehouse/tables_beyond_policy"]) == (24, 1)
    page = metadata["state"]
    assert f"`{TABLE}`" in page
    assert "**compact**" in page
    (picture,) = re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", page)
    root = ET.fromstring(base64.b64decode(picture))  # noqa: S314 - our own
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")] == [
        "max 24",
        "now 24",
    ]
    assert checks[check_name(TABLE)] is True, "it may be beyond its policy for a day"
    since = metadata["lakehouse/beyond_policy_since_ms"]
    assert list(since) == [TABLE]
    table.set_properties({"lakehouse.maintenance.alert-after-ms": "1"})
    metadata, checks = state(place)
    assert metadata["lakehouse/beyond_policy_since_ms"] == since, (
        "the time is remembered from page to page"
    )
    assert checks[check_name(TABLE)] is False
    place.run(COMPACT_JOB)
    metadata, checks = state(place)
    assert (metadata["lakehouse/beyond_policy_since_ms"], checks[check_name(TABLE)]) == ({}, True)


def test_a_table_that_cannot_be_judged_keeps_no_other_from_maintenance(place: Place) -> None:
    small_files(place, commits=12)
    broken = place.lake.create_table("raw.events_landing", SCHEMA)
    broken.append(pa.table([[1], ["eu"]], schema=SCHEMA))
    manifest_list = broken.current_snapshot().manifest_list
    broken.storage.delete([manifest_list])
    sensor = next(
        one
        for one in maintenance_sensors(["raw.events_landing", TABLE])
        if one.name == "small_files"
    )
    with dg.build_sensor_context(
        resources={"lakehouse": place.resource}, instance=place.instance
    ) as context:
        assert [one.tags[TABLES_TAG] for one in sensor(context)] == [TABLE]
    metadata, checks = state(place)
    assert (checks[check_name("raw.events_landing")], checks[check_name(TABLE)]) == (False, True)
    assert metadata["lakehouse/tables_not_measured"] == 1
    shown = html.unescape(metadata["state"].replace("\\", ""))  # names are escaped for Markdown
    assert "raw.events_landing" in shown
    assert manifest_list.rsplit("/", 1)[-1] in shown


@pytest.mark.parametrize("points", [[], [(1, 5)], [(1, 5), (1, 5)], [(0, 0), (9, -3), (12, 7.5)]])
def test_any_line_can_be_drawn(points: list[tuple[float, float]]) -> None:
    root = ET.fromstring(line(points, labels=["<5>", "a & b"]))  # noqa: S314 - our own
    assert [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")] == ["<5>", "a & b"]
    numbers = re.findall(
        r"-?\d+\.\d+",
        " ".join(one.get("d") for one in root.iter("{http://www.w3.org/2000/svg}path")),
    )
    assert all(0 <= float(one) <= 220 for one in numbers)
