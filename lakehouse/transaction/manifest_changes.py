"""What a commit does to manifests, as pure functions of their entries and list rows.

Which manifests can list a file, which entries go on in the next snapshot, which manifests may share
a file with others, and which of them are small enough to be merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, PrimitiveType, UUIDType

from lakehouse.errors import CorruptMetadataError, InvalidInputError
from lakehouse.manifests.manifest_writer import manifest_content
from lakehouse.spec.manifests.bounds_columns import decode_bounds, order_classes
from lakehouse.spec.manifests.data_file import (
    STATUS_ADDED,
    STATUS_DELETED,
    STATUS_EXISTING,
    DataFile,
)
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import (
    FieldSummary,
    ManifestFile,
)
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.types.arrow_types import partition_types

FileKey = tuple[str, int | None]
Partition = tuple[Any, ...]


def file_key(file: DataFile) -> FileKey:
    """What identifies a file in a table: its path, and its offset.

    Several deletion vectors share one path and differ by offset.
    """
    return (file.file_path, file.content_offset)


def checked(files: Iterable[DataFile], what: str) -> tuple[DataFile, ...]:
    """The files, if none is named twice; raises InvalidInputError."""
    listed = tuple(files)
    counted = Counter(map(file_key, listed))
    if len(counted) != len(listed):
        twice = next(file for file in listed if counted[file_key(file)] > 1)
        raise InvalidInputError(f"{what} name {twice.file_path} twice.", file=twice.file_path)
    return listed


def keys_by_kind(files: Iterable[DataFile]) -> Mapping[tuple[int, int], set[FileKey]]:
    """The keys of files by the content and the spec id of the manifests that can list them."""
    keys: dict[tuple[int, int], set[FileKey]] = {}
    for file in files:
        keys.setdefault((manifest_content(file), file.spec_id), set()).add(file_key(file))
    return keys


def has_live(manifest: ManifestFile) -> bool:
    """Whether a manifest lists any file that is not deleted; true where its counts are unknown."""
    return manifest.added_files_count != 0 or manifest.existing_files_count != 0


def may_hold(manifest: ManifestFile, metadata: TableMetadata, partitions: set[Partition]) -> bool:
    """Whether a manifest can list files of one of the partitions, by its partition summaries."""
    if manifest.partitions is None:
        return True
    spec = metadata.spec(manifest.partition_spec_id)
    kinds = partition_types(spec, types_of(metadata))
    if len(spec.fields) != len(manifest.partitions):
        return True
    ranges = [
        _range(summary, kinds.get(field.field_id))
        for field, summary in zip(spec.fields, manifest.partitions, strict=True)
    ]
    return any(
        all(holds(value) for holds, value in zip(ranges, partition, strict=True))
        for partition in partitions
    )


def _range(summary: FieldSummary, kind: IcebergType | None) -> Callable[[Any], bool]:
    """Whether a partition value can be in a manifest with this summary; true when in doubt."""
    # engines disagree on the order of UUIDs
    if not isinstance(kind, PrimitiveType) or isinstance(kind, UUIDType):
        return lambda _: True
    ends = pa.array([summary.lower_bound, summary.upper_bound], pa.binary())
    lower, upper = decode_bounds(ends, kind).to_pylist()
    known = lower is not None and upper is not None and lower <= upper

    def holds(value: Any) -> bool:
        if value is None:
            return summary.contains_null
        if isinstance(value, float) and value != value:
            return summary.contains_nan is not False
        return not known or bool(lower <= value <= upper)

    return holds


# Entries of the next snapshot


def live(entries: Entries) -> Entries:
    """The entries that are not deleted."""
    return entries.filter(pc.not_equal(entries.table["status"], STATUS_DELETED))


def as_existing(entries: Entries) -> Entries:
    """Entries that the snapshot keeps."""
    return _with_column(entries, "status", pa.array([STATUS_EXISTING] * len(entries), pa.int32()))


def mark_deleted(
    entries: Entries, keys: set[FileKey], snapshot_id: int
) -> tuple[Entries, list[DataFile]]:
    """Live entries with the files of these keys deleted by a snapshot, and these files."""
    hit = _matches(entries, keys)
    if not pc.any(hit).as_py():
        return entries, []
    files = entries.filter(hit).to_data_files()
    status = pc.if_else(hit, STATUS_DELETED, STATUS_EXISTING)
    owner = pc.if_else(hit, pa.scalar(snapshot_id, pa.int64()), entries.table["snapshot_id"])
    return _with_column(_with_column(entries, "status", status), "snapshot_id", owner), files


def _matches(entries: Entries, keys: set[FileKey]) -> pa.ChunkedArray:
    paths = pa.array(sorted({path for path, _ in keys}), pa.string())
    hit = pc.is_in(entries.table["file_path"], value_set=paths)
    if (
        all(offset is None for _, offset in keys)
        or "content_offset" not in entries.table.column_names
    ):
        return hit
    pairs = zip(
        entries.table["file_path"].to_pylist(),
        entries.table["content_offset"].to_pylist(),
        strict=True,
    )
    return pa.chunked_array([pa.array([pair in keys for pair in pairs], pa.bool_())])


def carried(entries: Entries, snapshot_id: int) -> Entries:
    """Entries that go on: live ones as existing, the snapshot's own as they are."""
    own = pc.equal(entries.table["snapshot_id"], snapshot_id)
    status = entries.table["status"]
    is_others = pc.and_(pc.equal(status, STATUS_ADDED), pc.invert(own))
    entries = _with_column(entries, "status", pc.if_else(is_others, STATUS_EXISTING, status))
    return entries.filter(pc.or_(pc.not_equal(status, STATUS_DELETED), own))


def _with_column(entries: Entries, name: str, values: pa.Array | pa.ChunkedArray) -> Entries:
    position = entries.table.column_names.index(name)
    kind = entries.table.schema.field(name).type
    return Entries(entries.table.set_column(position, name, values.cast(kind)), entries.spec)


# Manifests that may share a file


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
