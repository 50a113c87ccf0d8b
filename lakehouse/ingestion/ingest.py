"""Ingestion: index what landed, then write the days.

Each step can be killed anywhere and run again.

The order of commits is what makes it so: quarantine, then raw rows, then the ledger. Until the
ledger says that lines are in, they are pending, and taking them again replaces what a dead run left
behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from pyiceberg.expressions import And, BooleanExpression, In, IsNull
from pyspark.sql import DataFrame

from lakehouse.data.reading.scan_reader import ReadRequest
from lakehouse.errors import InvalidInputError, NoSuchFileError
from lakehouse.ingestion.audit import CheckOutcome, write_audit_publish
from lakehouse.ingestion.definition_changes import record, recorded, tell
from lakehouse.ingestion.deleted_files import missing_files, settle_deleted
from lakehouse.ingestion.drift import Drift, merge, redeclared, resolve
from lakehouse.ingestion.duplicates import Comparison, find_duplicates, without_duplicates
from lakehouse.ingestion.ingest_log import (
    days_to_write,
    days_written,
    files_indexed,
    files_to_index,
)
from lakehouse.ingestion.ingest_plan import (
    IngestPlan,
    Mode,
    combined,
    combined_by_day,
    plan_ingest,
    settled,
)
from lakehouse.ingestion.landing_ledger import (
    LedgerRow,
    LineCount,
    day_versions,
    landing_folder,
    ledger_to_arrow,
)
from lakehouse.ingestion.landing_listing import landed_among, landing_files, list_landing
from lakehouse.ingestion.redefined_source import (
    check_all_there,
    check_ledger,
    source_changes,
    source_definition,
)
from lakehouse.ingestion.source import LANDING_FILE, LANDING_LINE, QUARANTINE_REASON, Column, Source
from lakehouse.ingestion.source_tables import (
    RejectKind,
    day_in,
    event_ts_in,
    file_problems,
    files_concerned,
    ledger_table,
    pending_days,
    quarantine_table,
    raw_table,
    read_ledger,
    reject_kinds,
    rejects_by_day,
    source_columns,
    taken_names,
    unread,
)
from lakehouse.ingestion.transformed_rows import (
    REASON,
    apply_transform,
    staging_files,
    transform_staged,
)
from lakehouse.ingestion.workers.index_pass import (
    UNREADABLE,
    VANISHED,
    IndexedFile,
    ledger_rows,
    reindexed,
)
from lakehouse.ingestion.workers.quarantine_files import TableFiles
from lakehouse.ingestion.workers.row_pass import TakenRows
from lakehouse.ingestion.workers.worker_stages import (
    distinct_rows,
    first_pass,
    identity_columns,
    second_pass,
)
from lakehouse.ingestion.workplace import Workplace, text_bytes
from lakehouse.lake import Lakehouse
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.table import Table, WrittenFiles

Audit = Callable[[Snapshot, Sequence[date]], Sequence[CheckOutcome]]


@dataclass(frozen=True, slots=True)
class IndexOutcome:
    """What indexing did.

    Attributes:
        snapshot: of the ledger, after; None when nothing ever landed.
        files: new or changed files that were looked at.
        lines: their lines.
        undated: lines among them without a usable event time, now in quarantine.
        problems: file -> what is wrong with it as a whole, over all files that the ledger knows.
        days: days that have pending lines now.
        reasons: why the lines without a usable event time are in quarantine -> how many.
        landed: days whose lines are other ones now -> what they are, as text that is equal for
            equal files (`day_versions`).
    """

    snapshot: Snapshot | None
    files: int
    lines: int
    undated: int
    problems: dict[str, str]
    days: tuple[date, ...]
    reasons: Mapping[str, int] = field(default_factory=dict)
    landed: Mapping[date, str] = field(default_factory=dict)


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
        reasons: why lines of a day are in quarantine -> how many, over these files.
        drift: columns added and promoted.
        checks: outcomes of the audit.
    """

    snapshot: Snapshot | None
    quarantine_snapshot: Snapshot | None
    ledger_snapshot_id: int | None
    days: tuple[date, ...]
    counts: LineCount
    by_day: dict[date, LineCount]
    reasons: Mapping[date | None, Mapping[str, int]]
    drift: Drift
    checks: tuple[CheckOutcome, ...]


class DaysLeftAloneError(NoSuchFileError):
    """Files that some of the requested days need are gone or changed; the other days are written.

    Attributes:
        outcome: what was written.
    """

    def __init__(self, outcome: IngestOutcome, message: str, files: Sequence[str]) -> None:
        super().__init__(message, files=list(files))
        self.outcome = outcome


