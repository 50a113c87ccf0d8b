"""Keeps what clients say of a table's files within the table: they could name those of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion, walk_tables
from lakehouse.catalog.confinement import (
    ReadableFiles,
    certain_folders,
    check_no_overlap,
    leads_elsewhere,
)
from lakehouse.catalog.metadata_files import metadata_folder
from lakehouse.errors import NoSuchTableError
from lakehouse.manifests.manifest_reader import load_manifests
from lakehouse.server.access.privileges import Caller, Privilege
from lakehouse.server.error_answers import HttpError
from lakehouse.server.served_tables import ServedTables
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_updates import AddSnapshot, SetLocation, SetProperties, Update
from lakehouse.storage.location import is_within, lies_within
from lakehouse.storage.storage_protocol import Storage

_PATHS = ("write.data.path", "write.metadata.path")


def check_updates(
    catalog: Catalog,
    tables: ServedTables,
    caller: Caller,
    identifier: Identifier,
    base: TableVersion | None,
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
        base: its newest version; None for one that is to be created.
        updates: the changes that the client sent.

    Raises InvalidLocationError; HttpError, 403.
    """
    moved = [update.location for update in updates if isinstance(update, SetLocation)]
    named = [*moved, *_paths(updates)]
    certain: Sequence[str] = ()
    if base is not None:
        certain = certain_folders(base)
        if caller.name is not None:  # any writer of the folder may have written it
            named += [base.metadata.location, metadata_folder(base.metadata)]
    new = [
        location for location in named if not any(is_within(location, folder) for folder in certain)
    ]
    is_bound = not caller.may(Privilege.MANAGE, ())
    if is_bound:  # first: no later refusal says what is elsewhere
        for path in new:
            check_location(catalog, caller, identifier, path)
        for path in named:
            if path not in new and leads_elsewhere(catalog, path):
                raise _forbidden(caller, f"put {identifier} at {path}, behind a link")
    # where a new table may lie the catalog sees to when it creates it
    elsewhere = [location for location in new if base is not None or not _within(location, moved)]
    if elsewhere:
        others = list(_folders_of_others(catalog, tables, identifier))
        for path in elsewhere:
            check_no_overlap(path, others)
    if not is_bound:
        return
    folders = [*certain, *named]
    for update in updates:
        if isinstance(update, AddSnapshot):
            _check_lists(caller, identifier, update.snapshot, lambda path: _within(path, folders))


def check_location(catalog: Catalog, caller: Caller, identifier: Identifier, location: str) -> None:
    """Raise HttpError, 403, where the caller may not put a new table there."""
    home = catalog.namespace_location(identifier.namespace)
    outside = not is_within(location, home) or is_within(home, location)
    if caller.may(Privilege.MANAGE, ()):
        return
    if outside or leads_elsewhere(catalog, location):
        raise _forbidden(caller, f"put {identifier} at {location}, outside {home}")


def is_location_certain(caller: Caller, version: TableVersion) -> bool:
    """Whether a caller may have access to what lies at the location that the metadata says.

    Its metadata file lies there (see `certain_folders`), or the caller manages the catalog.
    """
    return version.metadata.location in certain_folders(version) or caller.may(Privilege.MANAGE, ())


def check_manifests(
    catalog: Catalog,
    caller: Caller,
    version: TableVersion,
    snapshots: Iterable[Snapshot],
    storage: Storage,
) -> None:
    """Raise HttpError, 403, where planning would read manifests outside the table's folders.

    Callers who may manage the catalog may have them read.
    """
    if caller.may(Privilege.MANAGE, ()):
        return
    identifier = version.identifier
    readable = ReadableFiles(catalog, version)
    for snapshot in snapshots:
        _check_lists(caller, identifier, snapshot, readable.hold)
        for manifest in load_manifests(storage, snapshot):
            if not readable.hold(manifest.manifest_path):
                raise _forbidden(
                    caller, f"read {manifest.manifest_path}, outside the folders of {identifier}"
                )


def _check_lists(
    caller: Caller, identifier: Identifier, snapshot: Snapshot, is_own: Callable[[str], bool]
) -> None:
    lists = snapshot.manifests or (snapshot.manifest_list,)
    for manifest_list in lists:
        if not is_own(manifest_list):
            raise _forbidden(caller, f"use {manifest_list}, outside the folders of {identifier}")


def _paths(updates: Sequence[Update]) -> Iterator[str]:
    for update in updates:
        if isinstance(update, SetProperties):
            yield from (update.updates[key] for key in _PATHS if key in update.updates)


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
