"""Names with dots, slashes and percent signs: each is one name, to every client and every rule."""

from __future__ import annotations

import json
import logging
from urllib.parse import quote

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

import lakehouse as lh
from lakehouse.errors import InvalidIdentifierError, NoSuchTableError
from lakehouse.spec.identifier import Identifier
from tests.server.conftest import SCHEMA, Rest, open_lake, serve
from tests.server.guarded import SECRETS, guarded, rules_file
from tests.server.test_view_operations import version
from tests.waiting import eventually

ROWS = pa.table({"id": [1, 2, 3]})
# each a name of its own; none of them is what another one looks like once it is decoded
NAMES = [
    "a.b",
    "A.b",
    "a%2Eb",
    "a%2eb",
    "a%252Eb",
    "a/b",
    "a%2Fb",
    "%2e%2e",
    "..a",
    "../../etc",
    "%1F",
    "a%1Fb",
    "%00",
    "a+b",
    "a b",
    "a?b#c;d&e=f",
    "größe.neu",
    "日本.表",
    "e\u0301.x",
    "\u00e9.x",
    "raw.events",
    ".hidden",
    "x" * 200 + ".y",
]


@pytest.fixture(scope="module")
def rest(tmp_path_factory):
    lake = open_lake("sqlite", tmp_path_factory.mktemp("dotted"))
    with serve(lake) as server, requests.Session() as session:
        yield Rest(server.url, lake, session)


def segment(*levels: str) -> str:
    return quote("\x1f".join(levels), safe="")


@pytest.mark.parametrize("our", [True, False], ids=["ours", "pyiceberg"])
def test_clients_find_each_name_and_no_other(rest, our):
    client = lh.load_catalog(rest.url).catalog if our else RestCatalog("ours", uri=rest.url)
    top = "ours" if our else "theirs"
    for n, name in enumerate(NAMES):
        client.create_namespace((top, name), {"n": str(n)})
        where = Identifier((top, name), name)
        if our:
            lh.load_catalog(rest.url).create_table(where, ROWS.schema, properties={"n": str(n)})
        else:
            client.create_table((top, name, name), ROWS.schema, properties={"n": str(n)})
    listed = {tuple(namespace) for namespace in client.list_namespaces((top,))}
    assert listed == {(top, name) for name in NAMES}
    places = set()
    for n, name in enumerate(NAMES):
        table = rest.lake.load_table(Identifier((top, name), name))
        assert table.properties["n"] == str(n)
        assert rest.lake.catalog.namespace_properties((top, name)) == {"n": str(n)}
        places.add(table.location.lower())
        folders = table.location.removeprefix(f"{rest.lake.warehouse}/").split("/")
        assert len(folders) == 3
        assert ".." not in folders
        found = client.list_tables((top, name))
        assert found == [Identifier((top, name), name) if our else (top, name, name)]
        assert client.namespace_exists((top, name))
    assert len(places) == len(NAMES)


def test_rows_and_views_and_renames(rest):
    ours, theirs = lh.load_catalog(rest.url), RestCatalog("theirs", uri=rest.url)
    table = ours.create_table(("rows.and", "more/rows"), ROWS.schema)
    assert table.name == "rows\\.and.more/rows"
    table.append(ROWS)
    theirs.load_table(("rows.and", "more/rows")).append(ROWS)
    assert rest.lake.load_table("rows\\.and.more/rows").scan().count() == 6
    ours.rename_table(table.name, ("rows.and", "less.rows"))
    assert theirs.load_table(("rows.and", "less.rows")).scan().to_arrow().num_rows == 6
    with pytest.raises(NoSuchTableError, match=r"rows\\\.and\.more/rows"):
        ours.load_table(table.name)
    with pytest.raises(NoSuchTableError):
        ours.load_table("rows.and.less.rows")
    body = {"name": "v.w/x", "schema": SCHEMA, "view-version": version()}
    assert rest.post(f"/namespaces/{segment('rows.and')}/views", body).status_code == 200
    assert ours.list_views(("rows.and",)) == ["rows\\.and.v\\.w/x"]
    ours.rename_view("rows\\.and.v\\.w/x", ("rows.and", "v%2Ew"))
    assert rest.lake.view_exists(("rows.and", "v%2Ew"))


