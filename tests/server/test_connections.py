"""Raw HTTP: what is answered at once is what a route would answer, within bounds."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import ExitStack, closing, suppress

import pytest
import requests

from lakehouse.server import http_server
from lakehouse.server.wire.http_connections import HEADERS_BYTES_MAX
from tests.server.conftest import Rest, open_lake, serve
from tests.server.test_hostile_clients import connected, serving, status

TABLE = "/v1/namespaces/ns/tables/t"
TARGETS = [
    TABLE,
    f"{TABLE}?snapshots=refs",
    f"{TABLE}?snapshots=all&snapshots=refs",
    f"{TABLE}?snapshots=some",
    f"{TABLE}?snapshots=",
    f"{TABLE}?",
    f"{TABLE}#part",
    f"{TABLE}?snapshots=refs#part",
    f"{TABLE}/",
    f"{TABLE}%23part",
    f"http://other{TABLE}",
    "/v1/namespaces/ns/tables/%74",
    "/v1/namespaces/ns/tables/none",
    "/v1/namespaces/%6es/tables/t",
    "/v1/namespaces/ns%2Ftables/t",
    "/v1/namespaces/ns/tables/t+",
    "/v1/namespaces/ns/tables/t%2B",
    "/v1/namespaces/ns/tables/%FF",
    "/v1/namespaces/ns/tables/t%2F",
    "/v1//namespaces/ns/tables/t",
    "/v1/namespaces/ns/../ns/tables/t",
    "/V1/namespaces/ns/tables/t",
    "*",
]
HEADERS = [
    "",
    "Accept: application/json\r\n",
    'If-None-Match: "other"\r\n',
    "If-None-Match: {tag}\r\n",
    'If-None-Match: "other", {tag}\r\n',
    "If-None-Match: {tag}\r\nIf-None-Match: other\r\n",
    "If-None-Match: other\r\nIf-None-Match: {tag}\r\n",
    "Origin: http://elsewhere\r\n",
    "Sec-Fetch-Mode: cors\r\n",
    "Sec-Fetch-Mode: navigate\r\n",
    "X-Iceberg-Access-Delegation: vended-credentials\r\n",
    "Content-Length: 0\r\n",
    "Expect: 100-continue\r\n",
    "Upgrade: websocket\r\nConnection: Upgrade\r\n",
    "Authorization: Bearer nobody\r\n",
]


@pytest.fixture(scope="module")
def rest(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("raw")) as found:
        assert found.get(TABLE.removeprefix("/v1")).status_code == 200  # in memory from now on
        yield found


def answered(connection):
    """Status, headers that matter, body of one answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        assert part, data
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 100"):
        return answered(connection)
    found = re.search(rb"content-length: (\d+)", head.lower())
    length = int(found[1]) if found else 0
    while len(body) < length:
        body += connection.recv(65536)
    assert len(body) == length
    named = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
    assert b"date" in named
    kept = {key: named[key] for key in (b"etag", b"content-type", b"retry-after") if key in named}
    return status(head), kept, body


def asked(rest, target, headers, version="1.1"):
    with closing(connected(rest)) as one:
        head = f"GET {target} HTTP/{version}\r\nHost: x\r\n{headers}\r\n"
        one.sendall(head.encode())
        return answered(one)


def tag_of(rest):
    return asked(rest, TABLE, "")[1][b"etag"].decode().replace("w/", "W/")


@pytest.mark.parametrize("headers", HEADERS)
def test_an_answer_is_the_same_whoever_finds_it(rest, headers):
    # what says how long its body is goes its way by a route
    told = headers.format(tag=tag_of(rest))
    routed = "" if "Content-Length" in told else "Content-Length: 0\r\n"
    for target in TARGETS:
        assert asked(rest, target, told) == asked(rest, target, told + routed), target


def test_the_tag_of_a_table_saves_its_body(rest):
    assert asked(rest, TABLE, f"If-None-Match: {tag_of(rest)}\r\n")[::2] == (304, b"")


