"""How runs of the pipeline are asked for: job names, tags and configuration. Jobs, sensors and the demo agree by this module."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import dagster as dg

from lakehouse.orchestration.automation.attempts import Decision
from lakehouse.orchestration.ingestion.source import Source
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
# asset check: names what the landing sensors asked for too often
NOTHING_GIVEN_UP = "nothing_given_up"
# run tags of what the landing sensors ask for: the source, and the work (`attempts.Request`)
SOURCE_TAG, REQUEST_TAG = "lakehouse/source", "lakehouse/request"
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


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


def ingest_config(source: str, mode: IngestMode, leave: Sequence[str] = ()) -> dict[str, object]:
    """Run configuration of an ingestion; days of `leave` are not touched."""
    return {"ops": {raw_op_name(source): {"config": {"mode": mode.name, "leave": list(leave)}}}}


def landing_request(source: Source, decision: Decision) -> dg.RunRequest:
    """The run that a decision about a source asks for.

    Days are merged: the run covers the first to the last of them, and leaves alone what is not pending.

    Args:
        source: what it is about.
        decision: with a request.
    """
    if decision.request is None:
        raise AssertionError("a decision without a request was to be asked for")
    tags = {
        SOURCE_TAG: source.name,
        REQUEST_TAG: decision.request.to_json(),
        REASON_TAG: decision.reason,
    }
    days = sorted(
        date.fromisoformat(w.part) for w in decision.request.works if w.table == source.table
    )
    if not days:
        return dg.RunRequest(
            run_key=decision.run_key, job_name=index_job_name(source.name), tags=tags
        )
    leave = [work.part for work in decision.left_out if work.table == source.table]
    return dg.RunRequest(
        run_key=decision.run_key,
        job_name=ingest_job_name(source.name),
        run_config=ingest_config(source.name, IngestMode.INCREMENT, leave),
        tags=tags | ingest_tags(days[0], days[-1]),
    )
