"""Every operation of the specification: listed in the docs as it is served."""

from __future__ import annotations

import re
import threading
import uuid
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog

import lakehouse as lh
from lakehouse.errors import NoSuchTableError
from lakehouse.server.operations import scan_operations
from lakehouse.server.operations.access_operations import TOKEN_OPERATIONS
from lakehouse.server.operations.plans_under_way import PlansUnderWay
from lakehouse.server.operations.scan_operations import ScanPlanning
from lakehouse.server.rest_app import operations_of
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.location import local_path
from tests.server.conftest import Rest, serve
from tests.server.test_rest_protocol import append, error

DOCS = Path(__file__).parents[2] / "docs" / "rest_reference.md"
# rest-catalog-open-api.yaml of August 2026, written down by hand
SPECIFIED = """
GET /v1/config
POST /v1/oauth/tokens
GET /v1/{prefix}/namespaces
POST /v1/{prefix}/namespaces
GET /v1/{prefix}/namespaces/{namespace}
HEAD /v1/{prefix}/namespaces/{namespace}
DELETE /v1/{prefix}/namespaces/{namespace}
POST /v1/{prefix}/namespaces/{namespace}/properties
GET /v1/{prefix}/namespaces/{namespace}/tables
POST /v1/{prefix}/namespaces/{namespace}/tables
GET /v1/{prefix}/namespaces/{namespace}/functions
GET /v1/{prefix}/namespaces/{namespace}/functions/{function}
POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan
GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan/{plan-id}
DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan/{plan-id}
POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/tasks
POST /v1/{prefix}/namespaces/{namespace}/register
GET /v1/{prefix}/namespaces/{namespace}/tables/{table}
POST /v1/{prefix}/namespaces/{namespace}/tables/{table}
DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}
HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}
POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/unregister
GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials
POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/sign
POST /v1/{prefix}/tables/rename
POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics
POST /v1/{prefix}/transactions/commit
GET /v1/{prefix}/namespaces/{namespace}/views
POST /v1/{prefix}/namespaces/{namespace}/views
GET /v1/{prefix}/namespaces/{namespace}/views/{view}
POST /v1/{prefix}/namespaces/{namespace}/views/{view}
DELETE /v1/{prefix}/namespaces/{namespace}/views/{view}
HEAD /v1/{prefix}/namespaces/{namespace}/views/{view}
POST /v1/{prefix}/views/rename
POST /v1/{prefix}/namespaces/{namespace}/register-view
"""


def test_each_has_a_row_in_the_docs_and_a_route(rest):
    rows = re.findall(r"^\| `([A-Z]+ /v1/[^`]*)` \|", DOCS.read_text(), re.MULTILINE)
    specified = SPECIFIED.strip().splitlines()
    assert len(specified) == 35
    assert rows == specified
    routes = {f"{one.method} {one.path}" for one in operations_of(rest.lake.catalog)}
    routes |= {f"{operation.method} {operation.path}" for operation in TOKEN_OPERATIONS} | {
        "GET /config"
    }
    ours = {route for route in routes if "/semantics/" in route or route.endswith("/appends")}
    plain = (one.replace("plan-id", "plan_id") for one in specified)
    assert {re.sub(r"/v1(/\{prefix\})?", "", one) for one in plain} == routes - ours


def test_functions(rest):
    rest.post("/namespaces", {"namespace": ["functions"]})
    found = rest.get("/namespaces/functions/functions?pageToken=&pageSize=5")
    assert (found.status_code, found.json()) == (200, {"identifiers": [], "next-page-token": None})
    missing = (404, "NoSuchNamespaceException")
    assert error(rest.get("/namespaces/nowhere/functions")) == missing
    assert error(rest.get("/namespaces/nowhere/functions/f")) == missing
    assert error(rest.get("/namespaces/functions/functions/f")) == (404, "NoSuchFunctionException")