def test_requests_that_come_together_are_answered_in_turn(rest):
    """Some where their headers are read, some by threads; one in many pieces."""
    targets = ["/v1/config", TABLE, f"{TABLE}?snapshots=refs", "/v1/namespaces", TABLE, "/none"] * 5
    whole = "".join(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n" for target in targets).encode()
    expected = [asked(rest, target, "") for target in targets]
    for size in (len(whole), 7, 61):
        with closing(connected(rest)) as one:
            file = one.makefile("rb")
            for begin in range(0, len(whole), size):
                one.sendall(whole[begin : begin + size])
            for wanted in expected:
                assert read_one(file) == wanted


def read_one(file):
    lines = []
    while (line := file.readline()) != b"\r\n":
        assert line
        lines.append(line.lower().strip())
    named = dict(line.split(b": ", 1) for line in lines[1:])
    body = file.read(int(named.get(b"content-length", 0)))
    kept = {key: named[key] for key in (b"etag", b"content-type", b"retry-after") if key in named}
    return int(lines[0].split()[1]), kept, body


def test_an_older_client_is_hung_up_on_once_it_is_answered(rest):
    with closing(connected(rest, f"GET {TABLE} HTTP/1.0\r\n\r\n".encode())) as one:
        data = b""
        while part := one.recv(65536):
            data += part
    assert status(data) == 200


def test_a_change_of_others_is_told_at_once(rest):
    before = asked(rest, TABLE, "")
    table = rest.lake.load_table("ns.t")
    for n in range(5):
        table.set_properties({"n": str(n)})
        after = asked(rest, TABLE, "")
        assert after != before
        assert f'"n":"{n}"'.encode() in after[2]
        before = after


def test_headers_have_so_many_bytes(rest):
    fits = "x" * (HEADERS_BYTES_MAX - 2048)
    assert asked(rest, TABLE, f"X-Long: {fits}\r\n")[0] == 200
    for begun in (f"GET {TABLE} HTTP/1.1\r\nX-Long: ", f"GET {TABLE}?a="):
        with closing(connected(rest, begun.encode())) as one:
            data = b""
            try:
                for _ in range(64):
                    one.sendall(b"x" * 16384)
                data = one.recv(65536)
            except ConnectionError:  # it did not wait for the rest
                continue
            assert status(data) == 431


def setting(name, value, headers=""):
    """A commit of one property."""
    body = f'{{"updates":[{{"action":"set-properties","updates":{{"{name}":"{value}"}}}}]}}'
    head = f"POST {TABLE} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return f"{head}{body}".encode()


def told(connection):
    """All that comes until the server hangs up."""
    data = b""
    with suppress(ConnectionError):  # it did not wait for the rest of what it was sent
        while part := connection.recv(65536):
            data += part
    return data


@pytest.mark.parametrize(
    "behind",
    [b"\0\r\n\r\n", b"GET http://x HTTP/1.1\r\n\r\n", b"GET /?" + b"x" * 2 * HEADERS_BYTES_MAX],
    ids=["no HTTP", "no target", "too long"],
)
@pytest.mark.parametrize("ahead", [1, 3])
def test_no_refusal_is_told_in_place_of_an_answer(rest, behind, ahead):
    """Who is told 400 deletes what it wanted to commit."""
    with closing(connected(rest)) as one:
        with suppress(ConnectionError):
            one.sendall(setting("ahead", ahead) * ahead + behind)
        answers = re.findall(rb"HTTP/1.1 (\d+)", told(one))
    assert answers == [b"200"] * ahead
    assert rest.lake.load_table("ns.t").metadata.properties["ahead"] == str(ahead)


@pytest.mark.parametrize("upgrade", ["h2c", "TLS/1.2", "websocket"])
@pytest.mark.parametrize("size", [1, 10_000])
def test_an_upgrade_is_passed_over(rest, upgrade, size):
    """Clients in Java offer one with each request: it is answered, and so is the next one."""
    asks = f"Upgrade: {upgrade}\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    get = f"GET {TABLE} HTTP/1.1\r\nHost: x\r\n{asks}\r\n".encode()
    whole = setting("up", f"{upgrade} {size}", asks) + get + setting("up", "no more", asks) + get
    with closing(connected(rest)) as one:
        file = one.makefile("rb")
        for begin in range(0, len(whole), size):
            one.sendall(whole[begin : begin + size])
        answers = [read_one(file) for _ in range(4)]
    assert [answer[0] for answer in answers] == [200] * 4
    for body in (answers[0][2], answers[1][2]):
        assert f'"up":"{upgrade} {size}"'.encode() in body
    assert b'"up":"no more"' in answers[3][2]


def chunked(body, trailers):
    head = f"POST {TABLE} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"%x\r\n%b\r\n0\r\n%b" % (len(body), body, trailers)


def test_fields_behind_a_body_are_no_headers(rest):
    with closing(connected(rest, chunked(b'{"updates":[]}', b"Origin: x\r\n\r\n"))) as one:
        assert answered(one)[0] == 200


def test_fields_behind_a_body_have_so_many_bytes(rest):
    field, fields = b"X: " + b"x" * 1000 + b"\r\n", 100_000
    with closing(connected(rest, chunked(b"{}", b""))) as one, suppress(ConnectionError):
        while fields:
            one.sendall(field)
            fields -= 1
    assert fields


def test_so_many_requests_wait_for_those_before_them(rest):
    many = 10_000
    with closing(connected(rest)) as one:
        sends = threading.Thread(target=lambda: send(one, b"GET /none HTTP/1.1\r\n\r\n" * many))
        sends.start()
        answers = told(one).count(b"HTTP/1.1 404")
        sends.join()
    assert 0 < answers < many


def send(connection, data):
    with suppress(ConnectionError):
        connection.sendall(data)


def test_who_takes_no_answers_does_not_keep_a_server_from_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(http_server, "_HEADERS_SECONDS", 0.3)
    server = serve(open_lake("sqlite", tmp_path)).__enter__()
    with ExitStack() as many:
        rest = Rest(server.url, None, many.enter_context(requests.Session()))
        rest.table("ns", "t", properties={"large": "x" * 200_000})
        for asked_for in (TABLE, "/v1/namespaces/ns/tables/t?snapshots=refs"):
            begun = f"GET {asked_for} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 60
            many.enter_context(closing(connected(rest, begun)))
        ends = threading.Thread(target=server.__exit__, args=(None, None, None), daemon=True)
        ends.start()
        ends.join(600)
        assert not ends.is_alive()


def test_who_comes_when_there_are_too_many_is_told_so(tmp_path, monkeypatch):
    with monkeypatch.context() as few:
        few.setattr(http_server, "_CONNECTIONS", 8)
        with serving(tmp_path) as rest, ExitStack() as many:
            rest.session.close()
            for _ in range(8):
                many.enter_context(closing(connected(rest)))
            told = []
            while not told or told[-1] == 200:  # until the eighth is taken
                with closing(
                    connected(rest, f"GET {TABLE} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                ) as one:
                    told.append(status(one.recv(65536)))
            assert told[-1] == 503
            many.close()
            while True:  # until they are seen to have left
                with closing(socket.create_connection(one_address(rest), timeout=60)) as one:
                    one.sendall(f"GET {TABLE} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                    if status(one.recv(65536)) == 200:
                        break


def one_address(rest):
    host, port = rest.url.removeprefix("http://").split(":")
    return host, int(port)
