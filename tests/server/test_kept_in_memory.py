"""What a server keeps for the next request has bounds in bytes, and nothing depends on it."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import wait
from functools import partial

import orjson
import pyarrow as pa
import pytest
import requests

from lakehouse.errors import InvalidInputError
from lakehouse.kept_by_bytes import MADE
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from lakehouse.server.error_answers import HttpError
from lakehouse.server.http_server import HttpServer
from lakehouse.server.memory_bounds import MIB, MemoryBounds
from lakehouse.server.operations import plans_under_way, scan_operations
from lakehouse.server.operations.plan_bounds import PlanBounds
from lakehouse.server.rest_app import rest_app
from lakehouse.server.served_tables import APPENDED, REFS, ServedTables
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.data_file import DataFile
from tests.server.conftest import Rest, open_lake
from tests.waiting import eventually

PARTS = 60


@pytest.fixture
def lake(tmp_path):
    lake = open_lake("sqlite", tmp_path)
    table = lake.create_table("ns.t", pa.schema({"id": pa.int64()}), partition_by=["id"])
    table.append(pa.table({"id": range(PARTS)}))
    return lake


def serving(lake, **bounds):
    return HttpServer(rest_app(lake, memory=MemoryBounds(**bounds)), "127.0.0.1", 0)


@pytest.fixture(autouse=True)
def bounds_of_the_process():
    yield
    MemoryBounds().bound_process()


def pages(rest, table="t"):
    """Paths of all files, page by page."""
    path = f"/namespaces/ns/tables/{table}"
    first = rest.post(f"{path}/plan", {}).json()
    further = [
        rest.post(f"{path}/tasks", {"plan-task": one}).json() for one in first.get("plan-tasks", ())
    ]
    return [
        task["data-file"]["file-path"]
        for page in (first, *further)
        for task in page["file-scan-tasks"]
    ]


def data_files():
    gc.collect()
    return sum(isinstance(one, DataFile) for one in gc.get_objects())


@pytest.mark.parametrize("plans", [64 * MIB, 0], ids=["kept", "not kept"])
def test_pages_are_the_same_and_their_files_are_not_kept(lake, monkeypatch, plans):
    monkeypatch.setattr(scan_operations, "TASKS_MAX", 7)
    with serving(lake, plans=plans) as server, requests.Session() as session:
        rest = Rest(server.url, lake, session)
        before = data_files()
        found = pages(rest)
        assert len(found) == len(set(found)) == PARTS
        assert data_files() <= before
        counted = session.get(f"{server.url}/metrics", timeout=30).text
    again = PARTS // 7 if plans else 0
    assert f'lakehouse_plans_total{{source="planned"}} {PARTS // 7 + 1 - again}.0' in counted
    assert ('source="kept"' in counted) == bool(plans)


def test_a_token_of_an_older_version_is_answered_of_the_newest(lake, monkeypatch):
    monkeypatch.setattr(scan_operations, "TASKS_MAX", 50)
    with serving(lake) as server, requests.Session() as session:
        rest = Rest(server.url, lake, session)
        first = rest.post("/namespaces/ns/tables/t/plan", {}).json()
        lake.load_table("ns.t").set_properties({"a": "b"})
        (token,) = first["plan-tasks"]
        rest_of_it = rest.post("/namespaces/ns/tables/t/tasks", {"plan-task": token}).json()
        assert len(rest_of_it["file-scan-tasks"]) == PARTS - 50


def test_a_long_plan_leaves_no_page_behind(lake, monkeypatch):
    kept = []

    def impatient(*settings):
        kept.append(plans_under_way.PlansUnderWay(*settings, patience_seconds=0))
        return kept[-1]

    monkeypatch.setattr(scan_operations, "PlansUnderWay", impatient)
    with serving(lake, plans=0) as server, requests.Session() as session:
        rest = Rest(server.url, lake, session)
        path = "/namespaces/ns/tables/t/plan"
        plan_id = rest.post(path, {}).json()["plan-id"]
        eventually(lambda: rest.get(f"{path}/{plan_id}").json()["status"] != "submitted")
        told = rest.get(f"{path}/{plan_id}").json()
        assert told == rest.get(f"{path}/{plan_id}").json()
        assert len(told["file-scan-tasks"]) == PARTS
        (plans,) = kept
        assert plans._plans[None][plan_id].work is None


@pytest.mark.parametrize(
    ("bound", "sizes", "kept"),
    [
        (10_000, [4000, 4000, 4000], [False, True, True]),
        (10_000, [4000, 4000, 20_000], [False, False, True]),
        (0, [4000, 4000], [False, True]),
        (64 * MIB, [1] * 70, [False] * 6 + [True] * 64),
    ],
)
def test_plans_that_are_dropped_are_not_begun_any_more(bound, sizes, kept):
    name, go, begun = Identifier.parse("ns.t"), threading.Event(), []

    def page(number, _):
        begun.append(number)
        assert go.wait(600)
        return b'{"a":1}'

    bounds = PlanBounds(waiting=100)
    plans = plans_under_way.PlansUnderWay(bound, bounds, patience_seconds=0)
    busy = [plans._planners.submit("busy", lambda _: go.wait(600)).result for _ in range(4)]
    for number, size in enumerate(sizes):
        plans.begin("busy", name, str(number), partial(page, number), size)
    go.set()
    wait(busy)
    eventually(lambda: not plans._planners._running)
    assert sorted(begun) == [number for number, is_kept in enumerate(kept) if is_kept]
    for number, is_kept in enumerate(kept):
        if is_kept:
            assert orjson.loads(plans.fetch("busy", name, str(number))) == {
                "status": "completed",
                "a": 1,
            }
        else:
            with pytest.raises(HttpError, match="does not exist"):
                plans.fetch("busy", name, str(number))


def test_tables_beyond_the_bound_are_read_again(lake):
    for n in range(20):
        lake.create_table(f"ns.t{n}", pa.schema({"id": pa.int64()}))
    names = [Identifier.parse(f"ns.t{n}") for n in range(20)]
    large, small = (ServedTables(lake.catalog, bound) for bound in (64 * MIB, 200_000))
    for name in [*names, *reversed(names)]:
        for which in ("all", REFS, APPENDED):
            assert large.body(name, which)[1] == small.body(name, which)[1]
            assert small.known.held <= 200_000
    assert large.known.held > 200_000


def test_bounds_are_given_by_name(lake):
    names = ["plans=1", "manifests=3", "types=6", "plans=5"]
    given = MemoryBounds.parse(names)
    assert (given.plans, given.tables) == (5 * MIB, MemoryBounds().tables)
    with HttpServer(rest_app(lake, memory=given), "127.0.0.1", 0):
        assert [kept.bytes_max // MIB for kept in (DEFAULT_CACHE.kept, MADE)] == [3, 6]
    for wrong in ("plans", "plans=", "plans=-1", "plans=1.5", "planes=1", "=1", "plans=²"):
        with pytest.raises(InvalidInputError, match="NAME=MIB"):
            MemoryBounds.parse([wrong])
