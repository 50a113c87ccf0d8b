"""A census: what lies under a table's location against what its metadata reaches."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.maintenance.reachability.location_keys import LocationKeys, is_bookkeeping
from lakehouse.maintenance.reachability.reachable_files import StorageWalker, reachable_keys
from lakehouse.spec.identifier import Identifier


@dataclass(frozen=True, slots=True)
class Census:
    """Keys (`LocationKeys.key`) of files.

    Attributes:
        present: found under the table's location, location key -> bytes.
        reachable: named by the metadata, columnar manifests included whether they exist or not.
        missing: reachable, must exist, and do not. Empty for a healthy table.
        unreachable: present, reached by nothing; earlier metadata files, the version hint and
            expiry journals are not counted.
    """

    present: dict[str, int]
    reachable: frozenset[str]
    missing: frozenset[str]
    unreachable: frozenset[str]


def take_census(catalog: Catalog, identifier: Identifier) -> Census:
    """List the table's location and walk its metadata; any read error propagates."""
    keys = LocationKeys()
    version = catalog.load(identifier)
    storage = catalog.storage(version.metadata.location)
    present = {
        keys.key(info.location): info.size for info in storage.list(version.metadata.location)
    }
    reachable = reachable_keys(
        version.metadata, version.metadata_location, StorageWalker(storage, version.metadata), keys
    )
    missing = frozenset(
        key
        for key in reachable - present.keys()
        if not key.endswith(".columnar.parquet") and not storage.exists(key)
    )
    return Census(
        present,
        frozenset(reachable),
        missing,
        frozenset(key for key in present.keys() - reachable if not is_bookkeeping(key)),
    )
