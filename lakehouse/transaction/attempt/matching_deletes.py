"""Delete files beside the data files that they are about (spec: Row-level Deletes)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.errors import InvalidInputError, ValidationConflictError
from lakehouse.spec.manifests.data_file import CONTENT_POSITION_DELETES, DataFile
from lakehouse.spec.manifests.manifest_list import CONTENT_DELETE_MANIFEST, ManifestFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.attempt.added_files import file_key
from lakehouse.transaction.attempt.pending_operation import Attempt
from lakehouse.transaction.attempt.removed_files import has_live, live, may_hold
from lakehouse.transaction.attempt.uncommitted_files import Workspace

VECTORS_SINCE = 3


def deletes_naming(
    workspace: Workspace,
    metadata: TableMetadata,
    manifests: Sequence[ManifestFile],
    files: Sequence[DataFile],
) -> list[DataFile]:
    """Live position deletes and deletion vectors that are about one of the data files alone.

    Args:
        workspace: reads manifests.
        metadata: knows their partition specs.
        manifests: of the snapshot looked at.
        files: data files, or delete files of their partitions that name them.
    """
    paths = {file.named_file or file.file_path for file in files}
    partitions = {file.partition for file in files}
    specs = {file.spec_id for file in files}
    found: list[DataFile] = []
    for manifest in manifests:
        if manifest.content != CONTENT_DELETE_MANIFEST or not has_live(manifest):
            continue
        # Engines list deletes under the present spec also when their data file has an older one.
        if specs == {manifest.partition_spec_id} and not may_hold(manifest, metadata, partitions):
            continue
        entries = live(workspace.entries(manifest, metadata))
        found += entries.filter(entries.naming(paths)).to_data_files()
    return found


def position_deletes_of(
    workspace: Workspace,
    metadata: TableMetadata,
    manifests: Sequence[ManifestFile],
    snapshot_ids: Collection[int],
) -> list[DataFile]:
    """Live position deletes and deletion vectors that some snapshots added.

    Args:
        workspace: reads manifests.
        metadata: knows their partition specs.
        manifests: of the snapshot looked at.
        snapshot_ids: of the snapshots.
    """
    found: list[DataFile] = []
    for manifest in manifests:
        # whatever merged its entry into another manifest came later, and is one of them, too
        if (
            manifest.content == CONTENT_DELETE_MANIFEST
            and manifest.added_snapshot_id in snapshot_ids
        ):
            entries = live(workspace.entries(manifest, metadata))
            own = pc.is_in(entries.table["snapshot_id"], pa.array(snapshot_ids, pa.int64()))
            by_position = pc.equal(entries.table["content"], CONTENT_POSITION_DELETES)
            found += entries.filter(pc.and_(own, by_position)).to_data_files()
    return found


def check_added_deletes(
    attempt: Attempt, added: Sequence[DataFile], removed: Sequence[DataFile]
) -> None:
    """Refuse deletes that the table's version does not allow, and second deletion vectors.

    Args:
        attempt: its base and what the transaction has done so far.
        added: files that the operation adds.
        removed: files that it removes.

    Raises:
        InvalidInputError: as above.
        ValidationConflictError: the table was raised to v3 after the position deletes were written.
    """
    by_position = [one for one in added if one.content == CONTENT_POSITION_DELETES]
    version = attempt.metadata.format_version
    for one in by_position:
        if one.is_deletion_vector != (version >= VECTORS_SINCE):
            raise _wrong_form(attempt, one)
    vectors = [one for one in by_position if one.is_deletion_vector]
    nameless = next((one for one in vectors if not one.referenced_data_file), None)
    if nameless is not None:
        raise InvalidInputError(
            f"Deletion vector {nameless.file_path} needs a referenced_data_file.",
            file=nameless.file_path,
        )
    if not vectors:
        return
    going = {file_key(one) for one in removed}
    there = deletes_naming(
        attempt.workspace, attempt.metadata, attempt.workspace.manifests(attempt.head()), vectors
    )
    shadowed = {one.named_file for one in there if one.is_deletion_vector}
    seen = {
        one.named_file: one
        for one in there
        if file_key(one) not in going and (one.is_deletion_vector or one.named_file not in shadowed)
    }
    for vector in vectors:
        other = seen.setdefault(vector.named_file, vector)
        if other is not vector:
            raise InvalidInputError(
                f"Table {attempt.table}: {vector.named_file} has deletes already "
                f"({other.file_path}), and a deletion vector stands for all of them. Write one "
                "vector with the positions of both, and give the other as one of "
                "`removed_delete_files`.",
                table=attempt.table,
                file=vector.named_file,
            )


def _wrong_form(attempt: Attempt, file: DataFile) -> InvalidInputError | ValidationConflictError:
    version, began = attempt.metadata.format_version, attempt.started.metadata.format_version
    if file.is_deletion_vector:
        return InvalidInputError(
            f"Table {attempt.table} has format version {version}: deletion vectors need version 3. "
            f"Write position deletes instead of {file.file_path}.",
            table=attempt.table,
            file=file.file_path,
        )
    what = (
        f"Table {attempt.table} has format version {version}, in which rows are deleted by "
        f"deletion vectors: no position deletes can be added to it, such as {file.file_path}."
    )
    if began < VECTORS_SINCE:
        return ValidationConflictError(
            f"{what} It had version {began} when they were written: load the table again and "
            "repeat the change.",
            table=attempt.table,
            files=[file.file_path],
        )
    return InvalidInputError(what, table=attempt.table, file=file.file_path)
