"""Makes a source's assets: ledger, raw table (partitioned by day), and quarantine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum
from functools import cached_property
from typing import Any

import dagster as dg

from lakehouse.ingestion.audit import AuditFailedError, BadDay, CheckOutcome
from lakehouse.ingestion.ingest import (
    DaysLeftAloneError,
    IndexOutcome,
    IngestOutcome,
    index_landing,
    ingest_days,
)
from lakehouse.ingestion.ingest_log import said_once
from lakehouse.ingestion.run_log import progress_lines
from lakehouse.ingestion.source import EVENT_TS, LANDING_FILE, LANDING_LINE, Source
from lakehouse.ingestion.source_tables import event_ts_in
from lakehouse.ingestion.workplace import Workplace
from lakehouse.orchestration.asset_attributes import asset_attributes, code_reference, plain
from lakehouse.orchestration.asset_results import (
    RETRY,
    check_results,
    check_specs,
    explained,
    failure_of,
    pool,
    remove_dead_branches,
    requested_days,
    stamp,
    today,
)
from lakehouse.orchestration.assets.partition_filter import PARTITION_EXPR
from lakehouse.orchestration.checks.bad_days import DayMemory, described
from lakehouse.orchestration.checks.bad_days import metadata as metadata_of
from lakehouse.orchestration.checks.expectations import Suite, expect, validate_days
from lakehouse.orchestration.lineage.materialization import (
    data_version,
    materialization_metadata,
    newest_records,
    record_each,
)
from lakehouse.orchestration.lineage.why import offending
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.spec.identifier import split_name
from lakehouse.spec.metadata.snapshot import Snapshot

# where Dagster keeps the version of what was materialized
DATA_VERSION_TAG = "dagster/data_version"
REASONS = "lakehouse/quarantined_because"
# what a day's own numbers replace; here so that pages show them first
_DAYS_NUMBERS = dict.fromkeys(
    (
        "dagster/partition_row_count",
        *(f"lakehouse/{name}" for name in ("lines", "rows", "quarantined", "duplicates")),
    ),
    0,
)
_REASONS_SHOWN = 20
# by default each run of the ledger would look up the versions of all days that ever landed
_NO_DAY = dg.SpecificPartitionsPartitionMapping([])
FILES_WHOLE = "files_whole"
FEW_QUARANTINED = "few_quarantined"


class IngestMode(Enum):
    """Replace the requested days, or add what is pending to them."""

    REPLACE = "replace"
    INCREMENT = "increment"


class IngestConfig(dg.Config):
    """Run configuration of a raw asset.

    Attributes:
        mode: how the days of the run are written.
        leave: days among them that are not touched, ISO 8601.
    """

    mode: IngestMode = IngestMode.REPLACE
    leave: list[str] = []  # noqa: RUF012 - a pydantic field, copied for each instance


@dataclass(frozen=True)
class SourceAssets:
    """The assets of one source."""

    source: Source

    @cached_property
    def partitions(self) -> dg.DailyPartitionsDefinition:
        """One partition a day of event time (UTC)."""
        return daily_partitions([self.source])

    @property
    def raw_key(self) -> dg.AssetKey:
        """Key of the raw asset."""
        return dg.AssetKey(split_name(self.source.table))

    @property
    def quarantine_key(self) -> dg.AssetKey:
        """Key of the quarantine asset."""
        return dg.AssetKey(split_name(self.source.quarantine_table))

    @property
    def ledger_key(self) -> dg.AssetKey:
        """Key of the ledger asset."""
        return dg.AssetKey(split_name(self.source.ledger_table))

    @property
    def suites(self) -> tuple[Suite, ...]:
        """Blocking checks of the raw rows: what the pipeline itself promises."""
        key = self.source.natural_key
        promised = [
            expect("column_values_to_not_be_null", column=column)
            for column in (EVENT_TS, LANDING_FILE, LANDING_LINE, *key)
        ]
        if key:
            promised.append(expect("compound_columns_to_be_unique", column_list=[EVENT_TS, *key]))
        return (
            Suite(
                "raw_contract",
                tuple(promised),
                description="event time, origin and key are never null; one row a key",
            ),
        )

    @property
    def _kinds(self) -> set[str]:
        return {"iceberg"} if self.source.engine == "python" else {"iceberg", "spark"}

    @property
    def landing_key(self) -> dg.AssetKey:
        """Key of what lands, by day."""
        return dg.AssetKey(["landing", self.source.name])

    def build(self) -> list[dg.AssetsDefinition | dg.AssetSpec]:
        """What lands, the ledger asset, and the raw and quarantine assets."""
        return [self._landing(), self._ledger_asset(), self._raw_assets()]

    def _landing(self) -> dg.AssetSpec:
        """What others write: files of events, seen day by day when they are indexed.

        It tells Dagster which days of the raw table are behind. The ledger could not: it changes
        with every file, and with it every day would be.
        """
        return dg.AssetSpec(
            self.landing_key,
            group_name="raw",
            kinds={"file"},
            partitions_def=self.partitions,
            **asset_attributes(self.source.owners, self.source.tags),
            description=f"Files of `{self.source.name}` that have landed, by day of event time.",
        )

    def _ledger_asset(self) -> dg.AssetsDefinition:
        source, key = self.source, self.ledger_key

        @dg.asset(
            key=key,
            group_name="raw",
            deps=[dg.AssetDep(self.landing_key, partition_mapping=_NO_DAY)],
            kinds=self._kinds,
            owners=list(source.owners),
            tags=dict(source.tags),
            pool=pool(source.table),
            retry_policy=RETRY,
            description=(
                f"Every landing file of `{source.name}`: its version, its lines by day, and what "
                "became of them."
            ),
            check_specs=[
                dg.AssetCheckSpec(
                    FILES_WHOLE,
                    asset=key,
                    description="no landing file is empty, cut off, corrupt or unreadable",
                )
            ],
        )
        def ledger(
            context: dg.AssetExecutionContext, lakehouse: LakehouseResource, spark: LakehouseSpark
        ) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]
            work = _workplace(context, lakehouse, spark, key)
            with explained():
                outcome = index_landing(work, source)
            landed = [
                dg.AssetObservation(
                    self.landing_key, partition=str(day), tags={DATA_VERSION_TAG: version}
                )
                for day, version in outcome.landed.items()
            ]
            record_each(context, landed)
            yield _ledger_result(work, spark, source, key, outcome)

        return ledger

    def _raw_assets(self) -> dg.AssetsDefinition:
        source = self.source
        code = {} if source.transform is None else code_reference(source.transform)

        def spec(
            key: dg.AssetKey, description: str, day: str, fresh_within: timedelta | None = None
        ) -> dg.AssetSpec:
            return dg.AssetSpec(
                key,
                deps=[self.ledger_key, self.landing_key],
                description=description,
                group_name="raw",
                kinds=self._kinds,
                partitions_def=self.partitions,
                metadata={PARTITION_EXPR: day, **code},
                **asset_attributes(source.owners, source.tags, fresh_within),
            )

        @dg.multi_asset(
            name=f"raw__{source.name}",
            specs=[
                spec(
                    self.raw_key,
                    f"Events of `{source.name}`, whose files land in `{source.name}/`; partitioned "
                    f"by {', '.join(f'`{term}`' for term in source.partition_terms) or 'nothing'}. "
                    f'Read it: `lakehouse sql "SELECT * FROM {source.table} LIMIT 10"`.',
                    EVENT_TS,
                    source.fresh_within,
                ),
                spec(
                    self.quarantine_key,
                    f"Lines of `{source.name}` that became no row: reason, file, line, text. "
                    f"Count them: `lakehouse quarantine {source.table}`.",
                    "event_day",
                ),
            ],
            backfill_policy=dg.BackfillPolicy.single_run(),
            pool=pool(source.table),
            retry_policy=RETRY,
            check_specs=[
                *check_specs(self.raw_key, self.suites),
                dg.AssetCheckSpec(
                    FEW_QUARANTINED,
                    asset=self.quarantine_key,
                    description=(
                        f"at most {source.quarantined_percent_max} % of the lines of each day"
                    ),
                ),
            ],
        )
        def raw(
            context: dg.AssetExecutionContext,
            config: IngestConfig,
            lakehouse: LakehouseResource,
            spark: LakehouseSpark,
        ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:  # type: ignore[type-arg]
            work = _workplace(context, lakehouse, spark, self.raw_key)
            yield from self._ingest(context, config, work, spark)

        return raw

    def _ingest(
        self,
        context: dg.AssetExecutionContext,
        config: IngestConfig,
        work: Workplace,
        spark: LakehouseSpark,
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:  # type: ignore[type-arg]
        source = self.source

        def audit(snapshot: Snapshot, days: Sequence[date]) -> list[CheckOutcome]:
            work.say("staged; checking the rows before publication")
            names = [EVENT_TS, LANDING_FILE, LANDING_LINE, *source.natural_key]
            rows = work.lake.load_table(source.table).scan(
                event_ts_in(days), list(dict.fromkeys(names)), snapshot_id=snapshot.snapshot_id
            )
            size = sum(file.file_size_in_bytes for file in rows.plan().files)
            if work.engine(source, size) == "python":
                return validate_days(rows.to_arrow(), self.suites, source.table, days, EVENT_TS)
            frame: Any = rows.to_spark(work.spark)
            frame = frame.persist()
            try:
                return validate_days(frame, self.suites, source.table, days, EVENT_TS)
            finally:
                frame.unpersist()

        try:
            days = [day for day in requested_days(context) if str(day) not in config.leave]
            with explained(AuditFailedError, DaysLeftAloneError):
                if work.lake.table_exists(source.table):
                    raw = work.lake.load_table(source.table)
                    remove_dead_branches(raw, context.instance, work.say)
                outcome = ingest_days(work, source, days, config.mode.value, audit)
        except AuditFailedError as error:
            memory = DayMemory(context.instance)
            yield from check_results(
                self.raw_key,
                self.suites,
                error.outcomes,
                memory,
                self._explaining(work, error.snapshot, days),
            )
            raise failure_of(error) from None
        except DaysLeftAloneError as error:
            self._report_days(context, work, error.outcome)
            memory = DayMemory(context.instance, error.outcome.days)
            yield from check_results(self.raw_key, self.suites, error.outcome.checks, memory)
            with explained():
                raise
        yield from self._raw_results(context, work, spark, outcome)

    def _report_days(
        self, context: dg.AssetExecutionContext, work: Workplace, outcome: IngestOutcome
    ) -> None:
        """Record the days that were written before the step fails for the others."""
        snapshots = {
            self.raw_key: (self.source.table, outcome.snapshot),
            self.quarantine_key: (self.source.quarantine_table, outcome.quarantine_snapshot),
        }
        inputs = {self.source.ledger_table: outcome.ledger_snapshot_id}
        for key, (name, snapshot) in snapshots.items():
            if snapshot is None:
                continue
            metadata = materialization_metadata(work.lake.load_table(name), snapshot, inputs)
            written = [
                dg.AssetMaterialization(
                    asset_key=key,
                    partition=str(day),
                    metadata={**metadata, **self._day_metadata(key, day, outcome)},
                    tags={DATA_VERSION_TAG: data_version(snapshot).value},
                )
                for day in outcome.days
            ]
            record_each(context, written)

    def _explaining(
        self, work: Workplace, snapshot: Snapshot, days: Sequence[date]
    ) -> Callable[[CheckOutcome], Mapping[str, object]]:
        """What a failed check shows of its rows, those of the days that it was about."""
        name, at = self.source.table, snapshot.snapshot_id
        return lambda outcome: offending(
            work.lake, {}, name, at, outcome, lambda: work.spark, event_ts_in(days)
        )

    def _raw_results(
        self,
        context: dg.AssetExecutionContext,
        work: Workplace,
        spark: LakehouseSpark,
        outcome: IngestOutcome,
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:  # type: ignore[type-arg]
        source = self.source
        if outcome.snapshot is None:
            raise dg.Failure(
                description=f"nothing has landed for {source.name} on the requested days, and "
                f"{source.table} does not exist yet: materialize "
                f"{self.ledger_key.to_user_string()} first, then days that it names",
                allow_retries=False,
            )
        inputs = {source.ledger_table: outcome.ledger_snapshot_id}
        counts = {
            "lines": outcome.counts.lines,
            "quarantined": outcome.counts.quarantined,
            "duplicates": outcome.counts.duplicates,
        }
        for key in (self.raw_key, self.quarantine_key):
            for day in outcome.by_day:
                metadata = self._day_metadata(key, day, outcome)
                context.add_asset_metadata(metadata, asset_key=key, partition_key=str(day))
        drift = [f"added {c.name} {c.type}" for c in outcome.drift.added] + [
            f"promoted {c.name} to {c.type}" for c in outcome.drift.promoted
        ]
        untouched = [day for day in requested_days(context) if day not in outcome.days]
        records = [
            record
            for key in (self.raw_key, self.quarantine_key)
            for record in newest_records(context.instance, key, [*map(str, untouched)])
        ]
        yield dg.MaterializeResult(
            asset_key=self.raw_key,
            data_version=data_version(outcome.snapshot),
            metadata={
                **_DAYS_NUMBERS,
                **materialization_metadata(
                    work.lake.load_table(source.table), outcome.snapshot, inputs
                ),
                **{f"lakehouse/run_{name}": number for name, number in counts.items()},
                "lakehouse/run_days": len(outcome.days),
                **_by_engines(work, spark),
                **({"lakehouse/schema_drift": ", ".join(drift)} if drift else {}),
            },
        )
        memory = DayMemory(context.instance, outcome.days)
        yield from check_results(
            self.raw_key,
            self.suites,
            outcome.checks,
            memory,
            self._explaining(work, outcome.snapshot, outcome.days),
        )
        kept = outcome.quarantine_snapshot
        yield dg.MaterializeResult(
            asset_key=self.quarantine_key,
            data_version=None if kept is None else data_version(kept),
            metadata={}
            if kept is None
            else {
                **_DAYS_NUMBERS,
                **materialization_metadata(
                    work.lake.load_table(source.quarantine_table), kept, inputs
                ),
            },
        )
        record_each(context, records)
        yield self._few_quarantined(outcome, memory)

    def _day_metadata(
        self, key: dg.AssetKey, day: date, outcome: IngestOutcome
    ) -> dict[str, dg.MetadataValue]:
        """What became of a day's lines, over all files that the ledger knows."""
        count, reasons = outcome.by_day[day], outcome.reasons.get(day)
        numbers = {
            "dagster/partition_row_count": (
                count.rows if key == self.raw_key else count.quarantined
            ),
            "lakehouse/lines": count.lines,
            "lakehouse/rows": count.rows,
            "lakehouse/quarantined": count.quarantined,
            "lakehouse/duplicates": count.duplicates,
        }
        shown = {name: dg.MetadataValue.int(number) for name, number in numbers.items()}
        return shown | ({REASONS: reasons_table(reasons)} if reasons else {})

    def _few_quarantined(self, outcome: IngestOutcome, memory: DayMemory) -> dg.AssetCheckResult:
        failed = {}
        for day, count in outcome.by_day.items():
            percent = 100 * count.quarantined / max(1, count.lines)
            if percent > self.source.quarantined_percent_max:
                why = f"{count.quarantined:,} of {count.lines:,} lines, {percent:.1f} %"
                failed[day] = BadDay(round(percent), why)
        bad = memory.still_bad(self.quarantine_key, FEW_QUARANTINED, failed)
        return dg.AssetCheckResult(
            asset_key=self.quarantine_key,
            check_name=FEW_QUARANTINED,
            passed=not bad,
            severity=dg.AssetCheckSeverity.WARN,
            description=described(bad, memory.days) or None,
            metadata={
                "quarantined_percent": 100
                * outcome.counts.quarantined
                / max(1, outcome.counts.lines),
                "quarantined": outcome.counts.quarantined,
                "lines": outcome.counts.lines,
                **metadata_of(bad),
            },
        )


