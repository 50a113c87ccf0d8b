"""Clients that send much, slowly, or never take what they asked for: others are answered."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.expressions import NotIn

import lakehouse as lh
from lakehouse.server import http_server
from lakehouse.server.http_server import HttpServer
from lakehouse.server.memory_bounds import DEFAULT_BOUNDS, MIB, MemoryBounds
from lakehouse.server.operations import scan_operations
from lakehouse.server.rest_app import rest_app
from lakehouse.server.wire import large_bodies
from lakehouse.storage.location import local_path
from lakehouse.storage.storage_protocol import WHOLE_BYTES_MAX
from tests.server.conftest import SCHEMA, Rest, open_lake
from tests.server.test_rest_protocol import error
from tests.server.test_view_operations import version
from tests.servers import ServeProcess
from tests.waiting import PATIENCE_SECONDS, eventually

ANYWHERE = "/v1/transactions/commit"
PARTS = 60
ROWS = pa.table({"id": range(PARTS)})
BEGUN = {
    "nothing": b"",
    "a byte": b"P",
    "headers": b"POST /v1/namespaces HTTP/1.1\r\nHost: x\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0",
    "body": b"POST /v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{",
    "no more requests": b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
}


@contextmanager
def serving(folder, **bounds):
    lake = open_lake("sqlite", folder)
    app = rest_app(lake, memory=MemoryBounds(**bounds))
    try:
        with HttpServer(app, "127.0.0.1", 0) as server, requests.Session() as session:
            rest = Rest(server.url, lake, session)
            rest.table("ns", "t")
            yield rest
    finally:
        DEFAULT_BOUNDS.bound_process()


def connected(rest, begun=b""):
    host, port = rest.url.removeprefix("http://").split(":")
    found = socket.create_connection((host, int(port)), timeout=60)
    found.sendall(begun)
    return found


def post(size=None):
    head = f"POST {ANYWHERE} HTTP/1.1\r\nHost: x\r\n"
    length = "Transfer-Encoding: chunked" if size is None else f"Content-Length: {size}"
    return f"{head}{length}\r\n\r\n".encode()


def status(answer):
    return int(re.match(rb"HTTP/1.1 (\d+)", answer)[1])


def posted(rest, body):
    return requests.post(rest.url + ANYWHERE, data=body, timeout=60)


def as_text(size):
    return b'{"a":"%b"}' % (b"x" * size)


@pytest.mark.parametrize("begun", BEGUN.values(), ids=BEGUN)
def test_many_connections_keep_nobody_waiting(tmp_path, begun):
    with serving(tmp_path) as rest, ExitStack() as many:
        for _ in range(200):
            many.enter_context(closing(connected(rest, begun)))
        assert requests.get(f"{rest.url}/health", timeout=30).status_code == 200


@pytest.mark.parametrize("begun", BEGUN.values(), ids=BEGUN)
def test_who_sends_nothing_more_is_hung_up_on(tmp_path, monkeypatch, begun):
    monkeypatch.setattr(http_server, "_HEADERS_SECONDS", 0.3)
    monkeypatch.setattr(large_bodies, "PATIENCE_SECONDS", 0.3)
    with serving(tmp_path) as rest, closing(connected(rest, begun)) as one:
        while one.recv(65536):  # a timeout fails
            pass


@pytest.mark.parametrize("begun", BEGUN.values(), ids=BEGUN)
def test_who_sends_nothing_more_does_not_keep_a_server_from_its_end(tmp_path, monkeypatch, begun):
    monkeypatch.setattr(http_server, "_HEADERS_SECONDS", 3600.0)
    monkeypatch.setattr(large_bodies, "PATIENCE_SECONDS", 3600.0)
    monkeypatch.setattr(http_server, "_ENDING_SECONDS", 0.3)
    with ExitStack() as stack:
        app = rest_app(open_lake("sqlite", tmp_path))
        server = HttpServer(app, "127.0.0.1", 0).__enter__()
        rest = Rest(server.url, None, stack.enter_context(requests.Session()))
        for _ in range(3):
            stack.enter_context(closing(connected(rest, begun)))
        assert rest.get("/config").status_code == 200  # those before it have been taken
        ends = threading.Thread(target=server.__exit__, args=(None, None, None), daemon=True)
        ends.start()
        ends.join(600)
        assert not ends.is_alive()


@pytest.mark.parametrize("begun", [BEGUN["headers"], BEGUN["body"]])
def test_who_sends_a_byte_now_and_then_is_hung_up_on(tmp_path, monkeypatch, begun):
    monkeypatch.setattr(http_server, "_HEADERS_SECONDS", 0.3)
    monkeypatch.setattr(large_bodies, "PATIENCE_SECONDS", 0.3)
    with serving(tmp_path) as rest, closing(connected(rest, begun)) as one:
        one.settimeout(0.02)
        until = time.monotonic() + PATIENCE_SECONDS
        while not is_over(one):
            assert time.monotonic() < until


def is_over(connection):
    """Whether the server has hung up, told one byte more."""
    try:
        connection.sendall(b"x")
        return not connection.recv(65536)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("size", [MIB, None], ids=["length", "chunked"])
def test_bodies_wait_for_each_other(tmp_path, size):
    part = as_text(MIB // 2)[: MIB // 2]
    with serving(tmp_path, bodies=MIB) as rest:
        with closing(connected(rest, post(size))) as first:
            first.sendall(part if size else b"%x\r\n%b\r\n" % (len(part), part))
            answers = []
            second = threading.Thread(target=lambda: answers.append(posted(rest, as_text(500_000))))
            second.start()
            assert posted(rest, as_text(50_000)).status_code == 400  # small ones do not
            assert not answers
        second.join()  # the first has left
        assert answers[0].status_code == 400
        for _ in range(3):
            assert posted(rest, as_text(900_000)).status_code == 400


def test_a_body_waits_so_long_and_no_longer(tmp_path, monkeypatch):
    monkeypatch.setattr(large_bodies, "_TURN_SECONDS", 0.1)
    with serving(tmp_path, bodies=MIB) as rest:
        with closing(connected(rest, post(MIB))) as first:
            first.sendall(b"{")
            until = time.monotonic() + PATIENCE_SECONDS
            refused = posted(rest, as_text(500_000))
            while refused.status_code != 503 and time.monotonic() < until:
                refused = posted(rest, as_text(500_000))  # it came before the first
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        until = time.monotonic() + PATIENCE_SECONDS  # the server notices that the first has left
        while (after := posted(rest, as_text(500_000))).status_code == 503:
            assert time.monotonic() < until
        assert after.status_code == 400


def test_what_is_too_large_is_refused_before_it_is_sent(tmp_path):
    with serving(tmp_path, bodies=MIB) as rest:
        sizes = {MIB + 1: 413, 10**12: 413, 10**19: 413, "9" * 400: 400}
        for size, expected in sizes.items():
            with closing(connected(rest, post(size))) as one:
                answer = one.recv(65536)
                assert status(answer) == expected, size
                # nobody sends a next request behind a body that is not read
                assert b"connection: close" in answer.lower()
        assert posted(rest, b'{"a":[%b1]}' % (b"{}," * 30_000)).status_code == 413
        assert posted(rest, b'{"a":[%b1]}' % (b"12345678," * 9_000)).status_code == 400


def peak_mib(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) // 1024


@pytest.mark.slow
def test_the_process_stays_small(tmp_path):
    """What the operating system measured, beside what a server has in memory that is asked little.

    Each body stays below what one may have; together they are 960 MiB.
    """
    catalog, warehouse = f"sqlite:///{tmp_path}/c.db", str(tmp_path / "wh")
    with (
        ServeProcess(catalog, warehouse, "--memory", "bodies=64") as server,
        requests.Session() as session,
    ):
        rest = Rest(server.url, None, session)
        rest.table("ns", "t")
        before, found = peak_mib(server.process.pid), []
        wide = b'{"a":[%b1]}' % (b"{}," * 20_000_000)
        text = as_text(60_000_000)

        def client(body):
            """As long as it waits in vain: how many have their turn in time is a matter of load."""
            while (told := posted(rest, body).status_code) == 503:
                pass
            found.append(told)

        clients = [
            threading.Thread(target=client, args=(body,)) for body in [text] * 12 + [wide] * 4
        ]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        assert sorted(found) == [400] * 12 + [413] * 4
        assert peak_mib(server.process.pid) - before < 400


VIEWS = "/namespaces/ns/views"
LARGE = version(sql="x" * 20 * MIB)  # more than stands in the buffers between
ASKED = f"GET /v1{VIEWS}/v HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def asked_again(rest):
    """What is answered once it is not 503."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (answer := rest.get(f"{VIEWS}/v")).status_code == 503:
        assert time.monotonic() < until
    return answer


