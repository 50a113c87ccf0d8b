"""What Dagster keeps of a run and shows of a deployment holds no secret of the catalog."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.events.log import EventLogEntry

import definitions
from lakehouse.lake import load_catalog
from lakehouse.orchestration.automation.maintenance_jobs import maintenance_jobs
from lakehouse.orchestration.resources import LakehouseResource

CANARY = "canary-5eC7et"


@pytest.fixture
def instance(tmp_path: Path) -> dg.DagsterInstance:
    (tmp_path / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "home")) as instance:
        yield instance


def resource() -> LakehouseResource:
    """As the deployment makes it."""
    return LakehouseResource(
        catalog=definitions.setting("LAKEHOUSE_CATALOG", "nowhere"),
        warehouse=definitions.setting("LAKEHOUSE_WAREHOUSE", ""),
        properties=definitions.setting("LAKEHOUSE_PROPERTIES", "{}"),
        landing="/nowhere",
    )


def kept(instance: dg.DagsterInstance, folder: Path) -> tuple[list[EventLogEntry], list[str]]:
    """(the event log, files of Dagster's storage that hold the canary)."""
    events = [entry for run in instance.get_runs() for entry in instance.all_logs(run.run_id)]
    files = [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and CANARY.encode() in path.read_bytes()
    ]
    return events, files


@pytest.mark.parametrize("reachable", [True, False])
def test_runs_keep_no_secret(
    tmp_path: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    reachable: bool,
) -> None:
    secrets = {"s3.secret-access-key": CANARY, "token": CANARY, "catalog.retry-timeout-ms": "0"}
    url = (
        f"sqlite:///{tmp_path}/catalog.db"
        if reachable
        else f"postgresql+psycopg://me:{CANARY}@127.0.0.1:1/catalog"
    )
    monkeypatch.setenv("LAKEHOUSE_CATALOG", url)
    monkeypatch.setenv("LAKEHOUSE_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setenv("LAKEHOUSE_PROPERTIES", json.dumps(secrets))

    @dg.asset
    def opened(context, lakehouse: LakehouseResource):  # type: ignore[no-untyped-def]
        lake = lakehouse.lake()
        assert dict(lake.catalog.properties) == secrets
        context.log.info("%r %r", lake, lakehouse)
        return dg.MaterializeResult(
            metadata={"uri": lake.catalog.uri, "tables": lake.list_tables()}
        )

    defs = dg.Definitions(
        assets=[opened], resources={"lakehouse": resource()}, executor=dg.in_process_executor
    )
    result = defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance, raise_on_error=False
    )
    assert result.success is reachable
    events, files = kept(instance, tmp_path / "home")
    assert len(events) > 5
    texts = [event.to_json() for event in events]
    assert not [text for text in texts if CANARY in text]
    assert files == []
    out = capfd.readouterr()
    assert CANARY not in out.out + out.err


def test_the_deployment_shows_names_of_variables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_CATALOG", f"postgresql://me:{CANARY}@host/db")
    monkeypatch.setenv("LAKEHOUSE_PROPERTIES", json.dumps({"s3.secret-access-key": CANARY}))
    made = resource()
    shown = dg.Definitions(jobs=maintenance_jobs(["raw.events"]), resources={"lakehouse": made})
    repository = shown.get_repository_def()
    texts = [
        repr(made),
        repr(made.model_dump() if hasattr(made, "model_dump") else made),
        str(
            {
                key: value.config_schema.default_value
                for key, value in repository.get_top_level_resources().items()
            }
        ),
    ]
    assert not [text for text in texts if CANARY in text]
    assert "LAKEHOUSE_CATALOG" in texts[2]


def test_outside_of_a_run_variables_are_looked_up_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sensors and the demo open the catalog without a run."""
    load_catalog(str(tmp_path)).create_namespace("raw")
    monkeypatch.setenv("LAKEHOUSE_CATALOG", str(tmp_path))
    assert resource().lake().list_namespaces() == ["raw"]


def test_properties_that_are_no_object_are_not_quoted() -> None:
    made = LakehouseResource(catalog="/x", landing="/y", properties=f'{{"token": {CANARY}')
    with pytest.raises(ValueError, match="JSON object") as caught:
        made.lake()
    assert CANARY not in f"{caught.value} {caught.value.__cause__}"
