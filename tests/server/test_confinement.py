"""Callers who try to leave their folders, or to have others' files read for them."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog

from lakehouse.server.access import hashed_secrets
from lakehouse.server.operations import scan_operations
from lakehouse.server.rest_operation import BODY_BYTES_MAX
from tests.server.conftest import SCHEMA, Rest, open_lake, serve
from tests.server.guarded import SECRETS, guarded, rules_file
from tests.server.test_rest_protocol import append, error
from tests.server.test_view_operations import version
from tests.waiting import eventually

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture(scope="module", params=["filesystem", "sqlite"])
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("confined")
    lake = open_lake(request.param, folder / "lake")
    lake.create_table("bank.secret", ROWS.schema).append(ROWS)
    lake.create_table("ann.t", ROWS.schema).append(ROWS)
    with guarded(lake, rules_file(folder)) as found:
        yield found


def outside(server):
    """Places that are not Ann's, in every spelling."""
    home, bank = server.lake.warehouse, server.lake.load_table("bank.secret").location
    return [
        bank,
        f"{bank}/deeper",
        f"{home}/bank/new",
        f"{home}/annex/new",
        f"{home}/ann/../bank/secret",
        f"{home}/ann/%2e%2e/../bank",
        f"file://{bank}",
        f"FILE://localhost{bank}",
        f"{home}//bank///secret",
        home,
        "/",
        "/etc",
        "relative",
        "s3://elsewhere/x",
        "",
        f"{home}/ann/\x00",
    ]


def test_locations_outside_are_refused(server):
    token, root = server.token("ann"), server.token("root")
    tables, table = "/namespaces/ann/tables", "/namespaces/ann/tables/t"
    before = server.lake.load_table("ann.t").metadata_location
    for n, place in enumerate(outside(server)):
        body = {"name": f"n{n}", "schema": SCHEMA, "location": place}
        for more in ({}, {"stage-create": True}):
            assert server.ask(token, "POST", tables, body | more).status_code in (400, 403), place
        moved = {"updates": [{"action": "set-location", "location": place}]}
        assert server.ask(token, "POST", table, moved).status_code in (400, 403), place
        for key in ("write.metadata.path", "write.data.path"):
            properties = {"action": "set-properties", "updates": {key: place}}
            change = {"updates": [properties]}
            assert server.ask(token, "POST", table, change).status_code in (400, 403), place
            made = {"name": f"n{n}", "schema": SCHEMA, "properties": {key: place}}
            assert server.ask(token, "POST", tables, made).status_code in (400, 403), place
            creates = {
                "requirements": [{"type": "assert-create"}],
                "updates": [
                    {"action": "assign-uuid", "uuid": "0199aaaa-7c00-7000-8000-000000000001"},
                    {"action": "upgrade-format-version", "format-version": 2},
                    {"action": "add-schema", "schema": SCHEMA},
                    {"action": "set-current-schema", "schema-id": -1},
                    {"action": "set-location", "location": place},
                ],
            }
            assert server.ask(token, "POST", f"{tables}/n{n}", creates).status_code in (400, 403)
    assert server.lake.load_table("ann.t").metadata_location == before
    assert server.lake.list_tables("ann") == ["ann.t"]
    # whoever manages the catalog may not take another table's folder either
    for place in outside(server)[:2]:
        moved = {"updates": [{"action": "set-location", "location": place}]}
        answer = server.ask(root, "POST", table, moved)
        assert (answer.status_code, "bank.secret" in answer.text) == (400, True)


def test_metadata_of_views_is_not_written_outside(server):
    token = server.token("ann")
    views, view = "/namespaces/ann/views", "/namespaces/ann/views/seen"
    body = {"name": "seen", "schema": SCHEMA, "view-version": version()}
    assert server.ask(token, "POST", views, body).status_code == 200
    before = server.lake.load_view("ann.seen").metadata_location
    for place in outside(server):
        named = {"write.metadata.path": place}
        made = body | {"name": "other", "properties": named}
        assert server.ask(token, "POST", views, made).status_code in (400, 403), place
        if place:  # without one the server chooses
            moved = body | {"name": "other", "location": place}
            assert server.ask(token, "POST", views, moved).status_code in (400, 403), place
        for update in (
            {"action": "set-properties", "updates": named},
            {"action": "set-location", "location": place},
        ):
            answer = server.ask(token, "POST", view, {"updates": [update]})
            assert answer.status_code in (400, 403), place
    assert server.lake.list_views("ann") == ["ann.seen"]
    assert server.lake.load_view("ann.seen").metadata_location == before
    assert server.ask(token, "DELETE", view).status_code == 204


