"""Codes, bodies, pages and tags, as the REST specification has them."""

from __future__ import annotations

import json
import threading
import uuid
from pathlib import Path

import pytest
import requests

from lakehouse.errors import InvalidInputError
from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import rest_app
from lakehouse.server.rest_operation import BODY_BYTES_MAX
from lakehouse.storage.location import local_path
from tests.server.conftest import SCHEMA, Rest, open_lake, serve


def error(answer):
    found = answer.json()["error"]
    assert found["code"] == answer.status_code
    assert found["message"]
    return answer.status_code, found["type"]


def add_schema(n):
    field = {"id": 2 + n, "name": f"c{n}", "type": "int", "required": False}
    return {"action": "add-schema", "schema": {**SCHEMA, "fields": [*SCHEMA["fields"], field]}}


def snapshot(location, n, parent=None, sequence=1):
    body = {
        "snapshot-id": n,
        "sequence-number": sequence,
        "timestamp-ms": 1_800_000_000_000,
        "manifest-list": f"{location}/metadata/snap-{n}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    return body if parent is None else {**body, "parent-snapshot-id": parent}


def append(location, n, parent=None, sequence=1):
    """What a client sends to append."""
    return {
        "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent}],
        "updates": [
            {"action": "add-snapshot", "snapshot": snapshot(location, n, parent, sequence)},
            {
                "action": "set-snapshot-ref",
                "ref-name": "main",
                "type": "branch",
                "snapshot-id": n,
            },
        ],
    }


def test_configuration(rest):
    found = rest.get("/config").json()
    assert "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}" in found["endpoints"]
    assert rest.get(f"/config?warehouse={rest.lake.name}").status_code == 200
    assert error(rest.get("/config?warehouse=nowhere")) == (404, "NoSuchWarehouseException")


def test_there_are_no_tokens_where_nobody_is_asked(rest):
    """Told in the words of OAuth2: clients that ask for one read no others."""
    answer = requests.post(f"{rest.url}/v1/oauth/tokens", data={"a": "b"}, timeout=30)
    assert (answer.status_code, answer.json()["error"]) == (400, "unsupported_grant_type")
    assert "Nobody is asked" in answer.json()["error_description"]


def test_every_operation_that_is_listed_answers(rest):
    """With 404 for names that are none, never because there is no such route."""
    for one in rest.get("/config").json()["endpoints"]:
        method, path = one.split(" ")
        path = path.removeprefix("/v1/{prefix}")
        for part in ("namespace", "table", "view", "plan-id", "function"):
            path = path.replace(f"{{{part}}}", "nothing")
        answer = rest.ask(method, path, {})
        assert "no such operation" not in answer.text, one
        assert answer.status_code < 500, (one, answer.text)


def test_what_is_not_there(rest):
    rest.post("/namespaces", {"namespace": ["empty"]})
    missing = (404, "NoSuchTableException")
    assert error(rest.get("/namespaces/nope")) == (404, "NoSuchNamespaceException")
    assert error(rest.get("/namespaces/nope/tables")) == (404, "NoSuchNamespaceException")
    assert error(rest.get("/namespaces?parent=nope")) == (404, "NoSuchNamespaceException")
    assert error(rest.get("/namespaces/empty/tables/t")) == missing
    assert error(rest.ask("DELETE", "/namespaces/empty/tables/t")) == missing
    assert error(rest.post("/namespaces/empty/tables/t", append("/x", 1))) == missing
    assert rest.ask("HEAD", "/namespaces/empty/tables/t").status_code == 404
    assert rest.ask("HEAD", "/namespaces/nope").status_code == 404
    assert rest.ask("HEAD", "/namespaces/empty").status_code == 204
    assert rest.get("/tables").status_code == 404


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/config", "GET, HEAD"),
        ("/namespaces", "GET, HEAD, POST"),
        ("/namespaces/nope", "DELETE, GET, HEAD"),
        ("/namespaces/nope/tables/t", "DELETE, GET, HEAD, POST"),
        ("/namespaces/nope/tables/t/plan/7", "DELETE, GET, HEAD"),
        ("/tables/rename", "POST"),
    ],
)
def test_methods_that_a_path_does_not_have(rest, path, methods):
    for method in ("PUT", "TRACE"):
        answer = rest.ask(method, path)
        assert error(answer) == (405, "BadRequestException")
        assert answer.headers["Allow"] == methods


