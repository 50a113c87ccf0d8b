"""Jobs that bring events in."""

from __future__ import annotations

from typing import Any

import dagster as dg

from lakehouse.ingestion.source import Source
from lakehouse.orchestration.automation.run_requests import (
    NOTHING_GIVEN_UP,
    index_job_name,
    ingest_job_name,
)
from lakehouse.orchestration.project import Pipeline
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


def ingestion_jobs(pipeline: Pipeline) -> list[AssetJob]:
    """The two jobs of each source."""
    return [job for source in pipeline.sources for job in source_jobs(pipeline, source)]
