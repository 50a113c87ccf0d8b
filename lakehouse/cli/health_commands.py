"""`health`, `advise`, `adopt` and `analyze`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Group
from rich.text import Text

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.cli.catalog_commands import TableArgument
from lakehouse.cli.catalog_settings import catalog_options
from lakehouse.cli.command_session import DryRunOption, Session, command
from lakehouse.errors import InvalidInputError, LakehouseError
from lakehouse.maintenance.advice.table_survey import advise_table
from lakehouse.maintenance.column_sketches import compute_statistics, plan_statistics
from lakehouse.maintenance.health.table_health import health as measure
from lakehouse.maintenance.key_filter_build import compute_key_filters, plan_key_filters
from lakehouse.maintenance.partition_statistics import (
    compute_partition_statistics,
    plan_partition_statistics,
)
from lakehouse.maintenance.reachability.neighbours import KnownTables
from lakehouse.maintenance.shown_plan import Report
from lakehouse.maintenance.upkeep import Upkeep, upkeep
from lakehouse.spec.identifier import Identifier
from lakehouse.tuning.adoption import last_steps, recorded_scans
from lakehouse.tuning.trial import tune as try_layouts

TablesArgument = Annotated[list[str] | None, typer.Argument(help="Tables; all of them by default.")]
DiskOption = Annotated[
    bool,
    typer.Option("--disk", help="List the files as well: bytes by live, historical, unreferenced."),
]
ScansOption = Annotated[
    str | None,
    typer.Option(
        "--scans",
        help=(
            "Scan reports, a JSON lines file or a table: what queries filtered by, and what was "
            "skipped."
        ),
    ),
]


@command
def health(
    session: Session,
    tables: TablesArgument = None,
    disk: DiskOption = False,
    scans: ScansOption = None,
) -> None:
    """Measure tables from metadata: small files, deletes, manifests, snapshots, skew.

    Example: lakehouse health raw.flights --disk
    """
    reports_of_scans = scan_reports(session, scans)
    opened = [session.table(name) for name in tables or session.lake.list_tables()]
    project = session.options.properties
    reports = [
        measure(
            table.catalog,
            table.identifier,
            environment=session.environment,
            project=project,
            list_files=disk,
            scan_reports=reports_of_scans,
        )
        for table in opened
    ]
    steps = last_steps(session.lake)
    lines = [
        Text(f"{name}: layout {steps[name]['action']} at {steps[name]['at']:%Y-%m-%d}: ")
        + Text(f"{steps[name]['layout']} ({steps[name]['why']})")
        for name in (str(report.identifier) for report in reports)
        if name in steps
    ]
    session.show(
        [{**report.to_dict(), "tuning": steps.get(str(report.identifier))} for report in reports],
        Group(*reports, *lines) if reports else Text("No tables."),
    )


@command
def advise(
    session: Session,
    tables: TablesArgument = None,
    filter_: Annotated[
        list[str] | None,
        typer.Option(
            "--filter", help="A column that queries filter by, repeatable, the most frequent first."
        ),
    ] = None,
    disk: DiskOption = False,
    scans: ScansOption = None,
) -> None:
    """Rank maintenance by files removed per byte rewritten, and recommend changes of layout.

    Example: lakehouse advise raw.flights --filter tailnum
    """
    reports_of_scans = scan_reports(session, scans)
    opened = [session.table(name) for name in tables or session.lake.list_tables()]
    advice = [
        advise_table(
            table.catalog,
            table.identifier,
            environment=session.environment,
            project=session.options.properties,
            filters=filter_ or (),
            list_files=disk,
            scan_reports=reports_of_scans,
        )
        for table in opened
    ]
    _show_each(session, advice)


@command
def adopt(
    session: Session,
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="[CATALOG]",
            help="The catalog, such as https://catalog.example/; --catalog by default.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Tables by name or pattern, such as 'raw.*', repeatable."),
    ] = None,
    trial: Annotated[
        bool, typer.Option("--trial", help="Try layouts as well, as `lakehouse tune` does.")
    ] = False,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Carry out what the policies of the tables ask for now."),
    ] = False,
) -> None:
    """Show what maintenance by policy would do to the tables of any catalog, and do it.

    Whoever wrote the tables. Properties lakehouse.maintenance.* of a table, or of the catalog as
    --property, are its policy. Exit code 1 where an action failed.

    Example: lakehouse adopt https://catalog.example/ --only 'raw.*'
    """
    if place is not None:
        session.options = catalog_options(
            place,
            session.options.warehouse,
            session.options.name,
            [f"{key}={value}" for key, value in session.options.properties.items()],
        )
    names = [
        name
        for name in session.lake.list_tables()
        if not only or any(fnmatchcase(name, pattern) for pattern in only)
    ]
    reports: list[Report] = []
    failed = False
    catalog = session.lake.catalog
    tables = _loaded(catalog)
    with session.progress() as progress:
        for name in names:
            identifier = Identifier.parse(name)
            report = upkeep(
                catalog,
                identifier,
                apply=apply,
                environment=session.environment,
                project=session.options.properties,
                progress=progress,
                tables=tables,
            )
            if trial and report.health is not None:
                report = _with_trial(session, report)
            failed = failed or bool(report.errors)
            reports.append(report)
    _show_each(session, reports)
    if not apply:
        session.confirm_dry_run()
    if failed:
        raise typer.Exit(1)


def _show_each(session: Session, reports: Sequence[Report]) -> None:
    data = [report.to_dict() for report in reports]
    session.show(data, Group(*reports) if reports else Text("No tables."))


def _loaded(catalog: Catalog) -> KnownTables | None:
    """None where a table cannot be loaded: each then says that it may have files of that one."""
    try:
        return KnownTables.of(catalog)
    except LakehouseError:
        return None


def _with_trial(session: Session, report: Upkeep) -> Upkeep:
    """With what a trial of layouts says, or why there is none."""
    try:
        table = session.table(str(report.identifier))
        trial = try_layouts(table, reports=recorded_scans(session.lake))
    except LakehouseError as error:
        return replace(report, errors={**report.errors, "tune": error.message})
    return replace(report, plans={**report.plans, "tune": trial})


@command
def analyze(
    session: Session,
    table: TableArgument,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column", help="A column to count, repeatable; all of a primitive type by default."
        ),
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--keys",
            help="Make filters of this column's values instead, repeatable: upserts of few keys "
            "then leave out the files that surely lack them.",
        ),
    ] = None,
    partitions: Annotated[
        bool,
        typer.Option(
            "--partitions", help="Count rows, files and deletes of each partition instead."
        ),
    ] = False,
    snapshot_id: Annotated[
        int | None, typer.Option("--snapshot-id", help="The current snapshot by default.")
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Write statistics: distinct counts, partition statistics or key filters.

    Example: lakehouse analyze raw.flights --column tailnum
    """
    handle = session.table(table)
    if bool(keys) + bool(column) + partitions > 1:
        raise InvalidInputError(
            "--keys makes filters, --column counts values, --partitions counts files: one at a time"
        )
    plan: Callable[..., Report]
    compute: Callable[..., Report]
    what: dict[str, Any] = {"snapshot_id": snapshot_id}
    if keys:
        plan, compute, what["columns"] = plan_key_filters, compute_key_filters, keys
    elif partitions:
        plan, compute = plan_partition_statistics, compute_partition_statistics
    else:
        plan, compute, what["columns"] = plan_statistics, compute_statistics, column
    place = (handle.catalog, handle.identifier)
    if dry_run:
        session.report(plan(*place, **what), dry_run=True)
    else:
        session.report(compute(*place, **what, environment=session.environment))


def scan_reports(session: Session, source: str | None) -> list[dict[str, Any]] | None:
    """Rows of a `TableListener`'s table, or a file of reports as a `KafkaListener` sends them."""
    if source is None:
        return None
    path = Path(source)
    if not path.is_file():
        return [dict(row) for row in session.table(source).scan().to_arrow().to_pylist()]
    try:
        return [orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(
            f"{source} is no file of scan reports, one JSON object a line: {error}"
        ) from error