def test_what_is_there_already(rest):
    rest.table("there", "t")
    taken = (409, "AlreadyExistsException")
    assert error(rest.post("/namespaces", {"namespace": ["there"]})) == taken
    again = {"name": "t", "schema": SCHEMA}
    assert error(rest.post("/namespaces/there/tables", again)) == taken
    staged = {**again, "stage-create": True}
    assert error(rest.post("/namespaces/there/tables", staged)) == taken
    dropped = rest.ask("DELETE", "/namespaces/there")
    assert error(dropped) == (409, "NamespaceNotEmptyException")
    both = {"updates": {"a": "b"}, "removals": ["a"]}
    answer = rest.post("/namespaces/there/properties", both)
    assert error(answer) == (422, "UnprocessableEntityException")


def changing(*updates):
    return {"requirements": [], "updates": list(updates)}


HERE = "/namespaces/bad/tables/here"
NAMED = {"namespace": ["bad"], "name": "here"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/namespaces", {}),
        ("/namespaces", {"namespace": "a"}),
        ("/namespaces", {"namespace": ["a", ".."]}),
        ("/namespaces", {"namespace": []}),
        ("/namespaces", {"namespace": ["a"], "properties": {"k": []}}),
        ("/namespaces/bad/tables", {"name": "t"}),
        ("/namespaces/bad/tables", {"name": "..", "schema": SCHEMA}),
        ("/namespaces/bad/tables", {"name": "a\\b", "schema": SCHEMA}),
        ("/namespaces/bad/tables", {"name": "t", "schema": SCHEMA, "location": "/etc/t"}),
        ("/namespaces/bad/tables", {"name": "t", "schema": SCHEMA, "location": "file:///etc/t"}),
        ("/namespaces/bad/tables", {"name": "t", "schema": SCHEMA, "stage-create": "yes"}),
        (
            "/namespaces/bad/tables",
            {"name": "t", "schema": SCHEMA, "properties": {"write.data.path": "/etc"}},
        ),
        ("/namespaces/bad/register", {"name": "t", "metadata-location": "/etc/passwd"}),
        (HERE, changing({"action": "fly"})),
        (HERE, {"requirements": [{"type": "assert-full-moon"}], "updates": []}),
        # what is left out, or called by another name, is not taken for nothing to do
        (HERE, {"requirements": []}),
        (HERE, {"requirements": [], "updates": None}),
        (HERE, {"requirements": [], "update": []}),
        (HERE, changing({"action": "set-properties"})),
        (HERE, changing({"action": "set-properties", "updates": None})),
        (HERE, changing({"action": "remove-properties", "removal": ["a"]})),
        (HERE, changing({"action": "remove-schemas"})),
        (HERE, changing({"action": "remove-partition-specs", "spec-ids": None})),
        (HERE, changing({"action": "remove-snapshots", "ids": [1]})),
        (HERE, changing({"action": "add-spec", "spec": {}})),
        (HERE, changing({"action": "add-sort-order", "sort-order": {"order-id": 1}})),
        ("/transactions/commit", {"table-changes": [{"identifier": NAMED, "requirements": []}]}),
        (
            HERE,
            changing({"action": "set-location", "location": "/etc"}),
        ),
        (HERE, {**changing(), "identifier": {"namespace": ["bad"], "name": "other"}}),
        ("/tables/rename", {"source": {"namespace": ["bad"], "name": "here"}}),
    ],
)
def test_requests_that_make_no_sense(rest, path, body):
    rest.post("/namespaces", {"namespace": ["bad"]})
    rest.post("/namespaces/bad/tables", {"name": "here", "schema": SCHEMA})
    before = rest.get("/namespaces/bad/tables/here").content
    code, kind = error(rest.post(path, body))
    assert (code, kind) in ((400, "BadRequestException"), (406, "UnsupportedOperationException"))
    assert rest.get("/namespaces/bad/tables/here").content == before
    assert rest.lake.list_tables("bad") == ["bad.here"]


def test_a_new_sort_order_needs_no_id(rest):
    """The server gives it: `order-id` is read-only."""
    field = {"source-id": 1, "transform": "identity", "direction": "asc"}
    order = {"fields": [{**field, "null-order": "nulls-first"}]}
    made = rest.table("ordered", "t", **{"write-order": order})["metadata"]
    assert [one["order-id"] for one in made["sort-orders"]] == [1]
    assert made["default-sort-order-id"] == 1
    plain = rest.table("ordered", "u", **{"write-order": {"fields": []}})["metadata"]
    assert plain["default-sort-order-id"] == 0
    add = {"action": "add-sort-order", "sort-order": order}
    change = changing(add, {"action": "set-default-sort-order", "sort-order-id": -1})
    changed = rest.post("/namespaces/ordered/tables/u", change)
    assert changed.status_code == 200, changed.text
    found = changed.json()["metadata"]
    assert (found["default-sort-order-id"], len(found["sort-orders"])) == (1, 2)


