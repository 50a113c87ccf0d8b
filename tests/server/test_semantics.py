"""Statements through the server: as tables, by commands and agents, and by the extension."""

from __future__ import annotations

import json

import anyio
import pyarrow as pa
import pytest
import requests
from mcp.client import Client
from pyiceberg.catalog.rest import RestCatalog
from typer.testing import CliRunner

import lakehouse as lh
from lakehouse.agents.live_catalog import LiveCatalog
from lakehouse.agents.mcp_server import mcp_server
from lakehouse.cli import app
from lakehouse.curation.checkup import check_statements
from lakehouse.curation.statement_store import DIGEST
from lakehouse.curation.survey import survey
from lakehouse.errors import ForbiddenError
from tests.server.conftest import open_lake
from tests.server.guarded import guarded, rules_file
from tests.server.test_rest_protocol import error

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "code": ["A", "B"]})
KEY = {"id": "key", "kind": "grain", "key": ["id"],
       "evidence": {"check": "unique", "columns": ["id"]}}  # fmt: skip
RANGE = {"id": "range", "kind": "warning", "column": "id", "text": "Small numbers.",
         "evidence": {"check": "bounds", "column": "id", "min": 0, "max": 9}}  # fmt: skip
SAYS = {"id": "says", "kind": "description", "text": "Events."}
DOCUMENT = """
table: raw.events
statements:
- {id: key, kind: grain, key: [id], evidence: {check: unique, columns: [id]}}
- {id: says, kind: description, text: Events.}
"""


def path(table, namespace="raw"):
    return f"/semantics/namespaces/{namespace}/tables/{table}"


def states(answer):
    assert answer.status_code == 200, answer.text
    return {one["id"]: one["state"] for one in answer.json()["statements"]}


@pytest.fixture
def events(rest, request):
    """A table of its own for each test."""
    name = f"raw.{request.node.originalname.removeprefix('test_')}"
    if rest.lake.table_exists(name):
        rest.lake.drop_table(name)
    table = rest.lake.create_table(name, ROWS.schema)
    table.append(ROWS)
    return table


def test_both_operations_are_told(rest):
    told = rest.get("/config").json()["endpoints"]
    one = "/v1/{prefix}/semantics/namespaces/{namespace}/tables/{table}"
    assert {f"GET {one}", f"POST {one}"} <= set(told)
    # clients that parse the list take it
    assert RestCatalog("c", uri=rest.url).list_namespaces() is not None


def test_statements_are_kept_and_come_with_their_states(rest, events):
    where = path(events.identifier.name)
    assert rest.get(where).json()["statements"] == []
    said = [one | {"id": f"a-{one['id']}"} for one in (KEY, RANGE, SAYS)]
    made = rest.post(where, {"statements": said})
    # its evidence has not run; metadata decides; taken on the caller's word
    expected = {"a-key": "unverified", "a-range": "verified", "a-says": "verified"}
    assert states(made) == expected
    assert states(rest.get(where)) == expected
    table = rest.lake.load_table(events.name)
    assert table.properties["comment"] == "Events."
    assert table.schema().find_field("id").doc == "Small numbers."
    assert table.properties[DIGEST] == made.json()["digest"]
    check_statements(rest.lake, [events.name])
    assert states(rest.get(where))["a-key"] == "verified"
    table.append(pa.table({"id": pa.array([2, 70], pa.int64()), "code": ["A", "B"]}))
    assert states(rest.get(where)) == expected | {"a-range": "contradicted"}
    (found,) = [one for one in rest.get(where).json()["statements"] if one["id"] == "a-range"]
    assert found["reason"] == "values lie in [1, 70]"


def test_as_of_a_snapshot(rest, events):
    where = path(events.identifier.name)
    events.append(ROWS)
    first = events.metadata.current_snapshot_id
    rest.post(where, {"statements": [SAYS | {"id": "b-says"}]})
    events.refresh().append(ROWS)
    second = events.metadata.current_snapshot_id
    rest.post(where, {"removals": ["b-says"]})
    assert states(rest.get(where)) == {}
    assert states(rest.get(f"{where}?snapshot-id={second}")) == {"b-says": "verified"}
    assert states(rest.get(f"{where}?snapshot-id={first}")) == {}
    assert error(rest.get(f"{where}?snapshot-id=x")) == (400, "BadRequestException")
    assert error(rest.get(f"{where}?snapshot-id=1")) == (400, "BadRequestException")
    assert error(rest.get(path("nothing"))) == (404, "NoSuchTableException")


