"""Parts that need an extra, loaded when a command uses them: the others start without."""

from __future__ import annotations

import importlib
from types import ModuleType

from lakehouse.errors import UnsupportedFeatureError


def load_module(name: str, extra: str) -> ModuleType:
    """Import a module of this package.

    Raises:
        UnsupportedFeatureError: a package of the extra is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UnsupportedFeatureError(
            f"This command needs {error.name}, which is not installed: pip install "
            f"'pylakehouse[{extra}]'",
            module=error.name,
        ) from error
