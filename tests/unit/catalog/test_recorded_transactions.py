"""Transactions over tables of files: whoever is killed in one leaves all of it, or nothing."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.catalog.catalog_protocol import Request
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.catalog.filesystem.recorded_transactions import FOLDER, MARK, RecordedTransactions
from lakehouse.errors import CommitConflictError, StorageError
from lakehouse.lake import Lakehouse
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_updates import SetProperties
from lakehouse.storage.local import LocalStorage
from tests.waiting import eventually

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
    assert not list((tmp_path / FOLDER).iterdir())
    assert lake.list_namespaces() == ["t"]


def killed_once_decided(lake: Lakehouse) -> None:
    """Leave a transaction that was committed, of which no table says so yet."""
    decide = RecordedTransactions.decide

    def killed(self: RecordedTransactions, transaction: str, *, committed: bool) -> bool:
        decide(self, transaction, committed=committed)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordedTransactions, "decide", killed)
        with pytest.raises(Killed):
            append_to_all(lake)


def test_a_reader_between_the_mark_and_a_decision_that_is_deleted(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the marked version, and looks for the decision when all is done."""
    has_read, is_done = Event(), Event()
    decide, is_committed = RecordedTransactions.decide, RecordedTransactions.is_committed

    def waits(self: RecordedTransactions, transaction: str) -> bool | None:
        has_read.set()
        assert is_done.wait(60)
        return is_committed(self, transaction)

    def decided(self: RecordedTransactions, transaction: str, *, committed: bool) -> bool:
        readers.append(pool.submit(lambda: again(lake).load_table("t.b").scan().count()))
        assert has_read.wait(60)
        return decide(self, transaction, committed=committed)

    readers: list[Future[int]] = []
    monkeypatch.setattr(RecordedTransactions, "decide", decided)
    monkeypatch.setattr(RecordedTransactions, "is_committed", waits)
    with ThreadPoolExecutor(1) as pool:
        append_to_all(lake)
        is_done.set()
        assert readers[0].result() == 2


def test_who_drops_a_table_after_the_decision_fails_nobody(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = RecordedTransactions.decide

    def dropped(self: RecordedTransactions, transaction: str, *, committed: bool) -> bool:
        done = decide(self, transaction, committed=committed)
        if committed:
            again(lake).drop_table("t.c")
        return done

    monkeypatch.setattr(RecordedTransactions, "decide", dropped)
    append_to_all(lake)
    assert [again(lake).load_table(name).scan().count() for name in NAMES[:2]] == [2, 2]
    assert not again(lake).table_exists("t.c")


def test_a_request_that_finishes_a_transaction_is_not_done_by_that(
    lake: Lakehouse, tmp_path: Path
) -> None:
    killed_once_decided(lake)
    catalog, name = FilesystemCatalog(str(tmp_path)), Identifier.parse("t.a")
    request = Request("key", "fingerprint", 1)
    during = catalog.during(request)
    base = during.load(name)
    assert catalog.requests.find("key") is None
    during.commit(name, base, (), [SetProperties({"comment": "asked for"})])
    assert catalog.requests.find("key") is not None
    assert catalog.load(name).metadata.properties["comment"] == "asked for"


def test_a_version_that_could_not_be_written_is_read_and_written_later(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_once_decided(lake)

    def refused(self: LocalStorage, location: str, data: bytes) -> None:
        raise StorageError("read only", commit_outcome="failed", location=location)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create", refused)
        table = again(lake).load_table("t.a")
        assert table.scan().count() == 2
    table.set_properties({"comment": "committed"})
    assert again(lake).load_table("t.a").properties["comment"] == "committed"
    assert counts(lake) == {2}


def test_two_transactions_over_the_same_tables_in_opposite_order(lake: Lakehouse) -> None:
    def both(names: tuple[str, ...]) -> None:
        def once() -> bool:
            try:
                with again(lake).transaction() as tx:
                    for name in names:
                        tx.table(name).append(ROWS)
            except CommitConflictError:
                return False
            return True

        for _ in range(5):
            eventually(once)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(both, names) for names in (NAMES, NAMES[::-1])]:
            done.result()
    assert counts(lake) == {11}


def test_a_late_writer_leaves_no_decision(
    lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen the mark, and writes when the transaction is over."""
    decide, held = RecordedTransactions.decide, []

    def seen(self: RecordedTransactions, transaction: str, *, committed: bool) -> bool:
        held.append(again(lake).load_table("t.b"))
        return decide(self, transaction, committed=committed)

    monkeypatch.setattr(RecordedTransactions, "decide", seen)
    append_to_all(lake)
    catalog = FilesystemCatalog(str(tmp_path))
    base = held[0].version
    with pytest.raises(CommitConflictError):
        catalog.commit(base.identifier, base, (), [SetProperties({"comment": "late"})])
    assert not list((tmp_path / FOLDER).iterdir())


def test_tables_of_no_transaction_cost_no_look_at_transactions(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(self: RecordedTransactions, transaction: str) -> str:
        raise AssertionError(f"looked for {transaction}")

    append_to_all(lake)
    monkeypatch.setattr(RecordedTransactions, "_location", asked)
    lake.load_table("t.a").append(ROWS)
    assert lake.load_table("t.a").refresh().scan().count() == 3
    with pytest.raises(AssertionError, match="looked for"):
        append_to_all(lake)


def test_a_marked_version_that_is_registered_has_no_mark(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide, seen = RecordedTransactions.decide, []

    def marked(self: RecordedTransactions, transaction: str, *, committed: bool) -> bool:
        seen.append(again(lake).load_table("t.b").version.metadata_location)
        return decide(self, transaction, committed=committed)

    with monkeypatch.context() as patch:
        patch.setattr(RecordedTransactions, "decide", marked)
        append_to_all(lake)
    lake.drop_table("t.b")
    table = lake.register_table("t.b", seen[0])
    assert MARK not in table.metadata.extra
    assert table.scan().count() == 1
