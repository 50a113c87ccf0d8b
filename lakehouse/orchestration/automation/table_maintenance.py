"""Jobs, sensors and schedules that look after tables, whoever writes these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from lakehouse.errors import InvalidInputError
from lakehouse.orchestration.automation.maintenance_jobs import (
    PROJECT_POLICY,
    maintenance_jobs,
    state_job,
)
from lakehouse.orchestration.automation.maintenance_sensors import (
    maintenance_schedules,
    maintenance_sensors,
)
from lakehouse.orchestration.state.state_asset import state_asset
from lakehouse.spec.identifier import Identifier


@dataclass(frozen=True)
class TableMaintenance:
    """Tables that others write (Spark SQL, a server's clients), to be looked after by this project.

    Each table's policy is its properties (docs/maintenance.md).

    >>> TableMaintenance(tables=("raw.clicks", "marts.users")).tables
    ('raw.clicks', 'marts.users')

    Attributes:
        tables: their names, dotted.

    Raises:
        InvalidInputError: a name that no table can have, one that is there twice, or none at all.
    """

    tables: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the names."""
        for name in self.tables:
            Identifier.parse(name)
        twice = [name for name, count in Counter(self.tables).items() if count > 1]
        if twice or not self.tables:
            what = f"names {', '.join(twice)} twice" if twice else "names no table"
            raise InvalidInputError(f"TableMaintenance {what}")


def maintenance_definitions(tables: Sequence[str]) -> dg.Definitions:
    """Compaction, rewriting of manifests, expiry, orphan removal, and the state of the lakehouse.

    They need the resource `lakehouse`. A project has one of these, of all its tables.

    Args:
        tables: dotted names; those that nothing has created yet are passed over.
    """
    return dg.Definitions(
        assets=[state_asset(tables, PROJECT_POLICY)],
        jobs=[*maintenance_jobs(tables), state_job()],
        sensors=maintenance_sensors(tables),
        schedules=maintenance_schedules(),
    )
