"""Jobs that maintain tables: one step for each, in its table's pool, to disturb no writer.

And the one that undoes a run.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
import orjson
from pydantic import Field

from lakehouse.errors import InvalidInputError, NoSuchTableError
from lakehouse.ingestion.run_log import as_text, progress_lines
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.advice.due_actions import ActionKind, decide
from lakehouse.maintenance.health.table_health import health
from lakehouse.maintenance.maintenance_policy import MaintenancePolicy, policy_of
from lakehouse.maintenance.orphan_removal import OrphanResult
from lakehouse.maintenance.reachability.neighbours import KnownTables
from lakehouse.maintenance.shown_plan import Progress, Report, no_progress
from lakehouse.maintenance.upkeep import prepare
from lakehouse.orchestration.asset_results import explained, pool, remove_dead_branches
from lakehouse.orchestration.automation.ingestion_jobs import AssetJob
from lakehouse.orchestration.automation.run_requests import (
    CLUSTER_JOB,
    COMPACT_JOB,
    DRY_RUN_TAG,
    EXPIRE_JOB,
    IF_DUE_TAG,
    ORPHANS_JOB,
    PARTITIONS_TAG,
    RETAIN_LAST_TAG,
    STATE_JOB,
    TABLES_TAG,
    TUNING_JOB,
    UNDO_JOB,
)
from lakehouse.orchestration.lineage.materialization import SNAPSHOT_ID
from lakehouse.orchestration.lineage.undo import undo
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.orchestration.state.state_asset import OF_NO_ASSET, STATE_KEY
from lakehouse.spec.identifier import split_name
from lakehouse.table import Table
from lakehouse.tuning import adoption
from lakehouse.tuning.trial import tune as try_layouts

# the project's defaults; a table's own properties of these names win
PROJECT_POLICY = {"lakehouse.maintenance.min-input-files": "2"}


@dataclass(frozen=True, kw_only=True)
class MaintenanceRequest:
    """What a run asks of one table.

    Attributes:
        partitions: compact these alone; None: what the policy takes.
        retain_last: expire all but so many snapshots of each branch now; None: by the table's
            retention.
        dry_run: plan, change nothing.
        if_due: move orphans only when the policy asks for it; trash beyond its age goes in any
            case.
    """

    partitions: frozenset[str] | None = None
    retain_last: int | None = None
    dry_run: bool = False
    if_due: bool = False

    @classmethod
    def of(cls, tags: Mapping[str, str]) -> "MaintenanceRequest":
        """The request that a run's tags name.

        Raises:
            InvalidInputError: a tag that cannot be used.
        """
        try:
            named = orjson.loads(tags[PARTITIONS_TAG]) if PARTITIONS_TAG in tags else None
            keep = int(tags[RETAIN_LAST_TAG]) if RETAIN_LAST_TAG in tags else None
        except ValueError as error:
            raise InvalidInputError(
                f"Tags {PARTITIONS_TAG} (a JSON list) or {RETAIN_LAST_TAG} (a number): {error}"
            ) from error
        if keep is not None and keep < 1:
            raise InvalidInputError(f"Tag {RETAIN_LAST_TAG} must be at least 1, not {keep}")
        return cls(
            partitions=None if named is None else frozenset(named),
            retain_last=keep,
            dry_run=tags.get(DRY_RUN_TAG, "") == "true",
            if_due=tags.get(IF_DUE_TAG, "") == "true",
        )


MaintenanceOfTable = Callable[[Table, MaintenanceRequest, Progress], Report]


def policy(table: Table) -> MaintenancePolicy:
    """The maintenance policy of a table of the pipeline."""
    return policy_of(table.metadata.properties, PROJECT_POLICY)


def compact(table: Table, request: MaintenanceRequest, progress: Progress = no_progress) -> Report:
    """Turn small files into few; rows stay the same."""
    return _carried_out(ActionKind.COMPACT, table, request, progress, partitions=request.partitions)


def cluster(table: Table, request: MaintenanceRequest, progress: Progress = no_progress) -> Report:
    """Few manifests, clustered by partition."""
    return _carried_out(ActionKind.REWRITE_MANIFESTS, table, request, progress)


def expire(table: Table, request: MaintenanceRequest, progress: Progress = no_progress) -> Report:
    """Forget snapshots beyond retention and remove exactly the files that only they reached."""
    return _carried_out(
        ActionKind.EXPIRE, table, request, progress, retain_last=request.retain_last
    )


def remove_orphans(
    table: Table, request: MaintenanceRequest, progress: Progress = no_progress
) -> Report:
    """Move files that nothing reaches to the trash, and delete old trash."""
    kind, before_ms, tables = ActionKind.REMOVE_ORPHANS, None, None
    if request.if_due:
        tables = KnownTables.of(table.catalog)
        measured = health(
            table.catalog,
            table.identifier,
            environment=table.environment,
            project=PROJECT_POLICY,
            list_files=True,
            tables=tables,
        )
        actions = decide(measured, policy(table), table.environment.now_ms())
        if not any(action.kind is kind for action in actions):
            # Nothing is that old: what lies in the trash too long goes, or back to where it is
            # needed.
            before_ms = 0
    return _carried_out(kind, table, request, progress, orphans_before_ms=before_ms, tables=tables)


def _carried_out(
    kind: ActionKind, table: Table, request: MaintenanceRequest, progress: Progress, **asked: Any
) -> Report:
    """The action, or its plan where that is asked; `asked` as `prepare` takes it."""
    prepared = prepare(
        kind,
        table.catalog,
        table.version,
        environment=table.environment,
        project=PROJECT_POLICY,
        progress=progress,
        **asked,
    )
    return prepared.plan() if request.dry_run else prepared.execute()


def tuning(table: Table, request: MaintenanceRequest, progress: Progress = no_progress) -> Report:
    """Try layouts on a sample with the recorded queries; by policy adopt what pays.

    Queries are those of the table `ops.scans`, where there is one. An adoption that is under way
    goes on, within LAKEHOUSE_REWRITE_BUDGET bytes.
    """
    lake = Lakehouse(table.catalog, table.environment)
    if not adoption.is_adopting(table) or request.dry_run:
        trial = try_layouts(table, reports=adoption.recorded_scans(lake))
        if request.dry_run:
            return trial
        if trial.verdict.adopt and policy(table).tune == "auto":
            trial = adoption.adopt(table, trial)
        adoption.record(lake, trial, trial.snapshot_id)
        if not adoption.is_adopting(table):
            return trial
    budget = os.environ.get("LAKEHOUSE_REWRITE_BUDGET", "")
    if budget and not (budget.isdecimal() and int(budget)):
        raise InvalidInputError(f"LAKEHOUSE_REWRITE_BUDGET is a number of bytes, not {budget!r}")
    done = adoption.step(table, budget_bytes=int(budget) if budget else None, progress=progress)
    adoption.record(lake, done, table.metadata.current_snapshot_id)
    return done


_BY_JOB: Mapping[str, MaintenanceOfTable] = {
    COMPACT_JOB: compact,
    CLUSTER_JOB: cluster,
    EXPIRE_JOB: expire,
    ORPHANS_JOB: remove_orphans,
    TUNING_JOB: tuning,
}


def maintenance_jobs(tables: Sequence[str]) -> list[dg.JobDefinition]:
    """Compaction, manifest rewriting, expiry, orphan removal and tuning of a pipeline's tables."""
    return [_job(name, tables, work) for name, work in _BY_JOB.items()]


