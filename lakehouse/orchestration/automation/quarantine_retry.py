"""What is in quarantine, and what a changed definition takes of it and of rescued values.

Quarantined lines are taken again: the ledger calls them pending, and the next run reads them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import dagster as dg
from pyiceberg.expressions import And, BooleanExpression, GreaterThan, In, IsNull, NotNull, Or

from lakehouse.errors import NoSuchTableError, NotFoundError
from lakehouse.ingestion.ingest import remedy
from lakehouse.ingestion.landing_ledger import day_ranges
from lakehouse.ingestion.landing_listing import landed_among, list_landing
from lakehouse.ingestion.rescued_columns import FilledColumns, fill_columns
from lakehouse.ingestion.run_log import as_text
from lakehouse.ingestion.source import LANDING_FILE, LANDING_LINE, Source
from lakehouse.ingestion.source_tables import RejectKind, day_in, read_ledger, reject_kinds
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.shown_plan import Report
from lakehouse.orchestration.asset_results import explained, pool
from lakehouse.orchestration.automation.maintenance_jobs import chosen_tables
from lakehouse.orchestration.automation.run_requests import DRY_RUN_TAG, TABLES_TAG
from lakehouse.orchestration.checkout import checkout_here
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.spec.metadata.snapshot import RUN_ID

_DAYS_SHOWN = _REASONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class QuarantineRetry(Report):
    """What of a quarantine the next run judges again.

    Attributes:
        source: whose it is.
        lines: quarantined lines with a usable event time that are taken again.
        days: theirs; each is written again, in one commit with the others.
        undated_lines: those without a usable event time; the days of their files are written again.
        undated_files: files that are read again for them, or because they could not be read.
        left: quarantined lines that stay, since files that their days need are gone or changed.
        gone: these files.
        dry_run: nothing was marked.
    """

    source: Source
    lines: int
    days: tuple[date, ...]
    undated_lines: int
    undated_files: tuple[str, ...]
    left: int
    gone: tuple[str, ...]
    dry_run: bool

    def title(self) -> str:
        """How many lines."""
        lines = self.lines + self.undated_lines
        if not self.days and not self.undated_files:
            return f"{self.source.quarantine_table}: no line can be taken again."
        verb = "would be" if self.dry_run else "are"
        return f"{self.source.quarantine_table}: {lines:,} lines {verb} taken again"

    def facts(self) -> Iterator[tuple[str, object]]:
        """Days, files, what stays, and who takes them."""
        if self.days:
            spans = [str(a) if a == b else f"{a} to {b}" for a, b in day_ranges(self.days)]
            more = ", ..." if len(spans) > _DAYS_SHOWN else ""
            yield "days", ", ".join(spans[:_DAYS_SHOWN]) + more
        if self.undated_files:
            yield "files read again", len(self.undated_files)
        if self.left:
            yield "lines that stay", self.left
            yield "because of", f"{len(self.gone):,} files that are gone or changed: {self.gone[0]}"
        if (self.days or self.undated_files) and not self.dry_run:
            name = self.source.name
            yield "taken by", f"the sensor landed_{name}, or runs of index_{name} and ingest_{name}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": self.source.table,
            "lines": self.lines,
            "days": [str(day) for day in self.days],
            "undated_lines": self.undated_lines,
            "undated_files": list(self.undated_files),
            "lines_left": self.left,
            "files_gone": list(self.gone),
            "dry_run": self.dry_run,
        }


@dataclass(frozen=True, slots=True)
class QuarantineReasons(Report):
    """Why lines are in quarantine.

    Attributes:
        source: whose they are.
        kinds: reasons with the field that they are about, the commonest first.
    """

    source: Source
    kinds: Sequence[RejectKind]

    def title(self) -> str:
        """How many lines."""
        lines = sum(kind.lines for kind in self.kinds)
        return f"{self.source.quarantine_table}: {lines:,} lines"

    def facts(self) -> Iterator[tuple[str, object]]:
        """Each reason with one of its lines, and the change of the definition that takes them."""
        for kind in self.kinds[:_REASONS_SHOWN]:
            first = kind.first
            line = first[LANDING_LINE]
            where = f"{first[LANDING_FILE]}{'' if line is None else f' line {line}'}"
            yield (
                f"{kind.lines:,} x {kind}",
                f"{first['detail'] or ''} ({where}). {remedy(self.source, kind)}",
            )

    def to_dict(self) -> dict[str, object]:
        return {
            "table": self.source.table,
            "lines": sum(kind.lines for kind in self.kinds),
            "reasons": [
                {
                    "reason": kind.reason,
                    "field": kind.field or None,
                    "lines": kind.lines,
                    "file": kind.first[LANDING_FILE],
                    "line": kind.first[LANDING_LINE],
                    "detail": kind.first["detail"],
                    "taken_by": remedy(self.source, kind),
                }
                for kind in self.kinds
            ],
        }


def quarantine_reasons(lake: Lakehouse, table: str) -> QuarantineReasons:
    """Why lines of a raw table of the checkout's pipeline are in quarantine.

    Raises:
        NotFoundError: no checkout, or no source writes the table.
        NoSuchTableError: nothing was indexed yet.
    """
    source = _source_of(table)[1]
    return QuarantineReasons(source, reject_kinds(lake.load_table(source.quarantine_table)))


def retry_quarantine(lake: Lakehouse, table: str, *, dry_run: bool = False) -> QuarantineRetry:
    """`retry` for a raw table of the checkout's pipeline.

    Raises:
        NotFoundError: no checkout, or no source writes the table.
    """
    pipeline, source = _source_of(table)
    return retry(lake, pipeline.landing_root, source, dry_run=dry_run)


def fill_from_rest(lake: Lakehouse, table: str, *, dry_run: bool = False) -> FilledColumns:
    """`fill_columns` for a raw table of the checkout's pipeline.

    Raises:
        NotFoundError: no checkout, or no source writes the table.
    """
    return fill_columns(lake, _source_of(table)[1], dry_run=dry_run)


def _source_of(table: str) -> tuple[Pipeline, Source]:
    pipeline = checkout_here().pipeline
    sources = {source.table: source for source in pipeline.sources}
    if table not in sources:
        raise NotFoundError(
            f"no source writes {table}; raw tables of sources are {', '.join(sources) or 'none'}"
        )
    return pipeline, sources[table]


def retry(
    lake: Lakehouse,
    landing_root: str,
    source: Source,
    *,
    dry_run: bool = False,
    summary: Mapping[str, str] | None = None,
) -> QuarantineRetry:
    """Have the next run judge quarantined lines by the source's present definition.

    Their days are written again from the landing files, so that a line is a row, a duplicate or in
    quarantine afterwards, and never two of them. Until then everything stays as it is; done twice
    it is as if done once.

    Args:
        lake: the tables.
        landing_root: where the landing folders are.
        source: as it is defined now.
        dry_run: say what would be taken, mark nothing.
        summary: entries for the summary of the ledger's snapshot.

    Raises:
        NoSuchTableError: nothing of the source was ever indexed.
        NoSuchFileError: the landing folder does not exist.
    """
    if not lake.table_exists(source.ledger_table):
        raise NoSuchTableError(
            f"{source.ledger_table} does not exist: nothing of the source {source.name!r} was "
            "indexed yet",
            table=source.ledger_table,
        )
    ledger = lake.load_table(source.ledger_table)
    wanted = Or(GreaterThan(term="quarantined", value=0), NotNull(term="problem"))
    rejected = [row for row in read_ledger(ledger, wanted) if row.quarantined or row.problem]
    undated = {row.landing_file: row for row in rejected if row.event_day is None}
    dated = [row for row in rejected if row.event_day is not None and row.quarantined]
    of_files = read_ledger(ledger, In(term=LANDING_FILE, literals=set(undated))) if undated else []
    days = {row.event_day for row in (*dated, *of_files) if row.event_day is not None}
    known = [*of_files, *(read_ledger(ledger, day_in(sorted(days))) if days else ())]
    named = {row.landing_file for row in known}
    there = landed_among(list_landing(landing_root, source, named), known)
    missing = [row for row in known if row.file not in there]
    closed = {row.event_day for row in missing if row.event_day is not None and row.lines}
    lost = {row.landing_file for row in of_files if row.event_day in closed}
    lost |= {row.landing_file for row in undated.values() if row.file not in there}
    taken = [row for row in dated if row.event_day not in closed]
    files = sorted(undated.keys() - lost)
    conditions: list[BooleanExpression] = []
    if taken:
        these = day_in(sorted({row.event_day for row in taken if row.event_day is not None}))
        conditions.append(And(GreaterThan(term="quarantined", value=0), these))
    if files:
        of_these = In(term=LANDING_FILE, literals=set(files))
        conditions.append(And(IsNull(term="event_day"), of_these))
    if conditions and not dry_run:
        ledger.update(
            {"pending": "true", "replaces": "true"},
            conditions[0] if len(conditions) == 1 else Or(*conditions),
            summary=summary,
        )
    left = [row for row in dated if row.event_day in closed]
    left += [undated[file] for file in lost if file in undated]
    return QuarantineRetry(
        source=source,
        lines=sum(row.quarantined for row in taken),
        days=tuple(sorted({row.event_day for row in taken if row.event_day is not None})),
        undated_lines=sum(undated[file].quarantined for file in files),
        undated_files=tuple(files),
        left=sum(row.quarantined for row in left),
        gone=tuple(sorted({row.landing_file for row in missing})),
        dry_run=dry_run,
    )


def retry_job(pipeline: Pipeline) -> dg.JobDefinition:
    """The job `retry_quarantine`: one step for each source, which runs `retry`."""

    def again(lakehouse: LakehouseResource, source: Source, run_id: str, **how: bool) -> str:
        lake = lakehouse.lake()
        if not lake.table_exists(source.ledger_table):
            return f"nothing of {source.name} was indexed yet"
        return as_text(retry(lake, lakehouse.landing, source, summary={RUN_ID: run_id}, **how))

    what = "Have the next run judge quarantined lines by the present definitions."
    return _job(pipeline, "retry_quarantine", what, again)


def fill_job(pipeline: Pipeline) -> dg.JobDefinition:
    """The job `fill_columns`: one step for each source, which runs `fill_columns`."""

    def fill(lakehouse: LakehouseResource, source: Source, run_id: str, **how: bool) -> str:
        lake = lakehouse.lake()
        if source.rescue is None:
            return f"{source.name} rescues nothing that columns could be filled from"
        if not lake.table_exists(source.table):
            return f"nothing of {source.name} was ingested yet"
        return as_text(fill_columns(lake, source, summary={RUN_ID: run_id}, **how))

    what = "Fill columns that were declared late from what their source rescued."
    return _job(pipeline, "fill_columns", what, fill)


def _job(pipeline: Pipeline, name: str, what: str, act: Callable[..., str]) -> dg.JobDefinition:
    """A job with a step for each source, which does what `act` does, and logs what it says."""
    tables = [source.table for source in pipeline.sources]

    def step_of(source: Source) -> dg.OpDefinition:
        @dg.op(
            name=f"{name}__{source.name}",
            pool=pool(source.table),
            out=dg.Out(dg.Nothing),
            description=f"{source.table}: {what}",
        )
        def step(context: dg.OpExecutionContext, lakehouse: LakehouseResource) -> None:
            with explained():
                if source.table not in chosen_tables(tables, context.run_tags):
                    context.log.info(f"{source.table} is not among {context.run_tags[TABLES_TAG]}")
                    return
                dry_run = context.run_tags.get(DRY_RUN_TAG, "") == "true"
                context.log.info(act(lakehouse, source, context.run_id, dry_run=dry_run))

        return step

    steps = [step_of(source) for source in pipeline.sources]

    @dg.job(
        name=name,
        description=f"{what} Tag `{TABLES_TAG}` with raw tables to choose some, `{DRY_RUN_TAG}` "
        "with `true` to see what would be done.",
    )
    def job() -> None:
        for step in steps:
            step()

    return job
