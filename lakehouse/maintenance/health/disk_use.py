"""Bytes on disk by what needs them: a folder listing against what the metadata reaches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.maintenance.reachability.location_keys import LocationKeys, is_bookkeeping
from lakehouse.maintenance.reachability.neighbours import KnownTables, find_neighbours
from lakehouse.maintenance.reachability.reachable_files import (
    StorageWalker,
    in_parallel,
    reachable_keys,
    statistics_locations,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.columnar_manifest import columnar_path
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import FileInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """Files and bytes under a table's location.

    Attributes:
        live_files, live_bytes: what the current snapshot of `main` reaches, and the current
            metadata file.
        historical_files, historical_bytes: what only other snapshots reach, earlier metadata files.
        unreferenced_files, unreferenced_bytes: what nothing reaches, the trash and files of running
            writers too.
        orphan_bytes: the part of it that is older than the given age.
    """

    live_files: int = 0
    live_bytes: int = 0
    historical_files: int = 0
    historical_bytes: int = 0
    unreferenced_files: int = 0
    unreferenced_bytes: int = 0
    orphan_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Live, historical and unreferenced bytes together."""
        return self.live_bytes + self.historical_bytes + self.unreferenced_bytes


def disk_use(
    catalog: Catalog,
    identifier: Identifier,
    *,
    orphans_before_ms: int,
    tables: KnownTables | None = None,
) -> DiskUse:
    """List the table's folders and walk the metadata of all its snapshots.

    Files of tables inside its folder are not counted.

    Any error while reading propagates: a part that could not be read would look unreferenced.

    Args:
        catalog: where the table is.
        identifier: the table.
        orphans_before_ms: unreferenced files last modified before this time are orphans.
        tables: for whoever measures many; None: they are loaded.
    """
    keys = LocationKeys()
    before = catalog.load(identifier).metadata
    storage = catalog.storage(before.location)
    roots = [before.location]
    data = TableProperties(before.properties).data_location(before.location)
    if not keys.is_under(data, before.location):
        roots.append(data)
    listed: dict[str, FileInfo] = {
        keys.key(info.location): info for root in roots for info in storage.list(root)
    }
    version = catalog.load(identifier)  # after the listing: what was committed meanwhile is reached
    metadata = version.metadata
    walker = StorageWalker(storage, metadata)
    neighbours = find_neighbours(catalog, identifier, roots, listed.values(), keys, tables)
    live = {keys.key(version.metadata_location)}
    snapshot = metadata.current_snapshot()
    if snapshot is not None:
        live |= {keys.key(location) for location in _locations(snapshot, walker)}
        live |= {
            keys.key(location)
            for location in statistics_locations(metadata, [snapshot.snapshot_id])
        }
    reached = reachable_keys(metadata, version.metadata_location, walker, keys)
    counts = dict.fromkeys(DiskUse.__dataclass_fields__, 0)
    for key, info in listed.items():
        if neighbours.owns(info.location):
            continue
        kind = (
            "live"
            if key in live
            else "historical"
            if key in reached or is_bookkeeping(key)
            else "unreferenced"
        )
        counts[f"{kind}_files"] += 1
        counts[f"{kind}_bytes"] += info.size
        if kind == "unreferenced" and info.modified_ms < orphans_before_ms:
            counts["orphan_bytes"] += info.size
    return DiskUse(**counts)


def _locations(snapshot: Snapshot, walker: StorageWalker) -> Iterator[str]:
    if snapshot.manifest_list:
        yield snapshot.manifest_list
    manifests = list(walker.manifests(snapshot))
    for manifest in manifests:
        yield manifest.manifest_path
        yield columnar_path(manifest.manifest_path)
    for files in in_parallel(lambda manifest: list(walker.live_files(manifest)), manifests):
        yield from (file.location for file in files)