def index_landing(work: Workplace, source: Source) -> IndexOutcome:
    """Add new or changed landing files to the ledger, and lines without event time to quarantine.

    Raises:
        NoSuchFileError: the landing folder or files vanished; whatever could be read is in the
            ledger all the same.
        MostRejectedError: too many of the lines have no usable event time; the ledger is as it was.
    """
    ledger = ledger_table(work.lake, source)
    listing = list_landing(work.landing_root, source)
    tell(source_changes(source, recorded(ledger)), work.say)
    check_all_there(source, ledger, listing)
    fresh = landing_files(unread(source, ledger, listing))
    work.say(files_to_index(fresh, len(listing)))
    if not fresh:
        record(ledger, source_definition(source))
        return IndexOutcome(
            ledger.current_snapshot(), 0, 0, 0, file_problems(ledger), pending_days(ledger)
        )
    read = [file for file in fresh if file.refused is None]
    result = first_pass(
        work.workers(source, text_bytes(read)),
        work.reader(source),
        read,
        _files_of(quarantine_table(work.lake, source)),
        work.progress,
    )
    result.files += [
        IndexedFile(file, problem=f"refused file {file.refused}")
        for file in fresh
        if file.refused is not None
    ]
    undated_here = _undated(file.path for file in fresh)
    quarantine = quarantine_table(work.lake, source)
    _quarantine(work, quarantine, result.rejects, undated_here, "undated")
    indexed = [row for index in result.files if index.lost is None for row in ledger_rows(index)]
    _refuse_if_most_is_lost(work, source, undated_here, combined(indexed))
    rows: list[LedgerRow] = []
    if indexed:
        of_these = In(term=LANDING_FILE, literals={row.landing_file for row in indexed})
        rows = reindexed(indexed, read_ledger(ledger, of_these))
        ledger.overwrite(
            ledger_to_arrow(rows),
            of_these,
            summary=work.stamp.summary(),
            commit_id=work.stamp.commit_id("ledger"),
        )
    if all(index.lost is None for index in result.files):  # else they are read again
        record(ledger, source_definition(source))
    vanished = sorted(index.file.path for index in result.files if index.lost == VANISHED)
    if vanished:
        raise NoSuchFileError(
            f"source {source.name!r}: {len(vanished)} landing files vanished before they were "
            f"read, the first is {landing_folder(work.landing_root, source)}/{vanished[0]}; the "
            "other files are indexed",
            files=vanished,
        )
    undated = sum(row.lines for row in rows if row.event_day is None)
    reasons = _reasons(work, source, undated_here, undated).get(None, Counter())
    problems = file_problems(ledger)
    problems |= {o.file.path: o.problem or "" for o in result.files if o.lost == UNREADABLE}
    changed = sorted({row.event_day for row in rows if row.event_day is not None})
    lines = sum(row.lines for row in rows)
    work.say(files_indexed(len(fresh), lines, undated, reasons, problems))
    return IndexOutcome(
        ledger.current_snapshot(),
        len(fresh),
        lines,
        undated,
        problems,
        pending_days(ledger),
        reasons,
        day_versions(read_ledger(ledger, day_in(changed))) if changed else {},
    )


