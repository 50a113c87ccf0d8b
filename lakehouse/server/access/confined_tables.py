"""Keeps what clients say of a table's files within the table: they could name those of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.catalog.catalog_walk import walk_tables
from lakehouse.catalog.confinement import check_no_overlap
from lakehouse.catalog.metadata_files import metadata_folder
from lakehouse.errors import NoSuchTableError
from lakehouse.scan.manifests.snapshot_entries import load_manifests
from lakehouse.server.access.privileges import Caller, Privilege
from lakehouse.server.error_answers import HttpError
from lakehouse.server.served_tables import ServedTables
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import (
    AddSnapshot,
    SetLocation,
    SetProperties,
    Update,
)
from lakehouse.storage.location import canonical, is_within, join, lies_within
from lakehouse.storage.storage_protocol import Storage

_PATHS = ("write.data.path", "write.metadata.path")


def check_updates(
    catalog: Catalog,
    tables: ServedTables,
    caller: Caller,
    identifier: Identifier,
    base: TableMetadata | None,
    updates: Sequence[Update],
) -> None:
    """Raise where updates name folders or manifests that are not the table's own.

    No folder may be that of another table. Callers who do not manage the catalog may only name
    folders in that of the namespace, and only manifest lists in the table's own.

    Args:
        catalog: holds the tables.
        tables: its newest versions.
        caller: who asks.
        identifier: the table.
        base: its newest metadata; None for one that is to be created.
        updates: what is asked for.

    Raises InvalidLocationError; HttpError, 403.
    """
    moved = [one.location for one in updates if isinstance(one, SetLocation)]
    named = [*moved, *_paths(updates)]
    own = [] if base is None else [base.location, metadata_folder(base)]
    new = [one for one in named if not any(is_within(one, folder) for folder in own)]
    # where a new table may lie the catalog sees to when it creates it
    elsewhere = [one for one in new if base is not None or not _within(one, moved)]
    if elsewhere:
        others = list(_folders_of_others(catalog, tables, identifier))
        for one in elsewhere:
            check_no_overlap(one, others)
    if caller.may(Privilege.MANAGE, ()):
        return
    home = join(catalog.warehouse, *identifier.namespace)
    for one in new:
        if not is_within(one, home) or canonical(one) == canonical(home):
            raise _forbidden(caller, f"put {identifier} at {one}, outside {home}")
    folders = [*own, *named]
    for update in updates:
        if isinstance(update, AddSnapshot):
            _check_lists(caller, identifier, update.snapshot, folders)


def check_location(catalog: Catalog, caller: Caller, identifier: Identifier, location: str) -> None:
    """Raise HttpError, 403, where the caller may not put a new table there."""
    home = join(catalog.warehouse, *identifier.namespace)
    outside = not is_within(location, home) or is_within(home, location)
    if outside and not caller.may(Privilege.MANAGE, ()):
        raise _forbidden(caller, f"put {identifier} at {location}, outside {home}")


def check_manifests(
    caller: Caller,
    identifier: Identifier,
    metadata: TableMetadata,
    snapshots: Iterable[Snapshot],
    storage: Storage,
) -> None:
    """Raise HttpError, 403, where planning would read manifests outside the table's folders.

    Whoever manages the catalog may have them read.
    """
    if caller.may(Privilege.MANAGE, ()):
        return
    folders = [metadata.location, metadata_folder(metadata)]
    for snapshot in snapshots:
        _check_lists(caller, identifier, snapshot, folders)
        for manifest in load_manifests(storage, snapshot):
            if not _within(manifest.manifest_path, folders):
                raise _forbidden(
                    caller, f"read {manifest.manifest_path}, outside the folders of {identifier}"
                )


def _check_lists(
    caller: Caller, identifier: Identifier, snapshot: Snapshot, folders: Sequence[str]
) -> None:
    lists = snapshot.manifests or (snapshot.manifest_list,)
    for one in lists:
        if not _within(one, folders):
            raise _forbidden(caller, f"use {one}, outside the folders of {identifier}")


def _paths(updates: Sequence[Update]) -> Iterator[str]:
    for one in updates:
        if isinstance(one, SetProperties):
            yield from (one.updates[key] for key in _PATHS if key in one.updates)


def _within(location: str, folders: Iterable[str]) -> bool:
    return any(lies_within(location, folder) for folder in folders)


def _folders_of_others(
    catalog: Catalog, tables: ServedTables, identifier: Identifier
) -> Iterator[tuple[str, str]]:
    for other in walk_tables(catalog):
        if other == identifier:
            continue
        try:
            metadata = tables.newest(other).metadata
        except NoSuchTableError:  # dropped meanwhile
            continue
        for folder in {metadata.location, metadata_folder(metadata)}:
            yield str(other), folder


def _forbidden(caller: Caller, what: str) -> HttpError:
    return HttpError(403, "ForbiddenException", f"{caller.name} may not {what}.")
