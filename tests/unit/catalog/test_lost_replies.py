"""A reply that is lost: the catalog finds out, or says that it does not know."""

from __future__ import annotations

import json

import pytest
from sqlalchemy.exc import OperationalError

from lakehouse.catalog import open_catalog
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.catalog.filesystem.version_files import HINT
from lakehouse.catalog.sql.sql_catalog import SqlCatalog
from lakehouse.catalog.sql.sql_database import Attempted, Database
from lakehouse.environment import Environment
from lakehouse.errors import CommitConflictError, CommitStateUnknownError, StorageError
from lakehouse.patience import Patience
from lakehouse.spec.metadata.table_updates import SetProperties
from lakehouse.storage.local import LocalStorage
from lakehouse.transaction import Transaction
from tests.faulty_storage import Fault, FaultyStorage
from tests.tables import EVENTS, create_table, data_file, live_files

CHANGE = (SetProperties({"a": "1"}),)


class Faults:
    """Faults for the next calls of methods."""

    def __init__(self):
        self.queues = {}

    def __call__(self, method, _location):
        queue = self.queues.get(method)
        return queue.pop(0) if queue else None

    def next(self, method, *faults):
        self.queues[method] = list(faults)


@pytest.fixture
def faults():
    return Faults()


@pytest.fixture
def files(tmp_path, faults):
    storage = FaultyStorage(LocalStorage(), faults)
    catalog = FilesystemCatalog(
        str(tmp_path), environment=Environment.seeded(1), storage_factory=lambda *_: storage
    )
    create_table(catalog)
    return catalog


def test_a_landed_commit_is_recognised(files, faults):
    base = files.load(EVENTS)
    faults.next("create", Fault.LOST_REPLY)
    assert files.commit(EVENTS, base, (), CHANGE).metadata.properties["a"] == "1"


def test_a_refused_look_after_a_lost_reply_is_unknown(files, faults):
    """Found by simulation (seed 103475): a failed read was taken for a failed commit."""
    base = files.load(EVENTS)
    faults.next("create", Fault.LOST_REPLY)
    faults.next("read", Fault.REFUSED)
    with pytest.raises(CommitStateUnknownError, match="Nothing was deleted"):
        files.commit(EVENTS, base, (), CHANGE)
    assert files.load(EVENTS).metadata.properties["a"] == "1"


def test_an_outage_is_unknown_and_deletes_nothing(files, faults):
    base = files.load(EVENTS)
    before = {info.location for info in files.storage("").list(base.metadata.location)}
    faults.next("create", *[Fault.TIMEOUT] * 3)
    with pytest.raises(CommitStateUnknownError, match="Nothing was deleted"):
        Transaction(files, EVENTS, decided_on=base, environment=Environment.seeded(3)).append(
            [data_file("one")]
        ).commit()
    after = {info.location for info in files.storage("").list(base.metadata.location)}
    assert before < after


def test_an_unknown_commit_that_landed_is_found_by_snapshot_id(files, faults):
    base = files.load(EVENTS)
    faults.next("create", Fault.LOST_REPLY, Fault.TIMEOUT, Fault.TIMEOUT)
    committed = (
        Transaction(files, EVENTS, decided_on=base, environment=Environment.seeded(3))
        .append([data_file("one")])
        .commit()
    )
    assert live_files(files, committed.version) == ["one"]


def test_a_full_disk_is_a_certain_failure_and_cleans_up(files, faults):
    base = files.load(EVENTS)
    before = {info.location for info in files.storage("").list(base.metadata.location)}
    faults.next("create", Fault.FULL)
    with pytest.raises(StorageError):
        Transaction(files, EVENTS, decided_on=base, environment=Environment.seeded(3)).append(
            [data_file("one")]
        ).commit()
    assert {info.location for info in files.storage("").list(base.metadata.location)} == before


@pytest.mark.parametrize("hint", [b"1", b"999", b"", b"garbage", b"-1", None])
def test_the_hint_is_only_a_hint(files, hint):
    version = files.load(EVENTS)
    for number in range(4):
        version = files.commit(EVENTS, version, (), (SetProperties({"n": str(number)}),))
    storage, location = files.storage(""), f"{version.metadata.location}/metadata/{HINT}"
    storage.delete([location]) if hint is None else storage.write(location, hint)
    assert files.load(EVENTS).metadata_location == version.metadata_location
    assert files.table_exists(EVENTS)


def test_a_base_that_was_cleaned_up_cannot_be_committed_on(files):
    """A writer slept while later versions came and went.

    Its number is free again, and its commit must not count.
    """
    version = stale = files.load(EVENTS)
    settings = {
        "write.metadata.previous-versions-max": "1",
        "write.metadata.delete-after-commit.enabled": "true",
    }
    version = files.commit(EVENTS, version, (), (SetProperties(settings),))
    for number in range(5):
        version = files.commit(EVENTS, version, (), (SetProperties({"n": str(number)}),))
    with pytest.raises(CommitStateUnknownError, match="cleaned up"):
        files.commit(EVENTS, stale, (), CHANGE)
    assert files.load(EVENTS).metadata == version.metadata


