"""Deletion vectors of rows that go, and of all that is deleted already (spec: Deletion Vectors)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.data.reading.scan_reader import deleted_positions
from lakehouse.data.writing.delete_writer import FileDeletes, encode_vectors
from lakehouse.manifests.manifest_writer import file_key, live
from lakehouse.spec.manifests.data_file import CONTENT_POSITION_DELETES, DataFile
from lakehouse.spec.manifests.manifest_list import CONTENT_DELETE_MANIFEST, ManifestFile
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.decided_rows import DecidedRows, Positions, about, all_deleted
from lakehouse.transaction.snapshot_producer import NewSnapshot, SnapshotProducer

VECTORS_SINCE = 3


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
    deletes: list[DataFile] = []
    for manifest in manifests:
        # whatever merged its entry into another manifest came later, and is one of them, too
        if (
            manifest.content == CONTENT_DELETE_MANIFEST
            and manifest.added_snapshot_id in snapshot_ids
        ):
            entries = live(producer.entries(manifest, metadata))
            own = pc.is_in(entries.table["snapshot_id"], pa.array(snapshot_ids, pa.int64()))
            by_position = pc.equal(entries.table["content"], CONTENT_POSITION_DELETES)
            deletes += entries.filter(pc.and_(own, by_position)).to_data_files()
    return deletes


@dataclass(frozen=True, slots=True)
class Vectors:
    """Deletion vectors of an operation, as the newest version needs them.

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
        metadata: of the attempt.
        head: the snapshot looked at.
        rows: each of another file.
        snapshot_ids: what others committed. A vector of theirs tells what was deleted before, too.
    """
    theirs = position_deletes_of(producer, metadata, producer.manifests(head), snapshot_ids)
    return _positions(producer, metadata, [(row, about(theirs, row.data_file)) for row in rows])


def write_vectors(
    producer: SnapshotProducer, new: NewSnapshot, rows: Sequence[DecidedRows]
) -> Vectors:
    """Write a deletion vector for each file with rows that go, with all that is deleted already.

    A file of which no row is left goes whole instead. They are written again where a file has
    other deletes by then.

    Args:
        producer: writes them.
        new: the snapshot whose vectors they are.
        rows: each of another file.
    """
    metadata = new.metadata
    losing = [row for row in rows if len(row.gone)]
    if not losing:
        return Vectors()
    files = [row.data_file for row in losing]
    there = producer.deletes_naming(metadata, producer.manifests(new.parent), files)
    vectors = {delete.named_file: delete for delete in there if delete.is_deletion_vector}
    before = [(row, [vectors[row.path]] if row.path in vectors else row.deletes) for row in losing]
    listed = [(row.path, *map(file_key, deletes)) for row, deletes in before]
    return producer.once(
        ("vectors", new.snapshot_id, frozenset((*listed, *map(file_key, there)))),
        partial(_write, producer, metadata, before, tuple(there)),
    )


def _write(
    producer: SnapshotProducer,
    metadata: TableMetadata,
    before: Sequence[tuple[DecidedRows, Sequence[DataFile]]],
    superseded: tuple[DataFile, ...],
) -> Vectors:
    deleted = [
        FileDeletes(row.data_file, all_deleted(row, positions))
        for (row, _), positions in zip(before, _positions(producer, metadata, before), strict=True)
    ]
    emptied = tuple(deletes.data_file for deletes in deleted if _is_every_row(deletes))
    losing = [deletes for deletes in deleted if not _is_every_row(deletes)]
    if not losing:
        return Vectors(superseded=superseded, emptied=emptied)
    location = producer.files.vectors_location(metadata)
    data, files = encode_vectors(losing, location)
    producer.files.write(location, data)
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
    key = tuple((rows.path, *map(file_key, given)) for rows, given in deletes)
    files = [(rows.data_file, given) for rows, given in deletes]
    return producer.once(
        ("deleted", key), lambda: deleted_positions(files, metadata, producer.storage)
    )
