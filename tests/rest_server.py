"""A small Iceberg REST server for tests: pyiceberg's SQL catalog behind HTTP, not ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs, unquote, urlparse

from pyiceberg import exceptions
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableRequest, Table

from tests.waiting import serving

_STATUS = {
    exceptions.NoSuchTableError: 404,
    exceptions.NoSuchNamespaceError: 404,
    exceptions.TableAlreadyExistsError: 409,
    exceptions.NamespaceAlreadyExistsError: 409,
    exceptions.NamespaceNotEmptyError: 409,
    exceptions.CommitFailedException: 409,
}


class Server(ThreadingHTTPServer):
    """A server that can be told to misbehave.

    Attributes:
        lose: so many commits land without their reply.
        repeat: so many are sent twice, as by a gateway that retries.
        late: so many are answered 409, and land before the next commit or by `deliver()`.
        planted: table properties and configuration that are in every answer.
    """

    def __init__(self, catalog: SqlCatalog) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.catalog, self.lock, self.lose = catalog, Lock(), 0
        self.repeat, self.planted = 0, dict[str, str]()
        self.late, self.waiting = 0, list[tuple[tuple[str, ...], CommitTableRequest]]()
        self.authorization = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def deliver(self) -> None:
        """What was answered 409 is done, if it still can be."""
        waiting, self.waiting = self.waiting, []
        for name, asked in waiting:
            with suppress(exceptions.CommitFailedException, ValueError):
                self.catalog.commit_table(
                    self.catalog.load_table(name), asked.requirements, asked.updates
                )


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def do_HEAD(self) -> None:
        self._answer("GET")

    def log_message(self, *_args: object) -> None:
        pass

    def _answer(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        url = urlparse(self.path)
        self.server.authorization = self.headers.get("Authorization") or ""
        parts = [unquote(part) for part in url.path.strip("/").split("/")][1:]
        try:
            with self.server.lock:
                status, document = 200, self._do(method, parts, parse_qs(url.query), body)
                if self.server.repeat and method == "POST" and len(parts) == 4:
                    self.server.repeat -= 1
                    document = self._do(method, parts, parse_qs(url.query), body)
        except tuple(_STATUS) as error:
            status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
            document = {
                "error": {"message": str(error), "type": type(error).__name__, "code": status}
            }
        except (ValueError, exceptions.ValidationException) as error:
            status, document = (
                400,
                {"error": {"message": str(error), "type": "BadRequestException", "code": 400}},
            )
        if self.server.lose and method == "POST" and status == 200 and len(parts) == 4:
            self.server.lose -= 1
            status, document = (
                500,
                {"error": {"message": "lost", "type": "InternalServerError", "code": 500}},
            )
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status if document != b"" else 204)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _do(self, method: str, parts: list[str], query: dict[str, list[str]], body: str) -> object:
        catalog = self.server.catalog
        if parts == ["config"]:
            return {"defaults": {}, "overrides": {}}
        if parts == ["tables", "rename"]:
            names = json.loads(body)
            catalog.rename_table(
                *(
                    (*names[one]["namespace"], names[one]["name"])
                    for one in ("source", "destination")
                )
            )
            return b""
        if parts == ["namespaces"]:
            if method == "POST":
                asked = json.loads(body)
                catalog.create_namespace(tuple(asked["namespace"]), asked["properties"])
                return asked
            parent = tuple(query["parent"][0].split("\x1f")) if "parent" in query else ()
            return {"namespaces": [list(found) for found in catalog.list_namespaces(parent)]}
        namespace = tuple(parts[1].split("\x1f"))
        if len(parts) == 2 or parts[2] == "properties":
            return self._namespace(method, namespace, parts, body)
        if parts[2] == "register":
            asked = json.loads(body)
            return self._table(
                catalog.register_table((*namespace, asked["name"]), asked["metadata-location"])
            )
        if len(parts) == 3:
            return self._tables(method, namespace, body)
        return self._one_table(method, (*namespace, parts[3]), query, body)

    def _namespace(
        self, method: str, namespace: tuple[str, ...], parts: list[str], body: str
    ) -> object:
        catalog = self.server.catalog
        if method == "DELETE":
            catalog.drop_namespace(namespace)
            return b""
        if method == "POST":
            asked = json.loads(body)
            done = catalog.update_namespace_properties(
                namespace, set(asked["removals"]), asked["updates"]
            )
            return {"removed": done.removed, "updated": done.updated, "missing": done.missing}
        properties = {
            key: value
            for key, value in catalog.load_namespace_properties(namespace).items()
            if key != "exists"
        }
        return {"namespace": list(namespace), "properties": properties}

    def _tables(self, method: str, namespace: tuple[str, ...], body: str) -> object:
        catalog = self.server.catalog
        if method == "GET":
            if not catalog.namespace_exists(namespace):
                raise exceptions.NoSuchNamespaceError(".".join(namespace))
            found = catalog.list_tables(namespace)
            return {
                "identifiers": [{"namespace": list(one[:-1]), "name": one[-1]} for one in found]
            }
        # its model wants a key that the specification lets out
        asked = CreateTableRequest.model_validate({"location": None, **json.loads(body)})
        made = catalog.create_table(
            (*namespace, asked.name),
            asked.table_schema,
            asked.location,
            asked.partition_spec,
            asked.write_order,
            asked.properties,
        )
        return self._table(made)

    def _one_table(
        self, method: str, name: tuple[str, ...], query: dict[str, list[str]], body: str
    ) -> object:
        catalog = self.server.catalog
        if method == "DELETE":
            (
                catalog.purge_table
                if query.get("purgeRequested") in (["true"], ["True"])
                else catalog.drop_table
            )(name)
            return b""
        table = catalog.load_table(name)
        if method == "POST":
            asked = CommitTableRequest.model_validate_json(body)
            if self.server.late:
                self.server.late -= 1
                self.server.waiting.append((name, asked))
                raise exceptions.CommitFailedException("busy")
            self.server.deliver()
            table = catalog.load_table(name)
            catalog.commit_table(table, asked.requirements, asked.updates)
            table = catalog.load_table(name)
        return self._table(table)

    def _table(self, table: Table) -> dict[str, object]:
        metadata, planted = json.loads(table.metadata.model_dump_json()), self.server.planted
        metadata["properties"] |= planted
        return {
            "metadata-location": table.metadata_location,
            "metadata": metadata,
            "config": planted,
        }


@contextmanager
def rest(folder: Path) -> Iterator[Server]:
    """A server whose tables are below `folder`/warehouse."""
    catalog = SqlCatalog(
        "rest",
        uri=f"sqlite:///{folder}/rest.db?check_same_thread=false",
        warehouse=str(folder / "warehouse"),
    )
    try:
        with serving(Server(catalog)) as server:
            yield server
    finally:
        catalog.engine.dispose()
