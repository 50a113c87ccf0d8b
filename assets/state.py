"""The state of the whole lakehouse as an asset, and a check of every table against its policy."""

import time
from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from assets.requests import STATE_JOB
from assets.steps import explained
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.orchestration.state import TableState, state_markdown, table_state
from lakehouse.table import Table

STATE_KEY = dg.AssetKey(["lakehouse", "state"])
BEYOND_SINCE = "lakehouse/beyond_policy_since_ms"


def state_asset(tables: Sequence[str], project: Mapping[str, str]) -> dg.AssetsDefinition:
    """The asset that renders the page, with a check for each table: alerts are checks that fail.

    Args:
        tables: of the pipeline.
        project: defaults of the project for `lakehouse.maintenance.*`.
    """
    checks = {
        name: dg.AssetCheckSpec(
            check_name(name),
            asset=STATE_KEY,
            description=f"Fails when {name} has been beyond its policy for `lakehouse.maintenance.alert-after-ms`.",
        )
        for name in tables
    }

    @dg.asset(
        key=STATE_KEY,
        group_name="lakehouse",
        pool=STATE_JOB,
        kinds={"iceberg"},
        check_specs=list(checks.values()),
        description="Every table of the pipeline: files, manifests, snapshots, what its policy asks for. Metadata only.",
    )
    def state(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> Iterator[dg.MaterializeResult[None]]:
        since = beyond_since(context.instance)
        found: dict[str, TableState] = {}
        for table in existing(lakehouse.lake(), tables):
            with explained():
                found[table.name] = table_state(table, since=since, project=project)
            context.log.info(f"measured {table.name}: {len(found[table.name].actions)} things to do")
        now_ms = time.time_ns() // 1_000_000
        yield dg.MaterializeResult(
            metadata=state_metadata(list(found.values()), now_ms),
            check_results=[check_result(spec, found.get(name), now_ms) for name, spec in checks.items()],
        )

    return state


def check_name(table: str) -> str:
    """The check of a table: `raw.events` -> `raw__events_within_policy`."""
    return f"{table.replace('.', '__')}_within_policy"


def state_metadata(states: Sequence[TableState], now_ms: int) -> dict[str, dg.MetadataValue]:
    """The page, since when tables are beyond their policy, and sums that the UI plots."""
    sums = {
        "tables": len(states),
        "tables_beyond_policy": sum(bool(one.actions) for one in states),
        "tables_overdue": sum(one.overdue(now_ms) for one in states),
        "files": sum(one.health.data_files for one in states),
        "small_files": sum(one.health.small_files for one in states),
        "manifests": sum(one.health.manifests for one in states),
        "snapshots": sum(one.health.snapshots for one in states),
        "bytes": sum(one.health.bytes for one in states),
    }
    since = {one.name: str(one.beyond_since_ms) for one in states if one.beyond_since_ms is not None}
    return {
        "state": dg.MetadataValue.md(state_markdown(states, now_ms)),
        BEYOND_SINCE: dg.MetadataValue.json(since),
        **{f"lakehouse/{name}": dg.MetadataValue.int(value) for name, value in sums.items()},
    }


def beyond_since(instance: dg.DagsterInstance) -> dict[str, int]:
    """Table -> since when it is beyond its policy, as the last materialization of the state left it."""
    event = instance.get_latest_materialization_event(STATE_KEY)
    if event is None or event.asset_materialization is None:
        return {}
    value = event.asset_materialization.metadata[BEYOND_SINCE].value
    return {name: int(str(since)) for name, since in value.items()} if isinstance(value, dict) else {}


def check_result(spec: dg.AssetCheckSpec, state: TableState | None, now_ms: int) -> dg.AssetCheckResult:
    """The verdict on one table; None: it is not written yet."""
    if state is None or state.beyond_since_ms is None:
        reason = "not written yet" if state is None else "within its policy"
        return dg.AssetCheckResult(passed=True, check_name=spec.name, asset_key=spec.asset_key, description=reason)
    return dg.AssetCheckResult(
        passed=not state.overdue(now_ms),
        check_name=spec.name,
        asset_key=spec.asset_key,
        severity=dg.AssetCheckSeverity.ERROR,
        description="; ".join(f"{action.kind}: {action.reason}" for action in state.actions),
        metadata={"beyond_since": dg.MetadataValue.timestamp(state.beyond_since_ms / 1000)},
    )


def existing(lake: Lakehouse, tables: Sequence[str]) -> Iterator[Table]:
    """Those of the tables that are written already."""
    for name in tables:
        if lake.table_exists(name):
            yield lake.load_table(name)
