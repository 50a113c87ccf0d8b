"""The statistics file of a snapshot: blobs in Puffin that metadata names (spec: Table Statistics).

A snapshot has one file. Who adds to it writes another one, with what the first one held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakehouse.data.statistics.puffin import Blob, PuffinWriter, parse_footer
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitStateUnknownError,
    InvalidInputError,
    LakehouseError,
    NoSuchFileError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata, refuse_encrypted
from lakehouse.spec.metadata.table_updates import SetStatistics, Update
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.location import join
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.transaction import Transaction

_CREATED_BY = "lakehouse"


@dataclass(frozen=True, slots=True)
class NewBlob:
    """Statistics of one column.

    Attributes:
        type: as Puffin names it.
        field_id: of the column.
        payload: the bytes.
        properties: of the blob; the table's metadata has them, too.
    """

    type: str
    field_id: int
    payload: bytes
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StatisticsFile:
    """A file that is written: where, and how many bytes it has."""

    location: str
    bytes: int


def statistics_snapshot(
    metadata: TableMetadata, snapshot_id: int | None, table: Identifier
) -> Snapshot:
    """The snapshot that is looked at: the current one when None.

    Raises:
        InvalidInputError: the table has none.
        NoSuchSnapshotError: no such snapshot.
        UnsupportedFeatureError: the table is encrypted: statistics hold values of its rows.
    """
    snapshot = (
        metadata.current_snapshot() if snapshot_id is None else metadata.snapshot(snapshot_id)
    )
    if snapshot is None:
        raise InvalidInputError(f"{table} has no snapshot yet: there is nothing to count")
    refuse_encrypted(metadata.location, metadata.properties, snapshot)
    return snapshot


def attach_statistics(
    transaction: Transaction,
    snapshot: Snapshot,
    blobs: Sequence[NewBlob],
    storage: Storage,
    environment: Environment,
) -> StatisticsFile:
    """Write a snapshot's statistics file, and commit it.

    Blobs of the file that the snapshot has, of other types or other columns, are taken over.

    Args:
        transaction: of the table, with nothing in it.
        snapshot: which one.
        blobs: new ones.
        storage: where the table is.
        environment: ids.

    Raises:
        CommitError: see `lakehouse.errors`; the new file is gone then, unless the outcome is
            unknown.
        CorruptMetadataError: the snapshot's file cannot be understood.
    """
    metadata = transaction.metadata
    writer = PuffinWriter(_CREATED_BY)
    placed = [
        writer.add(
            blob.payload,
            blob.type,
            [blob.field_id],
            blob.properties,
            snapshot_id=snapshot.snapshot_id,
            sequence_number=snapshot.sequence_number,
        )
        for blob in blobs
    ]
    replaced = {(blob.type, blob.fields) for blob in placed}
    for blob, payload in _present(metadata, snapshot, storage):
        if (blob.type, blob.fields) not in replaced:
            placed.append(
                writer.add(
                    payload,
                    blob.type,
                    blob.fields,
                    blob.properties,
                    snapshot_id=blob.snapshot_id,
                    sequence_number=blob.sequence_number,
                    compression_codec=blob.compression_codec,
                )
            )
    data = writer.finish()
    folder = TableProperties(metadata.properties).metadata_location(metadata.location)
    location = join(folder, f"{snapshot.snapshot_id}-{environment.new_uuid()}.stats")
    record = {
        "snapshot-id": snapshot.snapshot_id,
        "statistics-path": location,
        "file-size-in-bytes": len(data),
        "file-footer-size-in-bytes": len(writer.footer()),
        "blob-metadata": [_in_metadata(blob) for blob in placed],
    }
    commit_file(transaction, SetStatistics(record), location, data, storage)
    return StatisticsFile(location, len(data))


def commit_file(
    transaction: Transaction, update: Update, location: str, data: bytes, storage: Storage
) -> None:
    """Write a file of statistics, and commit the update that names it.

    Raises:
        CommitError: see `lakehouse.errors`; the file is gone then, unless the outcome is unknown.
    """
    storage.write(location, data)
    try:
        transaction.update((update,)).commit()
    except CommitStateUnknownError:
        raise
    except LakehouseError:
        storage.delete([location])
        raise


def _present(
    metadata: TableMetadata, snapshot: Snapshot, storage: Storage
) -> list[tuple[Blob, bytes]]:
    """The blobs of the file that the snapshot has; none when it has none, or the file is gone."""
    for record in metadata.statistics:
        if record.get("snapshot-id") != snapshot.snapshot_id:
            continue
        location = str(record["statistics-path"])
        try:
            data = storage.read(location)
        except NoSuchFileError:
            return []
        blobs = parse_footer(data, location)
        return [(blob, data[blob.offset : blob.offset + blob.length]) for blob in blobs]
    return []


def _in_metadata(blob: Blob) -> dict[str, object]:
    return {
        "type": blob.type,
        "snapshot-id": blob.snapshot_id,
        "sequence-number": blob.sequence_number,
        "fields": list(blob.fields),
        "properties": dict(blob.properties),
    }
