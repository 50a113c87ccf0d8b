"""Every metric that a panel or an alert names is one that something of ours answers with."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pyarrow as pa
import pytest
import sqlalchemy as sa
import yaml
from dagster._core.test_utils import create_run_for_test
from dagster._daemon.types import DaemonHeartbeat
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deploy.metrics import databases, registry
from lakehouse.errors import CommitConflictError
from lakehouse.ingestion.source import EventTime, Source
from lakehouse.lake import load_catalog
from lakehouse.orchestration import LakehouseResource, Pipeline
from lakehouse.server.meters import Meters
from tests.cluster.ports import free_port
from tests.servers import postgres_on_loopback
from tests.waiting import eventually, reaped

ROOT = Path(__file__).resolve().parents[2]
WATCH = ROOT / "deploy/watch"
PANELS = [
    target["expr"]
    for panel in json.loads((WATCH / "lakehouse.json").read_text())["panels"]
    for target in panel.get("targets", ())
]
(GROUP,) = yaml.safe_load((WATCH / "alerts.yml").read_text())["groups"]
ALERTS = [rule["expr"] for rule in GROUP["rules"]]
SPARKS = "metrics_"
CLICKS = Source(
    name="clicks", pattern="*.jsonl.gz", event_time=EventTime("ts"), first_day=date(2026, 6, 1)
)
# what Prometheus itself notes of each scrape
OF_PROMETHEUS = {"up"}
_LEFT_OUT = re.compile(r'\{[^}]*\}|\[[^\]]*\]|"[^"]*"|\b(?:by|without|on) \([^)]*\)')


def names(expression: str) -> set[str]:
    """The metrics of a PromQL expression; `promtool check rules` is the judge of its grammar."""
    plain = _LEFT_OUT.sub(" ", expression)
    found = re.findall(r"(?<![\w.])[a-zA-Z_:][a-zA-Z0-9_:]*(?![\w:])(?! *\()", plain)
    return {one for one in found if one not in ("and", "or", "unless", "bool")}


def labels(expression: str) -> set[tuple[str, str]]:
    """The metrics that an expression chooses by a label, with it."""
    return {
        (metric, label)
        for metric, inside in re.findall(r"(\w+)\{([^}]*)\}", expression)
        for label in re.findall(r"(\w+)(?:=|=~|!=|!~)\"", inside)
    }


@dataclass
class Told:
    """Name -> values of labels -> value, and the labels, as Prometheus' parser reads an answer."""

    values: dict[str, dict[tuple[str, ...], float]] = field(default_factory=dict)
    labels: set[tuple[str, str]] = field(default_factory=set)

    def __getitem__(self, name: str) -> dict[tuple[str, ...], float]:
        return self.values[name]


def samples(text: str) -> Told:
    told = Told()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            told.values.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
            told.labels |= {(sample.name, label) for label in sample.labels}
    return told


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A deployment on PostgreSQL: a run under way, a failed one, a landed file, a table."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "landing/clicks").mkdir(parents=True)
    with gzip.open(folder / "landing/clicks/one.jsonl.gz", "wt") as file:
        file.write('{"ts": "2026-06-02T00:00:00Z"}\n')
    (folder / "dagster.yaml").write_text((ROOT / "deploy/dagster.yaml").read_text())
    with postgres_on_loopback() as port, pytest.MonkeyPatch.context() as patch:
        told = {"HOST": "127.0.0.1", "PORT": str(port), "DB": "postgres", "USER": "postgres"}
        for name, value in {**told, "PASSWORD": "unused"}.items():
            patch.setenv(f"DAGSTER_POSTGRES_{name}", value)
        patch.setenv("DAGSTER_HOME", str(folder))
        catalog = f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
        patch.setenv("OF_THE_CATALOG", catalog)
        lake = load_catalog(catalog, warehouse=str(folder / "warehouse"))
        lake.create_table(CLICKS.table, pa.schema([("id", pa.int64())]))
        lake.load_table(CLICKS.table).append(pa.table({"id": [1, 2, 3]}))
        with dg.DagsterInstance.from_config(str(folder)) as instance:
            create_run_for_test(instance, status=dg.DagsterRunStatus.STARTED)
            instance.report_run_failed(create_run_for_test(instance))
            instance.add_daemon_heartbeat(DaemonHeartbeat(1_780_000_000.0, "SENSOR", "one"))
        resource = LakehouseResource(
            catalog=dg.EnvVar("OF_THE_CATALOG"),
            warehouse=str(folder / "warehouse"),
            landing=str(folder / "landing"),
        )
        module = SimpleNamespace(
            pipeline=Pipeline((CLICKS,), (), str(folder / "landing")),
            defs=SimpleNamespace(resources={"lakehouse": resource}),
        )
        environment = {f"DAGSTER_POSTGRES_{name}": value for name, value in told.items()}
        environment |= {"DAGSTER_POSTGRES_PASSWORD": "x", "LAKEHOUSE_CATALOG": catalog}
        made = registry(module, environment)
        return samples(generate_latest(made).decode())


@pytest.fixture(scope="module")
def rest() -> Told:
    """What the REST catalog answers once it did something of each kind."""
    meters = Meters()
    meters.answered("GET /v1/config", 500, seconds=0.1)
    with pytest.raises(CommitConflictError), meters.commit():
        raise CommitConflictError("lost", table="a.b")
    return samples(meters.text().decode())


