"""Jobs that bring events in."""

from __future__ import annotations

from typing import Any

import dagster as dg

from lakehouse.orchestration.automation.run_requests import (
    NOTHING_GIVEN_UP,
    index_job_name,
    ingest_job_name,
)
from lakehouse.orchestration.ingestion.source_assets import SourceAssets
from lakehouse.orchestration.project import Pipeline

# Dagster does not export the type that `define_asset_job` returns
AssetJob = Any


def ingestion_jobs(pipeline: Pipeline) -> list[AssetJob]:
    """Two jobs for each source: indexing landing files, and ingesting days."""
    jobs = []
    for source in pipeline.sources:
        tables = pipeline.derived_from(source)
        family = SourceAssets(source)
        index = dg.AssetSelection.assets(family.ledger_key)
        everything = dg.AssetSelection.assets(
            family.ledger_key,
            family.raw_key,
            family.quarantine_key,
            *(table.key for table in tables),
        ) - dg.AssetSelection.checks(dg.AssetCheckKey(family.raw_key, NOTHING_GIVEN_UP))
        jobs.append(
            dg.define_asset_job(
                index_job_name(source.name),
                index,
                description=f"Read what landed for {source.name} into its ledger.",
            )
        )
        jobs.append(
            dg.define_asset_job(
                ingest_job_name(source.name),
                everything,
                description=f"Index, then write days of {source.table} and what derives from it.",
            )
        )
    return jobs
