"""What a transaction writes before its commit: files that nobody sees, and their clean-up."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TypeVar

from pyiceberg.partitioning import PartitionSpec

from lakehouse.environment import Environment
from lakehouse.errors import LakehouseError
from lakehouse.scan.manifests.manifest_cache import DEFAULT_CACHE, fetch
from lakehouse.scan.manifests.manifest_list_cache import LISTS
from lakehouse.scan.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.spec.manifests.columnar_manifest import encode_twin, sealed_name, twin_path
from lakehouse.spec.manifests.inheritance import inherit
from lakehouse.spec.manifests.manifest import encode_manifest, manifest_file, with_counts
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import ManifestFile, has_counts
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata, refuse_v1
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.location import join
from lakehouse.storage.storage_protocol import Storage

log = logging.getLogger(__name__)

T = TypeVar("T")

TWIN_MIN_ENTRIES = 32
_BUFFER_BYTES = 32 << 20


class Workspace:
    """Files of one transaction.

    Args:
        check_table: raises InvalidLocationError when nothing may be written where a table's
            metadata says.

    Attributes:
        storage: keeps the table's files.
        environment: clock and ids.
        unique: part of every file name written here.
    """

    def __init__(
        self,
        storage: Storage,
        environment: Environment,
        check_table: Callable[[TableMetadata], None],
    ) -> None:
        self.storage = storage
        self.environment = environment
        self._check_table = check_table
        self.unique = str(environment.new_uuid())
        self._numbers = itertools.count()
        self._memory: dict[Hashable, object] = {}
        self._manifests: dict[tuple[int, str], list[ManifestFile]] = {}
        self._entries: dict[str, Entries] = {}
        self._written: dict[str, None] = {}
        self._buffer: dict[str, bytes] = {}
        self._sealed = False

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value made for `key` once, for all attempts: for what depends on no base."""
        if key not in self._memory:
            self._memory[key] = make()
        return self._memory[key]  # type: ignore[return-value]

    def new_snapshot_id(self, metadata: TableMetadata, key: Hashable) -> int:
        """The id of the snapshot that the operation `key` makes, the same on every attempt."""

        def draw() -> int:
            while True:
                value = self.environment.new_snapshot_id()
                if metadata.snapshot_or_none(value) is None:
                    return value

        return self.once(("snapshot-id", key), draw)

    def write_manifest(
        self, entries: Entries, metadata: TableMetadata, *, content: int, snapshot_id: int
    ) -> ManifestFile:
        """Write a manifest, and its columnar twin where there is enough in it to prune.

        Raises UnsupportedFeatureError: a v1 table.
        """
        refuse_v1(metadata)
        version = metadata.format_version
        data = encode_manifest(entries, metadata.schema(), format_version=version, content=content)
        with_twin = entries if len(entries) >= TWIN_MIN_ENTRIES else None
        location = self._write_manifest(data, with_twin, metadata)
        self._entries[location] = entries
        return manifest_file(
            entries,
            manifest_path=location,
            manifest_length=len(data),
            snapshot_id=snapshot_id,
            content=content,
        )

    def add_twin(self, manifest: ManifestFile, metadata: TableMetadata) -> ManifestFile:
        """Write a manifest once more, byte by byte, under a name that holds the seal of its twin.

        Raises:
            CorruptMetadataError: it is damaged.
            NoSuchFileError: it is missing.
        """
        entries = ManifestReader.of(self.storage, metadata).written_entries(manifest)
        data = fetch(self.storage, manifest.manifest_path)
        location = self._write_manifest(data, entries, metadata)
        return dataclasses.replace(manifest, manifest_path=location)

    def _write_manifest(
        self, data: bytes, with_twin: Entries | None, metadata: TableMetadata
    ) -> str:
        """Write a manifest, and the twin of these entries; returns where."""
        name = f"{self.unique}-m{next(self._numbers)}"
        if with_twin is None:
            location = self._new_location(metadata, f"{name}.avro")
        else:
            twin = encode_twin(with_twin)
            location = self._new_location(metadata, sealed_name(name, twin.seal))
            self.write(twin_path(location), twin.data)
        self.write(location, data)
        return location

    def list_location(self, metadata: TableMetadata, snapshot_id: int) -> str:
        """A fresh name for a manifest list."""
        return self._new_location(
            metadata, f"snap-{snapshot_id}-{next(self._numbers)}-{self.unique}.avro"
        )

    def vectors_location(self, metadata: TableMetadata) -> str:
        """A fresh name for a file of deletion vectors, among the data files."""
        self._check_table(metadata)
        folder = TableProperties(metadata.properties).data_location(metadata.location)
        return join(folder, f"00000-{next(self._numbers)}-{self.unique}-00001-deletes.puffin")

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
            self.storage.write_new(buffer)

    def manifests(self, snapshot: Snapshot | None) -> list[ManifestFile]:
        """The manifests of a snapshot with all their counts, read once."""
        if snapshot is None:
            return []
        key = _list_key(snapshot)
        if key not in self._manifests:
            found = load_manifests(self.storage, snapshot)
            self._manifests[key] = [one if has_counts(one) else self._count(one) for one in found]
        return self._manifests[key]

    def _count(self, manifest: ManifestFile) -> ManifestFile:
        spec = PartitionSpec(spec_id=manifest.partition_spec_id)
        reader = ManifestReader(self.storage, {}, {spec.spec_id: spec})
        return with_counts(manifest, reader.entries(manifest, ("status", "record_count")))

    def remember_list(
        self, snapshot: Snapshot, data: bytes, manifests: Sequence[ManifestFile]
    ) -> None:
        """The manifest list of an uncommitted snapshot, and what reading it gives."""
        self._manifests[_list_key(snapshot)] = list(manifests)
        LISTS.keep(data, manifests)

    def entries(self, manifest: ManifestFile, metadata: TableMetadata) -> Entries:
        """All entries of a manifest, deleted ones too.

        Sequence numbers are null in manifests of this transaction that no manifest list carries
        yet.
        """
        own = self._entries.get(manifest.manifest_path)
        if own is not None:
            return own if manifest.sequence_number is None else inherit(own, manifest)
        return ManifestReader.of(self.storage, metadata, DEFAULT_CACHE).entries(manifest)

    def entries_of_all(
        self, manifests: Sequence[ManifestFile], metadata: TableMetadata
    ) -> list[Entries]:
        """`entries` of manifests in their order; small ones of one writer come together."""
        found: list[Entries] = []
        reader = ManifestReader.of(self.storage, metadata, DEFAULT_CACHE)
        for is_own, group in itertools.groupby(
            manifests, lambda manifest: manifest.manifest_path in self._entries
        ):
            if is_own:
                found += [self.entries(manifest, metadata) for manifest in group]
            else:
                found += reader.entries_of_all(list(group))
        return found

    def seal(self) -> None:
        """A commit is about to be sent: from now on the files may be part of the table."""
        self._sealed = True

    def unseal(self) -> None:
        """The commit certainly failed."""
        self._sealed = False

    def clean_up(self, keep: Collection[str] = ()) -> None:
        """Delete what was written, except `keep` (manifests keep their twins).

        Only for outcomes that are certain: while sealed, only an explicit `keep` is cleaned around.
        What cannot be deleted stays as an orphan, for orphan removal.
        """
        if self._sealed and not keep:
            return
        kept = set(keep)
        kept |= {twin_path(location) for location in kept if location.endswith(".avro")}
        doomed = [location for location in self._written if location not in kept]
        if not doomed:
            return
        try:
            report = self.storage.delete(doomed)
        except LakehouseError as error:
            log.warning("Left %d unreferenced files for orphan removal: %s", len(doomed), error)
            return
        if report.failed:
            log.warning(
                "Left %d unreferenced files for orphan removal: %s",
                len(report.failed),
                dict(report.failed),
            )

    def _new_location(self, metadata: TableMetadata, name: str) -> str:
        self._check_table(metadata)
        return join(TableProperties(metadata.properties).metadata_location(metadata.location), name)


def _list_key(snapshot: Snapshot) -> tuple[int, str]:
    """Each attempt of a transaction makes the same snapshot id, with a manifest list of its own."""
    return snapshot.snapshot_id, snapshot.manifest_list
