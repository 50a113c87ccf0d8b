"""Transactions over tables of files: whoever is killed in one leaves all of it, or nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.catalog.filesystem import recorded_transactions
from lakehouse.catalog.filesystem.recorded_transactions import MARK, RecordedTransactions
from lakehouse.errors import CommitConflictError
from lakehouse.lake import Lakehouse
from lakehouse.storage.local import LocalStorage

ROWS = pa.table({"id": [1]})
NAMES = ("t.a", "t.b", "t.c")


class Killed(BaseException):
    """Nothing in the process is done any more."""


@pytest.fixture
def lake(tmp_path: Path) -> Lakehouse:
    lake = lh.load_catalog(str(tmp_path))
    for name in NAMES:
        lake.create_table(name, ROWS.schema).append(ROWS)
    return lake


def again(lake: Lakehouse) -> Lakehouse:
    return lh.load_catalog(lake.warehouse)


def counts(lake: Lakehouse) -> set[int]:
    return {again(lake).load_table(name).scan().count() for name in NAMES}


def append_to_all(lake: Lakehouse) -> None:
    with again(lake).transaction() as tx:
        for name in NAMES:
            tx.table(name).append(ROWS)


def killed_at(patch: pytest.MonkeyPatch, creation: int, *, after: bool) -> None:
    """Kill before or after a file of that number is created; and all that follows."""
    create, seen = LocalStorage.create, []

    def counted(self: LocalStorage, location: str, data: bytes) -> None:
        seen.append(location)
        if len(seen) > creation:
            raise Killed
        if len(seen) == creation and not after:
            raise Killed
        create(self, location, data)
        if len(seen) == creation:
            raise Killed

    patch.setattr(LocalStorage, "create", counted)


@pytest.mark.parametrize("after", [False, True])
def test_killed_anywhere(lake: Lakehouse, after: bool) -> None:
    """Every file that is created: prepared metadata, marked versions, the decision, the last."""
    total, outcomes = 1, []
    for creation in range(1, 100):
        with pytest.MonkeyPatch.context() as patch:
            killed_at(patch, creation, after=after)
            try:
                append_to_all(lake)
            except Killed:
                pass
            else:
                break
        (found,) = counts(lake)
        assert found - total in (0, 1)
        outcomes.append(found - total)
        total = found
    assert outcomes == sorted(outcomes), "what was decided stays so"
    assert set(outcomes) == {0, 1}
    append_to_all(lake)
    for name in NAMES:
        lake.load_table(name).append(ROWS)
    assert counts(lake) == {total + 3}
    assert not any(MARK in again(lake).load_table(name).metadata.extra for name in NAMES)


def test_who_writes_meanwhile_withdraws_it(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = RecordedTransactions.decide

    def overtaken(self: RecordedTransactions, transaction: str, *, committed: bool) -> bool:
        if committed:
            lake.load_table("t.b").append(ROWS)
        return decide(self, transaction, committed=committed)

    monkeypatch.setattr(RecordedTransactions, "decide", overtaken)
    with pytest.raises(CommitConflictError, match="somebody else wrote"):
        append_to_all(lake)
    monkeypatch.undo()
    assert [again(lake).load_table(name).scan().count() for name in NAMES] == [1, 2, 1]


def test_a_writer_who_saw_the_mark_comes_after_the_decision(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide, held = RecordedTransactions.decide, []

    def seen(self: RecordedTransactions, transaction: str, *, committed: bool) -> bool:
        if committed:
            held.append(again(lake).load_table("t.b"))
        return decide(self, transaction, committed=committed)

    monkeypatch.setattr(RecordedTransactions, "decide", seen)
    append_to_all(lake)
    (table,) = held
    assert MARK in table.metadata.extra
    assert table.scan().count() == 1
    table.append(ROWS)
    assert again(lake).load_table("t.b").scan().count() == 3


def test_a_drop_withdraws_it(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    decide = RecordedTransactions.decide

    def dropped(self: RecordedTransactions, transaction: str, *, committed: bool) -> bool:
        if committed:
            again(lake).drop_table("t.c")
        return decide(self, transaction, committed=committed)

    monkeypatch.setattr(RecordedTransactions, "decide", dropped)
    with pytest.raises(CommitConflictError):
        append_to_all(lake)
    assert [again(lake).load_table(name).scan().count() for name in NAMES[:2]] == [1, 1]


def test_no_decision_is_left_and_folders_are_no_namespaces(lake: Lakehouse, tmp_path: Path) -> None:
    append_to_all(lake)
    assert not list((tmp_path / recorded_transactions.FOLDER).iterdir())
    assert lake.list_namespaces() == ["t"]
