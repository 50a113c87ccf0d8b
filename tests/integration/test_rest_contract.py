"""What a managed catalog sees of our client: names, places, logins, keys, tags."""

from __future__ import annotations

import threading
import traceback
import uuid

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import (
    CommitStateUnknownError,
    InvalidInputError,
    InvalidLocationError,
    StorageError,
)
from tests.conformance.managed_rest import CLIENT, NAME, SECRET, managed_rest
from tests.waiting import eventually

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def server(tmp_path):
    with managed_rest(tmp_path / "chosen") as started:
        yield started


def connect(server, **more):
    properties = {"credential": f"{CLIENT}:{SECRET}", "rest.retry-timeout-ms": "2000", **more}
    return lh.load_catalog(server.url, warehouse=NAME, **properties)


def test_a_warehouse_is_a_name_and_the_catalog_chooses_the_location(server, tmp_path):
    lake = connect(server)
    assert lake.warehouse == NAME
    table = lake.create_table("m.t", ROWS.schema)
    sent = server.changes()[-1]
    assert sent.path == "/v1/p/q/namespaces/m/tables"
    assert "location" not in sent.body
    assert sent.headers["x-iceberg-access-delegation"].startswith("vended-credentials")
    assert table.location == str(tmp_path / "chosen" / "t")
    table.append(ROWS)
    assert table.compact() is not None
    assert connect(server).load_table("m.t").scan().count() == 3
    lake.create_table("m.put", ROWS.schema, location=f"{tmp_path}/elsewhere")
    assert server.changes()[-1].body["location"] == f"file://{tmp_path}/elsewhere"
    with pytest.raises(InvalidInputError, match="no such warehouse"):
        lh.load_catalog(server.url, warehouse="other", credential=f"{CLIENT}:{SECRET}")


def test_new_schemas_are_sent_with_the_last_column_id(server):
    """Deprecated since, and required of them by catalogs such as Nessie 0.99."""

    def told():
        updates = server.changes()[-1].body["updates"]
        return [update["last-column-id"] for update in updates if update["action"] == "add-schema"]

    table = connect(server).create_table("m.t", ROWS.schema)
    with table.update_schema() as change:
        change.add_column("a", "int")
        change.add_column("b", "int")
    assert told() == [3]
    # ids of columns that are gone are not given again
    with table.update_schema() as change:
        change.drop_column("b")
    assert told() == [3]
    with table.update_schema() as change:
        change.add_column("c", "int")
    assert told() == [4]


def test_a_location_as_warehouse_confines(server, tmp_path):
    lake = connect(server, **{"allowed-locations": f"{tmp_path}/here"})
    with pytest.raises(InvalidLocationError):
        lake.create_table("m.t", ROWS.schema, location=f"{tmp_path}/elsewhere")


def test_defaults_and_overrides(server):
    server.policy.defaults = {"s3.region": "default", "a": "default"}
    server.policy.overrides |= {"s3.endpoint": "http://theirs", "b": "override"}
    found = connect(server, **{"s3.region": "ours", "b": "ours"}).catalog.properties
    wanted = {"s3.region": "ours", "a": "default", "b": "override", "s3.endpoint": "http://theirs"}
    assert {key: found[key] for key in wanted} == wanted


def test_an_override_of_the_address_is_followed(server, tmp_path):
    with managed_rest(tmp_path / "second") as second:
        server.policy.overrides["uri"] = second.url
        connect(server).create_table("m.t", ROWS.schema)
        assert "t" in second.locations
        assert "t" not in server.locations


def test_levels_are_joined_as_the_server_says(server):
    lake = connect(server)
    lake.catalog.namespace_exists(("a", "b"))
    assert server.asked[-1].path == "/v1/p/q/namespaces/a.b"


def test_a_token_is_asked_for_again_before_and_when_it_ends(server):
    server.policy.token_seconds = 1.0
    lake = connect(server)
    lake.create_table("m.t", ROWS.schema)
    threading.Event().wait(1.0)
    lake.load_table("m.t").append(ROWS)
    assert 2 <= len(server.tokens) <= 6
    refused = [one for one in server.asked if one.path.endswith("/t")]
    server.tokens.clear()  # revoked
    lake.load_table("m.t").append(ROWS)
    assert len(server.tokens) >= 1
    assert lake.load_table("m.t").scan().count() == 6
    assert refused


