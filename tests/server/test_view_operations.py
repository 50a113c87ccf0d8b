"""Views over HTTP: pyiceberg's client, and codes and bodies as the specification has them."""

from __future__ import annotations

import uuid

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchViewError, ViewAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyiceberg.view.metadata import SQLViewRepresentation, ViewRepresentation, ViewVersion

from tests.server.conftest import SCHEMA


def version(sql="SELECT 1", dialect="spark", **more):
    return {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1_800_000_000_000,
        "summary": {},
        "representations": [{"type": "sql", "sql": sql, "dialect": dialect}],
        "default-namespace": ["v"],
        **more,
    }


def body(name, **more):
    return {
        "name": name,
        "schema": SCHEMA,
        "view-version": version(),
        "properties": {"a": "1"},
        **more,
    }


def error(answer):
    found = answer.json()["error"]
    return answer.status_code, found["type"], found["message"].partition(".")[0]


@pytest.fixture
def space(rest):
    name = f"v{uuid.uuid4().hex[:8]}"
    assert rest.post("/namespaces", {"namespace": [name]}).status_code == 200
    return name


def test_pyiceberg_makes_and_reads_views(rest, space):
    client = RestCatalog("lake", uri=rest.url)
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    representation = SQLViewRepresentation(type="sql", sql="SELECT 1 AS id", dialect="spark")
    first = ViewVersion(
        schema_id=0,
        representations=[ViewRepresentation(root=representation)],
        default_namespace=[space],
    )
    made = client.create_view((space, "seen"), schema, first)
    assert made.metadata.versions[0].representations[0].root.sql == "SELECT 1 AS id"
    assert client.list_views(space) == [(space, "seen")]
    assert client.view_exists((space, "seen"))
    assert client.load_view((space, "seen")).metadata == made.metadata
    with pytest.raises(ViewAlreadyExistsError):
        client.create_view((space, "seen"), schema, first)
    location = rest.get(f"/namespaces/{space}/views/seen").json()["metadata-location"]
    client.drop_view((space, "seen"))
    assert not client.view_exists((space, "seen"))
    with pytest.raises(NoSuchViewError):
        client.load_view((space, "seen"))
    assert client.register_view((space, "again"), location).metadata == made.metadata


def test_changes(rest, space):
    made = rest.post(f"/namespaces/{space}/views", body("seen")).json()
    path = f"/namespaces/{space}/views/seen"
    change = {
        "requirements": [{"type": "assert-view-uuid", "uuid": made["metadata"]["view-uuid"]}],
        "updates": [
            {"action": "add-view-version", "view-version": version("SELECT 2")},
            {"action": "set-current-view-version", "view-version-id": -1},
            {"action": "remove-properties", "removals": ["a"]},
        ],
    }
    done = rest.post(path, change)
    assert done.status_code == 200
    metadata = done.json()["metadata"]
    assert metadata["current-version-id"] == 2
    assert metadata["properties"] == {}
    # sent again it changes nothing
    assert rest.post(path, change).json()["metadata-location"] == done.json()["metadata-location"]
    other = {**change, "requirements": [{"type": "assert-view-uuid", "uuid": str(uuid.uuid4())}]}
    assert error(rest.post(path, other))[:2] == (409, "CommitFailedException")
    assert rest.get(path).json()["metadata"] == metadata
    unknown = {"updates": [{"action": "set-current-view-version", "view-version-id": 7}]}
    assert rest.post(path, unknown).status_code == 400
    of_tables = {"updates": [{"action": "set-current-schema", "schema-id": 0}]}
    assert rest.post(path, of_tables).status_code == 400


