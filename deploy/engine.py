"""Starts the containers of Dagster's runs, and lets nobody do anything else to the engine.

`deploy.engine SOCKET --host ADDRESS --port N --image IMAGE --network NAME --memory BYTES`, and
`--bind WHAT:WHERE` for each folder.

The socket of a container engine is root on its host. This service alone has it, and answers of the
engine's API what Dagster's `DockerRunLauncher` asks: make a container for a run, start it, look at
it, stop it. What the container is, this service says: image, network, memory, folders, and the
settings of its own environment, so that who asks needs no secret of a run. Who asks says which run,
by the command `dagster api execute_run`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

LABEL = "lakehouse.run"
_SETTINGS = ("LAKEHOUSE_", "AWS_", "DAGSTER_", "PG", "_SPARK_")
_OF_RUNS = (["dagster", "api", "execute_run"], ["dagster", "api", "resume_run"])
_OF_DAGSTER = ("dagster/run_id", "dagster/job_name")
_KEPT = "24h"
_BODY_MAX = 1 << 20
_VERSION = r"(?:/v[\d.]+)?"
_PLAIN = re.compile(rf"{_VERSION}/(_ping|version)")
_CREATE = re.compile(rf"{_VERSION}/containers/create")
_ONE = re.compile(rf"{_VERSION}/containers/([A-Za-z0-9_.-]+)/(json|start|stop)(?:\?t=\d+)?")


class RefusedError(Exception):
    """A request that is not one for a run; the text says what is wrong."""


def run_container(
    asked: Mapping[str, Any], given: argparse.Namespace, environment: Mapping[str, str]
) -> dict[str, Any]:
    """The body of a request for a run's container.

    Args:
        asked: the caller's body, of which the command and the run's labels are taken.
        given: what each run's container is: image, network, memory, bind.
        environment: of this process; its settings are the run's.

    Raises:
        RefusedError: it is no run's, or says how the container is to be made.
    """
    command = asked.get("Cmd")
    if not isinstance(command, list) or command[:3] not in _OF_RUNS or len(command) != 4:
        raise RefusedError("only `dagster api execute_run` and `resume_run` are started")
    host = {key: one for key, one in (asked.get("HostConfig") or {}).items() if one}
    if asked.get("Image") != given.image or host.keys() - {"NetworkMode"}:
        raise RefusedError(
            "image, memory, folders and rights of a run are options of deploy.engine"
        )
    labels = asked.get("Labels") or {}
    settings = {key: one for key, one in environment.items() if key.startswith(_SETTINGS)}
    return {
        "Image": given.image,
        "Cmd": command,
        "Env": [f"{key}={value}" for key, value in sorted(settings.items())],
        "Labels": {LABEL: "1", **{one: str(labels.get(one, "")) for one in _OF_DAGSTER}},
        "HostConfig": {
            "NetworkMode": given.network,
            "Memory": given.memory,
            "Binds": given.bind,
            "Init": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true"],
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "2"}},
        },
    }


class UnixConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=120)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class EngineServer(ThreadingHTTPServer):
    """Serves what runs need of the engine.

    Args:
        given: the options of this module's command line.
        environment: of this process.
    """

    daemon_threads = True

    def __init__(self, given: argparse.Namespace, environment: Mapping[str, str]) -> None:
        super().__init__((given.host, given.port), _Handler)
        self.given, self.environment = given, environment

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """The engine's answer: its status, and its JSON or text."""
        connection = UnixConnection(self.given.socket)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
            kind = answer.getheader("Content-Type") or ""
            return answer.status, json.loads(text) if "json" in kind and text else text
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    server: EngineServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(*self._asked())

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - as http.server calls them

    def _asked(self) -> tuple[int, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        if length > _BODY_MAX:
            return 413, {"message": "the request is too large"}
        body = self.rfile.read(length)
        try:
            return self._forwarded(self.command, body)
        except RefusedError as error:
            return 403, {"message": str(error)}
        except (ValueError, AttributeError, TypeError):
            return 400, {"message": "the body is not what the engine's API asks for"}
        except OSError as error:
            return 502, {"message": f"the engine does not answer: {error}"}

    def _forwarded(self, method: str, body: bytes) -> tuple[int, Any]:
        ask = self.server.ask
        if method in ("GET", "HEAD") and _PLAIN.fullmatch(self.path):
            return ask("GET", self.path)
        if method == "POST" and _CREATE.fullmatch(self.path.partition("?")[0]):
            wanted = run_container(json.loads(body), self.server.given, self.server.environment)
            filters = quote(json.dumps({"label": [LABEL], "until": [_KEPT]}))
            ask("POST", f"/containers/prune?filters={filters}")
            return ask("POST", self.path.partition("?")[0], wanted)
        one = _ONE.fullmatch(self.path)
        if one is None or (method == "GET") != (one[2] == "json"):
            raise RefusedError(f"{method} {self.path} is not what a run needs")
        status, found = ask("GET", f"/containers/{one[1]}/json")
        if status != 200:
            return status, found
        if LABEL not in (found["Config"].get("Labels") or {}):
            raise RefusedError(f"container {one[1]} is not that of a run")
        found["Config"]["Env"] = []  # secrets
        return (status, found) if method == "GET" else ask(method, self.path)

    def _answer(self, status: int, value: Any) -> None:
        is_text = isinstance(value, str)
        body = value.encode() if is_text else json.dumps(value).encode()
        self.send_response(status)
        if status not in (204, 304):
            self.send_header("Content-Type", "text/plain" if is_text else "application/json")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status not in (204, 304) and self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        """A line for each request, but for health checks."""
        if "_ping" not in self.path:
            super().log_message(format, *args)


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line as an object."""
    parser = argparse.ArgumentParser(prog="deploy.engine")
    parser.add_argument("socket", help="of the container engine")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--memory", type=int, required=True, help="bytes of a run")
    parser.add_argument("--bind", action="append", default=[], help="WHAT:WHERE[:ro]")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    EngineServer(options(sys.argv[1:]), os.environ).serve_forever()
