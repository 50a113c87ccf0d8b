"""New landing files, and days that have events waiting: one sensor a source."""

from collections.abc import Iterator, Sequence

import dagster as dg

from lakehouse.errors import NoSuchFileError
from lakehouse.orchestration.automation.ingestion_jobs import AssetJob
from lakehouse.orchestration.automation.run_requests import (
    index_job_name,
    ingest_config,
    ingest_job_name,
    ingest_tags,
)
from lakehouse.orchestration.ingestion.landing import (
    LedgerRow,
    day_ranges,
    digest,
    list_landing,
    pending_days,
    unindexed,
)
from lakehouse.orchestration.ingestion.source import Source
from lakehouse.orchestration.ingestion.source_assets import IngestMode
from lakehouse.orchestration.ingestion.source_tables import read_ledger
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource

# so many runs are asked for in one tick; the next tick asks for the rest
RUNS_PER_TICK = 10


def landing_sensors(pipeline: Pipeline, jobs: Sequence[AssetJob]) -> list[dg.SensorDefinition]:
    """One for each source, which asks for runs of the source's two jobs among `jobs`."""
    return [_sensor(source, jobs) for source in pipeline.sources]


def _sensor(source: Source, jobs: Sequence[AssetJob]) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"landed_{source.name}",
        jobs=[
            job
            for job in jobs
            if job.name in (index_job_name(source.name), ingest_job_name(source.name))
        ],
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="New or changed landing files start an indexing run; days that then have pending events start an ingestion. "
        "Stop it with the switch beside its name.",
    )
    def landed(
        context: dg.SensorEvaluationContext, lakehouse: LakehouseResource
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        try:
            files = list_landing(lakehouse.landing, source)
        except NoSuchFileError as error:
            yield dg.SkipReason(error.message)
            return
        lake = lakehouse.lake()
        ledger, snapshot_id = [], None
        if lake.table_exists(source.ledger_table):
            table = lake.load_table(source.ledger_table)
            ledger, snapshot_id = read_ledger(table), table.metadata.current_snapshot_id
        fresh = unindexed(files, ledger)
        context.update_cursor(f"{digest(files)}@{snapshot_id}")
        if fresh:
            yield dg.RunRequest(
                run_key=f"index:{digest(fresh)}", job_name=index_job_name(source.name)
            )
            return
        requests = list(_ingest_requests(source, ledger, snapshot_id))
        yield from requests
        if not requests:
            yield dg.SkipReason(f"all {len(files)} landing files of {source.name} are ingested")

    return landed


def _ingest_requests(
    source: Source, ledger: Sequence[LedgerRow], snapshot_id: int | None
) -> Iterator[dg.RunRequest]:
    for first, last in day_ranges(pending_days(ledger))[:RUNS_PER_TICK]:
        yield dg.RunRequest(
            run_key=f"ingest:{first}:{last}:{snapshot_id}",
            job_name=ingest_job_name(source.name),
            run_config=ingest_config(source.name, IngestMode.INCREMENT),
            tags=ingest_tags(first, last),
        )
