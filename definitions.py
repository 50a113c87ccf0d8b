"""The code location: `dagster dev`, `dg dev` and the containers all load this module."""

from __future__ import annotations

import os

import dagster as dg

import assets
from assets.pipeline import CHECKOUT, PIPELINE
from jobs import ingest, maintain, marts
from lakehouse.orchestration import (
    LakehouseIOManager,
    LakehouseResource,
    LakehouseSpark,
    with_code_versions,
)
from sensors import alerts, landing, schedules, upkeep


def setting(name: str, default: str) -> str:
    """An environment variable by name: Dagster shows values, and a URL may hold a password."""
    return dg.EnvVar(name) if os.environ.get(name) else default


pipeline = PIPELINE
lakehouse = LakehouseResource(
    catalog=setting("LAKEHOUSE_CATALOG", str(CHECKOUT / ".lakehouse" / "warehouse")),
    warehouse=setting("LAKEHOUSE_WAREHOUSE", ""),
    name=setting("LAKEHOUSE_NAME", ""),
    properties=setting("LAKEHOUSE_PROPERTIES", "{}"),
    landing=pipeline.landing_root,
    publish=setting("LAKEHOUSE_PUBLISH", "step"),
)
spark = LakehouseSpark(
    master=os.environ.get("LAKEHOUSE_SPARK_MASTER") or "local[*]",
    # workers unpickle functions of this checkout
    spark_config={"spark.executorEnv.PYTHONPATH": str(CHECKOUT)},
)
defs = dg.Definitions(
    # sources and derived tables, and every `@dg.asset` of the folder
    assets=[
        *pipeline.assets(),
        *with_code_versions(dg.load_assets_from_package_module(assets)),
    ],
    asset_checks=dg.load_asset_checks_from_package_module(assets),
    jobs=[
        ingest.index_flights,
        ingest.ingest_flights,
        ingest.index_wiki_edits,
        ingest.ingest_wiki_edits,
        ingest.retry_quarantine,
        ingest.fill_columns,
        marts.refresh_marts,
        maintain.compact,
        maintain.rewrite_manifests,
        maintain.expire,
        maintain.remove_orphans,
        maintain.tuning,
        maintain.undo,
        maintain.lakehouse_state,
        maintain.check_statements,
    ],
    sensors=[
        landing.landed_flights,
        landing.landed_wiki_edits,
        upkeep.small_files,
        upkeep.many_manifests,
        upkeep.old_snapshots,
        upkeep.tuning,
        upkeep.statements_to_check,
        upkeep.automation_conditions,
        *alerts.failed_runs,
    ],
    schedules=[
        schedules.nightly_flights,
        schedules.nightly_wiki_edits,
        schedules.nightly_orphans,
        schedules.hourly_state,
    ],
    resources={
        "lakehouse": lakehouse,
        "spark": spark,
        "io_manager": LakehouseIOManager(lakehouse=lakehouse, spark=spark),
    },
    executor=dg.in_process_executor,  # one process, and so one Spark session, a run
)
