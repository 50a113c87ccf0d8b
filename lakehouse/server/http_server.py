"""The application behind HTTP, in a thread of this process."""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import socket
import sys
import threading
import time
from collections.abc import Sequence
from email.utils import formatdate
from types import TracebackType

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState
from uvloop import new_event_loop

from lakehouse.errors import InvalidInputError, StorageError
from lakehouse.server.wire.http_connections import Connection

_POLL_SECONDS = 0.02
_CONNECTIONS = 1024
_HEADERS_SECONDS = 30.0
_ENDING_SECONDS = 4.0  # containers are killed 10 s after they were asked to end


class HttpServer:
    """An application on an address, while the context lasts.

    Requests that are being answered when it ends are answered first. Clients that then neither
    send the rest of theirs nor take their answers are waited for 4 seconds.

    Args:
        app: the application.
        host: the interface.
        port: 0 takes one that is free.
        is_guarded: whether the application asks who is calling. One that does not is served to
            this machine alone.
        sockets: that listen already, the first of them at this port; empty: one is made.

    Attributes:
        url: where it answers.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        is_guarded: bool = False,
        sockets: Sequence[socket.socket] = (),
    ) -> None:
        if not is_guarded and not _is_loopback(host):
            raise InvalidInputError(
                f"{host} can be reached from other machines, and nobody is asked who they are. "
                "Say with --principals who may do what, or listen on 127.0.0.1 behind a proxy "
                "that asks. With --insecure everybody who reaches it may do everything."
            )
        self._app, self._host, self._port = app, host, port
        self._sockets = sockets
        self._state = ServerState()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()
        self._is_ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it answers, `http://host:port`."""
        return url_of(self._host, self._port)

    def __enter__(self) -> HttpServer:
        """Start it, and wait until it answers.

        Raises InvalidInputError: the address cannot be had.
        """
        sockets = self._sockets or listening(self._host, self._port, 1)
        self._port = int(sockets[0].getsockname()[1])
        self._thread = threading.Thread(
            target=self._run, args=(sockets,), name="lakehouse-http", daemon=True
        )
        self._thread.start()
        self._is_ready.wait()
        if self._failure is not None:
            raise StorageError(f"The server at {self.url} did not start.") from self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join()

    def _run(self, sockets: Sequence[socket.socket]) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve(sockets))
        # `__enter__` raises it, in the thread that wants to know
        except BaseException as error:  # noqa: BLE001
            self._failure = error
        finally:
            for listener in sockets:
                listener.close()
            self._is_ready.set()

    async def _serve(self, sockets: Sequence[socket.socket]) -> None:
        self._loop = loop = asyncio.get_running_loop()
        config = Config(
            self._app,
            interface="asgi3",
            http=HttpToolsProtocol,
            ws="none",
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_config=None,
            log_level="critical",
        )
        config.load()
        most = _connections()
        servers = [
            await loop.create_server(
                lambda: Connection(config, self._state, most, loop),
                sock=listener,
                backlog=most,
            )
            for listener in sockets
        ]
        looking = loop.create_task(self._look_after())
        self._is_ready.set()
        await self._ending.wait()
        for server in servers:
            server.close()
        while self._state.connections or self._state.tasks:
            for connection in self._open():  # those, too, that were just being taken
                connection.shutdown()
            await asyncio.sleep(_POLL_SECONDS)
        looking.cancel()

    async def _look_after(self) -> None:
        """Hang up on those who send or take nothing, and tell the time."""
        while True:
            date = formatdate(time.time(), usegmt=True).encode()
            self._state.default_headers = [(b"date", date)]
            is_ending = self._ending.is_set()
            patience = min(_HEADERS_SECONDS, _ENDING_SECONDS) if is_ending else _HEADERS_SECONDS
            for connection in self._open():
                if connection.waits(patience, for_body=is_ending):
                    connection.transport.abort()
            await asyncio.sleep(min(1.0, patience / 4))

    def _open(self) -> list[Connection]:
        return [
            connection
            for connection in self._state.connections
            if isinstance(connection, Connection)
        ]


def _connections() -> int:
    """How many are served at a time: half of the files that may be open, at most."""
    return min(_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


def url_of(host: str, port: int) -> str:
    """The address of a server."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidInputError(f"{host} is no address of this machine.") from error
    return all(ipaddress.ip_address(address[4][0]).is_loopback for address in addresses)


def listening(host: str, port: int, processes: int) -> list[socket.socket]:
    """A socket that listens there for each process.

    Linux gives connections to each of them in equal parts. Elsewhere all have the same one.

    Raises InvalidInputError: nothing can listen there.
    """
    first = _listening(host, port)
    if processes == 1:
        return [first]
    if not sys.platform.startswith("linux"):
        return [first, *(first.dup() for _ in range(1, processes))]
    port = int(first.getsockname()[1])
    first.close()  # the port was free: the listeners that follow share it
    listeners: list[socket.socket] = []
    try:
        for _ in range(processes):
            listeners.append(_listening(host, port, shares=True))  # noqa: PERF401 - see below
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _listening(host: str, port: int, *, shares: bool = False) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family)
    except OSError as error:
        raise _taken(host, port, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(_connections())
    except OSError as error:
        listener.close()
        raise _taken(host, port, error) from error
    return listener


def _taken(host: str, port: int, error: OSError) -> InvalidInputError:
    return InvalidInputError(
        f"Nothing can listen at {host}:{port} ({error.strerror}). Choose another --host or --port."
    )
