"""The code location: `dagster dev`, `dg dev` and the containers all load this module."""

from __future__ import annotations

import os

import dagster as dg

import assets
import jobs
import sensors
from assets.pipeline import CHECKOUT, PIPELINE
from lakehouse.orchestration import (
    LakehouseIOManager,
    LakehouseResource,
    LakehouseSpark,
    discover,
)


def setting(name: str, default: str) -> str:
    """An environment variable by name: Dagster shows values, and a URL may hold a password."""
    return dg.EnvVar(name) if os.environ.get(name) else default


lakehouse = LakehouseResource(
    catalog=setting("LAKEHOUSE_CATALOG", (CHECKOUT / ".lakehouse" / "warehouse").as_uri()),
    warehouse=setting("LAKEHOUSE_WAREHOUSE", ""),
    name=setting("LAKEHOUSE_NAME", ""),
    properties=setting("LAKEHOUSE_PROPERTIES", "{}"),
    landing=PIPELINE.landing_root,
)
spark = LakehouseSpark(
    master=os.environ.get("LAKEHOUSE_SPARK_MASTER") or "local[*]",
    # workers unpickle functions of this checkout
    spark_config={"spark.executorEnv.PYTHONPATH": str(CHECKOUT)},
)
pipeline = PIPELINE
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=pipeline.assets(),
        resources={
            "lakehouse": lakehouse,
            "spark": spark,
            "io_manager": LakehouseIOManager(lakehouse=lakehouse, spark=spark),
        },
        executor=dg.in_process_executor,  # one process, and so one JVM, a run
    ),
    # what the modules of these folders define by name: assets, checks, jobs, sensors, schedules
    *(discover(folder).others() for folder in (assets, jobs, sensors)),
)