def ingest_days(
    work: Workplace, source: Source, days: Sequence[date], mode: Mode, audit: Audit
) -> IngestOutcome:
    """Write days of the raw table and their quarantine from the landing files in the ledger.

    Args:
        work: where to work.
        source: what to ingest.
        days: of event time.
        mode: replace the days, or add what is pending.
        audit: checks the staged snapshot before it is published.

    Raises:
        DaysLeftAloneError: files that some days need are gone; those days are as they were, the
            others are written.
        AuditFailedError: a blocking check failed; nothing was published.
        InvalidInputError: the ledger was made by another definition of the source, or what the
            definition says of the raw table cannot be.
    """
    ledger = ledger_table(work.lake, source)
    check_ledger(source, ledger)
    listing = list_landing(work.landing_root, source, files_concerned(ledger, days))
    settle_deleted(work.lake, source, ledger, listing, work.stamp)
    read_id = ledger.metadata.current_snapshot_id
    in_ledger = read_ledger(ledger, day_in(days)) if days else []
    landed = landed_among(listing, in_ledger)
    plan = plan_ingest(in_ledger, landed, days, mode)
    if not plan.replace and _half_done(work.lake, source, plan):
        plan = plan_ingest(in_ledger, landed, plan.days, "replace")
    work.say(days_to_write(plan))
    columns, drift = _columns(work.lake, source, plan, ledger)
    counts = LineCount()
    checks: tuple[CheckOutcome, ...] = ()
    if plan.days and (plan.rows or work.lake.table_exists(source.table)):
        raw_table(work.lake, source, drift, work.say)
        done, checks = _write(work, source, plan, columns, audit)
        counts = combined(done)
        in_ledger = [*done, *_untouched(in_ledger, plan)]
        ledger.overwrite(
            ledger_to_arrow(in_ledger),
            day_in(plan.days),
            summary=work.stamp.summary(),
            commit_id=work.stamp.commit_id("ledger"),
        )
        of_these = And(day_in(plan.days), In(term=LANDING_FILE, literals=plan.files))
        reasons = _reasons(work, source, of_these, counts.quarantined)
        total = sum(reasons.values(), Counter())
        work.say(days_written(combined_by_day(done, plan.days), counts, total))
    by_day = combined_by_day(in_ledger, plan.days)
    rejected = sum(count.quarantined for count in by_day.values())
    outcome = IngestOutcome(
        snapshot=_current(work.lake, source.table),
        quarantine_snapshot=_current(work.lake, source.quarantine_table),
        ledger_snapshot_id=read_id,
        days=plan.days,
        counts=counts,
        by_day=by_day,
        reasons=_reasons(work, source, day_in(plan.days), rejected) if plan.days else {},
        drift=drift,
        checks=checks,
    )
    if plan.missing:
        raise DaysLeftAloneError(outcome, *missing_files(work.landing_root, source, plan))
    return outcome


def rows_at(
    work: Workplace,
    source: Source,
    days: Sequence[date],
    ledger_snapshot_id: int,
    raw_snapshot_id: int,
) -> DataFrame:
    """The raw rows of days, computed from the landing files in the ledger at a snapshot.

    Raises:
        NoSuchFileError: a landing file is gone or is not the version that the ledger named.
    """
    ledger = ledger_table(work.lake, source)
    in_ledger = read_ledger(ledger, day_in(days), snapshot_id=ledger_snapshot_id)
    named = {row.landing_file for row in in_ledger}
    landed = landed_among(list_landing(work.landing_root, source, named), in_ledger)
    plan = plan_ingest(in_ledger, landed, days, "replace")
    if plan.missing:
        message, files = missing_files(work.landing_root, source, plan)
        raise NoSuchFileError(message, files=files)
    columns = source_columns(work.lake, source, raw_snapshot_id)
    schema = work.lake.load_table(source.table).metadata.schema_at(raw_snapshot_id)
    if source.rescue not in schema.column_names:
        source = replace(source, rescue=None)

    def transform(rows: DataFrame) -> DataFrame:
        transformed = apply_transform(source, rows)
        return transformed.where(f"{QUARANTINE_REASON} is null").drop(QUARANTINE_REASON)

    rows = distinct_rows(work.spark, work.reader(source), plan.tasks, columns, transform)
    return rows.select(*(f"`{name}`" for name in schema.column_names if name in rows.columns))


def _write(
    work: Workplace, source: Source, plan: IngestPlan, columns: Sequence[Column], audit: Audit
) -> tuple[list[LedgerRow], tuple[CheckOutcome, ...]]:
    raw, quarantine = work.lake.load_table(source.table), quarantine_table(work.lake, source)
    workers = work.workers(source, text_bytes({task.file for task in plan.tasks}))
    taken = second_pass(
        workers,
        work.reader(source),
        plan.tasks,
        columns,
        _files_of(raw) if source.transform is None else staging_files(raw),
        _files_of(quarantine),
        work.progress,
    )
    if source.transform is not None and taken.rows:
        work.say("transforming the rows")
        taken = transform_staged(work, workers, source, columns, raw, quarantine, taken)
    try:
        done = settled(plan.rows, _without_duplicates(work, source, plan, raw, taken))
        _quarantine_dated(work, plan, quarantine, taken)
        where = And(day_in(plan.days), In(term=LANDING_FILE, literals=plan.files))
        _refuse_if_most_is_lost(work, source, where, combined(done))
    except BaseException:
        raw.storage.delete([row.file_path for row in taken.rows])
        raise
    if not plan.replace and not taken.rows:
        return done, ()

    def write(branch: str, commit_id: str) -> Snapshot:
        rows = WrittenFiles(tuple(taken.rows), disposable=True)
        summary = work.stamp.summary(plan.days if plan.replace else None)
        if plan.replace:
            return raw.overwrite(
                rows,
                event_ts_in(plan.days),
                branch=branch,
                summary=summary,
                commit_id=commit_id,
            ).snapshot
        return raw.append(rows, branch=branch, summary=summary, commit_id=commit_id).snapshot

    if taken.rescued:
        work.say(f"{taken.rescued:,} of the lines keep in {source.rescue} what no column takes")
    work.say(f"staging {len(taken.rows):,} data files")
    _, checks = write_audit_publish(
        raw, work.stamp, "rows", write, lambda snapshot: audit(snapshot, plan.days)
    )
    held = [f"{check.name} holds" for check in checks if check.passed]
    work.say(f"published{': ' if held else ''}{', '.join(held)}")
    return done, tuple(checks)


