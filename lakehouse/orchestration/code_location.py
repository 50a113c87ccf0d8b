"""Everything that Dagster sees of a pipeline, as one value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from lakehouse.errors import InvalidInputError
from lakehouse.orchestration.assets.lakehouse_io_manager import LakehouseIOManager
from lakehouse.orchestration.automation.ingestion_jobs import nightly_schedule, source_jobs
from lakehouse.orchestration.automation.landing_sensors import landing_checks, landing_sensor
from lakehouse.orchestration.automation.maintenance_jobs import (
    PROJECT_POLICY,
    maintenance_jobs,
    state_job,
)
from lakehouse.orchestration.automation.maintenance_sensors import (
    maintenance_schedules,
    maintenance_sensors,
)
from lakehouse.orchestration.automation.quarantine_retry import fill_job, retry_job
from lakehouse.orchestration.checks.statement_checks import (
    statement_checks,
    statement_job,
    statement_sensor,
)
from lakehouse.orchestration.feed_assets import feed_sensor
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.orchestration.state.state_asset import state_asset
from lakehouse.spec.identifier import Identifier


def event_definitions(pipeline: Pipeline) -> dg.Definitions:
    """Assets, their jobs, sensors and schedules, without maintenance and without resources.

    Raises:
        InvalidInputError: the pipeline's tables contradict each other.
    """
    by_source = [(source, source_jobs(pipeline, source)) for source in pipeline.sources]
    again = [retry_job(pipeline), fill_job(pipeline)] if pipeline.sources else []
    conditions = [table.key for table in pipeline.derived if table.automation is not None]
    return dg.Definitions(
        assets=pipeline.assets(),
        asset_checks=landing_checks(pipeline),
        jobs=[*(job for _, jobs in by_source for job in jobs), *again],
        sensors=[
            *(landing_sensor(pipeline, source, jobs) for source, jobs in by_source),
            *(feed_sensor(feed) for feed in pipeline.feeds),
            *([_conditions_sensor(conditions)] if conditions else []),
        ],
        schedules=[nightly_schedule(source, index) for source, (index, _) in by_source],
    )


def _conditions_sensor(keys: list[dg.AssetKey]) -> dg.AutomationConditionSensorDefinition:
    return dg.AutomationConditionSensorDefinition(
        "automation_conditions",
        target=dg.AssetSelection.assets(*keys),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Computes derived tables by their automation conditions. The switch beside its name "
            "stops it."
        ),
    )


def build_definitions(
    pipeline: Pipeline, lakehouse: LakehouseResource, spark: LakehouseSpark
) -> dg.Definitions:
    """All Dagster definitions of a pipeline; `dg.Definitions.merge` adds others.

    Raises:
        InvalidInputError: the pipeline's tables contradict each other.
    """
    tables = list(pipeline.table_names())
    statements = dg.Definitions(
        asset_checks=statement_checks(tables),
        jobs=[statement_job(tables)],
        sensors=[statement_sensor(tables)],
        resources={
            "lakehouse": lakehouse,
            "spark": spark,
            "io_manager": LakehouseIOManager(lakehouse=lakehouse, spark=spark),
        },
        # one process, and so one Spark session, a run
        executor=dg.in_process_executor,
    )
    upkeep = maintenance_definitions(pipeline.maintained())
    return dg.Definitions.merge(event_definitions(pipeline), upkeep, statements)


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
