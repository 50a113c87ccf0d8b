"""One behaviour suite over every catalog and storage; real PostgreSQL, real S3 protocol."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

from lakehouse.catalog import open_catalog
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.catalog.metastores.metastore_catalog import MetastoreCatalog
from lakehouse.catalog.pointer_catalog import PointerCatalog
from lakehouse.errors import (
    CommitConflictError,
    InvalidIdentifierError,
    InvalidLocationError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
)
from lakehouse.lake import Lakehouse
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_updates import AssertRefSnapshotId, SetProperties
from lakehouse.transaction import Transaction
from tests.servers import clouds, metastores, metastores_store
from tests.tables import EVENTS, create_table, data_file, live_files, table_metadata

KINDS = (
    "files-local",
    "files-uri",
    "files-memory",
    "files-s3",
    "sqlite-local",
    "sqlite-s3",
    "postgres-local",
    "glue-local",
    "glue-s3",
    *(f"{kind}-{cloud}" for kind in ("files", "sqlite") for cloud in clouds()),
    *(f"{name}-{way}" for name in metastores() for way in ("local", "unlocked", "s3")),
)
GLUE_KEYS = ("endpoint", "access-key-id", "secret-access-key")
KINDS = tuple(kind for kind in KINDS if kind != "hive3-unlocked")  # it compares nothing


@pytest.fixture
def servers(request):
    """A server's address, started when somebody first asks for it."""
    return lambda name: request.getfixturevalue(
        {"postgres": "postgres_uri", "s3": "s3_properties"}[name]
    )


@pytest.fixture(params=KINDS)
def catalog(request, tmp_path, servers):
    opened = open_kind(request.param, tmp_path, servers)
    yield opened
    if isinstance(opened, PointerCatalog):
        opened.close()


def open_kind(kind, tmp_path, servers):
    unique = uuid.uuid4().hex
    catalog_kind, _, storage_kind = kind.partition("-")
    properties = servers("s3") if storage_kind == "s3" or catalog_kind == "glue" else {}
    if storage_kind in clouds():
        _, properties = clouds()[storage_kind]
    warehouse = {
        "local": str(tmp_path / "warehouse"),
        "unlocked": str(tmp_path / "warehouse"),
        "uri": f"file://{tmp_path}/warehouse",
        "memory": f"memory://{unique}/warehouse",
        "s3": f"s3://lake/{unique}",
        **{name: f"{root}/{unique}" for name, (root, _) in clouds().items()},
    }[storage_kind]
    if catalog_kind == "files":
        return open_catalog(warehouse, **properties)
    if catalog_kind == "glue":
        return emptied(glue_catalog(properties, warehouse))
    if catalog_kind in metastores():
        properties = metastores_store() if storage_kind == "s3" else {}
        locking = {"iceberg.engine.hive.lock-enabled": str(storage_kind != "unlocked").lower()}
        return emptied(
            open_catalog(metastores()[catalog_kind], warehouse=warehouse, **locking, **properties)
        )
    uri = servers("postgres") if catalog_kind == "postgres" else f"sqlite:///{tmp_path}/catalog.db"
    return open_catalog(uri, warehouse=warehouse, name=f"c{unique}", **properties)


def glue_catalog(s3_properties, warehouse, **options):
    """A catalog in the Glue of a test server."""
    keys = {f"glue.{name}": s3_properties[f"s3.{name}"] for name in GLUE_KEYS}
    return open_catalog("glue://us-east-1", warehouse=warehouse, **s3_properties, **keys, **options)


def emptied(catalog):
    """A catalog in a metastore without the namespaces of other tests."""
    for (name,) in catalog.list_namespaces():
        if is_glue(catalog):
            catalog._databases._client.call("delete_database", Name=name)
        elif name != "default":
            catalog._metastore.call(
                lambda client, name=name: client.drop_database(name, False, True)
            )
    return catalog


def is_glue(catalog):
    return catalog.uri.startswith("glue:")


def in_metastore(catalog):
    """Names have one level there, and letters, digits and underscores."""
    return isinstance(catalog, MetastoreCatalog)


