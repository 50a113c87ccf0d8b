"""Clients that send much, slowly, or never take what they asked for: others are answered."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import requests

from lakehouse.server import http_server, large_bodies
from lakehouse.server.http_server import HttpServer
from lakehouse.server.memory_bounds import MIB, MemoryBounds
from lakehouse.server.rest_app import rest_app
from tests.server.conftest import SCHEMA, Rest, open_lake
from tests.server.test_server_faults import free_port, start
from tests.server.test_view_operations import version

METRICS = "/v1/namespaces/ns/tables/t/metrics"
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
    with HttpServer(app, "127.0.0.1", 0) as server, requests.Session() as session:
        rest = Rest(server.url, lake, session)
        rest.table("ns", "t")
        yield rest
    MemoryBounds().bound_process()


def connected(rest, begun=b""):
    host, port = rest.url.removeprefix("http://").split(":")
    found = socket.create_connection((host, int(port)), timeout=60)
    found.sendall(begun)
    return found


def post(size=None):
    head = f"POST {METRICS} HTTP/1.1\r\nHost: x\r\n"
    length = "Transfer-Encoding: chunked" if size is None else f"Content-Length: {size}"
    return f"{head}{length}\r\n\r\n".encode()


def status(answer):
    return int(re.match(rb"HTTP/1.1 (\d+)", answer)[1])


def posted(rest, body):
    return requests.post(rest.url + METRICS, data=body, timeout=60)


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


@pytest.mark.parametrize("begun", [BEGUN["headers"], BEGUN["body"]])
def test_who_sends_a_byte_now_and_then_is_hung_up_on(tmp_path, monkeypatch, begun):
    monkeypatch.setattr(http_server, "_HEADERS_SECONDS", 0.3)
    monkeypatch.setattr(large_bodies, "PATIENCE_SECONDS", 0.3)
    with serving(tmp_path) as rest, closing(connected(rest, begun)) as one:
        one.settimeout(0.02)
        until = time.monotonic() + 60
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
            until = time.monotonic() + 60
            refused = posted(rest, as_text(500_000))
            while refused.status_code != 503 and time.monotonic() < until:
                refused = posted(rest, as_text(500_000))  # it came before the first
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert posted(rest, as_text(500_000)).status_code in (400, 503)


def test_what_is_too_large_is_refused_before_it_is_sent(tmp_path):
    with serving(tmp_path, bodies=MIB) as rest:
        for size in (MIB + 1, 10**12, 10**19, "9" * 400):
            with closing(connected(rest, post(size))) as one:
                answer = one.recv(65536)
                assert status(answer) in (413, 400)
                # nobody sends a next request behind a body that is not read
                assert status(answer) == 400 or b"connection: close" in answer.lower()
        assert posted(rest, b'{"a":[%b1]}' % (b"{}," * 30_000)).status_code == 413
        assert posted(rest, b'{"a":[%b1]}' % (b"12345678," * 9_000)).status_code == 400


def peak_mib(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) // 1024


def test_the_process_stays_small(tmp_path):
    """What the operating system measured, beside what a server has in memory that is asked little.

    Each body stays below what one may have; together they are 960 MiB.
    """
    port = free_port()
    server = start(
        f"sqlite:///{tmp_path}/c.db", str(tmp_path / "wh"), port, "--memory", "bodies=64"
    )
    try:
        rest = Rest(f"http://127.0.0.1:{port}", None, requests.Session())
        rest.table("ns", "t")
        before, found = peak_mib(server.pid), []
        wide = b'{"a":[%b1]}' % (b"{}," * 20_000_000)
        text = as_text(60_000_000)
        clients = [
            threading.Thread(target=lambda body=body: found.append(posted(rest, body).status_code))
            for body in [text] * 12 + [wide] * 4
        ]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        assert sorted(found) == [400] * 12 + [413] * 4
        assert peak_mib(server.pid) - before < 400
    finally:
        server.kill()
        server.wait()


VIEWS = "/namespaces/ns/views"
LARGE = version(sql="x" * 20 * MIB)  # more than stands in the buffers between
ASKED = f"GET /v1{VIEWS}/v HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def asked_again(rest):
    """What is answered once it is not 503."""
    until = time.monotonic() + 60
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
