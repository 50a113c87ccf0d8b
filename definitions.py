"""The code location: `dagster dev`, `dg dev` and the containers all load this module."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from assets.pipeline import Pipeline, build_pipeline
from assets.state import state_asset
from jobs.ingestion import ingestion_jobs
from jobs.maintenance import PROJECT_POLICY, maintenance_jobs, state_job
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.orchestration.statement_checks import (
    statement_checks,
    statement_job,
    statement_sensor,
)
from sensors.daily import daily_schedules
from sensors.landing import landing_sensors
from sensors.maintenance import maintenance_schedules, maintenance_sensors

CHECKOUT = Path(__file__).resolve().parent


def build_definitions(
    pipeline: Pipeline, lakehouse: LakehouseResource, spark: LakehouseSpark
) -> dg.Definitions:
    """Everything that Dagster sees of a pipeline."""
    tables, events_jobs = list(pipeline.tables()), ingestion_jobs(pipeline)
    return dg.Definitions(
        assets=[*pipeline.assets(), state_asset(tables, PROJECT_POLICY)],
        asset_checks=statement_checks(tables),
        jobs=[*events_jobs, *maintenance_jobs(tables), state_job(), statement_job(tables)],
        sensors=[
            *landing_sensors(pipeline, events_jobs),
            *maintenance_sensors(tables),
            statement_sensor(tables),
        ],
        schedules=[*daily_schedules(pipeline, events_jobs), *maintenance_schedules()],
        resources={"lakehouse": lakehouse, "spark": spark},
        # one process, and so one JVM, a run
        executor=dg.in_process_executor,
    )


def setting(name: str, default: str) -> str:
    """A variable of the environment, where it is set, by its name: Dagster shows configuration, and a URL may hold a password."""
    return dg.EnvVar(name) if os.environ.get(name) else default


pipeline = build_pipeline(
    os.environ.get("LAKEHOUSE_LANDING") or str(CHECKOUT / ".lakehouse" / "landing")
)
defs = build_definitions(
    pipeline,
    LakehouseResource(
        catalog=setting("LAKEHOUSE_CATALOG", (CHECKOUT / ".lakehouse" / "warehouse").as_uri()),
        warehouse=setting("LAKEHOUSE_WAREHOUSE", ""),
        name=setting("LAKEHOUSE_NAME", "lakehouse"),
        properties=setting("LAKEHOUSE_PROPERTIES", "{}"),
        landing=pipeline.landing_root,
    ),
    LakehouseSpark(
        master=os.environ.get("LAKEHOUSE_SPARK_MASTER") or "local[*]",
        # workers unpickle functions of this checkout
        spark_config={"spark.executorEnv.PYTHONPATH": str(CHECKOUT)},
    ),
)
