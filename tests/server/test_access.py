"""Who may do what: every operation, every privilege, here and elsewhere."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError

import lakehouse as lh
from lakehouse.errors import InvalidInputError
from lakehouse.server.access.principals_file import read_rules
from lakehouse.server.http_server import HttpServer
from lakehouse.server.operations.access_operations import TOKEN_OPERATIONS
from lakehouse.server.rest_app import operations_of, rest_app
from lakehouse.server.rest_operation import Operation
from lakehouse.server.watching.watch_operations import WATCH_OPERATIONS
from tests.server.conftest import SCHEMA, open_lake
from tests.server.guarded import SECRETS, guarded, rules_file
from tests.server.test_rest_protocol import append, error

ONLY_READ = {"identifier": "{t}", "updates": []}
VIEW = {
    "schema": SCHEMA,
    "view-version": {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["mine"],
        "representations": [{"type": "sql", "sql": "SELECT 1 AS id", "dialect": "spark"}],
    },
}
SAID = "/semantics/namespaces/{ns}/tables/t"
SPACE, TABLE, ONE_VIEW = "/namespaces/{ns}", "/namespaces/{ns}/tables/t", "/namespaces/{ns}/views/v"
CREATES = {"requirements": [{"type": "assert-create"}], "updates": []}
# method, path, body, and the privileges of which each is enough; written down by hand
CASES = [
    ("GET", SPACE, None, "read write create drop manage"),
    ("HEAD", SPACE, None, "read write create drop manage"),
    ("GET", f"{SPACE}/tables", None, "read write create drop manage"),
    ("GET", f"{SPACE}/views", None, "read write create drop manage"),
    ("POST", "/namespaces", {"namespace": ["{ns}", "below"]}, "create manage"),
    ("POST", f"{SPACE}/properties", {"updates": {"a": "b"}}, "manage"),
    ("DELETE", SPACE, None, "drop manage"),
    ("POST", f"{SPACE}/tables", {"name": "new", "schema": SCHEMA}, "create manage"),
    ("POST", f"{SPACE}/register", {"name": "r", "metadata-location": "/x"}, ""),
    ("POST", f"{SPACE}/register-view", {"name": "r", "metadata-location": "/x"}, ""),
    ("GET", TABLE, None, "read write manage"),
    ("HEAD", TABLE, None, "read write manage"),
    ("POST", TABLE, {"requirements": [], "updates": []}, "write manage"),
    ("POST", TABLE, CREATES, "create manage"),
    ("POST", f"{TABLE}/appends", {"manifests": []}, "write manage"),
    ("POST", f"{TABLE}/metrics", {"report-type": "none"}, "read write manage"),
    ("POST", f"{TABLE}/plan", {}, "read write manage"),
    ("POST", f"{TABLE}/tasks", {"plan-task": "none"}, "read write manage"),
    ("POST", "/transactions/commit", {"table-changes": [{"identifier": "{t}"}]}, "write manage"),
    ("POST", "/transactions/commit", {"table-changes": [ONLY_READ]}, "read write manage"),
    ("POST", f"{SPACE}/views", {"name": "w", **VIEW}, "create manage"),
    ("GET", ONE_VIEW, None, "read write manage"),
    ("HEAD", ONE_VIEW, None, "read write manage"),
    ("POST", ONE_VIEW, {"requirements": [], "updates": []}, "write manage"),
    ("GET", SAID, None, "read write manage"),
    ("POST", SAID, {"statements": [], "removals": []}, "write manage"),
    ("POST", "/tables/rename", {"source": "{t}", "destination": "{new}"}, "manage"),
    ("POST", "/views/rename", {"source": "{v}", "destination": "{new}"}, "manage"),
    ("GET", f"{SPACE}/functions", None, "read write create drop manage"),
    ("GET", f"{SPACE}/functions/{{function}}", None, "read write create drop manage"),
    ("GET", f"{TABLE}/plan/{{plan_id}}", None, "read write manage"),
    ("DELETE", f"{TABLE}/plan/{{plan_id}}", None, "read write manage"),
    ("POST", f"{TABLE}/unregister", None, "manage"),
    ("DELETE", TABLE, None, "drop manage"),
    ("DELETE", ONE_VIEW, None, "drop manage"),
]


def filled(value, namespace):
    """A case's path or body, in a namespace."""
    whole = {f"{{{one}}}": {"namespace": [namespace], "name": one} for one in ("t", "v", "new")}
    if isinstance(value, str):
        return whole.get(value) or value.replace("{ns}", namespace)
    if isinstance(value, dict):
        return {key: filled(one, namespace) for key, one in value.items()}
    return [filled(one, namespace) for one in value] if isinstance(value, list) else value


