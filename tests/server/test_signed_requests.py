"""Requests to S3 that the server signs: for files of a table, and for nothing else."""

from __future__ import annotations

import json
import pickle
from urllib.parse import quote

import pyarrow as pa
import pytest
import requests

import lakehouse as lh
from lakehouse.errors import ForbiddenError, LakehouseError
from lakehouse.server.access.principals_file import read_rules
from lakehouse.server.delegation.file_access import AccessRules
from lakehouse.server.delegation.signable_requests import Endpoint, SignRequest, check_signable
from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import rest_app
from lakehouse.storage.location import lies_within
from tests.guarded_s3 import guarded_s3
from tests.server.guarded import SECRETS, Guarded, rules_file
from tests.server.test_delegated_access import GRANTED, ROWS

OWN = "s3://lake/wh/ann/t"
BASE = "http://store:9000/lake/wh/ann/t"
ENDPOINT = Endpoint("http", "store:9000", "us-east-1")


def is_own(location):
    return lies_within(location, OWN) and not lies_within(OWN, location)


def check(method, uri, *, writes=True, body=None, **headers):
    given = {name.replace("_", "-"): (value,) for name, value in headers.items()}
    check_signable(SignRequest(method, uri, given, body), ENDPOINT, is_own, writes=writes)


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("GET", f"{BASE}/data/x.parquet"),
        ("HEAD", f"{BASE}/metadata/v1.json?versionId=3"),
        ("GET", f"{BASE}/data/day=2026-01-01/a%20b%2Bc"),
        ("GET", f"{BASE}/data/x=a%252Fb/y.parquet"),
        ("GET", "http://lake.store:9000/wh/ann/t/data/x"),
        ("PUT", f"{BASE}/data/x?x-id=PutObject"),
        ("PUT", f"{BASE}/data/x?partNumber=1&uploadId=u"),
        ("POST", f"{BASE}/data/x?uploads"),
        ("POST", f"{BASE}/data/x?uploadId=u"),
        ("DELETE", f"{BASE}/data/x"),
        ("GET", "http://store:9000/lake?list-type=2&prefix=wh%2Fann%2Ft%2F"),
        ("GET", "http://store:9000/lake/?list-type=2&prefix=wh/ann/t/data/&delimiter=/"),
    ],
)
def test_what_a_table_needs(method, uri):
    check(method, uri)


ELSEWHERE = [
    "http://store:9000/lake/wh/ann/t2/x",
    "http://store:9000/lake/wh/ann/t",
    "http://store:9000/lake/wh/ann/t/",
    "http://store:9000/lake/wh/ann/t-beside/x",
    "http://store:9000/lake/wh/ann/T/x",
    "http://store:9000/other/wh/ann/t/x",
    "http://other.store:9000/wh/ann/t/x",
    "http://lake.other.store:9000/wh/ann/t/x",
    "http://store:9000/lake",
    "http://store:9000/",
    "http://store:9000",
    "http://store:9001/lake/wh/ann/t/x",
    "http://elsewhere/lake/wh/ann/t/x",
    "https://store:9000/lake/wh/ann/t/x",
    "http://store:9000@elsewhere/lake/wh/ann/t/x",
    "http://user@store:9000/lake/wh/ann/t/x",
    "http://store:9000.elsewhere/lake/wh/ann/t/x",
    "//store:9000/lake/wh/ann/t/x",
    "http://store:nan/lake/wh/ann/t/x",
    *(
        f"{BASE}/{part}t2/x"
        for part in (
            *("../", "./../", "..%2f", "%2e%2e/", "%2E%2E%2F", ".%2e/", "%252e%252e/", "x/../../"),
            *("..%5c", "..\\", "%2e%2e%5c", "%25252e%25252e/", "..%00/", "..;/"),
        )
    ),
    f"{BASE}//x",
    f"{BASE}/x//y",
    f"{BASE}/x%2F%2Fy",
    f"{BASE}/x%1Fy",
    f"{BASE}/x%00",
    f"{BASE}/x%0d%0aHost:%20y",
    f"{BASE}/x\ny",
    f"{BASE}/x y",
    f"{BASE}/x#fragment",
    f"{BASE}/\u00e9",
    f"{BASE}/%ff",
    "http://store:9000//lake/wh/ann/t/x",
    "http://store:9000/lake//wh/ann/t/x",
    "http://store:9000/LAKE/wh/ann/t/x",
    "http://store:9000/lake%2Fwh/ann/t/x",
    "http://store:9000/../lake/wh/ann/t/x",
    *(
        f"{BASE}/x?{query}"
        for query in (
            *("acl", "policy", "tagging", "torrent", "restore", "select&select-type=2", "uploads"),
            *("legal-hold", "retention", "attributes", "versionId=1&versionId=2", "cors", "acl="),
            *("X-Amz-Algorithm=AWS4-HMAC-SHA256", "versionId=1;acl", "%61cl", "response-expires=1"),
        )
    ),
    "http://store:9000/lake?list-type=2&prefix=wh/ann/",
    "http://store:9000/lake?list-type=2&prefix=wh/ann/t",
    "http://store:9000/lake?list-type=2&prefix=wh/ann/t2/",
    "http://store:9000/lake?list-type=2&prefix=wh/ann/t/../t2/",
    "http://store:9000/lake?list-type=2&prefix=",
    "http://store:9000/lake?list-type=2",
    "http://store:9000/lake?prefix=wh/ann/t/",
    "http://store:9000/lake?list-type=2&prefix=wh/ann/t/&prefix=wh/",
    "http://store:9000/lake?versions&prefix=wh/ann/t/",
    "http://store:9000/lake?policy",
    "http://store:9000/lake?location",
]


