"""Jobs that bring events in, and the schedules that read every landing folder once a night."""

from __future__ import annotations

from typing import Any

import dagster as dg

from lakehouse.ingestion.landing_ledger import landing_folder
from lakehouse.ingestion.landing_listing import folder_exists
from lakehouse.ingestion.source import Source
from lakehouse.orchestration.automation.run_requests import (
    NOTHING_GIVEN_UP,
    index_job_name,
    ingest_job_name,
)
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.orchestration.source_assets import SourceAssets

# Dagster does not export the type that `define_asset_job` returns
AssetJob = Any


def source_jobs(pipeline: Pipeline, source: Source) -> tuple[AssetJob, AssetJob]:
    """The jobs `index_<source>` and `ingest_<source>`.

    The first reads landing files into the ledger, the second also writes days of the raw table and
    what derives from it alone.
    """
    family = SourceAssets(source)
    everything = dg.AssetSelection.assets(
        family.ledger_key,
        family.raw_key,
        family.quarantine_key,
        *(table.key for table in pipeline.derived_from(source)),
    ) - dg.AssetSelection.checks(dg.AssetCheckKey(family.raw_key, NOTHING_GIVEN_UP))
    return (
        dg.define_asset_job(
            index_job_name(source.name),
            dg.AssetSelection.assets(family.ledger_key),
            description=f"Read what landed for {source.name} into its ledger.",
        ),
        dg.define_asset_job(
            ingest_job_name(source.name),
            everything,
            description=f"Index, then write days of {source.table} and what derives from it.",
        ),
    )


def nightly_schedule(source: Source, job: AssetJob) -> dg.ScheduleDefinition:
    """The schedule `nightly_<source>` of the source's job that indexes.

    It tries unreadable files again; the landing sensor ingests what is pending.
    """

    @dg.schedule(
        name=f"nightly_{source.name}",
        cron_schedule="0 2 * * *",
        execution_timezone="UTC",
        job=job,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=(
            f"Reads what landed for {source.name} into its ledger at 02:00 UTC. The switch beside "
            "its name stops it."
        ),
    )
    def nightly(
        context: dg.ScheduleEvaluationContext, lakehouse: LakehouseResource
    ) -> dg.RunRequest | dg.SkipReason:
        folder = landing_folder(lakehouse.landing, source)
        if not folder_exists(folder):
            return dg.SkipReason(f"landing folder {folder} does not exist")
        return dg.RunRequest(run_key=f"{context.scheduled_execution_time:%Y-%m-%d}")

    return nightly
