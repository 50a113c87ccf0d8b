"""A filesystem catalog between two of its calls: what others do is neither missed nor mistaken."""

from __future__ import annotations

import pytest

from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.errors import (
    CommitError,
    LakehouseError,
    MaintenanceRefusedError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from lakehouse.spec.metadata.table_updates import SetProperties
from lakehouse.storage.local import LocalStorage
from lakehouse.transaction import Transaction
from tests.tables import EVENTS, create_table, data_file, table_metadata

SHORT_LOG = {
    "write.metadata.previous-versions-max": "1",
    "write.metadata.delete-after-commit.enabled": "true",
}


class Interrupted(LocalStorage):
    """Calls `before` ahead of each call of one method."""

    def __init__(self, method, before):
        super().__init__()
        self.method, self.before = method, before

    def read_range(self, location, offset, length):
        if self.method == "read_range":
            self.before(location)
        return super().read_range(location, offset, length)

    def delete(self, locations):
        listed = list(locations)
        if self.method == "delete":
            for one in listed:
                self.before(one)
                super().delete([one])
        return super().delete(listed)


class Counted(LocalStorage):
    """Calls `at` with the number of each call, before it."""

    def __init__(self, at):
        super().__init__()
        self.calls = 0

        def counted(method):
            def call(*given, **named):
                self.calls += 1
                at(self.calls)
                return method(*given, **named)

            return call

        for name in ("exists", "list", "list_folders", "read", "read_range", "create", "write"):
            setattr(self, name, counted(getattr(self, name)))


def opened(folder, storage=None):
    return FilesystemCatalog(str(folder), storage_factory=lambda *_: storage or LocalStorage())


def commit(catalog, number):
    catalog.commit(EVENTS, catalog.load(EVENTS), (), (SetProperties({"n": str(number)}),))


@pytest.mark.parametrize(
    "ask", [lambda c: c.table_exists(EVENTS), lambda c: c.list_tables(("raw",)) == [EVENTS]]
)
def test_a_version_deleted_while_it_is_looked_at_is_followed(tmp_path, ask):
    rival = opened(tmp_path)
    create_table(rival, properties=SHORT_LOG)
    left = [3]

    def overtaken(location):
        if ".metadata.json" in location and left:
            for number in range(left.pop()):
                commit(rival, number)

    assert ask(opened(tmp_path, Interrupted("read_range", overtaken)))
    assert left == []


@pytest.mark.parametrize("versions", [3, 5])
def test_no_writer_is_acknowledged_while_its_table_is_purged(tmp_path, versions):
    """At each step of the purge all writers that know the table try to commit.

    For each of them the table is certainly dropped.
    """
    rival = opened(tmp_path)
    create_table(rival)
    bases = [rival.load(EVENTS)]
    for number in range(versions - 1):
        commit(rival, number)
        bases.append(rival.load(EVENTS))
    acknowledged = []

    def overtaken(_location):
        for base in bases:
            try:
                rival.commit(EVENTS, base, (), (SetProperties({"late": "writer"}),))
            except (CommitError, NoSuchTableError):
                continue
            acknowledged.append(base.metadata_location)

    opened(tmp_path, Interrupted("delete", overtaken)).drop(EVENTS, purge=True)
    overtaken("")
    assert acknowledged == []
    assert not rival.table_exists(EVENTS)
    create_table(rival)
    assert "late" not in rival.load(EVENTS).metadata.properties


def test_files_that_others_may_use_are_not_purged(tmp_path):
    catalog = opened(tmp_path)
    create_table(catalog, properties={"gc.enabled": "false"})
    Transaction(catalog, EVENTS).append([data_file("one")]).commit()
    with pytest.raises(MaintenanceRefusedError, match=r"gc\.enabled"):
        catalog.drop(EVENTS, purge=True)
    assert catalog.table_exists(EVENTS)
    catalog.drop(EVENTS)
    with pytest.raises(LakehouseError):
        catalog.load(EVENTS)


def test_a_name_taken_between_any_two_calls_is_said_to_be_taken(tmp_path):
    """Whatever another creates while a table is created: one of them has it, the other is told."""
    made = []
    for before in range(1, 100):
        folder = tmp_path / str(before)
        rival = opened(folder)
        rival.create_namespace(EVENTS.namespace)
        metadata = table_metadata(rival.default_location(EVENTS))
        rivals = []

        def overtaken(call, rival=rival, before=before, rivals=rivals):
            if call == before:
                rivals.append(has_created(rival, table_metadata(rival.default_location(EVENTS))))

        made.append(has_created(opened(folder, Counted(overtaken)), metadata))
        if not rivals:
            break
        assert [made[-1], *rivals].count(True) == 1
    assert made.count(False) >= 3
    assert made.count(True) >= 2


def has_created(catalog, metadata):
    """Whether the table is this caller's, not another's who took the name."""
    try:
        catalog.create(EVENTS, metadata)
    except TableAlreadyExistsError:
        return False
    return True
