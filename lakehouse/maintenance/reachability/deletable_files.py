"""Which unreachable files of a table may be deleted.

Those in its own folders that no other table needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.catalog.own_folders import OwnFolders
from lakehouse.maintenance.reachability.bookkeeping_files import is_bookkeeping
from lakehouse.maintenance.reachability.neighbours import find_neighbours
from lakehouse.maintenance.reachability.reachable_files import Unreachable


@dataclass(frozen=True, slots=True)
class Deletable:
    """Files to delete, and how many are left where they are.

    Attributes:
        files: to delete, see Unreachable.
        left: reason -> number of unreachable files that stay.
    """

    files: Unreachable
    left: dict[str, int]


def deletable(catalog: Catalog, version: TableVersion, unreachable: Unreachable) -> Deletable:
    """Sort out what is not the table's to delete, whatever its metadata says.

    Raises:
        InvalidLocationError: the table's location, data path or metadata path lies outside the
            warehouse.
        StorageError, NoSuchFileError, CorruptMetadataError: metadata of another table cannot be
            read.
    """
    own = OwnFolders(catalog, version.metadata)
    files, left = unreachable, {}
    if not unreachable.count:
        return Deletable(files, {})

    def keep_out(reason: str, refused: Callable[[str], bool]) -> None:
        nonlocal files
        before = files.count
        files = files.without(refused)
        if before > files.count:
            left[reason] = before - files.count

    keep_out("outside the table's folders", lambda location: not own.hold(location))
    keep_out("bookkeeping of the catalog", is_bookkeeping)
    neighbours = find_neighbours(catalog, version.identifier, own.folders)
    keep_out("in the folder of another table", neighbours.owns)
    keep_out(
        "reached by another table",
        neighbours.reached(catalog, files.locations()).__contains__,
    )
    return Deletable(files, left)
