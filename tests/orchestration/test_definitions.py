"""The code location as Dagster loads it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import dagster as dg
import pytest
import yaml

import definitions
from lakehouse.orchestration.source_assets import pool

CHECKOUT = Path(definitions.__file__).parent


def test_the_definitions_load_and_are_these() -> None:
    dg.Definitions.validate_loadable(definitions.defs)
    repository = definitions.defs.get_repository_def()
    assert {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()} == {
        *(
            f"raw/{source}{part}"
            for source in ("flights", "wiki_edits")
            for part in ("", "_landing", "_quarantine")
        ),
        "landing/flights",
        "landing/wiki_edits",
        "clean/flights",
        "marts/carrier_day",
        "marts/aircraft",
        "marts/busiest_airports",
        "lakehouse/state",
    }
    assert {job.name for job in repository.get_all_jobs()} - {"__ASSET_JOB"} == {
        "index_flights", "ingest_flights", "index_wiki_edits", "ingest_wiki_edits", "compact",
        "expire",
        "rewrite_manifests", "remove_orphans", "tuning", "lakehouse_state", "check_statements",
        "refresh_marts", "retry_quarantine", "fill_columns", "undo",
    }  # fmt: skip
    graph = repository.asset_graph
    assert graph.get(dg.AssetKey(["marts", "aircraft"])).partitions_def is None
    assert (
        len(graph.get(dg.AssetKey(["raw", "flights"])).partitions_def.get_partition_keys()) == 366
    )
    blocking = {key.name for key in graph.asset_check_keys if graph.get(key).blocking}
    assert blocking == {"raw_contract", "inputs_whole", "contract"}


def test_every_name_of_the_ui_is_found_by_grep_in_the_folders_of_the_pipeline() -> None:
    repository = definitions.defs.get_repository_def()
    folders = ("assets", "jobs", "sensors")
    text = "\n".join(
        path.read_text() for folder in folders for path in sorted((CHECKOUT / folder).rglob("*.py"))
    )
    names = {
        *(job.name for job in repository.get_all_jobs() if not job.name.startswith("__")),
        *(sensor.name for sensor in repository.sensor_defs),
        *(schedule.name for schedule in repository.schedule_defs),
        *(check.name for check in repository.asset_graph.asset_check_keys),
        *(key.path[-1] for key in repository.asset_graph.get_all_asset_keys()),
    }
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", text)) == []


def test_sensors_and_schedules_run_by_default_and_say_how_to_stop_them() -> None:
    repository = definitions.defs.get_repository_def()
    assert {s.name for s in repository.sensor_defs} == {
        "landed_flights", "landed_wiki_edits", "small_files", "many_manifests", "old_snapshots",
        "tuning",
        "statements_to_check", "automation_conditions",
    }  # fmt: skip
    assert {s.name for s in repository.schedule_defs} == {
        "nightly_flights",
        "nightly_wiki_edits",
        "nightly_orphans",
        "hourly_state",
    }
    for one in (*repository.sensor_defs, *repository.schedule_defs):
        assert one.default_status.value == "RUNNING"
        assert "switch" in one.description


def test_whatever_writes_to_a_table_shares_its_pool() -> None:
    writers: dict[str, set[str]] = {}
    for job in definitions.defs.get_repository_def().get_all_jobs():
        for node in job.nodes:
            writers.setdefault(node.definition.pool, set()).add(node.name)
    assert writers[pool("marts.aircraft")] == {
        "marts__aircraft",
        *(
            f"{job}__marts__aircraft"
            for job in ("compact", "rewrite_manifests", "expire", "remove_orphans", "tuning")
        ),
    }
    assert {
        "raw__flights",
        "raw__flights_landing",
        "compact__raw__flights",
        "expire__raw__flights",
    } <= writers[pool("raw.flights")]
    jobs = ("compact", "rewrite_manifests", "expire", "remove_orphans", "tuning")
    writes_nothing = {f"{job}__choose_tables" for job in jobs}
    # which tables the run wrote nobody knows before; who commits meanwhile makes it fail
    assert writers[None] == writes_nothing | {"undo__run"}


@pytest.mark.slow
def test_dagster_dev_and_dg_dev_start_the_same_location(tmp_path: Path) -> None:
    (location,) = yaml.safe_load((CHECKOUT / "workspace.yaml").read_text())["load_from"]
    assert location["python_module"] == {"module_name": "definitions", "location_name": "lakehouse"}
    tool = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]
    assert "dagster" not in tool
    assert tool["dg"]["project"]["code_location_name"] == "lakehouse"
    listed = subprocess.run(
        [Path(sys.executable).with_name("dg"), "list", "defs", "--json"],
        cwd=CHECKOUT,
        env=os.environ
        | {"DAGSTER_HOME": str(tmp_path), "DG_CLI_CONFIG": str(tmp_path / "dg.toml")},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(listed.stdout)
    names = {
        kind: {one["asset_key" if kind == "assets" else "name"] for one in found[kind]}
        for kind in ("assets", "jobs", "sensors")
    }
    repository = definitions.defs.get_repository_def()
    assert names["assets"] == {
        key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()
    }
    assert names["sensors"] == {sensor.name for sensor in repository.sensor_defs}
    assert names["jobs"] == {
        job.name for job in repository.get_all_jobs() if not job.name.startswith("__")
    }


def test_the_instance_frees_the_slots_of_killed_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    shutil.copyfile(CHECKOUT / "dagster.yaml", tmp_path / "dagster.yaml")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_poll_interval_seconds == 5
        settings = instance.get_settings("run_monitoring")
        assert settings["free_slots_after_run_end_seconds"] == 5
        assert (instance.run_retries_enabled, instance.run_retries_max_retries) == (True, 2)
        assert instance.run_retries_retry_on_asset_or_op_failure is False
        assert instance.get_concurrency_config().pool_config.default_pool_limit == 1
