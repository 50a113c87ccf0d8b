"""Small files and snapshots beyond retention: both are seen in table metadata alone."""

from collections.abc import Callable, Iterator, Sequence

import dagster as dg
import orjson

from assets.requests import COMPACT_JOB, EXPIRE_JOB, TABLES_TAG
from jobs.maintenance import COMPACTION
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.compaction import plan_compaction
from lakehouse.maintenance.retention import decide_retention
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.table import Table

# a compaction is worth its commit when it removes so many files
REMOVABLE_FILES_MIN = 8


def maintenance_sensors(tables: Sequence[str]) -> list[dg.SensorDefinition]:
    """Compaction and expiry."""
    return [
        _sensor(
            "small_files",
            COMPACT_JOB,
            tables,
            removable_files,
            REMOVABLE_FILES_MIN,
            f"Compacts tables from which compaction would remove at least {REMOVABLE_FILES_MIN} files, by metadata alone.",
        ),
        _sensor(
            "old_snapshots",
            EXPIRE_JOB,
            tables,
            expirable_snapshots,
            1,
            "Expires snapshots and refs beyond each table's retention.",
        ),
    ]


def removable_files(table: Table) -> int:
    """How many files fewer the table would have after compaction."""
    plan = plan_compaction(table.catalog, table.identifier, COMPACTION, environment=table.environment)
    return max(0, plan.input_files - plan.expected_files)


def expirable_snapshots(table: Table) -> int:
    """How many snapshots and refs are beyond retention."""
    decision = decide_retention(table.metadata, table.environment.now_ms())
    return len(decision.expired) + len(decision.expired_refs)


def _sensor(
    name: str, job: str, tables: Sequence[str], measure: Callable[[Table], int], at_least: int, description: str
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
            found = measure(table)
            if found < at_least:
                continue
            # the cursor keeps a version from being asked for again; the run key keeps two daemons from asking both
            state = f"{version}:{found}"
            if seen.get(table.name) == state:
                continue
            seen[table.name] = state
            asked += 1
            yield dg.RunRequest(run_key=f"{job}:{table.name}:{state}", tags={TABLES_TAG: table.name})
        context.update_cursor(orjson.dumps(seen, option=orjson.OPT_SORT_KEYS).decode())
        if not asked:
            yield dg.SkipReason("nothing to do")

    return watch


def _existing(lake: Lakehouse, tables: Sequence[str]) -> Iterator[Table]:
    for name in tables:
        if lake.table_exists(name):
            yield lake.load_table(name)
