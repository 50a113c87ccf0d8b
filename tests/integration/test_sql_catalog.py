"""What only a database does to a catalog: rivals between statements, lost replies, limits."""

from __future__ import annotations

import threading
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from time import sleep

import pytest
from sqlalchemy import create_engine, event, make_url, text

from lakehouse.catalog import open_catalog
from lakehouse.catalog.sql.sql_catalog import SqlCatalog
from lakehouse.catalog.sql.sql_database import Attempted, Database
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidIdentifierError,
    InvalidInputError,
    InvalidLocationError,
    InvalidPropertyError,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    StorageError,
    TableAlreadyExistsError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_updates import SetProperties
from lakehouse.transaction import Transaction
from tests.tables import EVENTS, allow_files, create_table, data_file, live_files, table_metadata

SHORT_LOG = {
    "write.metadata.previous-versions-max": "1",
    "write.metadata.delete-after-commit.enabled": "true",
}


def new_database(uri):
    """An empty PostgreSQL database."""
    name = f"d{uuid.uuid4().hex}"
    engine = create_engine(uri, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(uri).set(database=name).render_as_string(hide_password=False)


@pytest.fixture
def opened(tmp_path, request):
    """Opens catalogs on one database, closed at the end."""
    catalogs, name = [], f"c{tmp_path.name}"

    def open_one(kind="sqlite", *, options="", uri=None):
        if uri is None:
            uri = (
                request.getfixturevalue("postgres_uri")
                if kind == "postgres"
                else f"sqlite:///{tmp_path}/catalog.db"
            )
            uri += f"{'&' if '?' in uri else '?'}{options}" if options else ""
        catalogs.append(open_catalog(uri, warehouse=str(tmp_path / "warehouse"), name=name))
        allow_files(catalogs[-1])
        return catalogs[-1]

    yield open_one
    for catalog in catalogs:
        catalog.close()


def files_below(catalog, location):
    return {info.location for info in catalog.storage(location).list(location)}


class Lossy(Database):
    """The next transaction commits, or not, and its reply is lost; then `meanwhile` happens."""

    lands: bool | None = None

    def attempt(self, change):
        lands, self.lands = self.lands, None
        if lands is None:
            return super().attempt(change)
        if lands:
            super().attempt(change)
        self.meanwhile()
        return Attempted.LOST_REPLY

    def meanwhile(self):
        """Replaced by tests."""


@pytest.fixture
def lossy(tmp_path):
    database = Lossy(f"sqlite:///{tmp_path}/catalog.db")
    yield (
        SqlCatalog("", str(tmp_path / "warehouse"), name=f"c{tmp_path.name}", database=database),
        database,
    )
    database.close()


def test_a_landed_commit_that_fell_out_of_the_log_is_found_by_snapshot_id(lossy, opened):
    """The current version's log is too short: that our commit is missing proves nothing."""
    catalog, database = lossy
    create_table(catalog, properties=SHORT_LOG)
    rival = opened()
    rival._database.turn = lambda _key: nullcontext()

    def commits():
        for number in range(3):
            Transaction(rival, EVENTS).append([data_file(f"rival-{number}")]).commit()

    database.lands, database.meanwhile = True, commits
    committed = Transaction(catalog, EVENTS).append([data_file("one")]).commit()
    assert committed.retries == 0
    assert live_files(rival, rival.load(EVENTS)) == ["one", "rival-0", "rival-1", "rival-2"]


def test_a_lost_reply_to_a_change_without_snapshot_stays_unknown_when_the_log_is_too_short(
    lossy, opened
):
    catalog, database = lossy
    base = create_table(catalog, properties=SHORT_LOG)
    rival = opened()
    database.lands = True
    database.meanwhile = lambda: [
        rival.commit(EVENTS, rival.load(EVENTS), (), (SetProperties({"n": str(n)}),))
        for n in range(3)
    ]
    with pytest.raises(CommitStateUnknownError, match="Nothing was deleted"):
        catalog.commit(EVENTS, base, (), (SetProperties({"a": "1"}),))
    assert rival.load(EVENTS).metadata.properties["a"] == "1"


@pytest.mark.parametrize("lands", [True, False])
def test_creating_with_a_lost_reply(lossy, opened, lands):
    catalog, database = lossy
    catalog.create_namespace(EVENTS.namespace)
    database.lands = lands
    metadata = table_metadata(catalog.default_location(EVENTS))
    if lands:
        assert (
            catalog.create(EVENTS, metadata).metadata_location
            == opened().load(EVENTS).metadata_location
        )
        return
    with pytest.raises(CommitStateUnknownError):
        catalog.create(EVENTS, metadata)
    assert len(files_below(catalog, metadata.location)) == 1
    with pytest.raises(InvalidLocationError, match="is not empty"):
        catalog.create(EVENTS, metadata)  # the first try may yet land
    create_table(catalog)


def after_pointers(catalog, monkeypatch, then):
    """Have `then` told each query for a pointer that was answered, by either connection."""
    database = catalog._database
    rows = database._changes.rows

    def told(statement, values):
        found = rows(statement, values)
        if "SELECT metadata_location" in statement:
            then(statement)
        return found

    monkeypatch.setattr(database._changes, "rows", told)
    event.listen(
        database._engine,
        "after_cursor_execute",
        lambda _c, _cursor, statement, *_: (
            "SELECT metadata_location" in statement and then(statement)
        ),
    )


def test_readers_follow_a_pointer_that_moves_while_they_read(opened, monkeypatch):
    """Commits went on, and deleted the old file, between reading the pointer and the file."""
    catalog, rival = opened(), opened()
    create_table(catalog, properties=SHORT_LOG)
    stale = catalog.load(EVENTS)
    rival.commit(EVENTS, rival.load(EVENTS), (), (SetProperties({"x": "y"}),))
    left = [2]

    def overtaken(statement):
        if left:
            for _ in range(left.pop()):
                rival.commit(
                    EVENTS, rival.load(EVENTS), (), (SetProperties({"n": uuid.uuid4().hex}),)
                )

    after_pointers(catalog, monkeypatch, overtaken)
    assert catalog.load(EVENTS).metadata_location == rival.load(EVENTS).metadata_location
    rival.commit(EVENTS, rival.load(EVENTS), (), (SetProperties({"x": "z"}),))
    left.append(2)
    assert catalog.refresh(stale).metadata_location == rival.load(EVENTS).metadata_location
    assert left == []


@pytest.mark.parametrize("what", ["dropped", "renamed"])
def test_renaming_what_goes_away_meanwhile(opened, what):
    catalog, rival = opened("postgres"), opened("postgres")
    create_table(catalog)
    elsewhere = Identifier.parse("raw.elsewhere")
    done = []

    def overtaken(_connection, _cursor, statement, *_rest):
        if statement.startswith("UPDATE iceberg_tables SET table_namespace") and not done:
            done.append(True)
            rival.drop(EVENTS) if what == "dropped" else rival.rename(EVENTS, elsewhere)

    event.listen(catalog._database._engine, "before_cursor_execute", overtaken)
    with pytest.raises(NoSuchTableError):
        catalog.rename(EVENTS, Identifier.parse("raw.renamed"))
    assert done
    assert catalog.list_tables(("raw",)) == ([] if what == "dropped" else [elsewhere])


@pytest.mark.parametrize("level", ["read%20committed", "repeatable%20read", "serializable"])
def test_racing_appends_under_every_default_isolation_of_the_server(opened, level):
    """A stricter server refuses a lost race instead of answering it; appends still succeed."""
    options = f"options=-c%20default_transaction_isolation%3D{level.replace('%20', '%5C%20')}"
    catalogs = [opened("postgres", options=options) for _ in range(4)]
    create_table(catalogs[0])
    barrier = threading.Barrier(4)

    def append(number):
        catalog = catalogs[number]
        catalog._database.turn = lambda _key: nullcontext()
        barrier.wait()
        for step in range(4):
            Transaction(catalog, EVENTS).append([data_file(f"{number}-{step}")]).commit()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(4)))
    assert len(live_files(catalogs[0], catalogs[0].load(EVENTS))) == 16