def test_anybody_s_set_location_leaves_other_tables_alone(tmp_path):
    """Also where nobody is asked who they are."""
    lake = open_lake("sqlite", tmp_path)
    with serve(lake) as server, requests.Session() as session:
        rest = Rest(server.url, lake, session)
        other = rest.table("ns", "other")["metadata"]["location"]
        rest.table("ns", "t")
        free = f"{lake.warehouse}/ns/free"
        for place, status in ((other, 400), (f"{other}/metadata", 400), (free, 200)):
            moved = {"updates": [{"action": "set-location", "location": place}]}
            assert rest.post("/namespaces/ns/tables/t", moved).status_code == status
        data = {"action": "set-properties", "updates": {"write.metadata.path": f"{other}/x"}}
        assert rest.post("/namespaces/ns/tables/t", {"updates": [data]}).status_code == 400
        # what was refused left no trace
        assert lake.load_table("ns.t").location == free


def test_what_lies_in_the_own_folder_is_allowed(server):
    token = server.token("ann")
    home = server.lake.load_table("ann.t").location
    for key, place in (("write.data.path", "d"), ("write.metadata.path", "metadata")):
        properties = {"action": "set-properties", "updates": {key: f"{home}/{place}"}}
        done = server.ask(token, "POST", "/namespaces/ann/tables/t", {"updates": [properties]})
        assert done.status_code == 200, done.text


def test_manifests_of_another_table_are_not_taken_for_ones_own(server):
    token = server.token("ann")
    stolen = server.lake.load_table("bank.secret").current_snapshot().manifest_list
    made = server.ask(
        token, "POST", "/namespaces/ann/tables", {"name": "thief", "schema": SCHEMA}
    ).json()
    asked = append(made["metadata"]["location"], 5)
    asked["updates"][0]["snapshot"]["manifest-list"] = stolen
    answer = server.ask(token, "POST", "/namespaces/ann/tables/thief", asked)
    assert error(answer) == (403, "ForbiddenException")
    # and a manifest list of one's own that names the manifests of another is not planned
    own = server.lake.load_table("ann.t")
    path = Path(own.current_snapshot().manifest_list.removeprefix("file://"))
    kept = path.read_bytes()
    try:
        path.write_bytes(Path(stolen.removeprefix("file://")).read_bytes())
        answer = server.ask(token, "POST", "/namespaces/ann/tables/t/plan", {})
        assert error(answer) == (403, "ForbiddenException")
        assert "data-file" not in answer.text
    finally:
        path.write_bytes(kept)
    assert server.ask(token, "POST", "/namespaces/ann/tables/t/plan", {}).status_code == 200


def test_what_was_planned_for_the_manager_is_not_told_to_others(server, monkeypatch):
    monkeypatch.setattr(scan_operations, "TASKS_MAX", 1)
    path = "/namespaces/ann/tables/smuggler"
    own = server.lake.create_table("ann.smuggler", ROWS.schema)
    for _ in range(5):  # its sequence numbers are above those of what it lists
        own.append(ROWS)
    bank = server.lake.load_table("bank.secret")
    bank.append(ROWS)
    listed = Path(own.refresh().current_snapshot().manifest_list.removeprefix("file://"))
    stolen = Path(bank.refresh().current_snapshot().manifest_list.removeprefix("file://"))
    listed.write_bytes(stolen.read_bytes())
    managed = server.ask(server.token("root"), "POST", f"{path}/plan", {})
    assert "/bank/" in managed.text
    ann, task = server.token("ann"), {"plan-task": managed.json()["plan-tasks"][0]}
    for answer in (
        server.ask(ann, "POST", f"{path}/plan", {}),
        server.ask(ann, "POST", f"{path}/tasks", task),
    ):
        assert error(answer) == (403, "ForbiddenException")
        assert "data-file" not in answer.text


def test_plan_tasks_of_another_table_are_not_handed_out(server, monkeypatch):
    monkeypatch.setattr(scan_operations, "TASKS_MAX", 1)
    bank = server.lake.load_table("bank.secret")
    bank.append(ROWS)
    whole = server.ask(server.token("root"), "POST", "/namespaces/bank/tables/secret/plan", {})
    task = whole.json()["plan-tasks"][0]
    ann = server.token("ann")
    body = {"plan-task": task}
    refused = server.ask(ann, "POST", "/namespaces/bank/tables/secret/tasks", body)
    assert refused.status_code == 403
    answer = server.ask(ann, "POST", "/namespaces/ann/tables/t/tasks", body)
    assert "/bank/" not in answer.text
    location, asked, *_ = json.loads(base64.urlsafe_b64decode(task))
    for begin in (0, 1, -5):
        forged = base64.urlsafe_b64encode(json.dumps([location, asked, begin]).encode()).decode()
        answer = server.ask(ann, "POST", "/namespaces/ann/tables/t/tasks", {"plan-task": forged})
        assert "/bank/" not in answer.text


