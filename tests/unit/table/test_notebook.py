"""What a notebook shows: read as HTML by Python's own parser, of tables plain, odd and hostile."""

from __future__ import annotations

import dataclasses
import json
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.errors import StorageError
from lakehouse.spec.metadata.metadata_json import parse
from lakehouse.storage.location import local_path
from lakehouse.table import Table

HOSTILE = "<script>alert('x')</script>\"&\x1b[31m\u202e"
MYSTERY = {"source-id": 99, "field-id": 1000, "transform": "mystery[3]", "name": "x"}
KNOWN_TAGS = {"div", "strong", "table", "thead", "tbody", "tr", "th", "td", "p"}


class Page(HTMLParser):
    """Tags that are all closed in order, and the texts between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
def lake(tmp_path):
    return lh.load_catalog(str(tmp_path))


@pytest.fixture
def table(lake):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.date32())])
    table = lake.create_table("a.b", schema, partition_by=["month(day)"], sort_by=["id"])
    table.append(pa.table({"id": [1, 2], "day": pa.array([1, 2], pa.date32())}, schema=schema))
    return table.create_tag("kept")


def test_a_table_tells_what_it_is(table):
    page = Page(table._repr_html_())
    assert page.tags <= KNOWN_TAGS
    columns = ("id", "long", "required", "date")
    for text in ("a.b", table.location, "month(day)", *columns, "main (branch), kept (tag)"):
        assert text in page.texts, text
    assert any("2 rows in 1 files" in text for text in page.texts)
    assert "'a.b', v2" in repr(table)
    assert "2 rows in 1 files" in repr(table)
    assert "\n" not in repr(table)


def test_nothing_but_metadata_is_read(table):
    for one in Path(local_path(table.location)).rglob("*"):
        if one.is_file():
            one.unlink()
    assert "2 rows" in repr(table)
    assert "2 rows" in table._repr_html_()


def test_deletes_make_a_count_an_upper_bound(lake):
    table = lake.create_table(
        "a.b", pa.schema([("id", pa.int64())]), properties={"write.delete.mode": "merge-on-read"}
    )
    assert "empty" in repr(table)
    table.append(pa.table({"id": [1, 2]}))
    table.delete("id = 1")
    assert "at most 2 rows" in repr(table)


def test_hostile_texts_are_texts(lake):
    schema = pa.schema([pa.field(HOSTILE, pa.int64(), metadata={"doc": HOSTILE})])
    table = lake.create_table("a.hostile", schema, properties={"comment": HOSTILE})
    page = Page(table._repr_html_())
    assert page.tags <= KNOWN_TAGS
    assert "script" not in page.tags
    assert sum("<script>alert('x')</script>" in text for text in page.texts) >= 2
    renamed = Table(lake.catalog, dataclasses.replace(table.version, identifier=Named(HOSTILE)))
    for text in (table._repr_html_(), renamed._repr_html_(), repr(renamed)):
        assert all(one.isprintable() for one in text)
    assert Page(renamed._repr_html_()).tags <= KNOWN_TAGS


class Named:
    """An identifier that no catalog of ours would take."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return self._name


def broken(table: lh.Table, change: dict[str, object]) -> lh.Table:
    document = {**json.loads(Path(local_path(table.metadata_location)).read_text()), **change}
    metadata = parse(json.dumps(document).encode(), table.metadata_location)
    return Table(table.catalog, TableVersion(table.identifier, metadata, table.metadata_location))


@pytest.mark.parametrize(
    "change",
    [
        {"partition-specs": [{"spec-id": 0, "fields": [MYSTERY]}]},
        {"location": HOSTILE},
        {"properties": {"comment": "x" * 100_000}},
        {"snapshots": [], "refs": {}, "snapshot-log": [], "current-snapshot-id": -1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_no_table_that_loads_is_too_odd(table, change):
    assert_shown(broken(table, change))


@pytest.mark.parametrize(
    "change",
    [
        {"current_schema_id": 7},
        {"default_spec_id": 7},
        {"default_sort_order_id": 7},
        {"current_snapshot_id": 7},
    ],
    ids=lambda change: next(iter(change)),
)
def test_metadata_that_names_what_is_not_there_is_shown(table, change):
    metadata = dataclasses.replace(table.metadata, **change)
    odd = Table(table.catalog, dataclasses.replace(table.version, metadata=metadata))
    assert_shown(odd)
    assert "unknown: " in odd._repr_html_()


def assert_shown(odd: lh.Table) -> None:
    assert len(repr(odd)) < 1000
    page = odd._repr_html_()
    assert Page(page).tags <= KNOWN_TAGS
    assert len(page) < 10_000


@pytest.mark.parametrize(
    "summary",
    [
        {},
        {"operation": HOSTILE, "total-records": HOSTILE, "total-data-files": "-1"},
        {"total-records": "x", "total-data-files": ""},
    ],
)
@pytest.mark.parametrize("at", [-(2**62), 2**62, 0])
def test_no_odd_snapshot_is_too_odd(table, summary, at):
    document = json.loads(Path(local_path(table.metadata_location)).read_text())
    document["snapshots"][0] |= {"summary": {"operation": "append", **summary}, "timestamp-ms": at}
    odd = broken(table, {"snapshots": document["snapshots"]})
    assert "v2" in repr(odd)
    assert Page(odd._repr_html_()).tags <= KNOWN_TAGS


def test_a_wide_table_is_cut(lake):
    schema = pa.schema([pa.field(f"c{one}", pa.int64()) for one in range(250)])
    page = Page(lake.create_table("a.wide", schema)._repr_html_())
    assert "and 150 more" in page.texts
    assert "c99" in page.texts
    assert "c100" not in page.texts


def test_a_lake_lists_its_tables(lake, table):
    lake.create_table("z.y", pa.schema([("id", pa.int64())]))
    page = Page(lake._repr_html_())
    assert page.tags <= KNOWN_TAGS
    assert [text for text in page.texts if text in ("a.b", "z.y")] == ["a.b", "z.y"]


def test_a_lake_that_does_not_answer_says_so(lake, monkeypatch):
    def fail() -> None:
        raise StorageError(f"gone: {HOSTILE}")

    monkeypatch.setattr(lake.catalog, "list_namespaces", lambda *_: fail())
    page = Page(lake._repr_html_())
    assert page.tags <= KNOWN_TAGS
    assert any("does not answer: gone" in text for text in page.texts)
