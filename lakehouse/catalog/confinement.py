"""Where a table's files may be, which are its own, and what a transaction may add to it.

Locations are checked before each metadata file is written, on every catalog. Paths in metadata and
manifests are not trusted: another engine wrote them, or anybody who can write into the folder. A
file is deleted only if it is inside the folders that belong to the table, after links of the file
system are resolved.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion, walk_tables
from lakehouse.catalog.folders import own_suffix
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, InvalidLocationError, MaintenanceRefusedError
from lakehouse.kept_by_bytes import MadeOnce
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.views.view_metadata import ViewMetadata
from lakehouse.storage.location import (
    basename,
    canonical,
    is_within,
    join,
    lies_within,
    local_path,
    parent,
    parse,
)
from lakehouse.storage.storage_protocol import FileInfo, Storage, path_on_disk

ALLOWED_LOCATIONS = "allowed-locations"
"""Catalog property: comma-separated locations outside the warehouse where tables may live."""
_METADATA_ENDINGS = (".metadata.json", ".metadata.json.gz")


def allowed_roots(warehouse: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """The warehouse and what `allowed-locations` adds.

    None where the warehouse is the name of a server's: the server places tables, and vouches for
    where they lie.
    """
    extra = [part.strip() for part in properties.get(ALLOWED_LOCATIONS, "").split(",")]
    is_location = warehouse.startswith("/") or "://" in warehouse
    return (*([warehouse] if is_location else []), *(part for part in extra if part))


def check_locations(metadata: TableMetadata | ViewMetadata, roots: Iterable[str]) -> None:
    """Raise InvalidLocationError if the location or a path property is outside all roots."""
    known = tuple(roots)
    kind = "table" if isinstance(metadata, TableMetadata) else "view"
    check_within(f"The {kind} location", metadata.location, known)
    properties = TableProperties(metadata.properties)
    check_within(
        "The data location (write.data.path)", properties.data_location(metadata.location), known
    )
    check_within(
        "The metadata location (write.metadata.path)",
        properties.metadata_location(metadata.location),
        known,
    )


def check_within(what: str, location: str, roots: tuple[str, ...]) -> None:
    """Raise InvalidLocationError when `location` lies outside every root, or is one.

    Where there are no roots the catalog's server decides.
    """
    if roots and not any(
        is_within(location, root) and not is_within(root, location) for root in roots
    ):
        raise InvalidLocationError(
            f"{what} {location} is outside the warehouse {roots[0]}. Choose a folder below it, "
            f"or list its parent in the catalog property {ALLOWED_LOCATIONS}.",
            location=location,
            warehouse=roots[0],
        )


def check_gc_enabled(identifier: Identifier, metadata: TableMetadata, action: str) -> None:
    """Raise MaintenanceRefusedError when other tables may use the files (`gc.enabled` = false)."""
    if not TableProperties(metadata.properties).gc_enabled:
        raise MaintenanceRefusedError(
            f"Cannot {action} of {identifier}: its property gc.enabled is false, other tables may "
            "use its files. Set it to true if they are its own.",
            table=str(identifier),
        )


def check_purged_folder(
    version: TableVersion, roots: Iterable[str], others: Iterable[tuple[str, str]]
) -> None:
    """Raise InvalidLocationError unless a table's folder is its own, whatever its metadata says.

    Args:
        version: the table.
        roots: below which tables may live.
        others: (table name, location) of every other table.
    """
    metadata = version.metadata
    check_locations(metadata, roots)
    path = TableProperties(metadata.properties).metadata_location(metadata.location)
    if not any(is_within(version.metadata_location, place) for place in (metadata.location, path)):
        raise InvalidLocationError(
            f"Table {version.identifier} says to be at {metadata.location}, but its metadata is in "
            f"{version.metadata_location}. Drop it without purge.",
            location=metadata.location,
        )
    check_no_overlap(metadata.location, others)


def check_unused(location: str, storage: Storage, *, staged: bool) -> None:
    """Raise InvalidLocationError when anything lies at the location of a new table.

    Nobody could tell whose it is. Files of a table that is `staged` are there before it is created,
    but no metadata file: that is what every table that ever was there has left.
    """
    left = _left_metadata(location, storage) if staged else next(iter(storage.list(location)), None)
    if left is not None:
        raise InvalidLocationError(
            f"Location {location} is not empty: {left.location} is there, of a dropped table "
            "perhaps. Choose another folder, "
            "or register the table that it belongs to.",
            location=location,
        )


def unused_folder(location: str, storage: Storage, environment: Environment) -> str:
    """`location` itself, or a folder of its own below where a dropped table left metadata."""
    if _left_metadata(location, storage) is None:
        return location
    return join(location, own_suffix(environment))


def _left_metadata(location: str, storage: Storage) -> FileInfo | None:
    for file in storage.list(location):
        if file.location.endswith(_METADATA_ENDINGS):
            return file
    return None


_FOLDERS: MadeOnce[str] = MadeOnce()


def _folder(location: str) -> str:
    """A table's folder in the spelling that aliases share, its slash at the end."""
    return _FOLDERS.of(
        (), location, lambda: canonical(location).rstrip("/") + "/", lambda _: 8 * len(location)
    )