def state_job() -> AssetJob:
    """Renders the state of the lakehouse and checks every table against its policy."""
    return dg.define_asset_job(
        STATE_JOB, dg.AssetSelection.assets(STATE_KEY), description=state_job.__doc__
    )


class UndoConfig(dg.Config):
    """What is undone: as the options of `lakehouse undo`.

    Attributes:
        run: id of the run, or its first characters.
        tables: only these; empty: all that it wrote.
        take_again: whether the landing files that it ingested are pending again.
        by_rows: where others have changed a table since, take back the run's rows alone.
        dry_run: log what would be done, change nothing.
    """

    run: str
    tables: list[str] = Field(default_factory=list)
    take_again: bool = True
    by_rows: bool = False
    dry_run: bool = False


def undo_job() -> dg.JobDefinition:
    """The job that returns every table that a run wrote to what it was before the run."""

    @dg.op(name=f"{UNDO_JOB}__run", description=UndoConfig.__doc__)
    def step(
        context: dg.OpExecutionContext, config: UndoConfig, lakehouse: LakehouseResource
    ) -> None:
        with explained():
            asked = config.model_dump()
            done = undo(lakehouse.shared_lake(), instance=context.instance, **asked)
        context.log.info(as_text(done))

    @dg.job(
        name=UNDO_JOB,
        description=f"{undo_job.__doc__} Name it in the configuration of the launchpad: "
        f"`ops: {{{UNDO_JOB}__run: {{config: {{run: ..., dry_run: true}}}}}}`.",
    )
    def job() -> None:
        step()

    return job


def chosen_tables(tables: Sequence[str], tags: Mapping[str, str]) -> list[str]:
    """The tables that a run's tags choose, in the order of the job; without the tag, all.

    Raises:
        InvalidInputError: a tag names a table that the job does not maintain, or no table.
    """
    if TABLES_TAG not in tags:
        return list(tables)
    named = [name.strip() for name in tags[TABLES_TAG].split(",")]
    unknown = sorted(set(named) - set(tables))
    if unknown:
        raise InvalidInputError(
            f"Tag {TABLES_TAG} names {', '.join(map(repr, unknown))}, which this job does not "
            f"maintain: name some of {', '.join(tables)}, separated by commas"
        )
    return [name for name in tables if name in named]