def test_a_name_is_either_levels_or_dots(rest):
    rest.post("/namespaces", {"namespace": ["one", "two"]})
    rest.post("/namespaces", {"namespace": ["one.two"]})
    for path, wanted in ((segment("one", "two"), "deep"), (segment("one.two"), "dotted")):
        change = {"updates": {"is": wanted}}
        assert rest.post(f"/namespaces/{path}/properties", change).status_code == 200
    assert rest.lake.namespace_properties("one.two") == {"is": "deep"}
    assert rest.lake.namespace_properties(("one.two",)) == {"is": "dotted"}
    assert rest.lake.namespace_properties("one\\.two") == {"is": "dotted"}


@pytest.mark.parametrize(
    "path", ["%2e%2e", "%2E", "a%1F%2e%2e", "a%00b", "a%5Cb", "%ff%fe", "%ED%A0%80", "%20a", "a%0A"]
)
def test_what_is_no_name_is_refused(rest, path):
    for name in (f"/namespaces/{path}", f"/namespaces/x/tables/{path}"):
        raw = requests.Request("GET", rest.url).prepare()
        raw.url = f"{rest.url}/v1{name}"  # as it is, not made pretty by the client
        assert rest.session.send(raw, timeout=30).status_code in (400, 404)
    with pytest.raises(InvalidIdentifierError):
        rest.lake.load_table(("raw", "a\\b"))


def test_java_writes_blanks_as_plus(rest):
    """`RESTUtil.encodeString` is URLEncoder's: a blank is `+`, a plus `%2B`."""
    for levels in (("with blank", "a table"), ("with+plus", "a+table")):
        rest.lake.create_table(levels, ROWS.schema)
    for path, wanted in (
        ("with+blank/tables/a+table", 200),
        ("with%20blank/tables/a%20table", 200),
        ("with%2Bplus/tables/a%2Btable", 200),
        ("with+plus/tables/a+table", 404),
    ):
        assert rest.get(f"/namespaces/{path}").status_code == wanted, path


def test_pages_of_lists(rest):
    for n in range(5):
        rest.post("/namespaces", {"namespace": ["paged", f"p.{n}/x"]})
    found, token = [], ""
    while token is not None:
        told = rest.get(f"/namespaces?parent=paged&pageSize=2&pageToken={quote(token)}").json()
        found, token = found + told["namespaces"], told["next-page-token"]
    assert found == [["paged", f"p.{n}/x"] for n in range(5)]


def test_the_page_of_a_table_and_the_log(rest, caplog):
    rest.table("seen.by", "a/b.c")
    first = rest.session.get(rest.url, timeout=30).text
    link = f"/tables/{segment('seen.by')}/{segment('a/b.c')}"
    assert link in first
    with caplog.at_level(logging.INFO, "lakehouse.server.watching.access_log"):
        page = rest.session.get(f"{rest.url}{link}", timeout=30)
        assert rest.session.get(f"{rest.url}/v1/namespaces/%ff", timeout=30).status_code == 400
        eventually(lambda: len(caplog.records) == 2)  # a line is written behind its answer
    assert page.status_code == 200
    assert "seen\\.by.a/b\\.c" in page.text
    lines = [json.loads(record.getMessage())["names"] for record in caplog.records]
    assert lines == [["seen\\.by.a/b\\.c"], ["\ufffd"]]


