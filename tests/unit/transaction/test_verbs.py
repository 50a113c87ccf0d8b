"""What each verb does to a table, and what it refuses."""

from __future__ import annotations

import hashlib
import uuid
from contextlib import contextmanager

import pytest
from pyiceberg.expressions import EqualTo

from lakehouse.catalog import open_catalog
from lakehouse.environment import Environment
from lakehouse.errors import (
    InvalidInputError,
    NoSuchRefError,
    RefAlreadyExistsError,
    ValidationConflictError,
)
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.spec.metadata.table_updates import SetProperties
from lakehouse.spec.table_properties import TableProperties
from lakehouse.transaction import Transaction
from lakehouse.transaction.commit import Backoff, commit_backoff
from tests.tables import EVENTS, create_table, data_file, delete_file, live_files


@pytest.fixture
def catalog():
    opened = open_catalog(
        f"memory://{uuid.uuid4().hex}/warehouse", environment=Environment.seeded(1)
    )
    create_table(opened)
    return opened


def begin(catalog, **options):
    return Transaction(catalog, EVENTS, **options)


def append(catalog, *names, partition="a", **options):
    return begin(catalog, **options).append([data_file(name, partition) for name in names]).commit()


def files(catalog, branch="main"):
    return live_files(catalog, catalog.load(EVENTS), branch=branch)


def test_overwrite_replaces_and_counts(catalog):
    append(catalog, "one", "two")
    summary = (
        begin(catalog)
        .overwrite([data_file("new", rows=7)], [data_file("one")])
        .commit()
        .snapshot.summary
    )
    assert files(catalog) == ["new", "two"]
    expected = {
        "operation": "overwrite",
        "added-data-files": "1",
        "deleted-data-files": "1",
        "added-records": "7",
        "deleted-records": "10",
        "total-data-files": "2",
        "total-records": "17",
        "changed-partition-count": "1",
    }
    assert {name: summary.get(name) for name in expected} == expected


def test_partitions_are_listed_up_to_the_limit(catalog):
    begin(catalog).set_properties({"write.summary.partition-limit": "1"}).commit()
    listed = append(catalog, "one", "two").snapshot.summary
    assert listed["partition-summaries-included"] == "true"
    counted = set(listed["partitions.p=a"].split(","))
    assert counted == {"added-data-files=2", "added-records=20", "added-files-size=200"}
    files = [data_file("three", "b"), data_file("four")]
    over = begin(catalog).append(files).commit().snapshot.summary
    assert over["changed-partition-count"] == "2"
    assert not [key for key in over if key.startswith("partition")]


def test_removing_what_is_not_there_is_a_conflict(catalog):
    append(catalog, "one")
    with pytest.raises(ValidationConflictError, match="not in the table"):
        begin(catalog).delete_files([data_file("other")]).commit()


@pytest.mark.parametrize(("isolation", "partition", "conflict"), [
    ("serializable", "a", True), ("serializable", "b", False), ("snapshot", "a", False),
])  # fmt: skip
def test_overwrite_against_append_obeys_the_isolation_level(
    catalog, isolation, partition, conflict
):
    base = append(catalog, "one").version
    append(catalog, "late", partition=partition)
    transaction = begin(catalog, decided_on=base).overwrite(
        [data_file("new")], [data_file("one")], isolation=isolation
    )
    if conflict:
        with pytest.raises(
            ValidationConflictError, match=r"added 1 file in partition p=a .*late.*snapshot"
        ) as caught:
            transaction.commit()
        assert (
            caught.value.context["snapshot_id"] == catalog.load(EVENTS).metadata.current_snapshot_id
        )
        assert files(catalog) == ["late", "one"]
    else:
        transaction.commit()
        assert files(catalog) == ["late", "new"]


def test_the_table_property_sets_the_isolation_level(catalog):
    begin(catalog).set_properties({"write.update.isolation-level": "snapshot"}).commit()
    base = append(catalog, "one").version
    append(catalog, "late")
    begin(catalog, decided_on=base).overwrite([data_file("new")], [data_file("one")]).commit()
    assert files(catalog) == ["late", "new"]


