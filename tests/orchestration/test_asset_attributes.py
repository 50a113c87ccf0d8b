"""Owners, tags, freshness, code and automation as Dagster itself sees and judges them."""

from __future__ import annotations

import inspect
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.freshness import FreshnessState, FreshnessStateChange

from lakehouse.errors import InvalidInputError
from lakehouse.orchestration import LakehouseResource, LakehouseSpark, SqlModel, build_definitions
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.automation.run_requests import ingest_job_name
from lakehouse.orchestration.project import Pipeline
from lakehouse.storage.location import local_path
from tests.orchestration.conftest import EVENTS, Pipe, event
from tests.orchestration.test_dagster import CLEAN, USERS, deploy

DAY = timedelta(days=1)


def _rows(inputs):
    return inputs["raw.events"].select("event_ts", "id")


def test_dagster_sees_owners_tags_freshness_and_the_code(pipe: Pipe) -> None:
    about = {"owners": ("team:events",), "tags": {"domain": "web"}, "fresh_within": DAY}
    source = replace(EVENTS, **about)
    tables = (
        DerivedTable(name="clean.rows", inputs=("raw.events",), transform=_rows, **about),
        SqlModel(name="marts.many", sql="SELECT count(*) AS n FROM raw.events", **about).table(),
    )
    with dg.DagsterInstance.ephemeral() as instance:
        graph = deploy(pipe, source, tables, instance).definitions.resolve_asset_graph()
    ours = [node for node in graph.asset_nodes if node.key.path[0] != "lakehouse"]
    assert len(ours) == 6
    assert {(tuple(node.owners), node.tags["domain"]) for node in ours} == {
        (("team:events",), "web")
    }
    watched = {n.key.to_user_string() for n in ours if n.freshness_policy is not None}
    assert watched == {"raw/events", "clean/rows", "marts/many"}
    policy = graph.get(dg.AssetKey(["raw", "events"])).freshness_policy
    assert policy == dg.FreshnessPolicy.time_window(DAY)
    code = graph.get(dg.AssetKey(["clean", "rows"])).metadata["dagster/code_references"]
    (reference,) = code.code_references
    lines = Path(local_path(reference.file_path)).read_text().splitlines()
    assert lines[reference.line_number - 1] == inspect.getsource(_rows).splitlines()[0]
    assert "dagster/code_references" not in graph.get(dg.AssetKey(["marts", "many"])).metadata


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")  # of Dagster's own tester
def test_a_table_with_a_condition_is_computed_by_dagster_and_not_by_the_landing_sensor(
    pipe: Pipe,
) -> None:
    latest = dg.AutomationCondition.in_latest_time_window()  # `eager` means it alone
    eager = replace(CLEAN, automation=dg.AutomationCondition.eager().without(latest))
    with dg.DagsterInstance.ephemeral() as instance:
        deployment = deploy(pipe, EVENTS, (eager,), instance)
        job = deployment.definitions.resolve_job_def(ingest_job_name("events"))
        assert "clean__events" not in {node.name for node in job.nodes}
        sensor = deployment.definitions.resolve_sensor_def("automation_conditions")
        assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
        before = dg.evaluate_automation_conditions(deployment.definitions, instance)
        pipe.land("1.jsonl.gz", [event(n, 1 + n % 3) for n in range(6)])
        deployment.ingest(1, 3)
        assert deployment.asked() == [], "the sensor of the source has nothing to ask for"
        after = dg.evaluate_automation_conditions(
            deployment.definitions, instance, cursor=before.cursor
        )
        days = after.get_requested_partitions(eager.key)
        assert days == {"2026-06-01", "2026-06-02", "2026-06-03"}


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")  # of Dagster's own tester
@pytest.mark.parametrize("late", [False, True])
def test_a_sql_model_is_refreshed_when_it_is_late(tmp_path: Path, late: bool) -> None:
    table = SqlModel(
        name="marts.many",
        sql="SELECT count(*) AS n FROM raw.events",
        fresh_within=DAY,
        automation=dg.AutomationCondition.freshness_failed().newly_true(),
    ).table()
    pipeline = Pipeline((EVENTS,), (table,), str(tmp_path))
    defs = build_definitions(pipeline, LakehouseResource(catalog=str(tmp_path)), LakehouseSpark())
    with dg.DagsterInstance.ephemeral() as instance:
        before = dg.evaluate_automation_conditions(defs, instance)
        assert before.total_requested == 0
        state = FreshnessState.FAIL if late else FreshnessState.PASS
        change = FreshnessStateChange(
            key=table.key,
            new_state=state,
            previous_state=FreshnessState.UNKNOWN,
            state_change_timestamp=1.0,
        )
        instance.report_runless_asset_event(change)
        for number in (late, False):  # it is asked for once
            after = dg.evaluate_automation_conditions(defs, instance, cursor=before.cursor)
            assert after.total_requested == number
            before = after


def test_what_reads_a_table_with_a_condition_needs_one(pipe: Pipe) -> None:
    eager = replace(CLEAN, automation=dg.AutomationCondition.eager())
    with pytest.raises(InvalidInputError, match=r"marts\.users reads clean\.events, which Dagster"):
        Pipeline((EVENTS,), (eager, USERS), pipe.landing).assets()
    both = (eager, replace(USERS, automation=dg.AutomationCondition.eager()))
    assert Pipeline((EVENTS,), both, pipe.landing).derived_from(EVENTS) == []


def test_without_conditions_there_is_no_sensor_for_them(pipe: Pipe) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        found = deploy(pipe, EVENTS, (CLEAN, USERS), instance).definitions
    names = {one.name for one in found.resolve_all_job_defs()} | {
        one.name for one in found.get_repository_def().sensor_defs
    }
    assert "automation_conditions" not in names
