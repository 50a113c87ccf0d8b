"""Views over every catalog and storage: one behaviour, and names that are one thing only."""

from __future__ import annotations

import json
import sqlite3
import threading
import uuid

import pytest

import lakehouse as lh
from lakehouse.catalog import open_catalog
from lakehouse.catalog.pointer_catalog import PointerCatalog
from lakehouse.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidLocationError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchViewError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
    ViewAlreadyExistsError,
)
from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import rest_app
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_updates import AddSchema, AssignUUID, SetLocation, SetProperties
from lakehouse.spec.views.view_metadata import SqlRepresentation, ViewVersion
from lakehouse.spec.views.view_updates import (
    AddViewVersion,
    AssertViewUUID,
    SetCurrentViewVersion,
    apply_view_updates,
)
from tests.integration.test_catalogs import KINDS, open_kind
from tests.tables import NOW_MS, SCHEMA, create_table

SEEN = Identifier.parse("raw.seen")
OTHER = Identifier.parse("raw.other")
WRITERS = 4


@pytest.fixture
def servers(request):
    return lambda name: request.getfixturevalue(
        {"postgres": "postgres_uri", "s3": "s3_properties"}[name]
    )


@pytest.fixture(params=[*(kind for kind in KINDS if kind[:5] != "glue-"), "rest-sqlite"])
def catalog(request, tmp_path, servers):
    if request.param == "rest-sqlite":
        warehouse = str(tmp_path / "warehouse")
        lake = lh.load_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse)
        with HttpServer(rest_app(lake), "127.0.0.1", 0) as server:
            yield open_catalog(server.url, warehouse=warehouse)
        return
    opened = open_kind(request.param, tmp_path, servers)
    yield opened
    if isinstance(opened, PointerCatalog):
        opened.close()


def sql(text, *, version_id=1, dialect="spark"):
    return ViewVersion(version_id, -1, NOW_MS, (SqlRepresentation(text, dialect),), ("raw",))


def metadata_of(location, text="SELECT 1"):
    updates = (
        AssignUUID(str(uuid.uuid4())),
        SetLocation(location),
        AddSchema(SCHEMA),
        AddViewVersion(sql(text)),
        SetCurrentViewVersion(),
    )
    return apply_view_updates(None, updates, now_ms=NOW_MS)


def make(catalog, name=SEEN, text="SELECT 1"):
    if not catalog.namespace_exists(name.namespace):
        catalog.create_namespace(name.namespace)
    return catalog.views.create(name, metadata_of(catalog.default_location(name), text))


def replacing(text):
    return (AddSchema(SCHEMA), AddViewVersion(sql(text)), SetCurrentViewVersion())


def text_of(view):
    return view.metadata.current_version().dialects()["spark"].sql


def can_rename(catalog):
    try:
        catalog.views.rename(Identifier.parse("raw.a"), Identifier.parse("raw.b"))
    except UnsupportedFeatureError:
        return False
    except NoSuchViewError:
        return True
    raise AssertionError


def test_a_view_lives(catalog):
    made = make(catalog)
    assert catalog.views.exists(SEEN)
    assert catalog.views.names(("raw",)) == [SEEN]
    loaded = catalog.views.load(SEEN)
    assert loaded == made
    changed = catalog.views.commit(
        loaded, (AssertViewUUID(loaded.metadata.view_uuid),), replacing("SELECT 2")
    )
    assert text_of(catalog.views.load(SEEN)) == "SELECT 2"
    assert changed.metadata_location != made.metadata_location
    assert [one.version_id for one in catalog.views.load(SEEN).metadata.version_log] == [1, 2]
    assert catalog.views.commit(changed, (), replacing("SELECT 2")) is changed
    with pytest.raises(CommitConflictError):
        catalog.views.commit(changed, (AssertViewUUID(str(uuid.uuid4())),), replacing("SELECT 3"))
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(("raw",))
    catalog.views.drop(SEEN)
    assert not catalog.views.exists(SEEN)
    assert catalog.views.names(("raw",)) == []
    for gone in (
        lambda: catalog.views.load(SEEN),
        lambda: catalog.views.drop(SEEN),
        lambda: catalog.views.commit(changed, (), replacing("SELECT 4")),
    ):
        with pytest.raises(NoSuchViewError, match=r"raw\.seen"):
            gone()
    again = catalog.views.register(SEEN, changed.metadata_location)
    assert text_of(again) == "SELECT 2"
    assert again.metadata.view_uuid == made.metadata.view_uuid
    catalog.views.drop(SEEN)
    catalog.drop_namespace(("raw",))


