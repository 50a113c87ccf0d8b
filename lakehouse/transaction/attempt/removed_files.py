"""Removing files: rewriting the manifests that list them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, PrimitiveType, UUIDType

from lakehouse.spec.manifests.bounds_columns import decode_bounds
from lakehouse.spec.manifests.data_file import STATUS_DELETED, STATUS_EXISTING, DataFile
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import (
    CONTENT_DATA_MANIFEST,
    CONTENT_DELETE_MANIFEST,
    FieldSummary,
    ManifestFile,
)
from lakehouse.spec.metadata.all_field_types import types_of
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.types.physical_types import partition_types
from lakehouse.transaction.attempt.added_files import file_key
from lakehouse.transaction.attempt.uncommitted_files import Workspace

FileKey = tuple[str, int | None]
Partition = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Filtered:
    """Manifests after a removal.

    Attributes:
        manifests: in the order given; those that listed removed files replaced.
        found: removed files, as the manifests know them.
        missing: keys of files that were not live.
    """

    manifests: list[ManifestFile]
    found: list[DataFile]
    missing: set[FileKey]


def remove_files(
    workspace: Workspace,
    metadata: TableMetadata,
    manifests: Sequence[ManifestFile],
    removed: Iterable[DataFile],
    *,
    snapshot_id: int,
) -> Filtered:
    """Mark files as deleted. A manifest is rewritten once, also over several attempts."""
    listed = list(removed)
    wanted = _by_manifest_kind(listed)
    partitions: dict[int, set[Partition]] = {}
    for file in listed:
        partitions.setdefault(file.spec_id, set()).add(file.partition)
    kept: list[ManifestFile] = []
    found: list[DataFile] = []
    for manifest in manifests:
        keys = wanted.get((manifest.content, manifest.partition_spec_id))
        if (
            not keys
            or not has_live(manifest)
            or not may_hold(manifest, metadata, partitions[manifest.partition_spec_id])
        ):
            kept.append(manifest)
            continue
        cache: Hashable = ("filtered", snapshot_id, manifest.manifest_path, frozenset(keys))
        replaced, files = workspace.once(
            cache, partial(_filter, workspace, metadata, manifest, keys, snapshot_id)
        )
        kept.append(replaced)
        found.extend(files)
    missing = set().union(*wanted.values()) - {file_key(file) for file in found}
    return Filtered(kept, found, missing)


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


def live(entries: Entries) -> Entries:
    """The entries that are not deleted."""
    return entries.filter(pc.not_equal(entries.table["status"], STATUS_DELETED))


def with_column(entries: Entries, name: str, values: pa.Array | pa.ChunkedArray) -> Entries:
    """Entries with one column replaced."""
    position = entries.table.column_names.index(name)
    kind = entries.table.schema.field(name).type
    return Entries(entries.table.set_column(position, name, values.cast(kind)), entries.spec)


def as_existing(entries: Entries) -> Entries:
    """Entries that the snapshot keeps."""
    return with_column(entries, "status", pa.array([STATUS_EXISTING] * len(entries), pa.int32()))


def _filter(
    workspace: Workspace,
    metadata: TableMetadata,
    manifest: ManifestFile,
    keys: set[FileKey],
    snapshot_id: int,
) -> tuple[ManifestFile, list[DataFile]]:
    entries = live(workspace.entries(manifest, metadata))
    hit = _matches(entries, keys)
    if not pc.any(hit).as_py():
        return manifest, []
    files = entries.filter(hit).to_data_files()
    status = pc.if_else(hit, STATUS_DELETED, STATUS_EXISTING)
    owner = pc.if_else(hit, pa.scalar(snapshot_id, pa.int64()), entries.table["snapshot_id"])
    changed = with_column(with_column(entries, "status", status), "snapshot_id", owner)
    return workspace.write_manifest(
        changed, metadata, content=manifest.content, snapshot_id=snapshot_id
    ), files


def _matches(entries: Entries, keys: set[FileKey]) -> pa.ChunkedArray:
    paths = pa.array(sorted({path for path, _ in keys}), pa.string())
    hit = pc.is_in(entries.table["file_path"], value_set=paths)
    if (
        all(offset is None for _, offset in keys)
        or "content_offset" not in entries.table.column_names
    ):
        return hit
    found = zip(
        entries.table["file_path"].to_pylist(),
        entries.table["content_offset"].to_pylist(),
        strict=True,
    )
    return pa.chunked_array([pa.array([pair in keys for pair in found], pa.bool_())])


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


def has_live(manifest: ManifestFile) -> bool:
    """Whether a manifest lists any file that is not deleted; true where its counts are unknown."""
    return manifest.added_files_count != 0 or manifest.existing_files_count != 0


def _by_manifest_kind(removed: Iterable[DataFile]) -> Mapping[tuple[int, int], set[FileKey]]:
    wanted: dict[tuple[int, int], set[FileKey]] = {}
    for file in removed:
        content = CONTENT_DATA_MANIFEST if file.content == 0 else CONTENT_DELETE_MANIFEST
        wanted.setdefault((content, file.spec_id), set()).add(file_key(file))
    return wanted
