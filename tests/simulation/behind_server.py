"""Our client and our server as they are, without sockets: a network that loses and repeats."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING
from unittest import mock
from urllib.parse import parse_qsl, unquote, urlsplit

from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter
from requests.exceptions import ConnectionError as NoConnectionError
from requests.exceptions import ReadTimeout
from starlette.routing import compile_path
from urllib3.exceptions import NewConnectionError

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.catalog.rest.rest_catalog import RestCatalog
from lakehouse.lake import Lakehouse
from lakehouse.rest import http_client
from lakehouse.server import rest_app
from lakehouse.server.error_answers import error_answer
from lakehouse.server.http_messages import Answer, Call
from lakehouse.server.repeated_requests import RepeatedRequests
from lakehouse.server.rest_operation import Operation, Served
from tests.simulation.scheduler import Killed, Process
from tests.simulation.served import LATE, REPEATED

if TYPE_CHECKING:
    from tests.simulation.world import World

SERVERS = 2
"""Of one catalog: what one of them remembers the other does not know."""


class ServerProcess:
    """A server as the world sees it: it answers in one go, and may be killed at each call."""

    name = "srv"
    dead = False

    def pause(self) -> None:
        pass

    def is_running(self) -> bool:
        return True


class Server:
    """What one process of `lakehouse serve` does with a request, without the web framework."""

    def __init__(self, world: World) -> None:
        self.process = ServerProcess()
        catalog: Catalog = world.catalog(self.process)
        self._served = Served.of(Lakehouse(catalog, world.environment(self.process)))
        self._repeated = RepeatedRequests()
        operations = rest_app.operations_of(catalog)
        config = Operation("GET", "/config", rest_app._configuration(operations, {}))
        self._routes = [
            (one, *compile_path(f"{one.root}{one.path}")[::2]) for one in (*operations, config)
        ]

    def answer(self, request: PreparedRequest) -> Answer:
        parts = urlsplit(request.url or "")
        for operation, pattern, _ in self._routes:
            found = pattern.match(unquote(parts.path))
            if found is None or operation.method != request.method:
                continue
            headers = {name.lower(): value for name, value in request.headers.items()}
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            body = request.body or b""
            call = Call(found.groupdict(), query, headers, body)  # type: ignore[arg-type]
            try:
                return self._repeated.answer(operation, self._served, call)
            except Exception as error:  # noqa: BLE001 - as the server answers every error
                return error_answer(error, changes=operation.changes)
        raise AssertionError(f"{request.method} {parts.path} is no operation")


class Network(BaseAdapter):
    """Between all clients and the servers; the host of a URL names the client."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def close(self) -> None:
        pass

    def send(self, request: PreparedRequest, **_options: object) -> Response:  # type: ignore[override]
        world = self._world
        process = world.clients[urlsplit(request.url or "").hostname or ""]
        path = f"{request.method} {urlsplit(request.url or '').path}"
        if request.method in ("GET", "HEAD"):
            if world.fault(process, "load", path) is not None:
                raise ReadTimeout("injected: no answer")
            return _response(request, self._asked(request))
        fault = world.fault(process, "serve", path)
        if fault in ("refused", "full"):
            raise NoConnectionError(NewConnectionError(None, "injected"))  # type: ignore[arg-type]
        if fault in ("delayed", LATE):
            world.later(lambda: self._served(request))
        if fault == LATE:
            return _response(request, Answer(504))
        if fault in ("delayed", "timeout"):
            raise ReadTimeout("injected: no answer")
        answer = self._asked(request)
        if fault == REPEATED:
            answer = self._asked(request)
        if fault in ("lost reply", "torn"):
            raise ReadTimeout("injected: lost reply")
        return _response(request, answer)

    def _asked(self, request: PreparedRequest) -> Answer:
        answer = self._served(request)
        if answer is None:
            raise NoConnectionError("injected: the server is gone")
        return answer

    def _served(self, request: PreparedRequest) -> Answer | None:
        """None: the server was killed meanwhile."""
        world = self._world
        number = world.rng.randrange(SERVERS)
        try:
            server = world.servers.get(number) or Server(world)
            world.servers[number] = server
            return server.answer(request)
        except Killed:
            world.servers.pop(number, None)
            if world.outage:
                raise
            return None


def client(world: World, process: Process) -> RestCatalog:
    """The catalog as a process reaches it."""
    host = f"{process.name}.simulated"
    world.clients[host] = process
    properties = {
        "rest-metrics-reporting-enabled": "false",
        "snapshot-loading-mode": world.rng.choice(["all", "refs"]),
        "append-mode": world.rng.choice(["own-snapshot", "commit"]),
    }
    return RestCatalog(
        f"http://{host}",
        None,
        properties=properties,
        environment=world.environment(process),
        storage_factory=lambda _location, _properties: world.storage_of(process),
    )


def without_sockets(world: World) -> AbstractContextManager[object]:
    """What connects our client to the servers of a world."""
    return mock.patch.object(http_client, "HTTPAdapter", return_value=Network(world))


def _response(request: PreparedRequest, answer: Answer) -> Response:
    made = Response()
    made.status_code, made._content = answer.status, answer.body
    made.headers.update(answer.headers)
    made.url, made.request = request.url or "", request
    return made
