"""A managed catalog: it has a name, chooses where tables lie, asks for tokens, keeps requests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlparse

from tests.conformance.plain_rest import Document, PlainCatalog, _Handler
from tests.waiting import serving

NAME, CLIENT, SECRET = "lake-of-ann", "ann", "canary-hunter2"


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Policy:
    """What the server says and does beside its tables.

    Attributes:
        defaults, overrides, more: of its configuration.
        config: of every table.
        result: further members of what a table is loaded with.
        failures: statuses of the next answers to changes; the change is made where `lands` says so.
        token_seconds: how long its tokens are good for.
    """

    defaults: dict[str, str] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    more: Document = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    result: Document = field(default_factory=dict)
    failures: list[int] = field(default_factory=list)
    lands: bool = False
    token_seconds: float | None = None


class ManagedCatalog(PlainCatalog):
    """Knows one warehouse, below the prefix `p/q`, and one client."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.RequestHandlerClass = _ManagedHandler  # type: ignore[assignment]
        self.policy = Policy(overrides={"prefix": "p/q", "namespace-separator": "%2E"})
        self.asked: list[Asked] = []
        self.tokens: dict[str, float] = {}
        self.done: dict[str, tuple[int, Document]] = {}

    def changes(self) -> list[Asked]:
        """Those of tables."""
        own = (one for one in self.asked if "/namespaces/" in one.path or "/trans" in one.path)
        return [one for one in own if one.method != "GET" and "/metrics" not in one.path]

    def reports(self) -> list[Document]:
        return [one.body for one in self.asked if one.path.endswith("/metrics")]

    def reply(self, asked: Asked, form: bytes) -> tuple[int, Document, dict[str, str]]:
        if asked.path == "/v1/oauth/tokens":
            return self._token(dict(parse_qsl(form.decode())))
        bearer = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if self.tokens.get(bearer, 0) < time.monotonic():
            return 419, _error("AuthenticationTimeoutException", "expired"), {}
        if asked.path == "/v1/config":
            if asked.query.get("warehouse") != NAME:
                return 404, _error("NoSuchWarehouseException", "no such warehouse"), {}
            policy = self.policy
            return (
                200,
                {"defaults": policy.defaults, "overrides": policy.overrides, **policy.more},
                {},
            )
        below = asked.path.removeprefix("/v1/p/q/")
        if below == asked.path:
            return 404, _error("NotFoundException", "no such prefix"), {}
        parts = [unquote(part) for part in below.split("/")]
        return self._served(asked, parts)

    def _served(self, asked: Asked, parts: list[str]) -> tuple[int, Document, dict[str, str]]:
        if parts[-1] == "metrics":
            return 204, {}, {}
        key = asked.headers.get("idempotency-key")
        if key in self.done:
            return (*self.done[key], {})
        if asked.method != "GET" and self.policy.failures:
            status = self.policy.failures.pop(0)
            if self.policy.lands:
                made = self.answer(asked.method, parts, asked.body)
                if key is not None:
                    self.done[key] = made
            return status, _error("CommitStateUnknownException", "perhaps"), {}
        status, document = self.answer(asked.method, parts, asked.body)
        headers = {}
        if "metadata" in document:
            headers["ETag"] = f'"{document["metadata-location"]}"'
            document = {**document, "config": self.policy.config, **self.policy.result}
            if asked.headers.get("if-none-match") == headers["ETag"]:
                return 304, {}, headers
        if key is not None:
            self.done[key] = (status, document)
        return status, document, headers

    def _token(self, form: dict[str, str]) -> tuple[int, Document, dict[str, str]]:
        if (form.get("client_id"), form.get("client_secret")) != (CLIENT, SECRET):
            return 401, {"error": "invalid_client", "error_description": "not known"}, {}
        token = f"token-{len(self.tokens)}"
        seconds = self.policy.token_seconds
        self.tokens[token] = time.monotonic() + (seconds or 3600)
        told = {} if seconds is None else {"expires_in": seconds}
        return 200, {"access_token": token, "token_type": "bearer", **told}, {}


def _error(kind: str, message: str) -> Document:
    return {"error": {"message": message, "type": kind, "code": 0}}


class _ManagedHandler(_Handler):
    server: ManagedCatalog

    def do_DELETE(self) -> None:  # noqa: N802
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlparse(self.path)
        is_form = "form" in (self.headers.get("Content-Type") or "")
        asked = Asked(
            method,
            url.path,
            dict(parse_qsl(url.query, keep_blank_values=True)),
            {name.lower(): value for name, value in self.headers.items()},
            None if is_form else json.loads(data or b"{}"),
        )
        with self.server.lock:
            self.server.asked.append(asked)
            status, document, headers = self.server.reply(asked, data)
        body = b"" if status in (204, 304) else json.dumps(document).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def managed_rest(folder: Path) -> Iterator[ManagedCatalog]:
    """A running one, with the namespace `m`."""
    with serving(ManagedCatalog(folder)) as server:
        yield server
