"""`branch create`, `list`, `diff`, `publish`, `drop`: branches of the whole lake."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from lakehouse.cli.command_session import DryRunOption, Session, command, load_module
from lakehouse.errors import InvalidInputError, NotFoundError
from lakehouse.maintenance.shown_plan import listing
from lakehouse.table.publication import TableDifference

BranchArgument = Annotated[str, typer.Argument(help="Name of the branch.")]


@command
def create(
    session: Session,
    branch: BranchArgument,
    all_: Annotated[
        bool, typer.Option("--all", help="Of all tables; there is no branch of some.")
    ] = False,
) -> None:
    """Create a branch of all tables, which copies nothing.

    Example: lakehouse branch create dev --all
    """
    if not all_:
        raise InvalidInputError(
            f"Say --all to create {branch} as a branch of all tables; that of one table is "
            "created by its first write: table.append(rows, branch=...)."
        )
    session.shared_lake.on_branch(branch)  # refuses names
    session.shared_lake.branch(branch).create()
    session.show(
        {"branch": branch},
        Text(f"Created {branch}. Work on it by LAKEHOUSE_BRANCH={branch}, such as dagster dev."),
    )


@command
def list_(session: Session) -> None:
    """List the branches of the lake, and how many tables may have rows on each.

    Example: lakehouse branch list
    """
    branches = sorted(
        (name, len(tables)) for name, tables in session.shared_lake.branches().items()
    )
    data = [{"branch": name, "tables": count} for name, count in branches]
    session.show(data, listing(("branch", "#tables"), branches))


@command
def diff(session: Session, branch: BranchArgument) -> None:
    """Show by table what a branch changes: rows, columns, the checks of its runs.

    And what main has got meanwhile. The checks are those of the runs that wrote to the branch, as
    Dagster's instance (DAGSTER_HOME) has them.

    Example: lakehouse branch diff dev
    """
    session.show(*_compared(session.shared_lake.branch(branch).differences()))


@command
def publish(session: Session, branch: BranchArgument, dry_run: DryRunOption = False) -> None:
    """Make a branch main in all of its tables, or in none.

    Example: lakehouse branch publish dev
    """
    lake_branch = session.shared_lake.branch(branch)
    if dry_run:
        session.show(*_compared(lake_branch.differences()))
        session.confirm_dry_run()
        return
    done = lake_branch.publish()
    if done is None:
        session.show({"branch": branch, "tables": []}, Text(f"{branch} had no rows of its own."))
        return
    data = {
        "branch": branch,
        "version": done.version,
        "tables": [
            {
                "table": table.name,
                "before_snapshot_id": table.before,
                "snapshot_id": table.snapshot_id,
            }
            for table in done.tables
        ],
    }
    names = ", ".join(table.name for table in done.tables)
    session.show(data, Text(f"Published {names} as version {done.version} of the lake."))


@command
def drop(session: Session, branch: BranchArgument) -> None:
    """Remove a branch from all tables, with what was written to it.

    Example: lakehouse branch drop dev
    """
    names = session.shared_lake.branch(branch).drop()
    session.show(
        {"branch": branch, "tables": names},
        Text(f"Dropped {branch}" + (f", with rows of {', '.join(names)}." if names else ".")),
    )


def _compared(differences: list[TableDifference]) -> tuple[object, RenderableType]:
    checks = _checks(differences)
    data, rows = [], []
    for difference in differences:
        evaluated: dict[str, bool] | None = {}  # where no run wrote to it
        if difference.writers:
            evaluated = None if checks is None else checks[difference.name]
        data.append(
            {
                "table": difference.name,
                "rows_added": difference.added,
                "rows_removed": difference.removed,
                "columns": list(difference.columns),
                "checks": evaluated,
                "commits_on_main_since": difference.overtaken_by,
            }
        )
        rows.append(
            (
                difference.name,
                difference.added,
                difference.removed,
                ", ".join(difference.columns),
                _summary(evaluated),
                difference.overtaken_by,
            )
        )
    shown = ("table", "#added", "#removed", "columns", "checks", "#commits on main since")
    return data, listing(shown, rows)


def _summary(checks: dict[str, bool] | None) -> str:
    if checks is None:
        return "unknown: no Dagster instance here"
    failed = sorted(name for name, passed in checks.items() if not passed)
    parts = [f"{len(checks) - len(failed)} passed"] if len(checks) > len(failed) else []
    return "; ".join([*parts, *([f"failed: {', '.join(failed)}"] if failed else [])])


def _checks(differences: list[TableDifference]) -> dict[str, dict[str, bool]] | None:
    """By table, whether each check passed; None where there is no instance of Dagster."""
    writers = {table.name: table.writers for table in differences if table.writers}
    if not writers:
        return {}
    module: Any = load_module("lakehouse.orchestration.run_publication", "dagster")
    try:
        checks: dict[str, dict[str, bool]] = module.checks_of(writers)
    except NotFoundError:
        return None
    return checks


VERBS = {"create": create, "list": list_, "diff": diff, "publish": publish, "drop": drop}
