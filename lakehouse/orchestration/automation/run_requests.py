"""How runs of the pipeline are asked for: job names, tags and configuration. Jobs, sensors and the demo agree by this module."""

from __future__ import annotations

from datetime import date

from lakehouse.orchestration.ingestion.source_assets import IngestMode

COMPACT_JOB, EXPIRE_JOB = "compact", "expire"
CLUSTER_JOB, ORPHANS_JOB = "rewrite_manifests", "remove_orphans"
STATE_JOB = "lakehouse_state"
# run tag: the tables to work on, comma-separated; without it all of them
TABLES_TAG = "lakehouse/tables"
# run tag: why maintenance was launched
REASON_TAG = "lakehouse/reason"
# run tag of the compaction: a JSON list of partitions as `lakehouse health` names them; without it what the policy takes
PARTITIONS_TAG = "lakehouse/partitions"
# run tag of maintenance: "true" logs the plan and changes nothing
DRY_RUN_TAG = "lakehouse/dry-run"
# run tag of the orphan removal: "true" moves files only when the table's policy asks for it
IF_DUE_TAG = "lakehouse/if-due"
# run tag of the expiry: forget all but so many snapshots of each branch now, whatever their age
RETAIN_LAST_TAG = "lakehouse/retain-last"
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def index_job_name(source: str) -> str:
    """The job that reads what landed into the ledger."""
    return f"index_{source}"


def ingest_job_name(source: str) -> str:
    """The job that indexes, then writes days of the raw table and of everything derived from it."""
    return f"ingest_{source}"


def raw_op_name(source: str) -> str:
    """The step of the ingestion that takes `IngestConfig`."""
    return f"raw__{source}"


def ingest_tags(first: date, last: date) -> dict[str, str]:
    """Tags that make a run cover the days `first` to `last`, both included."""
    return {RANGE_START: str(first), RANGE_END: str(last)}


def ingest_config(source: str, mode: IngestMode) -> dict[str, object]:
    """Run configuration of an ingestion."""
    return {"ops": {raw_op_name(source): {"config": {"mode": mode.name}}}}
