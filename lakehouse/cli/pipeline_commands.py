"""Pipelines: what changed definitions would do, what was read, and the archive of sessions."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.text import Text

from lakehouse.cli.command_session import Session, command, load_module
from lakehouse.errors import InvalidInputError


@command
def plan_changes(
    session: Session,
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables to look at, such as raw.events; none: all.")
    ] = None,
) -> None:
    """Show what the current definitions would do to the existing tables; change nothing.

    Exit code 2 if there are changes, 0 if there are none.

    Example: lakehouse plan-changes raw.flights
    """
    module: Any = load_module("lakehouse.orchestration.planned_changes", "dagster")
    plan = module.planned_changes(session.lake, tables or ())
    session.report(plan)
    if plan.changes:
        raise typer.Exit(2)


@command
def quarantine(
    session: Session,
    table: Annotated[str, typer.Argument(help="Raw table of a source, such as raw.events.")],
) -> None:
    """Count the quarantined lines of a source by reason; what change would take them.

    Example: lakehouse quarantine raw.flights
    """
    module: Any = load_module("lakehouse.orchestration.automation.quarantine_retry", "dagster")
    session.report(module.quarantine_reasons(session.lake, table))


@command
def retry_quarantine(
    session: Session,
    table: Annotated[str, typer.Argument(help="Raw table of a source, such as raw.events.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be taken, change nothing.")
    ] = False,
) -> None:
    """Make the next run try quarantined lines again, by the source's current definition.

    Example: lakehouse retry-quarantine raw.flights --dry-run
    """
    module: Any = load_module("lakehouse.orchestration.automation.quarantine_retry", "dagster")
    done = module.retry_quarantine(session.lake, table, dry_run=dry_run)
    session.report(done, dry_run=dry_run)


@command
def fill_columns(
    session: Session,
    table: Annotated[str, typer.Argument(help="Raw table of a source, such as raw.events.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the values, change nothing.")
    ] = False,
) -> None:
    """Fill columns from the fields that records had before the source declared them."""
    module: Any = load_module("lakehouse.orchestration.automation.quarantine_retry", "dagster")
    done = module.fill_from_rest(session.lake, table, dry_run=dry_run)
    session.report(done, dry_run=dry_run)


@command
def lineage(
    session: Session,
    asset: Annotated[str, typer.Argument(help="Asset key, such as raw/events.")],
    partition: Annotated[
        str | None, typer.Option("--partition", help="Partition key, such as 2026-06-02.")
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay", help="Recompute the output from exactly these snapshots and compare."
        ),
    ] = False,
) -> None:
    """Show the inputs of a materialization and the snapshots that were read.

    Example: lakehouse lineage marts/aircraft --replay
    """
    module: Any = load_module("lakehouse.orchestration.lineage.replay", "dagster")
    session.report(module.lineage(session.lake, asset, partition=partition, replay=replay))


@command
def why(
    session: Session,
    table: Annotated[str, typer.Argument(help="Table whose rows are asked about.")],
    where: Annotated[str, typer.Option("--where", help="Which rows, as a SQL condition.")],
    column: Annotated[
        str | None,
        typer.Option("--column", help="Only what counts for this column of an aggregate."),
    ] = None,
    snapshot: Annotated[
        int | None, typer.Option("--snapshot", help="Of the table; the current one otherwise.")
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", help="The last snapshot that this run of Dagster wrote.")
    ] = None,
    sample: Annotated[
        int, typer.Option("--sample", min=0, help="Rows of each table on the way that are shown.")
    ] = 0,
) -> None:
    """Show the landing files and lines that rows of a table were computed from, and prove it.

    Exit code 1 if the table, computed again from these lines alone, has other rows.

    Example: lakehouse why marts.carrier_day --where "day = DATE '2013-02-09' and carrier = 'UA'"
    """
    module: Any = load_module("lakehouse.orchestration.lineage.why", "dagster")
    answer = module.why(
        session.lake, table, where, column=column, snapshot_id=snapshot, run=run, sample=sample
    )
    session.report(answer)
    if answer.equal is False:
        raise typer.Exit(1)


@command
def why_not(
    session: Session,
    table: Annotated[str, typer.Argument(help="Table that has no such row.")],
    where: Annotated[str, typer.Option("--where", help="Which row, as a SQL condition.")],
) -> None:
    """Show what took a row that a table has not: a filter, a join, a check, or quarantine.

    Example: lakehouse why-not clean.flights --where "flight = 734 and carrier = 'UA'"
    """
    module: Any = load_module("lakehouse.orchestration.lineage.why_not", "dagster")
    session.report(module.why_not(session.lake, table, where))


@command
def impact(
    session: Session,
    table: Annotated[str, typer.Argument(help="Table whose rows, or landing lines, went on.")],
    file: Annotated[
        str | None, typer.Option("--file", help="A landing file, as landing_file has it.")
    ] = None,
    line: Annotated[
        list[int] | None, typer.Option("--line", min=1, help="Of the file; repeatable. Else all.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", help="Which rows, as a SQL condition.")
    ] = None,
    sample: Annotated[
        int, typer.Option("--sample", min=0, help="Rows of each table that are shown.")
    ] = 5,
) -> None:
    """Show which rows of which tables landing lines, or rows of a table, went into.

    Example: lakehouse impact raw.flights --file 2013-02-09.jsonl.gz --line 7
    """
    module: Any = load_module("lakehouse.orchestration.lineage.impact", "dagster")
    how = {"file": file, "lines": line or (), "where": where, "sample": sample}
    session.report(module.impact(session.lake, table, **how))


@command
def undo(
    session: Session,
    run: Annotated[str, typer.Argument(help="Run of Dagster, or the beginning of its id.")],
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="Only these tables; repeatable. Else all that it wrote."),
    ] = None,
    take_again: Annotated[
        bool,
        typer.Option(
            "--take-again/--no-take-again",
            help="Whether the landing files that it ingested are pending again.",
        ),
    ] = True,
    by_rows: Annotated[
        bool,
        typer.Option(
            "--by-rows",
            help="Where others have changed a table since, take back the run's rows alone.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
) -> None:
    """Return every table that a run wrote to what it was before the run.

    Refused if anybody has changed rows of one of them since. Nothing is deleted.

    Example: lakehouse undo 3f2a91c4 --dry-run
    """
    module: Any = load_module("lakehouse.orchestration.lineage.undo", "dagster")
    how = {"take_again": take_again, "by_rows": by_rows, "dry_run": dry_run}
    session.report(module.undo(session.lake, run, tables or (), **how), dry_run=dry_run)


@command
def forget(
    session: Session,
    where: Annotated[
        str | None,
        typer.Option("--where", help="Whose rows: user_id = 42, or user_id IN (42, 43)."),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            help="Table with the column; repeatable; none: all that have it. Derived ones follow.",
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", help="Instead: a landing file, as landing_file has it."),
    ] = None,
    line: Annotated[
        list[int] | None, typer.Option("--line", min=1, help="Of the file; repeatable. Else all.")
    ] = None,
    backup: Annotated[
        list[str] | None,
        typer.Option("--backup", help="Folder of backups to search for the rows; repeatable."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Do it. Rows and snapshots cannot be brought back.")
    ] = False,
) -> None:
    """Delete a person's rows, or a delivery's, and their bytes in all files; else show a plan.

    Exit code 1 if a file holds them still.

    Example: lakehouse forget --where "user_id = 42" --table raw.events
    """
    if (file is None) == (where is None):
        raise InvalidInputError("say which rows: either --where, or --file, with or without --line")
    if line and file is None:
        raise InvalidInputError("--line is of a landing file: name it with --file")
    # a branch of the lake would hide the rows of main
    lake = session.shared_lake
    module: Any = load_module("lakehouse.orchestration.lineage.forget", "dagster")
    if file is None:
        forgetting = module.forget(lake, where, tables or (), apply=apply)
    else:
        of_lines: Any = load_module("lakehouse.orchestration.lineage.forget_lines", "dagster")
        forgetting = of_lines.forget_lines(lake, file, line or (), tables or (), apply=apply)
    session.report(module.with_backups(lake, forgetting, backup or ()))
    if forgetting.left or forgetting.unreachable:
        raise typer.Exit(1)


@command
def spark_archive(
    session: Session,
    again: Annotated[
        bool, typer.Option("--again", help="Replace the archive that is there.")
    ] = False,
) -> None:
    """Archive Spark's classes, so that sessions start in half the time.

    Example: lakehouse spark-archive
    """
    module: Any = load_module("lakehouse.spark.jvm.class_archive", "spark")
    begin = time.perf_counter()
    path, made = module.make_archive(again=again)
    size = path.stat().st_size
    text = f"Spark starts with the classes in {path} ({size / 1e6:,.0f} MB)"
    if made:
        text += f", made in {time.perf_counter() - begin:.0f} s"
    session.show({"archive": str(path), "bytes": size, "made": made}, Text(f"{text}."))