def test_unregistering_leaves_the_files(rest):
    made = rest.table("leaves", "t")
    rest.post("/namespaces/leaves/tables/t", append(made["metadata"]["location"], 5))
    last = rest.get("/namespaces/leaves/tables/t").json()
    key = {"Idempotency-Key": str(uuid.uuid4())}
    path = "/namespaces/leaves/tables/t/unregister"
    told = [rest.post(path, None, **key) for _ in range(2)]
    assert [one.status_code for one in told] == [200, 200]
    assert told[0].json() == told[1].json()
    assert told[0].json() == {name: last[name] for name in ("metadata-location", "metadata")}
    assert Path(local_path(last["metadata-location"])).exists()
    assert error(rest.post(path, None)) == (404, "NoSuchTableException")
    change = {"updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    assert error(rest.post("/namespaces/leaves/tables/t", change)) == (404, "NoSuchTableException")
    if rest.lake.catalog.commits_together:  # elsewhere the folder is the name
        again = {"name": "t2", "metadata-location": last["metadata-location"]}
        assert rest.post("/namespaces/leaves/register", again).status_code == 200


def test_a_commit_is_in_what_unregistering_tells_or_fails(rest):
    client = lh.load_catalog(rest.url).catalog
    for n in range(5):
        rest.table("racing", f"t{n}")
        path, done, some = f"{rest.url}/v1/namespaces/racing/tables/t{n}", [], threading.Event()

        def change(path=path, done=done, some=some):
            for key in range(1000):
                updates = [{"action": "set-properties", "updates": {f"k{key}": "v"}}]
                answer = requests.post(path, json={"updates": updates}, timeout=30)
                if answer.status_code != 200:
                    assert answer.status_code in (404, 409), answer.text
                    return
                done.append(f"k{key}")
                some.set()

        writer = threading.Thread(target=change)
        writer.start()
        assert some.wait(600)
        last = client.unregister(Identifier(("racing",), f"t{n}"))
        writer.join()
        assert set(done) <= set(last.metadata.properties)
        with pytest.raises(NoSuchTableError):
            client.load(last.identifier)


@pytest.fixture
def slow(monkeypatch):
    """Nobody is patient, and plans wait until they are let go."""
    go, planned = threading.Event(), ScanPlanning._planned

    def wait(self, *args):
        go.began.append(1)
        assert go.wait(600)
        return planned(self, *args)

    impatient = partial(PlansUnderWay, patience_seconds=0.01)
    monkeypatch.setattr(scan_operations, "PlansUnderWay", impatient)
    monkeypatch.setattr(ScanPlanning, "_planned", wait)
    go.began = []
    yield go
    go.set()


@pytest.fixture
def served(rest, slow):
    """Another server over the same catalog, whose plans are slow."""
    assert not slow.is_set()
    with serve(rest.lake) as server:
        yield Rest(server.url, rest.lake, rest.session)
        slow.set()


def filled(rest, name):
    """Where a new table of three rows is planned."""
    table = rest.lake.create_table(f"slowly.{name}", pa.schema({"id": pa.int64()}))
    table.append(pa.table({"id": [1, 2, 3]}))
    return f"/namespaces/slowly/tables/{name}/plan"


def finally_told(rest, path):
    for _ in range(2000):
        told = rest.get(path).json()
        if told["status"] != "submitted":
            break
    return told


def test_long_plans_are_asked_for_again(served, slow):
    path = filled(served, "long")
    begun = served.post(path, {}).json()
    assert begun["status"] == "submitted"
    one = f"{path}/{begun['plan-id']}"
    assert served.get(one).json() == {"status": "submitted"}
    filled(served, "other")  # the path of another table does not lead to it
    missing = served.get(one.replace("/long/", "/other/"))
    assert error(missing) == (404, "NoSuchPlanIdException")
    slow.set()
    told = finally_told(served, one)
    assert told["status"] == "completed"
    assert [item["data-file"]["record-count"] for item in told["file-scan-tasks"]] == [3]


def test_our_client_waits_for_it(served, slow):
    filled(served, "waits")
    client = lh.load_catalog(served.url, **{"scan-planning-mode": "server"})
    threading.Timer(0.3, slow.set).start()
    found = client.load_table("slowly.waits").scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == [1, 2, 3]


def test_cancelled_plans(served, slow):
    path = filled(served, "cancelled")
    begun = [served.post(path, {"case-sensitive": bool(n % 2)}).json() for n in range(12)]
    assert {one["status"] for one in begun} == {"submitted"}
    for one in begun:
        assert served.ask("DELETE", f"{path}/{one['plan-id']}").status_code == 204
        assert served.get(f"{path}/{one['plan-id']}").json() == {"status": "cancelled"}
    running = len(slow.began)
    assert running < 12
    slow.set()
    begun = served.post(path, {}).json()
    assert finally_told(served, f"{path}/{begun['plan-id']}")["status"] == "completed"
    assert len(slow.began) <= running + 2  # those that nobody began are never begun
    for method in ("GET", "DELETE"):
        unknown = served.ask(method, f"{path}/{uuid.uuid4()}")
        assert error(unknown) == (404, "NoSuchPlanIdException")


def test_plans_that_fail_late(served, slow):
    path = filled(served, "fails")
    asked = {"filter": {"type": "eq", "term": "nothing", "value": 1}}
    begun = served.post(path, asked).json()
    slow.set()
    told = finally_told(served, f"{path}/{begun['plan-id']}")
    assert told["status"] == "failed"
    assert (told["error"]["code"], told["error"]["type"]) == (400, "BadRequestException")


def test_plans_that_were_told_at_once_have_an_id(rest, monkeypatch):
    monkeypatch.setattr(scan_operations, "TASKS_MAX", 1)
    path = filled(rest, "once")
    rest.lake.load_table("slowly.once").append(pa.table({"id": [4]}))
    first = rest.post(path, {}).json()
    one = f"{path}/{first['plan-id']}"
    again = rest.get(one).json()
    assert again == {name: told for name, told in first.items() if name != "plan-id"}
    assert len(again["plan-tasks"]) == 1
    theirs = RestCatalog("c", uri=rest.url, **{"scan-planning-mode": "server"})
    assert theirs.load_table("slowly.once").scan().to_arrow().num_rows == 4
    assert rest.ask("DELETE", one).status_code == 204
    assert rest.get(one).json() == {"status": "cancelled"}
