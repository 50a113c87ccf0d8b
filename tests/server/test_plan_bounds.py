"""What a reader may ask of the planner, and that others are served whatever it asks."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import orjson
import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.expressions import In

import lakehouse as lh
from lakehouse.errors import InvalidInputError
from lakehouse.expressions.filter_binding import bind
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.server.error_answers import HttpError
from lakehouse.server.http_server import HttpServer
from lakehouse.server.operations import plans_under_way
from lakehouse.server.operations.plan_bounds import PlanBounds
from lakehouse.server.operations.plans_under_way import PlansUnderWay
from lakehouse.server.operations.scan_operations import ScanPlanning
from lakehouse.server.rest_app import rest_app
from lakehouse.spec.identifier import Identifier
from lakehouse.table import served_plan
from tests.server.conftest import Rest, open_lake
from tests.server.guarded import guarded, rules_file
from tests.server.test_rest_protocol import error
from tests.waiting import eventually

PLAN = "/namespaces/ns/tables/t/plan"
TASKS = "/namespaces/ns/tables/t/tasks"
T = Identifier.parse("ns.t")


@contextmanager
def serving(folder, **bounds):
    lake = open_lake("sqlite", folder)
    table = lake.create_table("ns.t", pa.schema({"id": pa.int64(), "name": pa.string()}))
    for n in range(3):
        table.append(pa.table({"id": [n], "name": [f"n{n}"]}))
    with (
        HttpServer(rest_app(lake, plans=PlanBounds(**bounds)), "127.0.0.1", 0) as server,
        requests.Session() as session,
    ):
        yield Rest(server.url, lake, session)


def leaf(n):
    return {"type": "eq", "term": "id", "value": n}


def tree(kind, leaves):
    if len(leaves) == 1:
        return leaves[0]
    middle = len(leaves) // 2
    return {
        "type": kind,
        "left": tree(kind, leaves[:middle]),
        "right": tree(kind, leaves[middle:]),
    }


def chain(kind, n):
    found = leaf(0)
    for one in range(1, n):
        found = {"type": kind, "left": found, "right": leaf(one)}
    return found


def negated(n):
    found = leaf(0)
    for _ in range(n - 1):
        found = {"type": "not", "child": found}
    return found


def literals(n):
    return {"type": "literals", "values": [{"type": "literal", "value": one} for one in range(n)]}


def listed(kind, n):
    return {"type": kind, "term": "id", "values": list(range(n))}


ASKED = {
    "or": ("leaves", lambda n: {"filter": tree("or", [leaf(one) for one in range(n)])}),
    "and": ("leaves", lambda n: {"filter": tree("and", [leaf(one) for one in range(n)])}),
    "is-null": (
        "leaves",
        lambda n: {"filter": tree("or", [{"type": "is-null", "term": "id"}] * n)},
    ),
    "below not": ("leaves", lambda n: {"filter": {"type": "not", "child": tree("or", [True] * n)}}),
    "in": ("values", lambda n: {"filter": listed("in", n)}),
    "not-in": ("values", lambda n: {"filter": listed("not-in", n)}),
    "two lists": (
        "values",
        lambda n: {"filter": tree("and", [listed("in", n - 1), listed("in", 1)])},
    ),
    "literals": (
        "values",
        lambda n: {"filter": {"type": "in", "child": "id", "values": literals(n)}},
    ),
    "select": ("values", lambda n: {"select": ["id"] * n}),
    "stats-fields": ("values", lambda n: {"stats-fields": ["id"] * n}),
    "left deep": ("depth", lambda n: {"filter": chain("or", n)}),
    "nots": ("depth", lambda n: {"filter": negated(n)}),
}


def token(body):
    parts = ["somewhere", orjson.dumps(body).decode(), 0, False]
    return {"plan-task": base64.urlsafe_b64encode(orjson.dumps(parts)).decode()}


@pytest.fixture(scope="module")
def bounded(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("bounded"), leaves=12, values=14, depth=9) as rest:
        yield rest


@pytest.mark.parametrize(("bound", "asked"), ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("door", ["plan", "tasks"])
def test_what_asks_for_more_is_refused_and_told_the_bound(bounded, bound, asked, door):
    most = {"leaves": 12, "values": 14, "depth": 9}[bound]

    def ask(n):
        body = asked(n)
        return bounded.post(*((PLAN, body) if door == "plan" else (TASKS, token(body))))

    allowed = ask(most)
    assert allowed.status_code == 200, allowed.text
    refused = ask(most + 1)
    assert error(refused) == (400, "BadRequestException")
    message = refused.json()["error"]["message"]
    assert f"--plans {bound}={most}" in message
    assert "Send a filter that keeps more" in message


def test_a_plan_that_takes_too_long_is_ended(tmp_path):
    """Whatever the filter: the time is asked for between its conditions and between manifests."""
    with serving(tmp_path, seconds=-1) as rest:
        for body in ({"filter": leaf(1)}, {"filter": tree("or", [leaf(1), leaf(2)])}, {}):
            refused = rest.post(PLAN, body)
            assert error(refused) == (400, "BadRequestException")
            assert "--plans seconds=-1" in refused.json()["error"]["message"]
            assert error(rest.post(TASKS, token(body))) == (400, "BadRequestException")


def test_the_time_is_asked_for_at_every_condition(tmp_path):
    """However many: what is counted is asked between two of them, at each manifest."""
    lake = open_lake("sqlite", tmp_path)
    schema = pa.schema({"id": pa.int64(), "name": pa.string()})
    counted = {}
    for partition_by in ([], ["bucket(4, id)"], ["id"]):
        name = f"ns.t{len(partition_by)}{''.join(partition_by)[:1]}"
        table = lake.create_table(name, schema, partition_by=partition_by)
        for n in range(5):
            table.append(pa.table({"id": [n], "name": ["x"]}))
        metadata = table.refresh().metadata
        where = bind(
            " or ".join(f"name = 'v{n}' or id = {n}" for n in range(40)), metadata.schema()
        )
        asked = []
        request = ScanRequest(
            metadata=metadata, where=where, checkpoint=lambda asked=asked: asked.append(1)
        )
        plan_scan(request, lake.catalog.storage(metadata.location))
        counted[name] = len(asked)
    assert all(count >= 5 * 80 for count in counted.values()), counted


def test_a_plan_that_nobody_wants_ends(tmp_path):
    begun, plans = threading.Event(), PlansUnderWay(64, patience_seconds=0)

    def endless(time_left):
        begun.set()
        while True:
            time_left.check()

    plans.begin("ann", T, "one", endless, 1)
    assert begun.wait(600)
    plans.cancel(T, "one")
    eventually(lambda: not plans._planners._running)
    assert plans.fetch("ann", T, "one") == b'{"status":"cancelled"}'


def test_principals_take_turns(monkeypatch):
    """Who asked for many waits for who asked for one."""
    monkeypatch.setattr(plans_under_way, "_PLANNERS", 1)
    plans, go, order = PlansUnderWay(64, patience_seconds=0), threading.Event(), []

    def page(name, _):
        assert go.wait(600)
        order.append(name)
        return b"{}"

    for n in range(6):
        plans.begin("ann", T, f"ann{n}", partial(page, f"ann{n}"), 1)
    plans.begin("bob", T, "bob", partial(page, "bob"), 1)
    plans.begin("eve", T, "eve", partial(page, "eve"), 1)
    go.set()
    eventually(lambda: len(order) == 8)
    assert order[:4] == ["ann0", "ann1", "bob", "eve"]


def test_who_has_many_plans_loses_its_own(tmp_path):
    plans = PlansUnderWay(64, patience_seconds=30)
    plans.begin("bob", T, "bob", lambda _: b'{"a":1}', 1)
    for n in range(200):
        plans.begin("ann", T, f"ann{n}", lambda _: b'{"a":1}', 1)
    assert b"completed" in plans.fetch("bob", T, "bob")
    assert b"completed" in plans.fetch("ann", T, "ann199")
    with pytest.raises(HttpError, match="does not exist"):
        plans.fetch("ann", T, "ann100")


def test_places_of_plans_that_nobody_wants_are_free(tmp_path):
    go, bounds = threading.Event(), PlanBounds(at_once=1, waiting=2)
    plans = PlansUnderWay(64, bounds, patience_seconds=0)

    def wait(_):
        assert go.wait(600)
        return b'{"a":1}'

    for n in range(3):
        plans.begin("ann", T, str(n), wait, 1)
    with pytest.raises(HttpError, match="at-once=") as refused:
        plans.begin("ann", T, "3", wait, 1)
    assert refused.value.status == 429
    plans.begin("bob", T, "bob", wait, 1)
    plans.cancel(T, "1")
    plans.begin("ann", T, "4", wait, 1)
    go.set()
    eventually(lambda: b"completed" in plans.fetch("ann", T, "4"))


def test_others_are_served_while_a_reader_plans(tmp_path, monkeypatch):
    """Nothing is timed: no plan of the reader ends before everybody else was answered."""
    go, began, planned = threading.Event(), [], ScanPlanning._planned

    def wait(self, served, *rest):
        if served.caller.name == "bob":
            began.append(1)
            assert go.wait(600)
        return planned(self, served, *rest)

    monkeypatch.setattr(ScanPlanning, "_planned", wait)
    lake = open_lake("sqlite", tmp_path / "lake")
    for name in ("shared.deep.t", "ann.t"):
        lake.create_table(name, pa.schema({"id": pa.int64()})).append(pa.table({"id": [1]}))
    slow = "/namespaces/shared%1Fdeep/tables/t"
    with guarded(lake, rules_file(tmp_path)) as server, ThreadPoolExecutor(60) as clients:
        bob, ann = server.token("bob"), server.token("ann")
        answers = []

        def plan(n):
            body = {"filter": leaf(n)}
            path, body = (f"{slow}/plan", body) if n % 2 else (f"{slow}/tasks", token(body))
            answers.append(server.ask(bob, "POST", path, body))

        asked = [clients.submit(plan, n) for n in range(60)]
        # 4 are worked on, 32 wait, the others are told to come again
        eventually(lambda: len(answers) == 24)
        eventually(lambda: len(began) == 4)
        assert {(answer.status_code, answer.headers["Retry-After"]) for answer in answers} == {
            (429, "1")
        }
        assert "Principal bob may have 4" in answers[0].json()["error"]["message"]
        for n in range(40):
            server.token("ann")
            changed = {"updates": [{"action": "set-properties", "updates": {"n": str(n)}}]}
            told = [
                server.ask(ann, "GET", "/namespaces/ann/tables/t"),
                server.ask(ann, "GET", "/namespaces/ann/tables"),
                server.ask(ann, "POST", "/namespaces/ann/tables/t", changed),
                server.ask(ann, "POST", "/namespaces/ann/tables/t/plan", {"filter": leaf(n)}),
                server.ask(bob, "GET", slow),
            ]
            assert [one.status_code for one in told] == [200] * 5, [one.text for one in told]
        assert (len(answers), len(began)) == (24, 4)
        go.set()
        for one in asked:
            one.result(600)
        assert sorted(answer.status_code for answer in answers) == [200] * 36 + [429] * 24


@pytest.mark.slow
def test_our_client_asks_for_no_more_than_servers_read(tmp_path, monkeypatch):
    where = [
        f"id in ({', '.join(map(str, range(1, 12_000)))})",
        " or ".join(f"(id = {n} and name = 'n{n}')" for n in range(1, 260)),
        " or ".join(f"(id = {n} and name = 'n{n}')" for n in range(1, 900)) + " or id = 1",
        "id > 0 and (" + " or ".join(f"(id = {n} and name = 'n{n}')" for n in range(1, 900)) + ")",
    ]
    with serving(tmp_path) as rest:
        ours = lh.load_catalog(rest.url, **{"scan-planning-mode": "server"}).load_table("ns.t")
        own = rest.lake.load_table("ns.t")
        for one in where:
            assert ours.scan(where=one).count() == own.scan(where=one).count() == 2
        # a range of many values, and what else there is of a filter, still prune
        assert [len(ours.scan(where=where[n]).plan().files) for n in (0, 3)] == [2, 2]
        theirs = RestCatalog("c", uri=rest.url, **{"scan-planning-mode": "server"})
        with pytest.raises(BadRequestError, match="--plans values=10000"):
            theirs.load_table("ns.t").scan(row_filter=In("id", range(10_001))).to_arrow()
        assert PlanBounds().values == served_plan.VALUES_MAX


def test_bounds_are_given_by_name():
    given = PlanBounds.parse(["leaves=1", "at-once=2", "leaves=3"])
    assert (given.leaves, given.at_once, given.values) == (3, 2, PlanBounds().values)
    for wrong in (
        "leaves",
        "leaves=",
        "leaves=0",
        "leaves=-1",
        "at_once=1",
        "planes=1",
        "leaves=²",
    ):
        with pytest.raises(InvalidInputError, match="NAME=NUMBER"):
            PlanBounds.parse([wrong])
    with pytest.raises(InvalidInputError, match="200 levels"):
        PlanBounds.parse(["depth=201"])
