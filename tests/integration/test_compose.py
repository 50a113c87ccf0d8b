"""docker-compose.yml is valid, complete and holds no secret.

(No container engine is needed: the schema and the files are.)
"""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"
SERVICES = yaml.safe_load(COMPOSE.read_text())["services"]


def test_matches_the_compose_specification():
    check = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(COMPOSE),
    ]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_check_can_fail(tmp_path):
    bad = tmp_path / "docker-compose.yml"
    bad.write_text(
        COMPOSE.read_text().replace("restart: unless-stopped", "restart: [unless-stopped]", 1)
    )
    check = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(bad),
    ]
    assert subprocess.run(check, capture_output=True).returncode != 0


def test_every_long_running_service_has_a_health_check():
    one_shot = {name for name, service in SERVICES.items() if service.get("restart") == "no"}
    assert one_shot == {"bucket", "migrate"}
    assert {name for name, service in SERVICES.items() if "healthcheck" not in service} == one_shot


def test_secrets_come_from_the_environment():
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|SECRET|ACCESS_KEY", key):
                assert re.fullmatch(r"\$\{\w+:\?.+\}", value), f"{name}.{key} holds a literal"
    assert not re.search(r"://[^\s/@]+:[^\s/@]+@", COMPOSE.read_text()), (
        "a URL with a password in it"
    )


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_what_is_mounted_or_built_or_waited_for_exists(service):
    definition = SERVICES[service]
    for volume in definition.get("volumes", []):
        source = volume.split(":")[0]
        assert not source.startswith("./") or (ROOT / source).is_file(), volume
    if "build" in definition:
        assert (ROOT / definition["build"]["dockerfile"]).is_file()
    for dependency, condition in definition.get("depends_on", {}).items():
        wanted = condition["condition"]
        assert wanted != "service_healthy" or "healthcheck" in SERVICES[dependency]
        assert wanted != "service_completed_successfully" or SERVICES[dependency]["restart"] == "no"


def test_each_service_has_the_secrets_that_it_needs_and_no_others():
    asked = {
        name: set(re.findall(r"\$\{(\w+):\?", str(service.get("environment", {}))))
        for name, service in SERVICES.items()
    }
    store = {"S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"}
    assert asked == {
        "postgres": {"POSTGRES_PASSWORD", "CATALOG_DB_PASSWORD", "DAGSTER_DB_PASSWORD"},
        "s3": store,
        "bucket": store,
        "spark-master": {"SPARK_SECRET"},
        "spark-worker": {"SPARK_SECRET", *store},
        "migrate": {"DAGSTER_DB_PASSWORD"},
        # the secrets of runs, which it hands to them and to nobody else
        "engine": {"DAGSTER_DB_PASSWORD", "CATALOG_DB_PASSWORD", "SPARK_SECRET", *store},
        "webserver": {"DAGSTER_DB_PASSWORD"},
        "daemon": {"DAGSTER_DB_PASSWORD"},
        "code": {"DAGSTER_DB_PASSWORD", "CATALOG_DB_PASSWORD", *store},
        "rest": {"CATALOG_DB_PASSWORD", *store},
        "metrics": {"DAGSTER_DB_PASSWORD", "CATALOG_DB_PASSWORD", *store},
        "prometheus": set(),
        "grafana": {"GRAFANA_PASSWORD"},
    }
    told = re.findall(r"^(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert {name for name, _ in told} == set().union(*asked.values())
    assert {value for _, value in told} == {""}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_has_bounds_of_memory_and_logs_and_no_rights(name):
    service = SERVICES[name]
    assert service["mem_limit"]
    assert service["logging"]["options"]["max-size"]
    assert "no-new-privileges:true" in service["security_opt"]
    # PostgreSQL's image begins as root, to give its folder to its user
    assert (service.get("cap_drop") == ["ALL"]) == (name != "postgres")
    assert name not in ("postgres", "daemon") or service["stop_grace_period"]


def test_one_service_reaches_the_container_engine_and_those_who_launch_runs_reach_it():
    """Its socket is root on the host; its port is on a network of its own."""
    socket = [n for n, one in SERVICES.items() if "docker.sock" in str(one.get("volumes"))]
    beside = {n for n, one in SERVICES.items() if "engine" in one.get("networks", ())}
    launchers = {n for n, one in SERVICES.items() if "DOCKER_HOST" in one.get("environment", {})}
    assert (socket, beside) == (["engine"], launchers | {"engine"})
    assert launchers == {"webserver", "daemon"}
    engine = SERVICES["engine"]
    assert engine["networks"] == ["engine"]
    assert not engine.get("ports")
    assert engine["read_only"]


def test_a_run_has_the_image_network_and_folders_of_compose():
    """The engine knows them by names of its own."""
    whole, command = yaml.safe_load(COMPOSE.read_text()), SERVICES["engine"]["command"]
    told = dict(pairwise(command))
    assert told["--image"] == SERVICES["code"]["image"]
    assert told["--network"] == whole["networks"]["lakehouse"]["name"]
    binds = [one for option, one in pairwise(command) if option == "--bind"]
    named = {f"{volume['name']}:" for volume in whole["volumes"].values() if volume.get("name")}
    assert {
        mount.replace("${LANDING_FOLDER:-", "").replace("}", "").split("/")[0] for mount in binds
    } == named
    for name, (volume,) in (
        ("code", SERVICES["code"]["volumes"]),
        ("daemon", SERVICES["daemon"]["volumes"]),
    ):
        where = volume.split(":", 1)[1].split("}:")[-1]
        assert any(mount.endswith(where) for mount in binds), name


def test_a_line_of_python_installs_nothing_again():
    """What takes minutes stands before the project's own files are copied."""
    lines = [
        line
        for line in (ROOT / "deploy/Dockerfile").read_text().replace("\\\n", " ").splitlines()
        if not line.startswith("#")
    ]
    first = next(n for n, line in enumerate(lines) if line.startswith("COPY lakehouse"))
    for slow in ("apt-get", "--no-install-project", "pyspark/jars", "versitygw /usr"):
        assert any(slow in line for line in lines[:first]), slow
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert ignored[0] == "*"  # what is not named stays outside
    copied = [line.split()[1:-1] for line in lines if re.match(r"COPY (?!--from)", line)]
    assert {one.split("/")[0] for some in copied for one in some} == {
        one[1:].split("/")[0] for one in ignored if one.startswith("!")
    }


def test_ports_are_published_on_loopback_only():
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_what_the_image_copies_exists():
    copied = re.findall(
        r"^COPY (?!--from)(.+)$", (ROOT / "deploy/Dockerfile").read_text(), flags=re.MULTILINE
    )
    sources = [source for line in copied for source in line.split()[:-1]]
    assert len(sources) > 5
    assert [source for source in sources if not (ROOT / source).exists()] == []
