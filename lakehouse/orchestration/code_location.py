"""Everything that Dagster sees of a pipeline, as one value."""

from __future__ import annotations

import dagster as dg

from lakehouse.orchestration.automation.event_definitions import event_definitions
from lakehouse.orchestration.automation.maintenance_jobs import (
    PROJECT_POLICY,
    maintenance_jobs,
    state_job,
)
from lakehouse.orchestration.automation.maintenance_sensors import (
    maintenance_schedules,
    maintenance_sensors,
)
from lakehouse.orchestration.checks.statement_checks import (
    statement_checks,
    statement_job,
    statement_sensor,
)
from lakehouse.orchestration.plain_assets.lakehouse_io_manager import LakehouseIOManager
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.orchestration.state.state_asset import state_asset


def build_definitions(
    pipeline: Pipeline, lakehouse: LakehouseResource, spark: LakehouseSpark
) -> dg.Definitions:
    """All Dagster definitions of a pipeline; `dg.Definitions.merge` adds others.

    Raises:
        InvalidInputError: the pipeline's tables contradict each other.
    """
    tables, maintained = list(pipeline.table_names()), pipeline.maintained()
    upkeep = dg.Definitions(
        assets=[state_asset(maintained, PROJECT_POLICY)],
        asset_checks=statement_checks(tables),
        jobs=[*maintenance_jobs(maintained), state_job(), statement_job(tables)],
        sensors=[*maintenance_sensors(maintained), statement_sensor(tables)],
        schedules=maintenance_schedules(),
        resources={
            "lakehouse": lakehouse,
            "spark": spark,
            "io_manager": LakehouseIOManager(lakehouse=lakehouse, spark=spark),
        },
        # one process, and so one JVM, a run
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(event_definitions(pipeline), upkeep)
