from __future__ import annotations

import pytest

from lakehouse.errors import InvalidPropertyError, MaintenanceRefusedError, NoSuchSnapshotError
from lakehouse.maintenance.retention.retention_rules import decide_retention
from lakehouse.spec.metadata.snapshot import SnapshotRef
from tests.unit.maintenance.graphs import line, metadata_of, snapshot

DAY = 24 * 3600 * 1000


def expired(metadata, now_ms=100_000, **options):
    return set(decide_retention(metadata, now_ms, **options).expired)


def test_a_table_without_snapshots_keeps_nothing_and_expires_nothing():
    decision = decide_retention(metadata_of([]), 1000, older_than_ms=1000)
    assert (decision.expired, decision.expired_refs, decision.kept) == ({}, {}, frozenset())


def test_age_expires_all_but_the_head():
    assert expired(metadata_of(line(5)), older_than_ms=100_000) == {1, 2, 3, 4}


def test_a_snapshot_exactly_at_the_cut_stays():
    assert expired(metadata_of(line(5)), older_than_ms=3000) == {1, 2}


def test_count_keeps_the_newest_of_the_branch():
    assert expired(metadata_of(line(5)), older_than_ms=100_000, retain_last=3) == {1, 2}


def test_defaults_are_five_days_and_one_snapshot():
    metadata = metadata_of(line(3))
    assert expired(metadata, now_ms=2000 + 5 * DAY) == {1}
    assert expired(metadata, now_ms=3000 + 6 * DAY) == {1, 2}
    assert expired(metadata, now_ms=3000) == set()


def test_properties_of_the_table_replace_the_defaults():
    properties = {
        "history.expire.max-snapshot-age-ms": "1500",
        "history.expire.min-snapshots-to-keep": "2",
    }
    assert expired(metadata_of(line(5), properties=properties), now_ms=5000) == {1, 2, 3}


def test_options_replace_the_properties():
    properties = {
        "history.expire.max-snapshot-age-ms": "1",
        "history.expire.min-snapshots-to-keep": "1",
    }
    assert expired(
        metadata_of(line(5), properties=properties), older_than_ms=2000, retain_last=1
    ) == {1}


@pytest.mark.parametrize("value", ["0", "-1", "soon", ""])
def test_a_property_that_is_no_positive_integer_is_an_error(value):
    with pytest.raises(InvalidPropertyError, match="max-snapshot-age-ms"):
        expired(metadata_of(line(2), properties={"history.expire.max-snapshot-age-ms": value}))


def test_a_branch_has_its_own_retention():
    snapshots = [*line(3), snapshot(11, 1), snapshot(12, 11), snapshot(13, 12)]
    refs = {
        "main": SnapshotRef(3),
        "audit": SnapshotRef(13, "branch", min_snapshots_to_keep=2, max_snapshot_age_ms=1),
    }
    assert expired(metadata_of(snapshots, refs), older_than_ms=1, now_ms=100_000) == {11}


def test_a_snapshot_needed_by_any_branch_stays():
    snapshots = [*line(3), snapshot(11, 1)]
    refs = {"main": SnapshotRef(3), "audit": SnapshotRef(11, "branch", min_snapshots_to_keep=2)}
    assert expired(metadata_of(snapshots, refs), older_than_ms=100_000) == {2}


def test_a_tag_keeps_its_snapshot_and_not_its_ancestors():
    refs = {"main": SnapshotRef(5), "q3": SnapshotRef(2, "tag")}
    assert expired(metadata_of(line(5), refs), older_than_ms=100_000) == {1, 3, 4}


def test_refs_beyond_their_age_go_and_main_never_does():
    refs = {
        "main": SnapshotRef(5, max_ref_age_ms=1),
        "old": SnapshotRef(1, "tag", max_ref_age_ms=1000),
        "young": SnapshotRef(2, "tag", max_ref_age_ms=1_000_000),
    }
    decision = decide_retention(metadata_of(line(5), refs), 100_000, older_than_ms=100_000)
    assert set(decision.expired_refs) == {"old"}
    assert set(decision.expired) == {1, 3, 4}


def test_the_table_property_sets_the_age_of_refs_without_their_own():
    refs = {"main": SnapshotRef(5), "old": SnapshotRef(1, "tag")}
    metadata = metadata_of(line(5), refs, {"history.expire.max-ref-age-ms": "1000"})
    assert set(decide_retention(metadata, 100_000, older_than_ms=1).expired_refs) == {"old"}


def test_a_ref_to_a_snapshot_that_is_gone_goes():
    refs = {"main": SnapshotRef(2), "broken": SnapshotRef(77, "tag")}
    assert set(
        decide_retention(metadata_of(line(2), refs), 5000, older_than_ms=1).expired_refs
    ) == {"broken"}


def test_unreferenced_snapshots_go_by_age_alone():
    snapshots = [*line(3), snapshot(21, 1, at=500), snapshot(22, 1, at=99_000)]
    refs = {"main": SnapshotRef(3)}
    assert expired(metadata_of(snapshots, refs), older_than_ms=2500) == {1, 2, 21}


def test_after_a_rollback_the_abandoned_snapshots_go_by_age():
    refs = {"main": SnapshotRef(2)}
    assert expired(metadata_of(line(4), refs), older_than_ms=3500, retain_last=10) == {3}


def test_clock_skew_does_not_tear_a_hole_into_a_branch():
    snapshots = [snapshot(1, at=9000), snapshot(2, 1, at=1000), snapshot(3, 2, at=9500)]
    assert expired(metadata_of(snapshots), older_than_ms=5000) == {1, 2}


def test_explicit_ids_go_whatever_their_age():
    assert expired(metadata_of(line(5)), older_than_ms=1, snapshot_ids=(3,)) == {3}


def test_an_explicit_id_that_a_ref_names_is_refused():
    refs = {"main": SnapshotRef(5), "q3": SnapshotRef(2, "tag")}
    with pytest.raises(MaintenanceRefusedError, match="q3"):
        expired(metadata_of(line(5), refs), snapshot_ids=(2,))


def test_an_unknown_explicit_id_is_an_error():
    with pytest.raises(NoSuchSnapshotError, match="99"):
        expired(metadata_of(line(5)), snapshot_ids=(99,))