def test_a_serialization_failure_is_a_lost_race(opened):
    catalog, rival = opened("postgres"), opened("postgres")
    create_table(catalog)
    catalog._database._engine = catalog._database._engine.execution_options(
        isolation_level="SERIALIZABLE"
    )
    done = []

    def overtaken(_connection, _cursor, statement, *_rest):
        if statement.startswith("UPDATE iceberg_tables SET metadata_location") and not done:
            done.append(True)
            Transaction(rival, EVENTS).append([data_file("rival")]).commit()

    event.listen(catalog._database._engine, "before_cursor_execute", overtaken)
    base = catalog.load(EVENTS)
    before = files_below(catalog, base.metadata.location)
    with catalog._database._engine.connect() as held:
        assert held.get_isolation_level() == "SERIALIZABLE"
    with pytest.raises(CommitConflictError):
        catalog.commit(EVENTS, base, (), (SetProperties({"a": "1"}),))
    assert done
    left = files_below(catalog, base.metadata.location) - before
    assert catalog.load(EVENTS).metadata_location in left
    assert sum(one.endswith(".metadata.json") for one in left) == 1


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_of_overlapping_tables_created_at_once_one_is_made(opened, kind):
    catalogs = [opened(kind) for _ in range(6)]
    catalogs[0].create_namespace(("raw",))
    barrier, folder = threading.Barrier(6), f"{catalogs[0].warehouse}/raw/shared"

    def create(number):
        barrier.wait()
        name = Identifier.parse(f"raw.t{number}")
        try:
            catalogs[number].create(name, table_metadata(folder + "/below" * (number % 3)))
        except InvalidLocationError:
            return None
        return name

    with ThreadPoolExecutor(6) as pool:
        made = [one for one in pool.map(create, range(6)) if one is not None]
    assert catalogs[0].list_tables(("raw",)) == made
    assert len(made) == 1
    assert len(files_below(catalogs[0], folder)) == 1


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_one_name_created_at_once(opened, kind, request):
    """Also its namespace, on a database that is empty."""
    barrier = threading.Barrier(8)
    uri = new_database(request.getfixturevalue("postgres_uri")) if kind == "postgres" else None

    def create(_number):
        barrier.wait()
        catalog = opened(uri=uri)
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(("raw",))
        try:
            return catalog.create(EVENTS, table_metadata(catalog.default_location(EVENTS)))
        except TableAlreadyExistsError:
            return None

    with ThreadPoolExecutor(8) as pool:
        made = [one for one in pool.map(create, range(8)) if one is not None]
    assert len(made) == 1
    catalog = opened(uri=uri)
    assert catalog.load(EVENTS).metadata_location == made[0].metadata_location
    assert files_below(catalog, f"{catalog.warehouse}/raw") == {made[0].metadata_location}


