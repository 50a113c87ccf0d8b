"""The newest versions of tables, and the bytes that answer for them, kept in memory."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.errors import NoSuchFileError, NoSuchTableError
from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.server.error_answers import HttpError
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.metadata_json import serialize
from lakehouse.spec.metadata.table_metadata import TableMetadata, snapshot_log
from lakehouse.storage.location import parse
from lakehouse.storage.storage_protocol import path_on_disk

_TABLE_BYTES = 2048
ALL, REFS, APPENDED = "all", "refs", "appended"
"""Which snapshots an answer has: all; those that a branch or tag names; these, and of the logs of
snapshots and metadata files the newest file alone."""


@dataclass(slots=True)
class _Entry:
    version: TableVersion
    path: Path | None  # of its metadata file, on a disk of this machine
    mark: Hashable | None = None
    bodies: dict[str, bytes] = field(default_factory=dict)

    def is_there(self) -> bool:
        """Whether its file still exists: checked on a disk alone, where it takes microseconds."""
        if self.path is not None:
            try:
                self.path.stat()
            except (FileNotFoundError, NotADirectoryError):
                return False
            except OSError:  # no word of the file
                return True
        return True

    def size(self) -> int:
        """Bytes that it takes, at most."""
        body_bytes = sum(len(body) for body in self.bodies.values())
        return _TABLE_BYTES + self.version.metadata.held_bytes() + body_bytes


class ServedTables:
    """Versions of tables by name. The catalog is asked each time whether they are still newest.

    Args:
        catalog: holds them.
        bytes_max: of what is kept.
    """

    def __init__(self, catalog: Catalog, bytes_max: int) -> None:
        self._catalog = catalog
        self.known: KeptByBytes[Identifier, _Entry] = KeptByBytes(bytes_max)

    def newest(self, identifier: Identifier) -> TableVersion:
        """The newest version of the table.

        Raises NoSuchTableError; HttpError, 404: somebody deleted its metadata file.
        """
        return self._newest(identifier).version

    def recent(self, identifier: Identifier) -> TableVersion:
        """The version that was newest at the last request. Raises NoSuchTableError."""
        entry = self.known.get(identifier)
        return self.newest(identifier) if entry is None else entry.version

    def body(self, identifier: Identifier, snapshots: str = ALL) -> tuple[TableVersion, bytes]:
        """The newest version, and as LoadTableResult. Raises NoSuchTableError.

        Args:
            identifier: the table.
            snapshots: `ALL`, `REFS` or `APPENDED`.
        """
        entry = self._newest(identifier)
        if snapshots not in entry.bodies:
            entry.bodies[snapshots] = self.document(entry.version, snapshots)
            self.known.resize(identifier, entry, entry.size())
        return entry.version, entry.bodies[snapshots]

    def known_body(
        self, identifier: Identifier, snapshots: str
    ) -> tuple[TableVersion, bytes] | None:
        """What `body` gives, if it is at hand without waiting; None otherwise."""
        entry = self.known.get(identifier)
        if entry is None or entry.mark is None or snapshots not in entry.bodies:
            return None
        if entry.mark != self._catalog.change_mark() or not entry.is_there():
            return None
        return entry.version, entry.bodies[snapshots]

    def keep(self, version: TableVersion) -> None:
        """Take a version that was committed just now for the newest."""
        self._keep(version)

    def document(self, version: TableVersion, snapshots: str = ALL) -> bytes:
        """A version as LoadTableResult."""
        metadata = version.metadata if snapshots == ALL else with_named_snapshots(version.metadata)
        if snapshots == APPENDED:
            newest = metadata.metadata_log[-1:]
            metadata = replace(metadata, metadata_log=newest, snapshot_log=snapshot_log())
        return b'{"metadata-location":%b,"metadata":%b,"config":{}}' % (
            orjson.dumps(version.metadata_location),
            serialize(metadata),
        )

    def _newest(self, identifier: Identifier) -> _Entry:
        entry = self.known.get(identifier)
        mark = self._catalog.change_mark()
        if entry is not None and not entry.is_there():
            entry = None  # a newer version came, or somebody deleted it
        if entry is not None and mark is not None and entry.mark == mark:
            return entry
        try:
            version = (
                self._catalog.load(identifier)
                if entry is None
                else self._catalog.refresh(entry.version)
            )
        except NoSuchTableError:
            self.known.remove(identifier)
            raise
        except NoSuchFileError as error:
            self.known.remove(identifier)
            raise _file_is_gone(identifier, error) from error
        if entry is not None and version is entry.version:
            entry.mark = mark  # of before it was asked
            self.known.resize(identifier, entry, entry.size())  # somebody looked at its history
            return entry
        return self._keep(version, mark)

    def _keep(self, version: TableVersion, mark: Hashable | None = None) -> _Entry:
        entry = _Entry(version, self._path(version.metadata_location), mark)
        self.known.put(version.identifier, entry, entry.size())
        return entry

    def _path(self, location: str) -> Path | None:
        if not parse(location).is_local:
            return None
        path = path_on_disk(self._catalog.storage(location), location)
        return None if path is None else Path(path)


def _file_is_gone(identifier: Identifier, error: NoSuchFileError) -> HttpError:
    """A table whose metadata file somebody deleted, in the words of Iceberg's Java."""
    location = error.context.get("location")
    message = f"Failed to open input stream for file: {location}, of table {identifier}."
    return HttpError(404, "NotFoundException", message)


def with_named_snapshots(metadata: TableMetadata) -> TableMetadata:
    """The metadata with the snapshots alone that branches and tags name."""
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    gone = set(metadata.snapshots.ids()) - named
    return replace(metadata, snapshots=metadata.snapshots.without(gone)) if gone else metadata
