"""Three outcomes, nothing between: what a transaction says when its base moves."""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from dataclasses import replace

import pytest

from lakehouse.catalog import open_catalog
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptMetadataError,
    NoSuchFileError,
    NoSuchTableError,
    StorageError,
    ValidationConflictError,
)
from lakehouse.manifests.commit_files import CommitFiles
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_updates import AddSnapshot
from lakehouse.transaction import Transaction
from lakehouse.transaction.commit import commit
from lakehouse.transaction.table_change import Attempt, Operation, Step, TableChange
from tests.tables import EVENTS, create_table, data_file, live_files

OTHER = Identifier.parse("raw.other")


@pytest.fixture(params=["memory", "sqlite"])
def catalog(request, tmp_path):
    if request.param == "memory":
        opened = open_catalog(
            f"memory://{uuid.uuid4().hex}/warehouse", environment=Environment.seeded(1)
        )
    else:
        opened = open_catalog(
            f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse")
        )
    create_table(opened)
    yield opened
    if request.param == "sqlite":
        opened.close()


@pytest.mark.parametrize("lost_before", [False, True])
def test_another_table_under_the_same_name_gets_nothing(catalog, lost_before):
    """Files for one table's columns must not land in the table that has its name now."""
    if lost_before:
        Transaction(catalog, EVENTS).append([data_file("old")]).commit()
    stale = Transaction(catalog, EVENTS).append([data_file("one")])
    catalog.drop(EVENTS)
    create_table(catalog)
    with pytest.raises(ValidationConflictError, match="another table has its name"):
        stale.commit()
    assert live_files(catalog, catalog.load(EVENTS)) == []


@pytest.mark.parametrize(
    "trouble", [NoSuchTableError, NoSuchFileError, CorruptMetadataError, MemoryError]
)
def test_trouble_while_looking_up_leaves_the_outcome_unknown(catalog, monkeypatch, trouble):
    """A failed look does not make the commit a certain failure.

    Callers delete data files after a certain one.
    """
    monkeypatch.setattr(
        type(catalog), "commit", _loses_its_reply(type(catalog).commit, trouble, monkeypatch)
    )
    quick = Environment.seeded(2)
    with pytest.raises(CommitStateUnknownError) as caught:
        Transaction(catalog, EVENTS, environment=quick).append([data_file("one")]).commit()
    assert caught.value.context["snapshot_ids"]
    monkeypatch.undo()
    assert live_files(catalog, catalog.load(EVENTS)) == ["one"]


def test_what_the_newest_version_cannot_take_is_not_tried_again(catalog):
    """Nobody came first, so waiting helps nobody: an append would try a million times."""
    done = Transaction(catalog, EVENTS).append([data_file("one")]).commit()

    class AddedAgain(Operation):
        holds_on_every_base = True

        def step(self, attempt: Attempt) -> Step:
            return Step(updates=(AddSnapshot(done.snapshot),))

    slept: list[float] = []
    environment = replace(Environment.seeded(3), sleep=slept.append)
    change = TableChange(decided_on=catalog.load(EVENTS), branch="main", operations=[AddedAgain()])
    with pytest.raises(CommitConflictError, match="has a snapshot"):
        commit(change, catalog, environment)
    assert slept == []