def test_scans_of_the_own_table_are_planned(server):
    client = RestCatalog(
        "c", uri=server.url, token=server.token("ann"), **{"scan-planning-mode": "server"}
    )
    assert client.load_table("ann.t").scan().to_arrow().num_rows == 3


def test_a_table_whose_name_was_taken_before_is_its_callers_own(server):
    lake = server.lake
    for _ in range(2):  # on a filesystem the second lies in a folder of its own below the name's
        again = lake.create_table("ann.again", ROWS.schema)
        again.append(ROWS)
        lake.drop_table("ann.again")
    table = lake.create_table("ann.again", ROWS.schema)
    table.append(ROWS)
    path = "/namespaces/ann/tables/again/plan"
    planned = server.ask(server.token("ann"), "POST", path, {})
    assert planned.status_code == 200, planned.text
    assert len(planned.json()["file-scan-tasks"]) == 1
    lake.drop_table("ann.again")


def test_names_that_climb(server):
    token = server.token("ann")
    for space in ("ann%1F..%1Fbank", "..", "%2e%2e", "ann%2f..%2fbank", "ann%1F%2e%2e", "ann%00"):
        for name in ("secret", "..%2fbank%2fsecret", "%2e%2e", "..%1Fbank%1Fsecret"):
            answer = server.ask(token, "GET", f"/namespaces/{space}/tables/{name}")
            assert answer.status_code in (400, 403, 404), (space, name)
            assert "metadata-location" not in answer.text


