"""Two processes serve one catalog: whoever is asked answers as the only one would."""

from __future__ import annotations

import json
import os
import signal
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import requests
from prometheus_client import values
from typer.testing import CliRunner

from lakehouse.cli import app
from lakehouse.errors import StorageError
from lakehouse.server.access.principals_file import read_rules
from lakehouse.server.meters import Meters
from lakehouse.server.operations.plan_bounds import PlanBounds
from lakehouse.server.sibling_workers import RELAYED, Siblings
from lakehouse.server.watching import access_log
from lakehouse.server.worker_processes import WorkerProcesses
from tests.server.conftest import Rest, open_lake, served_by_each
from tests.server.guarded import Guarded, rules_file
from tests.servers import ServeProcess
from tests.waiting import eventually

TABLE = "/namespaces/ns/tables/t"


def siblings(folder, number, count=2):
    return Siblings(number, tuple(range(1, count + 1)), folder, "secret")


def test_a_plan_is_found_by_whoever_is_asked(tmp_path):
    first, twelfth = siblings(tmp_path, 0, 12), siblings(tmp_path, 11, 12)
    assert first.owner(twelfth.mark("p")) == 11
    assert twelfth.owner(first.mark("p")) == 0
    assert twelfth.owner(siblings(tmp_path, 1, 12).mark("p")) == 1
    for nobody in (first.mark("p"), "p", "p.", "p.12", "p.-1", "p.01", "p.٣", "1", ""):
        assert first.owner(nobody) is None, nobody


def test_counts_are_told_of_all_by_each_and_outlive_a_process(tmp_path, monkeypatch):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    both = [siblings(tmp_path, number) for number in (0, 1)]
    for one in both:
        one.began()
    meters = [Meters(one) for one in both]
    meters[0].answered("GET /x", 200, 0.002)
    meters[1].answered("GET /x", 200, 0.002)
    with meters[1].commit():
        pass
    again = Meters(both[1])  # the process died, and another one has its number
    again.answered("GET /x", 200, 7)
    for one in (meters[0], again):
        text = one.text().decode()
        assert 'request_seconds_count{operation="GET /x",status="200"} 3.0' in text
        assert 'lakehouse_commits_total{outcome="committed"} 1.0' in text
        for number in (0, 1):
            assert f'process_resident_memory_bytes{{worker="{number}"}}' in text


def test_bounds_of_a_principal_are_shared():
    assert PlanBounds().shared_by(2) == PlanBounds(at_once=2, waiting=16)
    assert PlanBounds(at_once=1, waiting=1).shared_by(3) == PlanBounds(at_once=1, waiting=1)


