"""Connections of clients: HTTP/1.1 as uvicorn speaks it, bounded, and quick with what is in memory.

Most requests of a catalog ask for a table that is in memory already. They are answered where their
headers are read: without a task, a route and a thread they take a third of the processor's time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from lakehouse.server.http_messages import Answer

HEADERS_BYTES_MAX = 128 * 1024
"""Of the headers of one request together, and its target."""
_REFUSED = b"%bconnection: close\r\ncontent-length: 0\r\n%b\r\n"
_RETRY = b"retry-after: 1\r\n"

Message = MutableMapping[str, Any]


class App(Protocol):
    """An ASGI application that may know an answer without waiting."""

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Answer a request."""

    def at_once(self, target: bytes, headers: list[tuple[bytes, bytes]]) -> Answer | None:
        """The answer to a GET without a body; None where the application has to be called.

        Args:
            target: path and query as they were sent.
            headers: names in lower case.
        """


class Connection(HttpToolsProtocol):
    """The connection of one client. Of one event loop.

    Args:
        config: of uvicorn.
        state: what all connections of a server share.
        app: answers what is asked.
        connections_max: of a server; who comes when there are more is told 503.
        loop: that it runs in.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        app: App,
        connections_max: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(config, state, {}, loop)
        self._app, self._connections_max = app, connections_max
        self._header_bytes = 0
        self._in_headers, self._was_answered = True, False
        self._waits_since = loop.time()

    def waits(self, seconds: float) -> bool:
        """Whether the client has been asked for (the rest of) its headers for so long."""
        return self._is_free and self.loop.time() - self._waits_since > seconds

    @property
    def _is_free(self) -> bool:
        """Whether nothing is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a client, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._connections_max:
            self._refuse(503, _RETRY)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        if self.transport.is_closing():
            return
        self._header_bytes += len(data)  # 0 again where headers or a body end in it
        super().data_received(data)
        if not self._in_headers:
            self._header_bytes = 0
        elif self._header_bytes > HEADERS_BYTES_MAX:
            self._refuse(431)

    def on_headers_complete(self) -> None:
        """Answer at once what can be, else call the application."""
        self._in_headers, self._header_bytes = False, 0
        answer = self._at_once() if self._is_free and not self.pipeline else None
        if answer is None:
            super().on_headers_complete()
            return
        self._was_answered = True
        self._waits_since = self.loop.time()
        self.transport.writelines([self._head(answer), answer.body])

    def on_message_complete(self) -> None:
        """The next request may come."""
        self._in_headers, self._header_bytes = True, 0
        if self._was_answered:
            self._was_answered = False
            return
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The client may ask again; `waits` tells whether it does."""
        super().on_response_complete()
        self._unset_keepalive_if_required()
        self._waits_since = self.loop.time()

    def _at_once(self) -> Answer | None:
        parser = self.parser
        if (
            parser.get_method() != b"GET"
            or parser.should_upgrade()
            or not parser.should_keep_alive()
            or parser.get_http_version() != "1.1"
            or self.flow.write_paused
        ):
            return None
        return self._app.at_once(self.url, self.headers)

    def _head(self, answer: Answer) -> bytes:
        lines = [STATUS_LINE[answer.status]]
        lines += [b"%b: %b\r\n" % one for one in self.server_state.default_headers]
        told = answer.headers.items()
        lines += [f"{name}: {value}\r\n".encode("latin-1") for name, value in told]
        if answer.body:
            kind = answer.content_type.encode("latin-1")
            lines.append(b"content-type: %b\r\ncontent-length: %d\r\n" % (kind, len(answer.body)))
        return b"".join(lines) + b"\r\n"

    def _refuse(self, status: int, more: bytes = b"") -> None:
        self.transport.write(_REFUSED % (STATUS_LINE[status], more))
        self.transport.close()