def test_who_comes_second_changes_nothing(catalog):
    base = make(catalog)
    catalog.views.commit(base, (), replacing("SELECT 2"))
    if catalog.commits_to_newest:
        catalog.views.commit(base, (), replacing("SELECT 3"))
        assert [version.version_id for version in catalog.views.load(SEEN).metadata.versions] == [
            1,
            2,
            3,
        ]
    else:
        with pytest.raises(CommitConflictError, match=r"raw\.seen"):
            catalog.views.commit(base, (), replacing("SELECT 3"))
        assert text_of(catalog.views.load(SEEN)) == "SELECT 2"


def test_a_name_is_a_table_or_a_view(catalog):
    make(catalog)
    table = create_table(catalog, OTHER)
    assert catalog.list_tables(("raw",)) == [OTHER]
    assert catalog.views.names(("raw",)) == [SEEN]
    assert not catalog.table_exists(SEEN)
    assert not catalog.views.exists(OTHER)
    for ask, kind in (
        (lambda: catalog.load(SEEN), NoSuchTableError),
        (lambda: catalog.drop(SEEN), NoSuchTableError),
        (lambda: catalog.drop(SEEN, purge=True), NoSuchTableError),
        (lambda: catalog.views.load(OTHER), NoSuchViewError),
        (lambda: catalog.views.drop(OTHER), NoSuchViewError),
        (lambda: make(catalog, OTHER), TableAlreadyExistsError),
        (lambda: make(catalog, SEEN), ViewAlreadyExistsError),
        (lambda: create_table(catalog, SEEN), AlreadyExistsError),
    ):
        with pytest.raises(kind, match=r"raw\.(seen|other)"):
            ask()
    assert catalog.table_exists(OTHER)
    if not catalog.commits_to_newest:
        with pytest.raises(ViewAlreadyExistsError):
            create_table(catalog, SEEN)
        catalog.drop(OTHER)
        with pytest.raises(ViewAlreadyExistsError):
            catalog.register(SEEN, table.metadata_location)
    assert catalog.views.exists(SEEN)


def test_a_name_is_free_again_for_either(catalog):
    for _ in range(2):
        make(catalog)
        catalog.views.drop(SEEN)
        create_table(catalog, SEEN)
        assert not catalog.views.exists(SEEN)
        catalog.drop(SEEN)
    assert text_of(make(catalog, text="SELECT 5")) == "SELECT 5"


def test_renaming(catalog):
    make(catalog)
    create_table(catalog, OTHER)
    if not can_rename(catalog):
        return
    target = Identifier.parse("raw.renamed")
    for ask, kind in (
        (lambda: catalog.views.rename(SEEN, OTHER), TableAlreadyExistsError),
        (lambda: catalog.rename(OTHER, SEEN), AlreadyExistsError),
        (lambda: catalog.rename(SEEN, target), NoSuchTableError),
        (lambda: catalog.views.rename(OTHER, target), NoSuchViewError),
        (lambda: catalog.views.rename(SEEN, Identifier.parse("no.where")), NoSuchNamespaceError),
    ):
        with pytest.raises(kind):
            ask()
    catalog.views.rename(SEEN, target)
    assert catalog.views.names(("raw",)) == [target]
    assert text_of(catalog.views.load(target)) == "SELECT 1"


def test_bad_places(catalog, tmp_path):
    catalog.create_namespace(("raw",))
    with pytest.raises(NoSuchNamespaceError):
        catalog.views.names(("nowhere",))
    name = Identifier.parse("nowhere.seen")
    with pytest.raises(NoSuchNamespaceError):
        catalog.views.create(name, metadata_of(f"{catalog.warehouse}/nowhere/seen"))
    with pytest.raises(InvalidLocationError):
        catalog.views.create(SEEN, metadata_of(str(tmp_path / "elsewhere")))
    assert catalog.views.names(("raw",)) == []


