"""Three outcomes and nothing between: what a transaction says when the ground moves under its commit."""

from __future__ import annotations

import uuid

import pytest

from lakehouse.catalog import open_catalog
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptMetadataError,
    NoSuchFileError,
    NoSuchTableError,
    ValidationConflictError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.transaction import Transaction
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
    """Files written for the columns of one table must not land in the table that has its name now."""
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
    """Whatever the look finds, it does not make the commit a certain failure: callers delete data files after one."""
    monkeypatch.setattr(
        type(catalog), "commit", _loses_its_reply(type(catalog).commit, trouble, monkeypatch)
    )
    quick = Environment.seeded(2)
    with pytest.raises(CommitStateUnknownError) as caught:
        Transaction(catalog, EVENTS, environment=quick).append([data_file("one")]).commit()
    assert caught.value.context["snapshot_ids"]
    monkeypatch.undo()
    assert live_files(catalog, catalog.load(EVENTS)) == ["one"]


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
    assert sorted(lists) == sorted(one.manifest_list for one in version.metadata.snapshots)


def test_a_refusal_that_nobody_explains_deletes_nothing(catalog, monkeypatch):
    """A proxy may deliver the request after it has answered no: then its files must be there."""
    create_table(catalog, OTHER, {"commit.retry.num-retries": "1"})
    real, sent = catalog.commit, []

    def refusing(*request):
        sent.append(request)
        raise CommitConflictError("injected: refused")

    monkeypatch.setattr(catalog, "commit", refusing)
    with pytest.raises(CommitStateUnknownError, match="nobody else has committed") as caught:
        Transaction(catalog, OTHER).append([data_file("one")]).commit()
    monkeypatch.undo()
    assert not catalog.load(OTHER).metadata.snapshots.ids()
    real(*sent[-1])
    version = catalog.load(OTHER)
    assert version.metadata.snapshots.ids() == caught.value.context["snapshot_ids"]
    assert live_files(catalog, version) == ["one"]


def test_a_refusal_that_others_explain_is_one(catalog, monkeypatch):
    create_table(catalog, OTHER, {"commit.retry.num-retries": "1"})
    real = catalog.commit

    def overtaken(identifier, base, requirements, updates):
        monkeypatch.setattr(catalog, "commit", real)
        Transaction(catalog, OTHER).append([data_file("winner")]).commit()
        monkeypatch.setattr(catalog, "commit", overtaken)
        return real(identifier, base, requirements, updates)

    monkeypatch.setattr(catalog, "commit", overtaken)
    with pytest.raises(CommitConflictError, match="Gave up after 2 attempts"):
        Transaction(catalog, OTHER).append([data_file("one")]).commit()
    assert live_files(catalog, catalog.load(OTHER)) == ["winner", "winner"]


def _loses_its_reply(commit, trouble, monkeypatch):
    def lossy(self, *args):
        commit(self, *args)

        def broken(*_args):
            raise trouble("injected")

        monkeypatch.setattr(type(self), "refresh", broken)
        raise CommitStateUnknownError("injected: the reply was lost")

    return lossy