@pytest.mark.parametrize("uri", ELSEWHERE)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_nothing_else(method, uri):
    with pytest.raises(ForbiddenError):
        check(method, uri)


@pytest.mark.parametrize("method", ["PATCH", "OPTIONS", "TRACE", "CONNECT", "get", ""])
def test_no_other_methods(method):
    with pytest.raises(ForbiddenError):
        check(method, f"{BASE}/x")


@pytest.mark.parametrize(
    "headers",
    [
        {"x_amz_copy_source": "/lake/wh/ann/t2/x"},
        {"x_amz_acl": "public-read"},
        {"x_amz_grant_read": "uri=all"},
        {"x_amz_tagging": "a=b"},
        {"x_amz_website_redirect_location": "http://x"},
        {"x_amz_security_token": "mine"},
        {"x_amz_object_lock_mode": "GOVERNANCE"},
        {"x_amz_bypass_governance_retention": "true"},
        {"x_http_method_override": "DELETE"},
        {"authorization": "AWS4 mine"},
        {"host": "elsewhere"},
        {"x_amz_meta_a": "b\r\nx-amz-acl: public-read"},
    ],
)
def test_no_other_headers(headers):
    with pytest.raises(ForbiddenError):
        check("PUT", f"{BASE}/x", **headers)


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_who_may_only_read_has_no_change_signed(method):
    with pytest.raises(ForbiddenError):
        check(method, f"{BASE}/x", writes=False)
    check("GET", f"{BASE}/x", writes=False)


def deletion(*keys, more=""):
    listed = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
    return f'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{listed}{more}</Delete>'


@pytest.mark.parametrize(
    "body",
    [
        None,
        "",
        "{}",
        deletion(),
        deletion("wh/ann/t/x", "wh/ann/t2/x"),
        deletion("wh/ann/t/../t2/x"),
        deletion("wh/ann/t/"),
        deletion("wh/ann/t/x", more="<Other><Key>wh/ann/t2/x</Key></Other>"),
        deletion("wh/ann/t/x</Key><Key>wh/ann/t2/x"),
        deletion(*(f"wh/ann/t/{number}" for number in range(1001))),
        '<!DOCTYPE a [<!ENTITY b "wh/ann/t2">]>' + deletion("wh/ann/t/&b;"),
    ],
)
def test_a_deletion_of_several_names_files_of_the_table(body):
    uri = "http://store:9000/lake?delete"
    check("POST", uri, body=deletion("wh/ann/t/x", "wh/ann/t/y%2Fz", more="<Quiet>true</Quiet>"))
    with pytest.raises(ForbiddenError):
        check("POST", uri, body=body)


@pytest.fixture(scope="module")
def store():
    with guarded_s3() as started:
        yield started


