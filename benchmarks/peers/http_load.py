"""Closed-loop HTTP clients on plain sockets, which cost little beside the server that they ask."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_CHUNK = 1 << 18


class Connection:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        self._socket.sendall(request)
        data = self._rest
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._receive()
        head, body = data[:end].lower(), data[end + 4 :]
        status = int(head[9:12])
        if b"transfer-encoding: chunked" in head:
            while not body.endswith(b"0\r\n\r\n"):
                body += self._receive()
            self._rest = b""
            return status, _joined(body)
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        parts, received = [body], len(body)
        while received < length:
            parts.append(self._receive())
            received += len(parts[-1])
        whole = b"".join(parts)
        self._rest = whole[length:]
        return status, whole[:length]

    def close(self) -> None:
        """End it."""
        self._socket.close()

    def _receive(self) -> bytes:
        data = self._socket.recv(_CHUNK)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data


def _joined(chunks: bytes) -> bytes:
    body = bytearray()
    while chunks:
        size, _, following = chunks.partition(b"\r\n")
        count = int(size, 16)
        body += following[:count]
        chunks = following[count + 2 :] if count else b""
    return bytes(body)


def request(method: str, path: str, document: Any = None) -> bytes:
    """A request as it is sent."""
    body = b"" if document is None else json.dumps(document).encode()
    head = f"{method} /v1{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n"
    if document is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


@dataclass
class Load:
    """What clients saw.

    Attributes:
        seconds: of each request that was answered as wished.
        refused: statuses of the others.
        elapsed: seconds from the first request to the last answer.
    """

    seconds: list[float] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    elapsed: float = 0.0

    def summary(self) -> dict[str, Any]:
        """Rate and latencies."""
        ordered = sorted(self.seconds)
        if not ordered:
            return {"per_s": 0.0, "refused": len(self.refused)}
        return {
            "per_s": round(len(ordered) / self.elapsed, 1),
            "p50_ms": round(1000 * ordered[len(ordered) // 2], 2),
            "p99_ms": round(1000 * ordered[int(len(ordered) * 0.99)], 2),
            "refused": len(self.refused),
        }


def drive(
    port: int, clients: int, seconds: float, make: Callable[[int, int], bytes], wished: int = 200
) -> Load:
    """Clients that ask again as soon as they are answered.

    Args:
        port: of the server.
        clients: how many, each with a connection of its own.
        seconds: how long.
        make: the request of a client by its number and the number of the request.
        wished: status of a request that counts.
    """
    load, ready = Load(), threading.Barrier(clients + 1)
    failures: list[BaseException] = []

    def run(client: int) -> None:
        connection = Connection(port)
        mine: list[float] = []
        try:
            ready.wait()
            until, number = time.perf_counter() + seconds, 0
            while (began := time.perf_counter()) < until:
                status, _ = connection.ask(make(client, number))
                number += 1
                if status == wished:
                    mine.append(time.perf_counter() - began)
                else:
                    load.refused.append(status)
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits
            failures.append(error)
        finally:
            connection.close()
            load.seconds += mine

    threads = [threading.Thread(target=run, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    load.elapsed = time.perf_counter() - began
    if failures:
        raise failures[0]
    return load
