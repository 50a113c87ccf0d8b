"""Other tables whose files lie under a table's location."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lakehouse.catalog.protocol import Catalog, Namespace, TableVersion
from lakehouse.maintenance.locations import LocationKeys
from lakehouse.maintenance.reachability import reachable_among
from lakehouse.maintenance.walker import StorageWalker
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.protocol import FileInfo

_PATH_PROPERTIES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Other tables of a catalog, seen from one location.

    Attributes:
        folders: keys of folders below the location, each ending in a slash, that belong to other tables as a whole.
        versions: the other tables.
    """

    folders: tuple[str, ...]
    versions: tuple[TableVersion, ...]

    def owns(self, key: str) -> bool:
        """Whether the file with this key lies in another table's folder."""
        return key.startswith(self.folders)

    def reached(self, catalog: Catalog, locations: Sequence[str], keys: LocationKeys) -> set[str]:
        """Those of `locations` that another table's metadata names, wherever that table lies. Every read error propagates."""
        found: set[str] = set()
        for version in self.versions if locations else ():
            walker = StorageWalker(catalog.storage(version.metadata.location), version.metadata)
            found |= reachable_among(
                locations, version.metadata, version.metadata_location, walker, keys
            )
        return found


def all_tables(catalog: Catalog) -> Iterator[Identifier]:
    """Every table of the catalog."""
    pending: list[Namespace] = list(catalog.list_namespaces())
    while pending:
        namespace = pending.pop()
        yield from catalog.list_tables(namespace)
        pending.extend(catalog.list_namespaces(namespace))


def find_neighbours(
    catalog: Catalog,
    identifier: Identifier,
    location: str,
    listed: Iterable[FileInfo],
    keys: LocationKeys,
) -> Neighbours:
    """The other tables of the catalog, and whose folders lie below `location`.

    A folder `x/` below it with `x/metadata/*.metadata.json` belongs to a table as well, of this catalog or not.
    """
    ours = keys.key(location).rstrip("/") + "/"
    versions = tuple(catalog.load(other) for other in all_tables(catalog) if other != identifier)
    folders: set[str] = set()
    for version in versions:
        properties = version.metadata.properties
        roots = [
            version.metadata.location,
            *(properties[name] for name in _PATH_PROPERTIES if name in properties),
        ]
        theirs = [keys.key(root).rstrip("/") + "/" for root in roots]
        folders.update(root for root in theirs if root.startswith(ours) and root != ours)
    for info in listed:
        if info.location.endswith((".metadata.json", ".metadata.json.gz")):
            root, found, _ = keys.key(info.location).rpartition("/metadata/")
            if found and root + "/" != ours:
                folders.add(root + "/")
    return Neighbours(tuple(sorted(folders)), versions)