def test_two_late_writers_do_not_vouch_for_each_other(files):
    """A leftover file where the second's base was: the second's commit must not count."""
    bases = [files.load(EVENTS)]
    settings = {
        "write.metadata.previous-versions-max": "1",
        "write.metadata.delete-after-commit.enabled": "true",
    }
    version = files.commit(EVENTS, bases[0], (), (SetProperties(settings),))
    bases.append(version)
    for number in range(5):
        version = files.commit(EVENTS, version, (), (SetProperties({"n": str(number)}),))
    for base in bases:
        with pytest.raises(CommitStateUnknownError, match="cleaned up"):
            files.commit(EVENTS, base, (), CHANGE)
    assert files.load(EVENTS).metadata == version.metadata


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("indent", [False, True])
def test_a_base_is_recognised_however_it_was_written(files, codec, indent):
    """Also compressed, and as other engines write it: indented, with the keys in another order."""
    version = files.commit(
        EVENTS,
        files.load(EVENTS),
        (),
        (SetProperties({"write.metadata.compression-codec": codec}),),
    )
    if indent:
        document = json.loads(files.storage("").read(version.metadata_location))
        turned = json.dumps(
            {"properties": {"padding": "x" * 5000}, **dict(reversed(document.items()))}, indent=2
        )
        files.storage("").write(version.metadata_location, turned.encode())
        version = files.load(EVENTS)
    for number in range(3):
        version = files.commit(EVENTS, version, (), (SetProperties({"n": str(number)}),))
    assert files.load(EVENTS).metadata.properties["n"] == "2"


def test_a_version_that_could_not_be_deleted_leaves_no_gap(files, faults):
    """Found by simulation (seed 50304): a leftover below a gap stopped readers with old hints."""
    settings = {
        "write.metadata.previous-versions-max": "1",
        "write.metadata.delete-after-commit.enabled": "true",
    }
    version = files.commit(EVENTS, files.load(EVENTS), (), (SetProperties(settings),))
    for number in range(6):
        faults.next("delete", *([Fault.REFUSED] if number in {1, 2} else []))
        version = files.commit(EVENTS, version, (), (SetProperties({"n": str(number)}),))
    storage, folder = files.storage(""), f"{version.metadata.location}/metadata"
    kept = sorted(
        int(info.location.rpartition("/v")[2].partition(".")[0])
        for info in storage.list(folder)
        if ".metadata.json" in info.location
    )
    assert kept == [7, 8]
    for hint in range(1, 9):
        storage.write(f"{folder}/{HINT}", str(hint).encode())
        assert files.load(EVENTS).metadata_location == version.metadata_location


class LossyDatabase(Database):
    """COMMIT lands, or not, and the reply is lost."""

    lands: bool | None = None

    def attempt(self, change):
        if self.lands is None:
            return super().attempt(change)
        if self.lands:
            super().attempt(change)
        return Attempted.LOST_REPLY


@pytest.fixture
def sql(tmp_path):
    database = LossyDatabase(f"sqlite:///{tmp_path}/catalog.db")
    catalog = SqlCatalog("", str(tmp_path / "warehouse"), database=database)
    create_table(catalog)
    yield catalog, database
    database.close()


def test_sql_lost_reply_that_landed(sql):
    catalog, database = sql
    base = catalog.load(EVENTS)
    database.lands = True
    assert (
        catalog.commit(EVENTS, base, (), CHANGE).metadata_location
        == catalog.load(EVENTS).metadata_location
    )


def test_sql_lost_reply_that_did_not_land(sql):
    catalog, database = sql
    base = catalog.load(EVENTS)
    database.lands = False
    with pytest.raises(CommitConflictError):
        catalog.commit(EVENTS, base, (), CHANGE)
    database.lands = None
    assert catalog.commit(EVENTS, base, (), CHANGE).metadata.properties["a"] == "1"


def test_sql_database_gone_after_the_lost_reply(sql, monkeypatch):
    catalog, database = sql
    base = catalog.load(EVENTS)
    database.lands = False

    def gone():
        raise StorageError("gone")

    monkeypatch.setattr(database, "write", gone)
    with pytest.raises(CommitStateUnknownError, match="Nothing was deleted"):
        catalog.commit(EVENTS, base, (), CHANGE)


def test_passwords_are_not_shown():
    database = Database("postgresql://me:canary-secret@localhost:1/db", Patience(0))
    assert "canary-secret" not in database.display_uri
    with pytest.raises(StorageError) as caught, database.read():
        pass
    assert "canary-secret" not in f"{caught.value!r} {caught.value} {caught.value.context}"
    cause = caught.value.__cause__
    assert isinstance(cause, OperationalError)
    assert "canary-secret" not in str(cause)


def test_pyiceberg_opens_the_same_database(tmp_path):
    from pyiceberg.catalog.sql import SqlCatalog as PyIcebergSqlCatalog

    catalog = open_catalog(
        f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse")
    )
    create_table(catalog)
    version = Transaction(catalog, EVENTS).append([data_file("one")]).commit().version
    other = PyIcebergSqlCatalog(
        "lakehouse", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse")
    )
    table = other.load_table(("raw", "events"))
    assert table.metadata_location == version.metadata_location
    assert [task.file.file_path for task in table.scan().plan_files()] == ["/data/one.parquet"]
    with table.transaction() as transaction:
        transaction.set_properties(theirs="yes")
    assert catalog.load(EVENTS).metadata.properties["theirs"] == "yes"
    other.engine.dispose()
    catalog.close()
