"""Finding the pipeline of a checkout: the folder that holds `definitions.py`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from lakehouse.errors import NotFoundError

if TYPE_CHECKING:
    import dagster as dg

    from lakehouse.orchestration.project import Pipeline


class Checkout(Protocol):
    """The module `definitions` of a checkout.

    Attributes:
        pipeline: its sources and derived tables.
        defs: everything that Dagster sees.
    """

    pipeline: Pipeline
    defs: dg.Definitions


def checkout_here() -> Checkout:
    """The definitions of the checkout that this process works in. Raises NotFoundError."""
    return cast("Checkout", load_module("definitions", Path.cwd()))


def find_checkout(start: Path) -> Path:
    """The nearest folder, upwards from `start`, with a `definitions.py`. Raises NotFoundError."""
    for folder in (start, *start.parents):
        if (folder / "definitions.py").is_file() and (folder / "assets").is_dir():
            return folder
    raise NotFoundError(
        f"no definitions.py in {start} or above: run this command in a checkout of the project"
    )


def load_module(name: str, start: Path) -> ModuleType:
    """A module of the checkout, such as `definitions`. Raises NotFoundError."""
    folder = str(find_checkout(start))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)
