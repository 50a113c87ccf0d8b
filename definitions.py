"""The code location: `dagster dev`, `dg dev` and the containers all load this module."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from assets.pipeline import build_pipeline
from jobs.ingestion import ingestion_jobs
from jobs.maintenance import maintenance_jobs
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from sensors.daily import daily_schedules
from sensors.landing import landing_sensors
from sensors.maintenance import maintenance_sensors

CHECKOUT = Path(__file__).resolve().parent
CATALOG = os.environ.get("LAKEHOUSE_CATALOG") or (CHECKOUT / ".lakehouse" / "warehouse").as_uri()
WAREHOUSE = os.environ.get("LAKEHOUSE_WAREHOUSE") or ""
LANDING = os.environ.get("LAKEHOUSE_LANDING") or str(CHECKOUT / ".lakehouse" / "landing")
SPARK_MASTER = os.environ.get("LAKEHOUSE_SPARK_MASTER") or "local[*]"

pipeline = build_pipeline(LANDING)
tables = list(pipeline.tables())
events_jobs = ingestion_jobs(pipeline)

defs = dg.Definitions(
    assets=pipeline.assets(),
    jobs=[*events_jobs, *maintenance_jobs(tables)],
    sensors=[*landing_sensors(pipeline, events_jobs), *maintenance_sensors(tables)],
    schedules=daily_schedules(pipeline, events_jobs),
    resources={
        "lakehouse": LakehouseResource(catalog=CATALOG, warehouse=WAREHOUSE, landing=LANDING),
        # workers unpickle functions of this checkout
        "spark": LakehouseSpark(master=SPARK_MASTER, spark_config={"spark.executorEnv.PYTHONPATH": str(CHECKOUT)}),
    },
    # one process, and so one JVM, a run
    executor=dg.in_process_executor,
)
