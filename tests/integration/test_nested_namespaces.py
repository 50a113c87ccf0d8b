"""However deep a table is: every list, every command, every walk of the catalog finds it once."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.catalog.catalog_protocol import walk_namespaces, walk_tables
from lakehouse.errors import NoSuchNamespaceError
from tests.rest_server import rest

NAMES = ["a.b.c.t", "a.t", "raw.eu.de.events", "raw.eu.events", "raw.events"]
SPACES = ["a", "a.b", "a.b.c", "raw", "raw.eu", "raw.eu.de"]


@pytest.fixture(params=["folder", "sqlite", "rest"])
def lake(request, tmp_path):
    warehouse = f"{tmp_path}/warehouse"
    if request.param == "folder":
        yield lh.load_catalog(warehouse)
    elif request.param == "sqlite":
        opened = lh.load_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse)
        yield opened
        opened.catalog.close()
    else:
        with rest(tmp_path) as server:
            yield lh.load_catalog(server.url, warehouse=warehouse)


def test_all_are_listed_once(lake):
    for name in NAMES:
        lake.create_table(name, pa.schema({"id": pa.int64()}))
    assert lake.list_tables() == NAMES
    assert lake.list_tables("raw") == ["raw.events"]
    assert lake.list_tables("raw.eu") == ["raw.eu.events"]
    assert lake.list_namespaces() == SPACES
    with pytest.raises(NoSuchNamespaceError):
        lake.list_tables("nowhere")


class FlatCatalog:
    """A server that knows one level: whatever the parent, it answers with the same namespaces.

    One is gone meanwhile.
    """

    def list_namespaces(self, parent=()):
        return [("a",), ("b",), ("gone",)]

    def list_tables(self, namespace):
        if namespace == ("gone",):
            raise NoSuchNamespaceError("gone")
        return [(*namespace, "t")]


def test_a_catalog_that_repeats_itself_ends_the_walk():
    assert list(walk_namespaces(FlatCatalog())) == [("a",), ("b",), ("gone",)]
    assert list(walk_tables(FlatCatalog())) == [("a", "t"), ("b", "t")]
