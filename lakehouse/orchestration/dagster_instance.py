"""The Dagster instance: `DAGSTER_HOME`, or the demo's own under `.lakehouse/`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import dagster as dg

from lakehouse.errors import NotFoundError

DEFAULT_HOME = Path(".lakehouse/dagster")


def dagster_home() -> Path:
    """Dagster's folder of runs and events: `DAGSTER_HOME`, else `.lakehouse/dagster` here."""
    return Path(os.environ.get("DAGSTER_HOME") or DEFAULT_HOME).absolute()


def open_instance() -> dg.DagsterInstance:
    """The instance that holds the materializations. Raises NotFoundError."""
    home = dagster_home()
    if not home.is_dir():
        raise NotFoundError(
            f"no Dagster instance in {home}: run `lakehouse demo` first, or set DAGSTER_HOME"
        )
    return (
        dg.DagsterInstance.from_config(str(home))
        if (home / "dagster.yaml").is_file()
        else dg.DagsterInstance.local_temp(str(home))
    )


def prepare_home(checkout: Path) -> Path:
    """Make the instance's folder, and use it here.

    The demo's own is given the checkout's `dagster.yaml`; one that the user named in `DAGSTER_HOME`
    only if it has none.
    """
    home = dagster_home()
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if home.is_relative_to(checkout / ".lakehouse") or not settings.exists():
        shutil.copyfile(checkout / "dagster.yaml", settings)
    os.environ["DAGSTER_HOME"] = str(home)
    return home
