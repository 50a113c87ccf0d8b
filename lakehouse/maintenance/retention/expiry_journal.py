"""Journal of an expiry, so that a killed one can be finished.

`<location>/metadata/expiry-<uuid>.journal.json` is written before the commit, says which snapshots
of which version of the table are to be expired, and goes when all their unreachable files are
deleted. Leaves are deleted before what names them, so that the rest stays named.

A journal is a pointer that is not trusted: what the snapshots held is read from the version that it
names, and only if the table's own metadata log names that version too. So a forged journal deletes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import orjson

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.catalog.metadata_files import read_metadata
from lakehouse.errors import CorruptMetadataError, NoSuchFileError, StorageError
from lakehouse.maintenance.reachability.location_keys import is_journal
from lakehouse.maintenance.reachability.reachable_files import statistics_locations
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_protocol import Storage

_VERSION = 2


@dataclass(frozen=True, slots=True)
class Expired:
    """What an expiry removes from the metadata.

    Attributes:
        snapshots: the snapshots.
        statistics: statistics files recorded for them, location -> bytes.
    """

    snapshots: Sequence[Snapshot]
    statistics: Mapping[str, int]


def expired_of(metadata: TableMetadata, snapshot_ids: Sequence[int]) -> Expired:
    """These snapshots and their statistics. Raises NoSuchSnapshotError."""
    return Expired(
        [metadata.snapshot(snapshot_id) for snapshot_id in snapshot_ids],
        statistics_locations(metadata, snapshot_ids),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The journal of an expiry that is under way.

    Attributes:
        location: of the journal file.
        table_uuid: the table it belongs to.
        created_ms: when it was written.
        metadata_location: the version that still holds the snapshots.
        snapshot_ids: the snapshots that the commit removes.
    """

    location: str
    table_uuid: str
    created_ms: int
    metadata_location: str
    snapshot_ids: tuple[int, ...]

    def write(self, storage: Storage) -> None:
        """Write the journal durably."""
        document = {
            "version": _VERSION,
            "table-uuid": self.table_uuid,
            "created-ms": self.created_ms,
            "metadata-location": self.metadata_location,
            "snapshot-ids": self.snapshot_ids,
        }
        storage.write(self.location, orjson.dumps(document))

    def remove(self, storage: Storage) -> None:
        """Delete the journal."""
        report = storage.delete([self.location])
        if report.failed:
            raise StorageError(
                f"Could not remove the expiry journal {self.location}: {report.failed}",
                file=self.location,
            )

    def expired(self, storage: Storage, version: TableVersion) -> Expired | None:
        """The snapshots that the journal names, as the table itself had them.

        None when the table does not confirm it: the version is not in its metadata log (any more),
        or had no such snapshots.
        """
        log = {entry.metadata_file for entry in version.metadata.metadata_log}
        if self.metadata_location not in log:
            return None
        try:
            before = read_metadata(storage, self.metadata_location)
        except NoSuchFileError:
            return None
        has_all = all(
            before.snapshot_or_none(snapshot_id) is not None for snapshot_id in self.snapshot_ids
        )
        if before.table_uuid != version.metadata.table_uuid or not has_all:
            return None
        return expired_of(before, self.snapshot_ids)


def journal_location(metadata: TableMetadata, expiry_id: str) -> str:
    """Where the journal of expiry `expiry_id` (a UUID) is kept."""
    return f"{metadata.location.rstrip('/')}/metadata/expiry-{expiry_id}.journal.json"


def read_journals(storage: Storage, metadata: TableMetadata) -> Iterator[Journal]:
    """Every journal of this table, oldest first.

    Raises:
        CorruptMetadataError: a journal cannot be read; delete it after a look, orphan removal will
            find its files.
    """
    journals = [
        info
        for info in storage.list(f"{metadata.location.rstrip('/')}/metadata")
        if is_journal(info.location)
    ]
    for info in sorted(journals, key=lambda info: (info.modified_ms, info.location)):
        try:
            journal = _parse(info.location, storage.read(info.location))
        except NoSuchFileError:
            continue
        if journal.table_uuid == metadata.table_uuid:
            yield journal


def _parse(location: str, data: bytes) -> Journal:
    try:
        document = orjson.loads(data)
        is_known = document["version"] == _VERSION  # one of another version points at nothing
        return Journal(
            location=location,
            table_uuid=str(document["table-uuid"]),
            created_ms=int(document["created-ms"]),
            metadata_location=str(document["metadata-location"]) if is_known else "",
            snapshot_ids=tuple(int(snapshot_id) for snapshot_id in document["snapshot-ids"])
            if is_known
            else (),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptMetadataError(
            f"{location} is not an expiry journal: {error}. Delete it after a look.", file=location
        ) from error