def test_lists_of_structs_without_fields(rest):
    """No error of the server, least of all one that leaves open what happened."""
    kind = {"type": "list", "element-id": 2, "element-required": True}
    kind["element"] = {"type": "struct", "fields": []}
    schema = {**SCHEMA, "fields": [{"id": 1, "name": "l", "type": kind, "required": False}]}
    made = rest.table("hollow", "t", schema=schema)["metadata"]
    assert made["schemas"][0]["fields"][0]["type"] == kind
    table = rest.lake.load_table("hollow.t")
    with table.update_schema() as update:
        update.add_column("n", "long")
    assert [field.name for field in table.refresh().schema().fields] == ["l", "n"]


def test_what_is_registered_has_to_be_of_a_known_version(rest):
    """A file that is none of ours is a bad request, as the specification has it."""
    made = rest.table("versions", "t")
    file = Path(local_path(made["metadata-location"]))
    later = file.with_name("00009-later.metadata.json")
    document = json.loads(file.read_bytes())
    later.write_text(json.dumps({**document, "format-version": 9}))
    for path in ("register", "register-view"):
        answer = rest.post(
            f"/namespaces/versions/{path}", {"name": "n", "metadata-location": str(later)}
        )
        assert error(answer) == (400, "BadRequestException"), path


def test_bodies_that_are_no_json(rest):
    for data in (b"", b"{", b"[]", b"\xff", b"[" * 100_000):
        answer = rest.session.post(f"{rest.url}/v1/namespaces", data=data, timeout=30)
        assert error(answer) == (400, "BadRequestException")


