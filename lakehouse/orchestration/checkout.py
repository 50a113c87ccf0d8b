"""Finding the pipeline of a checkout: the folder that holds `definitions.py`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from lakehouse.errors import NotFoundError


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
