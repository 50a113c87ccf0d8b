"""A server that asks who is calling, and callers with tokens."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import yaml

from lakehouse.lake import Lakehouse
from lakehouse.server.access.hashed_secrets import HashedSecret
from lakehouse.server.access.principals_file import read_rules
from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import RestApp, rest_app
from lakehouse.server.worker_processes import WorkerProcesses
from tests.server.conftest import served_by_each
from tests.servers import WORKERS

SECRETS = {
    name: f"{name}-secret-hunter2" for name in ("root", "ann", "bob", *["read", "write", "create"])
} | {name: f"{name}-secret-hunter2" for name in ("drop", "manage")}
_hashed = functools.cache(HashedSecret.of)  # slow on purpose
GRANTS = {
    "root": [{"in": "*", "may": ["manage"]}],
    "ann": [{"in": "ann", "may": ["write", "create", "drop"]}],
    "bob": [{"in": "shared.deep.t", "may": ["read"]}],
    **{
        one: [{"in": "mine", "may": [one]}] for one in ("read", "write", "create", "drop", "manage")
    },
}


def rules_file(folder: Path, **more: Any) -> Path:
    document = {
        "roles": GRANTS | more.pop("roles", {}),
        "principals": {
            name: {"secret": str(_hashed(secret)), "roles": [name]}
            for name, secret in SECRETS.items()
        },
        **more,
    }
    file = folder / "principals.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


@dataclass
class Guarded:
    """A server that asks."""

    url: str
    lake: Lakehouse
    app: RestApp | WorkerProcesses | None = None

    def token(self, name: str) -> str:
        form = {
            "grant_type": "client_credentials",
            "client_id": name,
            "client_secret": SECRETS[name],
            "scope": "catalog",
        }
        answer = requests.post(f"{self.url}/v1/oauth/tokens", data=form, timeout=30)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def ask(
        self, token: str | None, method: str, path: str, body: Any = None, **headers: str
    ) -> requests.Response:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return requests.request(
            method,
            f"{self.url}/v1{path}",
            data=None if body is None else json.dumps(body),
            headers=headers,
            timeout=60,
        )


@contextmanager
def guarded(lake: Lakehouse, rules: Path) -> Iterator[Guarded]:
    if WORKERS > 1:
        each, read = served_by_each(lake), read_rules(rules)
        with WorkerProcesses(each, "127.0.0.1", 0, WORKERS, rules=read) as several:
            yield Guarded(several.url, lake, several)
        return
    app = rest_app(lake, rules=read_rules(rules))
    with HttpServer(app, "127.0.0.1", 0, is_guarded=True) as server:
        yield Guarded(server.url, lake, app)
