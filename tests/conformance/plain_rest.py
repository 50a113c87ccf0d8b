"""The plainest REST catalog that can be: metadata are JSON documents, and updates edit them.

It knows neither our code nor pyiceberg's, so what a client commits through it is the client's own,
whatever the format version.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import unquote, urlparse

from lakehouse.storage.location import local_path
from tests.waiting import serving

Document = dict[str, Any]


class PlainCatalog(ThreadingHTTPServer):
    """Tables below `folder`; `locations` says where the newest metadata of each lies."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.lock = folder, Lock()
        self.locations: dict[str, Path] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, method: str, parts: list[str], body: Document) -> tuple[int, Document]:
        if parts == ["config"]:
            return 200, {"defaults": {}, "overrides": {}}
        if parts == ["transactions", "commit"]:
            for change in body["table-changes"]:
                self._commit(change["identifier"]["name"], change)
            return 200, {}
        if len(parts) < 3:
            return 200, {"namespace": ["m"], "properties": {}, "namespaces": [["m"]]}
        if len(parts) == 3 and method == "POST":
            self._create(body)
            return 200, self._table(body["name"])
        if len(parts) == 3:
            return 200, {
                "identifiers": [{"namespace": ["m"], "name": name} for name in self.locations]
            }
        if parts[3] not in self.locations:
            return 404, {
                "error": {
                    "message": f"no table {parts[3]}",
                    "type": "NoSuchTableException",
                    "code": 404,
                }
            }
        if method == "POST":
            self._commit(parts[3], body)
        return 200, self._table(parts[3])

    def _table(self, name: str) -> Document:
        location = self.locations[name]
        return {
            "metadata-location": str(location),
            "metadata": json.loads(location.read_text()),
            "config": {},
        }

    def _create(self, asked: Document) -> None:
        properties = asked["properties"]
        version = int(properties.pop("format-version", 2))
        fields = asked["partition-spec"]["fields"]
        document: Document = {
            "format-version": version,
            "table-uuid": str(uuid.uuid4()),
            "location": str(self.folder / asked["name"]),
            "last-sequence-number": 0,
            "last-updated-ms": time.time_ns() // 1_000_000,
            "last-column-id": max(_ids(asked["schema"])),
            "schemas": [{**asked["schema"], "schema-id": 0}],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": fields}],
            "default-spec-id": 0,
            "last-partition-id": max([999, *(field["field-id"] for field in fields)]),
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": properties,
            "snapshots": [],
            "refs": {},
            "snapshot-log": [],
            "metadata-log": [],
        }
        if version == 3:
            document["next-row-id"] = 0
        self._write(asked["name"], document)

    def _commit(self, name: str, change: Document) -> None:
        before = self.locations[name]
        document = json.loads(before.read_text())
        document["metadata-log"].append(
            {"timestamp-ms": document["last-updated-ms"], "metadata-file": str(before)}
        )
        document["last-updated-ms"] = max(document["last-updated-ms"], time.time_ns() // 1_000_000)
        for update in change["updates"]:
            _apply(document, update)
        self._write(name, document)

    def _write(self, name: str, document: Document) -> None:
        path = (
            Path(local_path(document["location"]))
            / "metadata"
            / f"{len(document['metadata-log']):05}-{uuid.uuid4()}.metadata.json"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))
        self.locations[name] = path


def _ids(kind: Any) -> Iterator[int]:
    if isinstance(kind, dict):
        yield from (
            value
            for key, value in kind.items()
            if key in ("id", "element-id", "key-id", "value-id")
        )
        for value in kind.values():
            yield from _ids(value)
    elif isinstance(kind, list):
        for one in kind:
            yield from _ids(one)


def _apply(document: Document, update: Document) -> None:
    match update["action"]:
        case (
            "assign-uuid"
            | "upgrade-format-version"
            | "add-sort-order"
            | "set-default-sort-order"
            | "set-location"
        ):
            pass  # said again after creation, changing nothing
        case "add-schema":
            _add(document, "schemas", "schema-id", update["schema"])
            document["last-column-id"] = max(document["last-column-id"], *_ids(update["schema"]))
        case "set-current-schema":
            document["current-schema-id"] = _chosen(
                update["schema-id"], document["schemas"], "schema-id"
            )
        case "add-spec":
            fields = update["spec"]["fields"]
            _add(document, "partition-specs", "spec-id", update["spec"])
            document["last-partition-id"] = max(
                [document["last-partition-id"], *(field["field-id"] for field in fields)]
            )
        case "set-default-spec":
            document["default-spec-id"] = _chosen(
                update["spec-id"], document["partition-specs"], "spec-id"
            )
        case "add-snapshot":
            snapshot = update["snapshot"]
            document["snapshots"].append(snapshot)
            document["last-sequence-number"] = snapshot["sequence-number"]
            if "next-row-id" in document:
                document["next-row-id"] += snapshot["added-rows"]
        case "set-snapshot-ref":
            ref = {key: value for key, value in update.items() if key not in ("action", "ref-name")}
            document["refs"][update["ref-name"]] = ref
            if update["ref-name"] == "main":
                document["current-snapshot-id"] = ref["snapshot-id"]
                entry = {
                    "snapshot-id": ref["snapshot-id"],
                    "timestamp-ms": document["last-updated-ms"],
                }
                document["snapshot-log"].append(entry)
        case "set-properties":
            document["properties"] |= update["updates"]
        case other:
            raise ValueError(f"this catalog cannot {other}")


def _add(document: Document, kind: str, key: str, new: Document) -> None:
    """Last in its list, under the id of an equal one where there is one."""
    known = document[kind]
    for position, one in enumerate(known):
        if one["fields"] == new["fields"]:
            known.append(known.pop(position))
            return
    known.append({**new, key: max(one[key] for one in known) + 1})


def _chosen(wanted: int, known: list[Document], key: str) -> int:
    return int(known[-1][key]) if wanted == -1 else wanted


class _Handler(BaseHTTPRequestHandler):
    server: PlainCatalog

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_HEAD(self) -> None:
        self._answer("GET")

    def log_message(self, *_args: object) -> None:
        pass

    def _answer(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = [unquote(part) for part in urlparse(self.path).path.strip("/").split("/")][1:]
        try:
            with self.server.lock:
                status, document = self.server.answer(method, parts, json.loads(body or b"{}"))
        except (KeyError, ValueError) as error:
            status, document = (
                400,
                {"error": {"message": repr(error), "type": "BadRequestException", "code": 400}},
            )
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def plain_rest(folder: Path) -> Iterator[PlainCatalog]:
    """A running catalog with one namespace, `m`."""
    with serving(PlainCatalog(folder)) as server:
        yield server