def test_a_filter_scopes_the_conflict(catalog):
    base = append(catalog, "one").version
    append(catalog, "late", partition="b")
    begin(catalog, decided_on=base).overwrite(
        [data_file("new")], [data_file("one")], conflict_filter=EqualTo("p", "a")
    ).commit()
    base = catalog.load(EVENTS)
    append(catalog, "later", partition="a")
    transaction = begin(catalog, decided_on=base).overwrite(
        [], [data_file("new")], conflict_filter=EqualTo("p", "a")
    )
    with pytest.raises(ValidationConflictError, match="later"):
        transaction.commit()


def test_a_rewrite_of_an_overwritten_file_aborts(catalog):
    base = append(catalog, "one", "two").version
    begin(catalog).overwrite([data_file("new")], [data_file("one")]).commit()
    with pytest.raises(ValidationConflictError, match="removed 1 file in partition p=a"):
        begin(catalog, decided_on=base).rewrite_files(
            [data_file("one"), data_file("two")], [data_file("big", rows=20)]
        ).commit()


def test_rewritten_files_keep_the_sequence_number_of_their_input(catalog):
    base = append(catalog, "one", "two").version
    append(catalog, "three")
    committed = (
        begin(catalog, decided_on=base)
        .rewrite_files([data_file("one"), data_file("two")], [data_file("big", rows=20)])
        .commit()
    )
    storage, metadata = catalog.storage(base.metadata.location), committed.version.metadata
    entries = [
        entry
        for manifest in load_manifests(storage, committed.snapshot)
        for entry in ManifestReader.of(storage, metadata).entries(manifest).to_manifest_entries()
    ]
    numbers = {
        entry.data_file.file_path: (entry.sequence_number, entry.file_sequence_number)
        for entry in entries
        if entry.status != 2
    }
    assert numbers["/data/big.parquet"] == (1, 3)
    assert committed.snapshot.operation == "replace"


def test_a_rewrite_cannot_add_rows(catalog):
    append(catalog, "one")
    with pytest.raises(InvalidInputError, match="cannot add rows"):
        begin(catalog).rewrite_files([data_file("one")], [data_file("big", rows=11)])


def test_row_delta_needs_its_data_file(catalog):
    base = append(catalog, "one").version
    begin(catalog).delete_files([data_file("one")]).commit()
    with pytest.raises(ValidationConflictError, match="removed"):
        begin(catalog, decided_on=base).row_delta(
            delete_files=[delete_file("x", data_file("one"))], isolation="snapshot"
        ).commit()


def test_two_row_deltas_on_one_file_do_not_overwrite_each_other(catalog):
    base = append(catalog, "one").version
    begin(catalog).row_delta(delete_files=[delete_file("x", data_file("one"))]).commit()
    with pytest.raises(ValidationConflictError, match="same data files"):
        begin(catalog, decided_on=base).row_delta(
            delete_files=[delete_file("y", data_file("one"))]
        ).commit()


def test_several_operations_are_one_commit(catalog):
    committed = (
        begin(catalog)
        .append([data_file("one")])
        .append([data_file("two")])
        .delete_files([data_file("one")])
        .set_properties({"a": "b"}).create_tag("done").commit()
    )  # fmt: skip
    assert files(catalog) == ["two"]
    assert [snapshot.sequence_number for snapshot in committed.snapshots] == [1, 2, 3]
    assert committed.version.metadata.ref("done").snapshot_id == committed.snapshot.snapshot_id
    assert len(committed.version.metadata.metadata_log) == 1


def test_a_failed_transaction_leaves_nothing(catalog):
    append(catalog, "one")
    storage = catalog.storage(catalog.warehouse)
    before = sorted(info.location for info in storage.list(catalog.warehouse))
    with pytest.raises(ValidationConflictError):
        begin(catalog).append([data_file("two")]).delete_files([data_file("nothing")]).commit()
    assert sorted(info.location for info in storage.list(catalog.warehouse)) == before
    assert files(catalog) == ["one"]


