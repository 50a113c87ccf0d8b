"""`defs.yaml` beside Python: the same definitions, found in the same package."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner
from dagster_dg_cli.cli import cli

from assets.flights.source import plausible
from lakehouse.errors import InvalidInputError
from lakehouse.lake import load_catalog
from lakehouse.orchestration import (
    ChangeFeed,
    Column,
    EventTime,
    LakehouseResource,
    LakehouseSpark,
    Source,
    SqlModel,
    build_definitions,
    discover,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),  # of Dagster itself
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
    pytest.mark.filterwarnings("ignore::dagster.PreviewWarning"),
]
ROOM = "lakehouse.orchestration.components"
CLICKS = Source(
    name="clicks",
    event_time=EventTime("at", zone="Europe/Berlin"),
    first_day=date(2026, 6, 1),
    bucket="user_id",
    natural_key=("id",),
    columns=(
        Column("id", "long"),
        Column("user_id", "string"),
        Column("at", "string", aliases=("time",)),
    ),
    fresh_within=timedelta(days=1),
    owners=("team:clicks",),
    tags={"domain": "web"},
    transform=plausible,
)
YAML = f"""
type: {ROOM}.SourceComponent
attributes:
  name: clicks
  event_time: {{column: at, zone: Europe/Berlin}}
  first_day: 2026-06-01
  bucket: user_id
  natural_key: [id]
  columns:
    - {{name: id, type: long}}
    - {{name: user_id, type: string}}
    - {{name: at, type: string, aliases: [time]}}
  fresh_within: P1D
  owners: [team:clicks]
  tags: {{domain: web}}
  transform: assets.flights.source:plausible
---
type: {ROOM}.ChangeFeedComponent
attributes: {{name: users, keys: [id], sequence_by: [source.lsn], envelope: debezium}}
---
type: {ROOM}.SqlModelComponent
attributes:
  {{name: marts.by_user, sql: by_user.sql, automation: "{{{{ dg.AutomationCondition.eager() }}}}"}}
---
type: {ROOM}.MaintenanceComponent
attributes: {{tables: [ops.scans, dbt.orders]}}
"""
SQL = """WITH active AS (SELECT * FROM raw.users u WHERE u.name IS NOT NULL)
SELECT c.user_id, count(*) AS clicks FROM raw.clicks AS c JOIN active ON c.user_id = active.name
GROUP BY c.user_id"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package of a name of its own; its modules are forgotten afterwards."""
    name = f"yaml_{tmp_path.name}"
    root = tmp_path / name
    (root / "shop").mkdir(parents=True)
    (root / "__init__.py").write_text("")
    (root / "shop" / "defs.yaml").write_text(YAML)
    (root / "shop" / "by_user.sql").write_text(SQL)
    monkeypatch.syspath_prepend(tmp_path)
    yield root
    for module in [one for one in sys.modules if one.partition(".")[0] == name]:
        del sys.modules[module]


def test_yaml_gives_the_values_that_python_gives(package: Path) -> None:
    (package / "plain.py").write_text(
        "from lakehouse.orchestration import SqlModel\n"
        "import dagster as dg\n"
        "ALL = SqlModel(name='marts.all', sql='SELECT * FROM marts.by_user',\n"
        "    automation=dg.AutomationCondition.eager())\n"
    )
    found = discover(importlib.import_module(package.name))
    assert found.sources == (CLICKS,)
    assert found.feeds == (
        ChangeFeed(name="users", keys=("id",), sequence_by=("source.lsn",), envelope="debezium"),
    )
    assert [(one.name, one.inputs) for one in found.derived] == [
        ("marts.all", ("marts.by_user",)),
        ("marts.by_user", ("raw.clicks", "raw.users")),
    ]
    assert {one.automation for one in found.derived} == {dg.AutomationCondition.eager()}
    defs = build_definitions(
        found.pipeline("/landing"), LakehouseResource(catalog="file:///w"), LakehouseSpark()
    )
    dg.Definitions.validate_loadable(dg.Definitions.merge(defs, found.others()))
    sensors = {one.name for one in defs.sensors or ()}
    assert {"landed_clicks", "landed_users"} <= sensors
    assert found.maintained == ("ops.scans", "dbt.orders")
    steps = {node.name for node in defs.get_job_def("compact").nodes}
    assert {"compact__ops__scans", "compact__dbt__orders", "compact__raw__clicks"} <= steps