@pytest.fixture(scope="module")
def server(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("signed")
    lake = lh.load_catalog(f"sqlite:///{folder}/catalog.db", warehouse="s3://lake/wh", **store.keys)
    rules = read_rules(rules_file(folder, roles=GRANTED))
    app = rest_app(lake, rules=rules, access=AccessRules(signs=True))
    with HttpServer(app, "127.0.0.1", 0, is_guarded=True) as started:
        yield Guarded(started.url, lake)


def ours(server, name):
    return lh.load_catalog(server.url, credential=f"{name}:{SECRETS[name]}")


@pytest.fixture(scope="module")
def table(server):
    made = ours(server, "ann").create_table("ann.t", ROWS.schema)
    made.append(ROWS)
    return made


def test_our_client_works_without_keys(server, table):
    lake = ours(server, "ann")
    table = lake.load_table("ann.t")
    table.append(ROWS)
    table.delete(where="id = 2")
    table.compact()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 1, 3, 3]
    storage = pickle.loads(pickle.dumps(lake.catalog.storage(table.location)))  # noqa: S301
    assert "s3.secret-access-key" not in storage.properties
    big = f"{table.location}/data/big"
    with storage.open_output(big) as stream:
        for number in range(25):
            stream.write(bytes([number]) * 1024 * 1024)
    assert storage.size(big) == 25 * 1024 * 1024
    assert storage.read_range(big, 24 * 1024 * 1024, 10) == bytes([24]) * 10
    names = [f"{table.location}/data/{name}" for name in ("a b", "ü", "x=a%2Fb", "p+q", "*'()!~")]
    storage.write_new(dict.fromkeys(names, b"x"))
    assert {one.location for one in storage.list(f"{table.location}/data")} >= {*names, big}
    assert "data" in storage.list_folders(table.location)
    with pytest.raises(LakehouseError, match="exists"):
        storage.create(names[0], b"y")
    assert storage.delete([*names, big]).failed == {}
    assert not storage.exists(names[0])


def test_who_may_read_reads(server, table):
    lake = ours(server, "bob")
    assert lake.load_table("ann.t").scan().count() > 0
    with pytest.raises(ForbiddenError):
        lake.catalog.storage(table.location).write(f"{table.location}/x", b"x")


def test_the_storage_stays_in_its_table(server, table):
    lake = ours(server, "ann")
    lake.create_table("ann.beside", ROWS.schema).append(ROWS)
    storage = lake.catalog.storage(lake.load_table("ann.t").location)
    beside = lake.load_table("ann.beside").metadata_location
    with pytest.raises(ForbiddenError):
        storage.read(beside)
    assert storage.delete([beside]).failed
    with pytest.raises(ForbiddenError):
        next(iter(storage.list("s3://lake/wh/ann")))


def test_a_signature_is_of_one_request(server, store, table):
    """The store takes it for what was signed, and for nothing else."""
    key = table.metadata_location.removeprefix("s3://lake/")
    uri = f"{store.endpoint}/lake/{quote(key)}"

    def signed(method, uri, body=None, **headers):
        document = {
            "region": "us-east-1",
            "method": method,
            "uri": uri,
            "headers": {name: [value] for name, value in headers.items()},
            "body": body,
        }
        return server.ask(server.token("ann"), "POST", "/namespaces/ann/tables/t/sign", document)

    answer = signed("GET", uri)
    assert answer.headers["Cache-Control"] == "no-cache"
    headers = {name: values[0] for name, values in answer.json()["headers"].items()}
    assert requests.get(uri, headers=headers, timeout=10).status_code == 200
    assert requests.get(f"{uri}x", headers=headers, timeout=10).status_code == 403
    assert requests.delete(uri, headers=headers, timeout=10).status_code == 403
    assert requests.get(uri, timeout=10).status_code == 403
    assert store.keys["s3.secret-access-key"] not in answer.text
    other = uri.replace("/ann/", "/other/")
    assert signed("GET", other).status_code == 403
    assert signed("GET", uri, provider="x").status_code == 200  # a header of that name
    assert server.ask(None, "POST", "/namespaces/ann/tables/t/sign", {}).status_code == 401
    bad = server.ask(server.token("ann"), "POST", "/namespaces/ann/tables/t/sign", {"a": 1})
    assert bad.status_code == 400
    body = deletion(key)
    asked = signed("POST", f"{store.endpoint}/lake?delete", body)
    assert asked.status_code == 200
    headers = {name: values[0] for name, values in asked.json()["headers"].items()}
    assert headers["x-amz-content-sha256"] != "UNSIGNED-PAYLOAD"
    assert json.dumps(headers).count("AWS4-HMAC-SHA256") == 1