def test_a_commit_id_commits_once(catalog):
    first = begin(catalog).append([data_file("one")]).commit(commit_id="run-1/step")
    again = begin(catalog).append([data_file("again")]).commit(commit_id="run-1/step")
    assert again.replayed
    assert again.snapshot == first.snapshot
    assert files(catalog) == ["one"]
    with pytest.raises(InvalidInputError, match="Commit id"):
        begin(catalog).append([]).commit(commit_id='a"b')


def test_a_transaction_commits_once(catalog):
    transaction = begin(catalog).append([data_file("one")])
    transaction.commit()
    with pytest.raises(InvalidInputError, match="new one"):
        transaction.commit()


def test_a_tag_is_moved_in_one_transaction(catalog):
    append(catalog, "one")
    begin(catalog).create_tag("latest").commit()
    second = append(catalog, "two").snapshot
    moved = begin(catalog).remove_ref("latest").create_tag("latest").commit()
    assert moved.version.metadata.refs["latest"].snapshot_id == second.snapshot_id


def test_branches_and_tags(catalog):
    base = append(catalog, "one")
    begin(catalog).create_branch("audit", min_snapshots_to_keep=3).commit()
    append(catalog, "staged", branch="audit")
    assert files(catalog) == ["one"]
    assert files(catalog, "audit") == ["one", "staged"]
    assert catalog.load(EVENTS).metadata.ref("audit").min_snapshots_to_keep == 3
    with pytest.raises(RefAlreadyExistsError):
        begin(catalog).create_tag("audit").commit()
    begin(catalog).fast_forward("audit").commit()
    assert files(catalog) == ["one", "staged"]
    begin(catalog).rollback_to(base.snapshot.snapshot_id).commit()
    assert files(catalog) == ["one"]
    begin(catalog).remove_ref("audit").commit()
    with pytest.raises(NoSuchRefError):
        begin(catalog).remove_ref("audit").commit()
    with pytest.raises(InvalidInputError):
        begin(catalog).remove_ref("main")


def test_fast_forward_refuses_to_drop_commits(catalog):
    append(catalog, "one")
    begin(catalog).create_branch("audit").commit()
    append(catalog, "staged", branch="audit")
    append(catalog, "direct")
    with pytest.raises(ValidationConflictError, match="does not contain"):
        begin(catalog).fast_forward("audit").commit()


def test_cherry_pick_once(catalog):
    append(catalog, "one")
    begin(catalog).create_branch("audit").commit()
    staged = append(catalog, "staged", branch="audit").snapshot
    append(catalog, "direct")
    picked = begin(catalog).cherry_pick(staged.snapshot_id).commit()
    assert files(catalog) == ["direct", "one", "staged"]
    assert picked.snapshot.summary["source-snapshot-id"] == str(staged.snapshot_id)
    with pytest.raises(ValidationConflictError, match="already"):
        begin(catalog).cherry_pick(staged.snapshot_id).commit()


def test_a_cherry_pick_beside_a_foreign_source_snapshot_id(catalog):
    append(catalog, "one")
    begin(catalog).append([data_file("foreign")]).commit({"source-snapshot-id": "no number"})
    staged = append(catalog, "staged", branch="audit").snapshot
    append(catalog, "direct")
    begin(catalog).cherry_pick(staged.snapshot_id).commit()
    assert files(catalog) == ["direct", "foreign", "one", "staged"]


def test_what_a_commit_id_has_done_on_the_branch_is_not_picked_again(catalog):
    append(catalog, "one")
    staged = begin(catalog, branch="audit").append([data_file("staged")]).commit(commit_id="run-1")
    begin(catalog).append([data_file("again")]).commit(commit_id="run-1")
    with pytest.raises(ValidationConflictError, match="part of branch main already"):
        begin(catalog).cherry_pick(staged.snapshot.snapshot_id).commit()
    assert files(catalog) == ["again", "one"]


