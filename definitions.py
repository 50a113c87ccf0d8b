"""The code location: `dagster dev`, `dg dev` and the containers all load this module."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

import assets
import jobs
import sensors
from lakehouse.orchestration.code_location import build_definitions
from lakehouse.orchestration.discovery import discover
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark

CHECKOUT = Path(__file__).resolve().parent


def setting(name: str, default: str) -> str:
    """An environment variable by name, so that Dagster does not show its value.

    Dagster shows configuration, and a URL may hold a password.
    """
    return dg.EnvVar(name) if os.environ.get(name) else default


found = discover(assets)
pipeline = found.pipeline(
    os.environ.get("LAKEHOUSE_LANDING") or str(CHECKOUT / ".lakehouse" / "landing")
)
defs = dg.Definitions.merge(
    build_definitions(
        pipeline,
        LakehouseResource(
            catalog=setting("LAKEHOUSE_CATALOG", (CHECKOUT / ".lakehouse" / "warehouse").as_uri()),
            warehouse=setting("LAKEHOUSE_WAREHOUSE", ""),
            name=setting("LAKEHOUSE_NAME", ""),
            properties=setting("LAKEHOUSE_PROPERTIES", "{}"),
            landing=pipeline.landing_root,
        ),
        LakehouseSpark(
            master=os.environ.get("LAKEHOUSE_SPARK_MASTER") or "local[*]",
            # workers unpickle functions of this checkout
            spark_config={"spark.executorEnv.PYTHONPATH": str(CHECKOUT)},
        ),
    ),
    found.others(),
    discover(jobs).others(),
    discover(sensors).others(),
)
