"""Landing files that are gone: settled if they were not ingested yet, else named."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In

from lakehouse.ingestion.ingest_plan import IngestPlan
from lakehouse.ingestion.landing_ledger import LedgerRow, landing_folder, ledger_to_arrow
from lakehouse.ingestion.source import LANDING_FILE, Source
from lakehouse.ingestion.source_tables import day_in, event_ts_in, read_ledger
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.lake import Lakehouse
from lakehouse.table import Table

PROBLEM = "deleted before all of it was ingested"


def settle_deleted(
    lake: Lakehouse, source: Source, ledger: Table, listing: pa.Table, stamp: RunStamp
) -> None:
    """Settle the ledger's rows of deleted files: they have no lines to be taken.

    Rows that a run left in the tables before it died stay there, and are counted.

    Args:
        lake: the tables.
        source: whose ledger it is.
        ledger: as it was before the folder was looked at.
        listing: what is in the landing folder now, of the files with pending rows at least.
        stamp: the step that writes.
    """
    pending = ledger.scan(EqualTo(term="pending", value=True), [LANDING_FILE]).to_arrow()
    landed = listing.select([LANDING_FILE])
    gone = pending.join(landed, keys=LANDING_FILE, join_type="left anti")[LANDING_FILE].to_pylist()
    if not gone:
        return
    of_these = In(term=LANDING_FILE, literals=set(gone))
    rows = [
        _settled(lake, source, row) if row.pending else row for row in read_ledger(ledger, of_these)
    ]
    ledger.overwrite(
        ledger_to_arrow(rows),
        of_these,
        summary=stamp.summary(),
        commit_id=stamp.commit_id("deleted"),
    )


def missing_files(landing_root: str, source: Source, plan: IngestPlan) -> tuple[str, list[str]]:
    """What to say of files that a plan's days need and that are gone or changed, and the files."""
    file, days = next(iter(plan.missing.items()))
    message = (
        f"source {source.name!r}: {len(plan.missing)} landing files are gone or changed since they "
        f"were indexed, first {landing_folder(landing_root, source)}/{file}; the days that need "
        f"them ({days[0]}, ...) are as they were. Put files that are gone back; changed ones are "
        "indexed again by the next run."
    )
    return message, sorted(plan.missing)


def _settled(lake: Lakehouse, source: Source, row: LedgerRow) -> LedgerRow:
    if row.event_day is None:  # its lines are in quarantine and stay there
        return replace(row, pending=False, replaces=False)
    file = EqualTo(term=LANDING_FILE, value=row.landing_file)
    days = [row.event_day]
    rows = _count(lake, source.table, And(event_ts_in(days), file))
    rejected = _count(lake, source.quarantine_table, And(day_in(days), file))
    return replace(
        row,
        pending=False,
        replaces=False,
        lines=rows + rejected,
        rows=rows,
        quarantined=rejected,
        duplicates=0,
        problem=PROBLEM,
    )


def _count(lake: Lakehouse, name: str, where: BooleanExpression) -> int:
    if not lake.table_exists(name):
        return 0
    return lake.load_table(name).scan(where, [LANDING_FILE]).count()
