"""Derived tables: a pure function of other tables at exact snapshots, as an asset."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from enum import Enum
from functools import cached_property, partial
from typing import Any, cast

import dagster as dg
import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyspark.sql import SparkSession

from lakehouse.engines import to_schema
from lakehouse.errors import InvalidInputError, NoSuchTableError, RowsNotFoundError
from lakehouse.ingestion.audit import MAIN, AuditFailedError, CheckOutcome
from lakehouse.ingestion.definition_changes import code_of
from lakehouse.ingestion.source import EVENT_TS
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.asset_attributes import (
    DEFINITION_METADATA,
    asset_attributes,
    code_reference,
)
from lakehouse.orchestration.asset_results import (
    RETRY,
    check_results,
    check_specs,
    explained,
    failure_of,
    pool,
    remove_dead_branches,
    stamp,
)
from lakehouse.orchestration.assets.asset_table import AssetTable
from lakehouse.orchestration.assets.asset_write import PARTITION_ROWS, AssetWrite
from lakehouse.orchestration.assets.blocking_checks import BlockingChecks, publish
from lakehouse.orchestration.assets.frames import (
    EngineName,
    Frames,
    InputRows,
    ModelEngine,
    engine_name,
    open_engine,
)
from lakehouse.orchestration.assets.incremental import (
    REFRESH_METADATA,
    REFRESHES,
    DeltaWrite,
    FollowedQuery,
    Follower,
    NotFollowedError,
    Refresh,
    RefreshName,
    ResultDelta,
    followed,
    history,
    refuse_other_partitions,
    rows_of,
)
from lakehouse.orchestration.assets.partition_filter import (
    PARTITION_EXPR,
    PartitionExpr,
    Partitioning,
)
from lakehouse.orchestration.assets.staleness import RefreshState, Staleness, staleness
from lakehouse.orchestration.checks.bad_days import DayMemory, bad_days_of
from lakehouse.orchestration.checks.expectations import Suite, validate, validate_days
from lakehouse.orchestration.checks.plain_expectations import columns_read
from lakehouse.orchestration.lineage.materialization import (
    ColumnSources,
    data_version,
    materialization_metadata,
    newest_records,
    record_each,
)
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.spec.identifier import split_name
from lakehouse.spec.metadata.snapshot import REFRESH_STATE, Snapshot
from lakehouse.table import Table

# the frames are those of the table's engine; one of another engine is no error of types here
Transform = Callable[[Any], Any]
INPUTS_WHOLE = "inputs_whole"
_FOLLOWED = {"write.parquet.row-group-size-bytes": str(8 << 20)}
"""Properties of tables that follow: rows of touched keys are looked for in row groups."""
_DAYS = dg.DailyPartitionsDefinition("1970-01-01")
"""Of daily tables; which of them there are, their sources say."""


class RefreshMode(Enum):
    """Compute the requested partitions, or those of them that are stale."""

    REPLACE = "replace"
    STALE = "stale"


class RefreshConfig(dg.Config):
    """Run configuration of a derived table.

    Attributes:
        mode: what of the run's partitions is computed.
        leave: partitions among them that are not touched; empty text is a table without.
        full: whether it is computed in full, whatever the table's `refresh` is.
    """

    mode: RefreshMode = RefreshMode.REPLACE
    leave: list[str] = []  # noqa: RUF012 - a pydantic field, copied for each instance
    full: bool = False

    def chosen(self, stale: Staleness, keys: Sequence[str] | None) -> list[str] | None:
        """The partitions to compute, None for a table without; an empty list is nothing at all.

        Args:
            stale: what is stale.
            keys: of the run; None for a table without.
        """
        if keys is None:
            up_to_date = self.mode is RefreshMode.STALE and ("" in self.leave or not stale.whole)
            return [] if up_to_date else None
        wanted = stale.partitions if self.mode is RefreshMode.STALE else keys
        return [key for key in keys if key in wanted and key not in self.leave]


@dataclass(frozen=True, kw_only=True)
class ComputedTable:
    """What every table that is computed from others says of itself.

    Attributes:
        name: dotted name; also the asset's key.
        engine: what computes it: `spark`, `datafusion`, `duckdb` or `polars`. Only Spark starts a
            JVM.
        day_column: for a daily table the output column that tells the day: each day is computed
            from that day of the inputs. None: the whole table is one unit.
        day_is_date: whether that column is a date; else it is a timestamptz.
        partitions: Dagster's partitions of the table, of any kind, in place of days: each is
            computed from the same partition of the inputs.
        partition_expr: the output column that tells it; of several dimensions, column by dimension.
        read_by: the same of each input; None: `event_ts` where partitions are windows of time, else
            the output's.
        partition_by: partition terms of the table; empty: none, and after `partitions` where it has
            these.
        sort_by: sort terms of the table.
        table_properties: of the table.
        columns: output column -> (input table, input column) pairs.
        suites: what must hold before it is published.
        refresh: how it is brought up to date, of SQL alone: `full` computes it again; `incremental`
            follows what changed in its inputs where that can be, `auto` where that also pays, and
            `incremental_strict` fails where it cannot.
        description: for people.
        fresh_within: the table is late when it was not computed for so long; None: never.
        automation: when Dagster computes the table, such as
            `dg.AutomationCondition.freshness_failed()`; None: the sensors of its only source do,
            and nobody where it has `partitions`.
        owners: e-mail addresses, or teams as `team:name`.
        tags: of the asset.
    """

    name: str
    engine: EngineName = "spark"
    day_column: str | None = None
    day_is_date: bool = False
    partitions: dg.PartitionsDefinition | None = None
    partition_expr: PartitionExpr = None
    read_by: PartitionExpr = None
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    table_properties: Mapping[str, str] = field(default_factory=dict)
    columns: ColumnSources = field(default_factory=dict)
    suites: tuple[Suite, ...] = ()
    refresh: RefreshName = "full"
    description: str = ""
    fresh_within: timedelta | None = None
    automation: dg.AutomationCondition[dg.AssetKey] | None = None
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DerivedTable(ComputedTable):
    """A table computed from others by a function.

    Attributes:
        inputs: tables read; of one with partitions only the rows of these, by `event_ts` of days.
        transform: input frames by table name to the output frame; must depend on nothing else.
            Frames are those of the engine: PySpark's or DataFusion's DataFrames, DuckDB's
            relations, Polars' LazyFrames.
        code_version: tells this definition from others: when it changes, all is stale. Empty: a
            digest of the transform's own code and of what it closes over, not of functions that it
            calls.
        query: the SQL of the transform; None: it is no SQL, and is computed in full.
    """

    inputs: tuple[str, ...]
    transform: Transform
    code_version: str = ""
    query: FollowedQuery | None = field(default=None, repr=False)
    definition: str = field(init=False, repr=False, default="")
    """Digest of what decides the rows, recorded with each of them; empty: unknown."""

    def __post_init__(self) -> None:
        engine_name(self.engine, self.name)
        if self.refresh not in REFRESHES:
            raise InvalidInputError(
                f"{self.name}: no refresh {self.refresh!r}; there are {', '.join(REFRESHES)}"
            )
        if self.refresh != "full" and self.query is None:
            raise InvalidInputError(
                f"{self.name} is computed by a function, which is not followed: write it as an "
                f"SqlModel, or leave out refresh={self.refresh!r}"
            )
        if self.partitions is not None and self.day_column is not None:
            raise InvalidInputError(
                f"{self.name} has partitions and a day_column: days are partitions, leave out one"
            )
        for partitioning in (self.partitioning, self.read_partitioning):
            if partitioning is not None:
                partitioning.check()
        # read when the module is loaded: later the file may be another one than the code that runs
        code = self.code_version or code_of(self.transform)
        if code:
            parts: tuple[object, ...] = (
                code,
                sorted(self.inputs),
                self.day_column,
                self.day_is_date,
            )
            if self.partitions is not None:
                parts += _what_decides(self.partitions), self.partition_expr, self.read_by
            digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()
            object.__setattr__(self, "definition", digest)

    @cached_property
    def partitioning(self) -> Partitioning | None:
        """Its partitions by its own columns; None: it is one unit."""
        if self.partitions is not None:
            return Partitioning(self.partitions, self.partition_expr, self.asset)
        if self.day_column is None:
            return None
        return Partitioning(_DAYS, self.day_column, self.asset)

    @cached_property
    def read_partitioning(self) -> Partitioning | None:
        """The same partitions by the columns of its inputs."""
        if self.partitioning is None:
            return None
        definition, expr = self.partitioning.definition, self.partitioning.expr
        if isinstance(definition, dg.MultiPartitionsDefinition) and isinstance(expr, Mapping):
            windows = {
                part.name
                for part in definition.partitions_defs
                if isinstance(part.partitions_def, dg.TimeWindowPartitionsDefinition)
            }
            expr = {name: EVENT_TS if name in windows else expr[name] for name in expr}
        elif isinstance(definition, dg.TimeWindowPartitionsDefinition):
            expr = EVENT_TS
        return Partitioning(definition, self.read_by or expr, self.asset)

    @property
    def _suites(self) -> tuple[Suite, ...]:
        """With the check that every derived table has."""
        return (
            Suite(INPUTS_WHOLE, (), description="as many rows were read as were written"),
            *self.suites,
        )

    @property
    def asset(self) -> str:
        """The asset's key, slash-separated."""
        return self.name.replace(".", "/")

    @property
    def key(self) -> dg.AssetKey:
        """The asset's key."""
        return dg.AssetKey(split_name(self.name))

    @property
    def by_dagster(self) -> bool:
        """Whether a condition or partitions of its own decide when it is computed, no sensor."""
        return self.automation is not None or self.partitions is not None

    @property
    def op_name(self) -> str:
        """The step that takes `RefreshConfig`."""
        return self.name.replace(".", "__")

    def staleness(self, lake: Lakehouse) -> Staleness:
        """What of the table does not follow from its inputs as they are; from metadata alone.

        Raises:
            NoSuchTableError: an input does not exist.
        """
        for name in self.inputs:
            if not lake.table_exists(name):
                raise NoSuchTableError(
                    f"{name} does not exist yet: materialize {name.replace('.', '/')} first",
                    table=name,
                )
        inputs = {name: lake.load_table(name) for name in self.inputs}
        table = lake.load_table(self.name) if lake.table_exists(self.name) else None
        return staleness(table, inputs, self.partitioning, self.read_partitioning, self.definition)

    def where(self, keys: Sequence[str] | None, schema: Schema) -> BooleanExpression:
        """Which rows of the table belong to the partitions."""
        if self.partitioning is None or keys is None:
            return AlwaysTrue()
        return self.partitioning.where(keys, schema)

    def where_read(self, keys: Sequence[str] | None, schema: Schema) -> BooleanExpression:
        """Which rows of an input belong to the partitions, by its schema."""
        if self.read_partitioning is None or keys is None:
            return AlwaysTrue()
        return self.read_partitioning.where(keys, schema)

    def compute(
        self,
        lake: Lakehouse,
        spark: SparkSession | None,
        inputs: Mapping[str, int | None],
        keys: Sequence[str] | None,
    ) -> Any:
        """The output for the partitions, from the inputs at these snapshots.

        A frame of Spark, from a table of that engine, which alone needs the session; a stream of
        Arrow from another.
        """
        engine = open_engine(self.engine, lambda: cast("SparkSession", spark))
        return self.computed(engine, self.inputs_at(lake, inputs, keys))

    def computed(self, engine: ModelEngine, inputs: Mapping[str, InputRows]) -> Any:
        """What the transform gives for rows of the inputs, by an engine."""
        return engine.result(self.transform(Frames(engine, inputs)), self.name)

    def inputs_at(
        self, lake: Lakehouse, inputs: Mapping[str, int | None], keys: Sequence[str] | None
    ) -> dict[str, InputRows]:
        """Their rows at these snapshots; of the partitions, where the table has these."""
        tables = {name: lake.load_table(name) for name in self.inputs}
        return {
            name: InputRows(
                table, None if keys is None else self.where_read(keys, table.schema())
            ).at(inputs[name])
            for name, table in tables.items()
        }

    def build(self, partitions: dg.PartitionsDefinition | None) -> dg.AssetsDefinition:
        """The asset. `partitions` are the days of the inputs, for a daily table."""
        if self.partitions is not None:
            partitions = self.partitions
        elif self.day_column is None:
            partitions = None
        expr = None if self.partitioning is None else self.partitioning.expr

        # `multi_asset` with one spec: `asset` warns that its `backfill_policy` is beta
        @dg.multi_asset(
            name=self.op_name,
            specs=[
                dg.AssetSpec(
                    self.key,
                    deps=[dg.AssetKey(split_name(name)) for name in self.inputs],
                    group_name=self.name.split(".", maxsplit=1)[0],
                    kinds={"iceberg", self.engine},
                    description=self.description,
                    code_version=self.definition or None,
                    partitions_def=partitions,
                    metadata={
                        **({PARTITION_EXPR: expr} if expr else {}),
                        **code_reference(self.transform),
                    },
                    automation_condition=self.automation,
                    **asset_attributes(self.owners, self.tags, self.fresh_within),
                )
            ],
            backfill_policy=dg.BackfillPolicy.single_run() if partitions else None,
            pool=pool(self.name),
            retry_policy=RETRY,
            check_specs=check_specs(self.key, self._suites),
        )
        def derived(
            context: dg.AssetExecutionContext,
            config: RefreshConfig,
            lakehouse: LakehouseResource,
            spark: LakehouseSpark,
        ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:  # type: ignore[type-arg]
            keys = list(context.partition_keys) if partitions else None
            yield from self._run(context, config, lakehouse, spark, keys)

        return derived

    def _run(
        self,
        context: dg.AssetExecutionContext,
        config: RefreshConfig,
        lakehouse: LakehouseResource,
        spark: LakehouseSpark,
        keys: Sequence[str] | None,
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:  # type: ignore[type-arg]
        """Bring the table up to date; give its materialization, then what its checks say."""
        lake = lakehouse.lake()
        with explained():
            current = self._without_dead_branches(lake, context)
            stale = self.staleness(lake)
        if stale.redefined:
            of = "" if keys is None else f" of {len(stale.partitions):,} partitions"
            context.log.warning(
                f"{self.name} was computed by another definition: all rows{of} are to be computed "
                "again"
            )
        chosen = config.chosen(stale, keys)
        is_due = current is None or chosen != []
        done = (chosen or keys or ()) if is_due else ()

        def checked(
            outcomes: Sequence[CheckOutcome], snapshot: Snapshot, days: Sequence[str]
        ) -> Iterator[dg.AssetCheckResult]:
            explain = self._explaining(lake, snapshot, done, spark)
            memory = DayMemory(context.instance, days)
            return check_results(self.key, self._suites, outcomes, memory, explain)

        published: Published | None = None
        try:
            with explained(AuditFailedError):
                if is_due:
                    engine = open_engine(self.engine, lambda: spark.spark_session)
                    work = Computation(self, lake, engine, stale, chosen or keys)
                    published = work.published(context, lakehouse, full=config.full)
                else:
                    self.target.follow(lake.load_table(self.name), context.log.warning)
        except AuditFailedError as error:
            yield from checked(error.outcomes, error.snapshot, ())
            raise failure_of(error) from None
        snapshot = cast("Snapshot", current) if published is None else published.snapshot
        untouched = [key for key in keys or () if key not in done]
        records = newest_records(context.instance, self.key, untouched)
        if published is not None:
            rows = rows_by_partition(published.write, self.partitioning, snapshot, done)
            for key, count in rows.items():
                context.add_asset_metadata(
                    {PARTITION_ROWS: count}, asset_key=self.key, partition_key=key
                )
        table = lake.load_table(self.name)
        yield dg.MaterializeResult(
            asset_key=self.key,
            data_version=data_version(snapshot),
            metadata={
                **materialization_metadata(table, snapshot, stale.inputs, self.columns),
                DEFINITION_METADATA: self.definition or "unknown",
                **(spark.used() if self.engine == "spark" else {}),
                **({} if published is None else {REFRESH_METADATA: published.refresh.to_dict()}),
            },
        )
        record_each(context, records)
        yield from checked([] if published is None else published.outcomes, snapshot, done)

    def _without_dead_branches(
        self, lake: Lakehouse, context: dg.AssetExecutionContext
    ) -> Snapshot | None:
        """The table's current snapshot, once branches of runs that died are removed."""
        if not lake.table_exists(self.name):
            return None
        table = lake.load_table(self.name)
        remove_dead_branches(table, context.instance, context.log.info)
        return table.current_snapshot()

    def _explaining(
        self, lake: Lakehouse, snapshot: Snapshot, keys: Sequence[str], spark: LakehouseSpark
    ) -> Callable[[CheckOutcome], Mapping[str, object]]:
        """What a failed check shows of its rows, those of the partitions that it was about."""

        def explain(outcome: CheckOutcome) -> Mapping[str, object]:
            # why explains derived tables, and imports them
            from lakehouse.orchestration.lineage.why import offending  # noqa: PLC0415

            return offending(
                lake,
                {self.name: self},
                self.name,
                snapshot.snapshot_id,
                outcome,
                lambda: spark.spark_session,
                self.where(keys or None, lake.load_table(self.name).schema()),
            )

        return explain

    @property
    def target(self) -> AssetTable:
        """Its table, and how that is laid out."""
        return AssetTable(
            asset=self.asset,
            name=self.name,
            partition_expr=self.partition_expr if self.day_column is None else self.day_column,
            partition_by=self.partition_by
            if self.partitions is None
            else self.partition_by or None,
            sort_by=self.sort_by,
            properties={**_FOLLOWED, **self.table_properties}
            if self.refresh != "full"
            else self.table_properties,
        )

    def output_schema(self, lake: Lakehouse, session: Callable[[], SparkSession]) -> Schema:
        """The columns that its transform gives now; no rows are read.

        Args:
            lake: where its inputs are.
            session: gives the Spark session, called by tables of that engine alone.
        """
        inputs = {name: InputRows(lake.load_table(name), AlwaysFalse()) for name in self.inputs}
        return to_schema(self.computed(open_engine(self.engine, session), inputs).schema)


@dataclass(frozen=True, slots=True)
class Published:
    """What a computation has made of its table.

    Attributes:
        write: of the rows.
        refresh: how they were computed.
        snapshot: that has them.
        outcomes: of the checks.
    """

    write: AssetWrite
    refresh: Refresh
    snapshot: Snapshot
    outcomes: Sequence[CheckOutcome]


@dataclass(frozen=True)
class Computation:
    """One computation of a table from its inputs at exact snapshots.

    Attributes:
        definition: of the table.
        lake: where the tables are.
        engine: that computes it.
        stale: what is stale, and the snapshots of the inputs.
        keys: of the partitions that are computed; None: all rows.
    """

    definition: DerivedTable
    lake: Lakehouse
    engine: ModelEngine
    stale: Staleness
    keys: Sequence[str] | None
    _began_ms: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_began_ms", self.lake.environment.now_ms())

    def seconds(self) -> float:
        """Since it began."""
        return (self.lake.environment.now_ms() - self._began_ms) / 1000

    @cached_property
    def inputs(self) -> dict[str, InputRows]:
        """Rows that are read."""
        return self.definition.inputs_at(self.lake, self.stale.inputs, self.keys)

    def inputs_whole(self, keys: Sequence[str] | None) -> CheckOutcome:
        """Whether the engine finds as many rows in the inputs as their snapshots record."""
        name = self.definition.name
        inputs = self.definition.inputs_at(self.lake, self.stale.inputs, keys)
        counts = {
            read: (self.engine.count(self.engine.frame(rows)), rows.scan().count())
            for read, rows in inputs.items()
        }
        failures = tuple(
            f"{read} has {recorded} rows in snapshot {inputs[read].snapshot_id}, and {count} were "
            f"read: restore its files, then materialize {name.replace('.', '/')} again"
            for read, (count, recorded) in counts.items()
            if count != recorded
        )
        metadata = {f"rows of {read}": count for read, (count, _) in counts.items()}
        return CheckOutcome(INPUTS_WHOLE, not failures, True, failures, metadata)

    def delta(self, *, full: bool = False) -> ResultDelta | Refresh:
        """What goes and comes, or why all is computed; see `followed`."""
        of, query = self.definition, self.definition.query
        if query is None or of.refresh == "full":
            return Refresh(mode="full", reason="its definition says so")
        if full:
            reason, rows = "the run says so", rows_of(self.inputs.values())
            return Refresh(mode="full", reason=reason, rows=rows)
        target = self.lake.load_table(of.name) if self.lake.table_exists(of.name) else None

        def follower(table: Table, before: RefreshState) -> Follower:
            return Follower(of.name, query, self.engine, of.transform, self.inputs, table, before)

        delta = followed(of.refresh, follower, self.stale, target, self.keys)
        if isinstance(delta, Refresh):
            return replace(delta, rows=delta.rows or rows_of(self.inputs.values()))
        for rows in (delta.come, *delta.more):
            refuse_other_partitions(rows, of.partitioning, self.keys, of.name)
        return delta

    def write(
        self, stamp: RunStamp, delta: ResultDelta | Refresh, say: Callable[[str], None]
    ) -> AssetWrite:
        """The write of what goes and comes, or of all rows."""
        of, keys = self.definition, self.keys
        state = self.stale.after(keys or ())
        days = None if keys is None or of.day_column is None else _days(keys)
        if isinstance(delta, ResultDelta):
            table = self.lake.load_table(of.name)
            of.target.follow(table, say)
            return DeltaWrite(
                table,
                of.target,
                None,
                of.where(keys, table.schema()),
                False,
                stamp,
                delta.refresh.summary(history(table), self.seconds).beside(
                    stamp.summary(days) | {REFRESH_STATE: state.to_json()}
                ),
                MAIN,
                delta=delta,
            )
        write = AssetWrite.of(
            self.lake,
            of.target,
            of.computed(self.engine, self.inputs),
            partial(of.where, keys),
            stamp,
            state,
            say,
            partitions=of.partitions,
            one_partition=keys is not None and len(keys) == 1,
            days=days,
        )
        if of.refresh != "full":
            past = history(write.table)
            write.summary = delta.summary(past, self.seconds).beside(write.summary)
        return write

    def published(
        self, context: dg.AssetExecutionContext, resource: LakehouseResource, *, full: bool
    ) -> Published:
        """Write, audit and publish: by what changed, where that can be, else all rows.

        Raises:
            AuditFailedError: a blocking check failed; nothing was published.
        """
        of, read = self.definition, ", ".join(self.definition.inputs)
        delta = self.delta(full=full)
        if isinstance(delta, ResultDelta):
            context.log.info(f"following {read} by {of.engine}: {delta.refresh.reason}")
            try:
                return self._published(context, resource, delta)
            except (NotFollowedError, RowsNotFoundError) as error:
                if of.refresh == "incremental_strict":
                    raise
                delta = replace(delta.refresh, mode="full", reason=error.message)
        rows = "all rows" if self.keys is None else f"{len(self.keys):,} partitions"
        why = "" if of.refresh == "full" else f": {delta.reason}"
        context.log.info(f"computing {rows} from {read} by {of.engine}{why}")
        return self._published(context, resource, delta)

    def _published(
        self,
        context: dg.AssetExecutionContext,
        resource: LakehouseResource,
        delta: ResultDelta | Refresh,
    ) -> Published:
        write = self.write(stamp(context, self.definition.key), delta, context.log.warning)
        refresh = delta if isinstance(delta, Refresh) else delta.refresh

        def audit(snapshot: Snapshot) -> list[CheckOutcome]:
            context.log.info("computed and staged; checking the rows before publication")
            return self._audited(snapshot, refresh)

        checks = BlockingChecks.of(context.get_step_execution_context(), self.definition.key)
        if isinstance(write, DeltaWrite) and checks is None and not self.definition.suites:
            snapshot = write.published()  # there is nothing to audit
            outcomes = self._audited(snapshot, refresh)
        else:
            staged = write.staged()
            snapshot, outcomes = publish(write, staged, checks, resource, self.lake, audit)
        return Published(write, replace(refresh, seconds=self.seconds()), snapshot, outcomes)

    def _audited(self, snapshot: Snapshot, refresh: Refresh) -> list[CheckOutcome]:
        """What the checks find, with the partitions that they fail for."""
        of, keys = self.definition, self.keys
        table = self.lake.load_table(of.name)

        def whole(chosen: Sequence[str] | None) -> CheckOutcome:
            if refresh.mode == "full":
                return self.inputs_whole(chosen)
            metadata = {"refresh": refresh.reason}
            return CheckOutcome(INPUTS_WHOLE, passed=True, blocking=True, metadata=metadata)

        def judged(suites: Sequence[Suite], chosen: Sequence[str] | None) -> list[CheckOutcome]:
            if not suites:
                return []
            schema = table.schema()
            where = of.where(chosen, schema)
            asked = [expectation for suite in suites for expectation in suite.expectations]
            read = columns_read(asked, of.day_column)
            names = None if read is None else [it for it in schema.column_names if it in read]
            staged = InputRows(table, where, snapshot.snapshot_id, columns=names)
            with self.engine.staged(staged) as rows:
                if of.day_column is None or chosen is None:
                    return validate(rows, suites, of.name)
                return validate_days(rows, suites, of.name, _days(chosen), of.day_column)

        def of_suite(suite: Suite) -> Callable[[Sequence[str]], CheckOutcome]:
            return lambda chosen: judged([suite], chosen)[0]

        outcomes = [whole(keys), *judged(of.suites, keys)]
        if keys is None:
            return outcomes
        outcomes[0] = bad_days_of(outcomes[0], keys, whole)
        for at, suite in enumerate(of.suites if of.partitions is not None else (), 1):
            outcomes[at] = bad_days_of(outcomes[at], keys, of_suite(suite))
        return outcomes


def rows_by_partition(
    written: AssetWrite,
    partitioning: Partitioning | None,
    snapshot: Snapshot,
    keys: Sequence[str],
) -> dict[str, int]:
    """How many rows each has now; what tells them is read where there are several."""
    if partitioning is None:
        return {}
    if written.rows is not None and len(keys) == 1:
        return {keys[0]: written.rows}
    counts = dict.fromkeys(keys, 0)
    columns = [name for name, _ in partitioning.dimensions]
    scan = written.table.scan(written.where, columns, snapshot_id=snapshot.snapshot_id)
    for batch in scan.to_batches():
        for count in partitioning.keys_of(pa.table(batch)).value_counts().to_pylist():
            counts[count["values"]] += count["counts"]
    return counts


def _what_decides(partitions: dg.PartitionsDefinition) -> object:
    """What of partitions decides which rows are computed together."""
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        return [
            (part.name, _what_decides(part.partitions_def)) for part in partitions.partitions_defs
        ]
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        return partitions.cron_schedule, partitions.timezone, partitions.fmt
    return type(partitions).__name__


def _days(keys: Iterable[str]) -> list[date]:
    return [date.fromisoformat(key) for key in keys]
