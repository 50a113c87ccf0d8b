"""The pipeline as a value: its sources and derived tables, the assets they become, and how any of them is computed again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame

from assets.derived import DerivedTable
from assets.flights.source import FLIGHTS
from assets.flights.tables import FLIGHT_TABLES
from assets.frames import read_frame
from assets.ingestion.ingest import Workplace, rows_at
from assets.ingestion.source import Source
from assets.ingestion.tables import event_ts_in
from assets.sources import SourceAssets
from assets.steps import today
from assets.wiki.source import WIKI_EDITS
from lakehouse.errors import InvalidInputError
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.lineage import Lineage, Replay
from lakehouse.orchestration.stamp import RunStamp

_EXAMPLES = 3


@dataclass(frozen=True)
class Pipeline:
    """Sources, and the tables derived from each.

    Attributes:
        sources: each with its derived tables, whose partitions are those of the source.
        landing_root: where the landing folders are.
    """

    sources: tuple[tuple[Source, tuple[DerivedTable, ...]], ...]
    landing_root: str

    def assets(self) -> list[dg.AssetsDefinition]:
        """The Dagster assets."""
        found: list[dg.AssetsDefinition] = []
        for source, tables in self.sources:
            family = SourceAssets(source)
            found += [*family.build(), *(table.build(family.partitions) for table in tables)]
        return found

    def tables(self) -> Iterator[str]:
        """Every table that the pipeline writes, dotted."""
        for source, tables in self.sources:
            yield from (source.table, source.quarantine_table, source.ledger_table)
            yield from (table.name for table in tables)

    def source(self, name: str) -> Source:
        """A source by name. Raises InvalidInputError."""
        for source, _ in self.sources:
            if source.name == name:
                return source
        raise InvalidInputError(
            f"no source {name!r}; sources: {', '.join(source.name for source, _ in self.sources)}"
        )

    def replay(self, lineage: Lineage, lake: Lakehouse, spark: Any) -> Replay:
        """Compute a materialization again from exactly the snapshots that it read, and compare it with what it wrote.

        Raises:
            InvalidInputError: the table is not one that follows from others (a ledger, a quarantine).
            NoSuchFileError: a landing file that the ledger named is gone.
        """
        days = None if lineage.partition is None else [date.fromisoformat(lineage.partition)]
        inputs = {one.table: one.snapshot_id for one in lineage.inputs}
        table = lake.load_table(lineage.table)
        for source, tables in self.sources:
            if lineage.table == source.table and days is not None:
                ledger_id = inputs[source.ledger_table]
                if ledger_id is None:
                    raise InvalidInputError(
                        f"{lineage.table} was materialized from an empty ledger: there is nothing to replay"
                    )
                work = Workplace(
                    lake, spark, self.landing_root, today(), RunStamp("replay", lineage.asset_key)
                )
                again = rows_at(work, source, days, ledger_id, lineage.snapshot_id)
                return _compared(
                    lineage,
                    again,
                    read_frame(spark, table, event_ts_in(days), snapshot_id=lineage.snapshot_id),
                )
            for derived in tables:
                if lineage.table == derived.name:
                    again = derived.compute(lake, spark, inputs, days)
                    return _compared(
                        lineage,
                        again,
                        read_frame(
                            spark, table, derived.where(days), snapshot_id=lineage.snapshot_id
                        ),
                    )
        raise InvalidInputError(
            f"{lineage.asset_key} is a record of what landed, not a function of other tables: it cannot be replayed"
        )


def _compared(lineage: Lineage, again: DataFrame, kept: DataFrame) -> Replay:
    columns = [f"`{name}`" for name in kept.columns]
    again = again.select(*columns).persist()
    kept = kept.persist()
    try:
        missing, unexpected = kept.exceptAll(again).persist(), again.exceptAll(kept).persist()
        examples = [f"missing: {row.asDict()}" for row in missing.take(_EXAMPLES)]
        examples += [f"unexpected: {row.asDict()}" for row in unexpected.take(_EXAMPLES)]
        return Replay(lineage, again.count(), missing.count(), unexpected.count(), tuple(examples))
    finally:
        again.unpersist()
        kept.unpersist()


def build_pipeline(landing_root: str) -> Pipeline:
    """The pipeline of this checkout."""
    return Pipeline(sources=((FLIGHTS, FLIGHT_TABLES), (WIKI_EDITS, ())), landing_root=landing_root)
