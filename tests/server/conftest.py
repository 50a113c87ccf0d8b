"""A served catalog of each kind, once a module."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

import lakehouse as lh
from lakehouse.lake import Lakehouse
from lakehouse.server.http_server import HttpServer
from lakehouse.server.operations.plan_bounds import DEFAULT_PLAN_BOUNDS
from lakehouse.server.rest_app import rest_app
from lakehouse.server.worker_processes import Served, WorkerProcesses
from lakehouse.storage.location import local_path
from tests.servers import WORKERS

SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "name", "type": "string", "required": False},
    ],
}


@dataclass
class Rest:
    """A server, and what is served."""

    url: str
    lake: Lakehouse
    session: requests.Session

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> requests.Response:
        return self.session.request(
            method, f"{self.url}/v1{path}", json=body, headers=headers, timeout=30
        )

    def get(self, path: str, **headers: str) -> requests.Response:
        return self.ask("GET", path, None, **headers)

    def post(self, path: str, body: object, **headers: str) -> requests.Response:
        return self.ask("POST", path, body, **headers)

    def lake_folder(self) -> Path:
        """Where the database of a catalog lies."""
        return Path(local_path(self.lake.warehouse)).parent

    def table(self, namespace: str, name: str, **more: Any) -> dict[str, Any]:
        """A new table, its namespace too; what the server says of it."""
        self.post("/namespaces", {"namespace": [namespace]})
        body = {"name": name, "schema": SCHEMA, **more}
        made = self.post(f"/namespaces/{namespace}/tables", body)
        assert made.status_code == 200, made.text
        return made.json()


def open_lake(kind: str, folder: Path) -> Lakehouse:
    if kind == "filesystem":
        return lh.load_catalog(str(folder))
    return lh.load_catalog(f"sqlite:///{folder}/catalog.db", warehouse=str(folder / "warehouse"))


def serve(lake: Lakehouse) -> HttpServer | WorkerProcesses:
    if WORKERS > 1:
        return WorkerProcesses(served_by_each(lake), "127.0.0.1", 0, WORKERS)
    return HttpServer(rest_app(lake), "127.0.0.1", 0)


def served_by_each(lake: Lakehouse) -> Served:
    """What each worker serves: a catalog in SQLite or in a folder."""
    catalog = {"uri": getattr(lake.catalog, "uri", lake.warehouse), "warehouse": lake.warehouse}
    catalog = {**lake.catalog.properties, **catalog, "name": lake.name}
    return Served(catalog, {}, DEFAULT_PLAN_BOUNDS, None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With workers there is nothing to change or look into in this process."""
    for item in items:
        if WORKERS > 1 and "monkeypatch" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip(reason="it changes the server in this process"))


@pytest.fixture(scope="module", params=["filesystem", "sqlite"])
def rest(request, tmp_path_factory):
    lake = open_lake(request.param, tmp_path_factory.mktemp("served"))
    with serve(lake) as server, requests.Session() as session:
        yield Rest(server.url, lake, session)