def test_one_property_set_by_many_at_once(opened):
    catalogs = [opened("postgres") for _ in range(6)]
    catalogs[0].create_namespace(("raw",))
    barrier = threading.Barrier(6)

    def update(number):
        barrier.wait()
        for step in range(5):
            catalogs[number].update_namespace_properties(
                ("raw",), {"owner": f"{number}-{step}", f"own-{number}": "yes"}
            )

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(update, range(6)))
    properties = catalogs[0].namespace_properties(("raw",))
    assert set(properties) == {"owner", *(f"own-{number}" for number in range(6))}


def test_sixteen_writers_on_one_sqlite_file(opened):
    """Each with connections of its own, without turns: BUSY is waited out."""
    create_table(opened())
    catalogs = [opened() for _ in range(16)]
    barrier = threading.Barrier(16)

    def append(number):
        catalogs[number]._database.turn = lambda _key: nullcontext()
        barrier.wait()
        for step in range(2):
            Transaction(catalogs[number], EVENTS).append([data_file(f"{number}-{step}")]).commit()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(append, range(16)))
    assert len(live_files(catalogs[0], catalogs[0].load(EVENTS))) == 32


def test_threads_that_write_to_one_sqlite_file_queue_outside_it(opened):
    """SQLite makes a writer sleep up to 100 ms before it looks again, and each had a connection."""
    database, together = opened()._database, 70
    barrier = threading.Barrier(together + 1)

    def update(number):
        barrier.wait()
        with database.write() as connection:
            database.run(
                connection,
                "INSERT INTO iceberg_namespace_properties VALUES ('c', 'raw', :key, '1')",
                key=str(number),
            )

    def connections():
        return database._engine.pool.checkedout()

    with ThreadPoolExecutor(together) as pool:
        with database.write() as connection:
            connection.execute(text("SELECT 1"))
            futures = [pool.submit(update, number) for number in range(together)]
            barrier.wait()
            most = max(connections() for _ in range(200) if not sleep(0.002))
        for future in futures:
            future.result()
    assert most == 1
    with database.read() as connection:
        counted = database.rows(connection, "SELECT count(*) FROM iceberg_namespace_properties")
    assert counted[0][0] == together


