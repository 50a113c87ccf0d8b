"""Sensors that ask for maintenance by metadata: small files, many manifests, old snapshots.

Each table's policy says when.
"""

from collections.abc import Callable, Iterator, Sequence

import dagster as dg
import orjson

from lakehouse.errors import LakehouseError
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.advice.due_actions import Action, ActionKind, decide, decide_expiry, due
from lakehouse.maintenance.health.table_health import TableHealth, health
from lakehouse.maintenance.retention.retention_rules import decide_retention
from lakehouse.orchestration.automation.maintenance_jobs import PROJECT_POLICY, policy
from lakehouse.orchestration.automation.run_requests import (
    CLUSTER_JOB,
    COMPACT_JOB,
    EXPIRE_JOB,
    IF_DUE_TAG,
    ORPHANS_JOB,
    PARTITIONS_TAG,
    REASON_TAG,
    STATE_JOB,
    TABLES_TAG,
    TUNING_JOB,
    UNFINISHED,
)
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.table import Table
from lakehouse.tuning import adoption

_MOST_NAMED_PARTITIONS, _MOST_MEASURED = 50, 200
_MEASURED: dict[tuple[str, str], TableHealth] = {}
_DAY_MS = 24 * 3600 * 1000


def maintenance_sensors(tables: Sequence[str]) -> list[dg.SensorDefinition]:
    """Compaction, manifest rewriting, expiry and tuning."""
    return [
        _sensor(
            "small_files",
            COMPACT_JOB,
            tables,
            compaction_due,
            "Compacts tables from which compaction would remove "
            "`lakehouse.maintenance.min-removable-files`, by metadata alone.",
        ),
        _sensor(
            "many_manifests",
            CLUSTER_JOB,
            tables,
            clustering_due,
            "Rewrites the manifests of tables that have more than "
            "`lakehouse.maintenance.max-manifests`.",
        ),
        _sensor(
            "old_snapshots",
            EXPIRE_JOB,
            tables,
            expiry_due,
            "Expires snapshots and refs beyond each table's retention.",
        ),
        _sensor(
            "tuning",
            TUNING_JOB,
            tables,
            tuning_due,
            "Tries layouts of tables once a day, and goes on adopting them, as "
            "`lakehouse.maintenance.tune` says.",
        ),
    ]


def maintenance_schedules() -> list[dg.ScheduleDefinition]:
    """What has to list files, and the state of the lakehouse."""
    stop = "The switch beside its name stops it."
    return [
        dg.ScheduleDefinition(
            name="nightly_orphans",
            job_name=ORPHANS_JOB,
            cron_schedule="0 3 * * *",
            execution_timezone="UTC",
            tags={IF_DUE_TAG: "true"},
            default_status=dg.DefaultScheduleStatus.RUNNING,
            description=(
                "Moves files that nothing names to the trash where a policy asks for it, and "
                f"purges old trash. {stop}"
            ),
        ),
        dg.ScheduleDefinition(
            name="hourly_state",
            job_name=STATE_JOB,
            cron_schedule="5 * * * *",
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
            description=(
                "Renders the state of the lakehouse and checks every table against its policy. "
                f"{stop}"
            ),
        ),
    ]


def compaction_due(table: Table) -> list[Action]:
    """The compaction that health and policy ask for now, if any."""
    return actions_due(table, ActionKind.COMPACT)


def clustering_due(table: Table) -> list[Action]:
    """The rewriting of manifests that health and policy ask for now, if any."""
    return actions_due(table, ActionKind.REWRITE_MANIFESTS)


def expiry_due(table: Table) -> list[Action]:
    """The expiry that retention and policy ask for now, if any; from the metadata file alone."""
    now_ms = table.environment.now_ms()
    return due(decide_expiry(expirable_snapshots(table), policy(table), now_ms), now_ms)


