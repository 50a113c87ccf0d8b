"""What expiry deletes, over random graphs of snapshots, refs and files, by brute force."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.errors import NoSuchFileError, StorageError
from lakehouse.maintenance.reachability.location_keys import LocationKeys
from lakehouse.maintenance.reachability.reachable_files import (
    FileKind,
    LiveFile,
    reachable_keys,
    statistics_locations,
    unreachable_files,
)
from lakehouse.maintenance.retention.retention_rules import decide_retention
from lakehouse.spec.manifests.columnar_manifest import columnar_path
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.snapshot import SnapshotRef
from tests.unit.maintenance.graphs import metadata_of, snapshot

NOW = 1_000_000


class FakeWalker:
    """A metadata tree in memory; reading `broken` locations fails, `gone` ones do not exist."""

    def __init__(self, manifests, files):
        self.by_snapshot = manifests
        self.by_manifest = files
        self.broken = set()
        self.gone = set()

    def _check(self, location):
        if location in self.broken:
            raise StorageError(f"EIO {location}")
        if location in self.gone:
            raise NoSuchFileError(location)

    def manifests(self, one):
        self._check(one.manifest_list)
        return [
            ManifestFile(manifest_path=path, manifest_length=7, partition_spec_id=0)
            for path in self.by_snapshot[one.snapshot_id]
        ]

    def live_files(self, manifest):
        self._check(manifest.manifest_path)
        return [
            LiveFile(path, content, 10)
            for path, content in self.by_manifest[manifest.manifest_path]
        ]


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 12))
    snapshots = []
    for number in range(1, count + 1):
        parent = draw(st.one_of(st.none(), st.integers(1, number - 1))) if number > 1 else None
        snapshots.append(snapshot(number, parent, at=draw(st.integers(1, NOW))))
    refs = {"main": SnapshotRef(draw(st.integers(1, count)))}
    for name in draw(st.sets(st.sampled_from("abcd"))):
        target = draw(st.integers(1, count))
        if draw(st.booleans()):
            refs[name] = SnapshotRef(
                target, "tag", max_ref_age_ms=draw(st.none() | st.integers(1, NOW))
            )
        else:
            refs[name] = SnapshotRef(
                target,
                "branch",
                draw(st.none() | st.integers(1, 4)),
                draw(st.none() | st.integers(1, NOW)),
                draw(st.none() | st.integers(1, NOW)),
            )
    manifests = [f"/t/metadata/m{number}.avro" for number in range(draw(st.integers(1, 10)))]
    files = [(f"/t/data/f{number}.parquet", number // 9) for number in range(12)]
    by_manifest = {path: draw(st.lists(st.sampled_from(files), max_size=5)) for path in manifests}
    by_snapshot = {
        one.snapshot_id: draw(st.lists(st.sampled_from(manifests), unique=True, max_size=5))
        for one in snapshots
    }
    statistics = tuple(
        {
            "snapshot-id": one,
            "statistics-path": f"/t/metadata/s{draw(st.integers(0, 3))}.stats",
            "file-size-in-bytes": 3,
        }
        for one in draw(st.sets(st.integers(1, count)))
    )
    metadata = dataclasses.replace(metadata_of(snapshots, refs), statistics=statistics)
    return metadata, FakeWalker(by_snapshot, by_manifest)


def reached_by(metadata, walker, snapshot_ids):
    found = set()
    for one in metadata.snapshots:
        if one.snapshot_id in snapshot_ids:
            found.add(one.manifest_list)
            for path in walker.by_snapshot[one.snapshot_id]:
                found |= {path, columnar_path(path)} | {
                    file for file, _ in walker.by_manifest[path]
                }
    return found | {
        record["statistics-path"]
        for record in metadata.statistics
        if record["snapshot-id"] in snapshot_ids
    }


def without(metadata, snapshot_ids):
    kept = [one for one in metadata.snapshots if one.snapshot_id not in snapshot_ids]
    refs = {name: ref for name, ref in metadata.refs.items() if ref.snapshot_id not in snapshot_ids}
    statistics = tuple(
        record for record in metadata.statistics if record["snapshot-id"] not in snapshot_ids
    )
    return dataclasses.replace(metadata_of(kept, refs), statistics=statistics)


def split(metadata, cut):
    expired = set(decide_retention(metadata, NOW, older_than_ms=cut).expired)
    return expired, {one.snapshot_id for one in metadata.snapshots} - expired


@given(graphs(), st.integers(1, NOW))
def test_exactly_the_unreachable_files_are_named(graph, cut):
    metadata, walker = graph
    expired, kept = split(metadata, cut)
    expected = reached_by(metadata, walker, expired) - reached_by(metadata, walker, kept)
    snapshots = [metadata.snapshot(one) for one in expired]
    statistics = statistics_locations(metadata, expired)
    after = unreachable_files(snapshots, statistics, without(metadata, expired), walker)
    before = unreachable_files(snapshots, statistics, metadata, walker, without=frozenset(expired))
    assert set(after.locations()) == expected
    assert set(before.locations()) == expected
    assert after.missing == ()
    kinds = [kind for kind in FileKind for _ in after.files.get(kind, {})]
    assert after.count == len(expected)
    assert kinds == sorted(kinds, key=list(FileKind).index)


@given(graphs(), st.integers(1, NOW), st.data())
def test_an_unreadable_kept_file_aborts_and_never_widens(graph, cut, data):
    metadata, walker = graph
    expired, kept = split(metadata, cut)
    needed = sorted(
        {metadata.snapshot(one).manifest_list for one in kept}
        | {path for one in kept for path in walker.by_snapshot[one]}
    )
    broken = data.draw(st.sampled_from(needed))
    walker.broken = {broken}
    expected = reached_by(metadata, walker, expired) - reached_by(metadata, walker, kept)
    try:
        found = unreachable_files(
            [metadata.snapshot(one) for one in expired], {}, without(metadata, expired), walker
        )
    except StorageError:
        return
    assert set(found.locations()) <= expected


@given(graphs(), st.integers(1, NOW), st.data())
def test_a_missing_expired_file_only_narrows(graph, cut, data):
    metadata, walker = graph
    expired, kept = split(metadata, cut)
    kept_files = reached_by(metadata, walker, kept)
    lonely = sorted(
        {metadata.snapshot(one).manifest_list for one in expired}
        | {path for one in expired for path in walker.by_snapshot[one]}
    )
    lonely = [path for path in lonely if path not in kept_files]
    if lonely:
        walker.gone = {data.draw(st.sampled_from(lonely))}
    found = unreachable_files(
        [metadata.snapshot(one) for one in expired], {}, without(metadata, expired), walker
    )
    assert set(found.locations()) <= reached_by(metadata, walker, expired) - kept_files
    assert set(found.missing) <= walker.gone


def test_a_missing_kept_manifest_list_aborts():
    metadata = metadata_of([snapshot(1), snapshot(2, 1)])
    walker = FakeWalker(
        {1: ["/t/metadata/m.avro"], 2: []}, {"/t/metadata/m.avro": [("/t/data/f", 0)]}
    )
    walker.gone = {metadata.snapshot(2).manifest_list}
    with pytest.raises(NoSuchFileError):
        unreachable_files([metadata.snapshot(1)], {}, without(metadata, {1}), walker)


def test_a_path_added_again_under_another_spelling_stays():
    metadata = metadata_of([snapshot(1), snapshot(2, 1)])
    walker = FakeWalker(
        {1: ["/t/metadata/m1.avro"], 2: ["file:///t/metadata/m2.avro"]},
        {
            "/t/metadata/m1.avro": [("/t/data/f", 0), ("/t/data/g", 0)],
            "file:///t/metadata/m2.avro": [("file:/t/data/f", 0)],
        },
    )
    found = unreachable_files([metadata.snapshot(1)], {}, without(metadata, {1}), walker)
    assert set(found.files[FileKind.DATA]) == {"/t/data/g"}


@given(graphs())
def test_reachable_keys_hold_every_snapshot_referenced_or_not(graph):
    metadata, walker = graph
    keys = LocationKeys()
    everything = reached_by(metadata, walker, {one.snapshot_id for one in metadata.snapshots}) | {
        "/t/metadata/v1.metadata.json"
    }
    assert reachable_keys(metadata, "/t/metadata/v1.metadata.json", walker, keys) == {
        keys.key(path) for path in everything
    }
