"""Clients without keys of their own: credentials for one table, judged by a store that looks."""

from __future__ import annotations

import dataclasses
import json
import pickle
import time
import traceback

import pyarrow as pa
import pytest
import requests
from botocore.exceptions import ClientError
from pyiceberg.catalog.rest import RestCatalog

import lakehouse as lh
from lakehouse.environment import Environment
from lakehouse.errors import LakehouseError, UnsupportedFeatureError
from lakehouse.server.access.principals_file import read_rules
from lakehouse.server.access.privileges import ANYONE
from lakehouse.server.delegation.file_access import AccessRules, FileAccess, session_policy
from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import rest_app
from lakehouse.storage.object_store import ObjectStorage
from tests.guarded_s3 import guarded_s3
from tests.server.guarded import SECRETS, Guarded, rules_file

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
GRANTED = {
    "root": [{"in": "*", "may": ["manage"]}],
    "ann": [{"in": "ann", "may": ["write", "create", "drop"]}],
    "bob": [{"in": "ann.t", "may": ["read"]}],
}


@pytest.fixture(scope="module")
def store():
    with guarded_s3() as started:
        yield started


@pytest.fixture(scope="module")
def server(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("delegated")
    yield from serving(store, folder)


def serving(store, folder, **more):
    lake = lh.load_catalog(f"sqlite:///{folder}/catalog.db", warehouse="s3://lake/wh", **store.keys)
    rules = read_rules(rules_file(folder, roles=GRANTED))
    access = AccessRules(role=store.role, sts_endpoint=store.endpoint, **more)
    app = rest_app(lake, rules=rules, access=access)
    with HttpServer(app, "127.0.0.1", 0, is_guarded=True) as started:
        yield Guarded(started.url, lake)


def login(server, name):
    return {
        "credential": f"{name}:{SECRETS[name]}",
        "oauth2-server-uri": f"{server.url}/v1/oauth/tokens",
    }


def ours(server, name):
    return lh.load_catalog(server.url, **login(server, name))


def theirs(server, name):
    return RestCatalog("lake", uri=server.url, **login(server, name))


def credentials(server, name, table="ann/tables/t"):
    path = f"/namespaces/{table}"
    answer = server.ask(
        server.token(name), "GET", path, **{"X-Iceberg-Access-Delegation": "vended-credentials"}
    )
    assert answer.status_code == 200, answer.text
    return answer


def test_the_store_knows_no_stranger(store):
    with pytest.raises(ClientError, match=r"InvalidAccessKeyId|AccessDenied|Forbidden"):
        store.client().list_objects_v2(Bucket="lake")


@pytest.mark.parametrize("version", [2, 3])
def test_our_client_reads_and_writes_without_keys(server, version):
    lake = ours(server, "ann")
    table = lake.create_table(f"ann.v{version}", ROWS.schema, format_version=version)
    table.append(ROWS)
    table.append(ROWS)
    table.delete(where="id = 2")
    table.compact()
    assert sorted(lake.load_table(f"ann.v{version}").scan().to_arrow()["id"].to_pylist()) == [
        1,
        1,
        3,
        3,
    ]
    assert "s3.secret-access-key" not in lake.catalog.properties


def test_pyiceberg_reads_and_writes_without_keys(server):
    catalog = theirs(server, "ann")
    catalog.create_namespace_if_not_exists("ann")
    table = catalog.create_table("ann.iceberg", ROWS.schema)
    table.append(ROWS)
    table.delete("id = 1")
    assert catalog.load_table("ann.iceberg").scan().to_arrow()["id"].to_pylist() == [2, 3]
    assert ours(server, "ann").load_table("ann.iceberg").scan().count() == 2
    with catalog.create_table_transaction("ann.staged", ROWS.schema) as transaction:
        transaction.append(ROWS)
    assert catalog.load_table("ann.staged").scan().count() == 3


def test_duckdb_reads_and_writes_without_keys(server, duck):
    made = ours(server, "ann").create_table("ann.duck", ROWS.schema)
    made.append(ROWS)
    duck.sql(
        f"CREATE SECRET ann (TYPE iceberg, CLIENT_ID 'ann', CLIENT_SECRET '{SECRETS['ann']}', "
        f"OAUTH2_SERVER_URI '{server.url}/v1/oauth/tokens')"
    )
    duck.sql(f"ATTACH 'lakehouse' AS vended (TYPE iceberg, ENDPOINT '{server.url}', SECRET ann)")
    try:
        assert duck.sql("SELECT count(*) FROM vended.ann.duck").fetchall() == [(3,)]
        duck.sql("INSERT INTO vended.ann.duck VALUES (9, 'z')")
        # staged: its requests name the current schema last
        duck.sql("CREATE TABLE vended.ann.made AS SELECT id FROM vended.ann.duck WHERE id > 2")
    finally:
        duck.sql("DETACH vended")
        duck.sql("DROP SECRET ann")
    lake = ours(server, "ann")
    assert lake.load_table("ann.duck").scan().count() == 4
    assert sorted(lake.load_table("ann.made").scan().to_arrow()["id"].to_pylist()) == [3, 9]


@pytest.fixture(scope="module")
def table(server):
    lake = ours(server, "ann")
    made = lake.create_table("ann.t", ROWS.schema)
    made.append(ROWS)
    lake.create_table("ann.t2", ROWS.schema).append(ROWS)
    return made


def test_who_may_read_reads_and_writes_nothing(server, store, table):
    assert ours(server, "bob").load_table("ann.t").scan().count() == 3
    assert theirs(server, "bob").load_table("ann.t").scan().count() == 3
    with pytest.raises(LakehouseError):
        ours(server, "bob").load_table("ann.t").append(ROWS)
    config = credentials(server, "bob").json()["storage-credentials"][0]["config"]
    key = table.metadata_location.removeprefix("s3://lake/")
    client = store.client(**config)
    assert client.get_object(Bucket="lake", Key=key)["ContentLength"] > 0
    for change in (
        lambda: client.put_object(Bucket="lake", Key=f"{key}.new", Body=b"x"),
        lambda: client.delete_object(Bucket="lake", Key=key),
    ):
        with pytest.raises(ClientError, match=r"AccessDenied|Forbidden"):
            change()


def test_credentials_end_at_the_table(server, store, table):
    found = credentials(server, "ann").json()
    (one,) = found["storage-credentials"]
    assert one["prefix"] == f"{table.location}/"
    client = store.client(**one["config"])
    own = table.location.removeprefix("s3://lake/")
    beside = ours(server, "ann").load_table("ann.t2").metadata_location.removeprefix("s3://lake/")
    client.put_object(Bucket="lake", Key=f"{own}/data/x", Body=b"x")
    assert client.list_objects_v2(Bucket="lake", Prefix=f"{own}/")["KeyCount"] > 1
    for key in (beside, f"{own}-beside/x", f"{own}/../x", "wh/ann/x", "x"):
        for attempt in (
            lambda key=key: client.get_object(Bucket="lake", Key=key),
            lambda key=key: client.put_object(Bucket="lake", Key=key, Body=b"x"),
            lambda: client.get_object(Bucket="other", Key=f"{own}/data/x"),
            lambda: client.list_objects_v2(Bucket="lake", Prefix="wh/"),
            lambda: client.list_objects_v2(Bucket="lake"),
            lambda: client.get_bucket_policy(Bucket="lake"),
        ):
            if key.startswith(f"{own}/.."):
                continue  # a key of that name, below the table
            with pytest.raises(ClientError, match=r"AccessDenied|Forbidden|\(403\)"):
                attempt()


@pytest.mark.parametrize(
    "location", ["abfss://lake@ana.dfs.core.windows.net/wh/t", "gs://lake/wh/t", "file:///wh/t"]
)
def test_the_server_s_keys_to_other_storages_are_given_to_nobody(tmp_path, location):
    """Neither they nor tokens that open more than the table."""
    table = lh.load_catalog(str(tmp_path)).create_table("ann.t", ROWS.schema)
    metadata = dataclasses.replace(table.metadata, location=location)
    keys = {"s3.region": "us-east-1", "adls.account-key": "c2VjcmV0", "gcs.oauth2.token": "secret"}
    access = FileAccess(keys, AccessRules("role", signs=True), Environment.system())
    asked = (ANYONE, table.identifier, metadata)
    assert access.offered("vended-credentials,remote-signing", *asked) is None
    scheme = location.partition(":")[0]
    with pytest.raises(UnsupportedFeatureError, match=f"{scheme}://: on S3 alone"):
        access.credentials(*asked)


def test_a_name_with_wildcards_is_one_name():
    policy = json.loads(session_policy(["s3://lake/wh/a*?$b"], writes=False))
    read, listed, _ = policy["Statement"]
    assert read["Resource"] == ["arn:aws:s3:::lake/wh/a${*}${?}${$}b/*"]
    assert listed["Condition"]["StringLike"]["s3:prefix"] == ["wh/a${*}${?}${$}b/*"]
    assert not any("Put" in one or "Delete" in one for one in read["Action"])


def test_nobody_gets_credentials_who_may_not_read(server, table):
    for name in ("bob", "ann", None):
        token = None if name is None else server.token(name)
        for path in ("ann/tables/t2", "marts/tables/t"):
            if (name, path) == ("ann", "ann/tables/t2"):
                continue
            answer = server.ask(token, "GET", f"/namespaces/{path}/credentials")
            assert answer.status_code in (401, 403), (name, path)
            assert "access-key" not in answer.text


def test_only_who_asks_for_access_gets_it(server, table):
    answer = server.ask(server.token("ann"), "GET", "/namespaces/ann/tables/t")
    assert answer.json()["config"] == {}
    assert "storage-credentials" not in answer.json()
    endpoints = requests.get(
        f"{server.url}/v1/config",
        headers={"Authorization": f"Bearer {server.token('ann')}"},
        timeout=30,
    ).json()["endpoints"]
    path = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"
    assert f"GET {path}/credentials" in endpoints
    assert f"POST {path}/sign" not in endpoints


def test_one_tag_is_of_one_caller_s_credentials(server, table):
    wanted = {"X-Iceberg-Access-Delegation": "vended-credentials"}
    tags = {name: credentials(server, name).headers["ETag"] for name in ("ann", "bob")}
    plain = server.ask(server.token("ann"), "GET", "/namespaces/ann/tables/t").headers["ETag"]
    assert plain not in tags.values()
    path = "/namespaces/ann/tables/t"
    again = server.ask(server.token("ann"), "GET", path, **{**wanted, "If-None-Match": tags["ann"]})
    assert again.status_code == 304


@pytest.mark.slow
def test_credentials_are_renewed_while_a_table_is_open(tmp_path):
    """The store ends sessions after four seconds."""
    with guarded_s3(session_seconds=4) as store:
        for server in serving(store, tmp_path, seconds=900):
            lake = ours(server, "ann")
            table = lake.create_table("ann.t", ROWS.schema)
            sent = pickle.dumps(lake.catalog.storage(table.location))  # as workers get it
            worker = pickle.loads(sent)  # noqa: S301
            until = time.monotonic() + 9
            appended = 0
            while time.monotonic() < until or appended < 9:
                table.append(ROWS)
                appended += 3
                assert table.scan().count() == appended
                time.sleep(0.5)
                assert worker.read(table.metadata_location)


@pytest.mark.slow
def test_a_scan_goes_on_when_its_credentials_end_in_the_middle(tmp_path, monkeypatch):
    """Sixty files; the store ends sessions after four seconds, and the reader waits for five."""
    read = []
    read_range = ObjectStorage.read_range
    monkeypatch.setattr(
        ObjectStorage,
        "read_range",
        lambda self, *where: read.append(where[0]) or read_range(self, *where),
    )
    with guarded_s3(session_seconds=4) as store:
        for server in serving(store, tmp_path, seconds=900):
            table = ours(server, "ann").create_table("ann.t", ROWS.schema, partition_by=["id"])
            table.append(pa.table({"id": range(60), "name": ["x"] * 60}))
            batches = iter(ours(server, "ann").load_table("ann.t").scan().to_batches())
            (one,) = credentials(server, "ann").json()["storage-credentials"]
            client = store.client(**one["config"])
            key = table.metadata_location.removeprefix("s3://lake/")
            ids = next(batches)["id"].to_pylist()
            client.get_object(Bucket="lake", Key=key)
            time.sleep(5)
            with pytest.raises(ClientError):
                client.get_object(Bucket="lake", Key=key)
            before = len(read)
            ids += [found for batch in batches for found in batch["id"].to_pylist()]
            assert sorted(ids) == list(range(60))
            assert len(read) > before


def test_a_secret_is_in_no_error(server, store, table, caplog):
    config = credentials(server, "bob").json()["storage-credentials"][0]["config"]
    with pytest.raises(LakehouseError) as caught:
        ours(server, "bob").load_table("ann.t").append(ROWS)
    text = "".join(traceback.format_exception(caught.value)) + str(caught.value.context)
    secrets = {value for key, value in config.items() if "expires" not in key}
    secrets |= {store.keys["s3.secret-access-key"]}
    assert not [secret for secret in secrets if secret in text + caplog.text]


@pytest.mark.slow
def test_who_writes_over_the_metadata_file_gets_no_more_than_the_table(tmp_path):
    """Ann may write each file of her table, the one that says where the table lies, too."""
    with guarded_s3() as store:
        for server in serving(store, tmp_path):
            bank = server.lake.create_table("bank.secret", ROWS.schema)
            bank.append(ROWS)
            made = ours(server, "ann").create_table("ann.t", ROWS.schema)
            made.append(ROWS)
            told = credentials(server, "ann").json()
        key = told["metadata-location"].removeprefix("s3://lake/")
        hers = store.client(**told["storage-credentials"][0]["config"])
        own = f"{made.location}/metadata"
        path, home = "/namespaces/ann/tables/t", "s3://lake/wh"
        for place, more in (
            (bank.location, {}),
            (home, {}),
            (f"{home}/ann", {}),
            (bank.location, {"write.metadata.path": own}),
            (home, {"write.metadata.path": own}),
        ):
            forged = {**told["metadata"], "location": place, "properties": more}
            hers.put_object(Bucket="lake", Key=key, Body=json.dumps(forged).encode())
            for server in serving(store, tmp_path):  # it reads the file anew
                for name in ("ann", "bob"):
                    assert "storage-credentials" not in credentials(server, name).json()
                    token = server.token(name)
                    assert server.ask(token, "GET", f"{path}/credentials").status_code == 403
                token = server.token("ann")
                for update in (
                    {"action": "set-properties", "updates": {"a": "b"}},
                    {"action": "remove-properties", "removals": ["write.metadata.path"]},
                ):
                    answer = server.ask(token, "POST", path, {"updates": [update]})
                    assert answer.status_code in (400, 403), (place, more, answer.text)
                body = {"statements": [], "removals": []}
                said = f"/semantics{path}"
                assert server.ask(token, "POST", said, body).status_code in (400, 403)
                assert server.ask(token, "POST", f"{path}/plan", {}).status_code in (200, 403)
                assert server.lake.load_table("bank.secret").scan().count() == 3
