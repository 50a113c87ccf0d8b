"""Merges small manifests while committing, to bound their number (`commit.manifest.*`)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import pyarrow.compute as pc

from lakehouse.spec.manifests.data_file import STATUS_ADDED, STATUS_DELETED, STATUS_EXISTING
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.transaction.attempt.manifest_groups import Grouping
from lakehouse.transaction.attempt.removed_files import with_column
from lakehouse.transaction.attempt.uncommitted_files import Workspace


def merge_manifests(
    workspace: Workspace,
    metadata: TableMetadata,
    manifests: Sequence[ManifestFile],
    *,
    snapshot_id: int,
) -> list[ManifestFile]:
    """The same live entries in fewer manifests.

    Manifests that may share one (`Grouping`) are packed, newest first, into bins of the target
    size. A bin of several is merged once it holds `commit.manifest.min-count-to-merge` manifests,
    or is full. Manifests of this commit are left as they are until then, so that most commits merge
    nothing. Of a bin that is not full, a manifest larger than the rest together is left as it is:
    an append would rewrite what was listed long ago, each time that a hundred small ones have piled
    up.
    """
    properties = TableProperties(metadata.properties)
    target, least = properties.manifest_target_size_bytes, properties.manifest_min_count_to_merge
    grouping = Grouping(metadata)
    merged: list[ManifestFile] = []
    groups: dict[Hashable, list[ManifestFile]] = {}
    for manifest in manifests:
        groups.setdefault(grouping.group(manifest), []).append(manifest)
    for members in groups.values():
        for members_of_bin, full in _bins(members, target):
            if len(members_of_bin) < 2 or (len(members_of_bin) < least and not full):
                merged.extend(members_of_bin)
            else:
                small, large = (members_of_bin, []) if full else _apart(members_of_bin)
                merged.append(_merge(workspace, metadata, small, snapshot_id))
                merged.extend(large)
    return merged


def _apart(members: Sequence[ManifestFile]) -> tuple[list[ManifestFile], list[ManifestFile]]:
    """(manifests to merge, manifests to keep), each in the order given.

    Kept are those that are each larger than all smaller ones together.
    """
    by_size = sorted(members, key=lambda one: one.manifest_length)
    total = sum(one.manifest_length for one in by_size)
    while len(by_size) > 2 and by_size[-1].manifest_length > total - by_size[-1].manifest_length:
        total -= by_size.pop().manifest_length
    chosen = {one.manifest_path for one in by_size}
    return [one for one in members if one.manifest_path in chosen], [
        one for one in members if one.manifest_path not in chosen
    ]


def _bins(manifests: Sequence[ManifestFile], target: int) -> list[tuple[list[ManifestFile], bool]]:
    """(manifests, whether the bin is full); large manifests are bins of their own."""
    bins: list[tuple[list[ManifestFile], bool]] = []
    current: list[ManifestFile] = []
    size = 0
    for manifest in manifests:
        if manifest.manifest_length * 4 >= target * 3:
            bins.append(([manifest], True))
            continue
        if current and size + manifest.manifest_length > target:
            bins.append((current, True))
            current, size = [], 0
        current.append(manifest)
        size += manifest.manifest_length
    if current:
        bins.append((current, False))
    return bins


def _merge(
    workspace: Workspace, metadata: TableMetadata, members: list[ManifestFile], snapshot_id: int
) -> ManifestFile:
    key = ("merged", snapshot_id, tuple(one.manifest_path for one in members))

    def write() -> ManifestFile:
        parts = [_carried(one, snapshot_id) for one in workspace.entries_of_all(members, metadata)]
        return workspace.write_manifest(
            Entries.concat(parts), metadata, content=members[0].content, snapshot_id=snapshot_id
        )

    return workspace.once(key, write)


def _carried(entries: Entries, snapshot_id: int) -> Entries:
    """Entries that go on: live ones as existing, this snapshot's own as they are."""
    own = pc.equal(entries.table["snapshot_id"], snapshot_id)
    status = entries.table["status"]
    entries = with_column(
        entries,
        "status",
        pc.if_else(
            pc.and_(pc.equal(status, STATUS_ADDED), pc.invert(own)), STATUS_EXISTING, status
        ),
    )
    keep = pc.or_(pc.not_equal(status, STATUS_DELETED), own)
    return entries.filter(keep)
