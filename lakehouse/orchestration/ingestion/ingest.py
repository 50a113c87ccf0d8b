"""Ingestion: index what landed, then write the days. Each step can be killed anywhere and run again.

The order of commits is what makes it so: quarantine, then raw rows, then the ledger. Until the ledger says that lines are in,
they are pending, and taking them again replaces what a dead run left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date

from pyiceberg.expressions import And, In, IsNull
from pyspark.sql import DataFrame, SparkSession

from lakehouse.errors import NoSuchFileError
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.checks.audit import CheckOutcome, write_audit_publish
from lakehouse.orchestration.frames import read_frame
from lakehouse.orchestration.ingestion.drift import Drift, merge, resolve
from lakehouse.orchestration.ingestion.ingest_plan import (
    IngestPlan,
    Mode,
    combined,
    plan_ingest,
    settled,
)
from lakehouse.orchestration.ingestion.landing import (
    LandingFile,
    LedgerRow,
    LineCount,
    landing_folder,
    ledger_to_arrow,
    list_landing,
    unindexed,
)
from lakehouse.orchestration.ingestion.landing_reader import LandingReader
from lakehouse.orchestration.ingestion.passes import (
    Indexed,
    first_pass,
    line_counts,
    raw_rows,
    rejected_rows,
    second_pass,
)
from lakehouse.orchestration.ingestion.source import Column, Source
from lakehouse.orchestration.ingestion.source_tables import (
    day_in,
    event_ts_in,
    ledger_table,
    quarantine_table,
    raw_table,
    read_ledger,
    source_columns,
)
from lakehouse.orchestration.lineage.stamp import RunStamp
from lakehouse.spec.snapshot import Snapshot
from lakehouse.storage.load import storage_for

Audit = Callable[[Snapshot, Sequence[date]], Sequence[CheckOutcome]]


@dataclass(frozen=True, slots=True)
class Workplace:
    """What an ingestion works with.

    Attributes:
        lake: the tables.
        spark: does the reading and writing.
        landing_root: where the landing folders are.
        today: the last day that events may have when a source names none.
        stamp: the step that ingests.
    """

    lake: Lakehouse
    spark: SparkSession
    landing_root: str
    today: date
    stamp: RunStamp

    def reader(self, source: Source) -> LandingReader:
        """Opens the source's files on the workers."""
        folder = landing_folder(self.landing_root, source)
        return LandingReader(folder, source, self.today, dict(storage_for(folder).properties))


@dataclass(frozen=True, slots=True)
class IndexOutcome:
    """What indexing found.

    Attributes:
        snapshot: of the ledger, after; None when nothing ever landed.
        files: new or changed files that were looked at.
        lines: their lines.
        undated: lines among them without a usable event time, now in quarantine.
        problems: file -> what is wrong with it as a whole, over all files that the ledger knows.
        days: days that have pending lines now.
    """

    snapshot: Snapshot | None
    files: int
    lines: int
    undated: int
    problems: dict[str, str]
    days: tuple[date, ...]


@dataclass(frozen=True, slots=True)
class IngestOutcome:
    """What ingesting some days did.

    Attributes:
        snapshot: of the raw table, after; None when it does not exist.
        quarantine_snapshot: of the quarantine table, after; None when it is empty.
        ledger_snapshot_id: the ledger as it was read: the input.
        days: days that were written.
        counts: what became of their lines, over all files that the run took.
        by_day: the same for each day, over all files that the ledger knows.
        drift: columns added and promoted.
        checks: outcomes of the audit.
    """

    snapshot: Snapshot | None
    quarantine_snapshot: Snapshot | None
    ledger_snapshot_id: int | None
    days: tuple[date, ...]
    counts: LineCount
    by_day: dict[date, LineCount]
    drift: Drift
    checks: tuple[CheckOutcome, ...]


def index_landing(work: Workplace, source: Source) -> IndexOutcome:
    """Put every new or changed landing file into the ledger, and its lines without an event time into quarantine.

    Raises:
        NoSuchFileError: the landing folder or files vanished; whatever could be read is in the ledger all the same.
    """
    ledger = ledger_table(work.lake, source)
    known = read_ledger(ledger)
    fresh = unindexed(list_landing(work.landing_root, source), known)
    if not fresh:
        return IndexOutcome(ledger.current_snapshot(), 0, 0, 0, _problems(known), _pending(known))
    found = first_pass(work.spark, work.reader(source), fresh)
    try:
        _quarantine_undated(work, source, fresh, found)
    finally:
        found.rejects.unpersist()
    unreadable = set(found.unreadable)
    rows = reindexed([row for row in found.ledger if row.landing_file not in unreadable], known)
    if rows:
        paths = sorted({row.landing_file for row in rows})
        ledger.overwrite(
            ledger_to_arrow(rows),
            In(term="landing_file", literals=paths),
            summary=work.stamp.summary(),
            commit_id=work.stamp.commit_id("ledger"),
        )
    if found.vanished:
        raise NoSuchFileError(
            f"source {source.name!r}: {len(found.vanished)} landing files vanished before they were read, the first is "
            f"{landing_folder(work.landing_root, source)}/{found.vanished[0]}; the other files are indexed",
            files=found.vanished,
        )
    after = read_ledger(ledger)
    undated = sum(row.lines for row in rows if row.event_day is None)
    problems = _problems([*after, *found.ledger])
    return IndexOutcome(
        ledger.current_snapshot(),
        len(fresh),
        sum(row.lines for row in rows),
        undated,
        problems,
        _pending(after),
    )