def test_a_file_that_both_branches_took_in_is_not_picked(catalog):
    append(catalog, "one")
    outside = data_file("outside")
    staged = begin(catalog, branch="audit").append([outside], must_be_new=True).commit()
    begin(catalog).append([outside], must_be_new=True).commit()
    with pytest.raises(ValidationConflictError, match="would count twice"):
        begin(catalog).cherry_pick(staged.snapshot.snapshot_id).commit()
    assert files(catalog) == ["one", "outside"]


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("compacted", [False, True])
def test_what_may_be_in_the_expired_history_of_the_branch_is_not_picked(catalog, at, compacted):
    """A tag keeps the snapshot; which branch it was part of is forgotten."""
    made = [append(catalog, name).snapshot.snapshot_id for name in ("one", "two", "three", "four")]
    begin(catalog).create_tag("kept", made[at]).commit()
    if compacted:
        rewritten = [data_file(name) for name in ("one", "two", "three", "four")]
        begin(catalog).rewrite_files(rewritten, [data_file("all", rows=40)]).commit()
    metadata = catalog.load(EVENTS).metadata
    kept = {made[at], metadata.current_snapshot_id}
    begin(catalog).expire([one for one in metadata.snapshots.ids() if one not in kept]).commit()
    before = files(catalog)
    with pytest.raises(ValidationConflictError, match="part of branch main already"):
        begin(catalog).cherry_pick(made[at]).commit()
    assert files(catalog) == before


def test_what_was_made_after_the_expired_history_is_picked(catalog):
    one, two = (append(catalog, name).snapshot.snapshot_id for name in ("one", "two"))
    begin(catalog).create_branch("audit", one).commit()
    staged = append(catalog, "staged", branch="audit").snapshot.snapshot_id
    begin(catalog).expire([one]).commit()
    assert catalog.load(EVENTS).metadata.snapshot(two).parent_snapshot_id == one
    begin(catalog).cherry_pick(staged).commit()
    assert files(catalog) == ["one", "staged", "two"]


def staged_replacement(catalog):
    """`new` replaces `one` of partition a on a branch, by a dynamic overwrite.

    main has `one`, and `two` of partition b.
    """
    append(catalog, "one")
    base = append(catalog, "two", partition="b").version
    replaced = begin(catalog, decided_on=base, branch="audit").overwrite(
        [data_file("new")], [data_file("one")]
    )
    return replaced.commit({"replace-partitions": "true"}).snapshot


def test_cherry_pick_of_replaced_partitions(catalog):
    picked = staged_replacement(catalog)
    append(catalog, "three", partition="b")
    made = begin(catalog).cherry_pick(picked.snapshot_id).commit().snapshot
    assert files(catalog) == ["new", "three", "two"]
    assert (made.operation, made.summary["source-snapshot-id"]) == (
        "overwrite",
        str(picked.snapshot_id),
    )
    assert (
        made.summary["added-records"],
        made.summary["deleted-records"],
        made.summary["total-records"],
    ) == ("10", "10", "30")
    with pytest.raises(ValidationConflictError, match="part of branch main already"):
        begin(catalog).cherry_pick(picked.snapshot_id).commit()


@pytest.mark.parametrize("change", ["add", "delete", "remove", "rollback"])
def test_cherry_pick_of_partitions_that_changed_since(catalog, change):
    picked = staged_replacement(catalog)
    if change == "add":
        append(catalog, "late")
    elif change == "delete":
        begin(catalog).row_delta(delete_files=[delete_file("x", data_file("one"))]).commit()
    elif change == "remove":
        begin(catalog).delete_files([data_file("one")]).commit()
    else:
        first = next(iter(catalog.load(EVENTS).metadata.snapshots)).snapshot_id
        begin(catalog).rollback_to(first).commit()
        append(catalog, "other", partition="b")
    before = files(catalog)
    with pytest.raises(ValidationConflictError):
        begin(catalog).cherry_pick(picked.snapshot_id).commit()
    assert files(catalog) == before


