"""Derived tables: a pure function of other tables at exact snapshots, as an asset."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import dagster as dg
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyspark.sql import DataFrame, SparkSession

from lakehouse.errors import NoSuchTableError
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.checks.audit import AuditFailedError, CheckOutcome, write_audit_publish
from lakehouse.orchestration.checks.expectations import Suite, validate
from lakehouse.orchestration.frames import read_frame
from lakehouse.orchestration.ingestion.source import EVENT_TS
from lakehouse.orchestration.ingestion.source_tables import day_in, event_ts_in
from lakehouse.orchestration.lineage.materialization import (
    ColumnSources,
    data_version,
    materialization_metadata,
)
from lakehouse.orchestration.lineage.stamp import RunStamp
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.orchestration.steps import (
    RETRY,
    audit_failure,
    check_results,
    check_specs,
    explained,
    pool,
    requested_days,
    stamp,
)
from lakehouse.spec.snapshot import Snapshot
from lakehouse.table import Table

Transform = Callable[[Mapping[str, DataFrame]], DataFrame]
INPUTS_WHOLE = "inputs_whole"


@dataclass(frozen=True, kw_only=True)
class DerivedTable:
    """A table computed from others.

    Attributes:
        name: dotted name; also the asset's key.
        inputs: tables read. A daily table reads only its days of them, by `event_ts`.
        transform: input frames by table name to the output frame; must depend on nothing else.
        day_column: for a daily table the output column that tells the day; None: the whole table is one unit.
        day_is_date: whether that column is a date; else it is a timestamptz.
        partition_by: partition terms of the table.
        sort_by: sort terms of the table.
        columns: output column -> (input table, input column) pairs.
        suites: what must hold before it is published.
        description: for people.
    """

    name: str
    inputs: tuple[str, ...]
    transform: Transform
    day_column: str | None = None
    day_is_date: bool = False
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    columns: ColumnSources = field(default_factory=dict)
    suites: tuple[Suite, ...] = ()
    description: str = ""

    @property
    def _suites(self) -> tuple[Suite, ...]:
        """With the check that every derived table has."""
        return (
            Suite(INPUTS_WHOLE, (), description="as many rows were read as were written"),
            *self.suites,
        )

    @property
    def key(self) -> dg.AssetKey:
        """The asset's key."""
        return dg.AssetKey(self.name.split("."))

    def where(self, days: Sequence[date] | None) -> BooleanExpression:
        """Which rows of the table belong to the days."""
        if self.day_column is None or days is None:
            return AlwaysTrue()
        return (
            day_in(days, self.day_column)
            if self.day_is_date
            else event_ts_in(days, self.day_column)
        )

    def compute(
        self,
        lake: Lakehouse,
        spark: SparkSession,
        inputs: Mapping[str, int | None],
        days: Sequence[date] | None,
    ) -> DataFrame:
        """The output for the days, from the inputs at these snapshots."""
        return self.transform(self._frames(lake, spark, inputs, days))

    def _frames(
        self,
        lake: Lakehouse,
        spark: SparkSession,
        inputs: Mapping[str, int | None],
        days: Sequence[date] | None,
    ) -> dict[str, DataFrame]:
        chosen = None if self.day_column is None or days is None else event_ts_in(days)
        return {
            name: read_frame(spark, lake.load_table(name), chosen, snapshot_id=inputs[name])
            for name in self.inputs
        }

    def inputs_whole(
        self,
        lake: Lakehouse,
        spark: SparkSession,
        inputs: Mapping[str, int | None],
        days: Sequence[date] | None,
    ) -> CheckOutcome:
        """Whether Spark finds as many rows in the inputs as their snapshots record."""
        chosen = None if self.day_column is None or days is None else event_ts_in(days)
        found = {
            name: frame.count() for name, frame in self._frames(lake, spark, inputs, days).items()
        }
        recorded = {
            name: lake.load_table(name)
            .scan(chosen, EVENT_TS if chosen is not None else None, snapshot_id=inputs[name])
            .count()
            for name in self.inputs
        }
        return CheckOutcome(
            INPUTS_WHOLE,
            passed=found == recorded,
            blocking=True,
            failures=tuple(
                f"{name} has {recorded[name]} rows in snapshot {inputs[name]}, and {found[name]} "
                f"were read: restore its files, then materialize {self.name.replace('.', '/')} again"
                for name in self.inputs
                if found[name] != recorded[name]
            ),
            metadata={f"rows of {name}": count for name, count in found.items()},
        )

    def build(self, partitions: dg.PartitionsDefinition | None) -> dg.AssetsDefinition:
        """The asset. `partitions` is that of the inputs, for a daily table."""

        # `multi_asset` with one spec: `asset` warns that its `backfill_policy` is beta
        @dg.multi_asset(
            name=self.name.replace(".", "__"),
            specs=[
                dg.AssetSpec(
                    self.key,
                    deps=[dg.AssetKey(name.split(".")) for name in self.inputs],
                    group_name=self.name.split(".", maxsplit=1)[0],
                    kinds={"iceberg", "spark"},
                    description=self.description,
                    partitions_def=partitions if self.day_column else None,
                )
            ],
            backfill_policy=dg.BackfillPolicy.single_run() if self.day_column else None,
            pool=pool(self.name),
            retry_policy=RETRY,
            check_specs=check_specs(self.key, self._suites),
        )
        def derived(
            context: dg.AssetExecutionContext, lakehouse: LakehouseResource, spark: LakehouseSpark
        ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:  # type: ignore[type-arg]
            lake, days = lakehouse.lake(), requested_days(context) if self.day_column else None
            try:
                with explained():
                    inputs = current_snapshots(lake, self.inputs)
                    snapshot, outcomes = self._publish(
                        lake, spark.spark_session, inputs, days, stamp(context, self.key)
                    )
            except AuditFailedError as error:
                yield from check_results(self.key, self._suites, error.outcomes)
                raise audit_failure(error) from error
            table = lake.load_table(self.name)
            yield dg.MaterializeResult(
                asset_key=self.key,
                data_version=data_version(snapshot),
                metadata=materialization_metadata(table, snapshot, inputs, self.columns),
            )
            yield from check_results(self.key, self._suites, outcomes)

        return derived

    def _publish(
        self,
        lake: Lakehouse,
        spark: SparkSession,
        inputs: Mapping[str, int | None],
        days: Sequence[date] | None,
        step: RunStamp,
    ) -> tuple[Snapshot, list[CheckOutcome]]:
        frame = self.compute(lake, spark, inputs, days)
        table = self._table(lake, frame)

        def write(branch: str, commit_id: str) -> Snapshot:
            return table.overwrite(
                frame,
                self.where(days),
                must_match=True,
                branch=branch,
                summary=step.summary(),
                commit_id=commit_id,
            )

        def audit(snapshot: Snapshot) -> list[CheckOutcome]:
            staged = read_frame(
                spark,
                lake.load_table(self.name),
                self.where(days),
                snapshot_id=snapshot.snapshot_id,
            ).persist()
            try:
                whole = self.inputs_whole(lake, spark, inputs, days)
                return [whole, *validate(staged, self.suites, self.name)]
            finally:
                staged.unpersist()

        return write_audit_publish(table, step, "rows", write, audit)

    def _table(self, lake: Lakehouse, frame: DataFrame) -> Table:
        """The table, created when missing, with the columns that the transform gained since."""
        if not lake.table_exists(self.name):
            return lake.create_table(
                self.name, frame.schema, partition_by=self.partition_by, sort_by=self.sort_by
            )
        table = lake.load_table(self.name)
        missing = [name for name in frame.columns if name not in table.schema().column_names]
        if missing:
            with table.update_schema() as change:
                change.union_by_name(frame.select(*missing).schema)
        return table


def current_snapshots(lake: Lakehouse, names: Sequence[str]) -> dict[str, int | None]:
    """The snapshots that a step reads: those of `main` when it starts. Raises NoSuchTableError."""
    for name in names:
        if not lake.table_exists(name):
            raise NoSuchTableError(
                f"{name} does not exist yet: materialize {name.replace('.', '/')} first", table=name
            )
    return {name: lake.load_table(name).metadata.current_snapshot_id for name in names}