_FEW_LINES = 100


class MostRejectedError(InvalidInputError):
    """A run would have quarantined more of its lines than `Source.max_rejected` allows."""


def _refuse_if_most_is_lost(
    work: Workplace, source: Source, rejects: BooleanExpression, counts: LineCount
) -> None:
    """Raise before publication when a run lost too much; the lines are in quarantine to be seen.

    Args:
        work: where they are.
        source: whose they are.
        rejects: which of the quarantine are the run's.
        counts: what became of its lines.

    Raises:
        MostRejectedError: more than `max_rejected` percent, of few lines more than half.
    """
    most = source.max_rejected if counts.lines >= _FEW_LINES else max(source.max_rejected, 50.0)
    if counts.quarantined * 100 <= most * counts.lines:
        return
    table = quarantine_table(work.lake, source).refresh()
    remedies = [
        f"{kind.lines:,} x {kind.reason}: {_shown(kind.first)}. {remedy(source, kind)}"
        for kind in reject_kinds(table, rejects)[:3]
    ]
    raise MostRejectedError(
        f"source {source.name!r}: {counts.quarantined:,} of {counts.lines:,} lines "
        f"({counts.quarantined / counts.lines:.1%}) become no rows, more than max_rejected="
        f"{source.max_rejected:g} percent: nothing was published. {' '.join(remedies)} If so many "
        "may stay in quarantine, raise max_rejected.",
        quarantined=counts.quarantined,
        lines=counts.lines,
    )


def _shown(reject: Mapping[str, Any]) -> str:
    """What is wrong with a line, or with a file as a whole, and where."""
    if reject[LANDING_LINE] is None:
        return f"{reject['detail']} ({reject[LANDING_FILE]})"
    where = f"{reject[LANDING_FILE]} line {reject[LANDING_LINE]}"
    return f"{reject['detail']} ({where}: {str(reject['record'])[:120]})"


def remedy(source: Source, kind: RejectKind) -> str:
    """The change of the source's definition that would take such lines."""
    reason, field = kind.reason, kind.field
    detail, time = str(kind.first["detail"] or ""), source.event_time
    if reason == REASON:
        return "The transform of the source rejects such lines: change it."
    if "nanoseconds" in detail or "finer than a microsecond" in detail:
        return 'Source(nanoseconds="cut") takes them.'
    declared = next((c for c in source.columns if c.name.casefold() == field.casefold()), None)
    if reason == "unexpected column" and (declared or source.drift == "evolve"):
        # a field that drift does not take has the name of another column, but for case
        name = declared.name if declared else f"{field}_2"
        type_ = declared.type if declared else "string"
        return f"Column({name!r}, {type_!r}, aliases=({field!r},)) takes it."
    return {
        "type conflict": f'Column({field!r}, "json") takes any value.',
        "unexpected column": f'Declare {field!r}, or say drift="evolve".',
        "null key": f"Take {field!r} out of natural_key, or have it delivered.",
        "malformed CSV": (
            "ReadOptions(skip=...) leaves out lines before the header; totals and notes after the "
            "records may stay. Else mend the files, or name their delimiter and quote."
        ),
        "event time missing": (
            f"Totals and headings have none and may stay. Else name the field that has it: "
            f"EventTime({time.column!r}) now."
        ),
        "event time malformed": f"Name its unit, or another field: {time} now.",
        "event time out of range": "Change first_day or last_day, or the unit of the event time.",
    }.get(reason, "Mend the files.")


