"""What compose gives Dagster: an instance on PostgreSQL, otherwise like that of one machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.test_utils import create_run_for_test
from dagster_docker import DockerRunLauncher

from lakehouse.orchestration.dagster_instance import prepare_home
from tests.servers import postgres_on_loopback

ROOT = Path(__file__).resolve().parents[2]
DEPLOYED = yaml.safe_load((ROOT / "deploy/dagster.yaml").read_text())
ON_ONE_MACHINE = yaml.safe_load((ROOT / "dagster.yaml").read_text())


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    shutil.copyfile(ROOT / "deploy/dagster.yaml", tmp_path / "dagster.yaml")
    with postgres_on_loopback() as port:
        for name, value in {"HOST": "127.0.0.1", "PORT": str(port), "DB": "postgres"}.items():
            monkeypatch.setenv(f"DAGSTER_POSTGRES_{name}", value)
        monkeypatch.setenv("DAGSTER_POSTGRES_USER", "postgres")
        monkeypatch.setenv("DAGSTER_POSTGRES_PASSWORD", "unused")
        with dg.DagsterInstance.from_config(str(tmp_path)) as opened:
            yield opened


def test_events_are_stored_in_postgresql(instance: dg.DagsterInstance) -> None:
    """A run's first event is a NOTIFY in PostgreSQL, which a driver can refuse."""
    run = create_run_for_test(instance, job_name="ingest_events")
    instance.report_run_canceled(run)
    assert instance.get_run_by_id(run.run_id).status == dg.DagsterRunStatus.CANCELED
    assert [record.run_id for record in instance.all_logs(run.run_id)] == [run.run_id]


def test_only_storage_and_launcher_differ_from_those_of_one_machine() -> None:
    assert DEPLOYED["storage"] != ON_ONE_MACHINE["storage"]
    other = {"storage": None, "run_launcher": None}
    assert DEPLOYED | other == ON_ONE_MACHINE | other


def test_runs_are_launched_as_containers(instance: dg.DagsterInstance) -> None:
    assert isinstance(instance.run_launcher, DockerRunLauncher)
    assert instance.run_launcher.image == "lakehouse:local"


def test_a_users_instance_keeps_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    prepare_home(ROOT)
    assert (home / "dagster.yaml").read_text() == (ROOT / "dagster.yaml").read_text()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    prepare_home(ROOT)
    assert (home / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"


def test_the_demos_own_instance_follows_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dagster.yaml").write_text("nux: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / ".lakehouse" / "dagster"))
    for settings in ("nux: {enabled: false}\n", "telemetry: {enabled: false}\n"):
        (tmp_path / "dagster.yaml").write_text(settings)
        home = prepare_home(tmp_path)
        assert (home / "dagster.yaml").read_text() == settings
