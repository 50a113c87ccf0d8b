"""A proxy between client and server that loses, repeats, delays and cuts."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = (
    "lost request",
    "late request",
    "lost reply",
    "late reply",
    "repeated",
    "repeated late",
    "gateway error",
    "cut reply",
)
LATE_SECONDS = 0.1


class CuttingProxy(ThreadingHTTPServer):
    """Half of the changes that are asked for meet a fault.

    Attributes:
        faults: how often each happened.
    """

    daemon_threads = True

    def __init__(self, port: int, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target, self.faults = port, Counter[str]()
        self._random, self._lock = random.Random(seed), threading.Lock()
        self.late: list[threading.Timer] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def fault(self, method: str) -> str | None:
        with self._lock:
            if method in ("GET", "HEAD") or self._random.random() < 0.5:
                return None
            chosen = self._random.choice(FAULTS)
            self.faults[chosen] += 1
            return chosen


class _Handler(BaseHTTPRequestHandler):
    server: CuttingProxy
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
        asked = (self.server.target, self.command, self.path, body, headers)
        fault = self.server.fault(self.command)
        if fault == "lost request":
            return self._hang_up()
        if fault == "late request":
            time.sleep(LATE_SECONDS)
        status, answer, kind = ask(*asked)
        if fault == "repeated":
            status, answer, kind = ask(*asked)
        if fault == "repeated late":
            timer = threading.Timer(LATE_SECONDS, ask, asked)
            self.server.late.append(timer)
            timer.start()
        if fault == "lost reply":
            return self._hang_up()
        if fault == "late reply":
            time.sleep(LATE_SECONDS)
        if fault == "gateway error":
            status, answer = 502, b"<html>Bad Gateway</html>"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if fault == "cut reply":
            self.wfile.write(answer[: len(answer) // 2])
            return self._hang_up()
        self.wfile.write(answer)
        return None

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_args: object) -> None:
        pass

    def _hang_up(self) -> None:
        self.close_connection = True


def ask(
    port: int, method: str, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, bytes, str]:
    """Status, body and type of what the server answers, whichever process it is by then."""
    for _ in range(600):  # it is killed and started again
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            kind = answer.headers.get("Content-Type") or "application/json"
            return answer.status, answer.read(), kind
        except (OSError, HTTPException):
            time.sleep(0.05)
        finally:
            connection.close()
    raise AssertionError("no server")
