"""The daily schedule."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from assets.ingestion.landing import folder_exists, landing_folder
from assets.pipeline import Pipeline
from jobs.ingestion import index_job_name
from lakehouse.orchestration.resources import LakehouseResource


def daily_schedule(pipeline: Pipeline) -> dg.ScheduleDefinition:
    """Every night the landing folders are read once, whatever the sensors did: files that could not be read before are tried again."""

    @dg.schedule(
        name="nightly",
        cron_schedule="0 2 * * *",
        execution_timezone="UTC",
        target=dg.AssetSelection.groups("raw"),
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Reads every landing folder into its ledger at 02:00 UTC; the landing sensors ingest what is pending. "
        "Stop it with the switch beside its name.",
    )
    def nightly(context: dg.ScheduleEvaluationContext, lakehouse: LakehouseResource) -> Iterator[dg.RunRequest | dg.SkipReason]:
        asked = 0
        for source, _ in pipeline.sources:
            if folder_exists(landing_folder(lakehouse.landing, source)):
                asked += 1
                yield dg.RunRequest(run_key=f"{source.name}:{context.scheduled_execution_time:%Y-%m-%d}", job_name=index_job_name(source.name))
        if not asked:
            yield dg.SkipReason(f"no landing folder of any source in {lakehouse.landing}")

    return nightly
