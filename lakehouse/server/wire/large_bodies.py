"""Bodies of requests and answers: what they take together, and how long clients may take."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from io import BytesIO

from anyio import move_on_after
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lakehouse.server.error_answers import HttpError

SMALL_BYTES = 64 * 1024
"""A body of so many bytes waits for no other."""
PATIENCE_SECONDS = 30.0
"""How long a client may send nothing, or take nothing of an answer."""
_VALUE_BYTES = 80
"""What a value takes, at most, once JSON is read: an empty object, and what holds it."""
_TURN_SECONDS = 20.0
"""How long a body waits for others to go."""
_SLOWEST_BYTES = 64 * 1024
"""Of a body in a second, once its first `PATIENCE_SECONDS` are over."""
PART_BYTES = 256 * 1024
"""Of a large answer: sent once the client took the one before."""
_DIGITS_MAX = 20


class SharedBytes:
    """So many bytes for all together. A request that needs more than are left waits, in turn.

    Of one event loop. A request that has a part waits for no other of the same.

    Args:
        bytes_max: for all.

    Attributes:
        bytes_max: see above.
        left: bytes that are free.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = self.left = bytes_max
        self._turn = asyncio.Lock()
        self._given_back = asyncio.Event()

    @asynccontextmanager
    async def part(self, size: int) -> AsyncIterator[None]:
        """Have so many of the bytes, at most all, while the context lasts.

        Raises HttpError, 503, where others do not give them back in time.
        """
        with move_on_after(_TURN_SECONDS) as waiting:
            async with self._turn:
                while self.left < size:
                    self._given_back.clear()
                    await self._given_back.wait()
                self.left -= size
        if waiting.cancelled_caught:
            raise HttpError(
                503,
                "ServiceUnavailableException",
                "The server is busy with other large requests. Nothing was done; try again.",
            )
        try:
            yield
        finally:
            self.left += size
            self._given_back.set()


class RequestBodies:
    """Reads bodies, as many at a time as there is memory for.

    Args:
        bytes_max: of bodies larger than `SMALL_BYTES`, all requests together; what their JSON
            is read into may take twice that.

    Attributes:
        together: what bodies have of the memory.
    """

    def __init__(self, bytes_max: int) -> None:
        self.together = SharedBytes(bytes_max)
        self._read = SharedBytes(2 * bytes_max)

    @asynccontextmanager
    async def body(self, request: Request, bytes_max: int) -> AsyncIterator[bytes]:
        """The body, whose memory others have once the context ends.

        Args:
            request: whose.
            bytes_max: of this one.

        Raises:
            HttpError: 413, the body is too large; 408, it comes too slowly; 503, others take the
                memory.
            ClientDisconnect: the client left.
        """
        if request.method in ("GET", "HEAD"):
            yield b""
            return
        # small ones are read whatever there is
        most = min(bytes_max, max(self.together.bytes_max, SMALL_BYTES))
        length = request.headers.get("content-length", "")
        if len(length) >= _DIGITS_MAX or (length.isdecimal() and int(length) > most):
            raise _too_large(f"more than {most} bytes")
        async with AsyncExitStack() as parts:
            stream, received = request.stream(), BytesIO()
            if length.isdecimal():
                size = int(length)
            else:  # it does not say how large it is: it may become as large as any
                size = most if await _read_on(stream, received, SMALL_BYTES, most) else 0
            if size > SMALL_BYTES:
                await parts.enter_async_context(self.together.part(size))
            await _read_on(stream, received, most, most)
            body = received.getvalue()
            if len(body) > SMALL_BYTES:
                await parts.enter_async_context(self._read.part(self._size_as_values(body)))
            yield body

    def _size_as_values(self, body: bytes) -> int:
        """What it may take once its JSON is read. Raises HttpError, 413, where that is too much."""
        size = _VALUE_BYTES * sum(body.count(mark) for mark in (b",", b"[", b"{", b":"))
        if size > self._read.bytes_max:
            raise _too_large(f"more than {self._read.bytes_max // _VALUE_BYTES} values")
        return size


class LargeAnswers:
    """Answers that clients have not taken yet.

    Args:
        bytes_max: of them, all together, unless there is one alone. One body that several are sent
            counts once.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._held = bytes_max, 0
        self._sent: Counter[int] = Counter()

    def check(self, body: bytes) -> None:
        """Raise HttpError, 503, where others have left no memory to send it."""
        more = 0 if id(body) in self._sent or len(body) <= PART_BYTES else len(body)
        if more and self._held and self._held + more > self._bytes_max:
            raise HttpError(
                503,
                "ServiceUnavailableException",
                "The server waits for others to take large answers. Try again.",
            )

    async def send(self, body: bytes, send: Send) -> None:
        """Send it in parts. Raises TimeoutError where the client takes them too slowly."""
        self._held += 0 if id(body) in self._sent else len(body)
        self._sent[id(body)] += 1
        try:
            async with asyncio.timeout(PATIENCE_SECONDS) as waiting:
                for begin in range(0, len(body), PART_BYTES):
                    part = body[begin : begin + PART_BYTES]
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                    _extend(waiting, PART_BYTES)
                await send({"type": "http.response.body", "body": b""})
        finally:
            self._sent[id(body)] -= 1
            if not self._sent[id(body)]:
                del self._sent[id(body)]
                self._held -= len(body)

    def response(self, body: bytes, status: int, headers: dict[str, str]) -> Response:
        """The response that sends it."""
        if len(body) <= PART_BYTES:
            return Response(body, status, headers)
        return _InParts(self, body, status, headers)


class _InParts(Response):
    def __init__(
        self, answers: LargeAnswers, body: bytes, status: int, headers: dict[str, str]
    ) -> None:
        super().__init__(body, status, headers)
        self._answers = answers

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        begin = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **begin})
        await self._answers.send(bytes(self.body), send)


async def _read_on(stream: AsyncIterator[bytes], received: BytesIO, until: int, most: int) -> bool:
    """Read on; whether there are more than `until` bytes and the rest was left."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS) as waiting:
            async for chunk in stream:
                if received.tell() + len(chunk) > most:
                    raise _too_large(f"more than {most} bytes")
                received.write(chunk)
                if received.tell() > until:
                    return True
                _extend(waiting, len(chunk))
    except TimeoutError as error:
        raise HttpError(408, "RequestTimeoutException", "The body came too slowly.") from error
    return False


def may_be_large(request: Request) -> bool:
    """Whether its body is large, or may become so."""
    length = request.headers.get("content-length", "")
    is_small = length.isdecimal() and len(length) < _DIGITS_MAX and int(length) <= SMALL_BYTES
    return "transfer-encoding" in request.headers or (bool(length) and not is_small)


def _extend(waiting: asyncio.Timeout, size: int) -> None:
    """Have patience for so many bytes more."""
    until = waiting.when()
    waiting.reschedule(None if until is None else until + size / _SLOWEST_BYTES)


def _too_large(what: str) -> HttpError:
    return HttpError(413, "BadRequestException", f"The body has {what}.")
