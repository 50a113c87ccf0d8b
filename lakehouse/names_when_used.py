"""Names of a package that are imported when they are first used.

The packages that export names share it; it imports nothing, as they do.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def names_when_used(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package.

    Args:
        package: its name.
        homes: the names that each module below `lakehouse` gives, with blanks between them.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def named(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"lakehouse.{home[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return named