@pytest.fixture(scope="module", params=["filesystem", "sqlite"])
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    lake = open_lake(request.param, folder / "lake")
    for name in ("mine.t", "other.t", "ann.t", "shared.deep.t", "shared.deep.u"):
        lake.create_table(name, pa.schema({"id": pa.int64()})).append(pa.table({"id": [1, 2]}))
    with guarded(lake, rules_file(folder)) as found:
        yield found


def is_refused(answer) -> bool:
    if answer.status_code == 403 and answer.request.method != "HEAD":
        assert error(answer) == (403, "ForbiddenException")
    return answer.status_code == 403


def test_each_privilege_allows_what_it_says_and_only_there(server):
    for name in ("read", "write", "create", "drop", "manage"):
        token = server.token(name)
        for method, path, body, enough in CASES:
            for namespace in ("other", "mine"):
                allowed = namespace == "mine" and name in enough.split()
                if allowed and (method == "DELETE" or path.endswith("/unregister")):
                    continue  # below
                answer = server.ask(token, method, filled(path, namespace), filled(body, namespace))
                assert is_refused(answer) != allowed, (name, method, path, namespace, answer.text)
                assert answer.status_code not in (401, 419)
        assert server.lake.table_exists("mine.t")
        assert server.lake.table_exists("other.t")


def test_drop_is_a_privilege(server):
    body = {"name": "gone", "schema": SCHEMA}
    path = "/namespaces/mine/tables"
    server.ask(server.token("create"), "POST", path, body)
    for name, expected in (("read", 403), ("write", 403), ("create", 403), ("drop", 204)):
        assert server.ask(server.token(name), "DELETE", f"{path}/gone").status_code == expected


def test_every_operation_is_a_case_or_open(server):
    """What nobody thought of asks for everything."""
    unnamed = {case[:2] for case in CASES} | {("GET", "/namespaces")}
    paths = {(m, p.replace("{ns}", "{namespace}")) for m, p in unnamed}
    paths = {(m, p.replace("/t/", "/{table}/").replace("/v/", "/{view}/")) for m, p in paths}
    paths = {(m, p.removesuffix("/t") + "/{table}" if p.endswith("/t") else p) for m, p in paths}
    paths = {(m, p.removesuffix("/v") + "/{view}" if p.endswith("/v") else p) for m, p in paths}
    listed = {(one.method, one.path) for one in operations_of(server.lake.catalog) if one.listed}
    assert listed - paths == set()
    unsaid = Operation("GET", "/new", lambda *_: None)
    assert [str(ask) for ask in unsaid.asks(None)] == ["manage the catalog"]


def test_who_does_not_say_who_they_are_gets_nothing(server):
    forged = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0."
    everything = (*operations_of(server.lake.catalog), *WATCH_OPERATIONS, *TOKEN_OPERATIONS)
    headers = [{}, {"Authorization": f"Bearer {forged}"}, {"Authorization": "Basic cm9vdDp4"}]
    headers += [
        {"Authorization": one}
        for one in ("Bearer", "Basic ?", "Basic \xe9", "Digest x", "x" * 9000)
    ]
    open_ones, session = set(), requests.Session()
    for operation in everything:
        path = operation.path
        for part in ("namespace", "table", "view", "plan_id", "function"):
            path = path.replace(f"{{{part}}}", "mine")
        for header in headers:
            answer = session.request(
                operation.method, server.url + operation.root + path, headers=header, timeout=30
            )
            if operation.for_anybody:
                open_ones.add(operation.path)
            else:
                assert answer.status_code == 401, (operation, header)
                assert answer.headers["WWW-Authenticate"].split()[0] == (
                    "Bearer" if operation.root else "Basic"
                )
    assert open_ones == {"/health", "/style.css", "/oauth/tokens"}


