"""The application behind HTTP: granian, in this process."""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import socket
import threading
import time
from types import TracebackType
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server
from uvloop import new_event_loop

from lakehouse.errors import InvalidInputError, StorageError

_READY_SECONDS = 20.0
_POLL_SECONDS = 0.02
_CONNECTIONS = 1024
_HEADERS_SECONDS = 30.0
_BUFFER_BYTES = 128 * 1024
"""Of a connection; headers may have as much."""


class HttpServer:
    """An ASGI application on an address, while the context lasts.

    Requests that are being answered when it ends are answered first.

    Args:
        app: the application.
        host: the interface.
        port: 0 takes one that is free.
        is_guarded: whether the application asks who is calling. One that does not is served to
            this machine alone.

    Attributes:
        url: where it answers.
    """

    def __init__(self, app: Any, host: str, port: int, *, is_guarded: bool = False) -> None:
        if not is_guarded and not _is_loopback(host):
            raise InvalidInputError(
                f"{host} can be reached from other machines, and nobody is asked who they are. "
                "Say with --principals who may do what, or listen on 127.0.0.1 behind a proxy "
                "that asks. With --insecure everybody who reaches it may do everything."
            )
        self._app, self._host = app, host
        self._port = port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="lakehouse-http", daemon=True)

    @property
    def url(self) -> str:
        """Where it answers, `http://host:port`."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    def __enter__(self) -> HttpServer:
        """Start it, and wait until it answers.

        Raises InvalidInputError: the address cannot be had.
        """
        self._port = _free_port(self._host, self._port)
        self._thread.start()
        until = time.monotonic() + _READY_SECONDS
        while not self._answers():
            if self._failure is not None or time.monotonic() > until:
                raise StorageError(f"The server at {self.url} did not start.") from self._failure
            time.sleep(_POLL_SECONDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._loop is not None and self._server is not None:
            self._loop.call_soon_threadsafe(self._server.stop)
        self._thread.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve())
        # told by `__enter__`, in the thread that wants to know
        except BaseException as error:  # noqa: BLE001
            self._failure = error

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = Server(
            self._app,
            address=self._host,
            port=self._port,
            interface=Interfaces.ASGINL,
            # of connections that may turn out to be HTTP/2 those that send nothing stay forever
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(
                header_read_timeout=int(_HEADERS_SECONDS * 1000), max_buffer_size=_BUFFER_BYTES
            ),
            backlog=_CONNECTIONS,
            backpressure=_connections(),
            websockets=False,
            log_enabled=False,
        )
        await self._server.serve()

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self._host, self._port), timeout=1):
                return True
        except OSError:
            return False


def _connections() -> int:
    """How many are served at a time, others wait: half of the files that may be open, at most."""
    return min(_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


def _is_loopback(host: str) -> bool:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidInputError(f"{host} is no address of this machine.") from error
    return all(ipaddress.ip_address(one[4][0]).is_loopback for one in found)


def _free_port(host: str, port: int) -> int:
    """The port, if nobody listens there: granian would share it with them."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except OSError as error:
        raise InvalidInputError(
            f"Nothing can listen at {host}:{port} ({error.strerror}). Choose another --host or "
            "--port."
        ) from error