def test_tables_that_pyiceberg_and_java_have_in_the_database(rest):
    """Levels with dots are rows of their own; tables with dots have the rows that Java gives."""
    folder = rest.lake_folder()
    rest.table("jdbc", "t.able/1")
    rest.table("jd.bc", "u")
    others = SqlCatalog(
        "lakehouse", uri=f"sqlite:///{folder}/catalog.db", warehouse=rest.lake.warehouse
    )
    assert others.list_tables("jdbc") == [("jdbc", "t.able/1")]
    assert others.load_table(("jdbc", "t.able/1")).schema().column_names == ["id", "name"]
    assert others.load_table(("jd\\", "bc", "u")).schema().column_names == ["id", "name"]
    others.create_table(("jdbc", "theirs.t"), ROWS.schema)
    assert rest.lake.table_exists(("jdbc", "theirs.t"))
    assert not rest.lake.table_exists("jdbc.theirs.t")


@pytest.mark.parametrize("kind", ["filesystem", "sqlite"])
def test_percent_signs_are_in_folders_of_their_own(kind, tmp_path):
    lake = open_lake(kind, tmp_path / "lake")
    given = {"ann": [{"in": "50%", "may": ["write", "create"]}]}
    with guarded(lake, rules_file(tmp_path, roles=given)) as server:
        ann = server.token("ann")
        assert server.ask(ann, "POST", "/namespaces", {"namespace": ["50%"]}).status_code == 200
        tables = "/namespaces/50%25/tables"
        made = server.ask(ann, "POST", tables, {"name": "t", "schema": SCHEMA})
        assert made.status_code == 200, made.text
        change = {"updates": [{"action": "set-properties", "updates": {"n": "1"}}]}
        assert server.ask(ann, "POST", f"{tables}/t", change).status_code == 200
        other = "50%25" if kind == "filesystem" else "50%"
        body = {"name": "u", "schema": SCHEMA, "location": f"{lake.warehouse}/{other}/u"}
        assert server.ask(ann, "POST", tables, body).status_code == 403


def test_grants_do_not_reach_names_that_look_alike(tmp_path):
    lake = open_lake("sqlite", tmp_path)
    asked = {
        ("shared", "deep", "t"): True,  # what bob may read
        ("shared.deep", "t"): False,
        ("shared", "deep.t"): False,
        ("shared/deep", "t"): False,
        ("shared", "deep%1Ft"): False,
        ("shared%1Fdeep", "t"): False,
    }
    for levels in asked:
        lake.create_table(levels, ROWS.schema)
    given = {
        "bob": [{"in": "shared.deep.t", "may": ["read"]}],
        "ann": [{"in": "ann\\.x", "may": ["write", "create", "drop"]}],
    }
    with guarded(lake, rules_file(tmp_path, roles=given)) as server:
        bob, ann = server.token("bob"), server.token("ann")
        for levels, may in asked.items():
            path = f"/namespaces/{segment(*levels[:-1])}/tables/{segment(levels[-1])}"
            assert server.ask(bob, "GET", path).status_code == (200 if may else 403), levels
        assert server.ask(bob, "GET", "/namespaces").json()["namespaces"] == [["shared"]]
        login = requests.get(server.url, auth=("bob", SECRETS["bob"]), timeout=30).text
        assert login.count("/tables/") == 1
        # Ann's namespace is `ann.x`, and so is her folder
        assert server.ask(ann, "POST", "/namespaces", {"namespace": ["ann.x"]}).status_code == 200
        assert (
            server.ask(ann, "POST", "/namespaces", {"namespace": ["ann", "x"]}).status_code == 403
        )
        tables = f"/namespaces/{segment('ann.x')}/tables"
        home = lake.warehouse
        for place, wanted in (
            (f"{home}/ann%2Ex/mine", 200),
            (f"{home}/ann/x/mine", 403),
            (f"{home}/ann.x/mine", 403),
            (f"{home}/ann%252Ex/mine", 403),
            (f"{home}/ann%2ex/mine", 403),
        ):
            body = {"name": f"t{wanted}", "schema": SCHEMA, "location": place}
            assert server.ask(ann, "POST", tables, body).status_code == wanted, place