def reindexed(rows: Sequence[LedgerRow], known: Sequence[LedgerRow]) -> list[LedgerRow]:
    """New ledger rows of files, marked where an earlier version of the file was known: the days of both have to be replaced."""
    earlier: dict[str, list[LedgerRow]] = {}
    for row in known:
        earlier.setdefault(row.landing_file, []).append(row)
    result = [
        replace(row, replaces=row.event_day is not None and row.landing_file in earlier)
        for row in rows
    ]
    present = {(row.landing_file, row.event_day) for row in rows}
    version = {row.landing_file: row.file for row in rows}
    for path, file in version.items():
        result += [
            replace(
                old, size_bytes=file.size_bytes, modified_ms=file.modified_ms, lines=0, rows=0, quarantined=0, duplicates=0,
                pending=True, replaces=True, kinds="{}",
            )
            for old in earlier.get(path, ())
            if old.event_day is not None and (path, old.event_day) not in present
        ]  # fmt: skip
    return result


def ingest_days(
    work: Workplace, source: Source, days: Sequence[date], mode: Mode, audit: Audit
) -> IngestOutcome:
    """Write days of the raw table and their quarantine from the landing files that the ledger names.

    Args:
        work: where to work.
        source: what to ingest.
        days: of event time.
        mode: replace the days, or add what is pending.
        audit: checks the staged snapshot before it is published.

    Raises:
        NoSuchFileError: files that some days need are gone; those days are as they were, the others are written.
        AuditFailedError: a blocking check failed; nothing was published.
    """
    ledger = ledger_table(work.lake, source)
    read_id = ledger.metadata.current_snapshot_id
    known = read_ledger(ledger)
    plan = plan_ingest(known, list_landing(work.landing_root, source), days, mode)
    if not plan.replace and _half_done(work.lake, source, plan):
        plan = plan_ingest(known, list_landing(work.landing_root, source), plan.days, "replace")
    columns, drift = _columns(work.lake, source, plan)
    counts = LineCount()
    checks: tuple[CheckOutcome, ...] = ()
    if plan.days and (plan.rows or work.lake.table_exists(source.table)):
        raw_table(work.lake, source, drift)
        done, checks = _write(work, source, plan, columns, audit)
        counts = combined(done)
        ledger.overwrite(
            ledger_to_arrow([*done, *_untouched(known, plan)]),
            day_in(plan.days),
            summary=work.stamp.summary(),
            commit_id=work.stamp.commit_id("ledger"),
        )
    _refuse_missing(work, source, plan)
    after = [row for row in read_ledger(ledger) if row.event_day in plan.days]
    return IngestOutcome(
        snapshot=_current(work.lake, source.table),
        quarantine_snapshot=_current(work.lake, source.quarantine_table),
        ledger_snapshot_id=read_id,
        days=plan.days,
        counts=counts,
        by_day={day: combined([row for row in after if row.event_day == day]) for day in plan.days},
        drift=drift,
        checks=checks,
    )


def rows_at(
    work: Workplace,
    source: Source,
    days: Sequence[date],
    ledger_snapshot_id: int,
    raw_snapshot_id: int,
) -> DataFrame:
    """The raw rows of days as they follow from the landing files that the ledger named at a snapshot.

    Raises:
        NoSuchFileError: a landing file is gone or is not the version that the ledger named.
    """
    known = read_ledger(ledger_table(work.lake, source), ledger_snapshot_id)
    plan = plan_ingest(known, list_landing(work.landing_root, source), days, "replace")
    _refuse_missing(work, source, plan)
    columns = source_columns(work.lake, source, raw_snapshot_id)
    return raw_rows(second_pass(work.spark, work.reader(source), plan.tasks, columns), columns)


