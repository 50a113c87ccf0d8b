"""Journal of an expiry, so that a killed one can be finished.

`<location>/metadata/expiry-<uuid>.journal.json` is written before the commit, holds the snapshots to be expired, and goes when
all their unreachable files are deleted. Leaves are deleted before what names them, so that the rest can be found again from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson

from lakehouse.errors import CorruptMetadataError, NoSuchFileError, StorageError
from lakehouse.spec.snapshot import Snapshot
from lakehouse.spec.table_metadata import TableMetadata
from lakehouse.storage.protocol import Storage

_NAME = re.compile(r"expiry-[0-9a-f-]{36}\.journal\.json$")
_VERSION = 1


def is_journal(location: str) -> bool:
    """Whether a location is a journal file by its name."""
    return _NAME.search(location.rsplit("/", 1)[-1]) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """One expiry under way.

    Attributes:
        location: of the journal file.
        table_uuid: the table it belongs to.
        created_ms: when it was written.
        snapshots: the snapshots that the commit removes.
        statistics: statistics files recorded for them, location -> bytes.
    """

    location: str
    table_uuid: str
    created_ms: int
    snapshots: tuple[Snapshot, ...]
    statistics: Mapping[str, int]

    def write(self, storage: Storage) -> None:
        """Make it durable."""
        document = {
            "version": _VERSION,
            "table-uuid": self.table_uuid,
            "created-ms": self.created_ms,
            "snapshots": [snapshot.to_json() for snapshot in self.snapshots],
            "statistics": dict(self.statistics),
        }
        storage.write(self.location, orjson.dumps(document))

    def remove(self, storage: Storage) -> None:
        """Forget it."""
        report = storage.delete([self.location])
        if report.failed:
            raise StorageError(
                f"Could not remove the expiry journal {self.location}: {report.failed}",
                file=self.location,
            )


def journal_location(metadata: TableMetadata, expiry_id: str) -> str:
    """Where the journal of expiry `expiry_id` (a UUID) is kept."""
    return f"{metadata.location.rstrip('/')}/metadata/expiry-{expiry_id}.journal.json"


def read_journals(storage: Storage, metadata: TableMetadata) -> Iterator[Journal]:
    """Every journal of this table, oldest first.

    Raises:
        CorruptMetadataError: a journal cannot be read; delete it after a look, orphan removal will find its files.
    """
    found = [
        info
        for info in storage.list(f"{metadata.location.rstrip('/')}/metadata")
        if is_journal(info.location)
    ]
    for info in sorted(found, key=lambda info: (info.modified_ms, info.location)):
        try:
            journal = _parse(info.location, storage.read(info.location))
        except NoSuchFileError:
            continue
        if journal.table_uuid == metadata.table_uuid:
            yield journal


def _parse(location: str, data: bytes) -> Journal:
    try:
        document = orjson.loads(data)
        if document["version"] != _VERSION:
            raise CorruptMetadataError(
                f"{location} is an expiry journal of version {document['version']}, not {_VERSION}",
                file=location,
            )
        return Journal(
            location=location,
            table_uuid=document["table-uuid"],
            created_ms=document["created-ms"],
            snapshots=tuple(Snapshot.from_json(item, location) for item in document["snapshots"]),
            statistics={str(path): int(size) for path, size in document["statistics"].items()},
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptMetadataError(
            f"{location} is not an expiry journal: {error}", file=location
        ) from error
