"""Where a table's files may be. Checked before each metadata file is written, on every catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakehouse.catalog.protocol import TableVersion
from lakehouse.errors import InvalidLocationError, MaintenanceRefusedError
from lakehouse.spec.properties import TableProperties
from lakehouse.spec.table_metadata import TableMetadata
from lakehouse.storage.location import is_within, overlap

ALLOWED_LOCATIONS = "allowed-locations"
"""Catalog property: comma-separated locations, besides the warehouse, below which tables may live."""


def allowed_roots(warehouse: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """The warehouse and what `allowed-locations` adds."""
    extra = (part.strip() for part in properties.get(ALLOWED_LOCATIONS, "").split(","))
    return (warehouse, *(part for part in extra if part))


def check_locations(metadata: TableMetadata, roots: Iterable[str]) -> None:
    """Raise InvalidLocationError when the table's location, or a path property, lies outside every root."""
    known = tuple(roots)
    check_within("The table location", metadata.location, known)
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
    """Raise InvalidLocationError when `location` lies outside every root, or is one."""
    if not any(is_within(location, root) and not is_within(root, location) for root in roots):
        raise InvalidLocationError(
            f"{what} {location} is outside the warehouse {roots[0]}. Choose a folder below it, "
            f"or list its parent in the catalog property {ALLOWED_LOCATIONS}.",
            location=location,
            warehouse=roots[0],
        )


def check_purge(version: TableVersion) -> None:
    """Raise MaintenanceRefusedError when the table's files may belong to others as well (`gc.enabled` = false)."""
    if not TableProperties(version.metadata.properties).gc_enabled:
        raise MaintenanceRefusedError(
            f"Table {version.identifier} has gc.enabled=false: its files may be used by other tables. Drop it without purge, or "
            "set gc.enabled=true if they are its own.",
            table=str(version.identifier),
        )


def check_no_overlap(location: str, others: Iterable[tuple[str, str]]) -> None:
    """Raise InvalidLocationError when `location` contains, or lies in, the location of another table.

    Args:
        location: of the new table.
        others: (table name, location) of every other table.
    """
    for name, other in others:
        if overlap(location, other):
            raise InvalidLocationError(
                f"Location {location} overlaps {other} of table {name}: nobody could tell their files apart. "
                "Choose another folder.",
                location=location,
                other_table=name,
            )
