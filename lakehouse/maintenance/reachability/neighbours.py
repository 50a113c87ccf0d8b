"""Other tables of the catalog.

Whose folders lie in a table's folders, and whose metadata names files there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion, walk_tables
from lakehouse.catalog.confinement import table_folders
from lakehouse.errors import MaintenanceRefusedError
from lakehouse.kept_by_bytes import MadeOnce, bytes_of
from lakehouse.maintenance.reachability.location_keys import LocationKeys, is_bookkeeping
from lakehouse.maintenance.reachability.reachable_files import StorageWalker, iterate_reachable
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.storage.storage_protocol import FileInfo

_NAMED: MadeOnce[frozenset[str]] = MadeOnce()
"""Manifest and folders -> keys of the files there that the manifest names.

Manifests never change, and hardly any names one:
so each is read once in a process, however many tables are maintained."""


@dataclass(frozen=True, slots=True)
class KnownTables:
    """All tables of a catalog as they were loaded once, for whoever looks at many of them.

    Attributes:
        versions: the tables.
        folders: (key of a folder of a table, ending in a slash; position of the table), sorted.
    """

    versions: tuple[TableVersion, ...]
    folders: tuple[tuple[str, int], ...]

    @classmethod
    def of(
        cls, catalog: Catalog, keys: LocationKeys | None = None, before: KnownTables | None = None
    ) -> KnownTables:
        """As they are now. An error of one table propagates: its folders would be nobody's.

        Args:
            catalog: has them.
            keys: of folders.
            before: loaded earlier: metadata of a table to which nothing was committed since is not
                read again.
        """
        keys = keys or LocationKeys()
        known = {} if before is None else {one.identifier: one for one in before.versions}
        versions = tuple(
            catalog.refresh(known[identifier]) if identifier in known else catalog.load(identifier)
            for identifier in walk_tables(catalog)
        )
        folders = sorted(
            (keys.key(root).rstrip("/") + "/", position)
            for position, version in enumerate(versions)
            for root in table_folders(version.metadata)
        )
        return cls(versions, tuple(folders))

    def folders_below(self, folder: str, identifier: Identifier) -> Iterator[str]:
        """Keys of folders of other tables that begin with the key of a folder."""
        for at in range(bisect_left(self.folders, (folder, 0)), len(self.folders)):
            key, position = self.folders[at]
            if not key.startswith(folder):
                return
            if self.versions[position].identifier != identifier:
                yield key


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Other tables of a catalog, seen from the folders of one.

    Attributes:
        around: keys of the folders seen from, each ending in a slash.
        folders: keys of folders below them, each ending in a slash, that belong to other tables as
            a whole.
        versions: the other tables.
        keys: decides when two spellings are the same file.
    """

    around: tuple[str, ...]
    folders: tuple[str, ...]
    versions: tuple[TableVersion, ...]
    keys: LocationKeys = field(default_factory=LocationKeys)

    def owns(self, location: str) -> bool:
        """Whether a file lies in another table's folder."""
        return self.keys.key(location).startswith(self.folders)

    def reached(self, catalog: Catalog, locations: Sequence[str]) -> set[str]:
        """Those of `locations` (in the folders seen from) that another table's metadata names.

        Every read error propagates.
        """
        by_key = {self.keys.key(location): location for location in locations}
        return {by_key[key] for _, key in self.named(catalog) if key in by_key} if by_key else set()

    def named(self, catalog: Catalog) -> Iterator[tuple[TableVersion, str]]:
        """(table, key) of every file in the folders seen from that another table names."""
        for version in self.versions:
            walker = StorageWalker(catalog.storage(version.metadata.location), version.metadata)
            files = partial(self._named, walker)
            for location in iterate_reachable(
                version.metadata, version.metadata_location, walker, files=files
            ):
                key = self.keys.key(location)
                if key.startswith(self.around):
                    yield version, key

    def _named(self, walker: StorageWalker, manifest: ManifestFile) -> frozenset[str]:
        """Keys of the live files of a manifest that lie in the folders seen from."""
        identity = (manifest.manifest_path, manifest.manifest_length, self.around)

        def make() -> frozenset[str]:
            keys = (self.keys.key(file.location) for file in walker.live_files(manifest))
            return frozenset(key for key in keys if key.startswith(self.around))

        return _NAMED.of((), identity, make, lambda made: bytes_of(identity, made))


def find_neighbours(
    catalog: Catalog,
    identifier: Identifier,
    around: Sequence[str],
    listed: Iterable[FileInfo] = (),
    keys: LocationKeys | None = None,
    tables: KnownTables | None = None,
) -> Neighbours:
    """The other tables of the catalog, and whose folders lie below the folders `around`.

    A folder `x/` among the files `listed` with `x/metadata/*.metadata.json` belongs to a table as
    well, of this catalog or not.

    Args:
        catalog: has them.
        identifier: the table seen from.
        around: its folders.
        listed: files below them.
        keys: decides when two spellings are the same file.
        tables: None: they are loaded now. Whoever deletes files looks for them after the listing.
    """
    keys = keys or LocationKeys()
    ours = tuple(keys.key(location).rstrip("/") + "/" for location in around)
    tables = tables or KnownTables.of(catalog, keys)
    theirs = {key for folder in ours for key in tables.folders_below(folder, identifier)}
    for info in listed:
        if info.location.endswith((".metadata.json", ".metadata.json.gz")):
            root, in_metadata, _ = keys.key(info.location).rpartition("/metadata/")
            if in_metadata:
                theirs.add(root + "/")
    folders = sorted(their for their in theirs if their.startswith(ours) and their not in ours)
    versions = (version for version in tables.versions if version.identifier != identifier)
    return Neighbours(ours, tuple(folders), tuple(versions), keys)


def check_not_shared(catalog: Catalog, identifier: Identifier) -> None:
    """Raise MaintenanceRefusedError when another table's metadata names files of this one.

    Raises NoSuchTableError; every error while reading other tables propagates.
    """
    location = catalog.load(identifier).metadata.location
    neighbours = find_neighbours(catalog, identifier, [location])
    for version, key in neighbours.named(catalog):
        if not neighbours.owns(key) and not is_bookkeeping(key):
            raise MaintenanceRefusedError(
                f"Cannot purge table {identifier}: table {version.identifier} uses its file "
                f"{key}. Drop it without purge.",
                table=str(identifier),
                other_table=str(version.identifier),
            )
