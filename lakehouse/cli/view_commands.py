"""`materialized-view create`, `refresh`, `list`, `show`, `drop`: views whose rows are kept."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from lakehouse.cli.command_session import Session, command, load_module
from lakehouse.errors import InvalidInputError, LakehouseError
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.shown_plan import listing

ViewArgument = Annotated[str, typer.Argument(help="Name of the view, such as marts.users.")]


@command
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
    text = f"Created {made.name}; lakehouse materialized-view refresh {made.name} computes its rows"
    session.show({"view": made.name, "storage_table": made.storage}, Text(f"{text}."))


@command
def refresh(
    session: Session,
    views: Annotated[
        list[str] | None,
        typer.Argument(help="Names of views; by default all that are not fresh.", metavar="VIEW"),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Compute all rows again, whatever has changed.")
    ] = False,
) -> None:
    """Bring the rows of materialized views up to date, by what changed where that can be.

    Without a name those of the catalog that are not fresh, each behind the ones that it reads. One
    that fails does not stop the others; the exit code is 1 then.

    Example: lakehouse materialized-view refresh
    """
    kind, failed, done = _views(), False, []
    named = [kind(session.lake, view) for view in views or ()]
    for view in named or kind.all_of(session.lake):
        try:
            if not named and not full and view.freshness().fresh:
                continue
            done.append({"view": view.name, **view.refresh(full=full).to_dict()})
        except LakehouseError as error:
            if named:
                raise
            failed = True
            done.append({"view": view.name, "mode": "failed", "reason": error.message})
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"  # an engine's own error, such as overflow
            if named:
                raise InvalidInputError(f"{view.name}: {reason}", view=view.name) from error
            failed = True
            done.append({"view": view.name, "mode": "failed", "reason": reason})
    lines = [
        f"{refreshed['view']}: {refreshed['mode']}, {refreshed['reason']}" for refreshed in done
    ]
    session.show(done, Text("\n".join(lines) or "All are fresh."))
    if failed:
        raise typer.Exit(1)


@command
def list_all(session: Session) -> None:
    """List the materialized views of the catalog, and whether each is fresh.

    Example: lakehouse materialized-view list
    """
    states = []
    for view in _views().all_of(session.lake):
        try:
            states.append(view.freshness().to_dict())
        except LakehouseError as error:
            states.append(
                {
                    "view": view.name,
                    "storage_table": view.storage,
                    "fresh": False,
                    "reason": error.message,
                    "seconds_behind": None,
                }
            )
    rows = [
        (state["view"], state["storage_table"], state["reason"] or "fresh", state["seconds_behind"])
        for state in states
    ]
    session.show(states, listing(("view", "storage table", "state", "#seconds behind"), rows))


@command
def show(session: Session, view: ViewArgument) -> None:
    """Show whether the rows of a materialized view are fresh, and how far they are behind.

    Example: lakehouse materialized-view show marts.by_carrier
    """
    session.report(_views()(session.lake, view).freshness())


@command
def drop(session: Session, view: ViewArgument) -> None:
    """Drop a materialized view and the table that has its rows.

    Example: lakehouse materialized-view drop marts.by_carrier
    """
    _views()(session.lake, view).drop()
    session.show({"view": view}, Text(f"Dropped {view}."))


def kept_rows(lake: Lakehouse, view: str) -> dict[str, Any]:
    """Where a materialized view keeps its rows, and whether they are fresh: for `describe`."""
    freshness = _views()(lake, view).freshness()
    return {"freshness": freshness.title(), "materialized": freshness.to_dict()}


def _views() -> Any:
    return load_module("lakehouse.orchestration.materialized_view", "dagster").MaterializedView


VERBS = {"create": create, "refresh": refresh, "list": list_all, "show": show, "drop": drop}