def _workplace(
    context: dg.AssetExecutionContext,
    lakehouse: LakehouseResource,
    spark: LakehouseSpark,
    key: dg.AssetKey,
) -> Workplace:
    return Workplace(
        lakehouse.lake(),
        lambda: spark.spark_session,
        lakehouse.landing,
        today(),
        stamp(context, key),
        context.log.info,
        progress_lines(context.log.info),
    )


def _by_engines(work: Workplace, spark: LakehouseSpark) -> dict[str, Any]:
    """What did the work of a step, for its materialization; nothing where there was none."""
    engines = {"lakehouse/engine": ", ".join(sorted(work.engines))} if work.engines else {}
    return engines | spark.used()


def reasons_table(reasons: Mapping[str, int]) -> dg.MarkdownMetadataValue:
    """Why lines are in quarantine, the commonest first."""
    shown = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:_REASONS_SHOWN]
    rows = [f"| {count:,} | {plain(reason)} |" for reason, count in shown]
    return dg.MetadataValue.md("\n".join(["| lines | reason |", "|---:|---|", *rows]))


def daily_partitions(sources: Sequence[Source]) -> dg.DailyPartitionsDefinition:
    """One partition a day of event time (UTC), from the first of the sources' days to the last."""
    lasts = [source.last_day for source in sources if source.last_day is not None]
    open_ended = len(lasts) < len(sources)
    return dg.DailyPartitionsDefinition(
        start_date=str(min(source.first_day for source in sources)),
        end_date=None if open_ended else str(max(lasts) + timedelta(days=1)),
        end_offset=1 if open_ended else 0,
    )


def _ledger_result(
    work: Workplace,
    spark: LakehouseSpark,
    source: Source,
    key: dg.AssetKey,
    outcome: IndexOutcome,
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    if outcome.snapshot is None:
        raise dg.Failure(
            description=f"nothing has landed for {source.name} yet", allow_retries=False
        )
    return dg.MaterializeResult(
        asset_key=key,
        # what follows from it follows from `landing`, which has a version for each day
        data_version=dg.DataVersion("see landing"),
        metadata={
            **materialization_metadata(
                work.lake.load_table(source.ledger_table), outcome.snapshot, {}
            ),
            "lakehouse/landed_files": outcome.files,
            "lakehouse/landed_lines": outcome.lines,
            "lakehouse/undated_lines": outcome.undated,
            **({REASONS: reasons_table(outcome.reasons)} if outcome.reasons else {}),
            "lakehouse/pending_days": len(outcome.days),
            **_by_engines(work, spark),
        },
        check_results=[
            dg.AssetCheckResult(
                check_name=FILES_WHOLE,
                passed=not outcome.problems,
                severity=dg.AssetCheckSeverity.WARN,
                description=said_once(outcome.problems)[:2000] or None,
                metadata={"damaged_files": len(outcome.problems)},
            )
        ],
    )