def test_of_many_who_want_a_name_one_gets_it(catalog):
    catalog.create_namespace(("raw",))
    outcomes = []
    barrier = threading.Barrier(WRITERS)

    def want(n):
        barrier.wait()
        try:
            made = make(catalog) if n % 2 else create_table(catalog, SEEN)
        except AlreadyExistsError:
            return
        outcomes.append((n % 2, made.metadata_location))

    threads = [threading.Thread(target=want, args=(n,)) for n in range(WRITERS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    [(is_view, location)] = outcomes
    assert catalog.views.exists(SEEN) is bool(is_view)
    assert catalog.table_exists(SEEN) is not bool(is_view)
    found = catalog.views.load(SEEN) if is_view else catalog.load(SEEN)
    assert found.metadata_location == location


def test_replacements_at_once_are_all_made(catalog):
    make(catalog)
    barrier = threading.Barrier(WRITERS)

    def change(n):
        barrier.wait()
        while True:
            try:
                catalog.views.commit(catalog.views.load(SEEN), (), replacing(f"SELECT {n + 10}"))
            except CommitConflictError:
                continue
            return

    threads = [threading.Thread(target=change, args=(n,)) for n in range(WRITERS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    metadata = catalog.views.load(SEEN).metadata
    texts = [version.dialects()["spark"].sql for version in metadata.versions]
    assert sorted(texts) == sorted(["SELECT 1", *(f"SELECT {n + 10}" for n in range(WRITERS))])
    assert [one.version_id for one in metadata.version_log] == [1, 2, 3, 4, 5]


def test_properties_decide_where_and_how_the_file_is_written(tmp_path):
    warehouse = tmp_path / "warehouse"
    catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(warehouse))
    made = make(catalog)
    properties = {
        "write.metadata.path": f"{warehouse}/meta",
        "write.metadata.compression-codec": "gzip",
    }
    changed = catalog.views.commit(made, (), [SetProperties(properties)])
    assert changed.metadata_location.startswith(f"file://{warehouse}/meta/00001-")
    assert changed.metadata_location.endswith(".gz.metadata.json")
    assert catalog.views.load(SEEN) == changed
    away = SetProperties({"write.metadata.path": str(tmp_path / "away")})
    with pytest.raises(InvalidLocationError, match=r"write\.metadata\.path"):
        catalog.views.commit(changed, (), [away])


def test_a_table_does_not_lie_where_a_view_does(tmp_path):
    catalog = open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "warehouse"))
    catalog.create_namespace(("raw",))
    location = f"{catalog.warehouse}/together"
    made = catalog.views.create(SEEN, metadata_of(f"{location}/seen"))
    lake = lh.Lakehouse(catalog)
    with pytest.raises(InvalidLocationError, match=r"raw\.seen"):
        lake.create_table("raw.other", SCHEMA, location=location)
    assert json.loads(catalog.storage(made.metadata_location).read(made.metadata_location))


def test_a_view_does_not_write_into_the_folder_of_a_table(tmp_path):
    """Its metadata would be an orphan of the table, and go with those."""
    catalog = open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "warehouse"))
    table = create_table(catalog, OTHER)
    made = make(catalog)
    there = SetProperties({"write.metadata.path": f"{table.metadata.location}/metadata"})
    with pytest.raises(InvalidLocationError, match=r"raw\.other"):
        catalog.views.commit(made, (), [there])
    with pytest.raises(InvalidLocationError, match=r"raw\.other"):
        catalog.views.commit(made, (), [SetLocation(f"{table.metadata.location}/below")])
    own = SetProperties({"write.metadata.path": "own"})
    changed = catalog.views.commit(made, (), [own])
    assert changed.metadata_location.startswith(f"{made.metadata.location}/own/00001-")
    catalog.views.drop(SEEN)
    sneaking = metadata_of(f"{catalog.warehouse}/raw/seen")
    sneaking = apply_view_updates(sneaking, [there], now_ms=NOW_MS)
    with pytest.raises(InvalidLocationError, match=r"raw\.other"):
        catalog.views.create(SEEN, sneaking)


def test_a_database_without_the_column_has_tables_only(tmp_path):
    with sqlite3.connect(tmp_path / "old.db") as database:
        database.execute(
            "CREATE TABLE iceberg_tables (catalog_name VARCHAR(255) NOT NULL, table_namespace "
            "VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL, metadata_location "
            "VARCHAR(1000), previous_metadata_location VARCHAR(1000), "
            "PRIMARY KEY (catalog_name, table_namespace, table_name))"
        )
    catalog = open_catalog(f"sqlite:///{tmp_path}/old.db", warehouse=str(tmp_path / "warehouse"))
    create_table(catalog, OTHER)
    assert catalog.views.names(("raw",)) == []
    assert not catalog.views.exists(SEEN)
    with pytest.raises(UnsupportedFeatureError, match="iceberg_type"):
        make(catalog)
    assert catalog.list_tables(("raw",)) == [OTHER]
