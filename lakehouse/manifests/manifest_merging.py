"""Which small manifests a commit merges, and which manifests may share a file."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import pyarrow as pa
from pyiceberg.types import UUIDType

from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.manifests.manifest_list import FieldSummary, ManifestFile
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.types.arrow_types import partition_types
from lakehouse.spec.types.internal_values import order_classes


class Grouping:
    """Which manifests of a table may be merged: those of one content, spec and order of UUIDs.

    Args:
        metadata: knows the specs and their types.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        types = types_of(metadata)
        self._uuids: dict[int, list[bool]] = {}
        for spec_id, spec in metadata.specs().items():
            kinds = partition_types(spec, types)
            self._uuids[spec_id] = [
                isinstance(kinds[field.field_id], UUIDType) for field in spec.fields
            ]

    def group(self, manifest: ManifestFile) -> tuple[int, int, Hashable]:
        """Content, spec id and class of each UUID field; None where UUIDs are mixed or unknown.

        Raises:
            CorruptMetadataError: the table has no such partition spec.
        """
        uuids = self._uuids.get(manifest.partition_spec_id)
        if uuids is None:
            path = manifest.manifest_path
            raise CorruptMetadataError(
                f"{path} has the partition spec {manifest.partition_spec_id}, which the table does "
                "not know",
                location=path,
            )
        summaries = manifest.partitions or ()
        classes: Hashable = ()
        if any(uuids):
            known = zip(summaries, uuids, strict=False)
            classes = tuple(_class(summary) for summary, is_uuid in known if is_uuid) or None
        return manifest.content, manifest.partition_spec_id, classes


def _class(summary: FieldSummary) -> int | None:
    bounds = [bound for bound in (summary.lower_bound, summary.upper_bound) if bound is not None]
    classes = set(order_classes(pa.array(bounds, pa.binary(16))).tolist())
    return classes.pop() if len(classes) == 1 else None


def plan_merges(
    metadata: TableMetadata, manifests: Sequence[ManifestFile]
) -> list[list[ManifestFile]]:
    """Which manifests a commit merges, to bound their number (`commit.manifest.*`).

    Returns, in the order of the snapshot's list, several manifests that are merged into one, or one
    that is listed as it is.

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
    groups: dict[Hashable, list[ManifestFile]] = {}
    for manifest in manifests:
        groups.setdefault(grouping.group(manifest), []).append(manifest)
    steps: list[list[ManifestFile]] = []
    for members in groups.values():
        for members_of_bin, full in _bins(members, target):
            if len(members_of_bin) < 2 or (len(members_of_bin) < least and not full):
                steps.extend([manifest] for manifest in members_of_bin)
            else:
                small, large = (members_of_bin, []) if full else _apart(members_of_bin)
                steps.append(small)
                steps.extend([manifest] for manifest in large)
    return steps


def _apart(members: Sequence[ManifestFile]) -> tuple[list[ManifestFile], list[ManifestFile]]:
    """(manifests to merge, manifests to keep), each in the order given.

    Kept are those that are each larger than all smaller ones together.
    """
    by_size = sorted(members, key=lambda manifest: manifest.manifest_length)
    total = sum(manifest.manifest_length for manifest in by_size)
    while len(by_size) > 2 and by_size[-1].manifest_length > total - by_size[-1].manifest_length:
        total -= by_size.pop().manifest_length
    chosen = {manifest.manifest_path for manifest in by_size}
    return (
        [manifest for manifest in members if manifest.manifest_path in chosen],
        [manifest for manifest in members if manifest.manifest_path not in chosen],
    )


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
