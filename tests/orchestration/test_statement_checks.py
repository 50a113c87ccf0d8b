"""Statements in Dagster: the check of a table, and the sensor that asks for it."""

from __future__ import annotations

import dagster as dg
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lakehouse.cli import app
from lakehouse.lake import load_catalog
from lakehouse.orchestration.checks.statement_checks import (
    CHECK,
    JOB,
    statement_checks,
    statement_job,
    statement_sensor,
)
from lakehouse.orchestration.lineage.materialization import materialization_metadata
from lakehouse.orchestration.resources import LakehouseResource

DOCUMENT = """
table: raw.events
statements:
- {kind: warning, text: "Codes are <capital> | letters.",
   evidence: {check: pattern, column: code, regex: "[A-Z]"}}
"""


@pytest.fixture
def place(tmp_path):
    catalog = str(tmp_path / "warehouse")
    table = load_catalog(catalog).create_table("raw.events", pa.schema([("code", pa.string())]))
    table.append(pa.table({"code": ["A", "B"]}))
    (tmp_path / "events.yaml").write_text(DOCUMENT)
    arguments = ["semantics", "import", str(tmp_path / "events.yaml"), "-c", catalog]
    assert CliRunner().invoke(app, arguments).exit_code == 0

    @dg.asset(key=["raw", "events"])
    def events() -> None: ...

    resource = LakehouseResource(catalog=catalog, landing=str(tmp_path))
    definitions = dg.Definitions(
        assets=[events],
        asset_checks=statement_checks(["raw.events"]),
        jobs=[statement_job(["raw.events"])],
        sensors=[statement_sensor(["raw.events"])],
        resources={"lakehouse": resource},
    )
    return table, definitions, resource


def run(definitions):
    result = definitions.resolve_job_def(JOB).execute_in_process()
    (evaluation,) = result.get_asset_check_evaluations()
    return evaluation


def test_a_contradiction_fails_the_check_of_its_table_and_says_why(place):
    table, definitions, _ = place
    good = run(definitions)
    assert good.passed
    assert good.check_name == CHECK
    table.append(pa.table({"code": ["c"]}))
    bad = run(definitions)
    assert not bad.passed
    assert "2 of 3 values match" in bad.description
    page = bad.metadata["lakehouse/statements"].value
    assert "Codes are &#60;capital&#62; &#124; letters." in page
    assert bad.metadata["lakehouse/contradicted"].value == 1


def test_the_sensor_asks_once_for_what_needs_data(place):
    table, definitions, resource = place
    (sensor,) = definitions.sensors

    instance = dg.DagsterInstance.ephemeral()

    def tick():
        with dg.build_sensor_context(
            resources={"lakehouse": resource}, definitions=definitions, instance=instance
        ) as context:
            return sensor(context)

    assert isinstance(tick(), dg.SkipReason)
    table.append(pa.table({"code": ["D"]}))
    first, second = tick(), tick()
    (request,) = first.run_requests
    assert request.asset_check_keys == [dg.AssetCheckKey(dg.AssetKey(["raw", "events"]), CHECK)]
    assert request.run_key == second.run_requests[0].run_key
    assert run(definitions).passed
    assert isinstance(tick(), dg.SkipReason)


def test_what_is_said_later_is_on_the_page_of_data_that_was_there_before(place, tmp_path):
    table, _, resource = place
    snapshot = table.current_snapshot()
    (tmp_path / "more.yaml").write_text(
        "table: raw.events\nstatements:\n"
        "- {id: what, kind: description, text: Letters of the day.}\n"
        "- {id: code, kind: description, column: code, text: A capital letter.}\n"
    )
    found = CliRunner().invoke(
        app, ["semantics", "import", str(tmp_path / "more.yaml"), "-c", resource.catalog]
    )
    assert found.exit_code == 0
    shown = materialization_metadata(resource.lake().load_table("raw.events"), snapshot, {})
    (column,) = shown["dagster/column_schema"].value.columns
    assert column.description == "A capital letter."
    assert shown["lakehouse/description"].value == "Letters of the day."
