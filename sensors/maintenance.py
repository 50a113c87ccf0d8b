"""Small files and snapshots beyond retention: both are seen in table metadata alone, and judged by the table's policy."""

from collections.abc import Callable, Iterator, Sequence

import dagster as dg
import orjson

from assets.requests import COMPACT_JOB, EXPIRE_JOB, REASON_TAG, TABLES_TAG
from jobs.maintenance import PROJECT_POLICY, policy
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.decision import Action, decide_compaction, decide_expiry, due
from lakehouse.maintenance.health import health
from lakehouse.maintenance.retention import decide_retention
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.table import Table


def maintenance_sensors(tables: Sequence[str]) -> list[dg.SensorDefinition]:
    """Compaction and expiry."""
    return [
        _sensor(
            "small_files",
            COMPACT_JOB,
            tables,
            compaction_due,
            "Compacts tables from which compaction would remove `lakehouse.maintenance.min-removable-files`, by metadata alone.",
        ),
        _sensor("old_snapshots", EXPIRE_JOB, tables, expiry_due, "Expires snapshots and refs beyond each table's retention."),
    ]


def compaction_due(table: Table) -> list[Action]:
    """The compaction that health and policy ask for now, if any."""
    now_ms = table.environment.now_ms()
    found = health(table.catalog, table.identifier, environment=table.environment, project=PROJECT_POLICY)
    return due(decide_compaction(found.partitions, policy(table), target_bytes=found.target_bytes, now_ms=now_ms), now_ms)


def expiry_due(table: Table) -> list[Action]:
    """The expiry that retention and policy ask for now, if any."""
    now_ms = table.environment.now_ms()
    return due(decide_expiry(expirable_snapshots(table), policy(table), now_ms), now_ms)


def expirable_snapshots(table: Table) -> int:
    """How many snapshots and refs are beyond retention."""
    decision = decide_retention(table.metadata, table.environment.now_ms())
    return len(decision.expired) + len(decision.expired_refs)


def _sensor(
    name: str, job: str, tables: Sequence[str], wanted: Callable[[Table], list[Action]], description: str
) -> dg.SensorDefinition:
    @dg.sensor(
        name=name,
        job_name=job,
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"{description} Stop it with the switch beside its name.",
    )
    def watch(context: dg.SensorEvaluationContext, lakehouse: LakehouseResource) -> Iterator[dg.RunRequest | dg.SkipReason]:
        lake = lakehouse.lake()
        seen: dict[str, str] = orjson.loads(context.cursor) if context.cursor else {}
        asked = 0
        for table in _existing(lake, tables):
            version = str(table.metadata.current_snapshot_id)
            for action in wanted(table):
                # the cursor keeps a version from being asked for again; the run key keeps two daemons from asking both
                state = f"{version}:{action.amount}"
                if seen.get(table.name) == state:
                    continue
                seen[table.name] = state
                asked += 1
                yield dg.RunRequest(
                    run_key=f"{job}:{table.name}:{state}", tags={TABLES_TAG: table.name, REASON_TAG: action.reason}
                )
        context.update_cursor(orjson.dumps(seen, option=orjson.OPT_SORT_KEYS).decode())
        if not asked:
            yield dg.SkipReason("nothing to do")

    return watch


def _existing(lake: Lakehouse, tables: Sequence[str]) -> Iterator[Table]:
    for name in tables:
        if lake.table_exists(name):
            yield lake.load_table(name)