def test_cherry_pick_of_another_overwrite_is_refused(catalog):
    append(catalog, "one")
    base = catalog.load(EVENTS)
    picked = (
        begin(catalog, decided_on=base, branch="audit")
        .overwrite([data_file("new")], [data_file("one")])
        .commit()
        .snapshot
    )
    append(catalog, "two", partition="b")
    with pytest.raises(ValidationConflictError, match="whole partitions"):
        begin(catalog).cherry_pick(picked.snapshot_id).commit()


def test_rollback_refuses_when_somebody_committed_meanwhile(catalog):
    first = append(catalog, "one").snapshot
    base = append(catalog, "two").version
    append(catalog, "three")
    with pytest.raises(ValidationConflictError, match="moved"):
        begin(catalog, decided_on=base).rollback_to(first.snapshot_id).commit()
    assert files(catalog) == ["one", "three", "two"]


def test_expiry_refuses_a_snapshot_that_got_a_tag(catalog):
    first = append(catalog, "one").snapshot
    base = append(catalog, "two").version
    begin(catalog).create_tag("keep", first.snapshot_id).commit()
    with pytest.raises(ValidationConflictError, match="tag 'keep' names snapshot"):
        begin(catalog, decided_on=base).expire([first.snapshot_id]).commit()


def test_expiry_removes_snapshots(catalog):
    first = append(catalog, "one").snapshot
    append(catalog, "two")
    version = begin(catalog).expire([first.snapshot_id]).commit().version
    assert version.metadata.snapshots.ids() == [version.metadata.current_snapshot_id]
    assert files(catalog) == ["one", "two"]


def test_a_large_manifest_is_not_rewritten_for_a_few_small_ones(catalog):
    begin(catalog).set_properties({"commit.manifest.min-count-to-merge": "5"}).commit()
    many = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(600)]
    first = append(catalog, *many).snapshot
    storage = catalog.storage(catalog.warehouse)
    (large,) = [manifest.manifest_path for manifest in load_manifests(storage, first)]
    counts = []
    for number in range(60):
        snapshot = append(catalog, f"f{number:02}").snapshot
        manifests = load_manifests(storage, snapshot)
        assert large in [manifest.manifest_path for manifest in manifests]
        counts.append(len(manifests))
    assert max(counts) <= 6
    assert files(catalog) == sorted([*many, *(f"f{number:02}" for number in range(60))])


class Watched:
    """A catalog that notes files read and written while somebody has the table's turn."""

    def __init__(self, inner):
        self._inner, self.in_turn, self.noted = inner, False, []

    def __getattr__(self, name):
        return getattr(self._inner, name)

    @contextmanager
    def turn(self, identifier):
        with self._inner.turn(identifier):
            self.in_turn = True
            yield
            self.in_turn = False

    def storage(self, location):
        return WatchedStorage(self._inner.storage(location), self)


class WatchedStorage:
    def __init__(self, inner, watched):
        self._inner, self._watched = inner, watched

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def read(self, location):
        self._watched.noted.append(("read", location, self._watched.in_turn))
        return self._inner.read(location)

    def write_new(self, files):
        self._watched.noted += [("write", location, self._watched.in_turn) for location in files]
        return self._inner.write_new(files)


def test_others_do_not_wait_while_a_rewrite_on_an_old_base_writes_its_manifests(catalog):
    base = append(catalog, "one", "two").version
    begin(catalog).delete_files([data_file("two")]).commit()
    late = append(catalog, "late", partition="b").snapshot
    (appended, *_) = load_manifests(catalog.storage(base.metadata.location), late)
    watched = Watched(catalog)
    transaction = Transaction(watched, EVENTS, decided_on=base)
    transaction.rewrite_files([data_file("one")], [data_file("all")]).commit()
    assert files(catalog) == ["all", "late"]
    held = [
        (verb, location)
        for verb, location, in_turn in watched.noted
        if in_turn and "-m" in location
    ]
    assert held == [], "manifests are read and written before the turn"
    assert appended.manifest_path not in [location for _, location, _ in watched.noted]
    assert any(verb == "write" and in_turn for verb, _, in_turn in watched.noted), (
        "the manifest list is"
    )


