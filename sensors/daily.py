"""The daily schedules: every landing folder is read once a night, whatever the sensors did."""

from collections.abc import Sequence

import dagster as dg

from assets.ingestion.landing import folder_exists, landing_folder
from assets.ingestion.source import Source
from assets.pipeline import Pipeline
from assets.requests import index_job_name
from jobs.ingestion import AssetJob
from lakehouse.orchestration.resources import LakehouseResource


def daily_schedules(pipeline: Pipeline, jobs: Sequence[AssetJob]) -> list[dg.ScheduleDefinition]:
    """One for each source. A file that could not be read before is tried again; the landing sensor ingests what is pending."""
    by_name = {job.name: job for job in jobs}
    return [
        _schedule(source, by_name[index_job_name(source.name)]) for source, _ in pipeline.sources
    ]


def _schedule(source: Source, job: AssetJob) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=f"nightly_{source.name}",
        cron_schedule="0 2 * * *",
        execution_timezone="UTC",
        job=job,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Reads what landed for {source.name} into its ledger at 02:00 UTC. The switch beside its name stops it.",
    )
    def nightly(
        context: dg.ScheduleEvaluationContext, lakehouse: LakehouseResource
    ) -> dg.RunRequest | dg.SkipReason:
        folder = landing_folder(lakehouse.landing, source)
        if not folder_exists(folder):
            return dg.SkipReason(f"landing folder {folder} does not exist")
        return dg.RunRequest(run_key=f"{context.scheduled_execution_time:%Y-%m-%d}")

    return nightly
