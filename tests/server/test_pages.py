"""The pages of a catalog and its tables: true, whole, bounded, and only for who may read."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import requests

import lakehouse as lh
from lakehouse.curation.gathering import table_names
from lakehouse.curation.statement_store import StatementStore
from lakehouse.errors import InvalidInputError
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.manifests.manifest_reader import ManifestReader
from lakehouse.semantics.binding import bind
from lakehouse.semantics.statement_yaml import parse_statements
from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import rest_app
from lakehouse.server.served_tables import ServedTables
from lakehouse.server.watching import catalog_pages, sample_rows, table_pages
from lakehouse.server.watching.view_pages import read_names
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import ASSET_KEY, REFRESH_STATE, RUN_ID
from lakehouse.spec.views.view_metadata import SqlRepresentation, ViewVersion
from lakehouse.storage.location import local_path
from tests.server.guarded import SECRETS, guarded, rules_file
from tests.server.test_watching import HOSTILE, SAID, Page, quoted

PAGES = ("", "/snapshots", "/schema", "/sample", "/lineage")
NUMBERS = pa.schema({"id": pa.int64()})


class Browser:
    """Pages of one server, as somebody sees them."""

    def __init__(self, url: str, who: str | None = None) -> None:
        self.url, self.auth = url, None if who is None else (who, SECRETS[who])

    def text(self, path: str, status: int = 200) -> str:
        answer = requests.get(self.url + path, auth=self.auth, timeout=60)
        assert answer.status_code == status, answer.text
        assert "default-src 'none'" in answer.headers.get("Content-Security-Policy", "") or (
            status == 403
        )
        return answer.text

    def page(self, path: str) -> Page:
        return Page(self.text(path))

    def words(self, path: str) -> str:
        return " ".join(" ".join(self.page(path).texts).split())


@contextmanager
def browsing(lake, **more):
    with HttpServer(rest_app(lake, **more), "127.0.0.1", 0) as server:
        yield Browser(server.url)


def numbers(*values: int) -> pa.Table:
    return pa.table({"id": values}, NUMBERS)


def refreshed(**inputs: int | None) -> dict[str, str]:
    told = {name: None if one is None else str(one) for name, one in inputs.items()}
    return {REFRESH_STATE: json.dumps({"inputs": told, "behind": [["2026-01-02", "2026-01-05"]]})}


@pytest.fixture
def lake(tmp_path):
    return lh.load_catalog(str(tmp_path / "warehouse"))


def test_nothing_of_a_table_becomes_markup(lake):
    """Names, comments, values, properties, summaries and branches of every page are text."""
    kind = pa.struct({HOSTILE: pa.string()})
    schema = pa.schema(
        [
            pa.field(HOSTILE, pa.string(), metadata={"doc": f'">{HOSTILE}\u202e'}),
            pa.field("nested", pa.list_(kind)),
            pa.field("binary", pa.binary()),
        ]
    )
    properties = {"comment": HOSTILE, "owner": f"'{HOSTILE}", f"k{HOSTILE}": HOSTILE}
    name = f"shop.{HOSTILE}".replace("/", "\\")
    with pytest.raises(lh.errors.LakehouseError):
        lake.create_table(name, schema)  # no slashes in folders
    table = lake.create_table("shop.<img src=x onerror=alert(1)>", schema, properties=properties)
    rows = {
        HOSTILE: [HOSTILE, None, "\u202eabc\x07"],
        "nested": [[{HOSTILE: HOSTILE}], [], None],
        "binary": [b"<b>", b"", None],
    }
    summary = {ASSET_KEY: HOSTILE, RUN_ID: f'"{HOSTILE}', "engine-name": HOSTILE}
    table.append(pa.table(rows, schema), summary=summary | refreshed(**{HOSTILE: None}))
    path = f"/tables/shop/{quoted(table.identifier.name)}"
    with browsing(lake, dagster_url="http://127.0.0.1:3000/") as browser:
        for one in ("/", f"/?q={quoted(HOSTILE)}", *(path + each for each in PAGES)):
            page = browser.page(one)
            assert not {"script", "img", "b"} & page.elements, one
            assert table.identifier.name in " ".join(page.texts)
            assert "\u202e" not in "".join(page.texts)
            for link in page.links:
                assert link.startswith(("/", "?", "http://127.0.0.1:3000")), link
        words = browser.words(f"{path}/sample")
        assert HOSTILE in words
        assert "\\u202eabc\\x07" in words
        assert "3c623e" in words  # bytes in hexadecimal
        assert words.count("null") == 3


def test_a_quarantine_is_counted_by_reason(lake, monkeypatch):
    reasons = ["blank line", "type conflict", "blank line", "<b>"]
    table = lake.create_table("raw.t_quarantine", pa.schema({"reason": pa.string()}))
    lake.create_table("raw.t", pa.schema({"reason": pa.string()})).append(
        pa.table({"reason": reasons})
    )
    with browsing(lake) as browser:
        assert "Why lines" not in browser.words("/tables/raw/t_quarantine")
        table.append(pa.table({"reason": reasons}))
        words = browser.words("/tables/raw/t_quarantine")
        assert "reason lines blank line 2 type conflict 1 <b> 1" in words
        assert "Why lines" not in browser.words("/tables/raw/t")
        monkeypatch.setattr(table_pages, "COUNTED_ROWS_MAX", 3)
        words = browser.words("/tables/raw/t_quarantine")
        assert "too many lines to count here: lakehouse quarantine raw.t 4" in words


def test_a_table_is_told_on_its_first_page(lake):
    table = lake.create_table("raw.t", NUMBERS, properties={"owner": "Ann", "comment": "Ids."})
    asset = {ASSET_KEY: "raw/t", RUN_ID: "run-1"}
    table.append(numbers(1, 2, 3), summary=asset)
    lake.create_table("raw.t_quarantine", NUMBERS).append(numbers(7, 8))
    derived = lake.create_table("marts.u", NUMBERS)
    head = table.current_snapshot().snapshot_id
    derived.append(numbers(1), summary=refreshed(**{"raw.t": head}))
    table.append(numbers(4), summary=asset)
    table.compact(CompactionOptions(rewrite_all=True))
    with browsing(lake, dagster_url="http://localhost:3000") as browser:
        shown = browser.words("/tables/raw/t")
        for text in ("Ids.", "rows 4", "owner Ann", "quarantine 2 rows", "raw/t"):
            assert text in shown
        assert "http://localhost:3000/assets/raw/t" in browser.page("/tables/raw/t").links
        assert "computed from raw.t has changed since" in browser.words("/tables/marts/u")
        assert "2026-01-02 to 2026-01-05" in browser.words("/tables/marts/u")
        snapshots = browser.page("/tables/raw/t/snapshots")
        assert "http://localhost:3000/runs/run-1" in snapshots.links
        assert "none: rewritten" in snapshots.texts
        words = " ".join(snapshots.texts)
        assert "+3" in words
        assert "+1" in words
        assert "marts.u" in browser.words("/tables/raw/t/lineage")
        assert "computed before the last change here" in browser.words("/tables/raw/t/lineage")
        assert "↑ raw.t marts.u" in browser.words("/tables/marts/u/lineage")
        every = browser.words("/")
        assert "t 4 1 " in every
        assert "Ann Ids." in every


def test_where_dagster_is_has_to_be_an_address(lake):
    for wrong in ("javascript:alert(1)", "localhost:3000", "http://", "http://me:secret@host"):
        with pytest.raises(InvalidInputError, match="http://HOST") as refused:
            rest_app(lake, dagster_url=wrong)
        assert "secret" not in str(refused.value)


def test_the_schema_over_time(lake):
    table = lake.create_table("a.t", pa.schema({"id": pa.int32(), "old": pa.string()}))
    table.append(
        pa.table({"id": [1], "old": ["x"]}, pa.schema({"id": pa.int32(), "old": pa.string()}))
    )
    with table.update_schema() as change:
        change.add_column("price", pa.float64(), doc="In euro.")
    with table.update_schema() as change:
        change.rename_column("old", "name")
        change.update_column("id", pa.int64())
    with table.update_schema() as change:
        change.drop_column("price")
        change.update_column("name", doc="Of the shop.")
    with browsing(lake) as browser:
        shown = browser.words("/tables/a/t/schema")
    for text in (
        "price was added: double",
        "old was renamed to name",
        "id was int and is long",
        "price was dropped",
        "name: Of the shop.",
    ):
        assert text in shown
    assert shown.index("price was dropped") < shown.index("price was added")  # the newest first


@pytest.mark.parametrize("version", [2, 3])
def test_a_sample_shows_no_row_that_is_deleted(lake, version):
    merge_on_read = {"write.delete.mode": "merge-on-read"}
    table = lake.create_table("a.t", NUMBERS, properties=merge_on_read, format_version=version)
    table.append(numbers(*range(1000, 1030)))
    table.delete("id < 1005 or id = 1020")
    assert table.inspect.delete_files().num_rows
    with browsing(lake) as browser:
        shown = {text for text in browser.page("/tables/a/t/sample").texts if text.isdecimal()}
        # of a table with more deletes than a page reads, none is shown
        for one in range(3):
            table.append(numbers(2000 + one))
            table.delete(f"id = {1010 + one}")
    assert shown == {str(one) for one in range(1005, 1027) if one != 1020} - {"1026"}


def test_a_sample_that_takes_too_much_is_refused_with_the_way_to_read(lake, monkeypatch):
    monkeypatch.setattr("lakehouse.server.watching.sample_rows._DELETES_MAX", 0)
    merge_on_read = {"write.delete.mode": "merge-on-read"}
    table = lake.create_table("a.t", NUMBERS, properties=merge_on_read)
    table.append(numbers(1, 2, 3))
    table.delete("id = 1")
    with browsing(lake) as browser:
        shown = browser.words("/tables/a/t/sample")
    assert "more than 0 delete files" in shown
    assert 'lakehouse sql "SELECT * FROM a.t LIMIT 10"' in shown


def test_of_a_file_far_away_the_columns_are_read_that_fit(lake, monkeypatch):
    """A store of objects is asked for a column of a row group as a whole."""
    monkeypatch.setattr(sample_rows, "path_on_disk", lambda *_: None)
    monkeypatch.setattr(sample_rows, "_BYTES_MAX", 3000)
    texts = ["".join(chr(97 + (n * m) % 26) for m in range(n % 40)) for n in range(2000)]
    rows = pa.table({"small": [1] * 2000, "large": texts, "after": [2] * 2000})
    lake.create_table("a.t", rows.schema).append(rows)
    with browsing(lake) as browser:
        shown = browser.page("/tables/a/t/sample")
    assert "small" in shown.texts
    assert "large" not in shown.texts
    assert "2 more columns are not shown." in " ".join(shown.texts)


def test_values_of_every_type_are_shown(lake):
    schema = pa.schema(
        {
            "d": pa.decimal128(38, 3),
            "t": pa.timestamp("us"),
            "z": pa.timestamp("us", "UTC"),
            "f": pa.float64(),
            "m": pa.map_(pa.string(), pa.int32()),
            "s": pa.string(),
        }
    )
    far = pa.array([300_000_000_000_000_000], pa.int64()).cast(pa.timestamp("us"))  # year 11476
    rows = pa.table(
        {
            "d": [Decimal("1.250")],
            "t": far,
            "z": [dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)],
            "f": [float("nan")],
            "m": [[("a", 1)]],
            "s": ["x" * 1000],
        },
        schema,
    )
    lake.create_table("a.t", schema).append(rows)
    with browsing(lake) as browser:
        shown = browser.words("/tables/a/t/sample")
    for text in ("1.250", "11476", "2026-01-02 03:00:00+00:00", "nan", "('a', 1)", "x" * 200 + "…"):
        assert text in shown


def test_a_page_reads_no_more_of_a_large_table_than_of_a_small_one(lake, monkeypatch):
    small, large = (lake.create_table(f"a.{name}", NUMBERS) for name in ("small", "large"))
    large.set_properties({"commit.manifest-merge.enabled": "false"})
    small.append(numbers(1))
    for one in range(12):
        large.append(numbers(one))
    read = []
    entries = ManifestReader.entries
    monkeypatch.setattr(
        ManifestReader, "entries", lambda *given, **more: read.append(1) or entries(*given, **more)
    )
    counts = {}
    with browsing(lake) as browser:
        for name in ("small", "large"):
            for page in PAGES:
                read.clear()
                browser.page(f"/tables/a/{name}{page}")
                counts[name, page] = len(read)
    assert counts["large", "/sample"] == counts["small", "/sample"] == 1
    assert {count for (_, page), count in counts.items() if page != "/sample"} == {0}


def test_statements_about_too_many_files_are_not_judged(lake, monkeypatch):
    table = lake.create_table("shop.orders", NUMBERS)
    table.append(numbers(1))
    names = {"shop.orders": table_names(table)}
    StatementStore(lake).put([bind(statement, names, 0) for statement in parse_statements(SAID)])
    monkeypatch.setattr(table_pages, "JUDGED_FILES_MAX", 0)
    with browsing(lake) as browser:
        shown = browser.words("/tables/shop/orders")
    assert "1 files are too many to judge it here" in shown
    assert "2 unverified" in shown


def test_lists_come_in_pages_that_miss_and_repeat_nothing(lake, monkeypatch):
    monkeypatch.setattr(catalog_pages, "TABLES_MAX", 3)
    monkeypatch.setattr(catalog_pages, "SEARCHED_MAX", 2)
    monkeypatch.setattr(catalog_pages, "NAMESPACES_MAX", 3)
    monkeypatch.setattr(table_pages, "READERS_MAX", 2)
    monkeypatch.setattr(table_pages, "SNAPSHOTS_MAX", 2)
    names = [f"{space}.t{one}" for space in "bdf" for one in range(4)]
    for name in names:
        columns = {"amount" if name.endswith("3") else "id": pa.int64()}
        lake.create_table(name, pa.schema(columns), properties={"comment": f"of {name}"})
    for space in "ace":
        lake.create_namespace(space)
    source = lake.load_table("b.t0")
    for one in range(5):
        source.append(numbers(one))
    for name in names[1:]:
        if not name.endswith("3"):
            lake.load_table(name).append(numbers(1), summary=refreshed(**{"b.t0": None}))
    loaded = []
    newest = ServedTables.newest
    monkeypatch.setattr(
        ServedTables, "newest", lambda *given: loaded.append(given[1]) or newest(*given)
    )

    def pages(browser, path, most):
        base = path.partition("?")[0]
        while path:
            loaded.clear()
            page = browser.page(path)
            assert len(loaded) <= most
            yield page
            after = [link for link in page.links if "after=" in link or "from=" in link]
            path = "" if not after else after[0] if after[0][0] == "/" else base + after[0]

    def tables(page):
        return [text for text in page.texts if text[:1] == "t" and text[1:].isdecimal()]

    with browsing(lake) as browser:
        listed = list(pages(browser, "/", 3))
        assert [table for page in listed for table in tables(page)] == [
            name.split(".")[1] for name in names
        ]
        found = [text for page in pages(browser, "/?q=amount", 2) for text in page.texts]
        assert [one for one in found if one in names] == ["b.t3", "d.t3", "f.t3"]
        named = list(pages(browser, "/?q=t1+d.", 3))
        assert [text for page in named for text in page.texts if text in names] == ["d.t1"]
        readers = [
            text for page in pages(browser, "/tables/b/t0/lineage", 5) for text in page.texts
        ]
        assert [reader for reader in readers if reader in names[1:]] == [
            name for name in names[1:] if not name.endswith("3")
        ]
        kept = [str(one.snapshot_id) for one in source.history()]
        told = [text for page in pages(browser, "/tables/b/t0/snapshots", 1) for text in page.texts]
        assert sorted(one for one in told if one in kept) == sorted(kept)
        assert "no snapshots here" in browser.words("/tables/b/t0/snapshots?from=99")


def test_who_may_not_read_a_table_is_told_nothing_of_it(tmp_path):
    """Bob may read one table, the role `create` may create tables in `mine`, and read none."""
    lake = lh.load_catalog(str(tmp_path / "warehouse"))
    with guarded(lake, rules_file(tmp_path)) as server:
        hidden = lake.create_table("secret.source", NUMBERS, properties={"comment": "hush"})
        hidden.append(numbers(41, 42))
        shared = lake.create_table("shared.deep.t", NUMBERS)
        summary = refreshed(**{"secret.source": hidden.current_snapshot().snapshot_id})
        shared.append(numbers(1), summary=summary)
        lake.create_table("mine.t", NUMBERS).append(
            numbers(5), summary=refreshed(**{"shared.deep.t": None})
        )
        bob, creator = Browser(server.url, "bob"), Browser(server.url, "create")
        path = "/tables/shared%1Fdeep/t"
        for page in ("/", "/?q=hush", "/?q=source", "/?q=id", *(path + page for page in PAGES)):
            text = bob.text(page)
            for told in ("secret", "hush" if "hush" not in page else "\0", "mine"):
                assert told not in text, page
        assert "a table that you cannot read" in bob.words(path)
        assert "No table names this one" in bob.words(f"{path}/lineage")  # mine.t does
        first = creator.page("/")
        assert "You may not read it." in first.texts
        assert "t" in first.texts
        assert "/tables/mine/t" not in first.links
        assert "No table has these words" in creator.words("/?q=id")
        for page in PAGES:
            creator.text(f"/tables/mine/t{page}", 403)
            bob.text(f"/tables/secret/source{page}", 403)
            Browser(server.url, "root").text(f"/tables/secret/source{page}")


def test_a_damaged_table_does_not_hide_the_others(lake):
    damaged = lake.create_table("a.damaged", NUMBERS)
    lake.create_table("a.well", NUMBERS).append(numbers(1))
    damaged.append(numbers(2), summary={REFRESH_STATE: "no json"})
    broken = lake.create_table("a.broken", NUMBERS)
    Path(local_path(broken.metadata_location)).write_text("{")
    with browsing(lake) as browser:
        shown = browser.words("/")
        assert "well 1 1" in shown
        assert "cannot be read" in shown
        for page in PAGES:
            browser.page(f"/tables/a/damaged{page}")
        assert "Not found" in browser.text("/tables/a/none/sample", 404)


def test_a_view_has_a_page_that_search_and_lineage_lead_to(lake):
    """Its SQL by dialect, columns, versions, what it reads, who reads it: all as text."""
    lake.create_table("raw.events", NUMBERS)
    lake.create_table("marts.other", NUMBERS)
    first = lake.create_view(
        "marts.latest",
        {
            "spark": "WITH e AS (SELECT id FROM raw.events) SELECT e.id FROM e JOIN other",
            "duckdb": f"SELECT 1 AS id -- {HOSTILE}",
        },
        NUMBERS,
        properties={
            "comment": f"the newest {HOSTILE}",
            "replace.drop-dialect.allowed": "true",
        },
    )
    lake.create_view("marts.above", "SELECT id FROM latest", NUMBERS)
    first.replace("SELECT id FROM other", NUMBERS)
    with browsing(lake) as browser:
        assert "/views/marts/latest" in browser.page("/").links
        page = browser.page("/views/marts/latest")
        assert not page.elements & {"script", "img"}
        words = browser.words("/views/marts/latest")
        assert HOSTILE.split()[0] in words
        assert "SELECT id FROM other" in words
        assert "WITH e AS (SELECT id FROM raw.events)" in words  # version 1
        assert "/tables/marts/other" in page.links
        assert "/tables/raw/events" not in page.links  # the present version does not read it
        assert "/views/marts/above" in page.links
        for search in ("newest", "latest", "id FROM other"):
            assert "/views/marts/latest" in browser.page(f"/?q={search}").links, search
        assert "/views/marts/latest" in browser.page("/tables/marts/other/lineage").links
        assert "/views" not in str(browser.page("/tables/raw/events/lineage").links)
        browser.text("/views/marts/other", 404)  # a table
        browser.text("/views/marts/none", 404)


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ({"spark": "SELECT * FROM a"}, [("here", "a")]),
        ({"spark": "SELECT * FROM `c`.`x.y`.b"}, [("c", "x.y", "b")]),
        ({"spark": "WITH a AS (SELECT 1) SELECT * FROM a, x.a"}, [("x", "a")]),
        ({"ours": "SELECT broken FROM", "duckdb": 'SELECT * FROM "A"'}, [("here", "A")]),
        ({"spark": "SELECT FROM WHERE ("}, []),
        ({"spark": f"SELECT {'(' * 5000}1{')' * 5000}"}, []),
    ],
)
def test_what_a_view_reads_is_told_from_its_sql(sql, reads):
    version = ViewVersion(
        1, 0, 0, tuple(SqlRepresentation(one, dialect) for dialect, one in sql.items()), ("here",)
    )
    assert read_names(version) == reads


def test_a_damaged_view_hides_no_other(lake):
    lake.create_table("raw.t", NUMBERS)
    for name in ("raw.a", "raw.b"):
        lake.create_view(name, "SELECT id FROM t", NUMBERS)
    location = lake.catalog.views.load(Identifier(("raw",), "a")).metadata_location
    Path(local_path(location)).write_text("{")
    with browsing(lake) as browser:
        links = browser.page("/tables/raw/t/lineage").links
        assert "/views/raw/b" in links
        assert "/views/raw/a" not in links
        browser.text("/views/raw/a", 404)
