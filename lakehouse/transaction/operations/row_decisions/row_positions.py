"""What is deleted by now from the data files of an operation, and the vectors that follow."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

from lakehouse.data.reading.scan_reader import deleted_positions
from lakehouse.data.writing.delete_writer import FileDeletes, encode_vectors
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.attempt.added_files import file_key
from lakehouse.transaction.attempt.matching_deletes import deletes_naming, position_deletes_of
from lakehouse.transaction.attempt.uncommitted_files import Workspace
from lakehouse.transaction.conflicts.decided_rows import DecidedRows, Positions, about, all_deleted


@dataclass(frozen=True, slots=True)
class Vectors:
    """Deletion vectors of an operation, as a base of it needs them.

    Attributes:
        location: of the file with the vectors; None where there are none.
        files: one vector a data file.
        superseded: live deletes of these data files, which the vectors contain.
        emptied: data files of which every row is deleted with this: they go, and need no vector.
    """

    location: str | None = None
    files: tuple[DataFile, ...] = ()
    superseded: tuple[DataFile, ...] = ()
    emptied: tuple[DataFile, ...] = ()


def deleted_since(
    workspace: Workspace,
    metadata: TableMetadata,
    head: Snapshot | None,
    rows: Sequence[DecidedRows],
    snapshot_ids: Collection[int],
) -> list[Positions]:
    """For each file what other writers deleted from it, by position.

    Args:
        workspace: reads manifests and deletes.
        metadata: of the base of the attempt.
        head: the snapshot looked at.
        rows: each of another file.
        snapshot_ids: what others committed. A vector of theirs tells what was deleted before, too.
    """
    theirs = position_deletes_of(workspace, metadata, workspace.manifests(head), snapshot_ids)
    return _positions(workspace, metadata, [(one, about(theirs, one.data_file)) for one in rows])


def write_vectors(
    workspace: Workspace,
    metadata: TableMetadata,
    head: Snapshot | None,
    rows: Sequence[DecidedRows],
    operation: Hashable,
) -> Vectors:
    """Write a deletion vector for each file with rows that go, with all that is deleted already.

    A file of which no row is left is told instead. They are written again where a file has other
    deletes by then.

    Args:
        workspace: writes them.
        metadata: of the base of the attempt.
        head: the snapshot looked at.
        rows: each of another file.
        operation: whose rows they are.
    """
    losing = [one for one in rows if len(one.gone)]
    if not losing:
        return Vectors()
    files = [one.data_file for one in losing]
    there = deletes_naming(workspace, metadata, workspace.manifests(head), files)
    vectors = {one.named_file: one for one in there if one.is_deletion_vector}
    before = [(one, [vectors[one.path]] if one.path in vectors else one.deletes) for one in losing]
    listed = [(one.path, *map(file_key, deletes)) for one, deletes in before]
    return workspace.once(
        ("vectors", operation, frozenset((*listed, *map(file_key, there)))),
        partial(_write, workspace, metadata, before, tuple(there)),
    )


def _write(
    workspace: Workspace,
    metadata: TableMetadata,
    before: Sequence[tuple[DecidedRows, Sequence[DataFile]]],
    superseded: tuple[DataFile, ...],
) -> Vectors:
    deleted = [
        FileDeletes(one.data_file, all_deleted(one, positions))
        for (one, _), positions in zip(before, _positions(workspace, metadata, before), strict=True)
    ]
    emptied = tuple(one.data_file for one in deleted if _is_every_row(one))
    losing = [one for one in deleted if not _is_every_row(one)]
    if not losing:
        return Vectors(superseded=superseded, emptied=emptied)
    location = workspace.vectors_location(metadata)
    data, files = encode_vectors(losing, location)
    workspace.write(location, data)
    return Vectors(location, tuple(files), superseded, emptied)


def _is_every_row(deletes: FileDeletes) -> bool:
    """Whether no row of the file is left; rows that equality deletes delete are not counted."""
    rows, positions = deletes.data_file.record_count, deletes.positions
    return len(positions) == rows and bool(positions[-1] == rows - 1)


def _positions(
    workspace: Workspace,
    metadata: TableMetadata,
    deletes: Sequence[tuple[DecidedRows, Sequence[DataFile]]],
) -> list[Positions]:
    """What deletes delete from their files; read once a transaction."""
    key = tuple((one.path, *map(file_key, given)) for one, given in deletes)
    files = [(one.data_file, given) for one, given in deletes]
    return workspace.once(
        ("deleted", key), lambda: deleted_positions(files, metadata, workspace.storage)
    )