def test_namespaces(catalog):
    if in_metastore(catalog):
        pytest.skip("its namespaces have one level: test_hive_metastore.py, test_glue.py")
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables(("raw",))
    catalog.create_namespace(("raw",), {"owner": "us"})
    catalog.create_namespace(("raw", "eu"))
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace(("raw",))
    assert catalog.namespace_exists(("raw", "eu"))
    assert catalog.list_namespaces() == [("raw",)]
    assert catalog.list_namespaces(("raw",)) == [("raw", "eu")]
    assert catalog.namespace_properties(("raw",)) == {"owner": "us"}
    assert catalog.update_namespace_properties(("raw",), {"a": "b"}, ["owner"]) == {"a": "b"}
    assert catalog.namespace_properties(("raw",)) == {"a": "b"}
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(("raw",))
    catalog.drop_namespace(("raw", "eu"))
    catalog.drop_namespace(("raw",))
    assert not catalog.namespace_exists(("raw",))
    assert catalog.list_namespaces() == []
    with pytest.raises(NoSuchNamespaceError):
        catalog.drop_namespace(("raw",))


def test_tables(catalog):
    version = create_table(catalog)
    with pytest.raises(TableAlreadyExistsError):
        create_table(catalog)
    error = InvalidIdentifierError if in_metastore(catalog) else NamespaceAlreadyExistsError
    with pytest.raises(error):
        catalog.create_namespace((*EVENTS.namespace, EVENTS.name))
    assert catalog.table_exists(EVENTS)
    assert catalog.list_tables(("raw",)) == [EVENTS]
    loaded = catalog.load(EVENTS)
    assert loaded.metadata == version.metadata
    assert loaded.metadata_location == version.metadata_location
    assert catalog.refresh(loaded) is loaded
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(("raw",))
    with pytest.raises(NoSuchTableError):
        catalog.load(Identifier.parse("raw.nothing"))
    with pytest.raises(NoSuchNamespaceError):
        catalog.create(
            Identifier.parse("no.where"),
            table_metadata(catalog.default_location(Identifier.parse("no.where"))),
        )


def test_commit_is_compare_and_swap(catalog):
    base = create_table(catalog)
    first = catalog.commit(EVENTS, base, (), (SetProperties({"a": "1"}),))
    with pytest.raises(CommitConflictError, match=r"raw\.events"):
        catalog.commit(EVENTS, base, (), (SetProperties({"a": "2"}),))
    with pytest.raises(CommitConflictError, match="main"):
        catalog.commit(
            EVENTS, first, (AssertRefSnapshotId("main", 7),), (SetProperties({"a": "3"}),)
        )
    assert catalog.load(EVENTS).metadata.properties["a"] == "1"
    assert [entry.metadata_file for entry in catalog.load(EVENTS).metadata.metadata_log] == [
        base.metadata_location
    ]
    assert catalog.commit(EVENTS, first, (), (SetProperties({"a": "1"}),)) is first


def test_a_lost_commit_leaves_no_metadata_file(catalog):
    base = create_table(catalog)
    catalog.commit(EVENTS, base, (), (SetProperties({"a": "1"}),))
    before = sorted(
        info.location
        for info in catalog.storage(base.metadata.location).list(base.metadata.location)
    )
    with pytest.raises(CommitConflictError):
        catalog.commit(EVENTS, base, (), (SetProperties({"a": "2"}),))
    assert (
        sorted(
            info.location
            for info in catalog.storage(base.metadata.location).list(base.metadata.location)
        )
        == before
    )


def test_append_and_read_back(catalog):
    base = create_table(catalog)
    Transaction(catalog, EVENTS, decided_on=base).append([data_file("one")]).commit()
    committed = Transaction(catalog, EVENTS, decided_on=base).append([data_file("two")]).commit()
    assert live_files(catalog, catalog.load(EVENTS)) == ["one", "two"]
    assert committed.snapshot.summary["total-records"] == "20"


