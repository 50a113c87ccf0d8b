"""How runs of the pipeline are requested: job names, tags and configuration.

Jobs, sensors and the demo agree by this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import date

import dagster as dg

from lakehouse.ingestion.source import Source
from lakehouse.orchestration.assets.derived_table import DerivedTable, RefreshMode
from lakehouse.orchestration.automation.attempts import Decision, Request, Work
from lakehouse.orchestration.source_assets import IngestMode

COMPACT_JOB, EXPIRE_JOB = "compact", "expire"
CLUSTER_JOB, ORPHANS_JOB = "rewrite_manifests", "remove_orphans"
TUNING_JOB, UNDO_JOB = "tuning", "undo"
STATE_JOB = "lakehouse_state"
# run tag: the tables to work on, comma-separated; without it all of them
TABLES_TAG = "lakehouse/tables"
# run tag: why maintenance was launched
REASON_TAG = "lakehouse/reason"
# run tag of the compaction: a JSON list of partitions as `lakehouse health` names them; without it
# what the policy takes
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


def request_of(run: dg.DagsterRun) -> Request | None:
    """What the landing sensor asked a run for; None: it did not, or another version of this did."""
    if SOURCE_TAG not in run.tags:
        return None
    try:
        return Request.from_json(run.tags[REQUEST_TAG])
    except (ValueError, KeyError, TypeError):
        return None


def raw_op_name(source: str) -> str:
    """The step of the ingestion that takes `IngestConfig`."""
    return f"raw__{source}"


def ingest_tags(first: date, last: date) -> dict[str, str]:
    """Tags that make a run cover the days `first` to `last`, both included."""
    return {RANGE_START: str(first), RANGE_END: str(last)}


def ingest_config(source: str, mode: IngestMode) -> dict[str, object]:
    """Run configuration of an ingestion."""
    return {"ops": raw_config(source, mode, ())}


def raw_config(source: str, mode: IngestMode, leave: Sequence[str]) -> dict[str, object]:
    """Configuration of the step that writes raw rows; days of `leave` are not touched."""
    return {raw_op_name(source): {"config": {"mode": mode.name, "leave": list(leave)}}}


def refresh_config(tables: Sequence[DerivedTable], left_out: Sequence[Work]) -> dict[str, object]:
    """Configuration of derived tables' steps: what is stale, without what is left out."""
    leave = {table.name: [w.part for w in left_out if w.table == table.name] for table in tables}
    return {
        table.op_name: {"config": {"mode": RefreshMode.STALE.name, "leave": leave[table.name]}}
        for table in tables
    }


def landing_request(
    source: Source, derived: Sequence[DerivedTable], decision: Decision
) -> dg.RunRequest:
    """The run that a decision about a source asks for.

    Days are merged: the run covers the first to the last of them, and leaves alone what neither is
    pending nor stale. Without a day of the raw table it computes what is stale and what derives
    from that.

    Args:
        source: what it is about.
        derived: tables that follow from it alone, each after those that it reads.
        decision: with a request.
    """
    if decision.request is None:
        raise AssertionError("a decision without a request was to be asked for")
    works = decision.request.works
    tags = {
        SOURCE_TAG: source.name,
        REQUEST_TAG: decision.request.to_json(),
        REASON_TAG: decision.reason,
    }
    written = {work.table for work in works} - {source.ledger_table}
    if not written:
        job = index_job_name(source.name)
        return dg.RunRequest(run_key=decision.run_key, job_name=job, tags=tags)
    days = sorted(date.fromisoformat(w.part) for w in works if w.part and w.table in written)
    if days:
        tags |= ingest_tags(days[0], days[-1])
    if source.table in written:
        leave = [work.part for work in decision.left_out if work.table == source.table]
        raw = raw_config(source.name, IngestMode.INCREMENT, leave)
        steps, selected = raw | refresh_config(derived, decision.left_out), None
    else:
        tables = _with_downstream(derived, written, daily=bool(days))
        steps = refresh_config(tables, decision.left_out)
        selected = [table.key for table in tables]
    return dg.RunRequest(
        run_key=decision.run_key,
        job_name=ingest_job_name(source.name),
        run_config={"ops": steps},
        tags=tags,
        asset_selection=selected,
    )


def _with_downstream(
    derived: Sequence[DerivedTable], names: AbstractSet[str], *, daily: bool
) -> list[DerivedTable]:
    """Tables and what derives from them; without days to compute only tables that have none."""
    tables: list[DerivedTable] = []
    reached = set(names)
    for table in derived:
        if table.name in names or reached & set(table.inputs):
            reached.add(table.name)
            if daily or table.day_column is None:
                tables.append(table)
    return tables
