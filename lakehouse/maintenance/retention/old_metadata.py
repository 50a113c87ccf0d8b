"""Metadata files of earlier versions that the metadata log no longer names."""

from __future__ import annotations

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.catalog.metadata_files import read_metadata
from lakehouse.errors import CorruptMetadataError, NoSuchFileError
from lakehouse.maintenance.reachability.bookkeeping_files import metadata_version
from lakehouse.maintenance.reachability.location_keys import LocationKeys
from lakehouse.storage.storage_protocol import Storage


def old_metadata_files(
    storage: Storage, version: TableVersion, older_than_ms: int
) -> dict[str, int]:
    """Location -> bytes of metadata files to delete: old, and before every version still named.

    Files of versions that commits under way may be writing have higher numbers and stay; so do
    files with other names, and those of other tables, such as one that was dropped and had the same
    name.
    """
    keys = LocationKeys()
    current = version.metadata_location
    named = [current, *(entry.metadata_file for entry in version.metadata.metadata_log)]
    versions = [metadata_version(location) for location in named]
    if any(found is None for found in versions):
        return {}
    first = min(found for found in versions if found is not None)
    protected = {keys.key(location) for location in named}
    found: dict[str, int] = {}
    for info in storage.list(current.rsplit("/", 1)[0]):
        number = metadata_version(info.location)
        if (
            number is not None
            and number < first
            and info.modified_ms < older_than_ms
            and keys.key(info.location) not in protected
            and _belongs(storage, info.location, version)
        ):
            found[info.location] = info.size
    return found


def _belongs(storage: Storage, location: str, version: TableVersion) -> bool:
    """Whether a metadata file is of this table.

    Not if it says nothing, as the one that ends a dropped table.
    """
    try:
        return read_metadata(storage, location).table_uuid == version.metadata.table_uuid
    except (NoSuchFileError, CorruptMetadataError):
        return False
