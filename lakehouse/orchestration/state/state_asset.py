"""The state of the whole lakehouse as an asset, and a check of every table against its policy."""

import time
from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from lakehouse.catalog.open_branches import PUBLICATIONS
from lakehouse.curation.statement_store import STATEMENTS, VERIFICATIONS
from lakehouse.errors import LakehouseError
from lakehouse.maintenance.health.table_health import TableHealth
from lakehouse.orchestration.automation.run_requests import STATE_JOB
from lakehouse.orchestration.lineage.forget import FORGOTTEN
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.orchestration.state.state_page import TableState, state_markdown, table_state
from lakehouse.spec.identifier import split_name
from lakehouse.tuning.adoption import HISTORY

STATE_KEY = dg.AssetKey(["lakehouse", "state"])
OF_NO_ASSET = (STATEMENTS, VERIFICATIONS, FORGOTTEN, str(PUBLICATIONS), HISTORY)
"""Tables of the framework that no asset stands for: events of theirs would make entries without a
definition in the UI's catalog."""
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
            description=(
                f"Fails when {name} has been beyond its policy for "
                "`lakehouse.maintenance.alert-after-ms`."
            ),
        )
        for name in tables
    }

    @dg.asset(
        key=STATE_KEY,
        group_name="lakehouse",
        pool=STATE_JOB,
        kinds={"iceberg"},
        check_specs=list(checks.values()),
        description=(
            "Every table of the pipeline: files, manifests, snapshots, what its policy asks for. "
            "Metadata only."
        ),
    )
    def state(
        context: dg.AssetExecutionContext, lakehouse: LakehouseResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        since = beyond_since(context.instance)
        states: dict[str, TableState] = {}
        failed: dict[str, str] = {}
        lake = lakehouse.shared_lake()
        for name in filter(lake.table_exists, tables):
            try:
                states[name] = table_state(lake.load_table(name), since=since, project=project)
            except LakehouseError as error:
                failed[name] = error.message
                context.log.exception(f"{name} cannot be measured")
                continue
            due = ", ".join(action.kind for action in states[name].actions)
            context.log.info(f"measured {name}: {due or 'nothing'} is due")
            if name not in OF_NO_ASSET:
                context.log_event(
                    dg.AssetObservation(
                        asset_key=split_name(name), metadata=health_metadata(states[name].health)
                    )
                )
        now_ms = time.time_ns() // 1_000_000
        yield dg.MaterializeResult(
            metadata=state_metadata(list(states.values()), failed, now_ms),
            check_results=[
                failed_result(spec, failed[name])
                if name in failed
                else check_result(spec, states.get(name), now_ms)
                for name, spec in checks.items()
            ],
        )

    return state


def check_name(table: str) -> str:
    """The check of a table: `raw.events` -> `raw__events_within_policy`."""
    return f"{table.replace('.', '__')}_within_policy"


def health_metadata(health: TableHealth) -> dict[str, dg.MetadataValue]:
    """A table's health as numbers to plot, under the keys that maintenance events use."""
    counts = {
        "files": health.data_files,
        "small_files": health.small_files,
        "files_after_compaction": health.expected_files,
        "delete_files": health.delete_files,
        "bytes": health.bytes,
        "small_bytes": health.small_bytes,
        "manifests": health.manifests,
        "snapshots": health.snapshots,
        "expirable_snapshots": health.expirable_snapshots,
        "metadata_bytes": health.metadata_bytes,
    }
    ratios = {
        "entropy": health.entropy,
        "delete_ratio": health.delete_ratio,
        "manifest_overlap": health.manifest_overlap,
        "sort_overlap": health.sort_overlap,
        "skew": health.skew,
        "oldest_snapshot_days": None
        if health.oldest_snapshot_age_ms is None
        else health.oldest_snapshot_age_ms / 86_400_000,
    }
    return {
        **{f"lakehouse/{name}": dg.MetadataValue.int(value) for name, value in counts.items()},
        **{
            f"lakehouse/{name}": dg.MetadataValue.float(round(value, 4))
            for name, value in ratios.items()
            if value is not None
        },
    }


def state_metadata(
    states: Sequence[TableState], failed: Mapping[str, str], now_ms: int
) -> dict[str, dg.MetadataValue]:
    """The page, since when tables violate their policy, and sums to plot.

    `failed` could not be measured, each with its reason.
    """
    sums = {
        "tables": len(states) + len(failed),
        "tables_not_measured": len(failed),
        "tables_beyond_policy": sum(bool(state.actions) for state in states),
        "tables_overdue": sum(state.overdue(now_ms) for state in states),
        "files": sum(state.health.data_files for state in states),
        "small_files": sum(state.health.small_files for state in states),
        "manifests": sum(state.health.manifests for state in states),
        "snapshots": sum(state.health.snapshots for state in states),
        "bytes": sum(state.health.bytes for state in states),
    }
    since = {
        state.name: str(state.beyond_since_ms)
        for state in states
        if state.beyond_since_ms is not None
    }
    return {
        "state": dg.MetadataValue.md(state_markdown(states, now_ms, failed)),
        **{f"lakehouse/{name}": dg.MetadataValue.int(value) for name, value in sums.items()},
        BEYOND_SINCE: dg.MetadataValue.json(since),
    }


def beyond_since(instance: dg.DagsterInstance) -> dict[str, int]:
    """Table -> since when it violates its policy, from the last materialization of the state."""
    event = instance.get_latest_materialization_event(STATE_KEY)
    if event is None or event.asset_materialization is None:
        return {}
    value = event.asset_materialization.metadata[BEYOND_SINCE].value
    return (
        {name: int(str(since)) for name, since in value.items()} if isinstance(value, dict) else {}
    )


def check_result(
    spec: dg.AssetCheckSpec, state: TableState | None, now_ms: int
) -> dg.AssetCheckResult:
    """The verdict on one table; None: it is not written yet."""
    if state is None or state.beyond_since_ms is None:
        reason = "not written yet" if state is None else "within its policy"
        return dg.AssetCheckResult(
            passed=True, check_name=spec.name, asset_key=spec.asset_key, description=reason
        )
    return dg.AssetCheckResult(
        passed=not state.overdue(now_ms),
        check_name=spec.name,
        asset_key=spec.asset_key,
        severity=dg.AssetCheckSeverity.ERROR,
        description="; ".join(f"{action.kind}: {action.reason}" for action in state.actions),
        metadata={"beyond_since": dg.MetadataValue.timestamp(state.beyond_since_ms / 1000)},
    )


def failed_result(spec: dg.AssetCheckSpec, reason: str) -> dg.AssetCheckResult:
    """The verdict on a table that cannot be measured."""
    return dg.AssetCheckResult(
        passed=False, check_name=spec.name, asset_key=spec.asset_key, description=reason
    )
