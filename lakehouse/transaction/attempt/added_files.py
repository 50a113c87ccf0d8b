"""New files as new manifests: written once, whatever the base."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from lakehouse.errors import InvalidInputError
from lakehouse.spec.manifests.data_file import CONTENT_DATA, STATUS_ADDED, DataFile, ManifestEntry
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import (
    CONTENT_DATA_MANIFEST,
    CONTENT_DELETE_MANIFEST,
    ManifestFile,
)
from lakehouse.spec.metadata.all_field_types import types_of
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.transaction.attempt.manifest_groups import split_by_order
from lakehouse.transaction.attempt.uncommitted_files import Workspace

_SAMPLE_FILES = 2_000
_LEAST_FILES = 100


def file_key(file: DataFile) -> tuple[str, int | None]:
    """What identifies a file in a table: its path, and its offset.

    Several deletion vectors share one path and differ by offset.
    """
    return (file.file_path, file.content_offset)


def checked(files: Iterable[DataFile], what: str) -> tuple[DataFile, ...]:
    """The files, if none is named twice; raises InvalidInputError."""
    listed = tuple(files)
    keys = {file_key(file) for file in listed}
    if len(keys) != len(listed):
        counted = Counter(file_key(file) for file in listed)
        twice = next(file for file in listed if counted[file_key(file)] > 1)
        raise InvalidInputError(f"{what} name {twice.file_path} twice.", file=twice.file_path)
    return listed


def write_added(
    workspace: Workspace,
    metadata: TableMetadata,
    files: Sequence[DataFile],
    *,
    snapshot_id: int,
    data_sequence_number: int | None = None,
    inherits_snapshot: bool = False,
) -> list[ManifestFile]:
    """Write manifests of new files, by partition spec and content, of about the target size.

    Args:
        workspace: writes them.
        metadata: knows the files' partition specs.
        files: data files, delete files or both.
        snapshot_id: of the snapshot that adds them.
        data_sequence_number: for data files that replace older ones; None: inherited from the
            commit.
        inherits_snapshot: whether entries leave out the snapshot, which whoever lists the manifest
            may then choose (spec: Snapshot ID Inheritance).
    """
    types = types_of(metadata)
    groups: dict[tuple[int, int], list[DataFile]] = {}
    for file in files:
        content = CONTENT_DATA_MANIFEST if file.content == CONTENT_DATA else CONTENT_DELETE_MANIFEST
        groups.setdefault((content, file.spec_id), []).append(file)
    manifests: list[ManifestFile] = []
    for (content, spec_id), members in groups.items():
        spec = metadata.spec(spec_id)
        sequence_number = data_sequence_number if content == CONTENT_DATA_MANIFEST else None
        rows = [
            ManifestEntry(
                status=STATUS_ADDED,
                snapshot_id=None if inherits_snapshot else snapshot_id,
                sequence_number=sequence_number,
                data_file=file,
            )
            for file in members
        ]
        entries = Entries.from_manifest_entries(rows, spec, types)
        manifests.extend(
            write_split(workspace, metadata, entries, content=content, snapshot_id=snapshot_id)
        )
    return manifests


def write_split(
    workspace: Workspace,
    metadata: TableMetadata,
    entries: Entries,
    *,
    content: int,
    snapshot_id: int,
    target_bytes: int | None = None,
) -> Iterator[ManifestFile]:
    """Write entries of one spec as manifests of about the target size.

    The first entries tell how large an entry is.
    """
    target = target_bytes or TableProperties(metadata.properties).manifest_target_size_bytes
    for group in split_by_order(entries):
        at, step = 0, _SAMPLE_FILES
        while at < len(group):
            part = group if at == 0 and len(group) <= step else group.slice(at, step)
            manifest = workspace.write_manifest(
                part, metadata, content=content, snapshot_id=snapshot_id
            )
            yield manifest
            at += len(part)
            step = max(_LEAST_FILES, target * len(part) // max(1, manifest.manifest_length))
