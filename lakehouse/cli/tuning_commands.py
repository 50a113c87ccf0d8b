"""`tune`."""

from __future__ import annotations

from typing import Annotated

import typer

from lakehouse.cli.catalog_commands import TableArgument
from lakehouse.cli.command_session import Session, command
from lakehouse.cli.health_commands import ScansOption, scan_reports
from lakehouse.errors import InvalidInputError
from lakehouse.table import Table
from lakehouse.tuning import adoption
from lakehouse.tuning.layouts import Prices
from lakehouse.tuning.trial import check_queries
from lakehouse.tuning.trial import tune as try_layouts

QueryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--query", help="A filter that the table is queried by, repeatable, instead of --scans."
    ),
]
DaysOption = Annotated[
    float, typer.Option("--days", min=1, help="Within so many days a change has to pay.")
]
BudgetOption = Annotated[
    int | None,
    typer.Option(
        "--budget",
        min=1,
        envvar="LAKEHOUSE_REWRITE_BUDGET",
        help="Bytes of old files to rewrite at most; the next --apply goes on.",
    ),
]


@command
def tune(
    session: Session,
    table: TableArgument,
    query: QueryOption = None,
    scans: ScansOption = None,
    days: DaysOption = 30,
    budget: BudgetOption = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Adopt what is proposed, or go on adopting: writers follow, old files are "
            "rewritten, the table is measured, and it is undone if that did not help.",
        ),
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Spec, order and properties as before; data as they are.")
    ] = False,
) -> None:
    """Try layouts of a table on a sample with its recorded queries, and adopt what pays.

    Example: lakehouse tune raw.flights --scans ops.scans
    """
    if apply and undo:
        raise InvalidInputError("--apply adopts a layout, --undo takes it back: one at a time")
    handle = session.table(table)
    if undo:
        _show(session, handle, adoption.undo(handle))
        return
    if not (apply and adoption.is_adopting(handle)):
        queries = check_queries(query, handle.schema()) if query else None
        reports = scan_reports(session, scans) or adoption.recorded_scans(session.lake)
        trial = try_layouts(handle, queries, reports=reports, prices=Prices(days=days))
        if apply and trial.verdict.adopt:
            trial = adoption.adopt(handle, trial)
            adoption.record(session.lake, trial, trial.snapshot_id)
        if not (apply and trial.verdict.adopt):
            session.report(trial)
            return
    with session.progress() as progress:
        done = adoption.step(handle, budget_bytes=budget, progress=progress)
    _show(session, handle, done)


def _show(session: Session, table: Table, done: adoption.Adoption) -> None:
    adoption.record(session.lake, done, table.metadata.current_snapshot_id)
    session.report(done)