def tuning_due(table: Table) -> list[Action]:
    """The trial, or the next step of an adoption, that the policy asks for."""
    asked, now_ms = policy(table), table.environment.now_ms()
    if asked.tune == "off" or not asked.enabled:
        return []
    lake = Lakehouse(table.catalog, table.environment)
    if not adoption.is_due(lake, table, adopts=asked.tune == "auto"):
        return []
    reason = "old files wait for their layout" if adoption.is_adopting(table) else "daily trial"
    action = Action(
        kind=ActionKind.TUNE, amount=0, reason=reason, due_ms=asked.next_opening_ms(now_ms)
    )
    return due([action], now_ms)


def actions_due(table: Table, *kinds: ActionKind) -> list[Action]:
    """What health and policy ask for now, of these kinds."""
    now_ms = table.environment.now_ms()
    return [
        action
        for action in due(decide(health_of(table), policy(table), now_ms), now_ms)
        if action.kind in kinds
    ]


def health_of(table: Table) -> TableHealth:
    """Health of a table version, measured once for all sensors; ages are those of the first look.

    Args:
        table: as it was loaded; a version has one metadata file.
    """
    where = (table.metadata.table_uuid, table.metadata_location)
    measured = _MEASURED.get(where)
    if measured is None or measured.identifier != table.identifier:
        clock = table.environment
        measured = health(
            table.catalog,
            table.identifier,
            version=table.version,
            environment=clock,
            project=PROJECT_POLICY,
        )
        _MEASURED[where] = measured
        while len(_MEASURED) > _MOST_MEASURED:
            _MEASURED.pop(next(iter(_MEASURED)), None)
    return measured


def expirable_snapshots(table: Table) -> int:
    """How many snapshots and refs are beyond retention."""
    decision = decide_retention(table.metadata, table.environment.now_ms())
    return len(decision.expired) + len(decision.expired_refs)


def _sensor(
    name: str,
    job: str,
    tables: Sequence[str],
    wanted: Callable[[Table], list[Action]],
    description: str,
) -> dg.SensorDefinition:
    @dg.sensor(
        name=name,
        job_name=job,
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"{description} Stop it with the switch beside its name.",
    )
    def watch(
        context: dg.SensorEvaluationContext, lakehouse: LakehouseResource
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        lake = lakehouse.lake()
        seen: dict[str, str] = orjson.loads(context.cursor) if context.cursor else {}
        skipped: list[str] = []
        requested = 0
        for name in filter(lake.table_exists, tables):
            try:
                table = lake.load_table(name)
                actions = wanted(table)
            except LakehouseError as error:
                # one table that cannot be judged keeps no other from its maintenance; its check in
                # lakehouse/state fails
                context.log.exception(f"{name} cannot be judged")
                skipped.append(f"{name} cannot be judged: {error.message}")
                continue
            version = str(table.metadata.current_snapshot_id)
            for action in actions:
                # the cursor keeps a version from being asked for again before the next day, when
                # what failed is tried once more; the run key keeps two daemons from asking both
                state = f"{version}:{action.amount}:{table.environment.now_ms() // _DAY_MS}"
                if seen.get(table.name) == state:
                    continue
                if _unfinished(context.instance, job, table.name):
                    skipped.append(f"{table.name} is being worked on")
                    continue
                seen[table.name] = state
                requested += 1
                yield dg.RunRequest(
                    run_key=f"{job}:{table.name}:{state}", tags=_tags(table.name, action)
                )
        context.update_cursor(orjson.dumps(seen, option=orjson.OPT_SORT_KEYS).decode())
        if not requested:
            yield dg.SkipReason("; ".join(skipped) or "nothing to do")

    return watch


def _tags(table: str, action: Action) -> dict[str, str]:
    tags = {TABLES_TAG: table, REASON_TAG: action.reason}
    # A run does what it names, however recently a partition was written; the others wait for the
    # next.
    if action.partitions:
        tags[PARTITIONS_TAG] = orjson.dumps(action.partitions[:_MOST_NAMED_PARTITIONS]).decode()
    return tags


def _unfinished(instance: dg.DagsterInstance, job: str, table: str) -> bool:
    """Whether a run for the table waits or works: another one would only wait behind it."""
    return bool(
        instance.get_run_records(
            dg.RunsFilter(job_name=job, tags={TABLES_TAG: table}, statuses=UNFINISHED), limit=1
        )
    )
