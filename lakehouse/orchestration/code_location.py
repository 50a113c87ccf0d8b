"""Everything that Dagster sees of a pipeline, as one value."""

from __future__ import annotations

import dagster as dg

from lakehouse.orchestration.assets.lakehouse_io_manager import LakehouseIOManager
from lakehouse.orchestration.automation.event_definitions import event_definitions
from lakehouse.orchestration.automation.table_maintenance import maintenance_definitions
from lakehouse.orchestration.checks.statement_checks import (
    statement_checks,
    statement_job,
    statement_sensor,
)
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark


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