def test_drop_keeps_files_and_register_brings_them_back(catalog):
    base = create_table(catalog)
    version = (
        Transaction(catalog, EVENTS, decided_on=base).append([data_file("one")]).commit().version
    )
    catalog.drop(EVENTS)
    assert not catalog.table_exists(EVENTS)
    assert catalog.list_tables(("raw",)) == []
    with pytest.raises(NoSuchTableError):
        catalog.drop(EVENTS)
    with pytest.raises((NoSuchTableError, CommitConflictError)):
        catalog.commit(EVENTS, version, (), (SetProperties({"late": "writer"}),))
    again = Identifier.parse("raw.again")
    catalog.register(again, version.metadata_location)
    assert live_files(catalog, catalog.load(again)) == ["one"]
    Transaction(catalog, again).append([data_file("two")]).commit()
    assert live_files(catalog, catalog.load(again)) == ["one", "two"]


def test_purge_deletes_the_files_and_the_name_is_free(catalog):
    base = create_table(catalog)
    version = (
        Transaction(catalog, EVENTS, decided_on=base).append([data_file("one")]).commit().version
    )
    catalog.drop(EVENTS, purge=True)
    storage = catalog.storage(base.metadata.location)
    assert not storage.exists(version.metadata_location)
    assert not storage.exists(version.metadata.current_snapshot().manifest_list)
    with pytest.raises((NoSuchTableError, CommitConflictError)):
        catalog.commit(EVENTS, version, (), (SetProperties({"late": "writer"}),))
    assert not catalog.table_exists(EVENTS)
    fresh = create_table(catalog)
    assert fresh.metadata.table_uuid != base.metadata.table_uuid
    assert catalog.load(EVENTS).metadata.current_snapshot() is None


def test_rename(catalog):
    create_table(catalog)
    target = Identifier.parse("raw.renamed")
    if isinstance(catalog, FilesystemCatalog):
        with pytest.raises(UnsupportedFeatureError, match="SQL catalog"):
            catalog.rename(EVENTS, target)
        return
    catalog.rename(EVENTS, target)
    assert catalog.list_tables(("raw",)) == [target]
    with pytest.raises(NoSuchTableError):
        catalog.load(EVENTS)
    with pytest.raises(NoSuchTableError):
        catalog.rename(EVENTS, target)
    new = create_table(catalog)
    assert new.metadata.location != catalog.load(target).metadata.location
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename(EVENTS, target)


@pytest.mark.parametrize("name", ["..", ".", "", "a\x00b", " a", "a\\b", "a\x1fb"])
def test_names_cannot_escape(catalog, name):
    with pytest.raises(InvalidIdentifierError):
        catalog.create_namespace((name,))
    with pytest.raises(InvalidIdentifierError):
        create_table(catalog, Identifier(("raw",), name))


@pytest.mark.parametrize("name", ["../../../escape", "a/b", "a.b", ".hidden", "/", "a.", "..."])
def test_dots_and_slashes_are_parts_of_names_or_refused(catalog, name):
    if in_metastore(catalog):
        pytest.skip("it keeps few names: test_hive_metastore.py, test_glue.py")
    identifier = Identifier(("raw", name), name)
    if isinstance(catalog, FilesystemCatalog):
        for attempt in (
            lambda: catalog.create_namespace((name,)),
            lambda: catalog.default_location(Identifier(("raw",), name)),
            lambda: catalog.table_exists(Identifier(("raw",), name)),
            lambda: catalog.views.exists(Identifier(("raw",), name)),
        ):
            with pytest.raises(InvalidIdentifierError, match="filesystem"):
                attempt()
        return
    catalog.create_namespace(("raw", name), {"owner": "ada"})
    made = create_table(catalog, identifier)
    assert made.metadata.location.startswith(f"{catalog.warehouse}/raw/")
    assert made.metadata.location.count("/") == f"{catalog.warehouse}/raw/x/y".count("/")
    assert catalog.list_namespaces() == [("raw",)]
    assert catalog.list_namespaces(("raw",)) == [("raw", name)]
    assert catalog.namespace_properties(("raw", name)) == {"owner": "ada"}
    assert catalog.list_tables(("raw", name)) == [identifier]
    # what looks the same with dots between levels is something else
    for other in (name.split("."), name.split("/")):
        if len(other) > 1 and all(other) and ".." not in other:
            assert not catalog.namespace_exists(("raw", *other))
            assert not catalog.table_exists(Identifier(("raw", name, *other[:-1]), other[-1]))
    changed = catalog.commit(identifier, made, (), [SetProperties({"comment": "new"})])
    assert catalog.load(identifier).metadata == changed.metadata
    target = Identifier(("raw", name), f"b{name}c")
    catalog.rename(identifier, target)
    assert catalog.list_tables(("raw", name)) == [target]
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(("raw", name))
    catalog.drop(target, purge=True)
    catalog.drop_namespace(("raw", name))
    assert not catalog.namespace_exists(("raw", name))


