"""The daily schedules: every landing folder is read once a night, whatever the sensors did."""

from collections.abc import Sequence

import dagster as dg

from lakehouse.ingestion.landing_ledger import landing_folder
from lakehouse.ingestion.landing_listing import folder_exists
from lakehouse.ingestion.source import Source
from lakehouse.orchestration.automation.ingestion_jobs import AssetJob
from lakehouse.orchestration.automation.run_requests import index_job_name
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource


def nightly_schedules(pipeline: Pipeline, jobs: Sequence[AssetJob]) -> list[dg.ScheduleDefinition]:
    """One schedule for each source, to try unreadable files again.

    The landing sensor ingests what is pending.
    """
    by_name = {job.name: job for job in jobs}
    return [
        nightly_schedule(source, by_name[index_job_name(source.name)])
        for source in pipeline.sources
    ]


def nightly_schedule(source: Source, job: AssetJob) -> dg.ScheduleDefinition:
    """The schedule `nightly_<source>` of the source's job that indexes."""

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
