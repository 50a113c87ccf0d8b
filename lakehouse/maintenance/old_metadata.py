"""Metadata files of earlier versions that the metadata log no longer names."""

from __future__ import annotations

import re

from lakehouse.catalog.protocol import TableVersion
from lakehouse.maintenance.locations import LocationKeys
from lakehouse.storage.protocol import Storage

_NAME = re.compile(r"^v?(\d+)(?:-[0-9a-fA-F-]{36})?(?:\.gz)?\.metadata\.json(?:\.gz)?$")


def metadata_version(location: str) -> int | None:
    """The version in a metadata file's name, 12 for `v12.metadata.json` and `00012-<uuid>.metadata.json`; else None."""
    match = _NAME.match(location.rsplit("/", 1)[-1])
    return int(match.group(1)) if match else None


def old_metadata_files(
    storage: Storage, version: TableVersion, older_than_ms: int
) -> dict[str, int]:
    """Location -> bytes of metadata files beside the current one, older than the cut and than every version still named.

    Files of versions that commits under way may be writing have higher numbers and stay; so do files with other names.
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
        ):
            found[info.location] = info.size
    return found