def test_who_writes_over_the_metadata_file_has_no_other_table_s_requests_signed(store, tmp_path):
    """Beside the same test of credentials: what the file says of folders is anybody's word."""
    catalog = f"sqlite:///{tmp_path}/forged.db"
    lake = lh.load_catalog(catalog, warehouse="s3://lake/forged", **store.keys)
    bank, made = (lake.create_table(name, ROWS.schema) for name in ("bank.secret", "ann.t"))
    for one in (bank, made):
        one.append(ROWS)
    own = f"{made.location}/metadata"
    file, storage = made.refresh().metadata_location, lake.catalog.storage(made.location)
    honest = json.loads(storage.read(file))
    wanted = [bank.refresh().metadata_location, bank.current_snapshot().manifest_list]
    rules = read_rules(rules_file(tmp_path, roles=GRANTED))
    sign = "/namespaces/ann/tables/t/sign"
    for place, more, is_signed in (
        (made.location, {}, True),
        (made.location, {"write.data.path": bank.location}, True),
        (made.location, {"write.folder-storage.path": bank.location}, True),
        (bank.location, {}, False),
        (bank.location, {"write.metadata.path": own}, False),
        ("s3://lake/forged", {"write.metadata.path": own}, False),
    ):
        forged = {**honest, "location": place, "properties": more}
        storage.write(file, json.dumps(forged).encode())
        lake = lh.load_catalog(catalog, warehouse="s3://lake/forged", **store.keys)
        app = rest_app(lake, rules=rules, access=AccessRules(signs=True))
        with HttpServer(app, "127.0.0.1", 0, is_guarded=True) as started:
            server = Guarded(started.url, lake)
            for name in ("ann", "bob"):
                asked = [
                    {"region": "us-east-1", "method": "GET", "headers": {}}
                    | {"uri": one.replace("s3://", f"{store.endpoint}/")}
                    for one in (file, *wanted)
                ]
                told = [server.ask(server.token(name), "POST", sign, one) for one in asked]
                expected = [200 if is_signed else 403, 403, 403]
                assert [one.status_code for one in told] == expected, (place, more)
                loaded = server.ask(
                    server.token(name),
                    "GET",
                    sign[:-5],
                    **{"X-Iceberg-Access-Delegation": "remote-signing"},
                )
                assert ("remote-signing-config" in loaded.json()) == is_signed


def test_rows_of_many_columns(server):
    """More than one part of a file, read by columns."""
    lake = ours(server, "ann")
    wide = pa.table({f"c{number}": range(1000) for number in range(30)})
    made = lake.create_table("ann.wide", wide.schema)
    made.append(wide)
    found = made.scan(select=["c7"], where="c3 > 990").to_arrow()
    assert found["c7"].to_pylist() == list(range(991, 1000))


def test_a_server_of_the_older_name_signs_where_it_says(store, tmp_path):
    """Some servers, Nessie is one, say `s3.signer.endpoint` alone, and it is a place of theirs."""
    folder = f"sqlite:///{tmp_path}/older.db"
    lake = lh.load_catalog(folder, warehouse="s3://lake/older", **store.keys)
    rules = read_rules(rules_file(tmp_path, roles=GRANTED))
    app = rest_app(lake, rules=rules, access=AccessRules(signs=True))
    asked = []

    async def older(scope, receive, send):
        """The same server, which signs at `/SIGN`; what it says keeps its length."""

        async def told(message):
            body = message.get("body", b"")
            body = body.replace(b'"signer.endpoint"', b'"ignore.endpoint"')
            await send(message | ({"body": body.replace(b'/sign"', b'/SIGN"')} if body else {}))

        if scope["type"] == "http":
            asked.append(scope["path"].rpartition("/")[2])
            path = scope["path"].replace("/sign", "/nothing").replace("/SIGN", "/sign")
            plain = [(name, value) for name, value in scope["headers"] if b"encoding" not in name]
            scope = scope | {"path": path, "raw_path": path.encode(), "headers": plain}
        await app(scope, receive, told)

    with HttpServer(older, "127.0.0.1", 0, is_guarded=True) as started:
        made = ours(Guarded(started.url, lake), "ann").create_table("ann.old", ROWS.schema)
        made.append(ROWS)
        assert made.scan().count() == ROWS.num_rows
        assert made.scan().to_arrow().sort_by("id").equals(ROWS)
    assert "SIGN" in asked
    assert "sign" not in asked
