"""Makes the assets and the sensor of a change feed."""

from collections.abc import Iterator

import dagster as dg

from lakehouse.errors import NoSuchFileError
from lakehouse.ingestion.feeds.change_feed import ChangeFeed
from lakehouse.ingestion.feeds.feed_run import AppliedFiles, apply_feed, waiting_files
from lakehouse.ingestion.landing_listing import digest, landed
from lakehouse.orchestration.asset_results import RETRY, explained, pool, stamp
from lakehouse.orchestration.automation.attempts import next_attempt
from lakehouse.orchestration.lineage.materialization import data_version, materialization_metadata
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.spec.identifier import split_name

_SHOWN = 10


def feed_assets(feed: ChangeFeed) -> dg.AssetsDefinition:
    """The table, and its ledger. The step fails for files that were left alone, after the others.

    Each run applies what waits.
    """
    key = dg.AssetKey(split_name(feed.table))
    ledger_key = dg.AssetKey(split_name(feed.ledger_table))

    @dg.multi_asset(
        name=f"apply__{feed.name}",
        specs=[
            dg.AssetSpec(
                key,
                group_name="raw",
                kinds={"iceberg"},
                description=f"The table that the changes of `{feed.name}` describe, by "
                f"{', '.join(feed.keys)}.",
            ),
            dg.AssetSpec(
                ledger_key,
                group_name="raw",
                kinds={"iceberg"},
                description=f"Every file of `{feed.name}` that was applied, and what it changed.",
            ),
        ],
        pool=pool(feed.table),
        retry_policy=RETRY,
    )
    def changes(
        context: dg.AssetExecutionContext, lakehouse: LakehouseResource
    ) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]
        lake = lakehouse.lake()
        with explained():
            done = apply_feed(lake, lakehouse.landing, feed, stamp(context, key), context.log.info)
        for name, of in ((feed.table, key), (feed.ledger_table, ledger_key)):
            table = lake.load_table(name) if lake.table_exists(name) else None
            snapshot = None if table is None else table.current_snapshot()
            if table is None or snapshot is None:
                raise _left_alone(feed, done)
            yield dg.MaterializeResult(
                asset_key=of,
                data_version=data_version(snapshot),
                metadata={
                    **materialization_metadata(table, snapshot, {}),
                    "lakehouse/run_files": len(done.files),
                    **{f"lakehouse/run_{name}": count for name, count in done.counts.items()},
                },
            )
        if done.left:
            raise _left_alone(feed, done)

    return changes


def feed_sensor(feed: ChangeFeed) -> dg.SensorDefinition:
    """Asks for a run when files wait, and again when it failed."""
    key = dg.AssetKey(split_name(feed.table))
    ledger_key = dg.AssetKey(split_name(feed.ledger_table))

    @dg.sensor(
        name=f"landed_{feed.name}",
        target=dg.AssetSelection.assets(key, ledger_key),
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Asks for a run for new and changed files. A set of files whose run "
        "failed is asked for again after a wait that doubles from a minute to a day.",
    )
    def files_landed(
        context: dg.SensorEvaluationContext, lakehouse: LakehouseResource
    ) -> dg.RunRequest | dg.SkipReason:
        try:
            waiting = waiting_files(lakehouse.lake(), lakehouse.landing, feed)
        except NoSuchFileError as error:
            return dg.SkipReason(error.message)
        if not waiting:
            return dg.SkipReason(f"everything that landed for {feed.name} is applied")
        return next_attempt(context.instance, f"{feed.name}:{digest(landed(waiting))}")

    return files_landed


def _left_alone(feed: ChangeFeed, done: AppliedFiles) -> dg.Failure:
    if not done.left:
        return dg.Failure(f"no changes have landed for {feed.name} yet", allow_retries=False)
    shown = "; ".join(f"{path}: {why}" for path, why in list(done.left.items())[:_SHOWN])
    return dg.Failure(
        f"{len(done.left)} files of {feed.name} were left alone, {len(done.files)} are applied: "
        f"{shown}",
        allow_retries=False,
    )
