"""Health, metrics, the log of requests, the pages, and a stop in the middle of a commit."""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
import subprocess
import time
from contextlib import closing
from html.parser import HTMLParser
from itertools import islice

import pyarrow as pa
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from pyiceberg.catalog.sql import SqlCatalog

import lakehouse as lh
from lakehouse.curation.checkup import accept
from lakehouse.curation.gathering import table_names
from lakehouse.curation.statement_store import StatementStore
from lakehouse.semantics.binding import bind
from lakehouse.semantics.statement_yaml import parse_statements
from lakehouse.spec.identifier import Identifier
from tests.server.conftest import SCHEMA, Rest, open_lake, serve
from tests.servers import ServeProcess

SAID = """
table: shop.orders
author: Sales
statements:
- {kind: description, column: id, text: the <b>number</b>}
- {kind: warning, evidence: {check: bounds, column: id, min: 0, max: 1}}
"""
STATES = {"verified", "unverified", "contradicted", "expired", "deprecated"}
HOSTILE = "<script>alert(1)</script>"


def samples(rest: Rest) -> dict[tuple[str, ...], float]:
    """Every sample as Prometheus's own parser reads it."""
    told = rest.session.get(f"{rest.url}/metrics", timeout=30)
    assert told.status_code == 200
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(told.text)
        for sample in family.samples
    }


def change(key: str, **requirement: object) -> dict[str, object]:
    return {
        "requirements": [requirement] if requirement else [],
        "updates": [{"action": "set-properties", "updates": {key: "1"}}],
    }


def test_requests_commits_and_conflicts_are_counted(rest):
    table = "/namespaces/counted/tables/t"
    rest.table("counted", "t")
    before = samples(rest)
    load = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"
    commit = load.replace("GET", "POST")
    for _ in range(3):
        assert rest.get(table).status_code == 200
    assert rest.get("/namespaces/counted/tables/none").status_code == 404
    assert rest.post(table, change("a")).status_code == 200
    wrong = change("b", type="assert-current-schema-id", **{"current-schema-id": 7})
    assert rest.post(table, wrong).status_code == 409
    assert rest.post(table, {"updates": [{"action": "what"}]}).status_code == 400
    assert rest.post(f"{table}/plan", {}).status_code == 200
    after = samples(rest)
    grown = {key: after[key] - before.get(key, 0) for key in after}
    count = "lakehouse_request_seconds_count"
    assert grown[count, load, "200"] == 3
    assert grown[count, load, "404"] == 1
    assert [grown[count, commit, one] for one in ("200", "409", "400")] == [1, 1, 1]
    assert grown["lakehouse_commits_total", "committed"] == 1
    assert grown["lakehouse_commits_total", "conflict"] == 1
    assert grown["lakehouse_plans_total", "planned"] == 1
    assert 0 < grown["lakehouse_request_seconds_sum", load, "200"] < 30
    assert after["process_resident_memory_bytes",] > 0


def test_lost_races_are_counted(tmp_path, monkeypatch):
    """Another engine commits between the server's reading of the table and its swap."""
    lake = open_lake("sqlite", tmp_path)
    with serve(lake) as server, requests.Session() as session:
        rest = Rest(server.url, lake, session)
        rest.table("ns", "t")
        engine = SqlCatalog(lake.name, uri=lake.catalog.uri, warehouse=lake.warehouse)
        table = engine.load_table("ns.t")
        commit, times = type(lake.catalog).commit, iter(range(2))

        def overtaken(*arguments, **named):
            for number in islice(times, 1):
                table.transaction().set_properties(other=str(number)).commit_transaction()
            return commit(*arguments, **named)

        monkeypatch.setattr(type(lake.catalog), "commit", overtaken)
        path = f"{server.url}/v1/namespaces/ns/tables/t"
        answer = requests.post(path, json=change("mine"), timeout=30)
        engine.engine.dispose()
        assert answer.status_code == 200
        assert answer.json()["metadata"]["properties"]["other"] == "1"
        counted = samples(rest)
        assert counted["lakehouse_commit_retries_total",] == 2
        assert counted["lakehouse_commits_total", "committed"] == 1


def test_health(tmp_path):
    lake = open_lake("sqlite", tmp_path)
    with serve(lake) as server:
        well = requests.get(f"{server.url}/health", timeout=30)
        assert (well.status_code, well.json()) == (200, {"status": "ok"})
        (tmp_path / "catalog.db").rename(tmp_path / "gone.db")
        (tmp_path / "catalog.db").mkdir()
        lake.catalog.close()  # connections that were open would not notice
        ill = requests.get(f"{server.url}/health", timeout=30)
        assert ill.status_code == 503, ill.text
        assert str(tmp_path) not in ill.text


