"""A table that its first commit creates: before that nobody sees it, whatever goes wrong."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakehouse as lh
from lakehouse.catalog.catalog_decorator import CatalogDecorator
from lakehouse.catalog.catalog_protocol import Request
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.catalog.sql.sql_catalog import SqlCatalog
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidLocationError,
    LakehouseError,
    NoSuchTableError,
    StorageError,
    TableAlreadyExistsError,
    ViewAlreadyExistsError,
)
from lakehouse.lake import Lakehouse
from lakehouse.storage.local import LocalStorage
from lakehouse.table import Table
from tests.faulty_storage import Fault, FaultyStorage

ROWS = pa.table({"id": [1, 2, 3]})
NAME = "raw.made"


class Killed(BaseException):
    """The process ends here."""


class Faults:
    """Faults of the next calls that create a metadata file."""

    def __init__(self):
        self.queue = []

    def __call__(self, method, location):
        asked = method == "create" and location.endswith(".metadata.json")
        return self.queue.pop(0) if asked and self.queue else None


def opened(kind, tmp_path, decide, seed=1):
    environment = Environment.seeded(seed)
    storage = FaultyStorage(LocalStorage(), decide)
    given = {"environment": environment, "storage_factory": lambda *_: storage}
    folder = str(tmp_path / "warehouse")
    if kind == "files":
        return Lakehouse(FilesystemCatalog(folder, **given), environment)
    return Lakehouse(SqlCatalog(f"sqlite:///{tmp_path}/c.db", folder, **given), environment)


@pytest.fixture(params=["files", "sql"])
def kind(request):
    return request.param


@pytest.fixture
def faults():
    return Faults()


@pytest.fixture
def lake(kind, tmp_path, faults):
    lake = opened(kind, tmp_path, faults)
    lake.create_namespace("raw")
    return lake


def parquet_files(tmp_path):
    return sorted(tmp_path.rglob("*.parquet"))


def test_the_first_commit_creates_the_table(lake):
    staged = lake.create_table(NAME, ROWS.schema, staged=True)
    assert not lake.table_exists(NAME)
    assert lake.list_tables() == []
    assert lake.list_namespaces() == ["raw"]
    staged.append(ROWS)
    assert staged.append(ROWS).snapshot.parent_snapshot_id is not None
    made = lake.load_table(NAME)
    assert made.scan().count() == staged.scan().count() == 6
    assert len(made.metadata.metadata_log) == 1
    assert made.metadata.table_uuid == staged.metadata.table_uuid
    assert StaticTable.from_metadata(made.metadata_location).scan().to_arrow().num_rows == 6


def test_who_comes_second_is_told_and_leaves_no_file(lake, tmp_path):
    first, second = (lake.create_table(NAME, ROWS.schema, staged=True) for _ in range(2))
    first.append(ROWS)
    files = parquet_files(tmp_path)
    with pytest.raises(TableAlreadyExistsError):
        second.append(ROWS)
    assert parquet_files(tmp_path) == files
    assert lake.load_table(NAME).scan().count() == 3
    with pytest.raises(TableAlreadyExistsError):
        lake.create_table(NAME, ROWS.schema, staged=True)


def test_two_first_commits_through_one_catalog_both_arrive(lake):
    """Two flows of a pipeline write to one new table."""
    staged = lake.create_table(NAME, ROWS.schema, staged=True)
    first = staged.version
    other = Table(staged.catalog, first, staged.environment)
    staged.append(ROWS)
    with pytest.raises(CommitConflictError):  # which a commit tries again, on the newest version
        staged.catalog.commit(first.identifier, first, (), ())
    other.append(ROWS)
    assert lake.load_table(NAME).scan().count() == 6


def test_a_name_or_place_that_it_cannot_have_is_refused_at_once(lake, tmp_path):
    lake.create_view("raw.seen", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
    with pytest.raises(ViewAlreadyExistsError):
        lake.create_table("raw.seen", ROWS.schema, staged=True)
    elsewhere = str(tmp_path / "elsewhere")
    for outside in ({"location": elsewhere}, {"properties": {"write.data.path": elsewhere}}):
        with pytest.raises(InvalidLocationError):
            lake.create_table(NAME, ROWS.schema, staged=True, **outside)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.FULL])
def test_what_failed_for_certain_leaves_no_file(lake, faults, tmp_path, fault):
    staged = lake.create_table(NAME, ROWS.schema, staged=True)
    faults.queue = [fault]
    with pytest.raises(StorageError):
        staged.append(ROWS)
    assert not lake.table_exists(NAME)
    assert parquet_files(tmp_path) == []
    assert list((tmp_path / "warehouse").rglob("*.avro")) == []
    staged.append(ROWS)
    assert lake.load_table(NAME).scan().count() == 3


def test_a_lost_reply_is_found_out(tmp_path, faults):
    lake = opened("files", tmp_path, faults)
    staged = lake.create_table(NAME, ROWS.schema, staged=True)
    faults.queue = [Fault.LOST_REPLY]
    staged.append(ROWS)
    assert staged.scan().count() == lake.load_table(NAME).scan().count() == 3


def test_what_nobody_can_tell_keeps_its_files(tmp_path, faults):
    lake = opened("files", tmp_path, faults)
    staged = lake.create_table(NAME, ROWS.schema, staged=True)
    faults.queue = [Fault.TIMEOUT] * 3
    with pytest.raises(CommitStateUnknownError):
        staged.append(ROWS)
    assert len(parquet_files(tmp_path)) == 1


def test_killed_at_any_step_it_is_there_whole_or_not_at_all(kind, tmp_path):
    outcomes = set()
    for step in itertools.count():
        home = tmp_path / str(step)
        calls = itertools.count()

        def decide(_method, _location, calls=calls, step=step):
            if next(calls) == step:
                raise Killed

        opened(kind, home, lambda *_: None).create_namespace("raw")
        finished = True
        try:
            opened(kind, home, decide, 2).create_table(NAME, ROWS.schema, staged=True).append(ROWS)
        except Killed:
            finished = False
        lake = opened(kind, home, lambda *_: None, 3)
        try:
            assert lake.load_table(NAME).scan().count() == 3, step
            outcomes.add("there")
        except NoSuchTableError:
            assert not finished
            outcomes.add("not there")
            assert (lake.list_tables(), lake.list_namespaces()) == ([], ["raw"]), step
            lake.create_table(NAME, ROWS.schema, staged=True).append(ROWS)
            assert lake.load_table(NAME).scan().count() == 3, step
        if finished:
            break
    assert outcomes == {"there", "not there"}


def test_folders_left_behind_are_no_namespace(tmp_path):
    lake = lh.load_catalog(f"file://{tmp_path}/warehouse")
    staged = lake.create_table(NAME, ROWS.schema, staged=True)
    (tmp_path / staged.location.removeprefix(f"file://{tmp_path}/") / "data").mkdir(parents=True)
    assert lake.list_namespaces() == ["raw"]
    lake.create_table(NAME, ROWS.schema, staged=True).append(ROWS)
    assert lake.load_table(NAME).scan().count() == 3


def test_a_namespace_dropped_meanwhile_is_said(lake, tmp_path):
    staged = lake.create_table(NAME, ROWS.schema, staged=True)
    lake.drop_namespace("raw")
    with pytest.raises(LakehouseError, match="raw"):
        staged.append(ROWS)
    assert parquet_files(tmp_path) == []


def test_a_catalog_shown_differently_notes_requests_and_stays_what_it_is(lake):
    class Heard(CatalogDecorator):
        def drop_namespace(self, namespace):
            heard.append(namespace)
            self.inside.drop_namespace(namespace)

    heard, request = [], Request("k1", "drop raw", 1)
    shown = Heard(lake.catalog)
    shown.during(request).drop_namespace(("raw",))
    assert heard == [("raw",)]
    assert "k1" in lake.catalog.requests.begun(["k1", "k2"])
    assert shown.inside is lake.catalog