def test_a_body_without_end_is_refused(rest):
    def chunks():
        for _ in range(BODY_BYTES_MAX // 2**20 + 2):
            yield b"x" * 2**20

    try:
        answer = rest.session.post(f"{rest.url}/v1/namespaces", data=chunks(), timeout=60)
    except requests.ConnectionError:
        return  # the server hung up while the rest was sent
    assert answer.status_code == 413


@pytest.mark.parametrize("path", ["..%2f..%2fetc", "%2e%2e", "a%1F..", "a%00b", "a%1F%1Fb", "%1F"])
def test_names_that_leave_their_folder(rest, path):
    for answer in (
        rest.get(f"/namespaces/{path}"),
        rest.get(f"/namespaces/{path}/tables/t"),
        rest.ask("DELETE", f"/namespaces/x/tables/{path}?purgeRequested=true"),
    ):
        assert answer.status_code in (400, 404), answer.text


def test_pages(rest):
    for n in range(7):
        rest.post("/namespaces", {"namespace": ["pages", f"n{n}"]})
        rest.table("pages", f"t{n}")
    for path, key in (
        ("/namespaces?parent=pages&", "namespaces"),
        ("/namespaces/pages/tables?", "identifiers"),
    ):
        whole = rest.get(path).json()
        assert whole["next-page-token"] is None
        assert len(whole[key]) == 7
        seen, token = [], ""
        while token is not None:
            page = rest.get(f"{path}pageSize=3&pageToken={token}").json()
            assert len(page[key]) <= 3
            seen, token = seen + page[key], page["next-page-token"]
        assert seen == whole[key]
        assert len(rest.get(f"{path}pageToken=").json()[key]) == 7
        assert error(rest.get(f"{path}pageSize=0"))[0] == 400
        assert error(rest.get(f"{path}pageToken=%21"))[0] == 400


def test_nothing_is_sent_to_whom_has_it(rest):
    made = rest.table("tags", "t")
    location = made["metadata"]["location"]
    path = "/namespaces/tags/tables/t"
    rest.post(path, append(location, 1))
    rest.post(path, append(location, 2, 1, 2))
    first = rest.get(path)
    refs = rest.get(f"{path}?snapshots=refs")
    assert first.headers["ETag"] != refs.headers["ETag"]
    assert [one["snapshot-id"] for one in first.json()["metadata"]["snapshots"]] == [1, 2]
    assert [one["snapshot-id"] for one in refs.json()["metadata"]["snapshots"]] == [2]
    again = rest.get(path, **{"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert rest.get(path, **{"If-None-Match": refs.headers["ETag"]}).status_code == 200
    rest.lake.load_table("tags.t").set_properties({"by": "another process"})
    newer = rest.get(path, **{"If-None-Match": first.headers["ETag"]})
    assert newer.json()["metadata"]["properties"] == {"by": "another process"}
    assert error(rest.get(f"{path}?snapshots=some"))[0] == 400


def test_a_repeated_append_is_the_same_append(rest):
    location = rest.table("repeated", "t")["metadata"]["location"]
    path = "/namespaces/repeated/tables/t"
    first = rest.post(path, append(location, 1))
    rest.post(path, append(location, 2, 1, 2))
    again = rest.post(path, append(location, 1))
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json()["metadata"]["current-snapshot-id"] == 2
    another = append(f"{location}/elsewhere", 1, 2, 3)  # chose the same id, by chance
    assert error(rest.post(path, another)) == (409, "CommitFailedException")


def test_a_repeated_creation_is_the_same_creation(rest):
    rest.post("/namespaces", {"namespace": ["created"]})
    body = {"name": "t", "schema": SCHEMA, "stage-create": True}
    staged = rest.post("/namespaces/created/tables", body).json()
    assert "metadata-location" not in staged
    metadata = staged["metadata"]

    def creation(identity):
        adds = append(metadata["location"], 1)["updates"]
        return {
            "requirements": [{"type": "assert-create"}],
            "updates": [
                {"action": "assign-uuid", "uuid": identity},
                {"action": "upgrade-format-version", "format-version": 2},
                {"action": "add-schema", "schema": SCHEMA},
                {"action": "set-current-schema", "schema-id": -1},
                {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
                {"action": "set-default-spec", "spec-id": -1},
                {"action": "set-location", "location": metadata["location"]},
                *adds,
            ],
        }

    path = "/namespaces/created/tables/t"
    made = rest.post(path, creation(metadata["table-uuid"]))
    assert made.status_code == 200, made.text
    again = rest.post(path, creation(metadata["table-uuid"]))
    assert again.json()["metadata-location"] == made.json()["metadata-location"]
    other = rest.post(path, creation(str(uuid.uuid4())))
    assert error(other) == (409, "CommitFailedException")


def test_commits_that_fit_the_newest_version_all_land(rest):
    rest.table("busy", "t")
    path = f"{rest.url}/v1/namespaces/busy/tables/t"
    codes = []

    def change(n):
        with requests.Session() as session:
            for k in range(5):
                update = {"action": "set-properties", "updates": {f"{n}-{k}": "x"}}
                codes.append(session.post(path, json={"updates": [update]}, timeout=60).status_code)

    threads = [threading.Thread(target=change, args=(n,)) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert codes == [200] * 20
    assert len(rest.lake.load_table("busy.t").properties) == 20


def test_of_two_who_saw_the_same_version_one_wins(rest):
    rest.table("two", "t")
    path = "/namespaces/two/tables/t"
    requirement = {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2}
    answers = [
        rest.post(path, {"requirements": [requirement], "updates": [add_schema(n)]}) for n in (1, 2)
    ]
    assert answers[0].status_code == 200
    assert error(answers[1]) == (409, "CommitFailedException")


def test_a_dropped_table_leaves_its_folder_to_nobody(rest):
    made = rest.table("reused", "t")
    assert rest.ask("DELETE", "/namespaces/reused/tables/t").status_code == 204
    location = made["metadata"]["location"]
    again = rest.table("reused", "t", location=location)
    assert again["metadata"]["location"] != location
    assert again["metadata"]["table-uuid"] != made["metadata"]["table-uuid"]


@pytest.mark.parametrize("kind", ["filesystem", "sqlite"])
def test_purge_deletes_the_files(kind, tmp_path):
    lake = open_lake(kind, tmp_path)
    with serve(lake) as server, requests.Session() as session:
        rest = Rest(server.url, lake, session)
        made = rest.table("purged", "t")
        answer = rest.ask("DELETE", "/namespaces/purged/tables/t?purgeRequested=true")
        assert answer.status_code == 204
        assert not lake.catalog.storage("/").exists(made["metadata-location"])


def test_who_cannot_be_asked_who_he_is_is_not_served(rest):
    with pytest.raises(InvalidInputError, match="nobody is asked"):
        HttpServer(rest_app(rest.lake), "0.0.0.0", 0)  # noqa: S104
    port = int(rest.url.rpartition(":")[2])
    with (
        pytest.raises(InvalidInputError, match="Nothing can listen"),
        HttpServer(rest_app(rest.lake), "127.0.0.1", port),
    ):
        pass