def test_lists_show_what_the_caller_may_see(server):
    bob, root = server.token("bob"), server.token("root")
    assert server.ask(bob, "GET", "/namespaces").json()["namespaces"] == [["shared"]]
    below = server.ask(bob, "GET", "/namespaces?parent=shared").json()["namespaces"]
    assert below == [["shared", "deep"]]
    tables = server.ask(bob, "GET", "/namespaces/shared%1Fdeep/tables").json()["identifiers"]
    assert [table["name"] for table in tables] == ["t"]
    assert server.ask(bob, "GET", "/namespaces/mine/tables").status_code == 403
    assert len(server.ask(root, "GET", "/namespaces").json()["namespaces"]) == 4
    # what is there and what is not looks the same where one may not look
    there, missing = (server.ask(bob, "GET", f"/namespaces/mine/tables/{n}") for n in "tx")
    assert there.text.replace("mine.t", "") == missing.text.replace("mine.x", "")
    first = requests.get(server.url, auth=("bob", SECRETS["bob"]), timeout=30).text
    assert "/tables/shared%1Fdeep/t" in first
    assert "deep/u" not in first
    assert "mine" not in first
    page = f"{server.url}/tables/mine/t"
    assert requests.get(page, auth=("bob", SECRETS["bob"]), timeout=30).status_code == 403
    assert requests.get(page, auth=("read", SECRETS["read"]), timeout=30).status_code == 200
    assert requests.get(f"{server.url}/metrics", auth=("bob", "x"), timeout=30).status_code == 401


def test_snapshots_say_who_committed_them(server):
    token = server.token("ann")
    path = "/namespaces/ann/tables"
    made = server.ask(token, "POST", path, {"name": "signed", "schema": SCHEMA}).json()
    asked = append(made["metadata"]["location"], 11)
    asked["updates"][0]["snapshot"]["summary"]["lakehouse.principal"] = "root"
    done = server.ask(token, "POST", f"{path}/signed", asked)
    assert done.status_code == 200, done.text
    assert done.json()["metadata"]["snapshots"][0]["summary"]["lakehouse.principal"] == "ann"

    # sent again it is known, though the first was signed
    again = server.ask(token, "POST", f"{path}/signed", asked)
    assert again.status_code == 200
    assert len(again.json()["metadata"]["snapshots"]) == 1


@pytest.mark.parametrize("mode", ["own-snapshot", "shared-snapshot"])
def test_appends_say_who_made_them(server, mode):
    """Those of two principals share no snapshot."""
    if not server.lake.table_exists("ann.together"):
        server.lake.create_table("ann.together", pa.schema({"id": pa.int64()}))
    found = set()

    def write(name):
        secret = {"credential": f"{name}:{SECRETS[name]}"}
        login_uri = {"oauth2-server-uri": f"{server.url}/v1/oauth/tokens"}
        theirs = lh.load_catalog(server.url, **secret, **login_uri, **{"append-mode": mode})
        table = theirs.load_table("ann.together")
        for _ in range(3):
            said = table.append(pa.table({"id": [1]})).summary
            found.add((name, said["lakehouse.principal"]))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, ("ann", "root")))
    assert found == {("ann", "ann"), ("root", "root")}


def test_keys_of_requests_are_each_principals_own(server):
    key = {"Idempotency-Key": "0199aaaa-7c00-7000-8000-000000000001"}
    for name, space in (("ann", "ann"), ("create", "mine"), ("ann", "ann")):
        body = {"name": "keyed", "schema": SCHEMA}
        path = f"/namespaces/{space}/tables"
        done = server.ask(server.token(name), "POST", path, body, **key)
        assert done.status_code == 200, done.text
        assert f"/{space}/" in done.json()["metadata"]["location"]


def login(server):
    return {
        "credential": f"ann:{SECRETS['ann']}",
        "oauth2-server-uri": f"{server.url}/v1/oauth/tokens",
        "scope": "catalog",
    }