def _write(
    work: Workplace, source: Source, plan: IngestPlan, columns: Sequence[Column], audit: Audit
) -> tuple[list[LedgerRow], tuple[CheckOutcome, ...]]:
    raw = work.lake.load_table(source.table)
    where = event_ts_in(plan.days)
    present = None
    if not plan.replace and raw.metadata.current_snapshot_id is not None:
        present = read_frame(work.spark, raw, event_ts_in(plan.days))
    parsed = second_pass(work.spark, work.reader(source), plan.tasks, columns, present).persist()
    try:
        done = settled(plan.rows, line_counts(parsed))
        _quarantine_dated(work, source, plan, parsed, done)
        if not plan.replace and not combined(done).rows:
            return done, ()

        def write(branch: str, commit_id: str) -> Snapshot:
            rows, summary = raw_rows(parsed, columns), work.stamp.summary()
            if plan.replace:
                return raw.overwrite(
                    rows, where, branch=branch, summary=summary, commit_id=commit_id
                )
            return raw.append(rows, branch=branch, summary=summary, commit_id=commit_id)

        _, checks = write_audit_publish(
            raw, work.stamp, "rows", write, lambda snapshot: audit(snapshot, plan.days)
        )
        return done, tuple(checks)
    finally:
        parsed.unpersist()


def _columns(lake: Lakehouse, source: Source, plan: IngestPlan) -> tuple[list[Column], Drift]:
    current = source_columns(lake, source)
    drift = resolve(source, current, merge([row.observed() for row in plan.rows]))
    if not lake.table_exists(source.table) and source.drift == "quarantine" and not source.columns:
        drift = resolve(
            replace(source, drift="evolve"), current, merge([row.observed() for row in plan.rows])
        )
    wider = {column.name: column for column in drift.promoted}
    return [*(wider.get(column.name, column) for column in current), *drift.added], drift


def _half_done(lake: Lakehouse, source: Source, plan: IngestPlan) -> bool:
    """Whether rows of pending files are in the raw table already: a run died before it could say so in the ledger."""
    if not plan.days or not lake.table_exists(source.table):
        return False
    files = sorted({row.landing_file for row in plan.rows})
    return (
        lake.load_table(source.table)
        .scan(
            And(event_ts_in(plan.days), In(term="landing_file", literals=files)), ["landing_file"]
        )
        .count()
        > 0
    )


def _quarantine_undated(
    work: Workplace, source: Source, fresh: Sequence[LandingFile], found: Indexed
) -> None:
    quarantine = quarantine_table(work.lake, source)
    where = And(
        IsNull(term="event_day"),
        In(term="landing_file", literals=sorted(file.path for file in fresh)),
    )
    if found.reject_count or (
        quarantine.current_snapshot() and quarantine.scan(where, ["landing_file"]).count()
    ):
        quarantine.overwrite(
            found.rejects,
            where,
            summary=work.stamp.summary(),
            commit_id=work.stamp.commit_id("undated"),
        )


def _quarantine_dated(
    work: Workplace, source: Source, plan: IngestPlan, parsed: DataFrame, done: Sequence[LedgerRow]
) -> None:
    quarantine = quarantine_table(work.lake, source)
    where = day_in(plan.days)
    if not plan.replace:
        where = And(
            where, In(term="landing_file", literals=sorted({row.landing_file for row in plan.rows}))
        )
    if combined(done).quarantined or (
        quarantine.current_snapshot() and quarantine.scan(where, ["landing_file"]).count()
    ):
        quarantine.overwrite(
            rejected_rows(parsed),
            where,
            summary=work.stamp.summary(),
            commit_id=work.stamp.commit_id("dated"),
        )


def _untouched(known: Sequence[LedgerRow], plan: IngestPlan) -> list[LedgerRow]:
    taken = {(row.landing_file, row.event_day) for row in plan.rows}
    return [
        row
        for row in known
        if row.event_day in plan.days and (row.landing_file, row.event_day) not in taken
    ]


def _refuse_missing(work: Workplace, source: Source, plan: IngestPlan) -> None:
    if plan.missing:
        file, days = next(iter(plan.missing.items()))
        raise NoSuchFileError(
            f"source {source.name!r}: {len(plan.missing)} landing files are gone or changed since they were indexed, first "
            f"{landing_folder(work.landing_root, source)}/{file}; the days that need them ({days[0]}, ...) are as they were. "
            "Put the files back or index the landing folder again.",
            files=sorted(plan.missing),
        )


def _problems(ledger: Sequence[LedgerRow]) -> dict[str, str]:
    return {row.landing_file: row.problem for row in ledger if row.problem}


def _pending(ledger: Sequence[LedgerRow]) -> tuple[date, ...]:
    return tuple(
        sorted({row.event_day for row in ledger if row.pending and row.event_day is not None})
    )


def _current(lake: Lakehouse, name: str) -> Snapshot | None:
    return lake.load_table(name).current_snapshot() if lake.table_exists(name) else None
