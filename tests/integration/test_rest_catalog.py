"""The REST catalog, against a server that is not ours."""

from __future__ import annotations

import traceback
from base64 import b64decode

import pytest

from lakehouse.catalog import open_catalog
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidLocationError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchSnapshotError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_updates import SetProperties
from lakehouse.transaction import Transaction
from tests.rest_server import rest
from tests.tables import EVENTS, create_table, data_file, live_files, table_metadata


@pytest.fixture
def server(tmp_path):
    with rest(tmp_path) as started:
        yield started


@pytest.fixture
def catalog(server, tmp_path):
    return open_catalog(server.url, warehouse=str(tmp_path / "warehouse"))


def test_namespaces(catalog):
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables(("raw",))
    catalog.create_namespace(("raw",), {"owner": "us"})
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace(("raw",))
    assert catalog.list_namespaces() == [("raw",)]
    assert catalog.namespace_properties(("raw",)) == {"owner": "us"}
    assert catalog.update_namespace_properties(("raw",), {"a": "b"}, ["owner"]) == {"a": "b"}
    create_table(catalog)
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(("raw",))
    catalog.drop(EVENTS)
    catalog.drop_namespace(("raw",))
    assert not catalog.namespace_exists(("raw",))


def test_tables(catalog):
    create_table(catalog)
    with pytest.raises(TableAlreadyExistsError):
        create_table(catalog)
    loaded = catalog.load(EVENTS)
    assert catalog.refresh(loaded) is loaded
    target = Identifier.parse("raw.renamed")
    catalog.rename(EVENTS, target)
    assert catalog.list_tables(("raw",)) == [target]
    location = catalog.load(target).metadata_location
    catalog.drop(target)
    with pytest.raises(NoSuchTableError):
        catalog.load(target)
    assert catalog.register(EVENTS, location).metadata_location == location
    with pytest.raises(InvalidLocationError):
        catalog.create(Identifier.parse("raw.out"), table_metadata("/etc/lakehouse"))


def test_commits(catalog):
    base = create_table(catalog)
    Transaction(catalog, EVENTS, decided_on=base).append([data_file("one")]).commit()
    Transaction(catalog, EVENTS, decided_on=base).append([data_file("two")]).commit()
    Transaction(catalog, EVENTS).overwrite([data_file("new")], [data_file("one")]).set_properties(
        {"a": "b"}
    ).commit()
    version = catalog.load(EVENTS)
    assert live_files(catalog, version) == ["new", "two"]
    assert version.metadata.properties["a"] == "b"
    first = next(iter(version.metadata.snapshots)).snapshot_id
    Transaction(catalog, EVENTS).create_tag("q", first).commit()
    assert catalog.load(EVENTS).metadata.ref("q").snapshot_id == first


def test_a_stale_commit_conflicts(catalog):
    base = create_table(catalog)
    staged = Transaction(catalog, EVENTS, decided_on=base).append([data_file("one")])
    Transaction(catalog, EVENTS, decided_on=base).append([data_file("two")]).commit()
    from lakehouse.spec.metadata.table_updates import AssertRefSnapshotId

    with pytest.raises(CommitConflictError):
        catalog.commit(
            EVENTS, base, (AssertRefSnapshotId("main", None),), (SetProperties({"x": "y"}),)
        )
    staged.commit()
    assert live_files(catalog, catalog.load(EVENTS)) == ["one", "two"]


def test_a_lost_reply_is_reconciled_by_snapshot_id(catalog, server):
    create_table(catalog)
    server.lose = 1
    committed = Transaction(catalog, EVENTS).append([data_file("one")]).commit()
    assert live_files(catalog, committed.version) == ["one"]
    server.lose = 1
    with pytest.raises(CommitStateUnknownError, match="Nothing was"):
        Transaction(catalog, EVENTS).set_properties({"no": "snapshot"}).commit()


@pytest.mark.parametrize("retries", ["0", "4"])
def test_an_own_success_that_a_gateway_repeats_into_a_409_is_recognised(catalog, server, retries):
    create_table(catalog, properties={"commit.retry.num-retries": retries})
    server.repeat = 1
    committed = Transaction(catalog, EVENTS).append([data_file("one")]).commit()
    assert committed.snapshot.snapshot_id == catalog.load(EVENTS).metadata.current_snapshot_id
    assert live_files(catalog, catalog.load(EVENTS)) == ["one"]
    Transaction(catalog, EVENTS).append([data_file("two")]).commit()
    assert live_files(catalog, catalog.load(EVENTS)) == ["one", "two"]


@pytest.mark.parametrize("late", [1, 2])
def test_a_commit_that_was_answered_409_and_landed_later_is_one(catalog, server, late):
    create_table(catalog)
    server.late = late
    committed = Transaction(catalog, EVENTS).append([data_file("one")]).commit()
    version = catalog.load(EVENTS)
    assert committed.snapshot.snapshot_id == version.metadata.current_snapshot_id
    assert live_files(catalog, version) == ["one"]


