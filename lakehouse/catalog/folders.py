"""The folders that tables and namespaces get by default, as their names give them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lakehouse.catalog.catalog_protocol import Namespace
from lakehouse.environment import Environment
from lakehouse.errors import InvalidIdentifierError
from lakehouse.spec.identifier import Identifier, dotted
from lakehouse.storage.location import canonical, join

_NAME_BYTES_MAX = 255
"""Of the name of a file or folder, on the file systems in use."""
_ENCODED = str.maketrans({character: f"%{ord(character):02X}" for character in "%/."})
_OWN = re.compile(r"[0-9a-f]{12}(?=/|$)")


def own_suffix(environment: Environment) -> str:
    """A name that no other folder has."""
    return environment.new_uuid().hex[:12]


def folder_name(level: str) -> str:
    """The folder that a level of a name gets by default; no two have the same.

    The name itself; where it has `%`, `/` or `.`, these are percent-encoded.
    """
    return level.translate(_ENCODED)


def namespace_folder(warehouse: str, namespace: Namespace) -> str:
    """Where the tables of a namespace lie by default. Raises InvalidIdentifierError: too long."""
    folders = [folder_name(level) for level in namespace]
    for level, folder in zip(namespace, folders, strict=True):
        if len(folder.encode()) > _NAME_BYTES_MAX:
            raise InvalidIdentifierError(
                f"Namespace {dotted(namespace)[:80]}: the folder of {level[:40]!r} would have more "
                f"than {_NAME_BYTES_MAX} bytes, each %, slash and dot taking three. Give the "
                "location of the table."
            )
    return join(warehouse, *folders)


def own_folder(warehouse: str, identifier: Identifier, environment: Environment) -> str:
    """A folder that no table has or had, whatever its name.

    `<warehouse>/raw/events-0f3a59c1d2b4`. Raises InvalidIdentifierError.
    """
    folder = namespace_folder(warehouse, identifier.namespace)
    return own_folder_in(folder, identifier.name, environment)


def own_folder_in(folder: str, table: str, environment: Environment) -> str:
    """A folder in the folder of a namespace that no table has or had, whatever its name."""
    suffix = f"-{own_suffix(environment)}"
    name = folder_name(table).encode()
    short = name[: _NAME_BYTES_MAX - len(suffix)].decode(errors="ignore")
    return join(folder, short + suffix)


def in_own_folder_below(location: str, folder: str) -> bool:
    """Whether `location` is, or lies in, a folder directly below `folder` that has such a name."""
    inner, outer = canonical(location), canonical(folder).rstrip("/") + "/"
    return inner.startswith(outer) and _OWN.match(inner, len(outer)) is not None


def plain_folder(warehouse: str, levels: Sequence[str]) -> str:
    """Where a name is in a warehouse, each level a folder of that name.

    Raises InvalidIdentifierError for a dot or slash in a level: other engines find tables by their
    folders, so that nothing can be written differently there.
    """
    for level in levels:
        refused = next((character for character in level if character in "./"), None)
        if refused is not None:
            raise InvalidIdentifierError(
                f"Name {level!r} holds the character {refused!r}, which is not allowed in names of "
                "a filesystem catalog: the folder is the name. Use a SQL catalog."
            )
    return join(warehouse, *levels)
