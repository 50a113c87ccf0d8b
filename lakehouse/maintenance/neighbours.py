"""Other tables whose files lie under a table's location."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakehouse.catalog.protocol import Catalog, Namespace
from lakehouse.maintenance.locations import LocationKeys
from lakehouse.maintenance.reachability import reachable_keys
from lakehouse.maintenance.walker import StorageWalker
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.protocol import FileInfo

_PATH_PROPERTIES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Files that are not ours.

    Attributes:
        folders: keys of folders, each ending in a slash, that belong to other tables as a whole.
        files: keys of files that tables sharing our location reach.
    """

    folders: tuple[str, ...]
    files: frozenset[str]

    def owns(self, key: str) -> bool:
        """Whether another table owns the file with this key."""
        return key in self.files or key.startswith(self.folders)


def all_tables(catalog: Catalog) -> Iterable[Identifier]:
    """Every table of the catalog."""
    pending: list[Namespace] = list(catalog.list_namespaces())
    while pending:
        namespace = pending.pop()
        yield from catalog.list_tables(namespace)
        pending.extend(catalog.list_namespaces(namespace))


def find_neighbours(
    catalog: Catalog, identifier: Identifier, location: str, listed: Iterable[FileInfo], keys: LocationKeys
) -> Neighbours:
    """Tables of the catalog that overlap `location`, and folders below it that look like a table of someone else.

    A table below our location owns its folder. One at or above our location, or with a data path that overlaps it, owns
    what it reaches. A folder `x/` with `x/metadata/*.metadata.json` owns itself. Every error propagates.
    """
    ours = keys.key(location).rstrip("/") + "/"
    folders: set[str] = set()
    files: set[str] = set()
    for other in all_tables(catalog):
        if other == identifier:
            continue
        version = catalog.load(other)
        metadata = version.metadata
        roots = [metadata.location, *(metadata.properties[name] for name in _PATH_PROPERTIES if name in metadata.properties)]
        theirs = [keys.key(root).rstrip("/") + "/" for root in roots]
        folders.update(root for root in theirs if root.startswith(ours) and root != ours)
        if any(ours.startswith(root) for root in theirs):
            walker = StorageWalker(catalog.storage(metadata.location), metadata)
            files |= reachable_keys(metadata, version.metadata_location, walker, keys)
    folders.update(_foreign_roots(ours, listed, keys))
    return Neighbours(tuple(sorted(folders)), frozenset(files))


def _foreign_roots(ours: str, listed: Iterable[FileInfo], keys: LocationKeys) -> set[str]:
    roots = set()
    for info in listed:
        if info.location.endswith((".metadata.json", ".metadata.json.gz")):
            root, found, _ = keys.key(info.location).rpartition("/metadata/")
            if found and root + "/" != ours:
                roots.add(root + "/")
    return roots