class Page(HTMLParser):
    """What a browser makes of a page: its text, links and elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.links: list[str] = []
        self.elements: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        self.links += [value for name, value in attrs if name == "href"]

    def handle_data(self, data):
        self.texts.append(data.strip())


def page(rest: Rest, path: str) -> Page:
    answer = rest.session.get(rest.url + path, timeout=30)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    return Page(answer.text)


@pytest.fixture
def hostile(rest):
    """Tables whose names, docs and properties would be script."""
    fields = [{**SCHEMA["fields"][0], "name": HOSTILE, "doc": f"'\"&{HOSTILE}\u202e"}]
    name = "<img src=x onerror=alert(1)>"
    if not rest.lake.catalog.table_exists(Identifier(("nice", "a&b"), name)):
        for levels in (["nice"], ["nice", "a&b"]):
            rest.post("/namespaces", {"namespace": levels})
        body = {"name": name, "schema": {**SCHEMA, "fields": fields}, "properties": {"k": HOSTILE}}
        made = rest.post("/namespaces/nice%1Fa&b/tables", body)
        assert made.status_code == 200, made.text
    return name


def test_pages_show_names_as_text(rest, hostile):
    first = page(rest, "/")
    assert "nice.a&b" in first.texts
    assert hostile in first.texts
    link = f"/tables/nice%1Fa%26b/{quoted(hostile)}"
    assert link in first.links
    shown = page(rest, link)
    assert f"nice.a&b.{hostile}" in shown.texts
    assert HOSTILE in shown.texts
    assert f"'\"&{HOSTILE}\\u202e" in shown.texts
    assert not {"script", "img"} & (first.elements | shown.elements)
    missing = rest.session.get(f"{rest.url}/tables/nice/{quoted(HOSTILE)}", timeout=30)
    assert missing.status_code == 404
    assert "script" not in Page(missing.text).elements


def quoted(text: str) -> str:
    return requests.utils.quote(text, safe="")


def test_a_table_page_shows_snapshots_and_what_is_said(tmp_path):
    lake = lh.load_catalog(str(tmp_path / "warehouse"))
    table = lake.create_table("shop.orders", pa.schema({"id": pa.int64()}))
    for n in range(3):
        table.append(pa.table({"id": [n]}))
    table.create_tag("first", table.history()[0].snapshot_id)
    names = {seen.name: seen for seen in (table_names(table),)}
    statements = [bind(statement, names, 0) for statement in parse_statements(SAID)]
    StatementStore(lake).put(statements)
    accept(lake, statements, "Ann")
    with serve(lake) as server, requests.Session() as session:
        shown = page(Rest(server.url, lake, session), "/tables/shop/orders")
        for snapshot in table.history():
            assert str(snapshot.snapshot_id) in shown.texts
        assert "first" in shown.texts
        assert "the <b>number</b>" in shown.texts
        # the one was read by a person; the bounds of three ids refute the other
        assert [text for text in shown.texts if text in STATES] == ["verified", "contradicted"]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium here")
def test_pages_in_a_browser(rest, hostile):
    """The browser's own tree, after it ran what it would run."""
    for path in ("/", f"/tables/nice%1Fa%26b/{quoted(hostile)}"):
        done = subprocess.run(
            [
                *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--timeout=20000"),
                *("--dump-dom", rest.url + path),
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        tree = Page(done.stdout)
        assert hostile in " ".join(tree.texts)
        assert not {"script", "img"} & tree.elements


@pytest.mark.slow
def test_each_request_is_a_line_of_json_without_secrets(tmp_path):
    log, warehouse = tmp_path / "access.log", str(tmp_path / "warehouse")
    with ServeProcess(warehouse, warehouse, "--access-log", str(log)) as server:
        url = f"{server.url}/v1/namespaces"
        secret = {"Authorization": "Bearer hunter2-token"}
        requests.post(url, json={"namespace": ["ns"]}, headers=secret, timeout=30)
        requests.get(f"{url}/ns/tables/t?token=hunter2-query", headers=secret, timeout=30)
        assert server.stop() == 0
    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines()][-2:]
    assert [(line["operation"], line["names"], line["status"]) for line in lines] == [
        ("POST /v1/{prefix}/namespaces", ["ns"], 200),
        ("GET /v1/{prefix}/namespaces/{namespace}/tables/{table}", ["ns.t"], 404),
    ]
    assert all(line["ms"] > 0 and line["at"].startswith("20") for line in lines)
    assert "hunter2" not in text


@pytest.mark.slow
def test_sigterm_finishes_the_commit_that_is_under_way(tmp_path):
    """The commit is slow because another process holds the database."""
    uri, warehouse = f"sqlite:///{tmp_path}/c.db", str(tmp_path / "wh")
    lake = lh.load_catalog(uri, warehouse=warehouse)
    lake.create_table("ns.t", pa.schema({"id": pa.int64()}))
    path = "/v1/namespaces/ns/tables/t"
    body = json.dumps(change("k")).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    with (
        ServeProcess(uri, warehouse) as server,
        closing(sqlite3.connect(tmp_path / "c.db", isolation_level=None)) as holder,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as client,
    ):
        assert requests.get(f"{server.url}{path}", timeout=30).status_code == 200
        holder.execute("BEGIN IMMEDIATE")
        client.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert client.recv(65536).startswith(b"HTTP/1.1 100 ")  # it has begun with the request
        client.sendall(body)
        time.sleep(0.7)  # mostly long enough to wait for the database, shorter than its patience
        server.process.terminate()
        time.sleep(0.7)
        assert server.process.poll() is None
        client.settimeout(0)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        client.settimeout(60)
        holder.execute("COMMIT")
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert server.stop() == 0
    assert lake.load_table("ns.t").properties["k"] == "1"
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{server.url}{path}", timeout=5)
