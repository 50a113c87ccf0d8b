"""docker-compose.yml is valid, complete and holds no secret.

(No container engine is needed: the schema and the files are.)
"""

from __future__ import annotations

import re
import subprocess
import sys
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
