"""Tables of format version 1: clients write them through the server, we read and upgrade them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import StaticTable

import lakehouse as lh
from lakehouse.errors import InvalidInputError, UnsupportedFeatureError
from lakehouse.storage.location import local_path
from tests.server.conftest import SCHEMA

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
V1 = {"format-version": "1"}
UUID = "0199aaaa-7c00-7000-8000-00000000000"


@pytest.fixture
def client(rest):
    return RestCatalog("ours", uri=rest.url)


def metadata_of(table) -> dict:
    return json.loads(Path(local_path(table.metadata_location)).read_text())


def test_pyiceberg_writes_and_we_read(rest, client):
    client.create_namespace_if_not_exists("one")
    theirs = client.create_table("one.rows", ROWS.schema, properties=V1)
    assert (theirs.format_version, "format-version" in theirs.properties) == (1, False)
    for _ in range(2):
        theirs.append(ROWS)
    with theirs.update_schema() as update:
        update.rename_column("name", "title")
    with theirs.update_spec() as update:
        update.add_identity("title")
    with theirs.update_spec() as update:
        update.remove_field("title")  # stays as void
    theirs.append(pa.table({"id": [9], "title": ["z"]}))
    theirs.delete("id = 1")
    ours = rest.lake.load_table("one.rows")
    assert sorted(ours.scan().to_arrow()["id"].to_pylist()) == [2, 2, 3, 3, 9]
    assert ours.scan(where="title = 'z'").count() == 1
    found = metadata_of(ours)
    # what version 1 asks for is there, and what came later is not
    assert found["format-version"] == 1
    assert [one["name"] for one in found["schema"]["fields"]] == ["id", "title"]
    assert [one["transform"] for one in found["partition-spec"]] == ["void"]
    assert not {"last-sequence-number", "next-row-id"} & set(found)
    assert not any("sequence-number" in one for one in found["snapshots"])
    for snapshot in found["snapshots"]:
        with Path(local_path(snapshot["manifest-list"])).open("rb") as stream:
            assert not any(one.get("sequence_number") for one in fastavro.reader(stream))
    # as a file alone, without a catalog
    alone = StaticTable.from_metadata(ours.metadata_location)
    assert sorted(alone.scan().to_arrow()["id"].to_pylist()) == [2, 2, 3, 3, 9]


def test_we_write_nothing_into_it_before_it_is_upgraded(rest, client):
    client.create_namespace_if_not_exists("two")
    theirs = client.create_table("two.rows", ROWS.schema, properties=V1)
    theirs.append(ROWS)
    served = lh.load_catalog(rest.url)
    for lake in (rest.lake, served, lh.load_catalog(rest.url, **{"append-mode": "commit"})):
        table = lake.load_table("two.rows")
        before = sorted(Path(local_path(table.location)).rglob("*"))
        for change in (
            lambda table=table: table.append(ROWS),
            lambda table=table: table.overwrite(ROWS),
            lambda table=table: table.delete("id = 1"),
            lambda table=table: table.upsert(ROWS, keys=["id"]),
            lambda table=table: table.transaction().append([]).commit(),
        ):
            with pytest.raises(UnsupportedFeatureError, match="'format-version': '2'"):
                change()
        for maintained in (table.compact, table.rewrite_manifests):  # may find nothing to do
            with suppress(UnsupportedFeatureError):
                maintained()
        assert sorted(Path(local_path(table.location)).rglob("*")) == before
        with pytest.raises(InvalidInputError, match="use 2 or 3"):
            lake.create_table("two.ours", ROWS.schema, properties=V1)
    assert rest.lake.load_table("two.rows").snapshots()[1:] == []
    with theirs.transaction() as change:
        change.upgrade_table_version(2)
    upgraded = served.load_table("two.rows")
    assert (upgraded.metadata.format_version, upgraded.metadata.last_sequence_number) == (2, 0)
    upgraded.append(ROWS)
    upgraded.delete("id = 1")
    assert sorted(theirs.refresh().scan().to_arrow()["id"].to_pylist()) == [2, 2, 3, 3]
    theirs.append(ROWS)
    assert rest.lake.load_table("two.rows").scan().count() == 7


def created(n: int, *updates: dict) -> dict:
    first = [
        {"action": "assign-uuid", "uuid": f"{UUID}{n}"},
        {"action": "upgrade-format-version", "format-version": 1},
        {"action": "add-schema", "schema": SCHEMA},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]
    return {"requirements": [{"type": "assert-create"}], "updates": [*first, *updates]}


def snapshot(location: str, **more: object) -> dict:
    told = {
        "snapshot-id": 17,
        "timestamp-ms": 1,
        "summary": {"operation": "append"},
        "manifest-list": f"{location}/metadata/list.avro",
        "schema-id": 0,
    }
    return {"action": "add-snapshot", "snapshot": told | more}


def test_what_version_one_has_not_is_refused(rest):
    rest.post("/namespaces", {"namespace": ["three"]})
    tables = "/namespaces/three/tables"
    staged = {"name": "t", "schema": SCHEMA, "properties": V1, "stage-create": True}
    told = rest.post(tables, staged).json()["metadata"]
    assert (told["format-version"], told["schema"]["type"]) == (1, "struct")
    place = {"action": "set-location", "location": told["location"]}
    made = rest.post(f"{tables}/t", created(1, place))
    assert made.json()["metadata"]["format-version"] == 1
    for wrong in ({"sequence-number": 1}, {"first-row-id": 0, "added-rows": 1}):
        answer = rest.post(f"{tables}/t", {"updates": [snapshot(told["location"], **wrong)]})
        assert answer.status_code == 400
        assert "version 1" in answer.text
    field = {"source-id": 1, "field-id": 1005, "name": "x", "transform": "identity"}
    spec = {"action": "add-spec", "spec": {"spec-id": 1, "fields": [field]}}
    answer = rest.post(f"{tables}/t", {"updates": [spec]})
    assert (answer.status_code, "1000" in answer.text) == (400, True)
    column = {"id": 3, "name": "t", "type": "timestamp_ns", "required": False}
    newer = {"action": "add-schema", "schema": SCHEMA | {"fields": [*SCHEMA["fields"], column]}}
    change = {"updates": [newer, {"action": "set-current-schema", "schema-id": -1}]}
    assert rest.post(f"{tables}/t", change).status_code == 400
    assert rest.post(f"{tables}/t", {"updates": [snapshot(told["location"])]}).status_code == 200
    # back again, also in the request that creates
    down = {"action": "upgrade-format-version", "format-version": 1}
    up = {"action": "upgrade-format-version", "format-version": 2}
    change = {"updates": [up, snapshot(told["location"], **{"sequence-number": 1})]}
    change["updates"][1]["snapshot"] |= {"snapshot-id": 18, "parent-snapshot-id": 17}
    found = rest.post(f"{tables}/t", change).json()["metadata"]
    assert (found["format-version"], found["last-sequence-number"]) == (2, 1)
    assert [one["sequence-number"] for one in found["snapshots"]] == [0, 1]
    assert rest.post(f"{tables}/t", {"updates": [down]}).status_code == 400
    assert rest.post(f"{tables}/u", created(2, up, down)).status_code == 400
    for number in (0, 4, -1):
        odd = created(3)
        odd["updates"][1]["format-version"] = number
        assert rest.post(f"{tables}/u", odd).status_code == 400
    assert rest.get(f"{tables}/u").status_code == 404


def test_appends_that_the_server_commits_need_version_two(rest):
    rest.table("four", "t", properties=V1)
    found = rest.lake.load_table("four.t")
    body = {
        "append-id": 5,
        "table-uuid": found.metadata.table_uuid,
        "branch": "main",
        "manifests": [
            {
                "path": f"{found.location}/metadata/m.avro",
                "length": 10,
                "partition-spec-id": 0,
                "added-files-count": 1,
                "added-rows-count": 1,
            }
        ],
    }
    key = {"Idempotency-Key": "0199aaaa-7c00-7000-8000-0000000000a1"}
    answer = rest.post("/namespaces/four/tables/t/appends", body, **key)
    assert 400 <= answer.status_code < 500, answer.text
    assert rest.lake.load_table("four.t").metadata.current_snapshot_id is None
