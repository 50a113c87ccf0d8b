"""Read what the advisor needs, and ask it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError
from lakehouse.maintenance.advice.advice import Advice, CostModel, advise
from lakehouse.maintenance.health.disk_use import disk_use
from lakehouse.maintenance.health.file_layout import measure_layout
from lakehouse.maintenance.health.scan_use import scan_use
from lakehouse.maintenance.health.table_health import read_current, table_health
from lakehouse.maintenance.maintenance_policy import policy_of
from lakehouse.spec.identifier import Identifier


def advise_table(
    catalog: Catalog,
    identifier: Identifier,
    *,
    environment: Environment | None = None,
    project: Mapping[str, str] | None = None,
    filters: Sequence[str] = (),
    list_files: bool = False,
    cost: CostModel | None = None,
    scan_reports: Iterable[Mapping[str, Any]] | None = None,
) -> Advice:
    """Advice on the current snapshot of a table; reads manifests, no data, changes nothing.

    Args:
        catalog: where the table is.
        identifier: the table.
        environment: the clock.
        project: defaults of the project for `lakehouse.maintenance.*`.
        filters: columns that queries filter by, the most frequent first.
        list_files: list the table's folders as well, so that orphans are known.
        cost: how fast this machine rewrites.
        scan_reports: of this table, and of others: what queries filter by, where `filters` does not
            say.

    Raises:
        NoSuchTableError: no such table.
        InvalidInputError: `filters` names a column that the table has not.
        InvalidPropertyError: a property of maintenance is unusable.
    """
    now_ms = (environment or Environment.system()).now_ms()
    version, manifests, entries = read_current(catalog, identifier)
    metadata = version.metadata
    if not filters and scan_reports is not None:
        filters = [
            name
            for name, _ in scan_use(
                scan_reports, str(identifier), metadata.schema().column_names
            ).columns
        ]
    unknown = [name for name in filters if name not in metadata.schema().column_names]
    if unknown:
        columns = ", ".join(metadata.schema().column_names)
        raise InvalidInputError(
            f"Table {identifier} has no column {unknown[0]}; it has {columns}",
            table=str(identifier),
        )
    policy = policy_of(metadata.properties, project)
    health = table_health(
        identifier,
        metadata,
        manifests,
        entries,
        policy=policy,
        metadata_bytes=catalog.storage(metadata.location).size(version.metadata_location),
        now_ms=now_ms,
        disk=disk_use(catalog, identifier, orphans_before_ms=now_ms - policy.orphan_age_ms)
        if list_files
        else None,
    )
    layout = measure_layout(entries, metadata)
    return advise(health, layout, metadata, policy, now_ms=now_ms, filters=filters, cost=cost)