def test_codes(rest, space):
    views, tables = f"/namespaces/{space}/views", f"/namespaces/{space}/tables"
    assert error(rest.get(f"{views}/no")) == (
        404,
        "NoSuchViewException",
        f"View does not exist: {space}",
    )
    assert rest.ask("HEAD", f"{views}/no").status_code == 404
    assert rest.ask("DELETE", f"{views}/no").status_code == 404
    assert error(rest.get("/namespaces/nowhere/views"))[:2] == (404, "NoSuchNamespaceException")
    assert rest.post("/namespaces/nowhere/views", body("a")).status_code == 404
    assert rest.post(views, body("seen")).status_code == 200
    assert rest.ask("HEAD", f"{views}/seen").status_code == 204
    assert error(rest.post(views, body("seen")))[:2] == (409, "AlreadyExistsException")
    taken = error(rest.post(tables, {"name": "seen", "schema": SCHEMA}))
    assert taken == (
        409,
        "AlreadyExistsException",
        f"View with same name already exists: {space}",
    )
    assert rest.get(f"{tables}/seen").status_code == 404
    twice = version()["representations"] * 2
    double = error(rest.post(views, body("b", **{"view-version": version(representations=twice)})))
    assert double[:2] == (400, "IllegalArgumentException")
    for damaged in ({"name": "c"}, body("c", schema=None), body("c", **{"view-version": {}})):
        assert rest.post(views, damaged).status_code == 400
    outside = rest.post(views, body("d", location="/etc/view"))
    assert outside.status_code == 400
    assert rest.get(views).json()["identifiers"] == [{"namespace": [space], "name": "seen"}]


@pytest.mark.parametrize("wrong", [{}, {"requirements": []}, {"updates": None}])
def test_a_commit_says_what_to_change(rest, space, wrong):
    assert rest.post(f"/namespaces/{space}/views", body("said")).status_code == 200
    answer = rest.post(f"/namespaces/{space}/views/said", wrong)
    assert error(answer)[:2] == (400, "BadRequestException")


def test_registration_reads_nothing_outside(rest, space):
    asked = {"name": "far", "metadata-location": "/etc/passwd"}
    refused = rest.post(f"/namespaces/{space}/register-view", asked)
    assert refused.status_code == 400
    assert "outside the warehouse" in refused.text


def test_pages(rest, space):
    for name in ("a", "b", "c"):
        assert rest.post(f"/namespaces/{space}/views", body(name)).status_code == 200
    first = rest.get(f"/namespaces/{space}/views?pageSize=2&pageToken=").json()
    rest.ask("DELETE", f"/namespaces/{space}/views/b")
    token = first["next-page-token"]
    second = rest.get(f"/namespaces/{space}/views?pageSize=2&pageToken={token}").json()
    assert [one["name"] for one in first["identifiers"]] == ["a", "b"]
    assert [one["name"] for one in second["identifiers"]] == ["c"]
    assert second["next-page-token"] is None


def test_a_request_that_is_sent_again_makes_one_view(rest, space):
    key = {"Idempotency-Key": str(uuid.uuid4())}
    first = rest.post(f"/namespaces/{space}/views", body("seen"), **key)
    again = rest.post(f"/namespaces/{space}/views", body("seen"), **key)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json() == first.json()
    dropped = {"Idempotency-Key": str(uuid.uuid4())}
    for _ in range(2):
        path = f"/namespaces/{space}/views/seen"
        assert rest.ask("DELETE", path, None, **dropped).status_code == 204


def test_renaming(rest, space):
    rest.post(f"/namespaces/{space}/views", body("seen"))
    rest.table(space, "events")

    def rename(source, target):
        names = {"source": source, "destination": target}
        named = {key: {"namespace": [space], "name": name} for key, name in names.items()}
        return rest.post("/views/rename", named)

    if not rest.lake.catalog.commits_together:  # a folder is the name
        assert rename("seen", "b").status_code == 406
        return
    assert rename("no", "b").status_code == 404
    assert rename("events", "b").status_code == 404
    taken = rename("seen", "events")
    assert taken.status_code == 409
    assert "Table already exists" in taken.text
    assert rename("seen", "b").status_code == 204
    assert rest.get(f"/namespaces/{space}/views/b").status_code == 200
