"""The files of one commit: their names, and which of them stay."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Mapping

from lakehouse.errors import LakehouseError
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.location import join
from lakehouse.storage.storage_protocol import Storage

log = logging.getLogger(__name__)

_BUFFER_BYTES = 32 << 20


class CommitFiles:
    """The only place where files of a commit are written and deleted.

    Args:
        storage: keeps the table's files.
        unique: part of every file's name.
    """

    def __init__(self, storage: Storage, unique: str) -> None:
        self._storage = storage
        self._unique = unique
        self._numbers = itertools.count()
        self._written: dict[str, None] = {}
        self._buffer: dict[str, bytes] = {}
        self._is_sent = False

    def manifest_name(self) -> str:
        """A fresh name for a manifest, without its ending."""
        return f"{self._unique}-m{next(self._numbers)}"

    def metadata_location(self, metadata: TableMetadata, name: str) -> str:
        """Where a file of this name lies among the metadata files of a table."""
        return join(TableProperties(metadata.properties).metadata_location(metadata.location), name)

    def manifest_list_location(self, metadata: TableMetadata, snapshot_id: int) -> str:
        """A fresh location for the manifest list of a snapshot."""
        name = f"snap-{snapshot_id}-{next(self._numbers)}-{self._unique}.avro"
        return self.metadata_location(metadata, name)

    def vectors_location(self, metadata: TableMetadata) -> str:
        """A fresh location for a file of deletion vectors, among the data files."""
        folder = TableProperties(metadata.properties).data_location(metadata.location)
        return join(folder, f"00000-{next(self._numbers)}-{self._unique}-00001-deletes.puffin")

    def write(self, location: str, data: bytes) -> None:
        """Write a new file; durable after `flush`."""
        self._buffer[location] = data
        if sum(map(len, self._buffer.values())) > _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Make everything durable that was written."""
        buffer, self._buffer = self._buffer, {}
        if buffer:
            self._written.update(dict.fromkeys(buffer))
            self._storage.write_new(buffer)

    def send(self, more: Mapping[str, bytes]) -> None:
        """Make durable what is about to be sent: from now on it may be part of the table.

        Args:
            more: files to be written before, by their locations.
        """
        for location, data in more.items():
            self.write(location, data)
        self.flush()
        self._is_sent = True

    def refused(self) -> None:
        """What was sent is certainly no part of the table."""
        self._is_sent = False

    def delete_all(self) -> None:
        """Delete what was written, unless it may be part of the table."""
        if not self._is_sent:
            self.delete_all_but(())

    def is_more_than(self, kept: Collection[str]) -> bool:
        """Whether other files were written, too."""
        return not self._written.keys() <= set(kept)

    def delete_all_but(self, kept: Collection[str]) -> None:
        """Delete what was written, except these files.

        What cannot be deleted stays as an orphan, for orphan removal.
        """
        doomed = [location for location in self._written if location not in kept]
        if not doomed:
            return
        try:
            failed = self._storage.delete(doomed).failed
        except LakehouseError as error:
            log.warning("Left %d unreferenced files for orphan removal: %s", len(doomed), error)
            return
        if failed:
            log.warning(
                "Left %d unreferenced files for orphan removal: %s", len(failed), dict(failed)
            )