def check_no_overlap(location: str, others: Iterable[tuple[str, str]]) -> None:
    """Raise InvalidLocationError if `location` contains, or lies in, that of another table.

    Args:
        location: of the new table.
        others: (table name, location) of every other table.
    """
    mine = _folder(location)
    for name, other in others:
        theirs = _folder(other)
        if mine.startswith(theirs) or theirs.startswith(mine):
            raise InvalidLocationError(
                f"Location {location} overlaps {other} of table {name}: nobody could tell their "
                "files apart. Choose another folder.",
                location=location,
                other_table=name,
            )


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
            folder
            for folder in table_folders(metadata)
            if not roots
            or any(lies_within(folder, root) and not lies_within(root, folder) for root in roots)
        ]
        self.folders: tuple[str, ...] = tuple(
            place
            for place in named
            if not any(
                lies_within(place, other) and not lies_within(other, place) for other in named
            )
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
        return any(lies_within(folder, own) for own in self.folders)

    def _is_real(self, folder: str) -> bool:
        real = _resolved(self._storage, folder)
        return any(lies_within(real, _resolved(self._storage, own)) for own in self.folders)


def certain_folders(version: TableVersion) -> tuple[str, ...]:
    """The folders that are the table's whatever its metadata file says.

    Who may write into a table's folder may write over that file; the catalog knows where it is. The
    location is certain where the file lies in its `metadata`, or in that beside it: in a filesystem
    catalog `t/metadata` is the metadata of `t/<id>`, too, a table whose name was taken before.
    """
    folder, location = parent(version.metadata_location), version.metadata.location
    home, _, name = folder.rstrip("/").rpartition("/")
    is_certain = name == "metadata" and lies_within(location, home)
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
        if not any(lies_within(location, own) for own in self._folders):
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
    root = next((root for root in roots if lies_within(folder, root)), "/")
    base = os.path.normpath(local_path(root))
    expected = Path(os.path.realpath(base)) / os.path.relpath(path, base)
    return Path(os.path.realpath(path)) != expected


def original_of(location: str, folder: str, warehouse: str) -> str | None:
    """Where the warehouse was whose copy a folder lies in; None: the location lies in this one.

    Args:
        location: of the table, as its metadata says.
        folder: where its metadata lies, in `warehouse`.
        warehouse: of the catalog.

    Raises:
        InvalidInputError: the location does not end as the folder does.
    """
    if is_within(location, warehouse):
        return None
    inner = canonical(folder)[len(canonical(warehouse).rstrip("/")) :]
    root, inside, _ = (canonical(location) + "/").rpartition(inner.rstrip("/") + "/")
    if not inside:
        raise InvalidInputError(
            f"the table in {folder} says that it lies in {location}: that does not tell where the "
            "warehouse was; name it (--from)"
        )
    return root


def check_is_no_copy(catalog: Catalog, identifier: Identifier, location: str, folder: str) -> None:
    """Raise InvalidLocationError for a table of a copied warehouse: it names the original's files.

    A warehouse that is mounted at two places is no copy.
    """
    roots = allowed_roots(catalog.warehouse, catalog.properties)
    if any(is_within(location, root) for root in roots):
        return
    try:
        original = original_of(location, folder, catalog.warehouse)
    except InvalidInputError:
        return
    here = catalog.warehouse
    if original is None or (
        parse(here).is_local
        and parse(original).is_local
        and Path(local_path(original)).exists()
        and Path(local_path(original)).samefile(local_path(here))
    ):
        return
    raise InvalidLocationError(
        f"{identifier} names files below {original}, and this warehouse is {here}: it is a copy. "
        "`lakehouse relocate` makes it name its own files (--dry-run shows what it would do); to "
        f"read the original's from here, list {original} in the catalog property "
        f"{ALLOWED_LOCATIONS}",
        location=location,
        warehouse=here,
    )


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
    guests = [location for location in locations if not own.name(location)]
    if not guests:
        return
    roots = allowed_roots(catalog.warehouse, catalog.properties)
    for guest in guests:
        if roots and not any(lies_within(guest, root) for root in roots):
            raise InvalidLocationError(
                f"Table {identifier}: {guest} is outside the warehouse {roots[0]}. Copy the file "
                "into it, or list its folder in "
                "the catalog property allowed-locations.",
                location=guest,
            )
    for other in walk_tables(catalog):
        if other == identifier:
            continue
        folders = table_folders(catalog.load(other).metadata)
        for guest in guests:
            if any(lies_within(guest, folder) for folder in folders):
                raise InvalidLocationError(
                    f"Table {identifier}: {guest} is in the folder of table {other}, which deletes "
                    "its files when it needs them "
                    "no more. Copy the rows instead.",
                    location=guest,
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
