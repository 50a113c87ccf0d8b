"""Runs are containers of their own (deploy/engine.py): they outlive a deployment.

The launcher is Dagster's own. Containers are processes here, of `LoopbackEngine`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import docker
import pytest
import yaml

from deploy.engine import EngineServer, RefusedError, options, run_container
from tests.cluster.loopback import LoopbackEngine
from tests.cluster.ports import free_port
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
DEPLOYED = yaml.safe_load((ROOT / "deploy/dagster.yaml").read_text())
ENGINE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["engine"]
AT_ONCE = {"module": "dagster.core.run_coordinator", "class": "DefaultRunCoordinator"}
COMMAND = ["dagster", "api", "execute_run", "{}"]
SECRETS = {"PGPASSWORD": "one", "AWS_SECRET_ACCESS_KEY": "two", "PATH": "/usr/bin"}
JOB = """
import pathlib, time
import dagster as dg

here = pathlib.Path(__file__).parent

@dg.op
def waits():
    (here / "began").touch()
    while not (here / "go").exists():
        time.sleep(0.05)

@dg.job
def slow():
    waits()

defs = dg.Definitions(jobs=[slow])
"""


def given(socket: Path, port: int = 0):
    """The options that compose gives to the service."""
    *_, host = ("", "127.0.0.1")
    told = [str(one) for one in ENGINE["command"][4:]]
    assert ENGINE["command"][:4] == ["python", "-m", "deploy.engine", "/var/run/docker.sock"]
    told[told.index("--host") + 1], told[told.index("--port") + 1] = host, str(port)
    return options([str(socket), *told])


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineServer]:
    """The service, in front of an engine whose containers are processes."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with (
        LoopbackEngine(tmp_path / "docker.sock", {"PATH": path}, tmp_path),
        EngineServer(given(tmp_path / "docker.sock"), {"LAKEHOUSE_NAME": "a run's"}) as server,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def client(engine: EngineServer) -> docker.DockerClient:
    return docker.DockerClient(base_url=f"tcp://127.0.0.1:{engine.server_port}")


def test_a_run_gets_what_compose_says_and_the_settings_of_the_service(tmp_path: Path) -> None:
    asked = {"Image": "lakehouse:local", "Cmd": COMMAND, "Env": ["PGPASSWORD=mine"],
             "Labels": {"dagster/run_id": "7", "com.docker.compose.project": "x"},
             "HostConfig": {"NetworkMode": "host", "Privileged": False}}  # fmt: skip
    made = run_container(asked, given(tmp_path), SECRETS)
    assert made["Env"] == ["AWS_SECRET_ACCESS_KEY=two", "PGPASSWORD=one"]
    assert made["Labels"] == {"lakehouse.run": "1", "dagster/run_id": "7", "dagster/job_name": ""}
    host = made["HostConfig"]
    assert (host["NetworkMode"], host["CapDrop"], host["Memory"]) == ("lakehouse", ["ALL"], 3 << 30)
    assert [one.split(":", 1)[1] for one in host["Binds"]][-1] == "/opt/dagster/storage"


@pytest.mark.parametrize(
    "asked",
    [
        {"Cmd": ["sh", "-c", "id"]},
        {"Cmd": ["dagster", "api", "execute_run", "{}", "more"]},
        {"Cmd": "dagster api execute_run {}"},
        {"Image": "alpine"},
        {"HostConfig": {"Privileged": True}},
        {"HostConfig": {"Binds": ["/:/host"]}},
        {"HostConfig": {"Mounts": [{"Type": "bind"}]}},
        {"HostConfig": {"PidMode": "host"}},
    ],
)
def test_anything_else_is_refused(asked: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        run_container(
            {"Image": "lakehouse:local", "Cmd": COMMAND, **asked}, given(tmp_path), SECRETS
        )


def test_only_runs_are_seen_and_ended(engine: EngineServer, tmp_path: Path) -> None:
    """By Docker's own client: others' containers, images, volumes and commands are not there."""
    docked = client(engine)
    run = docked.containers.create("lakehouse:local", COMMAND, labels={"dagster/run_id": "1"})
    assert run.attrs["Config"]["Env"] == []  # secrets of the run
    others = docker.DockerClient(base_url=f"unix://{tmp_path}/docker.sock")
    foreign = others.containers.create("postgres:18", ["sleep", "60"], environment={"A": "1"})
    assert run.id != foreign.id
    for forbidden in (
        lambda: docked.containers.get(foreign.id),
        docked.containers.list,
        docked.images.list,
        docked.volumes.list,
        lambda: docked.api.exec_create(run.id, ["id"]),
        lambda: docked.api.put_archive(run.id, "/", b""),
        lambda: docked.containers.create("lakehouse:local", ["sh"]),
        run.remove,
    ):
        with pytest.raises(docker.errors.APIError) as caught:
            forbidden()
        assert caught.value.status_code == 403
    docked.close(), others.close()


def test_what_is_no_request_is_answered(engine: EngineServer) -> None:
    docked = client(engine).api
    for body in (b"[]", b"{", b'"x"'):
        url = f"http://127.0.0.1:{engine.server_port}/containers/create"
        assert docked.post(url, data=body).status_code == 400
    docked.close()


@contextmanager
def code_server(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """As compose runs it: a container, which ends with all that is in it."""
    command = ["dagster", "code-server", "start", "-h", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(
        [Path(sys.executable).with_name(command[0]), *command[1:], "-f", str(folder / "job.py")],
        env={**os.environ, "DAGSTER_HOME": str(folder), "DAGSTER_CURRENT_IMAGE": "lakehouse:local"},
        start_new_session=True,
    )
    try:
        health = [Path(sys.executable).with_name("dagster"), "api", "grpc-health-check"]
        eventually(lambda: subprocess.run([*health, "-p", str(port)]).returncode == 0)
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_a_run_outlives_its_code_server(
    engine: EngineServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new code server takes the place of the one that a run was launched from."""
    (tmp_path / "job.py").write_text(JOB)
    port = free_port()
    place = {"host": "127.0.0.1", "port": port, "location_name": "here"}
    settings = {
        "workspace": {"load_from": [{"grpc_server": place}]},
        "dagster": {"run_launcher": DEPLOYED["run_launcher"], "run_coordinator": AT_ONCE},
    }
    for name, value in settings.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(value))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{engine.server_port}")
    launch = ["dagster", "job", "launch", "-w", str(tmp_path / "workspace.yaml"), "-j", "slow"]
    with code_server(tmp_path, port):
        subprocess.run([Path(sys.executable).with_name(launch[0]), *launch[1:]], check=True)
        eventually((tmp_path / "began").exists)
    with code_server(tmp_path, port), dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        (run,) = instance.get_runs()
        assert instance.run_launcher.check_run_worker_health(run).status.name == "RUNNING"
        (tmp_path / "go").touch()
        eventually(lambda: instance.get_run_by_id(run.run_id).is_finished)
        assert instance.get_run_by_id(run.run_id).is_success


def test_a_run_can_be_ended_from_the_ui(engine: EngineServer, tmp_path: Path) -> None:
    """What `terminate` of the launcher asks for."""
    docked = client(engine)
    waits = ["dagster", "api", "execute_run", json.dumps({"no": "run"})]
    run = docked.containers.create("lakehouse:local", waits)
    run.start()
    run.stop(timeout=5)
    run.reload()
    assert run.status == "exited"
    docked.close()