def test_a_commit_that_may_still_land_after_the_last_try_keeps_its_files(catalog, server):
    create_table(catalog, properties={"commit.retry.num-retries": "0"})
    server.late = 1
    with pytest.raises(CommitStateUnknownError, match="could still be applied"):
        Transaction(catalog, EVENTS).append([data_file("one")]).commit()
    assert live_files(catalog, catalog.load(EVENTS)) == []
    server.deliver()
    assert live_files(catalog, catalog.load(EVENTS)) == ["one"]


def overtake(catalog, monkeypatch, competitor):
    """Let another client go first, once, when the next commit is on its way to the server."""
    send = catalog._send_commit

    def late(*request):
        monkeypatch.setattr(catalog, "_send_commit", send)
        competitor()
        return send(*request)

    monkeypatch.setattr(catalog, "_send_commit", late)


@pytest.mark.parametrize("picked", ["append", "partitions"])
def test_a_cherry_pick_does_not_land_beside_the_expiry_of_what_it_picks(
    catalog, monkeypatch, picked
):
    """The server applies it to a newer base, on which files of the snapshot may be gone."""
    create_table(catalog)
    Transaction(catalog, EVENTS).append([data_file("one")]).commit()
    staged = Transaction(catalog, EVENTS, branch="audit")
    if picked == "append":
        staged.append([data_file("staged")])
        done = staged.commit()
    else:
        staged.overwrite([data_file("staged")], [data_file("one")])
        done = staged.commit({"replace-partitions": "true"})
    Transaction(catalog, EVENTS).remove_ref("audit").commit()
    Transaction(catalog, EVENTS).append([data_file("direct", "b")]).commit()
    snapshot_id = done.snapshot.snapshot_id
    overtake(
        catalog,
        monkeypatch,
        lambda: Transaction(catalog, EVENTS).expire([snapshot_id]).commit(),
    )
    with pytest.raises(NoSuchSnapshotError):
        Transaction(catalog, EVENTS).cherry_pick(snapshot_id).commit()
    assert live_files(catalog, catalog.load(EVENTS)) == ["direct", "one"]


@pytest.mark.parametrize("overtaken", [False, True])
def test_a_cherry_pick_leaves_no_ref_behind(catalog, monkeypatch, overtaken):
    create_table(catalog)
    Transaction(catalog, EVENTS).append([data_file("one")]).commit()
    staged = Transaction(catalog, EVENTS, branch="audit").append([data_file("staged")]).commit()
    Transaction(catalog, EVENTS).append([data_file("direct")]).commit()
    if overtaken:
        overtake(
            catalog,
            monkeypatch,
            lambda: Transaction(catalog, EVENTS).append([data_file("other")]).commit(),
        )
    Transaction(catalog, EVENTS).cherry_pick(staged.snapshot.snapshot_id).commit()
    version = catalog.load(EVENTS)
    assert live_files(catalog, version) == sorted(
        ["direct", "one", "staged", *(["other"] if overtaken else [])]
    )
    assert sorted(version.metadata.refs) == ["audit", "main"]


def test_a_new_branch_does_not_begin_at_a_snapshot_that_expires_meanwhile(catalog, monkeypatch):
    create_table(catalog)
    first = Transaction(catalog, EVENTS).append([data_file("one")]).commit().snapshot
    second = Transaction(catalog, EVENTS).append([data_file("two")]).commit().snapshot

    def undo_and_expire():
        Transaction(catalog, EVENTS).rollback_to(first.snapshot_id).commit()
        Transaction(catalog, EVENTS).expire([second.snapshot_id]).commit()

    overtake(catalog, monkeypatch, undo_and_expire)
    Transaction(catalog, EVENTS, branch="audit").append([data_file("staged")]).commit()
    version = catalog.load(EVENTS)
    assert live_files(catalog, version, branch="audit") == ["one", "staged"]
    assert live_files(catalog, version) == ["one"]


def test_a_table_property_imports_nothing(catalog, server, tmp_path, monkeypatch):
    """pyiceberg's client would load the file access class that a table property names."""
    (tmp_path / "planted.py").write_text(
        f"open({str(tmp_path / 'was-imported')!r}, 'w').close()\nclass IO: pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    server.planted = {"py-io-impl": "planted.IO", "py-location-provider.impl": "planted.IO"}
    create_table(catalog)
    Transaction(catalog, EVENTS).append([data_file("one")]).commit()
    fresh = open_catalog(server.url, warehouse=catalog.warehouse, **{"py-io-impl": "planted.IO"})
    assert live_files(fresh, fresh.load(EVENTS)) == ["one"]
    assert not (tmp_path / "was-imported").exists()


def test_a_password_in_the_url_is_used_and_never_shown(server, tmp_path):
    url = server.url.replace("http://", "http://me:can%2Fary@")
    catalog = open_catalog(url, warehouse=str(tmp_path / "warehouse"))
    version = create_table(catalog)
    assert b64decode(server.authorization.removeprefix("Basic ")) == b"me:can/ary"
    with pytest.raises(NoSuchTableError) as caught:
        catalog.load(Identifier.parse("raw.nothing"))
    text = "".join(traceback.format_exception(caught.value))
    shown = f"{catalog.uri} {catalog!r} {version} {caught.value.context} {text}"
    assert not [
        secret for secret in ("can%2Fary", "can/ary", server.authorization) if secret in shown
    ]