def test_sent_again_it_changes_nothing(rest, events):
    where, body = path(events.identifier.name), {"statements": [SAYS | {"id": "c-says"}]}
    once = rest.post(where, body)
    before = rest.lake.load_table("semantics.statements").metadata.current_snapshot_id
    again = rest.post(where, body)
    assert again.json() == once.json()
    assert rest.lake.load_table("semantics.statements").metadata.current_snapshot_id == before
    other = {"statements": [SAYS | {"id": "c-says", "text": "Other."}]}
    late = rest.post(where, other | {"digest": "0123456789abcdef"})
    assert error(late) == (409, "CommitFailedException")
    assert rest.post(where, other | {"digest": once.json()["digest"]}).status_code == 200


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"statements": [SAYS | {"kind": "rumour"}]}, "rumour"),
        ({"statements": [SAYS | {"column": "none"}]}, "no column none"),
        ({"statements": [SAYS | {"table": "raw.else"}]}, "is about raw.else"),
        ({"statements": ["text"]}, "expected a JSON object"),
        ({"statements": "text"}, "list"),
        ({"removals": [1]}, "list of ids"),
        ({"statements": [KEY | {"evidence": {"check": "query", "sql": "select 1 from a.b"}}]},
         "no table a.b"),
        ({"statements": [{"id": "d", "kind": "description", "text": "x"}] * 1001}, "At most 1000"),
    ],
)  # fmt: skip
def test_what_is_no_statement_is_refused(rest, events, body, said):
    answer = rest.post(path(events.identifier.name), body)
    assert error(answer) == (400, "BadRequestException")
    assert said in answer.json()["error"]["message"]


def test_ids_of_other_tables_statements_are_not_taken(rest, events):
    other = rest.lake.create_table(f"{events.name}_2", ROWS.schema)
    rest.post(path(other.identifier.name), {"statements": [SAYS | {"id": "e-says"}]})
    for body in ({"statements": [SAYS | {"id": "e-says"}]}, {"removals": ["e-says"]}):
        assert error(rest.post(path(events.identifier.name), body)) == (400, "BadRequestException")
    assert states(rest.get(path(other.identifier.name))) == {"e-says": "verified"}


def test_who_writes_says_it_and_mentions_only_what_they_may_read(tmp_path):
    lake = open_lake("sqlite", tmp_path / "lake")
    for name in ("ann.t", "ann.u"):
        lake.create_table(name, ROWS.schema).append(ROWS)
    lake.create_table("other.secret", pa.schema({"hidden": pa.int64()}))
    with guarded(lake, rules_file(tmp_path)) as server:
        ann = server.token("ann")
        says = SAYS | {"id": "1", "author": "somebody else"}
        made = server.ask(ann, "POST", path("t", "ann"), {"statements": [says]})
        assert made.json()["statements"][0]["author"] == "ann"
        assert made.json()["statements"][0]["decided_by"] == "ann"
        for table, sees in (("ann.u", True), ("other.secret", False), ("semantics.statements", 0)):
            join = {"id": "2", "kind": "join", "from": ["id"], "to": [f"{table}.id"],
                    "cardinality": "one_to_one"}  # fmt: skip
            peek = {"id": "3", "kind": "warning",
                    "evidence": {"check": "query", "sql": f"select count(*) > 0 from {table}"},
                    "text": "x"}  # fmt: skip
            for one in (join, peek):
                answer = server.ask(ann, "POST", path("t", "ann"), {"statements": [one]})
                assert (answer.status_code == 200) == bool(sees), answer.text
                assert "hidden" not in answer.text, "columns of it are not told either"


