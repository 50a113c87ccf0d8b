"""A materialization computed again from exactly the snapshots that it read, and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import dagster as dg
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from lakehouse.data.conversion.row_codes import without_common
from lakehouse.data.writing.input_columns import coerce
from lakehouse.engines import engine_for
from lakehouse.errors import InvalidInputError, NotFoundError
from lakehouse.ingestion.audit import MAIN
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.asset_results import REPLAYED_TAG, explained
from lakehouse.orchestration.assets.asset_table import AssetTable
from lakehouse.orchestration.assets.frames import rows_of_frame
from lakehouse.orchestration.assets.incremental import with_keys
from lakehouse.orchestration.assets.lakehouse_io_manager import (
    LakehouseIOManager,
    asset_table,
    input_rows,
    loaded,
)
from lakehouse.orchestration.checkout import Checkout, checkout_here
from lakehouse.orchestration.dagster_instance import open_instance
from lakehouse.orchestration.lineage.trace import (
    InputSnapshot,
    Lineage,
    Recomputed,
    Replay,
    parse_asset_key,
    read_lineage,
)
from lakehouse.orchestration.materialized_view import MaterializedView
from lakehouse.orchestration.resources import spark_when_asked
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.table import Table, TableScan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EXAMPLES = 3


def lineage(
    lake: Lakehouse, asset: str, *, partition: str | None = None, replay: bool = False
) -> Lineage | Replay:
    """The lineage of an asset's latest materialization, replayed if asked.

    Args:
        lake: the catalog that the pipeline writes to.
        asset: key, such as raw/flights, or the name of a materialized view of the catalog, whose
            newest rows are meant, whether or not a run of Dagster refreshed it.
        partition: of the materialization; None: the latest of any.
        replay: compute it again with the checkout's definitions, and compare. Spark starts where
            the asset takes or gives its frames.

    Raises:
        NotFoundError: nothing materialized, no instance, no checkout, or something that the replay
            needs is gone.
        InvalidInputError: it cannot be replayed.
    """
    view = MaterializedView.of(lake, ".".join(parse_asset_key(asset).path))
    if view is not None:  # it says itself what its rows were computed from
        if partition is not None:
            raise InvalidInputError(f"{view.name} is a materialized view: it has no partitions")
        of_view = view.lineage()
        if not replay:
            return of_view
        _check_there(of_view)
        with spark_when_asked("lakehouse-replay") as session:
            return _compared(of_view, view.recompute(of_view, session), lake, session)
    with open_instance() as instance:
        recorded = read_lineage(instance, lake, asset, partition)
    if not replay:
        return recorded
    with spark_when_asked("lakehouse-replay") as session:
        return replayed(checkout_here(), recorded, lake, session)


def replayed(
    checkout: Checkout, lineage: Lineage, lake: Lakehouse, session: Callable[[], SparkSession]
) -> Replay:
    """Compute a materialization again, store nothing, and compare its rows.

    They are compared with the rows of the partition; of an asset that appends, with those that the
    snapshot added; of one that upserts, with the rows of their keys. A column that is not computed
    any more is null in what is computed again, as it is in what a run would write.

    Raises:
        NotFoundError: snapshots are gone, or the definitions have no such asset any more.
        InvalidInputError: it cannot be replayed, or its function failed.
    """
    _check_there(lineage)
    if lineage.table in checkout.pipeline.table_names():
        again = checkout.pipeline.recompute(lineage, lake, session)
    else:
        again = _recompute(checkout.defs, lineage, lake, session)
    return _compared(lineage, again, lake, session)


def _check_there(lineage: Lineage) -> None:
    """Raise NotFoundError where a snapshot that was read or written is gone."""
    gone = [f"{i.table} at {i.snapshot_id}" for i in lineage.inputs if i.expired] + (
        [f"{lineage.table} at {lineage.snapshot_id}"] if lineage.expired else []
    )
    if gone:
        raise NotFoundError(
            f"{lineage.asset_key} cannot be replayed: {', '.join(gone)} expired; "
            "materialize it again"
        )


def _compared(
    lineage: Lineage, again: Recomputed, lake: Lakehouse, session: Callable[[], SparkSession]
) -> Replay:
    table = lake.load_table(lineage.table)
    if engine_for(again.rows) is not None:
        return _compared_frames(lineage, again, table, session())
    return _compared_rows(lineage, again, table)


def _recompute(
    defs: dg.Definitions, lineage: Lineage, lake: Lakehouse, session: Callable[[], SparkSession]
) -> Recomputed:
    """What a plain asset gives for the snapshots that it read."""
    key = dg.AssetKey(lineage.asset_key.split("/"))
    if key not in defs.resolve_all_asset_keys():
        raise NotFoundError(f"the definitions have no asset {lineage.asset_key} any more")
    asset = defs.resolve_assets_def(key)
    held = (defs.resources or {}).get(asset.get_io_manager_key_for_asset_key(key))
    if not isinstance(held, LakehouseIOManager):
        raise InvalidInputError(
            f"{lineage.asset_key} is not stored by a LakehouseIOManager: it cannot be replayed"
        )
    memory = _Replaying(lake, session, held.namespace, {i.table: i for i in lineage.inputs})
    resources = {
        name: memory if isinstance(resource, LakehouseIOManager) else resource
        for name, resource in (defs.resources or {}).items()
    }
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            list(cast("Iterable[dg.AssetsDefinition]", defs.assets or ())),
            selection=[key],
            partition_key=lineage.partition,
            resources=resources,
            tags={REPLAYED_TAG: lineage.run_id},
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            instance=instance,
            raise_on_error=False,
        )
    target = memory.target
    if not done.success or target is None:
        failures = [event.message for event in done.all_events if event.is_failure]
        raise InvalidInputError(
            f"{lineage.asset_key} failed when it was replayed: {failures[0] if failures else ''}"
        )
    parent = lake.load_table(lineage.table).metadata.snapshot(lineage.snapshot_id)
    return Recomputed(
        memory.rows,
        memory.where,
        target.upsert_keys,
        parent.parent_snapshot_id if target.write_mode == "append" else None,
    )


@dataclass
class _Replaying(dg.IOManager):
    """Gives inputs as they were, and keeps what the asset returned.

    Attributes:
        target: the asset's table, when it has run.
        rows: what it returned.
        where: the rows of its partition.
    """

    lake: Lakehouse
    session: Callable[[], SparkSession]
    namespace: str
    inputs: Mapping[str, InputSnapshot]
    target: AssetTable | None = None
    rows: Any = None
    where: BooleanExpression = field(default_factory=AlwaysTrue)

    def load_input(self, context: dg.InputContext) -> Any:
        """The input at the snapshot that was recorded."""
        with explained():
            rows = input_rows(context, self.lake, self.namespace, MAIN)
            if rows is None:
                return None
            name = rows.table.name
            if name not in self.inputs:
                raise InvalidInputError(
                    f"{name} was not among the inputs that the materialization read", table=name
                )
            return loaded(context, rows.at(self.inputs[name].snapshot_id), self.session)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Remember what the asset returned."""
        with explained():
            self.target = asset_table(context, self.namespace)
            self.rows, _ = rows_of_frame(obj, self.target.name)
            if context.has_asset_partitions:
                wanted = context.asset_partitions_def, context.asset_partition_keys
                table = self.lake.load_table(self.target.name)
                self.where = self.target.where(*wanted, table.schema())


