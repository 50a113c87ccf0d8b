"""Three outcomes and nothing between: what a transaction says when the ground moves under its commit."""

from __future__ import annotations

import uuid

import pytest

from lakehouse.catalog import open_catalog
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitStateUnknownError,
    CorruptMetadataError,
    NoSuchFileError,
    NoSuchTableError,
    ValidationConflictError,
)
from lakehouse.transaction import Transaction
from tests.tables import EVENTS, create_table, data_file, live_files


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


def _loses_its_reply(commit, trouble, monkeypatch):
    def lossy(self, *args):
        commit(self, *args)

        def broken(*_args):
            raise trouble("injected")

        monkeypatch.setattr(type(self), "refresh", broken)
        raise CommitStateUnknownError("injected: the reply was lost")

    return lossy
