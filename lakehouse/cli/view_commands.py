"""`materialized-view create`, `refresh`, `show`, `drop`: views whose rows are kept."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from lakehouse.cli.command_list import COMMANDS
from lakehouse.cli.command_session import Session, command
from lakehouse.cli.optional_parts import load_module
from lakehouse.lake import Lakehouse

ViewArgument = Annotated[str, typer.Argument(help="Name of the view, such as marts.users.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help=COMMANDS["materialized-view"].help)
    for verb in (create, refresh, show, drop):
        command(group, verb.__name__)(verb)
    app.add_typer(group, name="materialized-view")


def create(
    session: Session,
    view: ViewArgument,
    sql: Annotated[str, typer.Argument(help="A SELECT of Spark SQL over namespace.table.")],
    refresh: Annotated[
        str,
        typer.Option("--refresh", help="full, auto, incremental or incremental_strict."),
    ] = "auto",
    engine: Annotated[
        str, typer.Option("--engine", help="What computes it: duckdb, datafusion or polars.")
    ] = "duckdb",
    partition_by: Annotated[
        list[str] | None,
        typer.Option("--partition-by", help="Partition term of its rows; repeatable."),
    ] = None,
) -> None:
    """Create a materialized view; it has rows after its first refresh.

    Example: lakehouse materialized-view create marts.late "SELECT * FROM clean.flights WHERE ..."
    """
    made = _views().create(
        session.lake,
        view,
        sql,
        refresh=refresh,
        engine=engine,
        partition_by=partition_by or (),
    )
    said = f"Created {made.name}; lakehouse materialized-view refresh {made.name} computes its rows"
    session.show({"view": made.name, "storage_table": made.storage}, Text(f"{said}."))


def refresh(
    session: Session,
    view: ViewArgument,
    full: Annotated[
        bool, typer.Option("--full", help="Compute all rows again, whatever has changed.")
    ] = False,
) -> None:
    """Bring the rows of a materialized view up to date, by what changed where that can be.

    Example: lakehouse materialized-view refresh marts.by_carrier
    """
    done = _views()(session.lake, view).refresh(full=full)
    session.show(done.to_dict(), Text(f"{view}: {done.mode}, {done.reason}"))


def show(session: Session, view: ViewArgument) -> None:
    """Show whether the rows of a materialized view are fresh, and how far they are behind.

    Example: lakehouse materialized-view show marts.by_carrier
    """
    session.report(_views()(session.lake, view).freshness())


def drop(session: Session, view: ViewArgument) -> None:
    """Drop a materialized view and the table that has its rows.

    Example: lakehouse materialized-view drop marts.by_carrier
    """
    _views()(session.lake, view).drop()
    session.show({"view": view}, Text(f"Dropped {view}."))


def kept_rows(lake: Lakehouse, view: str) -> dict[str, Any]:
    """Where a materialized view keeps its rows, and whether they are fresh: for `describe`."""
    found = _views()(lake, view).freshness()
    return {"freshness": found.title(), "materialized": found.to_dict()}


def _views() -> Any:
    return load_module("lakehouse.orchestration.materialized_view", "dagster").MaterializedView
