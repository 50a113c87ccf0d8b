"""Jobs that bring events in."""

from __future__ import annotations

import dagster as dg

from assets.pipeline import Pipeline
from assets.sources import SourceAssets


def index_job_name(source: str) -> str:
    """The job that reads what landed into the ledger, without a JVM for nothing when nothing did."""
    return f"index_{source}"


def ingest_job_name(source: str) -> str:
    """The job that indexes, then writes days of the raw table and of everything derived from it."""
    return f"ingest_{source}"


def raw_op_name(source: str) -> str:
    """The step of the ingestion that takes `IngestConfig`."""
    return f"raw__{source}"


def ingestion_jobs(pipeline: Pipeline) -> list[dg.UnresolvedAssetJobDefinition]:  # type: ignore[name-defined]
    """Two for each source."""
    jobs = []
    for source, tables in pipeline.sources:
        family = SourceAssets(source)
        index = dg.AssetSelection.assets(family.ledger_key)
        everything = dg.AssetSelection.assets(family.ledger_key, family.raw_key, family.quarantine_key, *(table.key for table in tables))
        jobs.append(dg.define_asset_job(index_job_name(source.name), index, description=f"Read what landed for {source.name} into its ledger."))
        jobs.append(
            dg.define_asset_job(
                ingest_job_name(source.name), everything, description=f"Index, then write days of {source.table} and what derives from it."
            )
        )
    return jobs