@pytest.mark.parametrize(("refused", "lands"), [(1, 0), (2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("appended_between", [False, True])
def test_an_attempt_that_was_refused_and_landed_later_is_the_commit(
    catalog, monkeypatch, refused, lands, appended_between
):
    """Which of the attempts landed is told by its manifest list; the others' files go."""
    if appended_between:
        Transaction(catalog, EVENTS).append([data_file("first")]).commit()
    real, sent = catalog.commit, []

    def late(*request):
        sent.append(request)
        if len(sent) == refused + 1:
            real(*sent[lands])
        if len(sent) <= refused:
            raise CommitConflictError("injected: refused")
        return real(*request)

    monkeypatch.setattr(catalog, "commit", late)
    committed = Transaction(catalog, EVENTS).append([data_file("one")]).commit()
    monkeypatch.undo()
    version = catalog.load(EVENTS)
    assert live_files(catalog, version) == (["first"] if appended_between else []) + ["one"]
    snapshot = version.metadata.current_snapshot()
    assert snapshot.snapshot_id == committed.snapshot.snapshot_id
    assert snapshot.summary.get("lakehouse.retries", "0") == str(lands) == str(committed.retries)
    storage = catalog.storage(version.metadata.location)
    lists = [
        one.location for one in storage.list(version.metadata.location) if "/snap-" in one.location
    ]
    assert sorted(lists) == sorted(
        snapshot.manifest_list for snapshot in version.metadata.snapshots
    )


class Server:
    """What a REST catalog is to a transaction: it applies requests whenever they arrive."""

    commits_to_newest = True

    def __init__(self, inner):
        self._inner, self.refusals, self.refused = inner, 0, []
        self.then = lambda: None

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def commit(self, identifier, base, requirements, updates):
        if self.refusals:
            self.refusals -= 1
            self.refused.append((identifier, requirements, updates))
            self.then()
            raise CommitConflictError("injected: refused")
        return self._inner.commit(identifier, self._inner.load(identifier), requirements, updates)

    def turn(self, _identifier):
        return nullcontext()

    def deliver(self):
        """What was refused arrives once more."""
        for identifier, requirements, updates in self.refused:
            self.commit(identifier, None, requirements, updates)


def change_property(catalog):
    Transaction(catalog, OTHER).set_properties({"another": "change"}).commit()


def append_winner(catalog):
    Transaction(catalog, OTHER).append([data_file("winner")]).commit()


@pytest.mark.parametrize("others", [None, change_property])
@pytest.mark.parametrize("tries", [1, 2])
def test_a_refusal_that_nothing_explains_deletes_nothing(catalog, others, tries):
    """A proxy may deliver the request after it has answered no: then its files must be there."""
    create_table(catalog, OTHER, {"commit.retry.num-retries": str(tries - 1)})
    server = Server(catalog)
    server.refusals = tries
    if others is not None:
        server.then = lambda: others(catalog)
    writer = Transaction(server, OTHER).overwrite([data_file("one")], [])
    with pytest.raises(CommitStateUnknownError, match="could still be applied") as caught:
        writer.commit()
    assert not catalog.load(OTHER).metadata.snapshots.ids()
    server.refused = server.refused[:1]
    server.deliver()
    version = catalog.load(OTHER)
    assert version.metadata.snapshots.ids() == caught.value.context["snapshot_ids"]
    assert live_files(catalog, version) == ["one"]


def test_a_refusal_before_another_run_of_the_commit_deletes_nothing(catalog):
    """The other run committed to main; what was refused for a branch may be on its way yet."""
    create_table(catalog, OTHER)
    server = Server(catalog)
    server.refusals = 1
    server.then = lambda: (
        Transaction(catalog, OTHER).append([data_file("winner")]).commit(commit_id="day-1")
    )
    writer = Transaction(server, OTHER, branch="audit").append([data_file("one")])
    with pytest.raises(CommitStateUnknownError, match=r"day-1.*could still be applied") as caught:
        writer.commit(commit_id="day-1")
    server.deliver()
    version = catalog.load(OTHER)
    assert set(caught.value.context["snapshot_ids"]) <= set(version.metadata.snapshots.ids())
    assert live_files(catalog, version) == ["winner"]
    on_audit = version.metadata.snapshot_for_ref("audit")
    assert on_audit.snapshot_id in caught.value.context["snapshot_ids"]
    assert catalog.storage(version.metadata.location).exists(on_audit.manifest_list)


def test_an_error_after_a_refusal_that_nothing_explains_deletes_nothing(catalog, monkeypatch):
    """The second try finds the disk full. The first one may still be on its way."""
    create_table(catalog, OTHER)
    server = Server(catalog)
    server.refusals = 1

    def full(*_args):
        raise StorageError("injected: full")

    server.then = lambda: monkeypatch.setattr(CommitFiles, "flush", full)
    writer = Transaction(server, OTHER).overwrite([data_file("one")], [])
    with pytest.raises(CommitStateUnknownError, match=r"full.*could still be applied"):
        writer.commit()
    monkeypatch.undo()
    server.deliver()
    assert live_files(catalog, catalog.load(OTHER)) == ["one"]


@pytest.mark.parametrize("served", [False, True])
def test_a_refusal_that_others_explain_is_one(catalog, served):
    create_table(catalog, OTHER, {"commit.retry.num-retries": "1"})
    server = Server(catalog)
    if not served:
        server.commits_to_newest = False
    server.refusals = 2
    server.then = lambda: append_winner(catalog)
    folder = f"{catalog.load(OTHER).metadata.location}/metadata"
    storage = catalog.storage(folder)
    with pytest.raises(CommitConflictError, match="Gave up after 2 attempts"):
        Transaction(server, OTHER).overwrite([data_file("one")], [], isolation="snapshot").commit()
    version = catalog.load(OTHER)
    assert live_files(catalog, version) == ["winner", "winner"]
    lists = [one.location for one in storage.list(folder) if "/snap-" in one.location]
    assert len(lists) == len(version.metadata.snapshots.ids())
    with pytest.raises(CommitConflictError):
        server.deliver()


def test_a_failure_that_the_catalog_is_sure_of_is_one(catalog, monkeypatch):
    create_table(catalog, OTHER)
    server = Server(catalog)

    def full(*_args):
        raise StorageError("injected: full", commit_outcome="failed")

    monkeypatch.setattr(server, "commit", full)
    with pytest.raises(StorageError, match="full"):
        Transaction(server, OTHER).append([data_file("one")]).commit()
    folder = f"{catalog.load(OTHER).metadata.location}/metadata"
    left = [one.location for one in catalog.storage(folder).list(folder)]
    assert not [one for one in left if one.endswith(".avro")]


def _loses_its_reply(commit, trouble, monkeypatch):
    def lossy(self, *args):
        commit(self, *args)

        def broken(*_args):
            raise trouble("injected")

        monkeypatch.setattr(type(self), "refresh", broken)
        raise CommitStateUnknownError("injected: the reply was lost")

    return lossy
