"""`lakehouse demo`: the pipeline of the checkout, once, on real events."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from lakehouse.cli.command_session import Session, command, load_module


@command
def demo(
    session: Session,
    synthetic: Annotated[
        int,
        typer.Option(
            "--synthetic",
            min=0,
            metavar="N",
            help="Generate N events instead of the real flights, into .lakehouse/synthetic-N/.",
        ),
    ] = 0,
) -> None:
    """Run the whole pipeline once on real events, with late files, checks and maintenance.

    Running it again changes no row.
    """
    checkout: Any = load_module("lakehouse.orchestration.checkout", "dagster")
    instances: Any = load_module("lakehouse.orchestration.dagster_instance", "dagster")
    folder: Path = checkout.find_checkout(Path.cwd())
    if synthetic:
        _elsewhere(folder / ".lakehouse" / f"synthetic-{synthetic}")
    instances.prepare_home(folder)
    # Dagster marks parts of its own API that its own code uses
    warnings.filterwarnings("ignore", module=r"dagster\b.*")
    definitions: Any = checkout.load_module("definitions", folder)
    tour: Any = checkout.load_module("examples.demo", folder)
    resource = definitions.defs.resources["lakehouse"]
    with instances.open_instance() as instance:
        options = tour.DemoOptions(synthetic=synthetic)
        tour.run(
            definitions.pipeline,
            resource.lake(),
            definitions.defs,
            instance,
            session.console,
            options,
        )


def _elsewhere(home: Path) -> None:
    """Keep generated events apart from the real ones."""
    os.environ |= {
        "DAGSTER_HOME": str(home / "dagster"),
        "LAKEHOUSE_CATALOG": str(home / "warehouse"),
        "LAKEHOUSE_LANDING": str(home / "landing"),
    }