def test_a_catalog_in_memory_is_refused_by_name():
    command = ["serve", "--catalog", "memory://mine", "--workers", "2", "--port", "0"]
    kept = [(one, signal.getsignal(one)) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    try:
        done = CliRunner().invoke(app, command)
    finally:
        for number, handler in kept:
            signal.signal(number, handler)
    assert done.exit_code == 1
    assert "memory://mine is in the memory of one process" in " ".join(done.output.split())


def test_lines_of_several_processes_are_appended_whole(tmp_path, monkeypatch):
    """As long as they are: what takes two calls can have another's line between."""
    calls = []
    monkeypatch.setattr(access_log.os, "write", lambda _, data: calls.append(data))
    kept = access_log.log.handlers[:], access_log.log.level, access_log.log.propagate
    try:
        access_log.open_log(str(tmp_path / "log"))
        names = tuple(f"{n}" * 250 for n in range(100))
        more = {"at_ms": 0, "principal": None, "operation": "x", "status": 200, "seconds": 0.0}
        access_log.log_request(names=names, **more)
    finally:
        access_log.log.handlers[-1].close()
        access_log.log.handlers[:], access_log.log.level, access_log.log.propagate = kept
    assert len(calls) == 1
    assert json.loads(calls[0])["names"] == list(names)


@pytest.fixture(scope="module", params=["filesystem", "sqlite"])
def two(request, tmp_path_factory):
    """Two workers, and each by its own port, where no chance decides who is asked."""
    lake = open_lake(request.param, tmp_path_factory.mktemp("two"))
    served = served_by_each(lake)
    with WorkerProcesses(served, "127.0.0.1", 0, 2) as server, requests.Session() as session:
        found = [Rest(url, lake, session) for url in urls(server)]
        found[0].table("ns", "t", properties={"write.metadata.previous-versions-max": "9999"})
        yield server, found


def urls(server):
    return [f"http://127.0.0.1:{port}" for port in server._workers[0].siblings.ports]


def setting(rest, key, value, **headers):
    update = {"action": "set-properties", "updates": {key: value}}
    return rest.post(TABLE, {"requirements": [], "updates": [update]}, **headers)


@pytest.mark.slow
def test_what_one_wrote_the_other_tells_at_once(two):
    _, (one, other) = two
    for n in range(20):
        assert setting(one, "n", str(n)).status_code == 200
        told = other.get(TABLE).json()["metadata"]["properties"]
        assert told["n"] == str(n)
        one, other = other, one


@pytest.mark.slow
def test_a_plan_of_one_is_told_and_cancelled_by_the_other(two):
    _, rests = two
    for one, other in (rests, rests[::-1]):
        made = one.post(f"{TABLE}/plan", {}).json()
        path = f"{TABLE}/plan/{made['plan-id']}"
        lines = [answered(one), answered(other)]
        assert other.get(path).json() == one.get(path).json()
        assert other.get(path).json()["status"] == "completed"
        assert [answered(one) - lines[0], answered(other) - lines[1]] == [3, 3]  # counted once
        assert other.get(path.replace("tables/t", "tables/u")).status_code == 404
        assert other.ask("DELETE", path).status_code == 204
        for asked in (one, other):
            assert asked.get(path).json()["status"] == "cancelled"
        for unknown in ("0", "1", "7"):
            gone = other.get(f"{TABLE}/plan/{uuid.uuid4()}.{unknown}")
            assert gone.status_code == 404
            assert gone.json()["error"]["type"] == "NoSuchPlanIdException"


def answered(rest):
    """How many requests for plans by their id the server has answered, by whoever tells it."""
    text = requests.get(f"{rest.url}/metrics", timeout=60).text
    begin = 'lakehouse_request_seconds_count{operation="GET /v1/{prefix}/namespaces/{namespace}/'
    begin += 'tables/{table}/plan/{plan-id}",status="200"} '
    return sum(float(line.removeprefix(begin)) for line in text.splitlines() if begin in line)


@pytest.mark.slow
def test_who_pretends_to_be_a_sibling_is_counted(two):
    _, (one, other) = two
    path = f"{TABLE}/plan/{one.post(f'{TABLE}/plan', {}).json()['plan-id']}"
    before = answered(one)
    assert other.get(path, **{RELAYED: "guess"}).status_code == 200
    assert answered(one) == before + 1


@pytest.mark.slow
def test_a_request_that_both_were_sent_takes_effect_once(two):
    """Both at the same time, again and again, and once more afterwards."""
    _, rests = two
    lake, many = rests[0].lake, range(12)
    start = threading.Barrier(2)

    def create(rest, number, key):
        start.wait()
        return rest.ask(
            "POST", "/namespaces/ns/tables", created(number), **{"Idempotency-Key": key}
        )

    with ThreadPoolExecutor(2) as pool, requests.Session() as mine:
        separate = [rests[0], Rest(rests[1].url, lake, mine)]
        for number in many:
            key = str(uuid.uuid4())
            answers = list(pool.map(create, separate, [number] * 2, [key] * 2))
            told = [answer for answer in answers if answer.status_code == 200]
            assert told, [answer.text for answer in answers]
            # whoever cannot know yet says so, and is asked again
            assert {answer.status_code for answer in answers} <= {200, 409, 500, 503}
            again = [
                one.ask(
                    "POST", "/namespaces/ns/tables", created(number), **{"Idempotency-Key": key}
                )
                for one in separate
            ]
            found = {one.json()["metadata"]["table-uuid"] for one in (*told, *again)}
            assert len(found) == 1
    assert {f"ns.c{number}" for number in many} <= set(lake.list_tables("ns"))


def created(number):
    field = {"id": 1, "name": "id", "type": "long", "required": False}
    return {"name": f"c{number}", "schema": {"type": "struct", "schema-id": 0, "fields": [field]}}


@pytest.mark.slow
def test_a_refusal_is_told_again_by_the_other(two):
    _, (one, other) = two
    key = {"Idempotency-Key": str(uuid.uuid4())}
    body = {"requirements": [{"type": "assert-table-uuid", "uuid": str(uuid.uuid4())}]}
    body["updates"] = [{"action": "set-properties", "updates": {"a": "b"}}]
    refused = one.post(TABLE, body, **key)
    assert refused.status_code == 409
    again = other.post(TABLE, body, **key)
    assert (again.status_code, again.text) == (409, refused.text)
    assert other.post(TABLE, {**body, "requirements": []}, **key).status_code == 422


@pytest.mark.slow
def test_one_that_is_killed_is_started_again_and_nothing_is_lost(two):
    server, rests = two
    plans = [rest.post(f"{TABLE}/plan", {}).json()["plan-id"] for rest in rests]
    counted = answered(rests[0])
    pids = dict(server._workers[0].siblings.processes())
    os.kill(pids[1], signal.SIGKILL)
    # who asks meanwhile waits for the next one
    with requests.Session() as mine:
        other = Rest(rests[1].url, rests[1].lake, mine)
        eventually(lambda: tells(other))
        assert setting(other, "after", "kill").status_code == 200
        assert other.get(f"{TABLE}/plan/{plans[0]}").status_code == 200
        assert rests[0].get(f"{TABLE}/plan/{plans[1]}").status_code == 404
        assert answered(other) >= counted
    assert dict(server._workers[0].siblings.processes())[1] != pids[1]
    assert rests[0].get(TABLE).json()["metadata"]["properties"]["after"] == "kill"
    os.kill(pids[0], signal.SIGTERM)  # one alone: it ends, and another one is started
    eventually(lambda: dict(server._workers[0].siblings.processes())[0] != pids[0])


def tells(rest):
    try:
        return rest.get(TABLE).status_code == 200
    except requests.ConnectionError:  # was under way when it was killed
        return False


@pytest.mark.slow
def test_what_one_signs_the_other_reads_until_the_rules_change(tmp_path):
    lake, file = open_lake("sqlite", tmp_path), rules_file(tmp_path)
    served = served_by_each(lake)
    with WorkerProcesses(served, "127.0.0.1", 0, 2, rules=read_rules(file)) as server:
        one, other = (Guarded(url, lake) for url in urls(server))
        tokens = [one.token("root"), other.token("root")]
        assert one.ask(tokens[0], "POST", "/namespaces", {"namespace": ["ns"]}).status_code == 200
        for asked in (one, other):
            for token in tokens:
                assert asked.ask(token, "GET", "/namespaces/ns").status_code == 200
            assert asked.ask(None, "GET", "/namespaces/ns").status_code == 401
        changed = rules_file(tmp_path, roles={"root": [{"in": "elsewhere", "may": ["read"]}]})
        server.follow(read_rules(changed))
        for asked in (one, other):
            for token in tokens:
                assert asked.ask(token, "GET", "/namespaces/ns").status_code == 403
            assert asked.ask(asked.token("root"), "GET", "/namespaces/ns").status_code == 403


@pytest.mark.slow
def test_workers_end_with_who_started_them(tmp_path):
    warehouse = str(tmp_path / "wh")
    with ServeProcess(warehouse, warehouse, "--workers", "2") as server:
        server.kill()  # returns once nobody listens
        server.start()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        assert server._is_gone()


@pytest.mark.slow
def test_a_server_whose_workers_cannot_start_does_not(tmp_path, capfd):
    served = replace(served_by_each(open_lake("sqlite", tmp_path)), catalog={"uri": "sqlite:///x"})
    server = WorkerProcesses(served, "127.0.0.1", 0, 2)
    with pytest.raises(StorageError, match=r"did not start: see what was logged"):
        server.__enter__()
    assert "A worker cannot start: A SQL catalog needs a warehouse" in capfd.readouterr().err