def test_what_is_measured_is_so(measured) -> None:
    assert measured["lakehouse_unmeasured"] == {
        (part,): 0 for part in ("dagster", "landing", "tables", "postgresql")
    }
    assert measured["lakehouse_dagster_runs"]["STARTED",] == 1
    assert measured["lakehouse_dagster_runs_ended_day"]["FAILURE",] == 1
    assert measured["lakehouse_dagster_heartbeat_seconds"]["SENSOR",] > 300
    assert measured["lakehouse_landing_files_waiting"]["clicks",] == 1
    assert measured["lakehouse_landing_lag_seconds"]["clicks",] > 0
    assert measured["lakehouse_table_rows"]["raw.clicks",] == 3
    for database in ("catalog", "dagster"):
        assert measured["lakehouse_postgresql_connections"][database,] >= 1
        assert measured["lakehouse_postgresql_bytes"][database,] > 1 << 20


@pytest.mark.parametrize("expression", [*PANELS, *ALERTS])
def test_its_metrics_and_labels_are_answered(expression: str, measured, rest) -> None:
    asked = {one for one in names(expression) - OF_PROMETHEUS if not one.startswith(SPARKS)}
    assert asked <= measured.values.keys() | rest.values.keys()
    assert labels(expression) <= measured.labels | rest.labels


def test_a_metric_that_is_not_there_is_found() -> None:
    text = 'sum by (le) (rate(a_b{c=~"x.*"}[5m])) / d_e > 1e6 and f:g'
    assert names(text) == {"a_b", "d_e", "f:g"}
    assert labels(text) == {("a_b", "c")}


def test_a_part_that_cannot_be_measured_is_named(tmp_path: Path) -> None:
    resource = LakehouseResource(catalog=str(tmp_path / "a"), landing=str(tmp_path / "nowhere"))
    module = SimpleNamespace(
        pipeline=Pipeline((CLICKS,), (), str(tmp_path)),
        defs=SimpleNamespace(resources={"lakehouse": resource}),
    )
    away = {"LAKEHOUSE_CATALOG": f"postgresql+psycopg://x@127.0.0.1:{free_port()}/x"}
    told = samples(generate_latest(registry(module, away)).decode())["lakehouse_unmeasured"]
    assert (told["landing",], told["postgresql",], told["tables",]) == (1, 1, 0)


def test_what_cannot_be_measured_hides_no_other(tmp_path: Path) -> None:
    """A table that is damaged, a source that nobody has delivered to, a database that is away."""
    lake = load_catalog(str(tmp_path / "warehouse"))
    for name in ("raw.one", "raw.two"):
        lake.create_table(name, pa.schema([("id", pa.int64())])).append(pa.table({"id": [1]}))
    (metadata,) = (tmp_path / "warehouse/raw/one/metadata").glob("v2.metadata.json")
    metadata.write_text("{")
    (tmp_path / "landing/clicks").mkdir(parents=True)
    (tmp_path / "landing/clicks/a.jsonl").write_text("{}\n")
    resource = LakehouseResource(
        catalog=str(tmp_path / "warehouse"), landing=str(tmp_path / "landing")
    )
    sources = (replace(CLICKS, name="views"), replace(CLICKS, pattern="*"))
    pipeline = Pipeline(sources, (), str(tmp_path / "landing"), others=("raw.one", "raw.two"))
    module = SimpleNamespace(
        pipeline=pipeline, defs=SimpleNamespace(resources={"lakehouse": resource})
    )
    told = samples(generate_latest(registry(module, {})).decode())
    assert told["lakehouse_table_rows"] == {("raw.two",): 1}
    assert told["lakehouse_landing_files_waiting"] == {("views",): 0, ("clicks",): 1}
    parts = told["lakehouse_unmeasured"]
    assert (parts["tables",], parts["landing",]) == (1, 0)


def test_only_postgresql_is_asked() -> None:
    assert databases({"LAKEHOUSE_CATALOG": "sqlite:///x"}) == {}
    (url,) = databases({"LAKEHOUSE_CATALOG": "postgresql+psycopg://u@h/d"}).values()
    assert isinstance(url, sa.URL)


def answer(url: str) -> str:
    """Of a server; nothing before it listens, and while it answers 404: pages are mounted last."""
    try:
        with urllib.request.urlopen(url, timeout=60) as page:  # noqa: S310
            return page.read().decode()
    except OSError:
        return ""


@pytest.mark.spark
@pytest.mark.slow
def test_sparks_metrics_are_answered(tmp_path: Path) -> None:
    """By a master and a worker as compose starts them, at the paths of prometheus.yml."""
    ports = [free_port() for _ in range(3)]
    start = [sys.executable, "-m", "deploy.spark"]
    master = ["master", "--host", "127.0.0.1", "--port", str(ports[0])]
    worker = ["worker", f"spark://127.0.0.1:{ports[0]}", "--host", "127.0.0.1", "--cores", "1"]
    worker += ["--memory", "1g", "--work-dir", str(tmp_path), "--webui-port", str(ports[2])]
    jobs = yaml.safe_load((WATCH / "prometheus.yml").read_text())["scrape_configs"]
    paths = {job["job_name"]: job.get("metrics_path") for job in jobs}
    told = set()
    with (
        reaped(subprocess.Popen([*start, *master, "--webui-port", str(ports[1])], cwd=ROOT)),
        reaped(subprocess.Popen([*start, *worker], cwd=ROOT)),
    ):
        for name, port in (("spark-master", ports[1]), ("spark-worker", ports[2])):
            page = f"http://127.0.0.1:{port}{paths[name]}"
            eventually(lambda page=page: answer(page).startswith(SPARKS))
            told |= set(re.findall(rf"^{SPARKS}\w+", answer(page), re.MULTILINE))
    asked = {name for text in (*PANELS, *ALERTS) for name in names(text) if name.startswith(SPARKS)}
    assert len(asked) >= 5
    assert asked <= told
