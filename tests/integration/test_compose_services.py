"""`make cluster` runs the compose file: each service, its command, settings and health check."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
import yaml

from deploy.spark import command, daemon_options
from tests.cluster.__main__ import env_names, first_start
from tests.cluster.compose_services import Loopback, services
from tests.cluster.ports import free_port, listens
from tests.waiting import eventually, reaped

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SECRETS = {name: f"secret of {name}" for name in env_names()}
FOLDERS = {"/opt/dagster": Path("/here/home"), "/data": Path("/here/data")}
FOUND, PLACE = services(COMPOSE, SECRETS, FOLDERS, count(50_001).__next__)


def told(service):
    """Everything that the process of a service is given."""
    return [*service.command, *service.health, *map(str, service.environment.values())]


def test_every_service_is_there_as_often_as_it_is_replicated_after_what_it_needs():
    names = [service.name for service in FOUND]
    assert sorted(names) == sorted(
        [
            "postgres", "s3", "bucket", "spark-master", "spark-worker-1", "spark-worker-2",
            "migrate", "engine", "code", "webserver", "daemon", "rest",
        ]
    )  # fmt: skip
    for number, service in enumerate(FOUND):
        kind = COMPOSE["services"][re.sub(r"-\d$", "", service.name)]
        before = {re.sub(r"-\d$", "", name) for name in names[:number]}
        assert set(kind.get("depends_on", ())) <= before, service.name
        assert len(service.command) == len(kind.get("command", ()))
        assert set(service.environment) == set(kind.get("environment", {}))
        assert service.is_one_shot == (kind["restart"] == "no")


@pytest.mark.parametrize("service", FOUND, ids=lambda service: service.name)
def test_nothing_of_the_containers_is_left(service):
    exposed = {str(port) for port in PLACE.ports}
    for text in told(service):
        assert not re.search(r"/opt/dagster|(^|=)/data|0\.0\.0\.0|\$\{", text), text
        assert not re.search(rf"\b({'|'.join(PLACE.hosts)}):\d", text), text
        assert not exposed & set(re.findall(r"\d{4}", text)), text


def test_services_that_talk_to_each_other_agree_on_the_port():
    by_name = {service.name: service for service in FOUND}
    run = by_name["engine"].environment
    for name, port, text in (
        ("postgres", 5432, run["LAKEHOUSE_CATALOG"]),
        ("postgres", 5432, run["DAGSTER_POSTGRES_PORT"]),
        ("s3", 7070, run["AWS_ENDPOINT_URL"]),
        ("engine", 2375, by_name["daemon"].environment["DOCKER_HOST"]),
        ("spark-master", 7077, run["LAKEHOUSE_SPARK_MASTER"]),
    ):
        assert str(by_name[name].ports[port]) in text
    assert run["DAGSTER_POSTGRES_HOST"] == "127.0.0.1"
    assert by_name["spark-worker-1"].ports[8081] != by_name["spark-worker-2"].ports[8081]
    workspace = yaml.safe_load((ROOT / "deploy/workspace.yaml").read_text())
    (server,) = (one["grpc_server"] for one in PLACE.translate(workspace)["load_from"])
    assert (server["host"], server["port"]) == ("127.0.0.1", by_name["code"].ports[4000])


def test_every_port_that_a_service_listens_on_is_exposed():
    for name, service in COMPOSE["services"].items():
        options = " ".join(map(str, service.get("command", ())))
        listens = set(re.findall(r"(?:-p|port) (?:0\.0\.0\.0:)?(\d{4})", options))
        listens |= {port.rpartition(":")[2] for port in service.get("ports", ())}
        assert listens <= set(service.get("expose", ())), name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3", "s3"),
        ({"S3_HOST": "s3", "name": "s3"}, {"S3_HOST": "127.0.0.1", "name": "s3"}),
        ("http://s3:7070/x", "http://127.0.0.1:50/x"),
        ("my-s3:7070", "my-s3:50"),
        ("17070", "17070"),
        ("0.0.0.0:7070", "127.0.0.1:50"),
        ("s3://lake/data", "s3://lake/data"),
        ("/data/landing", "/here/landing"),
        ("volume:/data/landing:ro", "volume:/here/landing:ro"),
        ("/database", "/database"),
        (7070, 50),
        (True, True),
        ({"a": ["s3:7070", 1]}, {"a": ["127.0.0.1:50", 1]}),
    ],
)
def test_what_is_translated_and_what_is_not(text, expected):
    place = Loopback(frozenset({"s3"}), {7070: 50}, {"/data": Path("/here")})
    assert place.translate(text) == expected


def test_a_daemon_of_spark_authenticates_where_it_has_a_secret():
    assert "authenticate" not in daemon_options({"SPARK_DAEMON_JAVA_OPTS": "-Da=b"})
    options = daemon_options({"_SPARK_AUTH_SECRET": "x", "SPARK_DAEMON_JAVA_OPTS": "-Da=b"})
    assert options.startswith("-Da=b ")
    assert options.endswith(" -Dspark.authenticate=true -Dspark.network.crypto.enabled=true")


def test_the_settings_of_a_database_are_those_that_psql_would_take():
    made = first_start({"CATALOG_DB_PASSWORD": "a'b", "DAGSTER_DB_PASSWORD": "c"})
    assert made[0] == "CREATE ROLE catalog LOGIN PASSWORD 'a''b'"
    assert made[3] == "CREATE ROLE dagster LOGIN PASSWORD 'c'"
    assert len(made) == 6


def test_a_daemon_of_spark_takes_sparks_own_options():
    call = command(["worker", "spark://m:7077", "--cores", "2"])
    assert call[1:] == [
        "org.apache.spark.deploy.worker.Worker", "spark://m:7077", "--cores", "2",
    ]  # fmt: skip
    usage = subprocess.run(
        [sys.executable, "-m", "deploy.spark", "slave"], capture_output=True, text=True, cwd=ROOT
    )
    assert usage.returncode == 1
    assert "worker MASTER_URL" in usage.stderr


@pytest.mark.spark
@pytest.mark.slow
def test_master_worker_and_driver_know_each_other_by_the_secret(tmp_path):
    """With the settings of compose, a driver computes on a cluster that asks for the secret."""
    ports = [free_port() for _ in range(3)]
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("SPARK_")},
        **COMPOSE["services"]["spark-master"]["environment"],
        "_SPARK_AUTH_SECRET": "told to nobody",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "LAKEHOUSE_SPARK_CONFIG": COMPOSE["services"]["engine"]["environment"][
            "LAKEHOUSE_SPARK_CONFIG"
        ],
    }
    url = f"spark://127.0.0.1:{ports[0]}"
    start = [sys.executable, "-m", "deploy.spark"]
    master = [*start, "master", "--port", str(ports[0]), "--webui-port", str(ports[1])]
    worker = [*start, "worker", url, "--webui-port", str(ports[2]), "--cores", "1"]
    worker += ["--memory", "1g", "--work-dir", str(tmp_path)]
    program = (
        "import sys; from lakehouse.spark.spark_session import build_session\n"
        "spark = build_session('x', master=sys.argv[1])\n"
        "print('sum', spark.sparkContext.parallelize(range(10), 1).sum())"
    )
    with (
        reaped(subprocess.Popen(master, cwd=ROOT, env=environment)),
        reaped(subprocess.Popen(worker, cwd=ROOT, env=environment)),
    ):
        eventually(lambda: listens(ports[0]) and listens(ports[2]))
        done = subprocess.run(
            [sys.executable, "-c", program, url],
            cwd=ROOT, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert "sum 45" in done.stdout, done.stderr[-3000:]


def test_the_rest_catalog_starts_on_the_interface_that_the_container_has(tmp_path):
    """On 0.0.0.0 it asks for principals, unless told otherwise; on loopback it does not."""
    given = [one.replace("8181", "0") for one in COMPOSE["services"]["rest"]["command"]]
    process = subprocess.Popen(
        [Path(sys.executable).with_name(given[0]), *given[1:]],
        env={"PATH": "/usr/bin:/bin", "LAKEHOUSE_CATALOG": str(tmp_path / "warehouse")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with reaped(process):
        assert "Iceberg REST" in process.stdout.readline()