def _kept(lineage: Lineage, again: Recomputed, table: Table) -> TableScan:
    """The rows of the table that the materialization wrote."""
    if again.added_since is not None:
        return table.scan_appends(again.added_since, lineage.snapshot_id, where=again.where)
    return table.scan(again.where, snapshot_id=lineage.snapshot_id)


def _compared_frames(
    lineage: Lineage, again: Recomputed, table: Table, spark: SparkSession
) -> Replay:
    """Frames of Spark, as multisets."""
    # Spark is there where its frames are
    from pyspark.sql import functions  # noqa: PLC0415

    from lakehouse.spark.reading.worker_reader import shown_frame  # noqa: PLC0415
    from lakehouse.spark.spark_types import quoted  # noqa: PLC0415

    scan, frame = _kept(lineage, again, table), again.rows
    kept: DataFrame = (
        cast("DataFrame", scan.to_spark(spark))
        if again.added_since is None
        else shown_frame(spark, scan.to_arrow())
    )
    if again.keys:
        kept = kept.join(frame.select(*again.keys).distinct(), list(again.keys), "left_semi")
    schema = table.metadata.schema_at(lineage.snapshot_id)
    kept = kept.select(*[quoted(name) for name in schema.column_names]).persist()
    frame = frame.select(
        *[
            functions.col(quoted(field.name))
            if field.name in frame.columns
            else functions.lit(None).cast(field.dataType).alias(field.name)
            for field in kept.schema
        ]
    ).persist()
    try:
        missing, unexpected = kept.exceptAll(frame).persist(), frame.exceptAll(kept).persist()
        examples = [f"missing: {row.asDict()}" for row in missing.take(_EXAMPLES)]
        examples += [f"unexpected: {row.asDict()}" for row in unexpected.take(_EXAMPLES)]
        return Replay(lineage, frame.count(), missing.count(), unexpected.count(), tuple(examples))
    finally:
        frame.unpersist()
        kept.unpersist()


def _compared_rows(lineage: Lineage, again: Recomputed, table: Table) -> Replay:
    """Rows of Arrow."""
    kept = _kept(lineage, again, table).to_arrow()
    rows = again.rows if isinstance(again.rows, pa.Table) else pa.table(again.rows)
    rows = rows.select([name for name in rows.column_names if name in kept.column_names])
    schema = table.metadata.schema_at(lineage.snapshot_id)
    batches = list(coerce(rows, schema, table=table.name))
    rows = pa.Table.from_batches(batches, schema_to_arrow(schema)).select(kept.column_names)
    rows = rows.cast(kept.schema)
    if again.keys:
        kept = with_keys(kept, rows.select(again.keys))
    missing, unexpected = without_common(kept, rows)
    examples = [f"missing: {row}" for row in missing.slice(0, _EXAMPLES).to_pylist()]
    examples += [f"unexpected: {row}" for row in unexpected.slice(0, _EXAMPLES).to_pylist()]
    return Replay(lineage, rows.num_rows, missing.num_rows, unexpected.num_rows, tuple(examples))