def test_answers_that_nobody_takes_are_bounded(tmp_path):
    with serving(tmp_path, answers=MIB) as rest:
        rest.post(VIEWS, {"name": "v", "schema": SCHEMA, "view-version": LARGE})
        with closing(connected(rest, ASKED)) as one:
            assert status(one.recv(12)) == 200
            refused = rest.get(f"{VIEWS}/v")
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
            # what changed something is told all the same
            named = {"updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
            assert rest.post(f"{VIEWS}/v", named).status_code == 200
        assert len(asked_again(rest).content) > 20 * MIB


def test_who_takes_nothing_of_an_answer_is_hung_up_on(tmp_path, monkeypatch):
    monkeypatch.setattr(large_bodies, "_SLOWEST_BYTES", 10**9)
    with serving(tmp_path, answers=MIB) as rest:
        rest.post(VIEWS, {"name": "v", "schema": SCHEMA, "view-version": LARGE})
        with monkeypatch.context() as hasty, closing(connected(rest)) as one:
            hasty.setattr(large_bodies, "PATIENCE_SECONDS", 0.3)
            one.sendall(ASKED)
            taken = len(one.recv(12))
            hasty.undo()
            assert asked_again(rest).status_code == 200
            while part := one.recv(65536):
                taken += len(part)
            assert taken < 20 * MIB


def test_numbers_of_pages_and_names_that_are_none(tmp_path):
    with serving(tmp_path) as rest:
        tables = "/namespaces/ns/tables"
        for size, expected in (("9" * 5000, 200), ("0" * 5000, 400), ("-1", 400), ("٣", 400)):
            for path in (tables, "/namespaces"):
                answer = rest.get(f"{path}?pageSize={size}")
                assert (answer.status_code, len(answer.content) < 400) == (expected, True)
        assert rest.get(f"{tables}?pageToken={'x' * 50_000}!").status_code == 400


def test_a_large_filter_makes_small_pages(tmp_path, monkeypatch):
    """It is told with each file, and all that was asked for with each token."""
    monkeypatch.setattr(scan_operations, "PAGE_BYTES", 20_000)
    monkeypatch.setattr(scan_operations, "ASKED_BYTES", 20_000)
    plan = "/namespaces/ns/tables/wide/plan"
    with serving(tmp_path) as rest:
        wide = rest.lake.create_table("ns.wide", ROWS.schema, partition_by=["id"])
        wide.append(ROWS)
        values = [10**6 + n for n in range(400)]
        asked = {"filter": {"type": "not-in", "term": "id", "values": values}}
        largest, found, waiting = 0, [], [rest.post(plan, asked)]
        while waiting:
            answer = waiting.pop()
            assert answer.status_code == 200, answer.text
            largest = max(largest, len(answer.content))
            told = answer.json()
            found += [one["data-file"]["file-path"] for one in told["file-scan-tasks"]]
            tokens = told.get("plan-tasks", ())
            waiting += [rest.post(f"{plan[:-4]}tasks", {"plan-task": token}) for token in tokens]
        assert sorted(found) == sorted(wide.inspect.files()["file_path"].to_pylist())
        assert largest < 4 * 20_000
        theirs = RestCatalog("c", uri=rest.url, **{"scan-planning-mode": "server"})
        rows = theirs.load_table("ns.wide").scan(row_filter=NotIn("id", values)).to_arrow()
        ours = lh.load_catalog(rest.url, **{"scan-planning-mode": "server"})
        assert rows.num_rows == PARTS
        assert ours.load_table("ns.wide").scan(where=f"id NOT IN {tuple(values)}").count() == PARTS
        too_large = {"filter": {"type": "eq", "term": "id", "value": "x" * 20_000}}
        assert rest.post(plan, too_large).status_code == 413


def test_reports_are_small(tmp_path):
    with serving(tmp_path) as rest:
        report = {"report-type": "commit-report", "metrics": {"a": "x" * MIB}}
        assert rest.post("/namespaces/ns/tables/t/metrics", report).status_code == 413


def test_a_line_of_the_log_names_so_many_tables(tmp_path, caplog):
    names = [{"namespace": ["ns"], "name": f"t{n}"} for n in range(5000)]
    changes = [{"identifier": name, "requirements": [], "updates": []} for name in names]
    with serving(tmp_path) as rest, caplog.at_level("INFO", "lakehouse.server.watching.access_log"):
        assert rest.post("/transactions/commit", {"table-changes": changes}).status_code == 404
        eventually(lambda: any("transactions" in record.getMessage() for record in caplog.records))
    (line,) = [record.getMessage() for record in caplog.records]
    assert (len(json.loads(line)["names"]), json.loads(line)["more_names"]) == (100, 4900)


def special_files(folder):
    """Files that have no end, or no content, by name."""
    os.mkfifo(folder / "pipe")
    (folder / "device").symlink_to("/dev/zero")
    (folder / "folder").mkdir()
    for name, size in (("sparse", 2**40), ("smaller", WHOLE_BYTES_MAX + 1)):
        with (folder / name).open("wb") as file:
            file.truncate(size)
    return [folder / name for name in ("pipe", "device", "folder", "sparse", "smaller")]


@pytest.mark.parametrize("operation", ["register", "register-view"])
def test_what_is_no_file_is_not_registered(operation, tmp_path):
    with serving(tmp_path) as rest:
        for n, file in enumerate(special_files(Path(local_path(rest.lake.warehouse)))):
            body = {"name": f"n{n}", "metadata-location": str(file)}
            answer = rest.post(f"/namespaces/ns/{operation}", body)
            assert error(answer) == (400, "BadRequestException"), (file, answer.text)
        assert requests.get(f"{rest.url}/health", timeout=30).status_code == 200


def test_plans_of_what_is_no_file_fail(tmp_path):
    with serving(tmp_path) as rest:
        for n, file in enumerate(special_files(tmp_path)):
            table = rest.lake.create_table(f"ns.s{n}", ROWS.schema)
            table.append(ROWS)
            listed = table.refresh().current_snapshot().manifest_list.removeprefix("file://")
            Path(listed).unlink()
            file.rename(listed)
            answer = rest.post(f"/namespaces/ns/tables/s{n}/plan", {})
            assert error(answer) == (500, "InternalServerError"), (file, answer.text)
            assert answer.json()["error"]["message"].startswith(("Cannot read", "No file"))
        assert requests.get(f"{rest.url}/health", timeout=30).status_code == 200
