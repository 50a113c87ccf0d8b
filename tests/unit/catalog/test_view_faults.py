"""Changes of views whose reply is lost: found out, or said to be unknown; nothing is lost."""

from __future__ import annotations

import pytest

from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.catalog.sql.sql_catalog import SqlCatalog
from lakehouse.environment import Environment
from lakehouse.errors import CommitConflictError, CommitStateUnknownError, StorageError
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_updates import SetProperties
from lakehouse.spec.views.view_metadata import SqlRepresentation, ViewVersion
from lakehouse.spec.views.view_updates import new_view_metadata
from lakehouse.storage.local import LocalStorage
from tests.faulty_storage import Fault, FaultyStorage
from tests.tables import NOW_MS, SCHEMA
from tests.unit.catalog.test_lost_replies import Faults, LossyDatabase

SEEN = Identifier.parse("raw.seen")
CHANGE = [SetProperties({"a": "1"})]


def make(catalog):
    if not catalog.namespace_exists(("raw",)):
        catalog.create_namespace(("raw",))
    metadata = new_view_metadata(
        view_uuid="fa6506c3-7681-40c8-86dc-e36561f83385",
        location=catalog.default_location(SEEN),
        schema=SCHEMA,
        version=ViewVersion(1, 0, NOW_MS, (SqlRepresentation("SELECT 1", "spark"),), ("raw",)),
        properties={},
        now_ms=NOW_MS,
    )
    return catalog.views.create(SEEN, metadata)


@pytest.fixture
def sql(tmp_path):
    database = LossyDatabase(f"sqlite:///{tmp_path}/catalog.db")
    yield SqlCatalog("", str(tmp_path / "warehouse"), database=database), database
    database.close()


def metadata_files(catalog):
    return sorted(
        one.location for one in catalog.storage(catalog.warehouse).list(catalog.warehouse)
    )


def test_sql_a_change_that_landed_is_recognised_even_when_others_changed_it_again(sql, monkeypatch):
    catalog, database = sql
    base = make(catalog)
    database.lands = True
    done = catalog.views.commit(base, (), CHANGE)
    assert catalog.views.load(SEEN) == done
    attempt = database.attempt

    def overtaken(change):
        outcome = attempt(change)
        database.attempt, database.lands = attempt, None
        catalog.views.commit(catalog.views.load(SEEN), (), [SetProperties({"b": "2"})])
        return outcome

    monkeypatch.setattr(database, "attempt", overtaken)
    ours = catalog.views.commit(done, (), [SetProperties({"a": "3"})])
    assert ours.metadata.properties == {"a": "3"}
    assert catalog.views.load(SEEN).metadata.properties == {"a": "3", "b": "2"}


def test_sql_a_change_that_did_not_land_is_refused_and_leaves_no_file(sql):
    catalog, database = sql
    base = make(catalog)
    before = metadata_files(catalog)
    database.lands = False
    with pytest.raises(CommitConflictError, match=r"raw\.seen"):
        catalog.views.commit(base, (), CHANGE)
    assert metadata_files(catalog) == before
    database.lands = None
    assert catalog.views.commit(base, (), CHANGE).metadata.properties == {"a": "1"}


def test_sql_what_nobody_can_tell_is_unknown_and_keeps_the_file(sql, monkeypatch):
    catalog, database = sql
    base = make(catalog)
    before = metadata_files(catalog)
    database.lands = False

    def gone():
        raise StorageError("gone")

    monkeypatch.setattr(database, "write", gone)
    with pytest.raises(CommitStateUnknownError, match="look at its versions"):
        catalog.views.commit(base, (), CHANGE)
    assert len(metadata_files(catalog)) == len(before) + 1


def test_sql_a_new_view_whose_reply_is_lost_is_unknown(sql):
    catalog, database = sql
    database.lands = False
    with pytest.raises(CommitStateUnknownError, match=r"raw\.seen"):
        make(catalog)
    database.lands = None
    assert not catalog.views.exists(SEEN)
    assert make(catalog) == catalog.views.load(SEEN)


@pytest.fixture
def faults():
    return Faults()


@pytest.fixture
def files(tmp_path, faults):
    storage = FaultyStorage(LocalStorage(), faults)
    return FilesystemCatalog(
        str(tmp_path), environment=Environment.seeded(1), storage_factory=lambda *_: storage
    )


def test_files_a_change_that_landed_is_recognised(files, faults):
    base = make(files)
    faults.next("create", Fault.LOST_REPLY)
    done = files.views.commit(base, (), CHANGE)
    assert files.views.load(SEEN) == done


def test_files_an_outage_is_unknown(files, faults):
    base = make(files)
    faults.next("create", *[Fault.TIMEOUT] * 3)
    with pytest.raises(CommitStateUnknownError, match="Nothing was deleted"):
        files.views.commit(base, (), CHANGE)
    faults.next("create", Fault.FULL)
    with pytest.raises(StorageError):
        files.views.drop(SEEN)
    assert files.views.load(SEEN) == base
