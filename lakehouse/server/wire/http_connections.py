"""Connections of clients: HTTP/1.1 as uvicorn speaks it, with bounds that it does not have."""

from __future__ import annotations

import asyncio
from collections.abc import Sized

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

HEADERS_BYTES_MAX = 128 * 1024
"""Of the headers of one request together, and its target."""
QUEUED_MAX = 64
"""Requests of one connection that wait for the answers to those before them."""
_REFUSED = b"%bconnection: close\r\ncontent-length: 0\r\n%b\r\n"
_RETRY = b"retry-after: 1\r\n"


class _Flow(FlowControl):
    """Reads no further requests while some wait that were read already.

    Args:
        transport: that is read.
        queued: what waits.
    """

    def __init__(self, transport: asyncio.Transport, queued: Sized) -> None:
        super().__init__(transport)
        self._queued = queued

    def resume_reading(self) -> None:
        """Read on, if nothing waits. Who waits for the rest of a body waits last."""
        if not self._queued:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """The connection of one client. Of one event loop.

    Args:
        config: of uvicorn.
        state: what all connections of a server share.
        connections_max: of a server; further ones get 503.
        loop: that it runs in.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        connections_max: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(config, state, {}, loop)
        self._connections_max = connections_max
        self._header_bytes = 0
        self._in_headers, self._is_upgrade, self._is_over = True, False, False
        self._waits_since = loop.time()

    def waits(self, seconds: float, *, for_body: bool = False) -> bool:
        """Whether the client is waited for so long.

        It owes (the rest of) its headers, or takes nothing of what it was answered; `for_body`:
        or it owes the rest of a body.
        """
        is_its_turn = (
            self._is_free
            or self.flow.write_paused
            or self.transport.is_closing()
            or (for_body and self.cycle.more_body)
        )
        return is_its_turn and self.loop.time() - self._waits_since > seconds

    @property
    def _is_free(self) -> bool:
        """Whether nothing is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a client, unless there are too many."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        if len(self.connections) > self._connections_max:
            self._refuse(503, _RETRY)

    def pause_writing(self) -> None:
        """The client has to take what it was sent; `waits` tells whether it does."""
        super().pause_writing()
        self._waits_since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Read on."""
        if self._is_over or self.transport.is_closing():
            return
        self._header_bytes += len(data)  # 0 again where headers or a part of a body end in it
        while data:
            try:
                self.parser.feed_data(data)
                data = b""
            except HttpParserUpgrade as upgrade:
                data = self._head_again() + data[upgrade.args[0] :]
            except HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
                return
        if self._header_bytes > HEADERS_BYTES_MAX:
            self._refuse(431)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of the request; fields behind a body are passed over, as they may be."""
        if self._in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Call the application, unless the client is to get no answer, or no more of them."""
        if len(self.pipeline) >= QUEUED_MAX or self.parser.get_method() == b"CONNECT":
            raise HttpParserError("Nobody sends so many requests, or asks for a tunnel.")
        self._is_upgrade = self.parser.should_upgrade()  # see `_head_again`
        if not self._is_upgrade:
            super().on_headers_complete()
        self._in_headers, self._header_bytes = False, 0

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        self._header_bytes = 0
        self._waits_since = self.loop.time()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The next request may come."""
        self._in_headers, self._header_bytes = True, 0
        if not self._is_upgrade:
            super().on_message_complete()
        self._is_upgrade = False

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP."""
        if not self._is_answering_others():
            super().send_400_response(msg)

    def on_response_complete(self) -> None:
        """The client may ask again; `waits` tells whether it does."""
        super().on_response_complete()
        self._unset_keepalive_if_required()
        self._waits_since = self.loop.time()

    def _head_again(self) -> bytes:
        """The head of a request without `Upgrade`, for a parser of its own (RFC 9110, 7.8).

        With it, the parser takes what comes next, which is the body, for another protocol.
        """
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
        return b"".join(lines) + b"\r\n"

    def _refuse(self, status: int, more: bytes = b"") -> None:
        if not self._is_answering_others():
            self.transport.write(_REFUSED % (STATUS_LINE[status], more))
            self.transport.close()

    def _is_answering_others(self) -> bool:
        """Whether what is refused came behind requests that are being answered.

        Then it gets no answer: a client would take that for another's. The connection closes once
        they are answered.
        """
        is_behind = self._in_headers or self.pipeline or self.cycle.response_started
        if self._is_free or not is_behind:
            return False
        self._is_over = True
        self.shutdown()
        self.flow.pause_reading()
        return True
