"""`lineage`, answered by the pipeline's records."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakehouse.cli.command_session import Session, command
from lakehouse.cli.optional_parts import load_module


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "lineage")(lineage)


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
    """Show each input of a materialization at the snapshot that was read."""
    module: Any = load_module("lakehouse.orchestration.replaying", "dagster")
    found = module.lineage(session.lake, asset, partition=partition, replay=replay)
    session.show(found.to_dict(), found)