def _without_duplicates(
    work: Workplace, source: Source, plan: IngestPlan, raw: Table, taken: TakenRows
) -> dict[tuple[str, date], LineCount]:
    """Leave out rows that repeat an event.

    Returns:
        What became of the lines, by file and day.
    """
    metadata = raw.metadata
    comparison = Comparison(
        read=ReadRequest.of(metadata, metadata.schema()),
        identity=tuple(identity_columns(source, source_columns(work.lake, source))),
        modified_ms={task.file.path: task.file.modified_ms for task in plan.tasks},
        write=raw.write_request(),
        location=raw.location,
        properties=dict(raw.storage.properties),
    )
    present = (
        []
        if plan.replace or metadata.current_snapshot_id is None
        else list(raw.scan(event_ts_in(plan.days)).plan().tasks)
    )
    compared = [*taken.rows, *(task.data_file for task in present)]
    workers = work.workers(source, sum(file.file_size_in_bytes for file in compared))
    duplicates = find_duplicates(workers, taken.rows, present, comparison, work.progress)
    if duplicates.positions:
        taken.rows = without_duplicates(workers, taken.rows, duplicates, comparison, work.progress)
    return {
        place: LineCount(
            lines=lines,
            rows=lines - taken.rejected[place] - duplicates.counts[place],
            quarantined=taken.rejected[place],
            duplicates=duplicates.counts[place],
        )
        for place, lines in taken.lines.items()
    }


def _columns(
    lake: Lakehouse, source: Source, plan: IngestPlan, ledger: Table
) -> tuple[list[Column], Drift]:
    current = source_columns(lake, source)
    redeclaration = redeclared(source, current)
    current = _with(current, redeclaration)
    observed = merge([row.observed() for row in read_ledger(ledger, _undated(plan.files))])
    if not lake.table_exists(source.table) and not source.columns:
        source = replace(source, drift="evolve")
    drift = resolve(source, current, observed, taken_names(lake, source))
    columns = _with(current, drift)
    promoted = {column.name: column for column in (*redeclaration.promoted, *drift.promoted)}
    types = {column.name: column for column in columns}
    added = tuple(types[column.name] for column in redeclaration.added) + drift.added
    new = {column.name for column in added}
    wider = tuple(column for name, column in promoted.items() if name not in new)
    return columns, Drift(added, wider)


def _with(columns: Sequence[Column], drift: Drift) -> list[Column]:
    wider = {column.name: column for column in drift.promoted}
    return [*(wider.get(column.name, column) for column in columns), *drift.added]


def _half_done(lake: Lakehouse, source: Source, plan: IngestPlan) -> bool:
    """Whether rows of pending files are in the raw table: a run died before the ledger said so."""
    if not plan.days or not lake.table_exists(source.table):
        return False
    of_these = And(event_ts_in(plan.days), In(term=LANDING_FILE, literals=plan.files))
    return lake.load_table(source.table).scan(of_these, [LANDING_FILE]).count() > 0


def _undated(files: Iterable[str]) -> BooleanExpression:
    """Lines of these files that have no day."""
    return And(IsNull(term="event_day"), In(term=LANDING_FILE, literals=set(files)))


def _quarantine_dated(
    work: Workplace, plan: IngestPlan, quarantine: Table, taken: TakenRows
) -> None:
    where = day_in(plan.days)
    if not plan.replace:
        where = And(where, In(term=LANDING_FILE, literals=plan.files))
    _quarantine(work, quarantine, taken.rejects, where, "dated")


def _quarantine(
    work: Workplace,
    table: Table,
    rejects: Sequence[DataFile],
    where: BooleanExpression,
    what: str,
) -> None:
    """Put rejects in the place of those that match; no snapshot when there are neither."""
    if rejects or (table.current_snapshot() and table.scan(where, ["landing_file"]).count()):
        table.overwrite(
            WrittenFiles(tuple(rejects), disposable=True),
            where,
            summary=work.stamp.summary(),
            commit_id=work.stamp.commit_id(what),
        )


def _reasons(
    work: Workplace, source: Source, where: BooleanExpression, lines: int
) -> dict[date | None, Counter[str]]:
    """Why lines were rejected, by day; `lines` of them at most."""
    if not lines:
        return {}
    return rejects_by_day(quarantine_table(work.lake, source), where)


def _files_of(table: Table) -> TableFiles:
    return TableFiles(table.write_request(), dict(table.storage.properties))


def _untouched(ledger: Sequence[LedgerRow], plan: IngestPlan) -> list[LedgerRow]:
    taken = {(row.landing_file, row.event_day) for row in plan.rows}
    return [
        row
        for row in ledger
        if row.event_day in plan.days and (row.landing_file, row.event_day) not in taken
    ]


def _current(lake: Lakehouse, name: str) -> Snapshot | None:
    return lake.load_table(name).current_snapshot() if lake.table_exists(name) else None
