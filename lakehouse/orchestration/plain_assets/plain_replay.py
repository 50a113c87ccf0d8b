"""Replay of a plain asset: its function runs again on the snapshots that it had read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import dagster as dg
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyspark.sql import DataFrame, SparkSession

from lakehouse.data.writing.input_columns import coerce
from lakehouse.engines import engine_for
from lakehouse.errors import InvalidInputError, NotFoundError
from lakehouse.ingestion.audit import MAIN
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.asset_results import explained
from lakehouse.orchestration.lineage.compared_rows import compared
from lakehouse.orchestration.lineage.trace import Lineage, Replay
from lakehouse.orchestration.plain_assets.asset_table import AssetTable
from lakehouse.orchestration.plain_assets.frame_kinds import rows_of_frame
from lakehouse.orchestration.plain_assets.lakehouse_io_manager import (
    AssetInput,
    LakehouseIOManager,
    asset_table,
)
from lakehouse.orchestration.plain_assets.partition_filter import partition_filter
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.table import Table


def replay_plain(
    defs: dg.Definitions, lineage: Lineage, lake: Lakehouse, spark: SparkSession
) -> Replay:
    """Run the asset on the snapshots that it read, store nothing, and compare its rows.

    They are compared with the rows of the partition; of an asset that appends, with those that the
    snapshot added; of one that upserts, with the rows of their keys.

    Raises:
        NotFoundError: the definitions have no such asset.
        InvalidInputError: no `LakehouseIOManager` stores the asset, or its function failed.
    """
    key = dg.AssetKey(lineage.asset_key.split("/"))
    if key not in defs.resolve_all_asset_keys():
        raise NotFoundError(f"the definitions have no asset {lineage.asset_key} any more")
    asset = defs.resolve_assets_def(key)
    held = (defs.resources or {}).get(asset.get_io_manager_key_for_asset_key(key))
    if not isinstance(held, LakehouseIOManager):
        raise InvalidInputError(
            f"{lineage.asset_key} is not stored by a LakehouseIOManager: it cannot be replayed"
        )
    memory = _Replaying(lake, spark, held.namespace, {i.table: i for i in lineage.inputs})
    resources = {
        name: memory if isinstance(one, LakehouseIOManager) else one
        for name, one in (defs.resources or {}).items()
    }
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            list(cast("Iterable[dg.AssetsDefinition]", defs.assets or ())),
            selection=[key],
            partition_key=lineage.partition,
            resources=resources,
            instance=instance,
            raise_on_error=False,
        )
    if not done.success or memory.target is None:
        failures = [one.message for one in done.all_events if one.is_failure]
        raise InvalidInputError(
            f"{lineage.asset_key} failed when it was replayed: {failures[0] if failures else ''}"
        )
    table = lake.load_table(lineage.table)
    again = _frame(memory.rows, table, spark)
    return compared(lineage, again, _kept(lineage, memory, table, again))


@dataclass
class _Replaying(dg.IOManager):
    """Gives inputs as they were, and keeps what the asset returned.

    Attributes:
        target: the asset's table, when it has run.
        rows: what it returned.
        where: the rows of its partition.
    """

    lake: Lakehouse
    spark: SparkSession
    namespace: str
    inputs: Mapping[str, Any]
    target: AssetTable | None = None
    rows: Any = None
    where: BooleanExpression = field(default_factory=AlwaysTrue)

    def load_input(self, context: dg.InputContext) -> Any:
        """The input at the snapshot that was recorded."""
        with explained():
            found = AssetInput.of(context, self.lake, self.namespace, MAIN)
            if found.table.name not in self.inputs:
                raise InvalidInputError(
                    f"{found.table.name} was not among the inputs that the materialization read",
                    table=found.table.name,
                )
            snapshot_id = self.inputs[found.table.name].snapshot_id
            return found.load(snapshot_id, lambda: self.spark)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Remember what the asset returned."""
        with explained():
            self.target = asset_table(context, self.namespace)
            self.rows, _ = rows_of_frame(obj, self.target.name)
            if context.has_asset_partitions:
                self.where = partition_filter(
                    context.asset_partitions_def,
                    context.asset_partition_keys,
                    self.target.partition_expr,
                    self.lake.load_table(self.target.name).schema(),
                    self.target.asset,
                )


def _frame(rows: Any, table: Table, spark: SparkSession) -> DataFrame:
    """Rows as the table would hold them."""
    if engine_for(rows) is not None:
        frame: DataFrame = rows
        return frame
    schema = table.schema()
    batches = list(coerce(rows, schema, table=table.name))
    return spark.createDataFrame(pa.Table.from_batches(batches, schema_to_arrow(schema)))


def _kept(lineage: Lineage, memory: _Replaying, table: Table, again: DataFrame) -> DataFrame:
    """The rows of the table that the materialization wrote."""
    target = memory.target
    snapshot = table.metadata.snapshot(lineage.snapshot_id)
    if target is not None and target.write_mode == "append" and snapshot.parent_snapshot_id:
        added = table.scan_appends(
            snapshot.parent_snapshot_id, snapshot.snapshot_id, where=memory.where
        )
        return memory.spark.createDataFrame(added.to_arrow())
    scan = table.scan(memory.where, snapshot_id=lineage.snapshot_id)
    kept: DataFrame = scan.to_spark(memory.spark)  # type: ignore[assignment]
    if target is not None and target.write_mode == "upsert":
        keys = list(target.upsert_keys)
        kept = kept.join(again.select(*keys).distinct(), on=keys, how="left_semi")
    return kept.select(*[f"`{name}`" for name in table.schema().column_names])