JOINS = {"id": "joins", "kind": "join", "from": ["id"], "to": ["other.secret.hidden"],
         "cardinality": "many_to_one", "text": "Of the codename.",
         "evidence": {"check": "references", "column": "id",
                      "to": "other.secret.hidden"}}  # fmt: skip
COUNTS = {"id": "counts", "kind": "warning", "text": "As many as the codename has.",
          "evidence": {"check": "query", "sql": "select (select count(*) from ann.t) < "
                       "(select count(*) from other.secret where hidden > 0)"}}  # fmt: skip
TELLING = ("secret", "hidden", "codename")


def open_as(server, name):
    """Our client of a server that asks."""
    token = server.token(name)
    return lh.load_catalog(server.url, warehouse=server.lake.warehouse, token=token)


def test_a_statement_of_two_tables_is_told_to_those_alone_who_may_read_both(tmp_path):
    """Also of snapshots, on the page, after a renaming, and when one of them is no more."""
    lake = open_lake("sqlite", tmp_path / "lake")
    lake.create_table("ann.t", ROWS.schema).append(ROWS)
    lake.create_table("other.secret", pa.schema({"hidden": pa.int64()}))
    with guarded(lake, rules_file(tmp_path)) as server:
        ann, root = server.token("ann"), server.token("root")
        where = path("t", "ann")
        said = {"statements": [SAYS, JOINS, COUNTS]}
        assert len(server.ask(root, "POST", where, said).json()["statements"]) == 3
        check_statements(lake)

        def asked(token, *, all_of_them=()):
            snapshot = lake.load_table("ann.t").metadata.current_snapshot_id
            page = f"{server.url}/tables/ann/t"
            headers = {"Authorization": f"Bearer {token}"}
            answers = [
                server.ask(token, "GET", where),
                server.ask(token, "GET", f"{where}?snapshot-id={snapshot}"),
                requests.get(page, headers=headers, timeout=30),
            ]
            if all_of_them:
                answers.append(server.ask(token, "POST", where, {}))
            assert all(answer.status_code == 200 for answer in answers)
            return answers

        def told_nothing():
            for answer in asked(ann, all_of_them=True):
                text = answer.text
                assert not [one for one in TELLING if one in text], text
            assert states(server.ask(ann, "GET", where)).keys() == {"says"}
            assert states(server.ask(root, "GET", where)).keys() >= {"says", "joins", "counts"}
            # whoever changes what is said still says what they read
            digest = server.ask(ann, "GET", where).json()["digest"]
            assert server.ask(ann, "POST", where, {"digest": digest}).status_code == 200

        told_nothing()
        lake.rename_table("other.secret", "other.codename_2")
        told_nothing()
        lake.drop_table("other.codename_2")
        told_nothing()


def test_what_had_the_name_before_is_another_table(tmp_path):
    """Its statements went with it to a name that the caller may not read."""
    lake = open_lake("sqlite", tmp_path / "lake")
    lake.create_table("ann.t", ROWS.schema).append(ROWS)
    lake.create_namespace("other")
    with guarded(lake, rules_file(tmp_path)) as server:
        root, where = server.token("root"), path("t", "ann")
        server.ask(root, "POST", where, {"statements": [SAYS | {"text": "The codename."}]})
        lake.rename_table("ann.t", "other.t")
        lake.create_table("ann.t", ROWS.schema)
        for token in (root, server.token("ann")):
            assert states(server.ask(token, "GET", where)) == {}
        assert states(server.ask(root, "GET", path("t", "other"))) == {"says": "verified"}