def test_pyiceberg_comes_with_a_credential(server):
    theirs = RestCatalog("c", uri=server.url, **login(server))
    table = theirs.create_table("ann.by_pyiceberg", pa.schema({"id": pa.int64()}))
    table.append(pa.table({"id": [1, 2]}))
    assert table.scan().to_arrow().num_rows == 2
    assert table.current_snapshot().summary["lakehouse.principal"] == "ann"
    with pytest.raises(ForbiddenError):
        theirs.load_table("mine.t")


def test_our_client_and_duckdb_come_with_a_credential(server, duck):  # duck brings the extension
    ours = lh.load_catalog(server.url, warehouse=server.lake.warehouse, **login(server))
    assert ours.list_namespaces() == ["ann"]
    assert ours.load_table("ann.t").scan().count() == 2
    ours.load_table("ann.t").append(pa.table({"id": [3]}))
    with duckdb.connect() as engine:
        engine.execute("LOAD iceberg")
        engine.execute(
            f"CREATE SECRET (TYPE iceberg, CLIENT_ID 'ann', CLIENT_SECRET '{SECRETS['ann']}', "
            f"OAUTH2_SERVER_URI '{server.url}/v1/oauth/tokens')"
        )
        engine.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{server.url}')")
        assert engine.sql("SELECT count(*) FROM lake.ann.t").fetchone() == (3,)
        with pytest.raises(duckdb.Error, match=r"403|orbidden|may not"):
            engine.sql("SELECT count(*) FROM lake.mine.t").fetchone()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("roles: [", "no YAML in line 1"),
        ("{}", "nobody could do anything"),
        ("principals: {a: {secret: hunter2, roles: []}}", "new-principal"),
        ("principals: {a: {secret: scrypt$3$aaaa$bbbb, roles: []}}", "new-principal"),
        ("roles: {r: [{in: raw, may: [rule]}]}", "'manage'"),
        ("roles: {r: [{in: raw, may: []}]}", "roles.r.0.may"),
        ("roles: {r: [{in: 'a..b', may: [read]}]}", "empty level"),
        ("roles: {r: [{to: raw, may: [read]}]}", "roles.r.0.to"),
        ("issuers: {i: {jwks: keys.json}}", "audience"),
        ("issuers: {i: {jwks: k, audience: a}}\ntokens: {key-file: none.key}", "none.key"),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path, text, said):
    file = tmp_path / "principals.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInputError) as refused:
        read_rules(file)
    assert said in refused.value.message
    assert str(file) in refused.value.message
    assert "hunter2" not in refused.value.message


def test_a_role_that_is_not_defined_is_refused(tmp_path):
    file = rules_file(tmp_path)
    file.write_text(file.read_text().replace("- ann\n", "- anna\n"))
    with pytest.raises(InvalidInputError, match="anna"):
        read_rules(file)


def test_other_interfaces_need_rules_or_a_word(tmp_path):
    app = rest_app(open_lake("filesystem", tmp_path))
    with pytest.raises(InvalidInputError, match=r"--principals.*--insecure"):
        HttpServer(app, "0.0.0.0", 0)  # noqa: S104
    with HttpServer(app, "0.0.0.0", 0, is_guarded=True) as server:  # noqa: S104
        assert requests.get(f"{server.url}/health", timeout=30).status_code == 200


def test_grants_reach_down_and_not_beside(server):
    """Brute force over paths: a grant holds where its words begin the path, and nowhere else."""
    for name, level in itertools.product(("bob", "ann", "root"), range(3)):
        token = server.token(name)
        begins = {"bob": "shared.deep.t", "ann": "ann", "root": ""}[name]
        for path in (("ann", "t"), ("annex", "t"), ("shared", "deep", "t"), ("shared", "t")):
            where = ".".join(path[: level + 2])
            allowed = where == begins or where.startswith(f"{begins}.") or not begins
            space = "%1F".join(path[: level + 2][:-1])
            answer = server.ask(token, "GET", f"/namespaces/{space}/tables/{path[: level + 2][-1]}")
            assert is_refused(answer) != allowed, (name, where)
