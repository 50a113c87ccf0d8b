"""An S3 server with scripted replies: it keeps objects, but replies lie, get lost, come late."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from tests.waiting import serving

CODES = {
    "400": "InvalidRequest",
    "403": "AccessDenied",
    "404": "NoSuchBucket",
    "409": "ConditionalRequestConflict",
    "501": "NotImplemented",
    "503": "SlowDown",
}


class Server(ThreadingHTTPServer):
    """`script` holds the next answers to PUT, None or empty: an honest one.

    "lost": stored, then the connection is cut; "503": not stored; "500 stored": stored, and an
    error is told; "409": not stored, another request for the same key is under way; the
    other CODES: refused.

    Attributes:
        refusal: with which everything is refused (403), XML.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.script: list[str | None] = []
        self.puts: list[str] = []
        self.gets = 0
        self.refusal: bytes | None = None
        self.honours_if_none_match = True
        self.lock = Lock()

    @property
    def properties(self) -> dict[str, str]:
        """Storage properties that lead here."""
        return {
            "s3.endpoint": f"http://127.0.0.1:{self.server_address[1]}",
            "s3.access-key-id": "test",
            "s3.secret-access-key": "canary-of-storage",
            "s3.region": "us-east-1",
        }

    def handle_error(self, *_args: object) -> None:
        """Cut connections are meant."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args: object) -> None:
        pass

    def parse_request(self) -> bool:
        """Refuse it, where everything is refused."""
        if not super().parse_request() or self.server.refusal is None:
            return self.server.refusal is None
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(403, None, self.server.refusal)
        return False

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server, key = self.server, self.path.partition("?")[0]
        with server.lock:
            plan = server.script.pop(0) if server.script else None
            server.puts.append(plan or "honest")
            if plan in CODES:
                self._answer(int(plan), CODES[plan])
                return
            exclusive = self.headers.get("If-None-Match") == "*" and server.honours_if_none_match
            if key in server.objects and exclusive:
                self._answer(412, "PreconditionFailed")
                return
            meta = {
                name.lower(): value
                for name, value in self.headers.items()
                if name.lower().startswith("x-amz-meta-")
            }
            server.objects[key] = (body, meta)
        if plan == "lost":
            self.close_connection = True
            self.connection.close()
        elif plan == "500 stored":
            self._answer(500, "InternalError")
        else:
            self._answer(200, None)

    def do_GET(self) -> None:
        self.server.gets += 1
        found = self.server.objects.get(self.path.partition("?")[0])
        if found is None:
            self._answer(404, "NoSuchKey")
            return
        body, meta = found
        self.send_response(200)
        headers = {
            "Content-Length": str(len(body)),
            "ETag": '"x"',
            "Last-Modified": "Wed, 21 Oct 2026 07:28:00 GMT",
        }
        for name, value in {**headers, **meta}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        """DeleteObjects."""
        asked = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        bucket = self.path.partition("?")[0].rstrip("/")
        keys = re.findall("<Key>([^<]*)</Key>", asked)
        for key in keys:
            self.server.objects.pop(f"{bucket}/{key}", None)
        told = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, None, f"<DeleteResult>{told}</DeleteResult>".encode())

    def _answer(self, status: int, code: str | None, body: bytes = b"") -> None:
        if code:
            body = f"<Error><Code>{code}</Code><Message>as told</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"x"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def flaky_s3() -> Iterator[Server]:
    """A server on loopback."""
    with serving(Server()) as server:
        yield server