def test_locations_are_confined(catalog):
    catalog.create_namespace(("raw",))
    inside = catalog.default_location(EVENTS)
    for outside in (f"{catalog.warehouse}/../elsewhere", "/etc/lakehouse", catalog.warehouse):
        with pytest.raises(InvalidLocationError):
            catalog.create(EVENTS, table_metadata(outside))
    with pytest.raises(InvalidLocationError, match=r"write\.data\.path"):
        catalog.create(EVENTS, table_metadata(inside, {"write.data.path": "/etc/lakehouse"}))
    base = create_table(catalog)
    with pytest.raises(InvalidLocationError, match=r"write\.metadata\.path"):
        catalog.commit(
            EVENTS, base, (), (SetProperties({"write.metadata.path": "/etc/lakehouse"}),)
        )
    assert catalog.load(EVENTS).metadata.properties == base.metadata.properties
    other = Identifier.parse("raw.other")
    with pytest.raises(InvalidLocationError):
        catalog.create(other, table_metadata(f"{base.metadata.location}/below"))
    with pytest.raises(InvalidLocationError):
        catalog.register(other, base.metadata_location)


def test_names_are_bound_parameters(catalog):
    if in_metastore(catalog):
        pytest.skip("it keeps few names: test_hive_metastore.py, test_glue.py")
    evil = Identifier(("raw",), "x'); DROP TABLE iceberg_tables; --")
    create_table(catalog)
    create_table(catalog, evil)
    assert catalog.load(evil).identifier == evil
    assert set(catalog.list_tables(("raw",))) == {EVENTS, evil}


@pytest.mark.parametrize(
    "name", ["a#b?c", "a%2Fb %", "日本 ünï", "a+b&c='\"", "[a]{b}*|~;:", "x" * 200]
)
def test_names_and_values_that_stores_and_urls_would_escape(catalog, name):
    """Names of tables and partition values become folders: what is written is found again."""
    if in_metastore(catalog):
        pytest.skip("it keeps few names: test_hive_metastore.py, test_glue.py")
    lake = Lakehouse(catalog)
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "p": [name, name + "/..\\"]})
    table = lake.create_table(("raw", name), rows.schema, partition_by=["p"])
    table.append(rows)
    again = lake.load_table(("raw", name))
    assert (
        sorted(again.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == rows.to_pylist()
    )
    assert again.scan(where=EqualTo("p", name)).count() == 1
    assert lake.list_tables("raw") == [f"raw.{name}"]
    lake.drop_table(("raw", name), purge=True)
    left = [info.location for info in catalog.storage(table.location).list(table.location)]
    assert not [one for one in left if one.endswith(".parquet")]


def test_secrets_stay_in_properties(catalog):
    version = create_table(catalog)
    Transaction(catalog, EVENTS).append([data_file("one")]).commit()
    secret = catalog.properties.get("s3.secret-access-key")
    shown = (
        f"{catalog.uri} {catalog!r} {catalog.storage(version.metadata.location)!r} "
        f"{catalog.load(EVENTS).metadata}"
    )
    assert secret is None or f"'{secret}'" not in shown
    for info in catalog.storage(version.metadata.location).list(version.metadata.location):
        if info.location.endswith(".json"):
            assert b"secret-access-key" not in catalog.storage(info.location).read(info.location)
