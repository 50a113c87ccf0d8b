"""What the latest materialization of an asset read and wrote, computed again if asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import dagster as dg

from lakehouse.errors import NotFoundError
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.checkout import load_module
from lakehouse.orchestration.dagster_instance import open_instance
from lakehouse.orchestration.lineage.trace import Lineage, Replay, read_lineage
from lakehouse.orchestration.plain_assets.plain_replay import replay_plain
from lakehouse.orchestration.project import Pipeline
from lakehouse.spark.spark_session import build_session


class Checkout(Protocol):
    """The module `definitions` of a checkout.

    Attributes:
        pipeline: its sources and derived tables.
        defs: everything that Dagster sees.
    """

    pipeline: Pipeline
    defs: dg.Definitions


def lineage(
    lake: Lakehouse, asset: str, *, partition: str | None = None, replay: bool = False
) -> Lineage | Replay:
    """The lineage of an asset's latest materialization, replayed if asked.

    Args:
        lake: the catalog that the pipeline writes to.
        asset: key, such as raw/flights.
        partition: of the materialization; None: the latest of any.
        replay: compute it again with the checkout's definitions, and compare.

    Raises:
        NotFoundError: nothing materialized, no instance, no checkout, or something that the replay
            needs is gone.
        InvalidInputError: it cannot be replayed.
    """
    with open_instance() as instance:
        found = read_lineage(instance, lake, asset, partition)
    if not replay:
        return found
    checkout: Any = load_module("definitions", Path.cwd())
    if not checkout.pipeline.needs_spark(found.table):
        return replayed(checkout, found, lake, None)
    spark = build_session("lakehouse-replay")
    try:
        return replayed(checkout, found, lake, spark)
    finally:
        spark.stop()


def replayed(checkout: Checkout, found: Lineage, lake: Lakehouse, spark: Any) -> Replay:
    """Compute a materialization again from exactly the snapshots that it read, and compare.

    Raises:
        NotFoundError: snapshots are gone, or the definitions have no such asset any more.
        InvalidInputError: it cannot be replayed.
    """
    gone = [f"{i.table} at {i.snapshot_id}" for i in found.inputs if i.expired] + (
        [f"{found.table} at {found.snapshot_id}"] if found.expired else []
    )
    if gone:
        raise NotFoundError(
            f"{found.asset_key} cannot be replayed: {', '.join(gone)} expired; materialize it again"
        )
    if found.table in checkout.pipeline.table_names():
        return checkout.pipeline.replay(found, lake, spark)
    return replay_plain(checkout.defs, found, lake, spark)