@pytest.mark.slow
def test_a_folder_with_yaml_loads_in_a_code_server(package: Path) -> None:
    """It has a name there, and Dagster adds components that its UI may have made."""
    (package.parent / "served.py").write_text(
        f"import {package.name}\n"
        "from lakehouse.orchestration import LakehouseResource, LakehouseSpark\n"
        "from lakehouse.orchestration import build_definitions, discover\n"
        f"found = discover({package.name})\n"
        "resources = LakehouseResource(catalog='file:///w'), LakehouseSpark()\n"
        "defs = build_definitions(found.pipeline('/landing'), *resources)\n"
    )
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-m", "served"]
    home = {"DAGSTER_HOME": str(package.parent), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, cwd=package.parent, env=os.environ | home, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_folder_of_components_loads_by_dagster_alone(package: Path) -> None:
    module = importlib.import_module(package.name)
    tree = dg.ComponentTree.from_module(defs_module=module, project_root=package.parent)
    resources = {"lakehouse": LakehouseResource(catalog="file:///w"), "spark": LakehouseSpark()}
    loaded = dg.Definitions.merge(
        tree.build_defs(),  # as dg.load_from_defs_folder does
        dg.Definitions(resources=resources),
    )
    dg.Definitions.validate_loadable(loaded)
    keys = {one.to_user_string() for one in loaded.resolve_all_asset_keys()}
    assert {"raw/clicks", "raw/clicks_landing", "raw/users", "marts/by_user"} <= keys
    steps = {node.name for node in loaded.get_job_def("expire").nodes}
    assert steps == {"expire__choose_tables", "expire__ops__scans", "expire__dbt__orders"}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"name": "clicks"}, "event_time"),
        ({"name": "My Clicks", "event_time": {"column": "at"}, "first_day": "2026-06-01", "bucket": "b"}, "the name must match"),  # noqa: E501
        ({"name": "clicks", "event_time": {"column": "at"}, "first_day": "June", "bucket": "b"}, "first_day"),  # noqa: E501
        ({"name": "clicks", "event_time": {"column": "at"}, "first_day": "2026-06-01", "bucket": "b", "bukets": 3}, "bukets"),  # noqa: E501
    ],
)  # fmt: skip
def test_mistakes_are_told(attributes, message, package: Path) -> None:
    text = yaml.safe_dump({"type": f"{ROOM}.SourceComponent", "attributes": attributes})
    (package / "shop" / "defs.yaml").write_text(text)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Dagster wraps it
        discover(importlib.import_module(package.name))
    told = []
    error: BaseException | None = raised.value
    while error is not None:
        told.append(str(error))
        error = error.__cause__ or error.__context__
    assert message in "\n".join(told)


def test_components_of_others_are_named_and_not_passed_over(package: Path) -> None:
    (package / "shop" / "defs.yaml").write_text(
        "type: dagster.PythonScriptComponent\n"
        "attributes: {execution: {path: x.py}, assets: [{key: x}]}\n"
    )
    with pytest.raises(InvalidInputError, match="PythonScriptComponent in a defs"):
        discover(importlib.import_module(package.name))


def test_dg_scaffolds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    (project / "shop" / "defs").mkdir(parents=True)
    for folder in ("", "defs"):
        (project / "shop" / folder / "__init__.py").write_text("")
    (project / "pyproject.toml").write_text(
        '[project]\nname = "shop"\nversion = "0"\n[tool.dg]\ndirectory_type = "project"\n'
        f'[tool.dg.project]\nroot_module = "shop"\nregistry_modules = ["{ROOM}"]\n'
    )
    monkeypatch.chdir(project)
    done = CliRunner().invoke(cli, ["scaffold", "defs", f"{ROOM}.SourceComponent", "clicks"])
    assert done.exit_code == 0, done.output
    written = project / "shop" / "defs" / "clicks" / "defs.yaml"
    assert f"type: {ROOM}.SourceComponent" in written.read_text()


@pytest.mark.spark
def test_a_sql_model_is_what_spark_says_of_its_inputs(spark, tmp_path: Path) -> None:
    lake = load_catalog(str(tmp_path / "warehouse"))
    for name, text in (
        ("raw.clicks", "VALUES ('Ada', 1), ('Ada', 2), ('Bob', 3), ('Eve', 4) AS t(user_id, n)"),
        ("raw.users", "VALUES ('Ada'), ('Bob'), (NULL) AS t(name)"),
    ):
        rows = spark.sql(f"SELECT * FROM {text}")
        lake.create_table(name, rows.schema).append(rows)
    table = SqlModel(name="marts.by_user", sql=SQL).table()
    inputs = {name: lake.load_table(name).metadata.current_snapshot_id for name in table.inputs}
    rows = table.compute(lake, spark, inputs, None)
    assert sorted(tuple(row) for row in rows.collect()) == [("Ada", 2), ("Bob", 1)]
    assert not [one.name for one in spark.catalog.listTables() if "by_user" in one.name]


@pytest.mark.parametrize(
    ("sql", "message"),
    [("SELEC 1 FROM", "does not parse|no SELECT"), ("DROP TABLE a.b", "no SELECT"), ("SELECT 1", "names no table")],  # noqa: E501
)  # fmt: skip
def test_sql_that_is_no_model_is_refused(sql: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        SqlModel(name="marts.x", sql=sql).table()
