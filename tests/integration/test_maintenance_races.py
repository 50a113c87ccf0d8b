"""Maintenance beside writing threads on a real folder: nothing acknowledged is lost."""

from __future__ import annotations

import threading

from pyiceberg.table import StaticTable

import lakehouse.lake
from lakehouse.errors import (
    CommitConflictError,
    CommitError,
    LakehouseError,
    NoSuchFileError,
    NoSuchSnapshotError,
)
from lakehouse.maintenance.compaction.compaction import compact
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.manifest_rewrite import ManifestRewriteOptions, rewrite_manifests
from lakehouse.maintenance.retention.snapshot_expiry import ExpiryOptions, expire_snapshots
from tests.integration.maintenance_support import contents, events, rows
from tests.table_census import take_census

APPENDS = 12


class Workers:
    """Threads that stop together; what they raise is raised by `join`."""

    def __init__(self):
        self.done = threading.Event()
        self.errors = []
        self._threads = []

    def start(self, work):
        def run():
            try:
                work()
            except Exception as error:  # noqa: BLE001 - carried to the test
                self.errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        self._threads.append(thread)
        return thread

    def join(self, writers):
        for thread in writers:
            thread.join()
        self.done.set()
        for thread in self._threads:
            thread.join()
        assert self.errors == []


TAGGING = ("in one commit", None, "after it", None)


def append_and_tag(table, new, name, tagging):
    """The id of the snapshot that appended the rows, if it has its tag."""
    if tagging == "in one commit":
        append = table.refresh().transaction().append(table.write_files(new))
        return append.create_tag(name).commit().snapshot.snapshot_id
    snapshot = table.append(new)
    if tagging is None:
        return None
    try:
        table.create_tag(name, snapshot.snapshot_id)
    except (NoSuchSnapshotError, CommitConflictError):
        return None  # it expired before it got its tag, or others won every race
    return snapshot.snapshot_id


def test_appends_beside_compaction_expiry_and_manifest_rewriting(tmp_path):
    warehouse = str(tmp_path / "warehouse")
    lake = lakehouse.lake.load_catalog(warehouse)
    # an append with its tag is tried four times by default: too few for a machine of any speed
    patient = {"commit.retry.min-wait-ms": "5", "commit.retry.num-retries": "1000"}
    table = events(lake, properties=patient)
    table.append(rows([0], region="r0"))
    workers = Workers()
    tagged = {}

    def write(writer):
        own = lakehouse.lake.load_catalog(warehouse).load_table("raw.events")
        for number in range(APPENDS):
            new = rows([1000 * writer + number], region=f"r{number % 2}")
            kept = append_and_tag(own, new, f"w{writer}-{number}", TAGGING[number % 4])
            if kept is not None:
                tagged[kept] = contents(own.refresh(), kept)

    def maintain(action):
        while not workers.done.is_set():
            try:
                action()
            except (CommitError, NoSuchFileError, NoSuchSnapshotError):
                # the snapshot it was planning on was expired under its hands: retention is days in
                # real life
                continue

    def keep_compacting():
        compact(table.catalog, table.identifier, CompactionOptions(min_input_files=2))

    def keep_expiring():
        expire_snapshots(
            table.catalog, table.identifier, ExpiryOptions(older_than_ms=1 << 62, retain_last=2)
        )

    def keep_clustering():
        rewrite_manifests(table.catalog, table.identifier, ManifestRewriteOptions(force=True))

    for action in (keep_compacting, keep_expiring, keep_clustering):
        workers.start(lambda action=action: maintain(action))
    workers.join([workers.start(lambda writer=writer: write(writer)) for writer in (1, 2)])

    expected = {(0, "r0", 0.0)} | {
        (1000 * writer + number, f"r{number % 2}", float(1000 * writer + number))
        for writer in (1, 2)
        for number in range(APPENDS)
    }
    assert contents(table) == dict.fromkeys(expected, 1)
    assert len(tagged) >= 2 * APPENDS // 4
    for snapshot_id, then in tagged.items():
        assert contents(table, snapshot_id) == then
    keep_expiring()
    found = take_census(table.catalog, table.identifier)
    assert (found.missing, found.unreachable) == (frozenset(), frozenset())


def test_rollbacks_and_tags_beside_expiry(tmp_path):
    """I16: whoever wins, every ref names a snapshot that exists and reads."""
    warehouse = str(tmp_path / "warehouse")
    lake = lakehouse.lake.load_catalog(warehouse)
    table = events(lake)
    for number in range(6):
        table.append(rows([number]))
    workers = Workers()

    def move():
        own = lakehouse.lake.load_catalog(warehouse).load_table("raw.events")
        for number in range(20):
            own.refresh()
            line = list(own.metadata.ancestors(own.metadata.current_snapshot_id))
            try:
                if number % 3 == 0:
                    own.create_tag(f"t{number}", line[number % len(line)].snapshot_id)
                elif number % 3 == 1:
                    own.rollback_to(line[min(1, len(line) - 1)].snapshot_id)
                else:
                    own.append(rows([100 + number]))
            except LakehouseError:
                continue

    def keep_expiring():
        while not workers.done.is_set():
            try:
                expire_snapshots(
                    table.catalog, table.identifier, ExpiryOptions(older_than_ms=1 << 62)
                )
            except CommitError:
                continue

    workers.start(keep_expiring)
    workers.join([workers.start(move)])
    table.refresh()
    for ref in table.metadata.refs.values():
        contents(table, ref.snapshot_id)
    assert take_census(table.catalog, table.identifier).missing == frozenset()
    expire_snapshots(table.catalog, table.identifier, ExpiryOptions(older_than_ms=1 << 62))
    assert take_census(table.catalog, table.identifier).unreachable == frozenset()


def test_pyiceberg_reads_the_same_rows_after_every_action(tmp_path):
    lake = lakehouse.lake.load_catalog(str(tmp_path / "warehouse"))
    table = events(lake)
    for number in range(8):
        table.append(rows([number, number + 100], region=f"r{number % 2}"))
    table.delete("id = 3")

    def theirs():
        found = StaticTable.from_metadata(table.refresh().metadata_location).scan().to_arrow()
        return sorted(tuple(row.values()) for row in found.to_pylist())

    expected = theirs()
    compact(table.catalog, table.identifier, CompactionOptions(min_input_files=2))
    assert theirs() == expected
    rewrite_manifests(table.catalog, table.identifier)
    assert theirs() == expected
    expire_snapshots(table.catalog, table.identifier, ExpiryOptions(older_than_ms=1 << 62))
    assert theirs() == expected
    assert sum(contents(table).values()) == len(expected) == 15