def _job(name: str, tables: Sequence[str], work: MaintenanceOfTable) -> dg.JobDefinition:
    choice, steps = _choice(name, tables), {table: _step(name, table, work) for table in tables}
    hints = (
        f"Tag `{TABLES_TAG}` with table names to choose some, `{DRY_RUN_TAG}` with `true` to see "
        "the plan alone."
    )

    @dg.job(name=name, description=f"{work.__doc__} {hints}")
    def maintenance() -> None:
        chosen = choice()
        outputs = {
            table: chosen if len(tables) == 1 else getattr(chosen, _op(table)) for table in tables
        }
        for table, step in steps.items():
            step(outputs[table])

    return maintenance


def _op(table: str) -> str:
    """A table's name where Dagster allows no dots."""
    return table.replace(".", "__")


def _choice(job: str, tables: Sequence[str]) -> dg.OpDefinition:
    """The first step: only the steps of chosen tables run, and wait for their tables' pools."""

    @dg.op(
        name=f"{job}__choose_tables",
        out={_op(name): dg.Out(dg.Nothing, is_required=False) for name in tables},
        description=f"The tables that `{TABLES_TAG}` names and that exist.",
    )
    def choose(
        context: dg.OpExecutionContext, lakehouse: LakehouseResource
    ) -> Iterator[dg.Output[None]]:
        lake = lakehouse.shared_lake()
        with explained():
            MaintenanceRequest.of(context.run_tags)
            chosen = chosen_tables(tables, context.run_tags)
            existing = [name for name in chosen if lake.table_exists(name)]
            missing = sorted(set(chosen) - set(existing))
            if missing and TABLES_TAG in context.run_tags:
                raise NoSuchTableError(
                    f"Tag {TABLES_TAG} names {', '.join(missing)}, which nothing has created yet: "
                    "materialize it first, or leave it out"
                )
        context.log.info(
            f"{len(existing)} of {len(tables)} tables: {', '.join(existing) or 'none'}"
            + (f"; not created yet: {', '.join(missing)}" if missing else "")
        )
        for name in existing:
            yield dg.Output(None, output_name=_op(name))

    return choose


def _step(job: str, name: str, work: MaintenanceOfTable) -> dg.OpDefinition:
    @dg.op(
        name=f"{job}__{_op(name)}",
        pool=pool(name),
        ins={"chosen": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        description=f"{job} {name}",
    )
    def step(context: dg.OpExecutionContext, lakehouse: LakehouseResource) -> None:
        with explained():
            table = lakehouse.shared_lake().load_table(name)
            if not MaintenanceRequest.of(context.run_tags).dry_run:
                remove_dead_branches(table, context.instance, context.log.info)
            _maintain(context, table, work, MaintenanceRequest.of(context.run_tags))

    return step


def _maintain(
    context: dg.OpExecutionContext,
    table: Table,
    work: MaintenanceOfTable,
    request: MaintenanceRequest,
) -> None:
    location, before = table.metadata_location, measures(table)
    report = work(table, request, progress_lines(context.log.info))
    if request.dry_run:
        context.log.info(f"Dry run, nothing was changed.\n{as_text(report)}")
        return
    context.log.info(as_text(report))
    moved = isinstance(report, OrphanResult) and bool(report.moved_files)
    changed = table.refresh().metadata_location != location or moved
    if changed and table.name not in OF_NO_ASSET:
        metadata = event_metadata(context.job_name, report, before, measures(table))
        context.log_event(dg.AssetObservation(asset_key=split_name(table.name), metadata=metadata))


def measures(table: Table) -> dict[str, int]:
    """What maintenance changes, from metadata alone.

    The keys are those of materializations, so that one plot holds both.
    """
    snapshot = table.current_snapshot()
    summary = {} if snapshot is None else snapshot.summary
    entries = {
        "dagster/row_count": "total-records",
        "lakehouse/files": "total-data-files",
        "lakehouse/delete_files": "total-delete-files",
        "lakehouse/bytes": "total-files-size",
    }
    totals = {key: int(summary[entry]) for key, entry in entries.items() if entry in summary}
    return {
        **totals,
        "lakehouse/manifests": len(table.inspect.manifests()),
        "lakehouse/snapshots": len(table.metadata.snapshots),
    }


def event_metadata(
    action: str, report: Report, before: Mapping[str, int], after: Mapping[str, int]
) -> dict[str, dg.MetadataValue]:
    """Metadata of a maintenance event: numbers after it, before it (`_before`), and the report."""
    numbers = {
        **after,
        **{f"{key}_before": value for key, value in before.items() if key.startswith("lakehouse/")},
    }
    snapshot_ids = report.to_dict().get("snapshot_ids") or [report.to_dict().get("snapshot_id")]
    written = (
        [str(snapshot_id) for snapshot_id in snapshot_ids if snapshot_id is not None]
        if isinstance(snapshot_ids, list)
        else []
    )
    return {
        "lakehouse/maintenance": dg.MetadataValue.text(action),
        **({SNAPSHOT_ID: dg.MetadataValue.text(written[-1])} if written else {}),
        **{key: dg.MetadataValue.int(value) for key, value in numbers.items()},
        **{label: dg.MetadataValue.text(str(value)) for label, value in report.facts()},
    }
