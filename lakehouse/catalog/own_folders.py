"""Which files are a table's own: what it may delete, and what a transaction may add to it.

Paths in metadata and manifests are not trusted: another engine wrote them, or anybody who can write
into the folder. A file is deleted only if it is inside the folders that belong to the table, after
links of the file system are resolved.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable
from pathlib import Path

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.catalog.catalog_walk import walk_tables
from lakehouse.catalog.confinement import allowed_roots, check_locations
from lakehouse.errors import InvalidLocationError
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.location import (
    basename,
    canonical,
    join,
    lies_within,
    local_path,
    parent,
    parse,
)
from lakehouse.storage.storage_protocol import Storage, path_on_disk

OTHER_PATHS = ("write.object-storage.path", "write.folder-storage.path")
"""Path properties of older writers. They add a folder where they name an allowed one."""
_KNOWN_MAX = 100_000


def check_table(catalog: Catalog, metadata: TableMetadata) -> None:
    """Raise InvalidLocationError unless the table may be written where its metadata says."""
    check_locations(metadata, allowed_roots(catalog.warehouse, catalog.properties))


def table_folders(metadata: TableMetadata) -> tuple[str, ...]:
    """The folders that metadata names as the table's.

    Its location, data and metadata paths, those of older writers.
    """
    properties = TableProperties(metadata.properties)
    named = (
        metadata.location,
        properties.data_location(metadata.location),
        properties.metadata_location(metadata.location),
        *(metadata.properties[name] for name in OTHER_PATHS if name in metadata.properties),
    )
    return tuple(dict.fromkeys(named))


class OwnFolders:
    """The folders of one table that lie where tables may lie.

    Args:
        catalog: knows the warehouse and the locations allowed beside it.
        metadata: of the table.

    Attributes:
        folders: the table's location first; none lies in another one.

    Raises:
        InvalidLocationError: the location, the data path or the metadata path lies outside the
            warehouse.
    """

    def __init__(self, catalog: Catalog, metadata: TableMetadata) -> None:
        check_table(catalog, metadata)
        roots = allowed_roots(catalog.warehouse, catalog.properties)
        named = [
            one
            for one in table_folders(metadata)
            if not roots
            or any(lies_within(one, root) and not lies_within(root, one) for root in roots)
        ]
        self.folders: tuple[str, ...] = tuple(
            one
            for one in named
            if not any(lies_within(one, other) and not lies_within(other, one) for other in named)
        )
        self._storage = catalog.storage(metadata.location)
        self._named: dict[str, bool] = {}
        self._real: dict[str, bool] = {}

    def name(self, location: str) -> bool:
        """Whether a file lies in one of the folders by its name.

        One with `..` in it lies nowhere.
        """
        return _of_folder(location, self._named, self._is_named)

    def hold(self, location: str) -> bool:
        """Whether a file lies in one of the folders, links of a local file system followed."""
        return self.name(location) and _of_folder(location, self._real, self._is_real)

    def _is_named(self, folder: str) -> bool:
        return any(lies_within(folder, one) for one in self.folders)

    def _is_real(self, folder: str) -> bool:
        real = _resolved(self._storage, folder)
        return any(lies_within(real, _resolved(self._storage, one)) for one in self.folders)


def certain_folders(version: TableVersion) -> tuple[str, ...]:
    """The folders that are the table's whatever its metadata file says.

    Who may write into a table's folder may write over that file; the catalog knows where it is. The
    location is certain where the file lies in its `metadata`.
    """
    folder, location = parent(version.metadata_location), version.metadata.location
    try:
        is_certain = canonical(join(location, "metadata")) == canonical(folder)
    except InvalidLocationError:
        is_certain = False
    return (location, folder) if is_certain else (folder,)


class ReadableFiles:
    """Files that are read because somebody named them who may not read everywhere.

    They lie in the table's certain folders, and are where their names say: on a local disk
    no link below the warehouse leads there from elsewhere.

    Args:
        catalog: knows the warehouse and the locations allowed beside it.
        version: of the table.
    """

    def __init__(self, catalog: Catalog, version: TableVersion) -> None:
        self._folders = certain_folders(version)
        self._catalog = catalog
        self._is_local = parse(version.metadata_location).is_local
        self._plain: dict[str, bool] = {}

    def hold(self, location: str) -> bool:
        """Whether a file is one of them."""
        if not any(lies_within(location, one) for one in self._folders):
            return False
        if not self._is_local:
            return True
        return not Path(local_path(location)).is_symlink() and _of_folder(
            location, self._plain, lambda folder: not leads_elsewhere(self._catalog, folder)
        )


def leads_elsewhere(catalog: Catalog, folder: str) -> bool:
    """Whether a link of the local file system below where tables may lie is a part of a folder.

    What the warehouse itself is a link to does not matter.
    """
    if not parse(folder).is_local:
        return False
    path = os.path.normpath(local_path(folder))
    roots = allowed_roots(catalog.warehouse, catalog.properties)
    root = next((one for one in roots if lies_within(folder, one)), "/")
    base = os.path.normpath(local_path(root))
    expected = Path(os.path.realpath(base)) / os.path.relpath(path, base)
    return Path(os.path.realpath(path)) != expected


def check_files(
    catalog: Catalog,
    identifier: Identifier,
    own: OwnFolders,
    locations: Iterable[str],
) -> None:
    """Raise InvalidLocationError for a file that the table must not take in.

    Files in its own folders are welcome; others in the warehouse, too, unless they lie in the
    folder of another table, which will delete them when it has no more use for them.
    """
    guests = [one for one in locations if not own.name(one)]
    if not guests:
        return
    roots = allowed_roots(catalog.warehouse, catalog.properties)
    for one in guests:
        if roots and not any(lies_within(one, root) for root in roots):
            raise InvalidLocationError(
                f"Table {identifier}: {one} is outside the warehouse {roots[0]}. Copy the file "
                "into it, or list its folder in "
                "the catalog property allowed-locations.",
                location=one,
            )
    for other in walk_tables(catalog):
        if other == identifier:
            continue
        folders = table_folders(catalog.load(other).metadata)
        for one in guests:
            if any(lies_within(one, folder) for folder in folders):
                raise InvalidLocationError(
                    f"Table {identifier}: {one} is in the folder of table {other}, which deletes "
                    "its files when it needs them "
                    "no more. Copy the rows instead.",
                    location=one,
                    other_table=str(other),
                )


def _of_folder(location: str, known: dict[str, bool], ask: Callable[[str], bool]) -> bool:
    """What `ask` says of the folder of a file, asked once for each folder."""
    if basename(location) in {"", ".", ".."}:
        return False
    folder = parent(location)
    if folder not in known:
        if len(known) > _KNOWN_MAX:
            known.clear()
        known[folder] = ask(folder)
    return known[folder]


def _resolved(storage: Storage, folder: str) -> str:
    """The folder with links of a local file system followed; elsewhere there are none."""
    path = path_on_disk(storage, folder)
    return folder if path is None else os.path.realpath(path)
