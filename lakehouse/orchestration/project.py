"""The pipeline as a value: its sources and derived tables, its assets, and computing them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date

import dagster as dg
from pyspark.sql import SparkSession

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.feeds.change_feed import ChangeFeed
from lakehouse.ingestion.ingest import rows_at
from lakehouse.ingestion.source import Source
from lakehouse.ingestion.source_tables import event_ts_in
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.ingestion.workplace import Workplace
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.asset_results import today
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.feed_assets import feed_assets
from lakehouse.orchestration.lineage.trace import Lineage, Recomputed
from lakehouse.orchestration.source_assets import SourceAssets, daily_partitions
from lakehouse.orchestration.state.state_asset import OF_NO_ASSET


@dataclass(frozen=True)
class Pipeline:
    """Sources, feeds of changes, and the tables derived from them.

    Attributes:
        sources: feeds of raw events.
        derived: tables computed from others.
        landing_root: where the landing folders are.
        feeds: of changes.
        others: tables of other assets, which are looked after like those of the pipeline.
    """

    sources: tuple[Source, ...]
    derived: tuple[DerivedTable, ...]
    landing_root: str
    feeds: tuple[ChangeFeed, ...] = ()
    others: tuple[str, ...] = ()

    def assets(self) -> list[dg.AssetsDefinition | dg.AssetSpec]:
        """The Dagster assets, and what lands as external assets.

        Raises:
            InvalidInputError: two tables have one name, tables depend on each other in a circle, a
                daily table has no source that tells its days, or a table without an automation
                condition reads one that has one.
        """
        built = [asset for source in self.sources for asset in SourceAssets(source).build()]
        built += [feed_assets(feed) for feed in self.feeds]
        return built + [table.build(self.partitions(table)) for table in self.in_order()]

    def table_names(self) -> Iterator[str]:
        """Every table that the pipeline writes, dotted."""
        for source in self.sources:
            yield from (source.table, source.quarantine_table, source.ledger_table)
        for feed in self.feeds:
            yield from (feed.table, feed.ledger_table)
        yield from (table.name for table in self.derived)

    def maintained(self) -> list[str]:
        """Every table that the jobs and sensors of maintenance look after, dotted.

        With those that the framework writes beside them: deletes that feeds remember, statements,
        publications, what was tuned, and that somebody was forgotten.
        """
        beside = [feed.deletes_table for feed in self.feeds]
        names = (*self.table_names(), *beside, *self.others, *OF_NO_ASSET)
        return list(dict.fromkeys(names))

    def source(self, name: str) -> Source:
        """A source by name. Raises InvalidInputError."""
        for source in self.sources:
            if source.name == name:
                return source
        known = ", ".join(source.name for source in self.sources)
        raise InvalidInputError(f"no source {name!r}; sources: {known}")

    def in_order(self) -> list[DerivedTable]:
        """The derived tables, each after those that it reads. Raises InvalidInputError."""
        left = {table.name: table for table in self.derived}
        names = list(self.table_names())
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidInputError(f"two definitions write the same table: {', '.join(twice)}")
        by_dagster = {table.name for table in self.derived if table.by_dagster}
        for table in self.derived:
            read = by_dagster.intersection(table.inputs)
            if read and not table.by_dagster:
                raise InvalidInputError(
                    f"{table.name} reads {', '.join(sorted(read))}, which Dagster computes by an "
                    "automation condition or partitions of its own: give it a condition, too, such "
                    "as AutomationCondition.eager()"
                )
        ordered: list[DerivedTable] = []
        while left:
            ready = [
                table for table in left.values() if not any(name in left for name in table.inputs)
            ]
            if not ready:
                raise InvalidInputError(f"derived tables read each other: {', '.join(left)}")
            ordered += ready
            for table in ready:
                del left[table.name]
        return ordered

    def sources_of(self, table: DerivedTable) -> tuple[Source, ...]:
        """The sources that a table is computed from, directly or through other tables."""
        inputs, seen = list(table.inputs), set()
        while inputs:
            name = inputs.pop()
            if name not in seen:
                seen.add(name)
                inputs += [
                    read for table in self.derived if table.name == name for read in table.inputs
                ]
        return tuple(source for source in self.sources if source.table in seen)

    def derived_from(self, source: Source) -> list[DerivedTable]:
        """The tables that follow from this source and no other, each after those that it reads.

        Without those that have partitions or a condition of their own, which Dagster computes.
        """
        return [
            table
            for table in self.in_order()
            if not table.by_dagster and self.sources_of(table) == (source,)
        ]

    def partitions(self, table: DerivedTable) -> dg.DailyPartitionsDefinition | None:
        """The days of a daily table: those of its sources together. Raises InvalidInputError."""
        if table.day_column is None:
            return None
        sources = self.sources_of(table)
        if not sources:
            raise InvalidInputError(
                f"{table.name} is daily, and none of its inputs follows from a source: "
                "leave day_column out, or read a table that does"
            )
        return daily_partitions(sources)

    def recompute(
        self, lineage: Lineage, lake: Lakehouse, session: Callable[[], SparkSession]
    ) -> Recomputed:
        """Compute a materialization again from the snapshots that it read.

        `session` gives Spark's, and is asked where a table cannot be computed without.

        Raises:
            InvalidInputError: the table is not one that follows from others (a ledger, a
                quarantine).
            NoSuchFileError: a landing file that the ledger named is gone.
        """
        keys = None if lineage.partition is None else [lineage.partition]
        inputs = {source.table: source.snapshot_id for source in lineage.inputs}
        for source in self.sources:
            if lineage.table == source.table and keys is not None:
                days = [date.fromisoformat(key) for key in keys]
                ledger_id = inputs[source.ledger_table]
                if ledger_id is None:
                    raise InvalidInputError(
                        f"{lineage.table} was materialized from an empty ledger: there is nothing "
                        "to replay"
                    )
                step = RunStamp("replay", lineage.asset_key)
                work = Workplace(lake, session, self.landing_root, today(), step)
                again = rows_at(work, source, days, ledger_id, lineage.snapshot_id)
                return Recomputed(again, event_ts_in(days))
        for derived in self.derived:
            if lineage.table == derived.name:
                spark = session() if derived.engine == "spark" else None
                again = derived.compute(lake, spark, inputs, keys)
                return Recomputed(
                    again, derived.where(keys, lake.load_table(derived.name).schema())
                )
        raise InvalidInputError(
            f"{lineage.asset_key} is a record of what landed, not a function of other tables: it "
            "cannot be replayed"
        )
