"""Requests that arrive twice, or whose answers are lost, take effect once."""

from __future__ import annotations

import random
import threading
import uuid
from pathlib import Path

import pytest
import requests

from lakehouse.errors import CommitConflictError
from lakehouse.storage.location import local_path
from tests.server.conftest import SCHEMA, Rest, open_lake, serve
from tests.server.test_rest_protocol import add_schema, append, error


@pytest.fixture(scope="module", params=["filesystem", "sqlite"])
def kept(request, tmp_path_factory):
    lake = open_lake(request.param, tmp_path_factory.mktemp("kept"))
    with serve(lake) as server, requests.Session() as session:
        yield Rest(server.url, lake, session)


@pytest.fixture(scope="module")
def sql(tmp_path_factory):
    lake = open_lake("sqlite", tmp_path_factory.mktemp("repeated"))
    with serve(lake) as server, requests.Session() as session:
        yield Rest(server.url, lake, session)


def key():
    return {"Idempotency-Key": str(uuid.uuid4())}


def properties(**updates):
    return {"updates": [{"action": "set-properties", "updates": updates}]}


def test_a_success_is_answered_again_and_not_repeated(kept):
    same = key()
    body = {"namespace": ["once"], "properties": {"a": "b"}}
    answers = [kept.post("/namespaces", body, **same) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert answers[0].json() == answers[2].json() == body
    same = key()
    table = {"name": "t", "schema": SCHEMA}
    made = [kept.post("/namespaces/once/tables", table, **same).json() for _ in range(2)]
    assert made[0] == made[1]
    same = key()
    # only the first can hold: the second would be a conflict
    change = {
        "requirements": [{"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2}],
        "updates": [add_schema(1), {"action": "set-current-schema", "schema-id": -1}],
    }
    path = "/namespaces/once/tables/t"
    first, second = (kept.post(path, change, **same) for _ in range(2))
    assert (first.status_code, first.json()) == (200, second.json())
    assert error(kept.post(path, change, **key())) == (409, "CommitFailedException")
    same = key()
    names = {
        "source": {"namespace": ["once"], "name": "t"},
        "destination": {"namespace": ["once"], "name": "u"},
    }
    renames = kept.lake.catalog.commits_together  # where a folder is the name it stays
    codes = [kept.post("/tables/rename", names, **same).status_code for _ in range(2)]
    assert codes == [204 if renames else 406] * 2
    for path in (f"/namespaces/once/tables/{'u' if renames else 't'}", "/namespaces/once"):
        same = key()
        codes = [kept.ask("DELETE", path, **same).status_code for _ in range(2)]
        assert codes == [204, 204]


def test_a_refusal_is_final(kept):
    kept.post("/namespaces", {"namespace": ["final"]})
    same = key()
    refused = kept.ask("DELETE", "/namespaces/final/tables/t", **same)
    assert refused.status_code == 404
    kept.table("final", "t")
    again = kept.ask("DELETE", "/namespaces/final/tables/t", **same)
    assert (again.status_code, again.json()) == (404, refused.json())
    assert kept.lake.table_exists("final.t")


def test_a_key_belongs_to_one_request(kept):
    same = key()
    assert kept.post("/namespaces", {"namespace": ["mine"]}, **same).status_code == 200
    other = kept.post("/namespaces", {"namespace": ["other"]}, **same)
    assert error(other) == (422, "UnprocessableEntityException")


KEY = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@pytest.mark.parametrize(
    "text", ["7", "", f"{{{KEY}}}", KEY.replace("-", ""), f"{KEY}0", f"urn:uuid:{KEY}"]
)
def test_keys_that_are_none_are_refused_of_whatever_has_keys(kept, text):
    kept.post("/namespaces", {"namespace": ["keyless"]})
    kept.post("/namespaces/keyless/tables", {"name": "t", "schema": SCHEMA})
    table, bad = "/namespaces/keyless/tables/t", {"Idempotency-Key": text}
    refused = (400, "BadRequestException")
    assert error(kept.post("/namespaces", {"namespace": ["x"]}, **bad)) == refused
    # these change nothing that is kept, and say so of a key all the same
    plan = kept.post(f"{table}/plan", {}).json()["plan-id"]
    assert error(kept.post(f"{table}/plan", {}, **bad)) == refused
    assert error(kept.ask("DELETE", f"{table}/plan/{plan}", **bad)) == refused
    assert error(kept.post(f"{table}/tasks", {"plan-task": "x"}, **bad)) == refused
    assert kept.get(f"{table}/plan/{plan}").json()["status"] == "completed"
    assert kept.ask("DELETE", f"{table}/plan/{plan}", **key()).status_code == 204


def test_a_key_is_kept_with_what_it_did_or_not_at_all(sql, monkeypatch):
    """The database refuses the key: then the commit did not happen either."""
    sql.table("atomic", "t")
    base = sql.lake.catalog.load(sql.lake.load_table("atomic.t").identifier)
    same = key()
    path = "/namespaces/atomic/tables/t"

    def refuse(*_args: object, **_more: object) -> None:
        raise CommitConflictError("injected")

    monkeypatch.setattr(type(sql.lake.catalog.requests), "note", refuse)
    assert sql.post(path, properties(a="b"), **same).status_code >= 400
    monkeypatch.undo()
    assert sql.lake.catalog.refresh(base) is base


def test_several_servers_are_asked_at_once(kept):
    """Each request goes to two servers over one catalog, many times, from many threads."""
    kept.table("many", "t")
    is_sql = kept.lake.catalog.commits_together
    another = (
        open_lake("sqlite", kept.lake_folder())
        if is_sql
        else open_lake("filesystem", Path(local_path(kept.lake.warehouse)))
    )
    codes = []
    with serve(another) as second:

        def send(n):
            headers = key()
            body = properties(**{f"n{n}": str(random.random())})
            urls = [kept.url, second.url, kept.url, second.url]
            threads = [
                threading.Thread(
                    target=lambda url=url: codes.append(
                        requests.post(
                            f"{url}/v1/namespaces/many/tables/t",
                            json=body,
                            headers=headers,
                            timeout=60,
                        ).status_code
                    )
                )
                for url in urls
            ]
            for one in threads:
                one.start()
            for one in threads:
                one.join()

        for n in range(8):
            send(n)
    assert codes == [200] * 32
    metadata = kept.lake.load_table("many.t").metadata
    assert len(metadata.metadata_log) == 8  # one version for each request


def test_transactions_over_tables(sql):
    places = {n: sql.table("together", n)["metadata"]["location"] for n in ("a", "b", "c")}

    def change(name, body):
        return {"identifier": {"namespace": ["together"], "name": name}, **body}

    both = {"table-changes": [change(n, append(places[n], 1)) for n in ("a", "b")]}
    assert sql.post("/transactions/commit", both).status_code == 204
    assert sql.post("/transactions/commit", both).status_code == 204  # the same, repeated
    heads = [sql.lake.load_table(f"together.{n}").metadata.current_snapshot_id for n in "abc"]
    assert heads == [1, 1, None]
    # c fits, a does not: neither happens
    half = {
        "table-changes": [
            change("c", append(places["c"], 5)),
            change("a", append(places["a"], 5)),
        ]
    }
    assert error(sql.post("/transactions/commit", half)) == (409, "CommitFailedException")
    gone = {"table-changes": [change("c", append(places["c"], 5)), change("d", append("/d", 5))]}
    assert error(sql.post("/transactions/commit", gone)) == (404, "NoSuchTableException")
    twice = {"table-changes": [change("c", properties(a="b")), change("c", properties(a="c"))]}
    assert error(sql.post("/transactions/commit", twice))[0] == 400
    assert sql.lake.load_table("together.c").metadata.current_snapshot_id is None


def test_a_filesystem_commits_to_one_table_at_a_time(tmp_path):
    lake = open_lake("filesystem", tmp_path)
    with serve(lake) as server, requests.Session() as session:
        rest = Rest(server.url, lake, session)
        rest.table("alone", "t")
        found = rest.get("/config").json()
        assert "POST /v1/{prefix}/transactions/commit" not in found["endpoints"]
        rest.table("alone", "u")
        changes = [
            {"identifier": {"namespace": ["alone"], "name": name}, **properties(a="b")}
            for name in ("t", "u")
        ]
        answer = rest.post("/transactions/commit", {"table-changes": changes})
        assert error(answer) == (406, "UnsupportedOperationException")
        assert lake.load_table("alone.t").properties == {}