PAGE = """<script>
const at = "{url}/v1/namespaces";
const asked = [
  fetch(at, {{method: "POST", mode: "no-cors", credentials: "include",
    body: '{{"namespace": ["by_fetch"]}}'}}),
  fetch(at, {{method: "POST", body: '{{"namespace": ["by_cors"]}}'}}),
  fetch(at + "/ann/tables/t", {{method: "DELETE"}}),
];
Promise.allSettled(asked).then(() => document.title = "asked");
</script>
<form method="POST" enctype="text/plain" action="{url}/v1/namespaces">
<input name='{{"namespace": ["by_form"], "properties": {{"a": "' value='"}}}}'></form>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium here")
@pytest.mark.parametrize("end", ["", "<script>document.forms[0].submit()</script>"])
def test_pages_of_others_change_nothing(tmp_path, end):
    """A page somewhere on the web, and a server that asks nobody on the reader's machine."""
    lake = open_lake("filesystem", tmp_path / "lake")
    lake.create_table("ann.t", ROWS.schema)
    with serve(lake) as server:
        page = tmp_path / "page.html"
        page.write_text(PAGE.format(url=server.url) + end)
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000")
        done = subprocess.run(
            ["chromium", *options, "--dump-dom", page.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        told = requests.get(f"{server.url}/metrics", timeout=30).text
    assert lake.list_namespaces() == ["ann"]
    assert lake.list_tables() == ["ann.t"]
    refused = [line for line in told.splitlines() if "_count" in line and 'status="403"' in line]
    assert refused, told  # it was asked


@pytest.mark.parametrize(
    "headers", [{"Origin": "null"}, {"Origin": "http://x"}, {"Sec-Fetch-Mode": "cors"}]
)
def test_what_scripts_send_is_refused(server, headers):
    for path in ("/", "/v1/config", "/v1/namespaces", "/metrics"):
        answer = requests.get(server.url + path, headers=headers, timeout=30)
        assert answer.status_code == 403
    opened = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"}
    assert requests.get(f"{server.url}/health", headers=opened, timeout=30).status_code == 200


def test_guessing_secrets_keeps_nobody_waiting(server):
    """Whatever hashing takes: here it takes until the end of the block."""
    token = server.token("ann")
    url = f"{server.url}/v1/oauth/tokens"
    form = {"grant_type": "client_credentials", "client_id": "ann", "client_secret": "wrong"}

    def guess() -> None:
        requests.post(url, data=form, timeout=60)
        requests.get(server.url, auth=("ann", "wrong"), timeout=60)

    guesses = [threading.Thread(target=guess) for _ in range(80)]
    with hashed_secrets._turn:
        for one in guesses:
            one.start()
        time.sleep(0.5)
        for _ in range(3):
            assert server.ask(token, "GET", "/namespaces/ann/tables").status_code == 200
            assert server.token("ann")  # whose secret was compared before
            by_secret = requests.get(server.url, auth=("ann", SECRETS["ann"]), timeout=30)
            assert by_secret.status_code == 200
    for one in guesses:
        one.join()


def test_who_guesses_waits_behind_itself_and_few_of_its_guesses_do(server):
    """Those of one peer and name are told to try again; none of another name is."""
    url = f"{server.url}/v1/oauth/tokens"
    form = {"grant_type": "client_credentials", "client_id": "ann"}

    def guess(number: int) -> int:
        told = {**form, "client_secret": str(number)}
        return requests.post(url, data=told, timeout=60).status_code

    with ThreadPoolExecutor(80) as pool:
        with hashed_secrets._turn:
            guesses = [pool.submit(guess, number) for number in range(80)]
            eventually(lambda: sum(guess.done() for guess in guesses) >= 60)
            assert {guess.result() for guess in guesses if guess.done()} == {429}
            first_login = pool.submit(server.token, "bob")
        assert first_login.result()
        assert {guess.result() for guess in guesses} == {401, 429}
    assert server.token("ann")


class Slow:
    """Comparisons that take until they are let go, and the order in which they begin."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str | None, int]] = []
        self.let_go = threading.Semaphore(0)

    def submit(self, checks, peer, name, number):
        def compare() -> bool:
            self.begun.append((peer, name, number))
            return self.let_go.acquire(timeout=600)

        return checks.submit(peer, name, str(number).encode(), compare)


def test_secrets_of_each_peer_and_name_are_compared_in_turn():
    checks, slow = hashed_secrets.SecretChecks(), Slow()
    guesses = [slow.submit(checks, "guesser", "ann", number) for number in range(40)]
    assert guesses.index(None) == 17  # one is compared, sixteen wait
    names = [slow.submit(checks, "guesser", None, number) for number in range(40)]
    assert names.index(None) == 16
    others = [slow.submit(checks, "other", "ann", 0), slow.submit(checks, "guesser", "bob", 0)]
    same = [slow.submit(checks, "guesser", "ann", number) for number in (0, 3)]
    assert same == [guesses[0], guesses[3]]
    slow.let_go.release(100)
    waiting = [one for one in (*guesses, *names, *others) if one is not None]
    assert all(one.result(600) for one in waiting)
    assert len(slow.begun) == len(set(slow.begun)) == len(waiting)
    # at most one of each lane before it
    assert slow.begun.index(("other", "ann", 0)) <= 2
    assert slow.begun.index(("guesser", "bob", 0)) <= 5


def test_what_compares_may_fail():
    checks = hashed_secrets.SecretChecks()

    def fails() -> bool:
        raise MemoryError

    with pytest.raises(MemoryError):
        checks.submit("a", "b", b"1", fails).result(600)
    assert checks.submit("a", "b", b"2", lambda: True).result(600)


DEEP = b"[" * 100_000
BODIES = [
    DEEP,
    b'{"name":' + DEEP,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    b'{"name": "x", "schema": ' + b'{"type":"list","element":' * 900 + b"1" + b"}" * 901,
    b'{"name": "x", "schema": {"type":"struct","fields":['
    + b'{"id":1,"name":"a","required":false,"type":{"type":"struct","fields":[' * 300
    + b"]}}" * 300
    + b"]}}",
    b'{"name": "x", "schema": {"fields": "' + b"a" * 1_000_000 + b'", "type": "struct"}}',
    b'{"filter":' + b'{"type":"not","child":' * 900 + b"true" + b"}" * 901,
    b'{"requirements":[],"updates":[' + b'{"action":"?"},' * 10_000 + b"1]}",
]


@pytest.mark.parametrize("number", range(len(BODIES)))
def test_deep_and_strange_bodies_are_refused(server, number):
    token = server.token("ann")
    for path in ("tables", "tables/t", "tables/t/plan", "tables/t/metrics", "properties"):
        answer = requests.post(
            f"{server.url}/v1/namespaces/ann/{path}",
            data=BODIES[number],
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        )
        assert 400 <= answer.status_code < 500 or answer.status_code == 200, answer.text[:300]
        assert len(answer.content) < 2_500_000
    assert requests.get(f"{server.url}/health", timeout=30).status_code == 200


def test_a_hundred_megabytes_are_not_taken(server):
    """Nor anything of a caller who is not known: the server hangs up before all is sent.

    What is sent and not taken stands in the buffers between.
    """

    def chunks(sent):
        for _ in range(100):
            sent.append(1)
            yield b"x" * 2**20

    url = f"{server.url}/v1/namespaces/ann/tables"
    for token, expected, most in (
        (server.token("ann"), 413, BODY_BYTES_MAX // 2**20 + 20),
        ("wrong", 401, 20),
    ):
        sent = []
        try:
            answer = requests.post(
                url,
                data=chunks(sent),
                headers={"Authorization": f"Bearer {token}"},
                timeout=60,
            )
            assert answer.status_code == expected
        except requests.ConnectionError:
            pass  # the answer was lost, as the server hung up while the rest was sent
        assert len(sent) <= most