def test_a_secret_that_does_not_hold_is_quoted_nowhere(server):
    wrong = uuid.uuid4().hex
    with pytest.raises(StorageError, match="not known") as caught:
        connect(server, credential=f"{CLIENT}:{wrong}")
    text = "".join(traceback.format_exception(caught.value)) + str(caught.value.context)
    assert wrong not in text


def test_what_has_not_changed_is_not_sent_again(server):
    lake = connect(server)
    table = lake.create_table("m.t", ROWS.schema)
    first = lake.catalog.load(table.identifier)
    assert lake.catalog.load(table.identifier) is first
    assert "if-none-match" in server.asked[-1].headers
    connect(server).load_table("m.t").append(ROWS)
    assert lake.catalog.load(table.identifier) is not first
    assert lake.load_table("m.t").scan().count() == 3


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_with_keys_a_change_is_sent_until_it_is_answered(server, status, lands):
    server.policy.more = {"idempotency-key-lifetime": "PT30M"}
    lake = connect(server)
    table = lake.create_table("m.t", ROWS.schema)
    server.policy.failures, server.policy.lands = [status], lands
    table.set_properties({"a": "b"})
    keys = [change.headers["idempotency-key"] for change in server.changes()[1:]]
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert uuid.UUID(keys[0]).version == 7
    table.set_properties({"c": "d"})
    assert server.changes()[-1].headers["idempotency-key"] != keys[0]
    assert len(lake.load_table("m.t").metadata.metadata_log) == 2


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_without_keys_nothing_is_sent_twice(server, status):
    lake = connect(server)
    table = lake.create_table("m.t", ROWS.schema)
    server.policy.failures, server.policy.lands = [status], True
    with pytest.raises(CommitStateUnknownError):
        table.set_properties({"a": "b"})
    assert "idempotency-key" not in server.changes()[-1].headers
    assert len(server.changes()) == 2
    server.policy.failures = [status]
    table.append(ROWS)  # found by its snapshot's id
    assert lake.load_table("m.t").scan().count() == 3


def test_a_server_that_is_not_there_was_certainly_asked_nothing():
    with pytest.raises(StorageError) as caught:
        lh.load_catalog("http://127.0.0.1:1", **{"rest.retry-timeout-ms": "0"})
    assert caught.value.commit_outcome == "failed"


def test_a_transaction_over_tables(server):
    lake = connect(server)
    for name in ("m.a", "m.b"):
        lake.create_table(name, ROWS.schema)
    with lake.transaction() as tx:
        tx.table("m.a").append(ROWS)
        tx.table("m.b").append(ROWS)
    sent = server.changes()[-1]
    assert sent.path == "/v1/p/q/transactions/commit"
    assert [one["identifier"]["name"] for one in sent.body["table-changes"]] == ["a", "b"]
    assert {lake.load_table(name).scan().count() for name in ("m.a", "m.b")} == {3}


def test_a_login_of_another_kind_is_refused(server):
    with pytest.raises(InvalidInputError, match=r"rest\.auth\.type = kerberos"):
        connect(server, **{"rest.auth.type": "kerberos"})


def test_what_was_scanned_and_committed_is_reported(server):
    lake = connect(server)
    table = lake.create_table("m.t", ROWS.schema)
    table.append(ROWS)
    table.scan(where="id = 1", select=["id"]).to_arrow()
    eventually(lambda: len(server.reports()) == 2)
    committed, scanned = server.reports()
    snapshot = table.refresh().current_snapshot()
    assert committed["snapshot-id"] == scanned["snapshot-id"] == snapshot.snapshot_id
    assert committed["metrics"]["added-records"] == {"unit": "count", "value": 3}
    assert scanned["metrics"]["result-data-files"] == {"unit": "count", "value": 1}
    assert (scanned["projected-field-ids"], scanned["filter"]) == ([1], True)
    # as pyiceberg's and Java's servers read them: every metric has its unit or its time
    for one in (committed, scanned):
        assert all({"unit", "value"} == {*m} or "time-unit" in m for m in one["metrics"].values())
        assert one["table-name"] == "lakehouse.m.t"
    server.policy.defaults = {"rest-metrics-reporting-enabled": "false"}
    assert not connect(server).catalog.takes_reports
