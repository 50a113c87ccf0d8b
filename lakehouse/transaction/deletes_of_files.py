"""Deletes beside the data files that they are about: found, checked, written as vectors.

Spec: Row-level Deletes, Deletion Vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.data.reading.scan_reader import deleted_positions
from lakehouse.data.writing.delete_writer import FileDeletes, encode_vectors
from lakehouse.errors import InvalidInputError, ValidationConflictError
from lakehouse.spec.manifests.data_file import CONTENT_POSITION_DELETES, DataFile
from lakehouse.spec.manifests.manifest_list import CONTENT_DELETE_MANIFEST, ManifestFile
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.decided_rows import DecidedRows, Positions, about, all_deleted
from lakehouse.transaction.manifest_changes import file_key, has_live, live, may_hold
from lakehouse.transaction.snapshot_producer import SnapshotProducer
from lakehouse.transaction.table_change import Operation, Staged

VECTORS_SINCE = 3


def deletes_naming(
    producer: SnapshotProducer,
    metadata: TableMetadata,
    manifests: Sequence[ManifestFile],
    files: Sequence[DataFile],
) -> list[DataFile]:
    """Live position deletes and deletion vectors that are about one of the data files alone.

    Args:
        producer: reads manifests.
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
        entries = live(producer.entries(manifest, metadata))
        found += entries.filter(entries.naming(paths)).to_data_files()
    return found


def position_deletes_of(
    producer: SnapshotProducer,
    metadata: TableMetadata,
    manifests: Sequence[ManifestFile],
    snapshot_ids: Collection[int],
) -> list[DataFile]:
    """Live position deletes and deletion vectors that some snapshots added.

    Args:
        producer: reads manifests.
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
            entries = live(producer.entries(manifest, metadata))
            own = pc.is_in(entries.table["snapshot_id"], pa.array(snapshot_ids, pa.int64()))
            by_position = pc.equal(entries.table["content"], CONTENT_POSITION_DELETES)
            found += entries.filter(pc.and_(own, by_position)).to_data_files()
    return found


def check_added_deletes(
    staged: Staged, added: Sequence[DataFile], removed: Sequence[DataFile]
) -> None:
    """Refuse deletes that the table's version does not allow, and second deletion vectors.

    Args:
        staged: its base and what the transaction has done so far.
        added: files that the operation adds.
        removed: files that it removes.

    Raises:
        InvalidInputError: as above.
        ValidationConflictError: the table was raised to v3 after the position deletes were written.
    """
    by_position = [one for one in added if one.content == CONTENT_POSITION_DELETES]
    version = staged.metadata.format_version
    for one in by_position:
        if one.is_deletion_vector != (version >= VECTORS_SINCE):
            raise _wrong_form(staged, one)
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
        staged.producer, staged.metadata, staged.producer.manifests(staged.head()), vectors
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
                f"Table {staged.table}: {vector.named_file} has deletes already "
                f"({other.file_path}), and a deletion vector stands for all of them. Write one "
                "vector with the positions of both, and give the other as one of "
                "`removed_delete_files`.",
                table=staged.table,
                file=vector.named_file,
            )


def _wrong_form(staged: Staged, file: DataFile) -> InvalidInputError | ValidationConflictError:
    version, began = staged.metadata.format_version, staged.started.metadata.format_version
    if file.is_deletion_vector:
        return InvalidInputError(
            f"Table {staged.table} has format version {version}: deletion vectors need version 3. "
            f"Write position deletes instead of {file.file_path}.",
            table=staged.table,
            file=file.file_path,
        )
    what = (
        f"Table {staged.table} has format version {version}, in which rows are deleted by "
        f"deletion vectors: no position deletes can be added to it, such as {file.file_path}."
    )
    if began < VECTORS_SINCE:
        return ValidationConflictError(
            f"{what} It had version {began} when they were written: load the table again and "
            "repeat the change.",
            table=staged.table,
            files=[file.file_path],
        )
    return InvalidInputError(what, table=staged.table, file=file.file_path)


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
    producer: SnapshotProducer,
    metadata: TableMetadata,
    head: Snapshot | None,
    rows: Sequence[DecidedRows],
    snapshot_ids: Collection[int],
) -> list[Positions]:
    """For each file what other writers deleted from it, by position.

    Args:
        producer: reads manifests and deletes.
        metadata: of the base of the staged.
        head: the snapshot looked at.
        rows: each of another file.
        snapshot_ids: what others committed. A vector of theirs tells what was deleted before, too.
    """
    theirs = position_deletes_of(producer, metadata, producer.manifests(head), snapshot_ids)
    return _positions(producer, metadata, [(one, about(theirs, one.data_file)) for one in rows])


def write_vectors(
    producer: SnapshotProducer,
    metadata: TableMetadata,
    head: Snapshot | None,
    rows: Sequence[DecidedRows],
    operation: Operation,
) -> Vectors:
    """Write a deletion vector for each file with rows that go, with all that is deleted already.

    A file of which no row is left is told instead. They are written again where a file has other
    deletes by then.

    Args:
        producer: writes them.
        metadata: of the base of the staged.
        head: the snapshot looked at.
        rows: each of another file.
        operation: whose rows they are.
    """
    losing = [one for one in rows if len(one.gone)]
    if not losing:
        return Vectors()
    files = [one.data_file for one in losing]
    there = deletes_naming(producer, metadata, producer.manifests(head), files)
    vectors = {one.named_file: one for one in there if one.is_deletion_vector}
    before = [(one, [vectors[one.path]] if one.path in vectors else one.deletes) for one in losing]
    listed = [(one.path, *map(file_key, deletes)) for one, deletes in before]
    return producer.once(
        ("vectors", operation, frozenset((*listed, *map(file_key, there)))),
        partial(_write, producer, metadata, before, tuple(there)),
    )


def _write(
    producer: SnapshotProducer,
    metadata: TableMetadata,
    before: Sequence[tuple[DecidedRows, Sequence[DataFile]]],
    superseded: tuple[DataFile, ...],
) -> Vectors:
    deleted = [
        FileDeletes(one.data_file, all_deleted(one, positions))
        for (one, _), positions in zip(before, _positions(producer, metadata, before), strict=True)
    ]
    emptied = tuple(one.data_file for one in deleted if _is_every_row(one))
    losing = [one for one in deleted if not _is_every_row(one)]
    if not losing:
        return Vectors(superseded=superseded, emptied=emptied)
    location = producer.vectors_location(metadata)
    data, files = encode_vectors(losing, location)
    producer.write(location, data)
    return Vectors(location, tuple(files), superseded, emptied)


def _is_every_row(deletes: FileDeletes) -> bool:
    """Whether no row of the file is left; rows that equality deletes delete are not counted."""
    rows, positions = deletes.data_file.record_count, deletes.positions
    return len(positions) == rows and bool(positions[-1] == rows - 1)


def _positions(
    producer: SnapshotProducer,
    metadata: TableMetadata,
    deletes: Sequence[tuple[DecidedRows, Sequence[DataFile]]],
) -> list[Positions]:
    """What deletes delete from their files; read once a transaction."""
    key = tuple((one.path, *map(file_key, given)) for one, given in deletes)
    files = [(one.data_file, given) for one, given in deletes]
    return producer.once(
        ("deleted", key), lambda: deleted_positions(files, metadata, producer.storage)
    )