def test_agents_of_a_principal_are_told_what_it_may_read(tmp_path):
    """By each tool; a table that is hidden from it is not taken for one that is gone."""
    lake = open_lake("sqlite", tmp_path / "lake")
    lake.create_table("ann.t", ROWS.schema).append(ROWS)
    lake.create_table("other.secret", pa.schema({"hidden": pa.int64()}))
    lake.create_table("other.seen", pa.schema({"hidden": pa.int64()}))
    ann = {"ann": [
        {"in": "ann", "may": ["read"]}, {"in": "semantics", "may": ["read"]},
        {"in": "other.seen", "may": ["create"]},  # known to be there, and not to be read
    ]}  # fmt: skip
    with guarded(lake, rules_file(tmp_path, roles=ann)) as server:
        root = server.token("root")
        key = KEY | {"text": "Each once."}
        secret = {"id": "s", "kind": "metric", "name": "codename", "expression": "sum(hidden)"}
        server.ask(root, "POST", path("t", "ann"), {"statements": [key, JOINS, COUNTS]})
        server.ask(root, "POST", path("secret", "other"), {"statements": [secret]})
        check_statements(lake)

        async def ask(client, tool, **arguments):
            found = await client.call_tool(tool, arguments)
            return found.content[0].text

        async def asked(name):
            mine = open_as(server, name)
            async with Client(mcp_server(LiveCatalog(mine))) as client:
                whole = await client.read_resource("lakehouse://map")
                return [
                    whole.contents[0].text,
                    await ask(client, "search", question="codename hidden secret of t, once"),
                    await ask(client, "describe", table="ann.t"),
                    (await ask(client, "metric", name="codename")).replace("“codename”", ""),
                    await ask(client, "freshness", table="ann.t"),
                    await ask(client, "check_sql", sql="select count(*) from ann.t"),
                    await ask(client, "run_sql", sql="select count(*) from ann.t"),
                    await ask(client, "join_path", a="ann.t", b="other.secret"),
                ]

        texts = anyio.run(asked, "ann")
        join = texts.pop()
        assert join.endswith("There is no table other.secret; there are ann.t")
        for text in texts:
            assert not [one for one in TELLING if one in text], text
            assert "CONTRADICTED: " not in text
        assert "Each once." in texts[1]
        assert any("codename" in text for text in anyio.run(asked, "root"))


def test_who_may_not_read_statements_is_told_so(tmp_path):
    lake = open_lake("sqlite", tmp_path / "lake")
    lake.create_table("ann.t", ROWS.schema).append(ROWS)
    with guarded(lake, rules_file(tmp_path)) as server:
        root = server.token("root")
        server.ask(root, "POST", path("t", "ann"), {"statements": [SAYS]})
        with pytest.raises(ForbiddenError, match=r"ann may not read semantics\.statements"):
            survey(open_as(server, "ann"))
        # it has looked before it listens
        command = ["mcp", "--http", "--port", "0", "--catalog", server.url]
        options = ["--warehouse", lake.warehouse, "--property", f"token={server.token('ann')}"]
        told = CliRunner().invoke(app, [*command, *options])
        assert told.exit_code == 1
        assert "ann may not read semantics.statements" in told.output


@pytest.fixture
def remote(rest, tmp_path):
    """Our client of the served catalog; a filesystem catalog lets it create no tables."""
    if rest.lake.table_exists("raw.events"):
        rest.lake.drop_table("raw.events")
    rest.lake.create_table("raw.events", ROWS.schema).append(ROWS)
    rest.post(path("events"), {"statements": [SAYS | {"id": "first"}]})
    (tmp_path / "said.yaml").write_text(DOCUMENT)
    return lh.load_catalog(rest.url, warehouse=rest.lake.warehouse)


def test_commands_and_agents_work_through_the_server(rest, remote, tmp_path):
    def run(*words, code=0):
        options = ["--catalog", rest.url, "--warehouse", rest.lake.warehouse, "--json"]
        done = CliRunner().invoke(app, [*words, *options])
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    run("semantics", "import", str(tmp_path / "said.yaml"), "--by", "Ann")
    checked = {one["id"]: one["state"] for one in run("semantics", "check", "raw.events")}
    assert checked == {"key": "verified", "says": "verified"}
    assert states(rest.get(path("events"))) == checked

    async def ask():
        async with Client(mcp_server(LiveCatalog(remote))) as client:
            found = await client.call_tool("search", {"question": "how many events"})
            return found.content[0].text

    assert "grain: key=id ✓" in anyio.run(ask)
    remote.load_table("raw.events").append(ROWS)
    found = run("semantics", "check", "raw.events", code=1)
    assert {one["id"]: one["state"] for one in found}["key"] == "contradicted"
    assert states(rest.get(path("events")))["key"] == "contradicted"
