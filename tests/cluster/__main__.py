"""What docker-compose.yml ships, as processes of this machine, run for real and killed.

`python -m tests.cluster [--calm] [--days N]`: the services start with the commands, settings and
health checks of the compose file (without a container engine); files land; the sensors do the rest.
Then a Spark worker, the code server, the daemon, PostgreSQL and the S3 server are killed, each
while a run is under way, and come back after some seconds. In the end every landed line is
accounted for, each derived table is computed again from the snapshots that it was made of, and the
REST catalog shows the same rows. The exit code is 0 if nothing was lost.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
import yaml
from psycopg import sql
from rich.console import Console

from tests.cluster.compose_services import Loopback, Service, services
from tests.cluster.loopback import LoopbackEngine, LoopbackPostgres
from tests.cluster.ports import free_port, listens
from tests.cluster.rounds import Rounds
from tests.cluster.supervisor import Supervisor
from tests.servers import MOTO

ROOT = Path(__file__).resolve().parents[2]
VICTIMS = ("spark-worker-1", "code", "daemon", "postgres", "s3")
_OURS = ("LAKEHOUSE_", "AWS_", "DAGSTER_", "PG", "SPARK_")


def main(arguments: list[str]) -> int:
    """Run it all; 0: nothing was lost."""
    parser = argparse.ArgumentParser(prog="make cluster")
    parser.add_argument("--calm", action="store_true", help="kill nothing")
    parser.add_argument("--days", type=int, default=2, help="days of flights that land a round")
    given = parser.parse_args(arguments)
    console = Console(soft_wrap=True)
    folder = Path(tempfile.mkdtemp(prefix="lakehouse-cluster-"))
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[{time.monotonic() - began:4.0f} s] {text}", markup=False, highlight=False)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no process is left
    say(f"everything is kept in {folder}: logs, tables, Dagster's home")
    cluster = Cluster(folder, say)
    with cluster.running() as supervisor:
        rounds = Rounds(supervisor, say, given.days)
        rounds.run(None)
        for victim in () if given.calm else cluster.victims:
            rounds.run(victim)
        lost = rounds.verdict(f"http://127.0.0.1:{cluster.place.ports[8181]}")
    console.print(rounds.shown())
    for problem in lost:
        console.print(f"LOST: {problem}", style="bold red", markup=False)
    if lost:
        return 1
    console.print(f"Nothing was lost, in {time.monotonic() - began:.0f} s.", style="bold green")
    shutil.rmtree(folder)
    return 0


def env_names() -> list[str]:
    """The secrets that `.env.example` asks for."""
    return re.findall(r"^(\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)


def first_start(environment: Mapping[str, str]) -> list[str]:
    """The statements of deploy/create-databases.sql, with what psql takes from the environment."""
    file = (ROOT / "deploy/create-databases.sql").read_text()
    text = re.sub(r"^(--|\\).*\n", "", file, flags=re.MULTILINE)
    for name, variable in re.findall(r"^\\getenv (\w+) (\w+)$", file, re.MULTILINE):
        text = text.replace(f":'{name}'", sql.quote(environment[variable]))
    return [statement for statement in text.split(";\n") if statement]


class Cluster:
    """The services of the compose file on this machine.

    Args:
        folder: of everything that they keep.
        say: told what happens.

    Attributes:
        place: where the services are.
        victims: those that are killed.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        given = {name: secrets.token_hex(16) for name in env_names()}
        self._home = folder / "dagster"
        for one in (self._home, folder / "logs", folder / "data/s3", folder / "data/landing"):
            one.mkdir(parents=True)
        compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
        folders = {"/opt/dagster": self._home, "/data": folder / "data", "/var/run": folder}
        self._services: list[Service]
        self.place: Loopback
        self._services, self.place = services(compose, given, folders, free_port)
        self._database = LoopbackPostgres(folder / "postgres", self.place.ports[5432])
        search = f"{ROOT / '.tools/bin'}:{os.environ['PATH']}"
        self._has_s3 = shutil.which("versitygw", path=search) is not None
        self.victims = VICTIMS if self._has_s3 else VICTIMS[:-1]

    @contextmanager
    def running(self) -> Iterator[Supervisor]:
        """All services run inside the block; this process has the settings of a run."""
        for name in ("dagster.yaml", "workspace.yaml"):
            told = yaml.safe_load((ROOT / "deploy" / name).read_text())
            (self._home / name).write_text(yaml.safe_dump(self.place.translate(told)))
        environment = self._environment()
        commands, ready = {"postgres": self._database.command}, {}
        ready["postgres"] = self._database.is_ready
        if not self._has_s3:
            self._say("versitygw is not there: moto instead, in memory, which is not killed")
            port = self.place.ports[7070]
            commands["s3"] = [sys.executable, "-c", MOTO, str(port)]
            ready["s3"] = lambda: listens(port)
        logs = self._folder / "logs"
        with (
            LoopbackEngine(self._folder / "docker.sock", environment, logs),
            Supervisor(
                environment,
                logs,
                self._say,
                commands=commands,
                users={"postgres": self._database.user},
                ready=ready,
            ) as supervisor,
        ):
            for service in self._services:
                supervisor.start(service)
                if service.name == "postgres":
                    self._create_databases(service)
                if service.name == "engine":  # it has the settings of runs
                    for name in set(os.environ) - set(environment):
                        del os.environ[name]
                    os.environ.update({**environment, **service.environment})
            yield supervisor

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        jars = ROOT / ".tools/jars"
        if jars.is_dir():
            self._say(f"Hadoop's s3a comes from {jars}")
            kept["SPARK_DIST_CLASSPATH"] = f"{jars}/*"
        else:
            self._say("Hadoop's s3a is not there (`make cluster-jars`): Python workers read S3")
        return kept | {
            "PATH": f"{Path(sys.executable).parent}:{ROOT / '.tools/bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        }

    def _create_databases(self, service: Service) -> None:
        """What the image does at its first start."""
        with psycopg.connect(self._database.dsn("postgres"), autocommit=True) as connection:
            for statement in first_start(service.environment):
                connection.execute(statement)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