def test_nobody_asks_twice_where_a_table_is_while_nothing_is_committed(opened, monkeypatch):
    catalog, other = opened(), opened()
    version = create_table(catalog)
    asked = []
    after_pointers(catalog, monkeypatch, asked.append)
    for _ in range(2):
        assert catalog.refresh(version) is version
        assert len(asked) == 1
    for step in range(3):
        Transaction(other, EVENTS).append([data_file(f"f{step}")]).commit()
        newest = catalog.refresh(version)
        assert newest.metadata_location == other.load(EVENTS).metadata_location
        assert len(asked) == 2 + step
    other.drop(EVENTS)
    with pytest.raises(NoSuchTableError):
        catalog.refresh(version)
    assert not catalog.table_exists(EVENTS)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_does_not_fit_is_refused_before_anything_is_written(opened, kind):
    catalog = opened(kind)
    deep = tuple("n" * 200 for _ in range(2))
    with pytest.raises(InvalidIdentifierError, match="255"):
        catalog.create_namespace(deep)
    with pytest.raises(InvalidPropertyError, match="1000"):
        catalog.create_namespace(("raw",), {"comment": "x" * 1001})
    catalog.create_namespace(("raw",))
    with pytest.raises(InvalidPropertyError):
        catalog.update_namespace_properties(("raw",), {"k" * 256: ""})
    longest = Identifier(("raw",), "ü" * 127)
    create_table(catalog, longest)
    assert catalog.list_tables(("raw",)) == [longest]
    far = f"{catalog.warehouse}/" + "/".join("d" * 200 for _ in range(5))
    with pytest.raises(InvalidLocationError, match="1000"):
        catalog.create(EVENTS, table_metadata(far))
    assert files_below(catalog, far) == set()
    assert not catalog.table_exists(EVENTS)


def test_names_that_differ_in_case_or_normalization_get_folders_of_their_own(opened):
    """On case-folding file systems two tables would share a folder, and each other's files."""
    catalog = opened()
    names = [
        Identifier.parse(one)
        for one in ("raw.events", "raw.Events", "raw.caf\u00e9", "raw.cafe\u0301")
    ]
    locations = [create_table(catalog, name).metadata.location for name in names]
    assert len({location.casefold() for location in locations}) == 4
    assert [catalog.load(name).metadata.location for name in names] == locations
    assert catalog.list_tables(("raw",)) == sorted(names)


def test_a_table_whose_metadata_is_elsewhere_still_owns_its_location(opened):
    catalog = opened()
    catalog.create_namespace(("raw",))
    home, meta = f"{catalog.warehouse}/home", f"{catalog.warehouse}/meta"
    catalog.create(EVENTS, table_metadata(home, {"write.metadata.path": meta}))
    for taken in (home, f"{home}/below", meta, f"{meta}/below"):
        with pytest.raises(InvalidLocationError, match=r"raw\.events"):
            catalog.create(Identifier.parse("raw.other"), table_metadata(taken))
    catalog.create(Identifier.parse("raw.other"), table_metadata(f"{home}2"))


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql+psycopg://me:can:ary@host/x@localhost:1/db",
        "postgresql://me:pass/can:ary@localhost/db",
        "postgresql+nothing://me:canary@localhost/db",
        "sqlite+nothing:///canary.db",
    ],
)
def test_urls_that_cannot_be_used_are_not_quoted(uri, tmp_path):
    with pytest.raises((InvalidInputError, StorageError)) as caught:
        open_catalog(uri, warehouse=str(tmp_path), **{"catalog.retry-timeout-ms": "0"})
    shown = "".join(traceback.format_exception(caught.value))
    assert "ary" not in "\n".join(
        line for line in shown.splitlines() if 'File "' not in line and not line.startswith("    ")
    )