def test_rewrite_manifests_keeps_concurrent_appends(catalog):
    for name in ("one", "two", "three"):
        append(catalog, name)
    base = catalog.load(EVENTS)
    append(catalog, "late")
    committed = begin(catalog, decided_on=base).rewrite_manifests().commit()
    assert files(catalog) == ["late", "one", "three", "two"]
    assert committed.snapshot.summary["manifests-replaced"] == "3"
    assert committed.snapshot.summary["entries-processed"] == "3"
    assert len(load_manifests(catalog.storage(base.metadata.location), committed.snapshot)) == 2


def test_manifests_are_merged_when_they_pile_up(catalog):
    begin(catalog).set_properties({"commit.manifest.min-count-to-merge": "5"}).commit()
    for number in range(23):
        append(catalog, f"f{number:02}")
    snapshot = catalog.load(EVENTS).metadata.current_snapshot()
    manifests = load_manifests(catalog.storage(catalog.warehouse), snapshot)
    assert len(manifests) < 6
    assert files(catalog) == [f"f{number:02}" for number in range(23)]
    assert min(manifest.min_sequence_number for manifest in manifests) == 1


def test_manifests_roll_at_the_target_size(catalog):
    """The first 2,000 files tell how large an entry is; what follows is cut to the target."""
    target = 16_384
    begin(catalog).set_properties({"commit.manifest.target-size-bytes": str(target)}).commit()
    names = [f"{number:05}-{uuid.UUID(int=number**5 * 7919)}" for number in range(5000)]
    append(catalog, *names)
    manifests = load_manifests(
        catalog.storage(catalog.warehouse), catalog.load(EVENTS).metadata.current_snapshot()
    )
    assert manifests[0].added_files_count == 2000
    assert sum(manifest.added_files_count for manifest in manifests) == 5000
    assert len(manifests) > 4
    assert all(
        0.5 * target < manifest.manifest_length < 1.5 * target for manifest in manifests[1:-1]
    )
    assert files(catalog) == sorted(names)


def test_v3_assigns_row_ids(catalog):
    from lakehouse.spec.identifier import Identifier

    name = Identifier.parse("raw.v3")
    create_table(catalog, name, version=3)
    Transaction(catalog, name).append([data_file("one", rows=10)]).commit()
    committed = Transaction(catalog, name).append([data_file("two", rows=5)]).commit()
    assert (committed.snapshot.first_row_id, committed.snapshot.added_rows) == (10, 5)
    assert committed.version.metadata.next_row_id == 15


def test_a_schema_change_made_for_an_older_version_is_refused(catalog):
    from lakehouse.spec.metadata.table_updates import AssertLastAssignedFieldId

    base = catalog.load(EVENTS)
    with pytest.raises(ValidationConflictError, match="older version"):
        begin(catalog, decided_on=base).update(
            [SetProperties({"a": "b"})], [AssertLastAssignedFieldId(99)]
        ).commit()


def test_files_named_twice_are_refused(catalog):
    with pytest.raises(InvalidInputError, match="twice"):
        begin(catalog).append([data_file("one"), data_file("one")])


def test_backoff_spreads_and_ends():
    backoff = Backoff(retries_max=3, wait_ms_min=100, wait_ms_max=250, total_ms_max=10_000)
    assert [backoff.wait_ms(retry, 0.5) for retry in (1, 2, 3)] == [50, 100, 125]
    environment = Environment.seeded(1)
    started = environment.now_ms()
    assert backoff.pause(3, started, environment)
    assert not backoff.pause(4, started, environment)
    assert not backoff.pause(1, started - 20_000, environment)


def test_appends_are_retried_until_the_total_time_unless_limited():
    assert commit_backoff(TableProperties({}), never_conflicts=True).retries_max > 1000
    assert commit_backoff(TableProperties({}), never_conflicts=False).retries_max == 4
    assert (
        commit_backoff(
            TableProperties({"commit.retry.num-retries": "2"}), never_conflicts=True
        ).retries_max
        == 2
    )
